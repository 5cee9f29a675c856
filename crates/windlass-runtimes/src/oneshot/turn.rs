//! One prompt with a running program: what it prints becomes words, calls and numbers, until it ends by itself, prints
//! too much or is ended. Nothing of it can be refused on its way: its place holds it.

use std::collections::HashMap;

use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::Effect;
use windlass_core::workspace::{ProcessEnd, ProcessError};

use super::aider;
use super::fields::{Facts, Fields};
use super::printed::{Printed, plain};
use super::program::Output;
use crate::agent::{Answer, CANCEL_GRACE, End, Visit};
use crate::peer::Peer;
use crate::said::Said;

/// Bytes that a program may print for one prompt.
const MAX_PRINTED: usize = 64 << 20;
/// The most calls that are open at a time.
const MAX_OPEN: usize = 1_024;
/// How much of its last words is shown, when they are why it ended.
const SHOWN: usize = 1_500;
/// What a call is told to have come to, where the program never says.
const UNTOLD: &str = "(the program does not say what came of it)";

/// How a prompt ended.
pub(super) struct Ended {
    pub(super) answer: Answer,
    /// It ended with a failure and had said nothing.
    pub(super) failed_at_once: bool,
}

pub(super) struct Turn<'v> {
    visit: &'v Visit<'v>,
    peer: Peer,
    output: &'v Output,
    bytes: usize,
    printed: Printed,
    /// Pieces of a message.
    pieces: String,
    /// The last whole message.
    last: String,
    said: Said,
    calls: u64,
    /// Calls whose result is still to come, by the program's own names for them.
    open: HashMap<String, (CallId, String)>,
    not_json: u64,
    /// What the program says went wrong, until it says something else.
    error: Option<String>,
}

impl<'v> Turn<'v> {
    pub(super) fn new(visit: &'v Visit<'v>, peer: Peer, output: &'v Output) -> Self {
        Self {
            visit,
            peer,
            output,
            bytes: 0,
            printed: Printed::default(),
            pieces: String::new(),
            last: String::new(),
            said: Said::default(),
            calls: 0,
            open: HashMap::new(),
            not_json: 0,
            error: None,
        }
    }

