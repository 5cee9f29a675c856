//! The control protocol of Claude Code: interprets its lines and answers its requests. The hook is registered before
//! the prompt is sent, so that every call is judged.

use serde_json::{Value, json};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Part, ToolCall};
use windlass_core::tool::{Admitted, ToolSpec};

use super::calls::equivalent_calls;
use super::mcp_host::{self, McpAction};
use super::messages::{blocks, delta_of, hook_answer, permission_answer, result_text};
use super::options::MCP_SERVER_NAME;
use super::turn_end::{answer, reported};
use crate::agent::{AgentAnswer, TurnEndReason};
use crate::dialogue::{
    Dialogue, DialogueInput, DialogueOutput, OutputQueue, RequestTicket, TurnResult,
};
use crate::equivalent_calls::EquivalentCalls;
use crate::json::{self, text};

/// The ids of the requests that register the hook and that interrupt a turn.
const INITIALIZE_ID: &str = "windlass-1";
const INTERRUPT_ID: &str = "windlass-2";
/// The id of the hook.
const HOOK: &str = "windlass";
/// Seconds that a call may wait for its verdict. A user may have to answer.
const HOOK_TIMEOUT: u32 = 7 * 24 * 3600;

/// A conversation with one process of Claude Code.
#[derive(Default)]
pub(super) struct ClaudeDialogue {
    tools: Vec<ToolSpec>,
    resumed: bool,
    /// The prompt, until it is sent.
    prompt: Option<String>,
    /// The program has accepted the hook.
    initialized: bool,
    /// The program has answered the prompt and takes the next one.
    done: bool,
    model: Option<String>,
    spoke: bool,
    cancelled: bool,
}

impl ClaudeDialogue {
    /// `tools` are Windlass tools for the agent. `resumed` tells whether the process was started with a conversation to
    /// resume.
    pub(super) fn new(tools: Vec<ToolSpec>, resumed: bool) -> Self {
        Self {
            tools,
            resumed,
            ..Self::default()
        }
    }

    fn on_line(&mut self, line: &Value, out: &mut OutputQueue) {
        let sub = json::some_text(line, "parent_tool_use_id");
        match text(line, "type") {
            "system" if text(line, "subtype") == "init" => {
                self.model = json::some_text(line, "model").map(str::to_owned);
                let session = json::some_text(line, "session_id");
                out.push(DialogueOutput::SessionStarted(session.map(str::to_owned)));
            }
            "stream_event" if sub.is_none() => {
                if let Some((of, text)) = line.get("event").and_then(delta_of) {
                    out.delta(of, text);
                }
            }
            "assistant" => match sub {
                Some(parent) => sub_agent(parent, line, out),
                None => self.assistant(line, out),
            },
            "user" => results(line, out),
            "control_request" => self.on_request(line, out),
            "control_response" => self.on_response(line, out),
            "control_cancel_request" => {
                out.push(DialogueOutput::Forget(text(line, "request_id").to_owned()));
            }
            "result" => self.result(line, out),
            "system" | "stream_event" | "rate_limit_event" | "tool_progress"
            | "tool_use_summary" | "auth_status" | "prompt_suggestion" | "keep_alive" => {}
            _ => out.push(DialogueOutput::Unknown),
        }
    }

    fn assistant(&mut self, line: &Value, out: &mut OutputQueue) {
        let Some(message) = line.get("message") else {
            return;
        };
        // The program itself writes such a message for an error of its model.
        let synthetic = text(message, "model") == "<synthetic>";
        if synthetic || line.get("error").is_some_and(|error| !error.is_null()) {
            return;
        }
        for part in blocks(message) {
            self.spoke = true;
            let part = match part {
                Part::Call(call) => Part::Call(logged(call)),
                part => part,
            };
            out.push(DialogueOutput::Part(text(message, "id").to_owned(), part));
        }
    }

    /// Handles a response of the program.
    fn on_response(&mut self, line: &Value, out: &mut OutputQueue) {
        let response = line.get("response").unwrap_or(&Value::Null);
        if text(response, "request_id") != INITIALIZE_ID {
            return;
        }
        if text(response, "subtype") != "success" {
            let why = json::some_text(response, "error");
            out.end(TurnResult::broken(format!(
                "Claude Code did not accept the Windlass hook, without which its calls cannot be judged: {}",
                why.unwrap_or("no reason given")
            )));
            return;
        }
        self.initialized = true;
        self.send_prompt(out);
    }

