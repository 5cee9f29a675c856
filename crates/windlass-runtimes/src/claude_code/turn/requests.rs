//! What Claude Code asks of us while it works: whether a call may run, and messages to our tools. Every request is
//! answered exactly once, and every call is judged once, however often it is asked about.

use serde_json::{Value, json};
use windlass_core::message::{ErrorCategory, Part, ToolCall};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::Admitted;

use super::{Done, MAX_CALLS, MAX_OPEN, Open, Turn, ours};
use crate::claude_code::calls::foreign;
use crate::claude_code::hosted::{self, Asked};
use crate::claude_code::options::OURS;
use crate::claude_code::words::{hook_answer, permission_answer};

impl Turn<'_> {
    /// A request of the program. Every one is answered exactly once.
    pub(super) async fn request(&mut self, line: &Value) -> Result<(), RuntimeError> {
        let Some(id) = line.get("request_id").and_then(Value::as_str) else {
            return Ok(());
        };
        if self.open.contains_key(id) {
            return Ok(());
        }
        let request = line.get("request").unwrap_or(&Value::Null);
        let open = match request
            .get("subtype")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "hook_callback" => Open::Hook,
            "can_use_tool" => Open::Permission {
                input: request.get("input").cloned().unwrap_or_default(),
            },
            "mcp_message" => {
                let id = request.get("message").and_then(|message| message.get("id"));
                Open::Message {
                    id: id.cloned().unwrap_or_else(|| 0.into()),
                }
            }
            "elicitation" => {
                self.peer.send(&success(id, json!({ "action": "decline" })));
                return Ok(());
            }
            other => {
                self.unknown += 1;
                let why = format!("unsupported request `{}`", other.escape_debug());
                self.peer.send(&failure(id, &why));
                return Ok(());
            }
        };
        if self.open.len() >= MAX_OPEN {
            self.peer.send(&failure(id, "too many requests are open"));
            return Ok(());
        }
        if self.cancelled {
            self.peer
                .send(&success(id, refusal(&open, "the run was cancelled")));
            return Ok(());
        }
        let asks = !matches!(open, Open::Message { .. });
        self.open.insert(id.to_owned(), open);
        if asks {
            self.judge(id, request).await
        } else {
            self.message(id, request).await
        }
    }

    /// Has a call judged, once, whichever way and however often it is asked about.
    async fn judge(&mut self, request_id: &str, request: &Value) -> Result<(), RuntimeError> {
        let input = request.get("input").unwrap_or(&Value::Null);
        let (name, args) = match self.open.get(request_id) {
            Some(Open::Hook) => (input.get("tool_name"), input.get("tool_input")),
            _ => (request.get("tool_name"), request.get("input")),
        };
        let name = name.and_then(Value::as_str).unwrap_or_default().to_owned();
        let args = args.cloned().unwrap_or_else(|| json!({}));
        let id = request
            .get("tool_use_id")
            .or_else(|| input.get("tool_use_id"));
        let Some(id) = id.and_then(Value::as_str).map(str::to_owned) else {
            self.give_verdict(
                request_id,
                &no("the call has no id, so it cannot be judged"),
            );
            return Ok(());
        };
        self.flush().await?;
        let call = ToolCall {
            id: id.as_str().into(),
            name: name.clone(),
            args: args.clone(),
            malformed: None,
        };
        if !self.calls.contains_key(&id) {
            if self.calls.len() >= MAX_CALLS {
                self.give_verdict(request_id, &no("too many calls in one turn"));
                return Ok(());
            }
            // A call of an agent that the agent started, or one that comes before its message.
            self.gathered.0.clear();
            let call = self.know(call.clone());
            self.gathered.1.push(Part::Call(call));
            self.flush().await?;
        }
        let Some(known) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        if known.name != name || (known.asked && known.input != args) {
            self.give_verdict(
                request_id,
                &no("the call is not the one that was announced"),
            );
            return Ok(());
        }
        if std::mem::replace(&mut known.asked, true) {
            let verdict = known
                .verdict
                .clone()
                .unwrap_or_else(|| no("the call is being judged already"));
            self.give_verdict(request_id, &verdict);
            return Ok(());
        }
        known.input = args;
        if ours(&name).is_some() {
            // Ours are judged when they run.
            let verdict = Admitted::Yes {
                rule: "a tool of ours".to_owned(),
            };
            known.verdict = Some(verdict.clone());
            self.give_verdict(request_id, &verdict);
            return Ok(());
        }
        let (visit, request) = (self.visit, request_id.to_owned());
        self.waiting.push(Box::pin(async move {
            let admitted = visit.admit(foreign(call)).await?;
            Ok(Done::Judged {
                request,
                call: id,
                admitted,
            })
        }));
        Ok(())
    }

    /// A message to our tools.
    async fn message(&mut self, request_id: &str, request: &Value) -> Result<(), RuntimeError> {
        if request.get("server_name").and_then(Value::as_str) != Some(OURS) {
            self.open.remove(request_id);
            self.peer
                .send(&failure(request_id, "there is no such server"));
            return Ok(());
        }
        let visit = self.visit;
        let (id, tool, args, call) = match hosted::ask(
            visit.job.toolbox,
            request.get("message").unwrap_or(&Value::Null),
        ) {
            Asked::Answered(message) => {
                self.open.remove(request_id);
                self.peer
                    .send(&success(request_id, json!({ "mcp_response": message })));
                return Ok(());
            }
            Asked::Run {
                id,
                tool,
                args,
                call,
            } => (id, tool, args, call),
        };
        self.flush().await?;
        let call = call.unwrap_or_else(|| format!("{OURS}-{request_id}"));
        let call = ToolCall {
            id: call.as_str().into(),
            name: tool,
            args,
            malformed: None,
        };
        match self.calls.get_mut(&call.id.0) {
            // The announced call has its one result, so what runs under its name must be it.
            Some(known)
                if ours(&known.name) != Some(call.name.as_str()) || known.input != call.args =>
            {
                self.open.remove(request_id);
                let message =
                    hosted::refused(id, -32602, "the call is not the one that was announced");
                self.peer
                    .send(&success(request_id, json!({ "mcp_response": message })));
                return Ok(());
            }
            Some(known) => known.asked = true,
            None => {
                let announced = self.know(ToolCall {
                    name: format!("mcp__{OURS}__{}", call.name),
                    ..call.clone()
                });
                self.gathered.1.push(Part::Call(announced));
                self.flush().await?;
            }
        }
        let request = request_id.to_owned();
        self.waiting.push(Box::pin(async move {
            let result = visit.call(call).await?;
            Ok(Done::Ran {
                request,
                id,
                result,
            })
        }));
        Ok(())
    }

    pub(super) fn answer_done(&mut self, done: Done) {
        match done {
            Done::Judged {
                request,
                call,
                admitted,
            } => {
                if let Some(known) = self.calls.get_mut(&call) {
                    known.verdict = Some(admitted.clone());
                }
                self.give_verdict(&request, &admitted);
            }
            Done::Ran {
                request,
                id,
                result,
            } => {
                // Not when it was withdrawn, or answered because of a cancel.
                if self.open.remove(&request).is_some() {
                    let message = hosted::ran(id, &result);
                    self.peer
                        .send(&success(&request, json!({ "mcp_response": message })));
                }
            }
        }
    }

    fn give_verdict(&mut self, request: &str, verdict: &Admitted) {
        let answer = match self.open.remove(request) {
            Some(Open::Hook) => hook_answer(verdict),
            Some(Open::Permission { input }) => permission_answer(verdict, input),
            Some(Open::Message { .. }) | None => return,
        };
        self.peer.send(&success(request, answer));
    }
}

fn no(why: &str) -> Admitted {
    Admitted::No {
        category: ErrorCategory::Blocked,
        text: why.to_owned(),
    }
}

pub(super) fn refusal(open: &Open, why: &str) -> Value {
    match open {
        Open::Hook => hook_answer(&no(why)),
        Open::Permission { input } => permission_answer(&no(why), input.clone()),
        Open::Message { id } => json!({ "mcp_response": hosted::refused(id.clone(), -32000, why) }),
    }
}

pub(super) fn success(id: &str, response: Value) -> Value {
    let response = json!({ "subtype": "success", "request_id": id, "response": response });
    json!({ "type": "control_response", "response": response })
}

fn failure(id: &str, why: &str) -> Value {
    let response = json!({ "subtype": "error", "request_id": id, "error": why });
    json!({ "type": "control_response", "response": response })
}
