//! The protocol with a sidecar: the sidecar reports that it is ready, receives a turn, and lets the engine run every
//! call.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::event::DeltaOf;
use windlass_core::message::{Message, Part, ToolCall};
use windlass_core::outcome::RefusalCategory;
use windlass_core::tool::REFUSE;

use super::options::SidecarOptions;
use super::turn_end;
use crate::agent::{ReportedUsage, TurnEndReason};
use crate::dialogue::{
    Dialogue, DialogueInput, DialogueOutput, OutputQueue, RequestTicket, TurnResult,
};
use crate::json::{self, text};

/// The version of the protocol.
const PROTOCOL: u64 = 1;
/// Timeout for the first message. Some SDKs are slow to load.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Lines before the first message that are ignored.
const MAX_OTHER_LINES: u64 = 10_000;

/// A sidecar, over all its turns.
#[derive(Default)]
pub(super) struct SidecarDialogue {
    options: SidecarOptions,
    /// The message that starts the next turn.
    start: Value,
    ready: bool,
    /// Turns that were started.
    turns: u64,
    other_lines: u64,
    /// The last message of the agent.
    text: String,
    cancelled: bool,
}

impl SidecarDialogue {
    pub(super) fn new(options: SidecarOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Whether no turn was started yet.
    pub(super) fn is_new(&self) -> bool {
        self.turns == 0
    }

    /// Sets the message that starts the next turn.
    pub(super) fn next_turn(&mut self, mut start: Value) {
        self.turns += 1;
        start["id"] = json!(self.id());
        self.start = start;
    }

    fn id(&self) -> String {
        format!("turn{}", self.turns)
    }

    fn end_turn(&mut self, end: TurnEndReason, out: &mut OutputQueue) {
        out.end(TurnResult::with(std::mem::take(&mut self.text), end));
    }

    /// Handles a line before the sidecar is ready.
    fn on_ready(&mut self, line: &Value, out: &mut OutputQueue) {
        if text(line, "type") != "ready" {
            out.push(DialogueOutput::Unknown);
            self.other_lines += 1;
            if self.other_lines > MAX_OTHER_LINES {
                out.end(TurnResult::broken(
                    "the sidecar prints other text instead of reporting that it is ready",
                ));
            }
            return;
        }
        let version = line.get("protocol").and_then(Value::as_u64);
        if version != Some(PROTOCOL) {
            let why = format!(
                "the sidecar speaks version {version:?} of the protocol, but {PROTOCOL} is required"
            );
            return out.end(TurnResult::broken(why));
        }
        self.ready = true;
        out.push(DialogueOutput::SetTimeout(None));
        out.push(DialogueOutput::SessionStarted(None));
        out.send(self.start.take());
    }

    fn on_line(&mut self, line: &Value, out: &mut OutputQueue) {
        match text(line, "type") {
            "text_delta" => out.delta(DeltaOf::Text, text(line, "text")),
            "reasoning_delta" => out.delta(DeltaOf::Reasoning, text(line, "text")),
            "reasoning" => out.part(Part::reasoning(text(line, "text").to_owned())),
            "message" => {
                text(line, "text").clone_into(&mut self.text);
                out.say(self.text.clone());
            }
            "tool_call" => tool_call(line, out),
            "handoff" => out.push(DialogueOutput::Note(Message::internal(format!(
                "The agent `{}` hands over to `{}`.",
                plain(text(line, "from")),
                plain(text(line, "to"))
            )))),
            "usage" => out.push(DialogueOutput::Spent(ReportedUsage {
                usage: turn_end::usage(line),
                cost_micros: None,
                model: self.options.model.clone(),
            })),
            "done" if text(line, "id") == self.id() => {
                let last = std::mem::take(&mut self.text);
                let answer = turn_end::answer(line, last, &self.options, self.cancelled);
                out.end(TurnResult::Answered(answer));
            }
            _ => out.push(DialogueOutput::Unknown),
        }
    }
}

impl Dialogue for SidecarDialogue {
    fn program(&self) -> &str {
        "the sidecar"
    }

    fn input(&mut self, input: DialogueInput, out: &mut OutputQueue) {
        match input {
            DialogueInput::Prompt(_) if self.ready => out.send(self.start.take()),
            DialogueInput::Prompt(_) => out.push(DialogueOutput::SetTimeout(Some(READY_TIMEOUT))),
            DialogueInput::Line(line) if self.ready => self.on_line(&line, out),
            DialogueInput::Line(line) => self.on_ready(&line, out),
            DialogueInput::ToolRan(ticket, result) => {
                let failed = result.error.is_some();
                out.send(tool_result(&ticket, &result.text, failed));
                if let Some((category, why)) = refusal(&ticket).filter(|_| !failed) {
                    self.end_turn(TurnEndReason::Declined(category, why), out);
                }
            }
            DialogueInput::Withdrawn(ticket) => {
                out.send(tool_result(&ticket, "the run was cancelled", true))
            }
            DialogueInput::Interrupt => {
                self.cancelled = true;
                out.send(json!({ "type": "cancel" }));
            }
            DialogueInput::TimedOut(stderr) => {
                let seconds = READY_TIMEOUT.as_secs();
                let mut why = format!("the sidecar was not ready after {seconds} seconds");
                if !stderr.is_empty() {
                    why.push_str(&format!("; end of its standard error: {stderr}"));
                }
                out.end(TurnResult::broken(why));
            }
            DialogueInput::Exited(exit) => {
                self.end_turn(
                    TurnEndReason::Broken(format!("the sidecar exited without an answer, {exit}")),
                    out,
                );
            }
            _ => {}
        }
    }

    /// All calls are Windlass calls. The engine judges them when it runs them.
    fn reuses_call_ids(&self) -> bool {
        true
    }
}

/// Runs a call. The call that refuses the task ends the turn.
fn tool_call(line: &Value, out: &mut OutputQueue) {
    let agent_id = text(line, "call_id");
    if agent_id.is_empty() {
        return out.push(DialogueOutput::Unknown);
    }
    let args = line.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let name = text(line, "name").to_owned();
    let malformed = json::some_text(line, "malformed");
    let refusal_args = if name == REFUSE {
        args.clone()
    } else {
        Value::Null
    };
    let call = ToolCall {
        id: agent_id.into(),
        name,
        args,
        malformed: malformed.map(str::to_owned),
    };
    let ticket = RequestTicket::new(agent_id, refusal_args);
    out.push(DialogueOutput::Run { ticket, call });
}

/// Category and reason of a refused task, if the call was the tool for refusals.
fn refusal(ticket: &RequestTicket) -> Option<(RefusalCategory, String)> {
    let category = serde_json::from_value(ticket.data.get("category")?.clone()).ok()?;
    Some((category, ticket.data.get("reason")?.as_str()?.to_owned()))
}

fn tool_result(ticket: &RequestTicket, content: &str, is_error: bool) -> Value {
    json!({ "type": "tool_result", "call_id": ticket.id, "content": content, "is_error": is_error })
}

/// A name without control characters and backticks, limited in length.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_control() && *c != '`')
        .take(60)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::testing::play;

    #[test]
    fn a_recorded_turn_is_reproduced() {
        let recording = include_str!("../../tests/fixtures/sidecar/google-adk-handoff.jsonl");
        let mut dialogue = SidecarDialogue::new(SidecarOptions::default());
        dialogue
            .next_turn(json!({ "type": "start", "history": [], "model": { "api": "anthropic" } }));
        let facts = play(&mut dialogue, "", recording);
        assert_eq!(facts, ["began None", "run lookup", "end Done: Reviewed."]);
    }
}
