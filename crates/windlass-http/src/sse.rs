//! Event streams. Durable events have their number as `id`, so that a client that reconnects with `Last-Event-ID` misses
//! nothing and gets nothing twice. Live events have none. The control events `snapshot`, `gap` and `closing` have a name.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, Request};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use serde::Deserialize;
use windlass_service::{
    Caller, EventReader, FeedItem, Input, Problem, Reply, Request as OperationRequest, SessionFeed,
    operation,
};

use crate::routes::{Parts, authorized, problem_response, query_pairs};

/// The pause after which a comment keeps an idle connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The pause after which a client reconnects when the server closes the stream, in milliseconds.
const RETRY_MS: u32 = 2_000;
/// Maximum size of one chunk, in bytes: events that are there already are sent together.
const CHUNK: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamParams {
    session: Option<String>,
    /// The number of the last event that the client has.
    after: Option<u64>,
    /// Whether live events are wanted; the default is true.
    live: Option<bool>,
    /// Begins with the state of the session and skips the events before it.
    snapshot: Option<bool>,
    /// Accepted for symmetry with pages.
    limit: Option<usize>,
}

fn read_params(path: &[(String, String)], query: Option<&str>) -> Result<StreamParams, Problem> {
    let mut pairs = path.to_vec();
    pairs.extend(query_pairs(query)?);
    let text =
        serde_urlencoded::to_string(&pairs).map_err(|err| Problem::invalid(err.to_string()))?;
    serde_urlencoded::from_str(&text).map_err(|err| Problem::invalid(err.to_string()))
}

/// The stream of one session.
pub(crate) async fn session(
    parts: &Parts,
    caller: &Caller,
    path: &[(String, String)],
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let params = read_params(path, query)?;
    if params.limit.is_some() {
        return Err(Problem::invalid("`limit` is for pages, not for streams"));
    }
    let session = params.session.unwrap_or_default();
    let id = session.parse()?;
    caller.check_read()?;
    let mut after = params.after.unwrap_or(0);
    if let Some(last) = headers.get("last-event-id") {
        let last = last.to_str().ok().and_then(|last| last.parse().ok());
        after = last.ok_or_else(|| {
            Problem::invalid("`Last-Event-ID` is not the number of an event of this stream")
                .hint("send the `id` of the last event, or omit the header")
        })?;
    }
    let mut first = format!("retry: {RETRY_MS}\n\n");
    if params.snapshot == Some(true) {
        let (text, last) = snapshot(parts, caller, &session).await?;
        let _ = write!(first, "event: snapshot\nid: {last}\ndata: {text}\n\n");
        after = last;
    }
    let live = params.live.unwrap_or(true);
    let reader = parts.service.events(caller, &id, after, live).await?;
    Ok(stream_response(
        parts,
        caller,
        first,
        Source::Session(Box::new(reader)),
    ))
}

/// The state of a session as JSON, and the number of its last event.
async fn snapshot(parts: &Parts, caller: &Caller, session: &str) -> Result<(String, u64), Problem> {
    let pairs = vec![("session".to_owned(), session.to_owned())];
    let text = read(parts, caller, "sessions.get", pairs).await?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|err| Problem::invalid(err.to_string()))?;
    Ok((text, value["last_seq"].as_u64().unwrap_or_default()))
}

async fn read(
    parts: &Parts,
    caller: &Caller,
    name: &str,
    pairs: Vec<(String, String)>,
) -> Result<String, Problem> {
    let request = OperationRequest {
        caller: caller.clone(),
        input: Input::Pairs(pairs),
        key: None,
    };
    let Some(operation) = operation(name) else {
        return Ok("null".to_owned());
    };
    match parts.service.call(operation, request).await? {
        Reply::Json(text) => Ok(text),
        Reply::Bytes(_) => Ok("null".to_owned()),
    }
}

/// The stream of all sessions. It begins with the list of the newest sessions; after a gap, a client reads the list again.
pub(crate) async fn all_sessions(State(parts): State<Parts>, request: Request<Body>) -> Response {
    let (head, _) = request.into_parts();
    let opened = async {
        let caller = authorized(&parts, &head.method, &head.headers)?;
        caller.check_read()?;
        let pairs = query_pairs(head.uri.query())?;
        if !pairs.is_empty() {
            return Err(Problem::invalid("this stream has no parameters"));
        }
        // Follow first, so that nothing between the list and the first event is missed.
        let feed = parts.service.feed(&caller);
        let list = read(&parts, &caller, "sessions.list", Vec::new()).await?;
        let first = format!("retry: {RETRY_MS}\n\nevent: snapshot\ndata: {list}\n\n");
        Ok(stream_response(
            &parts,
            &caller,
            first,
            Source::All(Box::new(feed)),
        ))
    };
    match opened.await {
        Ok(response) => response,
        Err(problem) => problem_response(&problem),
    }
}

enum Source {
    Session(Box<EventReader>),
    All(Box<SessionFeed>),
}

impl Source {
    async fn next(&mut self) -> Result<FeedItem, Problem> {
        match self {
            Self::Session(reader) => reader.next().await,
            Self::All(feed) => Ok(feed.next().await),
        }
    }

    /// Writes an item in the form of server-sent events.
    fn write(&self, item: &FeedItem, to: &mut String) {
        match item {
            FeedItem::Event(line) => {
                if let (Self::Session(_), Some(seq)) = (self, line.order.seq()) {
                    let _ = writeln!(to, "id: {seq}");
                }
                // An event is one line of JSON.
                let _ = write!(to, "data: {}\n\n", line.json());
            }
            FeedItem::Gap { live_lost } => {
                let _ = write!(to, "event: gap\ndata: {{\"live_lost\":{live_lost}}}\n\n");
            }
        }
    }
}

/// The state of a stream.
struct EventStream {
    parts: Parts,
    caller: Caller,
    first: Option<String>,
    source: Source,
    checked: Instant,
    ended: bool,
}

impl EventStream {
    /// The next chunk; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        // A token that was revoked meanwhile ends its streams.
        if self.checked.elapsed() >= HEARTBEAT {
            self.checked = Instant::now();
            if !self.parts.service.is_valid(&self.caller) {
                return None;
            }
        }
        let mut text = String::new();
        let closing = self.parts.service.closing();
        tokio::select! {
            biased;
            item = self.source.next() => {
                self.write(item, &mut text);
                while text.len() < CHUNK && !self.ended {
                    match self.source.next().now_or_never() {
                        Some(item) => self.write(item, &mut text),
                        None => break,
                    }
                }
            }
            () = closing.cancelled() => {
                let _ = write!(text, "retry: {RETRY_MS}\nevent: closing\ndata: {{}}\n\n");
                self.ended = true;
            }
            () = tokio::time::sleep(HEARTBEAT) => text.push_str(": still here\n\n"),
        }
        Some(text)
    }

    fn write(&mut self, item: Result<FeedItem, Problem>, to: &mut String) {
        match item {
            Ok(item) => self.source.write(&item, to),
            Err(problem) => {
                write_end(&problem, to);
                self.ended = true;
            }
        }
    }
}

fn stream_response(parts: &Parts, caller: &Caller, first: String, source: Source) -> Response {
    let stream = EventStream {
        parts: parts.clone(),
        caller: caller.clone(),
        first: Some(first),
        source,
        checked: Instant::now(),
        ended: false,
    };
    let stream = futures_util::stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), stream))
    });
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The session was deleted, or its log cannot be read any more.
fn write_end(problem: &Problem, to: &mut String) {
    let text = serde_json::to_string(problem).unwrap_or_default();
    let _ = write!(to, "event: end\ndata: {text}\n\n");
}
