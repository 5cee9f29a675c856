//! The app server of Codex: initializes it, starts or resumes a conversation, and runs turns in it. Interprets its
//! notifications and answers its requests.

use std::collections::HashMap;

use serde_json::{Value, json};
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{Part, ToolCall};
use windlass_core::tool::{Admitted, ToolSpec};

use super::items::{call, command, equivalent_calls, result};
use super::turn_end::{CodexUsage, end, failed};
use crate::agent::{ReportedUsage, TurnEndReason};
use crate::dialogue::{
    Dialogue, DialogueInput, DialogueOutput, OutputQueue, RequestTicket, TurnResult,
};
use crate::equivalent_calls::EquivalentCalls;
use crate::json::{self, text};
use crate::offered_tools::is_offered;
use crate::rpc::{MAX_UNSENT, RpcBuilder, RpcError, RpcMessage, parse_message};

/// Limits for the calls and warnings of one turn.
const MAX_CALLS: usize = 20_000;
const MAX_WARNINGS: u32 = 20;
/// Consecutive retry notices of Codex before the turn fails. Codex itself would retry without a limit.
const MAX_RETRIES: u32 = 6;

/// The parameters of a conversation with Codex.
#[derive(Default)]
pub(super) struct CodexSetup {
    /// Params of `thread/start` or `thread/resume`.
    pub(super) thread: Value,
    /// Params of `turn/start`, without the conversation and the prompt.
    pub(super) turn: Value,
    pub(super) resumes: bool,
    pub(super) model: Option<String>,
    pub(super) tools: Vec<ToolSpec>,
    pub(super) root: String,
}

/// A conversation with one process of Codex.
#[derive(Default)]
pub(super) struct CodexDialogue {
    setup: CodexSetup,
    rpc: RpcBuilder,
    /// Requests to Codex without a response, by number.
    asked: HashMap<u64, &'static str>,
    prompt: String,
    thread: Option<String>,
    turn: Option<String>,
    /// Announced calls, each with a flag whether Codex asked about it.
    calls: HashMap<String, (ToolCall, bool)>,
    /// The last complete message.
    text: String,
    /// The id of a message that was started and not completed.
    incomplete_message: Option<String>,
    error: Option<Value>,
    retries: u32,
    meter: CodexUsage,
    warnings: u32,
    cancelled: bool,
    /// The program has answered the prompt and takes the next one.
    done: bool,
}

impl CodexDialogue {
    pub(super) fn new(setup: CodexSetup) -> Self {
        Self {
            setup,
            ..Self::default()
        }
    }

    fn ask(&mut self, method: &'static str, params: &Value, out: &mut OutputQueue) {
        let (id, line) = self.rpc.request(method, params);
        self.asked.insert(id, method);
        out.send(line);
    }

    fn answer(&self, id: &Value, result: Value, out: &mut OutputQueue) {
        out.send(self.rpc.answer(id, &Ok(result)));
    }

    fn end_turn(&mut self, end: TurnEndReason, out: &mut OutputQueue) {
        self.done = end == TurnEndReason::Done;
        out.end(TurnResult::with(std::mem::take(&mut self.text), end));
    }

    /// Handles a response, and sends the next request of the setup.
    fn on_response(
        &mut self,
        method: &'static str,
        result: Result<Value, RpcError>,
        out: &mut OutputQueue,
    ) {
        let result = match result {
            Ok(result) => result,
            Err(RpcError { message, .. })
                if method == "thread/resume"
                    && (message.contains("no rollout") || message.contains("not found")) =>
            {
                return out.end(TurnResult::SessionLost);
            }
            Err(_) if method == "turn/interrupt" => return,
            Err(RpcError { code, message, .. }) => {
                let why = format!("Codex refused `{method}`: {message} ({code})");
                return self.end_turn(TurnEndReason::Broken(why), out);
            }
        };
        let id = |of: &str| result.get(of)?.get("id")?.as_str().map(str::to_owned);
        match method {
            "initialize" => {
                out.send(self.rpc.notification("initialized", &json!({})));
                let method = if self.setup.resumes {
                    "thread/resume"
                } else {
                    "thread/start"
                };
                let params = self.setup.thread.take();
                self.ask(method, &params, out);
            }
            "thread/start" | "thread/resume" => {
                let Some(thread) = id("thread") else {
                    let why = "Codex started a conversation without an id".to_owned();
                    return self.end_turn(TurnEndReason::Broken(why), out);
                };
                out.push(DialogueOutput::SessionStarted(Some(thread.clone())));
                self.thread = Some(thread.clone());
                if !self.cancelled {
                    self.start_turn(&thread, out);
                }
            }
            "turn/start" => {
                self.turn = id("turn");
                if self.cancelled {
                    self.stop_turn(out);
                }
            }
            _ => {}
        }
    }

