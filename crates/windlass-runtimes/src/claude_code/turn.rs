//! One turn with a running Claude Code: its lines become events, its requests are answered exactly once, and when we are
//! told to end it is told so and gets its grace. Several requests may wait for a person at a time.

mod requests;

use std::collections::HashMap;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::Admitted;

use self::requests::{refusal, success};
use super::calls::foreign;
use super::ended::{answer, reported};
use super::options::OURS;
use super::words::{blocks, delta_of, result_text};
use crate::agent::{Answer, CANCEL_GRACE, End, Visit};
use crate::conversation::Ended;
use crate::peer::Peer;
use crate::said::Said;

/// The id of the request that registers our hook, and of the one that interrupts.
const HELLO: &str = "windlass-1";
const INTERRUPT: &str = "windlass-2";
/// Our hook's own name.
const HOOK: &str = "windlass";
/// Seconds that a call may wait for its verdict: a person may be asked.
const HOOK_TIMEOUT: u32 = 7 * 24 * 3600;
/// The most requests that are open at a time.
const MAX_OPEN: usize = 256;
/// Calls of one turn whose verdict is remembered.
const MAX_CALLS: usize = 20_000;

/// What a request of the program waits for.
enum Open {
    Hook,
    Permission { input: Value },
    Message { id: Value },
}

/// What is known of a call.
struct Known {
    name: String,
    input: Value,
    verdict: Option<Admitted>,
    /// It is being judged, or was.
    asked: bool,
}

/// What came of something that was waited for.
enum Done {
    Judged {
        request: String,
        call: String,
        admitted: Admitted,
    },
    Ran {
        request: String,
        id: Value,
        result: ToolResult,
    },
}

pub(super) struct Turn<'v> {
    visit: &'v Visit<'v>,
    peer: Peer,
    resumed: bool,
    /// What is to be said, until it was.
    say: Option<String>,
    waiting: FuturesUnordered<BoxFuture<'v, Result<Done, RuntimeError>>>,
    open: HashMap<String, Open>,
    calls: HashMap<String, Known>,
    /// A message whose parts still come, with its id.
    gathered: (String, Vec<Part>),
    model: Option<String>,
    said: Said,
    unknown: u64,
    cancelled: bool,
}

impl<'v> Turn<'v> {
    pub(super) fn new(visit: &'v Visit<'v>, peer: Peer, resumed: bool, say: String) -> Self {
        Self {
            visit,
            peer,
            resumed,
            say: Some(say),
            waiting: FuturesUnordered::new(),
            open: HashMap::new(),
            calls: HashMap::new(),
            gathered: (String::new(), Vec::new()),
            model: None,
            said: Said::default(),
            unknown: 0,
            cancelled: false,
        }
    }

