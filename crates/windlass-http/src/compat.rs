//! The routes of two earlier servers, as thin views of the same operations, so that their clients keep working. The table in
//! docs/server.md lists them.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use windlass_service::{
    Caller, EventReader, FeedItem, Input, Problem, ProblemCode, Reply, Request as OperationRequest,
    operation,
};

use crate::pages;
use crate::routes::{Parts, authorized, json_response, problem_response, read_body};

/// Maximum number of events that a reply of `/chat` has.
const MAX_EVENTS: usize = 10_000;

pub(crate) fn routes() -> Router<Parts> {
    Router::new()
        .route("/health", get(pages::health))
        .route("/chat", post(chat))
        .route("/chat/stream", post(chat_stream))
        .route("/sessions", get(sessions))
        .route("/sessions/{session}", get(session))
        .route("/api/sessions", post(api_create))
        .route("/api/sessions/{session}", get(session))
        .route("/api/sessions/{session}/chat", post(api_chat))
        .route("/api/sessions/{session}/stream", get(api_stream))
        .route(
            "/api/sessions/{session}/approvals/{call}",
            post(api_approve),
        )
        .route("/api/sessions/{session}/resume", post(api_resume))
}

/// The caller and the body of a request.
async fn open(
    parts: &Parts,
    request: Request<Body>,
) -> Result<(Caller, Map<String, Value>), Problem> {
    let (head, body) = request.into_parts();
    let caller = authorized(parts, &head.method, &head.headers)?;
    Ok((caller, read_body(&head.headers, body).await?))
}

/// Calls an operation and returns its reply.
async fn call(parts: &Parts, caller: &Caller, name: &str, params: Value) -> Result<Value, Problem> {
    let Value::Object(map) = params else {
        return Err(Problem::invalid("the parameters must be an object"));
    };
    let Some(operation) = operation(name) else {
        return Err(Problem::new(
            ProblemCode::Internal,
            format!("there is no operation `{name}`"),
        ));
    };
    let request = OperationRequest {
        caller: caller.clone(),
        input: Input::Json(map),
        key: None,
    };
    match parts.service.call(operation, request).await? {
        Reply::Json(text) => serde_json::from_str(&text)
            .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string())),
        Reply::Bytes(_) => Ok(Value::Null),
    }
}

fn respond(done: Result<Value, Problem>, status: StatusCode) -> Response {
    match done {
        Ok(value) => json_response(value.to_string(), status, false, &Default::default()),
        Err(problem) => problem_response(&problem),
    }
}

fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    body.get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.trim().is_empty())
}

/// The prompt of a `/chat` request, in its session or a new one. Returns the session and a reader of the events of the run.
async fn begin_chat(
    parts: &Parts,
    caller: &Caller,
    body: &Map<String, Value>,
) -> Result<(String, u64, EventReader), Problem> {
    let prompt = text(body, "prompt").ok_or_else(|| Problem::invalid("`prompt` is missing"))?;
    // A stricter approval mode may be requested; a looser one is refused by the ceiling of the token.
    let approval = match body
        .get("safety")
        .and_then(|safety| safety.get("read_only"))
    {
        Some(Value::Bool(true)) => json!({ "approval": "plan" }),
        _ => json!({}),
    };
    let (session, queued) = match text(body, "session_id") {
        Some(session) => {
            let params = json!({ "session": session, "prompt": prompt, "options": approval });
            let queued = call(parts, caller, "runs.create", params).await?;
            (session.to_owned(), queued["queued"].as_u64())
        }
        None => {
            let params = json!({ "prompt": prompt, "options": approval });
            let created = call(parts, caller, "sessions.create", params).await?;
            let session = created["id"].as_str().unwrap_or_default().to_owned();
            (session, created["queued"]["queued"].as_u64())
        }
    };
    let queued = queued.unwrap_or_default();
    let id = session.parse()?;
    let reader = parts
        .service
        .events(caller, &id, queued.saturating_sub(1), true)
        .await?;
    Ok((session, queued, reader))
}

/// The run of one prompt, folded for the reply of `/chat`.
#[derive(Default)]
struct ChatRun {
    run: Option<String>,
    response: String,
    tool_results: Vec<Value>,
    steps: u64,
    state: &'static str,
}