    fn start_turn(&mut self, thread: &str, out: &mut OutputQueue) {
        let mut params = self.setup.turn.clone();
        params["threadId"] = json!(thread);
        params["input"] = json!([{ "type": "text", "text": std::mem::take(&mut self.prompt) }]);
        self.ask("turn/start", &params, out);
    }

    /// Resets the state of the previous turn.
    fn next_turn(&mut self) {
        (self.turn, self.incomplete_message, self.error) = (None, None, None);
        (self.retries, self.warnings, self.done) = (0, 0, false);
        self.calls.clear();
        self.text.clear();
    }

    fn stop_turn(&mut self, out: &mut OutputQueue) {
        let (Some(thread), Some(turn)) = (&self.thread, &self.turn) else {
            return;
        };
        let params = json!({ "threadId": thread, "turnId": turn });
        self.ask("turn/interrupt", &params, out);
    }

    fn on_notification(&mut self, method: &str, params: &Value, out: &mut OutputQueue) {
        let text = |key: &str| text(params, key);
        let item = params.get("item").unwrap_or(&Value::Null);
        let ours = self.thread.as_deref() == json::some_text(params, "threadId");
        if method.starts_with("item/") {
            self.retries = 0;
        }
        match method {
            "item/started" => {
                if ours && item.get("type") == Some(&json!("agentMessage")) {
                    self.incomplete_message = json::some_text(item, "id").map(str::to_owned);
                }
                // A call is announced as soon as it is known, because the question about it follows.
                if let Some(call) = call(item) {
                    self.announce(call, out);
                }
            }
            "item/completed" => self.on_completed(item, ours, out),
            "item/agentMessage/delta" if ours => out.delta(DeltaOf::Text, text("delta")),
            "item/reasoning/textDelta" | "item/reasoning/summaryTextDelta" if ours => {
                out.delta(DeltaOf::Reasoning, text("delta"));
            }
            "item/commandExecution/outputDelta" => {
                let call = CallId::from(text("itemId"));
                out.push(DialogueOutput::Progress(call, text("delta").to_owned()));
            }
            "thread/tokenUsage/updated" if ours => {
                let now = self.turn.is_some()
                    && self.turn.as_deref() == json::some_text(params, "turnId");
                let more = params
                    .get("tokenUsage")
                    .and_then(|count| self.meter.more(count, now));
                if let Some(usage) = more {
                    out.push(DialogueOutput::Spent(ReportedUsage {
                        usage,
                        cost_micros: None,
                        model: self.setup.model.clone(),
                    }));
                }
            }
            "serverRequest/resolved" => {
                if let Some(id) = params.get("requestId") {
                    out.push(DialogueOutput::Forget(id.to_string()));
                }
            }
            "error" if ours => {
                self.error = params.get("error").cloned();
                self.retries += 1;
                if params.get("willRetry") == Some(&Value::Bool(true)) && self.retries > MAX_RETRIES
                {
                    let end = failed(self.error.as_ref());
                    self.end_turn(end, out);
                }
            }
            "turn/completed" if ours => {
                let turn = params.get("turn").unwrap_or(&Value::Null);
                let end = match end(turn, self.error.as_ref(), self.cancelled) {
                    // A model that refuses is only visible as a message without content.
                    TurnEndReason::Done if self.incomplete_message.is_some() => TurnEndReason::Refused(
                        "the model started an answer without completing it, which indicates a refusal"
                            .to_owned(),
                    ),
                    end => end,
                };
                self.end_turn(end, out);
            }
            "warning" | "configWarning" => {
                let warning = ["message", "summary"].into_iter().map(text);
                let warning = warning.into_iter().find(|text| !text.is_empty());
                let warning = warning.unwrap_or("a warning without a message");
                // The enclosure restricts Codex, so the warning about its own sandbox is irrelevant.
                if warning.contains("bubblewrap") {
                    return;
                }
                self.warn(format!("Codex warns: {warning}"), out);
            }
            "mcpServer/startupStatus/updated" if text("status") == "failed" => {
                let (name, why) = (text("name"), text("error"));
                let text = format!("Codex could not start the MCP server `{name}`: {why}");
                self.warn(text, out);
            }
            other if !is_known(other) => out.push(DialogueOutput::Unknown),
            _ => {}
        }
    }

