//! The turns of another agent as our own events. Whatever order its lines have, every call here gets exactly one
//! result before the conversation goes on; one that has none is closed as interrupted.

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

/// What a file says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub(super) id: Option<String>,
    pub(super) workspace: String,
    pub(super) model: Option<String>,
    /// The line of the result of each call.
    pub(super) results: HashMap<String, u64>,
    /// The lines that were there at the first time; what was added since is not looked at.
    pub(super) lines: u64,
}

/// An event that has no number yet.
pub(super) struct Fact {
    pub(super) at: Timestamp,
    pub(super) run: Option<RunId>,
    pub(super) kind: EventKind,
}

/// Makes events of turns.
pub(super) struct Weave {
    kind: FileKind,
    foreign: Option<String>,
    model: String,
    results: HashMap<String, u64>,
    facts: Vec<Fact>,
    at: Timestamp,
    began: Timestamp,
    line: u64,
    in_run: bool,
    /// What the model says, until it is whole.
    saying: Vec<Part>,
    /// Calls that were said and have no result yet.
    open: Vec<ToolCall>,
    /// Results of calls that are not said yet.
    early: Vec<ToolResult>,
    spent: Spent,
    /// The last word was the model's, and it asked for nothing more.
    at_rest: bool,
    pub(super) events: u64,
    pub(super) runs: u64,
    pub(super) interrupted: u64,
    pub(super) left_out: BTreeMap<String, u64>,
    pub(super) unknown: BTreeMap<String, u64>,
}