    /// Follows the program to the end of its answer, and ends it.
    pub(super) async fn follow(mut self, offers: bool) -> Result<Ended, RuntimeError> {
        let visit = self.visit;
        self.peer.send(&hello(offers));
        let mut grace: BoxFuture<'_, ()> = Box::pin(std::future::pending());
        let answer = loop {
            tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !self.cancelled => {
                    self.interrupt();
                    grace = visit.clock.sleep(CANCEL_GRACE);
                }
                () = &mut grace => break None,
                Some(done) = self.waiting.next() => self.answer_done(done?),
                line = self.peer.next() => match line {
                    Ok(Some(line)) => if let Some(answer) = self.heard(&line).await? {
                        break Some(answer);
                    },
                    Ok(None) | Err(_) => break None,
                },
            }
        };
        self.flush().await?;
        let ended = match answer {
            Some(Answer {
                end: End::Broken(how),
                ..
            }) if self.forgot(&how) => Ended::Forgotten,
            Some(answer) => {
                // It writes down what it remembers before it exits.
                let grace = if self.cancelled {
                    CANCEL_GRACE / 4
                } else {
                    CANCEL_GRACE * 4
                };
                self.peer.end(visit.clock, grace).await;
                Ended::Answered(answer)
            }
            None => self.broke_off().await,
        };
        self.warn_of_unread().await?;
        Ok(ended)
    }

    /// One line of the program; the answer, when that was the last.
    async fn heard(&mut self, line: &Value) -> Result<Option<Answer>, RuntimeError> {
        let sub = line.get("parent_tool_use_id").and_then(Value::as_str);
        match line.get("type").and_then(Value::as_str).unwrap_or_default() {
            "system" => self.system(line).await?,
            "stream_event" if sub.is_none() => {
                if let Some((of, text)) = line.get("event").and_then(delta_of) {
                    self.visit.delta(of, text);
                }
            }
            "assistant" => match sub {
                Some(parent) => {
                    self.flush().await?;
                    self.sub_agent(parent, line);
                }
                None => self.assistant(line).await?,
            },
            "user" => self.results(line).await?,
            "control_request" => self.request(line).await?,
            "control_response" => return Ok(self.response(line)),
            "control_cancel_request" => {
                if let Some(id) = line.get("request_id").and_then(Value::as_str) {
                    self.open.remove(id);
                }
            }
            "result" => {
                self.flush().await?;
                if let Some(more) = reported(line, self.model.as_deref()) {
                    self.visit.spent(&more);
                }
                return Ok(Some(answer(line, self.cancelled)));
            }
            "stream_event" | "rate_limit_event" | "tool_progress" | "tool_use_summary"
            | "auth_status" | "prompt_suggestion" | "keep_alive" => {}
            _ => self.unknown += 1,
        }
        if let Some(why) = self.said.too_much() {
            let end = End::Broken(why);
            return Ok(Some(Answer {
                text: String::new(),
                output: None,
                end,
            }));
        }
        Ok(None)
    }

    async fn system(&mut self, line: &Value) -> Result<(), RuntimeError> {
        if line.get("subtype").and_then(Value::as_str) != Some("init") {
            return Ok(());
        }
        self.model = line.get("model").and_then(Value::as_str).map(str::to_owned);
        self.visit
            .began(line.get("session_id").and_then(Value::as_str))
            .await
    }

    /// A piece of a message. Pieces of the same message are gathered until something else comes.
    async fn assistant(&mut self, line: &Value) -> Result<(), RuntimeError> {
        let Some(message) = line.get("message") else {
            return Ok(());
        };
        // What the program itself puts there (an error of its model, say) is nobody's answer.
        let synthetic = message.get("model").and_then(Value::as_str) == Some("<synthetic>");
        if synthetic || line.get("error").is_some_and(|error| !error.is_null()) {
            return Ok(());
        }
        let id = message
            .get("id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if self.gathered.0 != id {
            self.flush().await?;
            id.clone_into(&mut self.gathered.0);
        }
        for part in blocks(message) {
            match part {
                Part::Call(call) if self.calls.contains_key(&call.id.0) => {}
                Part::Call(call) => {
                    let call = self.know(call);
                    self.gathered.1.push(Part::Call(call));
                }
                part => self.gathered.1.push(part),
            }
        }
        Ok(())
    }

    /// What an agent of the agent says is progress of the call that started it. Its calls are announced when they are
    /// judged.
    fn sub_agent(&self, parent: &str, line: &Value) {
        for part in line.get("message").map(blocks).unwrap_or_default() {
            let text = match &part {
                Part::Text { text } => text.clone(),
                Part::Call(call) => format!("{} {}", call.name, call.args),
                _ => continue,
            };
            self.visit.progress(&CallId::from(parent), &text);
        }
    }

    /// Remembers a call, and gives it the name that it has with us.
    fn know(&mut self, mut call: ToolCall) -> ToolCall {
        if self.calls.len() < MAX_CALLS {
            let known = Known {
                name: call.name.clone(),
                input: call.args.clone(),
                verdict: None,
                asked: false,
            };
            self.calls.insert(call.id.0.clone(), known);
        }
        if let Some(ours) = ours(&call.name) {
            call.name = ours.to_owned();
        }
        call
    }

    /// Says the message that was gathered.
    async fn flush(&mut self) -> Result<(), RuntimeError> {
        let parts = std::mem::take(&mut self.gathered.1);
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

    /// What came of calls.
    async fn results(&mut self, line: &Value) -> Result<(), RuntimeError> {
        let content = line
            .get("message")
            .and_then(|message| message.get("content"))
            .and_then(Value::as_array);
        for block in content.into_iter().flatten() {
            let Some(id) = block.get("tool_use_id").and_then(Value::as_str) else {
                continue;
            };
            self.flush().await?;
            let Some(known) = self.calls.get_mut(id) else {
                continue;
            };
            let failed = block
                .get("is_error")
                .and_then(Value::as_bool)
                .unwrap_or_default();
            let name = ours(&known.name).unwrap_or(&known.name).to_owned();
            let call = ToolCall {
                id: id.into(),
                name,
                args: known.input.clone(),
                malformed: None,
            };
            if !std::mem::replace(&mut known.asked, true) && !failed {
                // It ran, and nobody was asked. It was held by its place alone.
                let effect = foreign(call.clone()).effect;
                self.visit.observed(call.clone(), effect).await?;
            }
            let text = result_text(block.get("content").unwrap_or(&Value::Null));
            let result = if failed {
                ToolResult::failed(&call, ErrorCategory::Exception, &text)
            } else {
                ToolResult {
                    id: call.id,
                    name: call.name,
                    text,
                    error: None,
                    artifact: None,
                }
            };
            self.visit.reported_result(result).await?;
        }
        Ok(())
    }

    /// An answer of the program to a request of ours.
    fn response(&mut self, line: &Value) -> Option<Answer> {
        let response = line.get("response")?;
        if response.get("request_id").and_then(Value::as_str) != Some(HELLO) {
            return None;
        }
        if response.get("subtype").and_then(Value::as_str) != Some("success") {
            let why = response
                .get("error")
                .and_then(Value::as_str)
                .unwrap_or("it does not say why");
            let end = End::Broken(format!(
                "it did not take our hook, without which its calls are not judged: {why}"
            ));
            return Some(Answer {
                text: String::new(),
                output: None,
                end,
            });
        }
        // Only now is every call of it judged.
        if let Some(text) = self.say.take().filter(|_| !self.cancelled) {
            let message = json!({ "role": "user", "content": text });
            self.peer
                .send(&json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" }));
        }
        None
    }

    /// Answers everything that is open, and asks the program to stop.
    fn interrupt(&mut self) {
        self.cancelled = true;
        for (id, open) in std::mem::take(&mut self.open) {
            self.peer
                .send(&success(&id, refusal(&open, "the run was cancelled")));
        }
        let request = json!({ "subtype": "interrupt" });
        self.peer.send(
            &json!({ "type": "control_request", "request_id": INTERRUPT, "request": request }),
        );
    }

    /// It ended without an answer.
    async fn broke_off(&mut self) -> Ended {
        let said = |end| {
            Ended::Answered(Answer {
                text: String::new(),
                output: None,
                end,
            })
        };
        if self.cancelled {
            return said(End::Cancelled);
        }
        let how = self
            .peer
            .ended_in_words(self.visit.clock, CANCEL_GRACE * 4)
            .await;
        if self.forgot(&how) {
            return Ended::Forgotten;
        }
        said(End::Broken(format!("it ended without an answer, {how}")))
    }

    /// Whether it says that it does not know the conversation it was to go on with: on standard error, or in its last
    /// line.
    fn forgot(&self, how: &str) -> bool {
        self.resumed && self.said.messages == 0 && how.contains("No conversation found")
    }

    async fn warn_of_unread(&mut self) -> Result<(), RuntimeError> {
        let (unread, unknown) = (self.peer.unread(), self.unknown);
        if unread == 0 && unknown == 0 {
            return Ok(());
        }
        let text = format!(
            "{unread} lines of Claude Code could not be read, and {unknown} were of a kind that is not known here; they \
             were passed over"
        );
        self.visit.warn("unread_lines", text).await
    }
}

fn hello(offers: bool) -> Value {
    let hook = json!({ "hookCallbackIds": [HOOK], "timeout": HOOK_TIMEOUT, "onFailure": "block" });
    let mut request = json!({ "subtype": "initialize", "hooks": { "PreToolUse": [hook] } });
    if offers {
        request["sdkMcpServers"] = json!([OURS]);
    }
    json!({ "type": "control_request", "request_id": HELLO, "request": request })
}

/// The name of our tool behind the one it is offered under.
fn ours(name: &str) -> Option<&str> {
    name.strip_prefix("mcp__")?
        .strip_prefix(OURS)?
        .strip_prefix("__")
}