    fn announce(&mut self, call: ToolCall, out: &mut OutputQueue) {
        if self.calls.len() < MAX_CALLS && !self.calls.contains_key(&call.id.0) {
            let id = call.id.0.clone();
            self.calls.insert(id, (call.clone(), false));
        }
        out.push(DialogueOutput::Announce(call));
    }

    fn on_completed(&mut self, item: &Value, ours: bool, out: &mut OutputQueue) {
        match text(item, "type") {
            "agentMessage" if ours => {
                self.incomplete_message = None;
                text(item, "text").clone_into(&mut self.text);
                out.say(self.text.clone());
            }
            "reasoning" if ours => {
                let parts = ["summary", "content"]
                    .into_iter()
                    .filter_map(|key| item.get(key)?.as_array());
                let texts: Vec<&str> = parts.flatten().filter_map(Value::as_str).collect();
                if !texts.is_empty() {
                    let (text, opaque) = (texts.join("\n"), None);
                    out.part(Part::Reasoning { text, opaque });
                }
            }
            _ => {
                let Some(call) = call(item) else {
                    return;
                };
                self.announce(call.clone(), out);
                let refused = text(item, "status") == "declined";
                let ran = !refused && !is_offered(&self.setup.tools, &call.name);
                if let Some((_, asked)) = self.calls.get_mut(&call.id.0) {
                    *asked = true;
                }
                let result = result(item, &call);
                out.push(DialogueOutput::Result { result, ran });
            }
        }
    }

    fn on_request(&mut self, id: Value, method: &str, params: &Value, out: &mut OutputQueue) {
        match method {
            "item/commandExecution/requestApproval" => {
                let call = self.command_asked(params);
                self.judge(id, "approval", call, out);
            }
            "item/fileChange/requestApproval" => {
                let call = self.calls.get(text(params, "itemId"));
                // Without its changes, a patch cannot be judged.
                let call = call.map(|(call, _)| call.clone()).filter(|call| {
                    let changes = call.args.get("changes").and_then(Value::as_array);
                    changes.is_some_and(|changes| !changes.is_empty())
                });
                self.judge(id, "approval", call, out);
            }
            "mcpServer/elicitation/request" => {
                let call = self.tool_asked(params);
                self.judge(id, "elicitation", call, out);
            }
            "item/tool/call" => self.tool_call(&id, params, out),
            // The enclosure defines the permissions, and Codex gets no others.
            "item/permissions/requestApproval" => {
                self.answer(&id, json!({ "permissions": {}, "scope": "turn" }), out);
            }
            "item/tool/requestUserInput" => self.answer(&id, json!({ "answers": {} }), out),
            "execCommandApproval" | "applyPatchApproval" => {
                self.answer(&id, json!({ "decision": "denied" }), out);
            }
            _ => {
                out.push(DialogueOutput::Unknown);
                let err = RpcError::new(RpcError::NO_METHOD, "method not found");
                out.send(self.rpc.answer(&id, &Err(err)));
            }
        }
    }

