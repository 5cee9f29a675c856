//! A program that takes one prompt, prints and exits: interprets its output and its exit. It does not ask about calls,
//! so that only the enclosure restricts it.

use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::message::{Part, ToolCall};
use windlass_core::tool::ForeignCall;
use windlass_core::workspace::{ProcessEnd, ProcessError};

use super::aider::{self, Notes};
use super::fields::{Facts, Fields};
use super::printed::{Printed, plain};
use super::program::Output as Prints;
use crate::acp::words::end_of;
use crate::agent::End;
use crate::dialogue::{Dialogue, Ended, Framing, Input, Output, Outputs};
use crate::likeness::likeness_by_input;

/// Bytes that a program may print for one prompt.
const MAX_PRINTED: usize = 64 << 20;
/// Bytes of the last output in an error message.
const SHOWN: usize = 1_500;
/// The result of a call for which the program reports none.
const UNTOLD: &str = "(the program reports no results)";

/// One prompt to a program.
#[derive(Default)]
pub(super) struct OneShotDialogue {
    name: String,
    prints: Prints,
    /// The text for its standard input.
    input: String,
    resumed: bool,
    bytes: usize,
    printed: Printed,
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
    pub(super) fn new(name: String, prints: Prints, input: String, resumed: bool) -> Self {
        Self {
            name,
            prints,
            input,
            resumed,
            ..Self::default()
        }
    }

    fn line(&mut self, line: &[u8], out: &mut Outputs) {
        self.bytes = self.bytes.saturating_add(line.len() + 1);
        if self.bytes > MAX_PRINTED {
            let most = MAX_PRINTED >> 20;
            out.end(Ended::broken(format!(
                "the program printed more than {most} MiB and was stopped"
            )));
            return;
        }
        let Prints::Lines(fields) = &self.prints else {
            let line = plain(line);
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
                    out.push(Output::Unknown);
                }
                self.printed.push(&plain(line));
            }
        }
    }

    fn facts(&mut self, fields: &Fields, facts: Facts, out: &mut Outputs) {
        if facts.session.is_some() {
            out.push(Output::Began(facts.session));
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
            let theirs = id.unwrap_or_else(|| format!("call-{}", self.calls));
            let call = ToolCall::new(theirs.as_str(), name, args);
            out.part(Part::Call(call.clone()));
            calls.push(call);
        }
        out.push(Output::Flush);
        for call in calls {
            let id = call.id.0.clone();
            // The program did not ask, and its tools are unknown.
            let (like, effect) = likeness_by_input(&call.name, &call.args);
            out.push(Output::Observed(ForeignCall { call, like, effect }));
            if fields.result.is_none() {
                out.result(&id, UNTOLD.to_owned(), None, false);
            }
        }
        for (theirs, text) in facts.results {
            out.result(&theirs, text, None, false);
        }
        if let Some(more) = facts.spent {
            out.push(Output::Spent(more));
        }
    }

    /// Logs the message that was collected from pieces.
    fn flush(&mut self, out: &mut Outputs) {
        let text = std::mem::take(&mut self.pieces);
        if !text.trim().is_empty() {
            self.last.clone_from(&text);
            self.spoke = true;
            out.say(text);
        }
    }

    /// Ends the turn after the exit of the program.
    fn closing(&mut self, notes: Option<Notes>, out: &mut Outputs) {
        let Some((exit, complaint)) = self.ended.take() else {
            return;
        };
        self.flush(out);
        let lines = matches!(self.prints, Prints::Lines(_));
        let (spent, answer, failed) = match notes {
            Some(notes) => (notes.spent, notes.answer, notes.failed),
            None => (None, String::new(), None),
        };
        if let Some(more) = spent {
            out.push(Output::Spent(more));
        }
        let text = match lines {
            true => self.last.clone(),
            false if !answer.is_empty() => answer,
            false => self.printed.text().to_owned(),
        };
        let end = match exit {
            Err(err) => End::Broken(err.0),
            Ok(ProcessEnd::Exited { code: 0 }) => match (self.error.take(), failed) {
                (Some(error), _) => End::Broken(format!(
                    "the program reports: {}",
                    end_of(error.trim(), SHOWN)
                )),
                (None, Some(why)) => End::Broken(why),
                (None, None) => End::Done,
            },
            Ok(end) => End::Broken(format!(
                "the program ended with {}{}",
                end.in_words(),
                self.last_words(&complaint)
            )),
        };
        if end == End::Done && !lines && !text.is_empty() {
            self.spoke = true;
            out.say(text.clone());
        }
        if self.printed.dropped > 0 && !lines {
            let text = format!(
                "the program printed {} bytes above the limit; only the end was kept",
                self.printed.dropped
            );
            out.push(Output::Warn("too_much_said", text));
        }
        // A program that fails at once with a conversation to resume may have lost that conversation.
        let at_once = matches!(end, End::Broken(_)) && !self.spoke && text.trim().is_empty();
        out.end(match self.resumed && at_once {
            true => Ended::Forgotten,
            false => Ended::with(text, end),
        });
    }

    /// The error message of the program, for a failed turn.
    fn last_words(&mut self, complaint: &str) -> String {
        if let Some(error) = &self.error {
            return format!("; it reports: {}", end_of(error.trim(), SHOWN));
        }
        if !complaint.is_empty() {
            return format!("; end of its standard error: {complaint}");
        }
        let printed = self.printed.text();
        if printed.is_empty() {
            String::new()
        } else {
            format!("; end of its output: {}", end_of(printed.trim(), SHOWN))
        }
    }
}

impl Dialogue for OneShotDialogue {
    fn program(&self) -> &str {
        &self.name
    }

    fn input(&mut self, input: Input, out: &mut Outputs) {
        match input {
            Input::Prompt(_) => out.push(Output::SendLast(std::mem::take(&mut self.input))),
            Input::Text(line) => self.line(&line, out),
            Input::Interrupt => {
                self.cancelled = true;
                out.push(Output::Terminate);
            }
            Input::Ended(..) if self.cancelled => out.end(Ended::with("", End::Cancelled)),
            Input::Ended(end, complaint) => {
                self.ended = Some((end, complaint));
                match self.prints {
                    Prints::Aider => out.push(Output::ReadHome(aider::NOTES)),
                    Prints::Text | Prints::Lines(_) => self.closing(None, out),
                }
            }
            Input::HomeFiles(files) => self.closing(Some(aider::notes(&files)), out),
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Outputs) {
        self.flush(out);
    }

    fn framing(&self) -> Framing {
        Framing::Text
    }

    fn repeats_names(&self) -> bool {
        true
    }

    fn unread_warning(&self, unread: u64, unknown: u64) -> (&'static str, String) {
        let unread = unread.saturating_add(unknown);
        let text =
            format!("{unread} lines of the program were not JSON or too long; they were ignored");
        ("unread_lines", text)
    }

    fn forgot_warning(&self) -> String {
        format!(
            "{} could not resume its conversation; it starts a new one with a shortened copy of the log",
            self.name
        )
    }
}