impl ChatRun {
    /// Adds an event. Returns true at the end of the run, or when it waits for a person.
    fn add(&mut self, event: &Value, queued: u64) -> bool {
        let data = &event["data"];
        if event["kind"] == "run_started" && data["queued"].as_u64() == Some(queued) {
            self.run = event["run"].as_str().map(str::to_owned);
        }
        // A prompt that cannot run is reported between runs.
        if event["kind"] == "warned" && data["code"] == "prompt_refused" && self.run.is_none() {
            self.state = "error";
            self.response = data["text"].as_str().unwrap_or_default().to_owned();
            return true;
        }
        if self.run.is_none() || event["run"].as_str() != self.run.as_deref() {
            return false;
        }
        match event["kind"].as_str().unwrap_or_default() {
            "said" if data["message"]["role"] == "assistant" => {
                self.steps += 1;
                let said = message_text(&data["message"]);
                if !said.trim().is_empty() {
                    self.response = said;
                }
            }
            "call_finished" => self.tool_results.push(json!({
                "tool_call_id": data["result"]["id"],
                "tool_name": data["result"]["name"],
                "output": data["result"]["text"],
                "is_error": data["result"]["error"].is_string(),
                "duration_ms": data["ms"],
            })),
            "asked" => {
                self.state = "waiting_for_input";
                return true;
            }
            "run_finished" => {
                self.state = match data["outcome"]["is"].as_str().unwrap_or_default() {
                    "completed" | "completed_with_limit_exceeded" => "completed",
                    "budget_exceeded" => "budget_exceeded",
                    "max_steps" => "max_steps",
                    "timed_out" => "timed_out",
                    "cancelled" => "cancelled",
                    _ => "error",
                };
                return true;
            }
            _ => {}
        }
        false
    }
}

fn message_text(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    let texts = parts.filter(|part| part["type"] == "text");
    texts
        .filter_map(|part| part["data"]["text"].as_str())
        .collect()
}

fn parsed(item: FeedItem) -> Option<Value> {
    match item {
        FeedItem::Event(line) => serde_json::from_str(line.json()).ok(),
        FeedItem::Gap { .. } => None,
    }
}

/// Runs one prompt, and replies at its end.
async fn chat(State(parts): State<Parts>, request: Request<Body>) -> Response {
    let done = async {
        let (caller, body) = open(&parts, request).await?;
        let (session, queued, mut reader) = begin_chat(&parts, &caller, &body).await?;
        let (mut run, mut events) = (ChatRun::default(), Vec::new());
        loop {
            let item = tokio::select! {
                item = reader.next() => item?,
                () = parts.service.closing().cancelled_owned() => {
                    return Err(Problem::new(ProblemCode::ShuttingDown, "the server is shutting down"));
                }
            };
            let Some(event) = parsed(item) else { continue };
            if event["seq"].is_u64() && events.len() < MAX_EVENTS {
                events.push(event.clone());
            }
            if run.add(&event, queued) {
                break;
            }
        }
        Ok(json!({
            "session_id": session,
            "state": run.state,
            "step_count": run.steps,
            "response": run.response,
            "tool_results": run.tool_results,
            "events": events,
        }))
    };
    respond(done.await, StatusCode::OK)
}

/// Runs one prompt, and streams its events in the form of the earlier server.
async fn chat_stream(State(parts): State<Parts>, request: Request<Body>) -> Response {
    let opened = async {
        let (caller, body) = open(&parts, request).await?;
        begin_chat(&parts, &caller, &body).await
    };
    let (session, queued, reader) = match opened.await {
        Ok(opened) => opened,
        Err(problem) => return problem_response(&problem),
    };
    let view = ChatView {
        session,
        queued,
        run: ChatRun::default(),
    };
    stream(&parts, reader, view)
}

/// Translates events into the form of an earlier server.
trait CompatView: Send + 'static {
    /// The server-sent events for an event, and whether the stream ends after them.
    fn translate(&mut self, event: &Value) -> (String, bool);
}

struct ChatView {
    session: String,
    queued: u64,
    run: ChatRun,
}

