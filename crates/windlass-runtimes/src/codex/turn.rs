//! One turn with a running Codex app-server: hello, a conversation begun or gone on with, one turn in it. Its notices
//! become events, its requests are answered exactly once, and when we are told to end it is told so and gets its grace.

mod requests;

use std::collections::HashMap;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::Admitted;

use self::requests::Open;
use super::ended::{Meter, end, failed};
use super::items::{call, foreign, result};
use super::launch;
use super::options::CodexOptions;
use crate::agent::{Answer, CANCEL_GRACE, End, Reported, Visit};
use crate::conversation::Ended;
use crate::offered::{is_offered, offered};
use crate::rpc::{Heard, Rpc, RpcError};
use crate::said::Said;

/// Calls and warnings of one turn.
const MAX_CALLS: usize = 20_000;
const MAX_WARNINGS: u32 = 20;
/// How often in a row it may say that it tries its model again. It would do so for ever.
const MAX_RETRIES: u32 = 6;

/// What is known of a call.
struct Known {
    call: ToolCall,
    verdict: Option<Admitted>,
    /// It is being judged, or was.
    asked: bool,
}

/// What came of something that was waited for.
enum Done {
    Judged {
        request: Value,
        call: String,
        admitted: Admitted,
    },
    Ran {
        request: Value,
        result: ToolResult,
    },
}

pub(super) struct Turn<'v> {
    options: &'v CodexOptions,
    visit: &'v Visit<'v>,
    rpc: Rpc,
    /// Our requests that have no answer.
    asked: HashMap<u64, &'static str>,
    resume: Option<String>,
    say: String,
    thread: Option<String>,
    turn: Option<String>,
    waiting: FuturesUnordered<BoxFuture<'v, Result<Done, RuntimeError>>>,
    open: HashMap<String, Open>,
    calls: HashMap<String, Known>,
    /// Reasoning that waits for what it led to.
    gathered: Vec<Part>,
    /// Its last words.
    text: String,
    /// A message that was begun and not said.
    unsaid: Option<String>,
    error: Option<Value>,
    retries: u32,
    meter: Meter,
    said: Said,
    warnings: u32,
    unknown: u64,
    cancelled: bool,
}

impl<'v> Turn<'v> {
    pub(super) fn new(
        options: &'v CodexOptions,
        visit: &'v Visit<'v>,
        rpc: Rpc,
        resume: Option<String>,
        say: String,
    ) -> Self {
        Self {
            options,
            visit,
            rpc,
            asked: HashMap::new(),
            resume,
            say,
            thread: None,
            turn: None,
            waiting: FuturesUnordered::new(),
            open: HashMap::new(),
            calls: HashMap::new(),
            gathered: Vec::new(),
            text: String::new(),
            unsaid: None,
            error: None,
            retries: 0,
            meter: Meter::default(),
            said: Said::default(),
            warnings: 0,
            unknown: 0,
            cancelled: false,
        }
    }