    /// Gives the program its input and follows it to its end.
    pub(super) async fn follow(mut self, input: &str) -> Result<Ended, RuntimeError> {
        let visit = self.visit;
        self.peer.say_last(input);
        let mut grace: BoxFuture<'_, ()> = Box::pin(std::future::pending());
        let mut cancelled = false;
        let exit = loop {
            tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.peer.terminate();
                    grace = visit.clock.sleep(CANCEL_GRACE);
                }
                () = &mut grace => break None,
                line = self.peer.line() => match line {
                    Ok(Some(line)) => if let Some(why) = self.heard(&line).await? {
                        return Ok(self.ended(End::Broken(why), String::new()));
                    },
                    Ok(None) | Err(_) => break Some(()),
                },
            }
        };
        let end = match exit {
            None => None,
            Some(()) => tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !cancelled => {
                    self.peer.terminate();
                    self.peer.end(visit.clock, CANCEL_GRACE).await;
                    None
                }
                () = &mut grace => None,
                end = self.peer.exited() => Some(end),
            },
        };
        self.flush().await?;
        let Some(end) = end.filter(|_| !visit.cancel.is_cancelled()) else {
            return Ok(self.ended(End::Cancelled, String::new()));
        };
        let (text, end) = self.closing(end).await?;
        self.warn().await?;
        Ok(self.ended(end, text))
    }

    fn ended(&self, end: End, text: String) -> Ended {
        let failed_at_once =
            matches!(end, End::Broken(_)) && self.said.messages == 0 && text.trim().is_empty();
        Ended {
            answer: Answer {
                text,
                output: None,
                end,
            },
            failed_at_once,
        }
    }

    /// One line; why it has to end, when it has.
    async fn heard(&mut self, line: &[u8]) -> Result<Option<String>, RuntimeError> {
        self.bytes = self.bytes.saturating_add(line.len() + 1);
        if self.bytes > MAX_PRINTED {
            return Ok(Some(format!(
                "it printed more than {} MiB, and was ended",
                MAX_PRINTED >> 20
            )));
        }
        match self.output {
            Output::Text | Output::Aider => {
                let line = plain(line);
                self.visit.delta(DeltaOf::Text, &format!("{line}\n"));
                self.printed.push(&line);
            }
            Output::Lines(fields) => match serde_json::from_slice::<Value>(line.trim_ascii()) {
                Ok(value) => self.facts(fields, fields.read(&value)).await?,
                Err(_) => {
                    self.not_json += u64::from(!line.trim_ascii().is_empty());
                    self.printed.push(&plain(line));
                }
            },
        }
        Ok(self.said.too_much())
    }

    async fn facts(&mut self, fields: &Fields, facts: Facts) -> Result<(), RuntimeError> {
        if let Some(session) = &facts.session {
            self.visit.began(Some(session)).await?;
        }
        if let Some(error) = facts.error {
            self.error = Some(error);
        }
        for piece in facts.deltas {
            self.visit.delta(DeltaOf::Text, &piece);
            self.pieces.push_str(&piece);
            self.error = None;
        }
        let mut parts: Vec<Part> = Vec::new();
        for text in facts.texts {
            // The whole of what came in pieces.
            self.pieces.clear();
            self.visit.delta(DeltaOf::Text, &format!("{text}\n"));
            self.last.clone_from(&text);
            self.error = None;
            parts.push(Part::Text { text });
        }
        let mut calls = Vec::new();
        for (name, id, args) in facts.calls {
            self.calls += 1;
            // Results name a call as the program does.
            let theirs = id.unwrap_or_else(|| format!("call-{}", self.calls));
            let id = self.visit.call_id(&theirs);
            let call = ToolCall {
                id,
                name,
                args,
                malformed: None,
            };
            parts.push(Part::Call(call.clone()));
            calls.push((theirs, call));
        }
        if !calls.is_empty() {
            self.flush().await?;
        }
        self.say(parts).await?;
        for (theirs, call) in calls {
            // Nobody was asked, and what the tool does is not known.
            self.visit.observed(call.clone(), Effect::Execute).await?;
            if fields.result.is_none() {
                let result = ToolResult {
                    text: UNTOLD.into(),
                    id: call.id,
                    name: call.name,
                    error: None,
                    artifact: None,
                };
                self.visit.reported_result(result).await?;
            } else if self.open.len() < MAX_OPEN {
                self.open.insert(theirs, (call.id, call.name));
            }
        }
        for (theirs, text) in facts.results {
            let Some((id, name)) = self.open.remove(&theirs) else {
                continue;
            };
            self.visit
                .reported_result(ToolResult {
                    id,
                    name,
                    text,
                    error: None,
                    artifact: None,
                })
                .await?;
        }
        if let Some(more) = &facts.spent {
            self.visit.spent(more);
        }
        Ok(())
    }

    /// Says the message that came in pieces.
    async fn flush(&mut self) -> Result<(), RuntimeError> {
        let text = std::mem::take(&mut self.pieces);
        if text.trim().is_empty() {
            return Ok(());
        }
        self.last.clone_from(&text);
        self.say(vec![Part::Text { text }]).await
    }

    async fn say(&mut self, parts: Vec<Part>) -> Result<(), RuntimeError> {
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

    /// What a program that ended by itself said, and how it ended.
    async fn closing(
        &mut self,
        exit: Result<ProcessEnd, ProcessError>,
    ) -> Result<(String, End), RuntimeError> {
        let noted = matches!(self.output, Output::Aider).then(|| aider::notes(self.visit));
        if let Some(more) = noted.as_ref().and_then(|noted| noted.spent.as_ref()) {
            self.visit.spent(more);
        }
        let text = match (self.output, &noted) {
            (Output::Lines(_), _) => self.last.clone(),
            (_, Some(noted)) if !noted.answer.is_empty() => noted.answer.clone(),
            _ => self.printed.text().to_owned(),
        };
        let end = match exit {
            Err(err) => End::Broken(err.0),
            Ok(ProcessEnd::Exited { code: 0 }) => {
                match (self.error.take(), noted.and_then(|noted| noted.failed)) {
                    (Some(error), _) => End::Broken(format!("it says: {}", end_of(&error))),
                    (None, Some(why)) => End::Broken(why),
                    (None, None) => End::Done,
                }
            }
            Ok(end) => End::Broken(format!(
                "it ended with {}{}",
                end.in_words(),
                self.last_words()
            )),
        };
        if end == End::Done && !matches!(self.output, Output::Lines(_)) && !text.is_empty() {
            self.say(vec![Part::Text { text: text.clone() }]).await?;
        }
        Ok((text, end))
    }

    /// Why it failed, in its own words.
    fn last_words(&mut self) -> String {
        if let Some(error) = &self.error {
            return format!("; it says: {}", end_of(error));
        }
        let complaint = self.peer.complaint();
        if !complaint.is_empty() {
            return format!("; the last on its standard error: {complaint}");
        }
        let printed = self.printed.text();
        if printed.is_empty() {
            String::new()
        } else {
            format!("; the last that it printed: {}", end_of(printed))
        }
    }

    async fn warn(&mut self) -> Result<(), RuntimeError> {
        let unread = self.not_json.saturating_add(self.peer.unread());
        if unread > 0 {
            let text = format!(
                "{unread} lines of the program were no JSON or too long, and were passed over"
            );
            self.visit.warn("unread_lines", text).await?;
        }
        if self.printed.dropped > 0 && !matches!(self.output, Output::Lines(_)) {
            let text = format!(
                "the program printed {} bytes more than are kept; the end is",
                self.printed.dropped
            );
            self.visit.warn("too_much_said", text).await?;
        }
        Ok(())
    }
}

fn end_of(text: &str) -> &str {
    let text = text.trim();
    &text[text.ceil_char_boundary(text.len().saturating_sub(SHOWN))..]
}
