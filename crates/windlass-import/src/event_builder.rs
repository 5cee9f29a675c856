//! Turns the conversation of another agent into our events. In any order of the lines, every call gets exactly one
//! result before the conversation continues; a call without a result is closed as interrupted.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use windlass_core::budget::{Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::event::EventKind;
use windlass_core::flags::SavedFlags;
use windlass_core::id::{CallId, RunId};
use windlass_core::message::{ErrorCategory, Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::outcome::{FailReason, Outcome, RunSummary, StopReason};
use windlass_core::tool::canonical_name;

use super::FileKind;

/// Facts about a file that the first pass collects.
#[derive(Debug, Clone, Default)]
pub(super) struct SourceSummary {
    pub(super) id: Option<String>,
    pub(super) workspace: String,
    pub(super) model: Option<String>,
    /// The line number of the result of each call.
    pub(super) results: HashMap<String, u64>,
    /// The number of lines in the first pass; lines that are added later are ignored.
    pub(super) lines: u64,
}

/// An event without a sequence number.
pub(super) struct UnnumberedEvent {
    pub(super) at: Timestamp,
    pub(super) run: Option<RunId>,
    pub(super) kind: EventKind,
}

/// Builds events from the messages, calls and results of another agent.
pub(super) struct EventBuilder {
    kind: FileKind,
    foreign: Option<String>,
    model: String,
    results: HashMap<String, u64>,
    events_to_write: Vec<UnnumberedEvent>,
    at: Timestamp,
    began: Timestamp,
    line: u64,
    in_run: bool,
    /// The parts of the model's current message, until it is complete.
    parts: Vec<Part>,
    /// Calls of written messages that have no result yet.
    open: Vec<ToolCall>,
    /// Results of calls in the current message.
    early: Vec<ToolResult>,
    spent: Spent,
    /// The last message is the model's, and it contains no call.
    finished: bool,
    pub(super) events: u64,
    pub(super) runs: u64,
    pub(super) interrupted: u64,
    pub(super) left_out: BTreeMap<String, u64>,
    pub(super) unknown: BTreeMap<String, u64>,
}

impl EventBuilder {
    pub(super) fn new(kind: FileKind, source: &SourceSummary, now: Timestamp) -> Self {
        Self {
            kind,
            foreign: source.id.clone(),
            model: source.model.clone().unwrap_or_default(),
            results: source.results.clone(),
            events_to_write: Vec::new(),
            at: now,
            began: now,
            line: 0,
            in_run: false,
            parts: Vec::new(),
            open: Vec::new(),
            early: Vec::new(),
            spent: Spent::default(),
            finished: false,
            events: 0,
            runs: 0,
            interrupted: 0,
            left_out: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// Sets the number of the line that is being processed.
    pub(super) fn at_line(&mut self, line: u64) {
        self.line = line;
    }

    /// Sets the time of the following events, if the line has one.
    pub(super) fn at(&mut self, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        // Events before the first prompt, such as the opening of the session, get the time of the first line.
        if self.runs == 0 {
            self.events_to_write
                .iter_mut()
                .for_each(|event| event.at = at);
        }
        self.at = at;
    }

    pub(super) fn model(&mut self, model: &str) {
        if self.model != model {
            let from = std::mem::replace(&mut self.model, model.to_owned());
            if !from.is_empty() && self.runs > 0 {
                self.add(EventKind::ModelSwitched {
                    from,
                    to: model.to_owned(),
                });
            }
        }
    }

    /// Returns the events since the last call. Before the first prompt nothing is returned, because the time of the first
    /// events is not known yet.
    pub(super) fn take(&mut self) -> Vec<UnnumberedEvent> {
        if self.runs == 0 {
            return Vec::new();
        }
        std::mem::take(&mut self.events_to_write)
    }

    pub(super) fn left_out(&mut self, what: impl Into<String>) {
        *self.left_out.entry(what.into()).or_default() += 1;
    }

    pub(super) fn unknown(&mut self, what: impl Into<String>) {
        *self.unknown.entry(what.into()).or_default() += 1;
    }

    /// Adds a prompt of the user, which begins a run.
    pub(super) fn prompt(&mut self, parts: Vec<Part>) {
        self.end_run();
        self.runs += 1;
        self.in_run = true;
        self.began = self.at;
        self.spent = Spent {
            iterations: 1,
            ..Spent::default()
        };
        let prompt = Message {
            role: Role::User,
            origin: Origin::Person,
            parts,
        };
        self.add(EventKind::RunStarted {
            prompt,
            queued: None,
            flags: SavedFlags::default(),
        });
        self.add(EventKind::IterationStarted {
            iteration: 1,
            foreign_session: self.foreign.clone(),
        });
    }

    /// Adds a message that is not from the model and does not begin a run.
    pub(super) fn injected(&mut self, parts: Vec<Part>, origin: Origin) {
        if !self.in_run {
            self.left_out("messages before the first prompt");
            return;
        }
        self.settle_all();
        self.finished = false;
        self.add(EventKind::said(Message {
            role: Role::User,
            origin,
            parts,
        }));
    }

    /// Adds a part to the model's current message.
    pub(super) fn say(&mut self, part: Part) {
        if !self.in_run {
            self.left_out("messages before the first prompt");
            return;
        }
        // If a later line has the result of an open call, the call stays open, so that the result is added to it.
        let awaited = |call: &ToolCall| {
            self.results
                .get(&call.id.0)
                .is_some_and(|line| *line > self.line)
        };
        if !self.open.is_empty() && !self.open.iter().any(awaited) {
            self.settle_all();
        }
        self.parts.push(part);
    }

    /// Completes the model's current message: the next part belongs to another one.
    pub(super) fn end_message(&mut self) {
        if self.open.is_empty() {
            self.flush();
        }
    }

    /// Adds a call to the model's current message.
    pub(super) fn call(&mut self, id: &str, name: &str, args: Value, malformed: Option<String>) {
        let id = if id.is_empty() {
            format!("import-{}-{}", self.line, self.parts.len())
        } else {
            id.to_owned()
        };
        self.say(Part::Call(ToolCall {
            id: CallId(id),
            name: tool_name(name),
            args,
            malformed,
        }));
    }

    /// Adds the result of a call.
    pub(super) fn result(&mut self, id: &str, text: &str, failed: bool) {
        let result = |call: &ToolCall| match failed {
            true => ToolResult::failed(call, ErrorCategory::Exception, text),
            false => ToolResult::done(call, text),
        };
        let in_message = self.parts.iter().find_map(|part| match part {
            Part::Call(call) if call.id.0 == id => Some(result(call)),
            _ => None,
        });
        match in_message {
            Some(result) if !self.open.is_empty() => return self.early.push(result),
            Some(_) => self.flush(),
            None => {}
        }
        let Some(at) = self.open.iter().position(|call| call.id.0 == id) else {
            self.left_out("results without a call");
            return;
        };
        let call = self.open.remove(at);
        let result = result(&call);
        self.add(EventKind::CallFinished { result, ms: 0 });
        if self.open.is_empty() && !self.early.is_empty() {
            self.flush();
        }
    }

    /// Adds the token usage of a model call. The price is not known here.
    pub(super) fn spend(&mut self, usage: Usage) {
        if !self.in_run {
            return;
        }
        self.spent.settle(usage, None, false);
        self.spent.steps += 1;
        let (model, total) = (self.model.clone(), self.spent);
        self.add(EventKind::Spent {
            model,
            call: usage,
            cost_micros: None,
            estimated: false,
            total,
        });
    }

    pub(super) fn warn(&mut self, code: &str, text: String) {
        self.add(EventKind::Warned {
            code: code.to_owned(),
            text,
        });
    }

    /// Closes the last run and adds a warning that lists the lines that were left out.
    pub(super) fn finish(&mut self) {
        self.end_run();
        let listed = |kinds: &BTreeMap<String, u64>| {
            kinds
                .iter()
                .map(|(kind, count)| format!("{count} of {kind}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut text = format!(
            "this session was imported from a {} session file",
            self.kind.word()
        );
        if !self.left_out.is_empty() {
            text.push_str(&format!(
                "; left out, because it is not part of the conversation: {}",
                listed(&self.left_out)
            ));
        }
        if !self.unknown.is_empty() {
            text.push_str(&format!(
                "; lines of unknown kinds, which were not imported: {}",
                listed(&self.unknown)
            ));
        }
        self.warn("imported", text);
    }

    fn end_run(&mut self) {
        self.settle_all();
        if !self.in_run {
            return;
        }
        let stop = if self.finished {
            StopReason::Done
        } else {
            StopReason::Interrupted
        };
        self.add(EventKind::IterationFinished {
            iteration: 1,
            stop,
            output: None,
        });
        let outcome = match self.finished {
            true => Outcome::Completed,
            false => Outcome::failed(
                FailReason::Interrupted,
                "the imported session does not contain the end of this run",
            ),
        };
        let ms = self.at.as_millis().saturating_sub(self.began.as_millis());
        self.add(EventKind::RunFinished(RunSummary {
            totals: self.spent,
            ms: u64::try_from(ms).unwrap_or(0),
            ..RunSummary::new(outcome)
        }));
        self.in_run = false;
    }

    /// Writes the current message and closes all calls.
    fn settle_all(&mut self) {
        self.close_open();
        self.flush();
        self.close_open();
    }

    fn close_open(&mut self) {
        for call in std::mem::take(&mut self.open) {
            self.interrupted += 1;
            let result =
                ToolResult::interrupted(&call, "the imported session has no result for this call");
            self.add(EventKind::CallFinished { result, ms: 0 });
        }
    }

    /// Writes the current message. No call may be open.
    fn flush(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let parts = unique(std::mem::take(&mut self.parts));
        let message = Message::model(parts);
        self.open = message.calls().cloned().collect();
        self.finished = self.open.is_empty();
        self.add(EventKind::said(message));
        for call in self.open.clone() {
            let rule = format!("imported: {} allowed it", self.kind.word());
            self.add(EventKind::CallStarted {
                call,
                verdict: None,
                rule,
            });
        }
        for result in std::mem::take(&mut self.early) {
            self.open.retain(|call| call.id != result.id);
            self.add(EventKind::CallFinished { result, ms: 0 });
        }
    }

    pub(super) fn add(&mut self, kind: EventKind) {
        self.events += 1;
        let run = self.in_run.then(|| RunId::nth(self.runs));
        self.events_to_write.push(UnnumberedEvent {
            at: self.at,
            run,
            kind,
        });
    }
}

/// Removes calls with a duplicate id from a message: no result could be assigned to the second one.
fn unique(parts: Vec<Part>) -> Vec<Part> {
    let mut seen: HashSet<CallId> = HashSet::new();
    let keep = |part: &Part| match part {
        Part::Call(call) => seen.insert(call.id.clone()),
        _ => true,
    };
    parts.into_iter().filter(keep).collect()
}

/// A tool name that every vendor accepts: our name if we have the same tool, else the name without special characters.
fn tool_name(name: &str) -> String {
    const LONGEST: usize = 64;
    let name = match name {
        "exec_command" | "shell_command" | "local_shell" => "bash",
        other => canonical_name(other),
    };
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let name: String = name.chars().take(LONGEST).map(fits).collect();
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name
    }
}