    /// The command that Codex asks about; `None` for a question that is not about a plain command.
    fn command_asked(&self, params: &Value) -> Option<ToolCall> {
        let text = |key: &str| json::some_text(params, key);
        let more = ["networkApprovalContext", "additionalPermissions"];
        if more
            .iter()
            .any(|key| params.get(*key).is_some_and(|value| !value.is_null()))
        {
            return None;
        }
        // Codex may ask about one item several times. Each question is a separate call.
        let id = text("approvalId")
            .or(text("itemId"))
            .filter(|id| !id.is_empty())?;
        let Some(line) = text("command") else {
            return self.calls.get(id).map(|(call, _)| call.clone());
        };
        let (name, args) = if text("kind").is_some_and(|kind| kind != "command") {
            let args = json!({ "input": line, "to": text("itemId") });
            ("write_stdin", args)
        } else {
            let args = command(line, text("cwd").unwrap_or_default());
            ("exec_command", args)
        };
        Some(ToolCall::new(id, name.to_owned(), args))
    }

    /// The tool call of an MCP server that Codex asks about; `None` for any other question.
    fn tool_asked(&self, params: &Value) -> Option<ToolCall> {
        let meta = params.get("_meta")?;
        if meta.get("codex_approval_kind")?.as_str()? != "mcp_tool_call" {
            return None;
        }
        let args = meta.get("tool_params")?;
        let prefix = format!("mcp__{}__", params.get("serverName")?.as_str()?);
        let mut calls = self.calls.values().filter(|(_, asked)| !asked);
        calls
            .find(|(call, _)| call.name.starts_with(&prefix) && call.args == *args)
            .map(|(call, _)| call.clone())
    }

    /// Has a call judged. A question without a known call is refused.
    fn judge(&mut self, id: Value, form: &str, call: Option<ToolCall>, out: &mut OutputQueue) {
        let ticket = RequestTicket::new(id.to_string(), json!({ "id": id, "form": form }));
        let Some(call) = call else {
            let word = if self.cancelled { "cancel" } else { "decline" };
            return self.decide(&ticket, word, out);
        };
        self.announce(call.clone(), out);
        if let Some((_, asked)) = self.calls.get_mut(&call.id.0) {
            *asked = true;
        }
        out.push(DialogueOutput::Judge {
            ticket,
            call,
            may_differ: false,
        });
    }

    fn decide(&self, ticket: &RequestTicket, word: &str, out: &mut OutputQueue) {
        let answer = match ticket.data["form"].as_str() {
            Some("elicitation") => {
                let content = (word == "accept").then(|| json!({}));
                json!({ "action": word, "content": content, "_meta": null })
            }
            _ => json!({ "decision": word }),
        };
        self.answer(&ticket.data["id"], answer, out);
    }

    /// Runs a Windlass tool.
    fn tool_call(&mut self, id: &Value, params: &Value, out: &mut OutputQueue) {
        let args = params.get("arguments").cloned();
        let call = ToolCall::new(
            text(params, "callId"),
            text(params, "tool").to_owned(),
            args.unwrap_or_else(|| json!({})),
        );
        self.announce(call.clone(), out);
        if !is_offered(&self.setup.tools, &call.name) {
            return self.answer(id, tool_answer("the tool does not exist", false), out);
        }
        let ticket = RequestTicket::new(id.to_string(), json!({ "id": id }));
        out.push(DialogueOutput::Run { ticket, call });
    }

    fn warn(&mut self, text: String, out: &mut OutputQueue) {
        self.warnings += 1;
        if self.warnings <= MAX_WARNINGS {
            out.push(DialogueOutput::Warn("agent_warning", text));
        }
    }
}

impl Dialogue for CodexDialogue {
    fn program(&self) -> &str {
        "Codex"
    }

