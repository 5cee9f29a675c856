//! A program that takes one prompt, prints and exits: interprets its output and its exit. It does not ask about calls,
//! so that only the enclosure restricts it.

use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::message::{Part, ToolCall};
use windlass_core::tool::ForeignCall;
use windlass_core::workspace::{ProcessEnd, ProcessError};

use super::aider::{self, AiderNotes};
use super::fields::{Fields, LineFacts};
use super::printed_text::{PrintedText, without_sequences};
use super::program::ProgramOutput;
use crate::acp::text::end_of;
use crate::agent::TurnEndReason;
use crate::dialogue::{
    Dialogue, DialogueInput, DialogueOutput, OutputFraming, OutputQueue, TurnResult,
};
use crate::equivalent_calls::equivalent_by_input;

/// Bytes that a program may print for one prompt.
const MAX_PRINTED: usize = 64 << 20;
/// Bytes of the last output in an error message.
const MAX_QUOTED: usize = 1_500;
/// The result of a call for which the program reports none.
const NO_RESULT: &str = "(the program reports no results)";

/// One prompt to a program.
#[derive(Default)]
pub(super) struct OneShotDialogue {
    name: String,
    output: ProgramOutput,
    /// The text for its standard input.
    input: String,
    resumed: bool,
    bytes: usize,
    printed: PrintedText,
    /// The pieces of an incomplete message.
    pieces: String,
    /// The last complete message.
    last: String,
    spoke: bool,
    calls: u64,
    /// The last reported error. Later text clears it.
    error: Option<String>,
    /// The exit and the end of standard error, until the program's files are read.
    ended: Option<(Result<ProcessEnd, ProcessError>, String)>,
    cancelled: bool,
}

impl OneShotDialogue {
    /// A program with this output format, and with `input` for its standard input.
    pub(super) fn new(name: String, output: ProgramOutput, input: String, resumed: bool) -> Self {
        Self {
            name,
            output,
            input,
            resumed,
            ..Self::default()
        }
    }

    fn line(&mut self, line: &[u8], out: &mut OutputQueue) {
        self.bytes = self.bytes.saturating_add(line.len() + 1);
        if self.bytes > MAX_PRINTED {
            let most = MAX_PRINTED >> 20;
            out.end(TurnResult::broken(format!(
                "the program printed more than {most} MiB and was stopped"
            )));
            return;
        }
        let ProgramOutput::Lines(fields) = &self.output else {
            let line = without_sequences(line);
            out.delta(DeltaOf::Text, &format!("{line}\n"));
            self.printed.push(&line);
            return;
        };
        match serde_json::from_slice::<Value>(line.trim_ascii()) {
            Ok(value) => {
                let fields = fields.clone();
                let facts = fields.read(&value);
                self.facts(&fields, facts, out);
            }
            Err(_) => {
                if !line.trim_ascii().is_empty() {
                    out.push(DialogueOutput::Unknown);
                }
                self.printed.push(&without_sequences(line));
            }
        }
    }

    fn facts(&mut self, fields: &Fields, facts: LineFacts, out: &mut OutputQueue) {
        if facts.session.is_some() {
            out.push(DialogueOutput::SessionStarted(facts.session));
        }
        if let Some(error) = facts.error {
            self.error = Some(error);
        }
        for piece in facts.deltas {
            out.delta(DeltaOf::Text, &piece);
            self.pieces.push_str(&piece);
            self.error = None;
        }
        if !facts.texts.is_empty() {
            // This message replaces its pieces.
            self.pieces.clear();
        }
        if !facts.calls.is_empty() {
            self.flush(out);
        }
        for text in facts.texts {
            out.delta(DeltaOf::Text, &format!("{text}\n"));
            self.last.clone_from(&text);
            (self.error, self.spoke) = (None, true);
            out.part(Part::Text { text });
        }
        let mut calls = Vec::new();
        for (name, id, args) in facts.calls {
            self.calls += 1;
            self.spoke = true;
            // Results refer to the program's own id of a call.
            let agent_id = id.unwrap_or_else(|| format!("call-{}", self.calls));
            let call = ToolCall::new(agent_id.as_str(), name, args);
            out.part(Part::Call(call.clone()));
            calls.push(call);
        }
        out.push(DialogueOutput::Flush);
        for call in calls {
            let id = call.id.0.clone();
            // The program did not ask, and its tools are unknown.
            let (like, effect) = equivalent_by_input(&call.name, &call.args);
            out.push(DialogueOutput::Observed(ForeignCall { call, like, effect }));
            if fields.result.is_none() {
                out.result(&id, NO_RESULT.to_owned(), None, false);
            }
        }
        for (agent_id, text) in facts.results {
            out.result(&agent_id, text, None, false);
        }
        if let Some(more) = facts.spent {
            out.push(DialogueOutput::Spent(more));
        }
    }

