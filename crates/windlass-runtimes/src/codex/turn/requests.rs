//! What Codex asks of us while it works: whether a command, a patch or a tool of a server may run, and calls of our tools.
//! Every request is answered exactly once, and every call is judged once, however often it is asked about.

use serde_json::{Value, json};
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::Admitted;

use super::{Done, Turn};
use crate::codex::items::{command, foreign};
use crate::offered::{is_offered, offered};
use crate::rpc::RpcError;

/// The most requests of it that are open at a time.
const MAX_OPEN: usize = 256;

/// What a request waits for, which says how it is answered.
pub(super) enum Open {
    /// A command or a patch.
    Approval(Value),
    /// A tool of an MCP server.
    Tool(Value),
    /// A tool of ours.
    Call(Value),
}

impl Turn<'_> {
    pub(super) async fn request(
        &mut self,
        id: Value,
        method: &str,
        params: &Value,
    ) -> Result<(), RuntimeError> {
        if self.open.contains_key(&id.to_string()) {
            // It has asked already; one answer is enough.
            self.unknown += 1;
            return Ok(());
        }
        if self.open.len() >= MAX_OPEN {
            self.rpc.answer(
                &id,
                &Err(RpcError::new(
                    RpcError::FAILED,
                    "too many requests are open",
                )),
            );
            return Ok(());
        }
        match method {
            "item/commandExecution/requestApproval" => {
                let call = self.command_asked(params);
                self.judge(Open::Approval(id), call).await
            }
            "item/fileChange/requestApproval" => {
                let item = params
                    .get("itemId")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let call = self.calls.get(item).map(|known| known.call.clone());
                // Without its changes nobody knows what the patch would do.
                let call = call.filter(|call| {
                    call.args
                        .get("changes")
                        .and_then(Value::as_array)
                        .is_some_and(|changes| !changes.is_empty())
                });
                self.judge(Open::Approval(id), call).await
            }
            "mcpServer/elicitation/request" => {
                let call = self.tool_asked(params);
                self.judge(Open::Tool(id), call).await
            }
            "item/tool/call" => self.tool_call(id, params).await,
            // More than the place gives is not given.
            "item/permissions/requestApproval" => {
                self.answer(&id, json!({ "permissions": {}, "scope": "turn" }));
                Ok(())
            }
            "item/tool/requestUserInput" => {
                self.answer(&id, json!({ "answers": {} }));
                Ok(())
            }
            "execCommandApproval" | "applyPatchApproval" => {
                self.answer(&id, json!({ "decision": "denied" }));
                Ok(())
            }
            _ => {
                self.unknown += 1;
                self.rpc.answer(
                    &id,
                    &Err(RpcError::new(RpcError::NO_METHOD, "method not found")),
                );
                Ok(())
            }
        }
    }

    /// The command that is asked about; `None` for something that is no plain command.
    fn command_asked(&self, params: &Value) -> Option<ToolCall> {
        let text = |key: &str| params.get(key).and_then(Value::as_str);
        let more = ["networkApprovalContext", "additionalPermissions"];
        if more
            .iter()
            .any(|key| params.get(*key).is_some_and(|value| !value.is_null()))
        {
            return None;
        }
        // One item may be asked about more than once; each time it is another call.
        let id = text("approvalId")
            .or(text("itemId"))
            .filter(|id| !id.is_empty())?;
        let Some(line) = text("command") else {
            return self.calls.get(id).map(|known| known.call.clone());
        };
        if text("kind").is_some_and(|kind| kind != "command") {
            let args = json!({ "input": line, "to": text("itemId") });
            return Some(ToolCall {
                id: id.into(),
                name: "write_stdin".to_owned(),
                args,
                malformed: None,
            });
        }
        let args = command(line, text("cwd").unwrap_or_default());
        Some(ToolCall {
            id: id.into(),
            name: "exec_command".to_owned(),
            args,
            malformed: None,
        })
    }

    /// The tool of an MCP server that is asked about; `None` for any other question.
    fn tool_asked(&self, params: &Value) -> Option<ToolCall> {
        let meta = params.get("_meta")?;
        if meta.get("codex_approval_kind")?.as_str()? != "mcp_tool_call" {
            return None;
        }
        let args = meta.get("tool_params")?;
        let prefix = format!("mcp__{}__", params.get("serverName")?.as_str()?);
        let mut calls = self
            .calls
            .values()
            .filter(|known| !known.asked)
            .map(|known| &known.call);
        calls
            .find(|call| call.name.starts_with(&prefix) && call.args == *args)
            .cloned()
    }

    /// Has a call judged, once. What cannot be judged is refused.
    async fn judge(&mut self, open: Open, call: Option<ToolCall>) -> Result<(), RuntimeError> {
        let request = open.id().clone();
        self.open.insert(request.to_string(), open);
        if self.cancelled {
            self.cancel_open();
            return Ok(());
        }
        let Some(call) = call else {
            self.give_verdict(&request, &no());
            return Ok(());
        };
        self.announce(call.clone()).await?;
        let Some(known) = self.calls.get_mut(&call.id.0) else {
            self.give_verdict(&request, &no());
            return Ok(());
        };
        let same = known.call.name == call.name && known.call.args == call.args;
        if std::mem::replace(&mut known.asked, true) || !same {
            // Asked again it is answered again; another call under its name is not.
            let verdict = known.verdict.clone().filter(|_| same).unwrap_or_else(no);
            self.give_verdict(&request, &verdict);
            return Ok(());
        }
        let visit = self.visit;
        let root = visit.job.files.root().to_string_lossy().into_owned();
        self.waiting.push(Box::pin(async move {
            let id = call.id.0.clone();
            let admitted = visit.admit(foreign(call, &root)).await?;
            Ok(Done::Judged {
                request,
                call: id,
                admitted,
            })
        }));
        Ok(())
    }

    /// Runs a tool of ours.
    async fn tool_call(&mut self, id: Value, params: &Value) -> Result<(), RuntimeError> {
        let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
        let args = params
            .get("arguments")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let call = ToolCall {
            id: text("callId").into(),
            name: text("tool").to_owned(),
            args,
            malformed: None,
        };
        let visit = self.visit;
        self.open.insert(id.to_string(), Open::Call(id.clone()));
        if self.cancelled {
            self.cancel_open();
            return Ok(());
        }
        self.announce(call.clone()).await?;
        let known = self.calls.get_mut(&call.id.0);
        let runs = known.is_some_and(|known| {
            let same = known.call.name == call.name && known.call.args == call.args;
            same && !std::mem::replace(&mut known.asked, true)
        });
        if !runs || !is_offered(&offered(visit.job.toolbox), &call.name) {
            self.open.remove(&id.to_string());
            self.answer(
                &id,
                tool_answer(
                    "there is no such tool, or the call is not the one that was announced",
                    false,
                ),
            );
            return Ok(());
        }
        self.waiting.push(Box::pin(async move {
            let result = visit.call(call).await?;
            Ok(Done::Ran {
                request: id,
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
            Done::Ran { request, result } => {
                if self.open.remove(&request.to_string()).is_none() {
                    return;
                }
                let ToolResult { text, error, .. } = result;
                self.answer(&request, tool_answer(&text, error.is_none()));
            }
        }
    }

    fn give_verdict(&mut self, request: &Value, verdict: &Admitted) {
        let yes = matches!(verdict, Admitted::Yes { .. });
        let answer = match self.open.remove(&request.to_string()) {
            Some(Open::Approval(_)) => {
                json!({ "decision": if yes { "accept" } else { "decline" } })
            }
            Some(Open::Tool(_)) => elicited(if yes { "accept" } else { "decline" }),
            Some(Open::Call(_)) | None => return,
        };
        self.answer(request, answer);
    }

    /// Answers whatever is open, because everything ends.
    pub(super) fn cancel_open(&mut self) {
        for open in std::mem::take(&mut self.open).into_values() {
            let answer = match &open {
                Open::Approval(_) => json!({ "decision": "cancel" }),
                Open::Tool(_) => elicited("cancel"),
                Open::Call(_) => tool_answer("the run was cancelled", false),
            };
            self.answer(open.id(), answer);
        }
    }

    fn answer(&mut self, id: &Value, result: Value) {
        self.rpc.answer(id, &Ok(result));
    }
}

impl Open {
    fn id(&self) -> &Value {
        match self {
            Self::Approval(id) | Self::Tool(id) | Self::Call(id) => id,
        }
    }
}

fn no() -> Admitted {
    Admitted::No {
        category: ErrorCategory::Blocked,
        text: "it could not be judged".to_owned(),
    }
}

fn elicited(action: &str) -> Value {
    let content = if action == "accept" {
        json!({})
    } else {
        Value::Null
    };
    json!({ "action": action, "content": content, "_meta": null })
}

fn tool_answer(text: &str, success: bool) -> Value {
    json!({ "contentItems": [{ "type": "inputText", "text": text }], "success": success })
}