    fn input(&mut self, input: DialogueInput, out: &mut OutputQueue) {
        match input {
            DialogueInput::Prompt(prompt) => {
                self.prompt = prompt;
                self.next_turn();
                if let Some(thread) = self.thread.clone() {
                    return self.start_turn(&thread, out);
                }
                let client = json!({ "name": "windlass", "title": "Windlass", "version": env!("CARGO_PKG_VERSION") });
                let params =
                    json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
                self.ask("initialize", &params, out);
            }
            DialogueInput::Line(line) => match parse_message(line) {
                RpcMessage::Response { id, result } => {
                    match id.and_then(|id| self.asked.remove(&id)) {
                        Some(method) => self.on_response(method, result, out),
                        None => out.push(DialogueOutput::Unknown),
                    }
                }
                RpcMessage::Request { id, method, params } => {
                    self.on_request(id, &method, &params, out)
                }
                RpcMessage::Notification { method, params } => {
                    self.on_notification(&method, &params, out)
                }
                RpcMessage::Invalid => out.push(DialogueOutput::Unknown),
            },
            DialogueInput::Judged(ticket, verdict) => {
                let yes = matches!(verdict, Admitted::Yes { .. });
                self.decide(&ticket, if yes { "accept" } else { "decline" }, out);
            }
            DialogueInput::ToolRan(ticket, result) => {
                let answer = tool_answer(&result.text, result.error.is_none());
                self.answer(&ticket.data["id"], answer, out);
            }
            DialogueInput::Withdrawn(ticket) if ticket.data.get("form").is_none() => {
                let answer = tool_answer("the run was cancelled", false);
                self.answer(&ticket.data["id"], answer, out);
            }
            DialogueInput::Withdrawn(ticket) => self.decide(&ticket, "cancel", out),
            DialogueInput::Interrupt => {
                self.cancelled = true;
                self.stop_turn(out);
            }
            DialogueInput::Exited(exit) => {
                let why = format!("Codex exited without an answer, {exit}");
                self.end_turn(TurnEndReason::Broken(why), out);
            }
            _ => {}
        }
    }

    fn exits_at_eof(&self) -> bool {
        !self.done
    }

    fn accepts_prompt(&self) -> bool {
        self.done
    }

    fn equivalent_calls(&self, call: &ToolCall) -> EquivalentCalls {
        equivalent_calls(call, &self.setup.root)
    }

    fn max_unsent(&self) -> usize {
        MAX_UNSENT
    }
}

/// Whether a notification is known and can be ignored. Unknown ones are counted.
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

fn tool_answer(text: &str, success: bool) -> Value {
    json!({ "contentItems": [{ "type": "inputText", "text": text }], "success": success })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::testing::play;

    #[test]
    fn a_recorded_interrupt_is_reproduced() {
        let recording = include_str!("../../tests/fixtures/codex-interrupt.jsonl");
        let mut dialogue = CodexDialogue::new(CodexSetup {
            thread: json!({ "cwd": "/workspace" }),
            turn: json!({ "threadId": null, "input": null }),
            resumes: false,
            model: None,
            tools: Vec::new(),
            root: "/workspace".to_owned(),
        });
        let facts = play(&mut dialogue, "work", recording);
        let began = "began Some(\"01a1dccb-53ba-7570-be40-82efc663d892\")";
        assert_eq!(facts, [began, "end Cancelled: "]);
    }

    #[test]
    fn the_next_prompt_is_a_turn_of_the_same_conversation() {
        let turn = |id: u32, text: &str| {
            format!(
                r#"{{"dir":">","msg":{{"id":{id},"method":"turn/start","params":{{"threadId":"t1","input":[{{"text":"{text}"}}]}}}}}}
{{"dir":"<","msg":{{"id":{id},"result":{{"turn":{{"id":"u{id}"}}}}}}}}
{{"dir":"<","msg":{{"method":"turn/completed","params":{{"threadId":"t1","turn":{{"id":"u{id}","status":"completed"}}}}}}}}"#
            )
        };
        let hello = r#"{"dir":">","msg":{"id":1,"method":"initialize"}}
{"dir":"<","msg":{"id":1,"result":{}}}
{"dir":">","msg":{"method":"initialized"}}
{"dir":">","msg":{"id":2,"method":"thread/start"}}
{"dir":"<","msg":{"id":2,"result":{"thread":{"id":"t1"}}}}"#;
        let mut codex = CodexDialogue::new(CodexSetup {
            turn: json!({ "effort": "low" }),
            ..CodexSetup::default()
        });
        let facts = play(&mut codex, "one", &format!("{hello}\n{}", turn(3, "one")));
        assert_eq!(facts, ["began Some(\"t1\")", "end Done: "]);
        assert!(codex.accepts_prompt() && !codex.exits_at_eof());
        assert_eq!(play(&mut codex, "two", &turn(4, "two")), ["end Done: "]);
    }
}