    /// Logs the message that was collected from pieces.
    fn flush(&mut self, out: &mut OutputQueue) {
        let text = std::mem::take(&mut self.pieces);
        if !text.trim().is_empty() {
            self.last.clone_from(&text);
            self.spoke = true;
            out.say(text);
        }
    }

    /// Ends the turn after the exit of the program.
    fn end_turn(&mut self, notes: Option<AiderNotes>, out: &mut OutputQueue) {
        let Some((exit, stderr)) = self.ended.take() else {
            return;
        };
        self.flush(out);
        let lines = matches!(self.output, ProgramOutput::Lines(_));
        let (spent, answer, failed) = match notes {
            Some(notes) => (notes.spent, notes.answer, notes.failed),
            None => (None, String::new(), None),
        };
        if let Some(more) = spent {
            out.push(DialogueOutput::Spent(more));
        }
        let text = match lines {
            true => self.last.clone(),
            false if !answer.is_empty() => answer,
            false => self.printed.text().to_owned(),
        };
        let end = match exit {
            Err(err) => TurnEndReason::Broken(err.0),
            Ok(ProcessEnd::Exited { code: 0 }) => match (self.error.take(), failed) {
                (Some(error), _) => TurnEndReason::Broken(format!(
                    "the program reports: {}",
                    end_of(error.trim(), MAX_QUOTED)
                )),
                (None, Some(why)) => TurnEndReason::Broken(why),
                (None, None) => TurnEndReason::Done,
            },
            Ok(end) => TurnEndReason::Broken(format!(
                "the program ended with {}{}",
                end.in_words(),
                self.failure_detail(&stderr)
            )),
        };
        if end == TurnEndReason::Done && !lines && !text.is_empty() {
            self.spoke = true;
            out.say(text.clone());
        }
        if self.printed.dropped > 0 && !lines {
            let text = format!(
                "the program printed {} bytes above the limit; only the end was kept",
                self.printed.dropped
            );
            out.push(DialogueOutput::Warn("too_much_said", text));
        }
        // A program that fails at once with a conversation to resume may have lost that conversation.
        let at_once =
            matches!(end, TurnEndReason::Broken(_)) && !self.spoke && text.trim().is_empty();
        out.end(match self.resumed && at_once {
            true => TurnResult::SessionLost,
            false => TurnResult::with(text, end),
        });
    }

    /// The error message of the program, for a failed turn.
    fn failure_detail(&mut self, stderr: &str) -> String {
        if let Some(error) = &self.error {
            return format!("; it reports: {}", end_of(error.trim(), MAX_QUOTED));
        }
        if !stderr.is_empty() {
            return format!("; end of its standard error: {stderr}");
        }
        let printed = self.printed.text();
        if printed.is_empty() {
            String::new()
        } else {
            format!(
                "; end of its output: {}",
                end_of(printed.trim(), MAX_QUOTED)
            )
        }
    }
}

impl Dialogue for OneShotDialogue {
    fn program(&self) -> &str {
        &self.name
    }

    fn input(&mut self, input: DialogueInput, out: &mut OutputQueue) {
        match input {
            DialogueInput::Prompt(_) => {
                out.push(DialogueOutput::SendLast(std::mem::take(&mut self.input)))
            }
            DialogueInput::Text(line) => self.line(&line, out),
            DialogueInput::Interrupt => {
                self.cancelled = true;
                out.push(DialogueOutput::Terminate);
            }
            DialogueInput::ProcessEnded(..) if self.cancelled => {
                out.end(TurnResult::with("", TurnEndReason::Cancelled))
            }
            DialogueInput::ProcessEnded(end, stderr) => {
                self.ended = Some((end, stderr));
                match self.output {
                    ProgramOutput::Aider => out.push(DialogueOutput::ReadHome(aider::NOTES)),
                    ProgramOutput::Text | ProgramOutput::Lines(_) => self.end_turn(None, out),
                }
            }
            DialogueInput::HomeFiles(files) => self.end_turn(Some(aider::notes(&files)), out),
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut OutputQueue) {
        self.flush(out);
    }

    fn framing(&self) -> OutputFraming {
        OutputFraming::Text
    }

    fn reuses_call_ids(&self) -> bool {
        true
    }

    fn skipped_lines_warning(&self, unread: u64, unknown: u64) -> (&'static str, String) {
        let unread = unread.saturating_add(unknown);
        let text =
            format!("{unread} lines of the program were not JSON or too long; they were ignored");
        ("unread_lines", text)
    }

    fn lost_session_warning(&self) -> String {
        format!(
            "{} could not resume its conversation; it starts a new one with a shortened copy of the log",
            self.name
        )
    }
}