    /// Follows the program to the end of its answer, and ends it.
    pub(super) async fn follow(mut self) -> Result<Ended, RuntimeError> {
        let visit = self.visit;
        self.hello();
        let mut grace: BoxFuture<'_, ()> = Box::pin(std::future::pending());
        let ended = loop {
            tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !self.cancelled => {
                    self.interrupt();
                    grace = visit.clock.sleep(CANCEL_GRACE);
                }
                () = &mut grace => break None,
                Some(done) = self.waiting.next() => self.answer_done(done?),
                heard = self.rpc.hear(true) => match heard {
                    Heard::End => break None,
                    heard => if let Some(ended) = self.heard(heard).await? {
                        break Some(ended);
                    },
                },
            }
        };
        self.flush(Vec::new()).await?;
        let ended = match ended {
            Some(ended) => {
                // It writes down what it remembers before it exits.
                let grace = if self.cancelled {
                    CANCEL_GRACE / 4
                } else {
                    CANCEL_GRACE * 4
                };
                self.rpc.end(visit.clock, grace).await;
                ended
            }
            None if self.cancelled => self.answered(End::Cancelled),
            None => {
                let how = self.rpc.obituary(visit.clock, CANCEL_GRACE * 4).await;
                self.answered(End::Broken(format!("it ended without an answer, {how}")))
            }
        };
        self.warn_of_unread().await?;
        Ok(ended)
    }

    fn hello(&mut self) {
        let client = json!({ "name": "windlass", "title": "Windlass", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
        self.ask("initialize", &params);
    }

    fn ask(&mut self, method: &'static str, params: &Value) {
        let id = self.rpc.request(method, params);
        self.asked.insert(id, method);
    }

    /// One message of the program; how the turn ended, when that was the last.
    async fn heard(&mut self, heard: Heard) -> Result<Option<Ended>, RuntimeError> {
        match heard {
            Heard::Response { id, result } => match id.and_then(|id| self.asked.remove(&id)) {
                Some(method) => return self.said_back(method, result).await,
                None => self.unknown += 1,
            },
            Heard::Request { id, method, params } => self.request(id, &method, &params).await?,
            Heard::Told { method, params } => return self.notice(&method, &params).await,
            Heard::Odd | Heard::End => self.unknown += 1,
        }
        if let Some(why) = self.said.too_much() {
            let end = End::Broken(why);
            return Ok(Some(self.answered(end)));
        }
        Ok(None)
    }

    /// An answer to a request of ours leads to the next.
    async fn said_back(
        &mut self,
        method: &'static str,
        result: Result<Value, RpcError>,
    ) -> Result<Option<Ended>, RuntimeError> {
        let result = match result {
            Ok(result) => result,
            Err(RpcError { message, .. })
                if method == "thread/resume"
                    && (message.contains("no rollout") || message.contains("not found")) =>
            {
                return Ok(Some(Ended::Forgotten));
            }
            Err(_) if method == "turn/interrupt" => return Ok(None),
            Err(RpcError {
                code, message: why, ..
            }) => {
                let end = End::Broken(format!("it refused `{method}`: {why} ({code})"));
                return Ok(Some(self.answered(end)));
            }
        };
        let id = |of: &str| {
            result
                .get(of)
                .and_then(|one| one.get("id"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        match method {
            "initialize" => {
                self.rpc.tell("initialized", &json!({}));
                let resume = self.resume.as_deref();
                let params = launch::thread(self.options, self.visit, resume);
                let method = if resume.is_some() {
                    "thread/resume"
                } else {
                    "thread/start"
                };
                self.ask(method, &params);
            }
            "thread/start" | "thread/resume" => {
                let Some(thread) = id("thread") else {
                    return Ok(Some(self.answered(End::Broken(
                        "it began a conversation without an id".to_owned(),
                    ))));
                };
                self.visit.began(Some(&thread)).await?;
                if !self.cancelled {
                    let params = launch::turn(self.options, self.visit, &thread, &self.say);
                    self.ask("turn/start", &params);
                }
                self.thread = Some(thread);
            }
            "turn/start" => {
                self.turn = id("turn");
                if self.cancelled {
                    self.stop_turn();
                }
            }
            _ => {}
        }
        Ok(None)
    }

    async fn notice(
        &mut self,
        method: &str,
        params: &Value,
    ) -> Result<Option<Ended>, RuntimeError> {
        let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
        let ours = self.thread.as_deref() == params.get("threadId").and_then(Value::as_str);
        if method.starts_with("item/") {
            self.retries = 0;
        }
        match method {
            "item/started" => {
                self.started(params.get("item").unwrap_or(&Value::Null), ours)
                    .await?
            }
            "item/completed" => {
                self.completed(params.get("item").unwrap_or(&Value::Null), ours)
                    .await?
            }
            "item/agentMessage/delta" if ours => self.visit.delta(DeltaOf::Text, text("delta")),
            "item/reasoning/textDelta" | "item/reasoning/summaryTextDelta" if ours => {
                self.visit.delta(DeltaOf::Reasoning, text("delta"));
            }
            "item/commandExecution/outputDelta" => {
                self.visit
                    .progress(&CallId::from(text("itemId")), text("delta"));
            }
            "thread/tokenUsage/updated" if ours => {
                let now = self.turn.is_some()
                    && self.turn.as_deref() == params.get("turnId").and_then(Value::as_str);
                let more = params
                    .get("tokenUsage")
                    .and_then(|count| self.meter.more(count, now));
                if let Some(usage) = more {
                    self.visit.spent(&Reported {
                        usage,
                        cost_micros: None,
                        model: self.options.model.clone(),
                    });
                }
            }
            "serverRequest/resolved" => {
                if let Some(id) = params.get("requestId") {
                    self.open.remove(&id.to_string());
                }
            }
            "error" if ours => {
                self.error = params.get("error").cloned();
                self.retries += 1;
                if params.get("willRetry") == Some(&Value::Bool(true)) && self.retries > MAX_RETRIES
                {
                    let end = failed(self.error.as_ref());
                    return Ok(Some(self.answered(end)));
                }
            }
            "turn/completed" if ours => {
                let turn = params.get("turn").unwrap_or(&Value::Null);
                let end = match end(turn, self.error.as_ref(), self.cancelled) {
                    // That is all that can be seen of a model that declines.
                    End::Done if self.unsaid.is_some() => End::Refused(
                        "its model began an answer and gave none, as one does that declines"
                            .to_owned(),
                    ),
                    end => end,
                };
                return Ok(Some(self.answered(end)));
            }
            "warning" | "configWarning" => {
                let said = ["message", "summary"]
                    .into_iter()
                    .map(text)
                    .find(|text| !text.is_empty());
                self.warn(format!(
                    "Codex says: {}",
                    said.unwrap_or("a warning without words")
                ))
                .await?;
            }
            "mcpServer/startupStatus/updated" if text("status") == "failed" => {
                let why = format!(
                    "Codex could not start the MCP server `{}`: {}",
                    text("name"),
                    text("error")
                );
                self.warn(why).await?;
            }
            other if !is_known(other) => self.unknown += 1,
            _ => {}
        }
        Ok(None)
    }

    /// A call is announced as soon as it is known, because it is judged next.
    async fn started(&mut self, item: &Value, ours: bool) -> Result<(), RuntimeError> {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        if ours && text("type") == Some("agentMessage") {
            self.unsaid = text("id").map(str::to_owned);
        }
        match call(item) {
            Some(call) => self.announce(call).await,
            None => Ok(()),
        }
    }

    async fn announce(&mut self, call: ToolCall) -> Result<(), RuntimeError> {
        if self.calls.contains_key(&call.id.0) || self.calls.len() >= MAX_CALLS {
            return Ok(());
        }
        let known = Known {
            call: call.clone(),
            verdict: None,
            asked: false,
        };
        self.calls.insert(call.id.0.clone(), known);
        self.flush(vec![Part::Call(call)]).await
    }

    async fn completed(&mut self, item: &Value, ours: bool) -> Result<(), RuntimeError> {
        let text = |key: &str| {
            item.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "agentMessage" if ours => {
                self.unsaid = None;
                self.text = text("text");
                self.flush(vec![Part::Text { text: text("text") }]).await
            }
            "reasoning" if ours => {
                let parts = ["summary", "content"]
                    .into_iter()
                    .filter_map(|key| item.get(key)?.as_array());
                let texts: Vec<&str> = parts.flatten().filter_map(Value::as_str).collect();
                if !texts.is_empty() {
                    self.gathered.push(Part::Reasoning {
                        text: texts.join("\n"),
                        opaque: None,
                    });
                }
                Ok(())
            }
            _ => match call(item) {
                Some(call) => self.came_of(item, call).await,
                None => Ok(()),
            },
        }
    }

    /// What came of a call.
    async fn came_of(&mut self, item: &Value, call: ToolCall) -> Result<(), RuntimeError> {
        self.announce(call.clone()).await?;
        let Some(known) = self.calls.get_mut(&call.id.0) else {
            return Ok(());
        };
        let refused = item.get("status").and_then(Value::as_str) == Some("declined");
        let hosted = is_offered(&offered(self.visit.job.toolbox), &known.call.name);
        if !std::mem::replace(&mut known.asked, true) && !refused && !hosted {
            // It ran, and nobody was asked. It was held by its place alone.
            let call = known.call.clone();
            let effect = foreign(call.clone(), "").effect;
            self.visit.observed(call, effect).await?;
        }
        self.visit.reported_result(result(item, &call)).await
    }

    /// Says what was gathered, and this.
    async fn flush(&mut self, more: Vec<Part>) -> Result<(), RuntimeError> {
        let mut parts = std::mem::take(&mut self.gathered);
        parts.extend(more);
        if parts.is_empty() {
            return Ok(());
        }
        self.said.add(&parts);
        self.visit
            .said(Message {
                role: Role::Assistant,
                origin: Origin::Model,
                parts,
            })
            .await
    }

    /// Answers everything that is open, and asks the program to stop.
    fn interrupt(&mut self) {
        self.cancelled = true;
        self.cancel_open();
        self.stop_turn();
    }

    fn stop_turn(&mut self) {
        let (Some(thread), Some(turn)) = (&self.thread, &self.turn) else {
            return;
        };
        let params = json!({ "threadId": thread, "turnId": turn });
        self.ask("turn/interrupt", &params);
    }

    fn answered(&mut self, end: End) -> Ended {
        Ended::Answered(Answer {
            text: std::mem::take(&mut self.text),
            output: None,
            end,
        })
    }

    async fn warn(&mut self, text: String) -> Result<(), RuntimeError> {
        self.warnings += 1;
        if self.warnings > MAX_WARNINGS {
            return Ok(());
        }
        self.visit.warn("agent_warning", text).await
    }

    async fn warn_of_unread(&mut self) -> Result<(), RuntimeError> {
        let (unread, unknown) = (self.rpc.passed_over(), self.unknown);
        if unread == 0 && unknown == 0 {
            return Ok(());
        }
        let text = format!(
            "{unread} lines of Codex could not be read, and {unknown} were of a kind that is not known here; they were \
             passed over"
        );
        self.visit.warn("unread_lines", text).await
    }
}

/// Notices that are passed over because nothing follows from them; of others it is said that they are not known.
fn is_known(method: &str) -> bool {
    let family = method.split('/').next().unwrap_or_default();
    matches!(
        family,
        "item"
            | "turn"
            | "thread"
            | "account"
            | "mcpServer"
            | "remoteControl"
            | "model"
            | "modelProvider"
            | "skills"
            | "hook"
            | "app"
            | "fs"
            | "project"
            | "process"
            | "command"
            | "rawResponse"
            | "rawResponseItem"
            | "autoApprovalReview"
            | "error"
            | "guardianWarning"
            | "deprecationNotice"
    )
}
