//! The operations as JSON-RPC lines over standard input and output, for programs that start the service as their child.
//!
//! A request names an operation as its method. `events.follow` streams the events of a session, or of all sessions without a
//! session, as notifications `event` and `gap` with the id of the subscription; `events.unfollow` ends the stream.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use windlass::core::id::SessionId;

use crate::access::{Caller, Scope};
use crate::json_lines::{ReadLine, RpcId, RpcMessage, read_line};
use crate::operations::{Input, Reply, Request, operation};
use crate::problem::{Problem, ProblemCode};
use crate::reader::FeedItem;
use crate::service::Service;

/// Maximum number of requests in progress.
const MAX_REQUESTS: usize = 256;
/// Maximum number of subscriptions.
const MAX_SUBSCRIPTIONS: usize = 1_000;
/// Lines that wait for the reader of the output. Streams wait when it is full, so a slow reader slows only itself.
const OUTPUT: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FollowParams {
    session: Option<SessionId>,
    #[serde(default)]
    after: u64,
    #[serde(default = "yes")]
    live: bool,
}

fn yes() -> bool {
    true
}

/// Serves requests until the input ends. The caller is the user who started the process.
pub async fn serve_lines(
    service: &Service,
    from: impl tokio::io::AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin + Send + 'static,
) -> std::io::Result<()> {
    let (output, lines) = mpsc::channel(OUTPUT);
    let writing = tokio::spawn(write_lines(to, lines));
    let connection = Arc::new(Connection {
        service: service.clone(),
        caller: Caller::owner(),
        output,
        subscriptions: Mutex::default(),
        requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
    });
    let done = connection.read(BufReader::new(from)).await;
    for (_, subscription) in connection.subscriptions.lock().drain() {
        subscription.cancel();
    }
    // Replies to requests in progress are still written.
    let _ = connection.requests.acquire_many(MAX_REQUESTS as u32).await;
    drop(connection);
    let _ = writing.await;
    done
}

async fn write_lines(
    mut to: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Vec<u8>>,
) -> std::io::Result<()> {
    while let Some(line) = lines.recv().await {
        to.write_all(&line).await?;
        if lines.is_empty() {
            to.flush().await?;
        }
    }
    Ok(())
}

struct Connection {
    service: Service,
    caller: Caller,
    output: mpsc::Sender<Vec<u8>>,
    subscriptions: Mutex<HashMap<RpcId, CancellationToken>>,
    requests: Arc<Semaphore>,
}