    fn send_prompt(&mut self, out: &mut OutputQueue) {
        if let Some(text) = self.prompt.take().filter(|_| !self.cancelled) {
            let message = json!({ "role": "user", "content": text });
            out.send(json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" }));
        }
    }

    fn result(&mut self, line: &Value, out: &mut OutputQueue) {
        out.push(DialogueOutput::Flush);
        if let Some(more) = reported(line, self.model.as_deref()) {
            out.push(DialogueOutput::Spent(more));
        }
        let answer = answer(line, self.cancelled);
        self.done = answer.end == TurnEndReason::Done;
        out.end(match &answer {
            AgentAnswer {
                end: TurnEndReason::Broken(exit),
                ..
            } if self.is_session_lost(exit) => TurnResult::SessionLost,
            _ => TurnResult::Answered(answer),
        });
    }

    /// Whether the program reports, on standard error or in its last line, that the conversation to resume does not
    /// exist.
    fn is_session_lost(&self, exit: &str) -> bool {
        self.resumed && !self.spoke && exit.contains("No conversation found")
    }

    /// Handles a request of the program: a question about a call, or a message to the MCP server with the Windlass
    /// tools.
    fn on_request(&mut self, line: &Value, out: &mut OutputQueue) {
        let Some(id) = json::some_text(line, "request_id") else {
            return;
        };
        let request = line.get("request").unwrap_or(&Value::Null);
        let input = request.get("input").unwrap_or(&Value::Null);
        match text(request, "subtype") {
            "hook_callback" => {
                let call = (input.get("tool_name"), input.get("tool_input"));
                let named = request.get("tool_use_id").or(input.get("tool_use_id"));
                judge(
                    RequestTicket::new(id, json!({ "hook": true })),
                    call,
                    named,
                    out,
                );
            }
            "can_use_tool" => {
                let call = (request.get("tool_name"), request.get("input"));
                let ticket = RequestTicket::new(id, json!({ "input": input }));
                judge(ticket, call, request.get("tool_use_id"), out);
            }
            "mcp_message" => self.message(id, request, out),
            "elicitation" => out.send(success(id, json!({ "action": "decline" }))),
            other => {
                out.push(DialogueOutput::Unknown);
                let why = format!("unsupported request `{}`", other.escape_debug());
                out.send(failure(id, &why));
            }
        }
    }

    /// Handles a message to the MCP server with the Windlass tools.
    fn message(&mut self, request_id: &str, request: &Value, out: &mut OutputQueue) {
        if text(request, "server_name") != MCP_SERVER_NAME {
            out.send(failure(request_id, "the server does not exist"));
            return;
        }
        let message = request.get("message").unwrap_or(&Value::Null);
        match mcp_host::ask(&self.tools, message) {
            McpAction::Answered(message) => {
                out.send(success(request_id, json!({ "mcp_response": message })));
            }
            McpAction::Run {
                id,
                tool,
                args,
                call,
            } => {
                let call = call.unwrap_or_else(|| format!("{MCP_SERVER_NAME}-{request_id}"));
                let call = ToolCall::new(call.as_str(), tool, args);
                let ticket = RequestTicket::new(request_id, json!({ "message": id }));
                out.push(DialogueOutput::Run { ticket, call });
            }
        }
    }
}

impl Dialogue for ClaudeDialogue {
    fn program(&self) -> &str {
        "Claude Code"
    }