impl CompatView for ChatView {
    fn translate(&mut self, event: &Value) -> (String, bool) {
        let ended = self.run.add(event, self.queued);
        let (at, data) = (&event["at"], &event["data"]);
        let own = match event["kind"].as_str().unwrap_or_default() {
            "delta" if data["of"] == "text" => {
                json!({ "type": "stream_chunk", "text": data["text"], "reasoning_text": "", "finished": false })
            }
            "delta" if data["of"] == "reasoning" => {
                json!({ "type": "stream_chunk", "text": "", "reasoning_text": data["text"], "finished": false })
            }
            "run_started" => {
                json!({ "type": "user_message", "content": message_text(&data["prompt"]) })
            }
            "said" if data["message"]["role"] == "assistant" => {
                json!({ "type": "assistant_message", "content": message_text(&data["message"]) })
            }
            "call_started" => json!({
                "type": "tool_call", "tool_name": data["call"]["name"], "tool_call_id": data["call"]["id"],
                "arguments": data["call"]["args"],
            }),
            "call_finished" => json!({
                "type": "tool_result", "tool_call_id": data["result"]["id"], "tool_name": data["result"]["name"],
                "output": data["result"]["text"], "is_error": data["result"]["error"].is_string(),
                "duration_ms": data["ms"],
            }),
            "warned" => json!({ "type": "error", "message": data["text"], "recoverable": true }),
            _ => Value::Null,
        };
        let mut out = String::new();
        if let Value::Object(mut own) = own {
            own.insert("timestamp".to_owned(), at.clone());
            out.push_str(&format!("data: {}\n\n", Value::Object(own)));
        }
        if ended {
            let end = json!({
                "type": "session", "action": "ended", "timestamp": at,
                "data": { "state": self.run.state, "session_id": self.session },
            });
            out.push_str(&format!("data: {end}\n\n"));
        }
        (out, ended)
    }
}