impl Weave {
    pub(super) fn new(kind: FileKind, about: &About, now: Timestamp) -> Self {
        Self {
            kind,
            foreign: about.id.clone(),
            model: about.model.clone().unwrap_or_default(),
            results: about.results.clone(),
            facts: Vec::new(),
            at: now,
            began: now,
            line: 0,
            in_run: false,
            saying: Vec::new(),
            open: Vec::new(),
            early: Vec::new(),
            spent: Spent::default(),
            at_rest: false,
            events: 0,
            runs: 0,
            interrupted: 0,
            left_out: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// The first event, which waits for the first time that the file tells.
    pub(super) fn at_line(&mut self, line: u64) {
        self.line = line;
    }

    pub(super) fn at(&mut self, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        // The log is opened when the conversation was begun.
        if self.runs == 0 {
            self.facts.iter_mut().for_each(|fact| fact.at = at);
        }
        self.at = at;
    }

    pub(super) fn model(&mut self, model: &str) {
        if self.model != model {
            let from = std::mem::replace(&mut self.model, model.to_owned());
            if !from.is_empty() && self.runs > 0 {
                self.fact(EventKind::ModelSwitched {
                    from,
                    to: model.to_owned(),
                });
            }
        }
    }

    /// What was made since the last time. Nothing is handed out before the first prompt, because the time is not known.
    pub(super) fn take(&mut self) -> Vec<Fact> {
        if self.runs == 0 {
            return Vec::new();
        }
        std::mem::take(&mut self.facts)
    }

    pub(super) fn left_out(&mut self, what: impl Into<String>) {
        *self.left_out.entry(what.into()).or_default() += 1;
    }

    pub(super) fn unknown(&mut self, what: impl Into<String>) {
        *self.unknown.entry(what.into()).or_default() += 1;
    }

    /// A person asked for something: a run begins.
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
        self.fact(EventKind::RunStarted {
            prompt,
            queued: None,
            flags: SavedFlags::default(),
        });
        self.fact(EventKind::IterationStarted {
            iteration: 1,
            foreign_session: self.foreign.clone(),
        });
    }

    /// Words that are not the model's and begin no run.
    pub(super) fn injected(&mut self, parts: Vec<Part>, origin: Origin) {
        if !self.in_run {
            // Before the first prompt there is nothing that it could be about.
            self.left_out("words before the first prompt");
            return;
        }
        self.settle_all();
        self.at_rest = false;
        self.fact(EventKind::said(Message {
            role: Role::User,
            origin,
            parts,
        }));
    }

    /// A piece of what the model says.
    pub(super) fn say(&mut self, part: Part) {
        if !self.in_run {
            self.left_out("words before the first prompt");
            return;
        }
        // A result that is still to come is waited for, so that it stays with its call.
        let awaited = |call: &ToolCall| {
            self.results
                .get(&call.id.0)
                .is_some_and(|line| *line > self.line)
        };
        if !self.open.is_empty() && !self.open.iter().any(awaited) {
            self.settle_all();
        }
        self.saying.push(part);
    }

    /// What the model says is whole: the next piece belongs to another message.
    pub(super) fn said(&mut self) {
        if self.open.is_empty() {
            self.flush();
        }
    }

    /// A call, as a piece of what is said.
    pub(super) fn call(&mut self, id: &str, name: &str, args: Value, malformed: Option<String>) {
        let id = if id.is_empty() {
            format!("import-{}-{}", self.line, self.saying.len())
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

    /// What came of a call.
    pub(super) fn result(&mut self, id: &str, text: &str, failed: bool) {
        let result = |call: &ToolCall| match failed {
            true => ToolResult::failed(call, ErrorCategory::Exception, text),
            false => ToolResult::done(call, text),
        };
        let in_saying = self.saying.iter().find_map(|part| match part {
            Part::Call(call) if call.id.0 == id => Some(result(call)),
            _ => None,
        });
        match in_saying {
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
        self.fact(EventKind::CallFinished { result, ms: 0 });
        if self.open.is_empty() && !self.early.is_empty() {
            self.flush();
        }
    }

    /// A model call was paid for. Prices are not known here.
    pub(super) fn spend(&mut self, usage: Usage) {
        if !self.in_run {
            return;
        }
        self.spent.settle(usage, None, false);
        self.spent.steps += 1;
        let (model, total) = (self.model.clone(), self.spent);
        self.fact(EventKind::Spent {
            model,
            call: usage,
            cost_micros: None,
            estimated: false,
            total,
        });
    }

    pub(super) fn warn(&mut self, code: &str, text: String) {
        self.fact(EventKind::Warned {
            code: code.to_owned(),
            text,
        });
    }

    /// Closes what is open, and says what was left out.
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
                "; left out, because it is no part of the conversation: {}",
                listed(&self.left_out)
            ));
        }
        if !self.unknown.is_empty() {
            text.push_str(&format!(
                "; lines of unknown kinds that are missing here: {}",
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
        let stop = if self.at_rest {
            StopReason::Done
        } else {
            StopReason::Interrupted
        };
        self.fact(EventKind::IterationFinished {
            iteration: 1,
            stop,
            output: None,
        });
        let outcome = match self.at_rest {
            true => Outcome::Completed,
            false => Outcome::failed(
                FailReason::Interrupted,
                "the imported session has no end of it",
            ),
        };
        let ms = self.at.as_millis().saturating_sub(self.began.as_millis());
        self.fact(EventKind::RunFinished(RunSummary {
            totals: self.spent,
            ms: u64::try_from(ms).unwrap_or(0),
            ..RunSummary::new(outcome)
        }));
        self.in_run = false;
    }

    /// Every call gets its result, and everything is said.
    fn settle_all(&mut self) {
        self.close_open();
        self.flush();
        self.close_open();
    }

    fn close_open(&mut self) {
        for call in std::mem::take(&mut self.open) {
            self.interrupted += 1;
            let result =
                ToolResult::interrupted(&call, "the imported session has no result of this call");
            self.fact(EventKind::CallFinished { result, ms: 0 });
        }
    }

    /// Says what was collected. No call is open when this is called.
    fn flush(&mut self) {
        if self.saying.is_empty() {
            return;
        }
        let parts = unique(std::mem::take(&mut self.saying));
        let message = Message::model(parts);
        self.open = message.calls().cloned().collect();
        self.at_rest = self.open.is_empty();
        self.fact(EventKind::said(message));
        for call in self.open.clone() {
            let rule = format!("imported: {} let it run", self.kind.word());
            self.fact(EventKind::CallStarted {
                call,
                verdict: None,
                rule,
            });
        }
        for result in std::mem::take(&mut self.early) {
            self.open.retain(|call| call.id != result.id);
            self.fact(EventKind::CallFinished { result, ms: 0 });
        }
    }

    pub(super) fn fact(&mut self, kind: EventKind) {
        self.events += 1;
        let run = self.in_run.then(|| RunId::nth(self.runs));
        self.facts.push(Fact {
            at: self.at,
            run,
            kind,
        });
    }
}

/// A message never holds two calls of one id: the second has nothing that could answer it.
fn unique(parts: Vec<Part>) -> Vec<Part> {
    let mut taken: HashSet<CallId> = HashSet::new();
    let keep = |part: &Part| match part {
        Part::Call(call) => taken.insert(call.id.clone()),
        _ => true,
    };
    parts.into_iter().filter(keep).collect()
}

/// A name that every vendor takes, ours where we have the same tool.
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