impl Connection {
    async fn read(self: &Arc<Self>, mut from: impl AsyncBufRead + Unpin) -> std::io::Result<()> {
        loop {
            let line = match read_line(&mut from).await? {
                ReadLine::Line(line) if line.trim().is_empty() => continue,
                ReadLine::Line(line) => line,
                ReadLine::TooLong => {
                    self.send(RpcMessage::failed(
                        None,
                        -32600,
                        "the line is longer than 32 MB",
                    ))
                    .await;
                    continue;
                }
                ReadLine::End => return Ok(()),
            };
            let message: RpcMessage = match serde_json::from_str(&line) {
                Ok(message) => message,
                Err(err) => {
                    let text = format!("this is not a JSON-RPC request: {err}");
                    self.send(RpcMessage::failed(None, -32700, text)).await;
                    continue;
                }
            };
            let (Some(id), Some(method)) = (message.id, message.method) else {
                // A notification of the client needs no reply, and there is none that means something.
                continue;
            };
            let params = match message.params {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(params)) => params,
                Some(_) => {
                    self.send(RpcMessage::failed(
                        Some(id),
                        -32602,
                        "`params` must be an object",
                    ))
                    .await;
                    continue;
                }
            };
            let Ok(slot) = self.requests.clone().acquire_owned().await else {
                return Ok(());
            };
            let connection = self.clone();
            tokio::spawn(async move {
                let _slot = slot;
                let reply = connection.answer(&id, &method, params).await;
                connection.send(reply).await;
            });
        }
    }

    async fn answer(
        self: &Arc<Self>,
        id: &RpcId,
        method: &str,
        mut params: Map<String, Value>,
    ) -> RpcMessage {
        let done = match method {
            "events.follow" => self.follow(id.clone(), params).await,
            "events.unfollow" => self.unfollow(&params),
            method => match operation(method) {
                None => {
                    let text =
                        format!("there is no operation `{method}`; `GET /openapi.json` lists them");
                    return RpcMessage::failed(Some(id.clone()), -32601, text);
                }
                Some(operation) => {
                    let key = match params.remove("idempotency_key") {
                        Some(Value::String(key)) => Some(key),
                        None => None,
                        Some(_) => {
                            let text = "`idempotency_key` must be a text";
                            return RpcMessage::failed(Some(id.clone()), -32602, text);
                        }
                    };
                    let request = Request {
                        caller: self.caller.clone(),
                        input: Input::Json(params),
                        key,
                    };
                    self.service.call(operation, request).await.map(reply_json)
                }
            },
        };
        match done {
            Ok(text) => {
                let raw = RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned());
                RpcMessage::result(id.clone(), raw)
            }
            Err(problem) => RpcMessage::problem(id.clone(), problem),
        }
    }

    async fn follow(
        self: &Arc<Self>,
        id: RpcId,
        params: Map<String, Value>,
    ) -> Result<String, Problem> {
        let params: FollowParams = serde_json::from_value(Value::Object(params))
            .map_err(|err| Problem::invalid(err.to_string()))?;
        self.caller.require(Scope::Read)?;
        let stop = {
            let mut subscriptions = self.subscriptions.lock();
            if subscriptions.len() >= MAX_SUBSCRIPTIONS || subscriptions.contains_key(&id) {
                return Err(Problem::new(
                    ProblemCode::TooManyRequests,
                    format!(
                        "a connection has at most {MAX_SUBSCRIPTIONS} subscriptions, each with its own id"
                    ),
                ));
            }
            let stop = CancellationToken::new();
            subscriptions.insert(id.clone(), stop.clone());
            stop
        };
        let connection = self.clone();
        match params.session {
            Some(session) => {
                let opened = self
                    .service
                    .events(&self.caller, &session, params.after, params.live)
                    .await;
                let mut reader = match opened {
                    Ok(reader) => reader,
                    Err(problem) => {
                        self.subscriptions.lock().remove(&id);
                        return Err(problem);
                    }
                };
                tokio::spawn(async move {
                    loop {
                        let item = tokio::select! {
                            item = reader.next() => item,
                            () = stop.cancelled() => break,
                        };
                        match item {
                            Ok(item) => connection.notify(&id, &item).await,
                            Err(problem) => {
                                connection.notify_end(&id, &problem).await;
                                break;
                            }
                        }
                    }
                    connection.subscriptions.lock().remove(&id);
                });
            }
            None => {
                let mut feed = self.service.feed(&self.caller);
                tokio::spawn(async move {
                    loop {
                        let item = tokio::select! {
                            item = feed.next() => item,
                            () = stop.cancelled() => break,
                        };
                        connection.notify(&id, &item).await;
                    }
                    connection.subscriptions.lock().remove(&id);
                });
            }
        }
        Ok("{}".to_owned())
    }

    fn unfollow(&self, params: &Map<String, Value>) -> Result<String, Problem> {
        let id = params.get("subscription").cloned().unwrap_or_default();
        let id: RpcId = serde_json::from_value(id).map_err(|_| {
            Problem::invalid("`subscription` must be the id of the request `events.follow`")
        })?;
        match self.subscriptions.lock().remove(&id) {
            Some(subscription) => {
                subscription.cancel();
                Ok("{}".to_owned())
            }
            None => Err(Problem::new(
                ProblemCode::NotFound,
                "there is no such subscription",
            )),
        }
    }

    async fn notify(&self, id: &RpcId, item: &FeedItem) {
        let id = serde_json::to_string(id).unwrap_or_default();
        let line = match item {
            FeedItem::Event(line) => format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{{\"subscription\":{id},\"event\":{}}}}}\n",
                line.json()
            ),
            FeedItem::Gap { live_lost } => format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"gap\",\"params\":{{\"subscription\":{id},\"live_lost\":{live_lost}}}}}\n"
            ),
        };
        let _ = self.output.send(line.into_bytes()).await;
    }

    async fn notify_end(&self, id: &RpcId, problem: &Problem) {
        let message = json!({
            "jsonrpc": "2.0",
            "method": "end",
            "params": { "subscription": id, "problem": problem },
        });
        let _ = self.output.send(format!("{message}\n").into_bytes()).await;
    }

    async fn send(&self, message: RpcMessage) {
        let _ = self.output.send(message.line()).await;
    }
}

/// A reply as JSON; bytes are in base64.
fn reply_json(reply: Reply) -> String {
    match reply {
        Reply::Json(text) => text,
        Reply::Bytes(bytes) => {
            use base64::Engine as _;
            let data = base64::engine::general_purpose::STANDARD.encode(&bytes.bytes);
            json!({
                "content_type": bytes.content_type,
                "offset": bytes.offset,
                "total": bytes.total,
                "data": data,
            })
            .to_string()
        }
    }
}