fn stream(parts: &Parts, reader: EventReader, view: impl CompatView) -> Response {
    let closing = parts.service.closing();
    let stream = futures_util::stream::unfold(
        (reader, view, closing, false),
        |(mut reader, mut view, closing, ended)| async move {
            if ended {
                return None;
            }
            loop {
                let item = tokio::select! {
                    item = reader.next() => item.ok()?,
                    () = closing.cancelled() => return None,
                };
                let Some(event) = parsed(item) else { continue };
                let (text, ended) = view.translate(&event);
                if !text.is_empty() || ended {
                    return Some((
                        Ok::<_, Infallible>(Bytes::from(text)),
                        (reader, view, closing, ended),
                    ));
                }
            }
        },
    );
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn sessions(State(parts): State<Parts>, request: Request<Body>) -> Response {
    let done = async {
        let (caller, _) = open(&parts, request).await?;
        call(&parts, &caller, "sessions.list", json!({})).await
    };
    respond(done.await.map(|page| page["items"].clone()), StatusCode::OK)
}

async fn session(
    State(parts): State<Parts>,
    Path(session): Path<String>,
    request: Request<Body>,
) -> Response {
    let done = async {
        let (caller, _) = open(&parts, request).await?;
        call(
            &parts,
            &caller,
            "sessions.get",
            json!({ "session": session }),
        )
        .await
    };
    respond(done.await, StatusCode::OK)
}

async fn api_create(State(parts): State<Parts>, request: Request<Body>) -> Response {
    let done = async {
        let (caller, body) = open(&parts, request).await?;
        let model = match (text(&body, "provider"), text(&body, "model")) {
            (Some(provider), Some(model)) => Some(format!("{provider}/{model}")),
            (None, Some(model)) => Some(model.to_owned()),
            _ => None,
        };
        let mut params = json!({});
        if let Some(model) = model {
            params["options"] = json!({ "model": model });
        }
        if let Some(workspace) = text(&body, "workspacePath") {
            params["workspace"] = workspace.into();
        }
        let created = call(&parts, &caller, "sessions.create", params).await?;
        Ok(json!({ "sessionId": created["id"] }))
    };
    respond(done.await, StatusCode::OK)
}

async fn api_chat(
    State(parts): State<Parts>,
    Path(session): Path<String>,
    request: Request<Body>,
) -> Response {
    let done = async {
        let (caller, body) = open(&parts, request).await?;
        let message =
            text(&body, "message").ok_or_else(|| Problem::invalid("`message` is empty"))?;
        let params = json!({ "session": session, "prompt": message });
        call(&parts, &caller, "runs.create", params).await?;
        Ok(json!({ "sessionId": session }))
    };
    respond(done.await, StatusCode::ACCEPTED)
}

async fn api_stream(
    State(parts): State<Parts>,
    Path(session): Path<String>,
    request: Request<Body>,
) -> Response {
    let opened = async {
        let (caller, _) = open(&parts, request).await?;
        let shown = call(
            &parts,
            &caller,
            "sessions.get",
            json!({ "session": session }),
        )
        .await?;
        let id = session.parse()?;
        // The earlier server streams from now on; an open ask is shown again.
        let after = shown["last_seq"].as_u64().unwrap_or_default();
        let reader = parts.service.events(&caller, &id, after, true).await?;
        Ok::<_, Problem>((reader, shown["asks"].clone()))
    };
    match opened.await {
        Ok((reader, asks)) => {
            let asks = asks.as_array().cloned().unwrap_or_default();
            stream(&parts, reader, ApiView { asks })
        }
        Err(problem) => problem_response(&problem),
    }
}

struct ApiView {
    /// Asks that were open before the stream began, to be shown first.
    asks: Vec<Value>,
}

impl CompatView for ApiView {
    fn translate(&mut self, event: &Value) -> (String, bool) {
        let mut out = String::new();
        for ask in std::mem::take(&mut self.asks) {
            out.push_str(&named("approval_required", &approval(&ask)));
        }
        let data = &event["data"];
        match event["kind"].as_str().unwrap_or_default() {
            "delta" if data["of"] == "text" => {
                out.push_str(&named("text_delta", &json!({ "text": data["text"] })));
            }
            "call_started" => {
                let call = &data["call"];
                let call = json!({
                    "callId": call["id"], "tool": call["name"], "argsJson": call["args"].to_string(),
                });
                out.push_str(&named("tool_call", &call));
            }
            "call_finished" => {
                let result = &data["result"];
                let failed = result["error"].is_string();
                let result = json!({
                    "callId": result["id"], "tool": result["name"],
                    "result": { "ok": !failed, "stdout": result["text"] },
                });
                out.push_str(&named("tool_result", &result));
            }
            "asked" => out.push_str(&named("approval_required", &approval(&data["ask"]))),
            "run_finished" => {
                let reason = data["outcome"]["is"].clone();
                out.push_str(&named("completed", &json!({ "stopReason": reason })));
            }
            "warned" => out.push_str(&named("error", &json!({ "message": data["text"] }))),
            kind => {
                if event["seq"].is_u64() {
                    out.push_str(&named("trace", &json!({ "kind": kind, "data": data })));
                }
            }
        }
        (out, false)
    }
}

fn named(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn approval(ask: &Value) -> Value {
    let about = &ask["about"];
    json!({
        // An ask without a call (a landing) is answered by its own id.
        "callId": if ask["call"].is_string() { ask["call"].clone() } else { ask["id"].clone() },
        "tool": about["call"]["name"],
        "argsJson": about["call"]["args"].to_string(),
        "reason": about["reason"].as_str().or(about["text"].as_str()).unwrap_or("the changes need approval to land"),
    })
}

async fn api_approve(
    State(parts): State<Parts>,
    Path((session, named_call)): Path<(String, String)>,
    request: Request<Body>,
) -> Response {
    let done = async {
        let (caller, body) = open(&parts, request).await?;
        let approved = body
            .get("approved")
            .and_then(Value::as_bool)
            .ok_or_else(|| Problem::invalid("`approved` must be true or false"))?;
        let shown = call(
            &parts,
            &caller,
            "sessions.get",
            json!({ "session": session }),
        )
        .await?;
        let asks = shown["asks"].as_array().cloned().unwrap_or_default();
        let open = asks
            .iter()
            .find(|ask| ask["call"] == named_call.as_str() || ask["id"] == named_call.as_str());
        let ask = open.and_then(|ask| ask["id"].as_str()).ok_or_else(|| {
            Problem::new(
                ProblemCode::NotFound,
                "no call with this id waits for an approval",
            )
        })?;
        let answer = if approved { "once" } else { "no" };
        let params = json!({ "session": session, "ask": ask, "answer": answer });
        call(&parts, &caller, "asks.answer", params).await
    };
    respond(done.await, StatusCode::OK)
}

async fn api_resume(
    State(parts): State<Parts>,
    Path(session): Path<String>,
    request: Request<Body>,
) -> Response {
    let done = async {
        let (caller, _) = open(&parts, request).await?;
        // Sessions are always there; a paused run continues.
        let shown = call(
            &parts,
            &caller,
            "sessions.get",
            json!({ "session": session }),
        )
        .await?;
        if shown["state"] == "paused" {
            call(
                &parts,
                &caller,
                "runs.resume",
                json!({ "session": session }),
            )
            .await?;
        }
        Ok(json!({ "sessionId": session }))
    };
    respond(done.await, StatusCode::OK)
}