    fn input(&mut self, input: DialogueInput, out: &mut OutputQueue) {
        match input {
            DialogueInput::Prompt(prompt) => {
                self.prompt = Some(prompt);
                (self.done, self.spoke) = (false, false);
                match self.initialized {
                    true => self.send_prompt(out),
                    false => out.send(initialize_request(!self.tools.is_empty())),
                }
            }
            DialogueInput::Line(line) => self.on_line(&line, out),
            DialogueInput::Judged(ticket, verdict) => out.send(verdict_on(&ticket, &verdict)),
            DialogueInput::ToolRan(RequestTicket { id, mut data }, result) => {
                let message = mcp_host::ran(data["message"].take(), &result);
                out.send(success(&id, json!({ "mcp_response": message })));
            }
            DialogueInput::Withdrawn(ticket) => out.send(match ticket.data.get("message") {
                Some(message) => {
                    let message =
                        mcp_host::refused(message.clone(), -32000, "the run was cancelled");
                    success(&ticket.id, json!({ "mcp_response": message }))
                }
                None => verdict_on(&ticket, &Admitted::blocked("the run was cancelled")),
            }),
            DialogueInput::Interrupt => {
                self.cancelled = true;
                let request = json!({ "subtype": "interrupt" });
                out.send(json!({ "type": "control_request", "request_id": INTERRUPT_ID, "request": request }));
            }
            DialogueInput::Exited(exit) if self.is_session_lost(&exit) => {
                out.end(TurnResult::SessionLost)
            }
            DialogueInput::Exited(exit) => {
                out.end(TurnResult::broken(format!(
                    "Claude Code exited without an answer, {exit}"
                )));
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
        equivalent_calls(&call.name, &call.args)
    }
}

/// A message of a subagent. Its text is progress of the call that started it; its calls are announced when they are
/// judged.
fn sub_agent(parent: &str, line: &Value, out: &mut OutputQueue) {
    out.push(DialogueOutput::Flush);
    for part in line.get("message").map(blocks).unwrap_or_default() {
        let text = match &part {
            Part::Text { text } => text.clone(),
            Part::Call(call) => format!("{} {}", call.name, call.args),
            _ => continue,
        };
        out.push(DialogueOutput::Progress(CallId::from(parent), text));
    }
}

/// Reports the results of calls.
fn results(line: &Value, out: &mut OutputQueue) {
    for block in json::items(&line["message"], "content") {
        let Some(id) = json::some_text(block, "tool_use_id") else {
            continue;
        };
        let failed = block["is_error"] == true;
        let category = failed.then_some(ErrorCategory::Exception);
        out.result(id, result_text(&block["content"]), category, !failed);
    }
}

/// Has a call judged. Windlass tools are judged when they run.
fn judge(
    ticket: RequestTicket,
    (name, args): (Option<&Value>, Option<&Value>),
    id: Option<&Value>,
    out: &mut OutputQueue,
) {
    let Some(id) = id.and_then(Value::as_str) else {
        let why = "the call has no id, so it cannot be judged";
        out.send(verdict_on(&ticket, &Admitted::blocked(why)));
        return;
    };
    let call = ToolCall::new(
        id,
        name.and_then(Value::as_str).unwrap_or_default().to_owned(),
        args.cloned().unwrap_or_else(|| json!({})),
    );
    if windlass_tool(&call.name).is_some() {
        out.push(DialogueOutput::Announce(logged(call)));
        let rule = "windlass tool".to_owned();
        out.send(verdict_on(
            &ticket,
            &Admitted::Yes {
                writes: Vec::new(),
                rule,
            },
        ));
        return;
    }
    out.push(DialogueOutput::Judge {
        ticket,
        call,
        may_differ: true,
    });
}

fn verdict_on(ticket: &RequestTicket, verdict: &Admitted) -> Value {
    let answer = match ticket.data.get("input") {
        Some(input) => permission_answer(verdict, input.clone()),
        None => hook_answer(verdict),
    };
    success(&ticket.id, answer)
}

fn initialize_request(offers: bool) -> Value {
    let hook = json!({ "hookCallbackIds": [HOOK], "timeout": HOOK_TIMEOUT, "onFailure": "block" });
    let mut request = json!({ "subtype": "initialize", "hooks": { "PreToolUse": [hook] } });
    if offers {
        request["sdkMcpServers"] = json!([MCP_SERVER_NAME]);
    }
    json!({ "type": "control_request", "request_id": INITIALIZE_ID, "request": request })
}

/// The call with the name that it has in the log.
fn logged(mut call: ToolCall) -> ToolCall {
    if let Some(windlass_tool) = windlass_tool(&call.name) {
        call.name = windlass_tool.to_owned();
    }
    call
}

/// The name of the Windlass tool behind the name that the agent uses.
fn windlass_tool(name: &str) -> Option<&str> {
    name.strip_prefix("mcp__")?
        .strip_prefix(MCP_SERVER_NAME)?
        .strip_prefix("__")
}

fn success(id: &str, response: Value) -> Value {
    let response = json!({ "subtype": "success", "request_id": id, "response": response });
    json!({ "type": "control_response", "response": response })
}

fn failure(id: &str, why: &str) -> Value {
    let response = json!({ "subtype": "error", "request_id": id, "error": why });
    json!({ "type": "control_response", "response": response })
}

#[cfg(test)]
mod tests {
    use windlass_core::tool::{Effect, Exposure};

    use super::*;
    use crate::dialogue::testing::play;

    #[test]
    fn a_recorded_turn_is_reproduced() {
        let recording = include_str!("../../tests/fixtures/claude-approvals.jsonl");
        let mut lookup = ToolSpec::new("lookup", "", json!({ "type": "object" }), Effect::Read);
        lookup.exposure = Exposure::Function;
        let tools = vec![lookup];
        let facts = play(&mut ClaudeDialogue::new(tools, false), "work", recording);
        let expect = [
            "began Some(\"3e581522-b2f8-4804-8e8e-b2bb2ffc70c8\")",
            "judge Bash: true",
            "judge Bash: true",
            "judge Bash: false",
            "run lookup",
            "end Done: Done. The fake model says hello.",
        ];
        assert_eq!(facts, expect);
    }

    #[test]
    fn the_next_prompt_goes_to_the_same_process_without_another_initialization() {
        let result = r#"{"dir":"<","msg":{"type":"result","subtype":"success","is_error":false,"result":"done"}}"#;
        let first = r#"{"dir":">","msg":{"type":"control_request","request_id":"windlass-1"}}
{"dir":"<","msg":{"type":"control_response","response":{"subtype":"success","request_id":"windlass-1"}}}
{"dir":">","msg":{"type":"user","message":{"role":"user","content":"one"}}}"#;
        let second =
            r#"{"dir":">","msg":{"type":"user","message":{"role":"user","content":"two"}}}"#;
        let mut claude = ClaudeDialogue::new(Vec::new(), false);
        assert_eq!(
            play(&mut claude, "one", &format!("{first}\n{result}")),
            ["end Done: done"]
        );
        assert!(claude.accepts_prompt() && !claude.exits_at_eof());
        assert_eq!(
            play(&mut claude, "two", &format!("{second}\n{result}")),
            ["end Done: done"]
        );
        // A process that failed gets no further prompt.
        let failed = r#"{"dir":"<","msg":{"type":"result","subtype":"error_during_execution","is_error":true}}"#;
        play(&mut claude, "two", &format!("{second}\n{failed}"));
        assert!(!claude.accepts_prompt() && claude.exits_at_eof());
    }
}
