//! The fold of a session's durable events: messages for the model, open calls and asks, totals, notes, the phase. There
//! is no second saved state: resuming a session means loading and folding its log. In every list of messages that the
//! history returns, each call has its result.
//!
//! ```
//! use windlass_core::event::Event;
//! use windlass_core::history::History;
//!
//! let line = r#"{"v":2,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"noted","data":{"text":"x"}}"#;
//! let event: Event = serde_json::from_str(line).expect("an event");
//! let mut history = History::default();
//! history.apply(&event);
//! assert_eq!((history.notes(), history.last_seq()), ("x", 1));
//! ```

mod changed_files;
mod entry;
mod snapshot;

use self::changed_files::ChangedFiles;
pub use self::entry::Entry;

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ask::{About, Answer, Ask};
use crate::budget::Spent;
use crate::context::{
    Compaction, CompactionCause, CompactionMode, WorkRecord, by_the_log, compacted,
};
use crate::event::{Event, EventKind};
use crate::id::{AskId, CallId};
use crate::message::{Message, Part, Role, ToolCall, ToolResult};
use crate::outcome::{Outcome, Phase};
use crate::queue::Queue;
use crate::run::Run;
use crate::workspace::FileChange;

/// A tool call of a message whose calls do not all have results yet.
#[derive(Debug, Clone)]
pub struct OpenCall {
    /// The call with its arguments.
    pub call: ToolCall,
    /// True once the call has started.
    pub started: bool,
    /// The known effects of the call so far, in words.
    pub known: Vec<String>,
    /// Asks about the call that were answered, in order. A resumed run does not ask again.
    pub answered: Vec<(Ask, Answer)>,
    /// Sequence number of the message that made the call.
    said: u64,
    /// The result, while other calls of the same message have none.
    result: Option<ToolResult>,
}

/// Maximum messages that wait for results of an earlier one. Beyond it, the open calls are closed without results.
const MAX_LATER: usize = 256;
/// Maximum number of remembered effects per call.
const MAX_KNOWN: usize = 20;

impl OpenCall {
    fn new(said: u64, call: &ToolCall) -> Self {
        Self {
            call: call.clone(),
            started: false,
            known: Vec::new(),
            answered: Vec::new(),
            said,
            result: None,
        }
    }

    /// The result of the call. A call without one gets a result that gives the reason; a call that never started is
    /// reported as not run.
    #[must_use]
    pub fn settle(self, why: &str) -> ToolResult {
        match self.result {
            Some(result) => result,
            None if self.started && !self.known.is_empty() => {
                let why = format!("{why}; what is known: {}", self.known.join(", "));
                ToolResult::interrupted(&self.call, &why)
            }
            None if self.started => ToolResult::interrupted(&self.call, why),
            None => ToolResult::not_run(&self.call, why),
        }
    }
}

/// The state of a session, folded from its log. It is only serialized as a snapshot between runs, when the skipped
/// fields are empty.
#[derive(Default, Serialize, Deserialize)]
pub struct History {
    entries: Arc<Vec<Entry>>,
    /// Calls of the last assistant message, in order, followed by those of the messages in `later`.
    #[serde(skip)]
    open: Vec<OpenCall>,
    /// Sequence number of that message.
    open_seq: u64,
    /// Messages that arrived while its calls were open.
    #[serde(skip)]
    later: VecDeque<(u64, Message)>,
    /// The size of all messages in bytes.
    held: usize,
    /// The size of the messages when the last attempt to compact them gained nothing.
    stuck_at: usize,
    bounded: Option<Compaction>,
    facts: WorkRecord,
    #[serde(skip)]
    asks: Vec<Ask>,
    queue: Queue,
    #[serde(skip)]
    run: Option<Run>,
    run_files: ChangedFiles,
    runs: u64,
    ask_count: u64,
    last_seq: u64,
    run_spent: Spent,
    total: Spent,
    notes: String,
    model: Option<String>,
    foreign_session: Option<String>,
    workspace: String,
    last_outcome: Option<Outcome>,
    ended: bool,
}

/// Kinds of events that change nothing in the fold except the last sequence number.
const UNUSED: &[&str] = &[
    "connection_refused",
    "waited",
    "budget_warned",
    "patch_proposed",
    "patch_checked",
    "patch_applied",
    "undone",
    "redone",
    "failed_over",
    "warned",
];

impl History {
    /// Whether events of a kind, by its name in the log, change anything other than the last sequence number.
    #[must_use]
    pub fn needs(kind: &str) -> bool {
        !UNUSED.contains(&kind)
    }

    /// Records the sequence number of a durable event that [`History::needs`] excludes.
    pub fn pass(&mut self, seq: u64) {
        self.last_seq = seq;
    }

    /// Applies one durable event. Live events are ignored.
    pub fn apply(&mut self, event: &Event) {
        if event.order.seq().is_some() {
            self.apply_owned(event.clone());
        }
    }

    /// Like [`History::apply`], without copying the messages of the event.
    pub fn apply_owned(&mut self, event: Event) {
        let Some(seq) = event.order.seq() else { return };
        self.last_seq = seq;
        self.queue.apply(seq, &event.kind);
        if let Some(run) = &mut self.run {
            run.apply(&event);
        }
        self.facts.apply(&event);
        match event.kind {
            EventKind::SessionOpened {
                model, workspace, ..
            } => {
                self.model = model;
                self.workspace = workspace;
            }
            EventKind::ModelSwitched { to, .. } => self.model = Some(to),
            EventKind::RunStarted { prompt, flags, .. } => {
                self.close_open("the run ended before it had a result");
                self.asks.clear();
                self.run = event.run.map(|id| Run::new(id, prompt.clone(), flags));
                self.runs += 1;
                self.run_spent = Spent::default();
                self.run_files = ChangedFiles::default();
                self.push(seq, prompt);
            }
            // A foreign agent may send its next message before all results have arrived. The message is held back, so
            // that each call is followed by its own results.
            EventKind::Said { message, .. }
                if message.role == Role::Assistant && self.may_wait() =>
            {
                self.open
                    .extend(message.calls().map(|call| OpenCall::new(seq, call)));
                self.later.push_back((seq, message));
            }
            EventKind::IterationStarted {
                foreign_session: Some(session),
                ..
            } => {
                self.foreign_session = Some(session);
            }
            EventKind::Said { message, .. } => {
                self.close_open("the session went on before it had a result");
                self.open = message
                    .calls()
                    .map(|call| OpenCall::new(seq, call))
                    .collect();
                self.say(seq, message);
            }
            EventKind::CallStarted { call, .. } => {
                if let Some(open) = self.open.iter_mut().find(|open| open.call.id == call.id) {
                    open.started = true;
                }
            }
            EventKind::CallFinished { result, .. } => self.settle(result),
            EventKind::FileChanged { call, change, .. } => {
                if let Some(call) = call {
                    self.know(&call, format!("{} was changed", change.path));
                }
                self.run_files.add(&change);
            }
            EventKind::CommandFinished { call, end, .. } => {
                self.know(&call, format!("the command ended ({})", end.in_words()));
            }
            EventKind::Asked { ask } => {
                self.ask_count += 1;
                self.asks.push(ask);
            }
            EventKind::Answered { ask, answer, .. } => self.answer(&ask, answer),
            EventKind::Noted { text } => self.notes = text,
            EventKind::Spent { total, .. } if self.run.is_some() => self.run_spent = total,
            // Between runs, the event's total is that of a single call.
            EventKind::Spent { total, .. } => self.total.add(&total),
            EventKind::RunFinished(summary) => {
                self.last_outcome = Some(summary.outcome);
                self.close_open("the run ended before it had a result");
                self.total.add(&summary.totals);
                self.run_spent = Spent::default();
                self.run = None;
                self.asks.clear();
            }
            // The asks belong to the original session, and the foreign agent's session is bound to it.
            EventKind::Forked { .. } => {
                self.asks.clear();
                self.foreign_session = None;
            }
            // The calls of an open run need their messages.
            EventKind::Cleared {} if self.run.is_none() => self.clear(),
            EventKind::SessionClosed {} => self.ended = true,
            EventKind::Compacted { compaction } => {
                self.bounded = None;
                self.compact(&compaction);
            }
            _ => {}
        }
    }

    /// The messages, each call with its result. The list is shared: drop it before the next `apply`, or the list is
    /// copied.
    #[must_use]
    pub fn entries(&self) -> Arc<Vec<Entry>> {
        self.entries.clone()
    }

    /// Calls that have no result yet.
    pub fn open_calls(&self) -> impl Iterator<Item = &OpenCall> {
        self.open.iter().filter(|open| open.result.is_none())
    }

    /// The tools of calls that started and failed, while other calls of the same message have no result yet.
    pub fn failed_in_step(&self) -> impl Iterator<Item = &str> {
        let failed = |open: &&OpenCall| {
            open.started && open.result.as_ref().is_some_and(|one| one.error.is_some())
        };
        self.open
            .iter()
            .filter(failed)
            .map(|open| open.call.name.as_str())
    }

    /// Results that close all open calls, with this reason.
    #[must_use]
    pub fn closing_results(&self, why: &str) -> Vec<ToolResult> {
        self.open_calls()
            .map(|open| open.clone().settle(why))
            .collect()
    }

    /// Accounts for a power failure, after which the last unsynced events may be lost. All calls of a step share one
    /// sync of the log, so calls after the first one that started may have started as well. They are marked as started,
    /// up to the call that asked without a timeout: its answer is synced before it takes effect, so that call and later
    /// ones cannot have started.
    pub fn doubt(&mut self) {
        let begun = self
            .open
            .iter()
            .position(|open| open.started || open.result.is_some());
        for open in self
            .open
            .iter_mut()
            .skip(begun.map_or(usize::MAX, |at| at + 1))
        {
            if self
                .asks
                .iter()
                .any(|ask| ask.waits_ms.is_none() && ask.call.as_ref() == Some(&open.call.id))
            {
                break;
            }
            open.started = true;
        }
    }

    /// The foreign agent's session of the most recent iteration that had one.
    #[must_use]
    pub fn foreign_session(&self) -> Option<&str> {
        self.foreign_session.as_deref()
    }

    /// Prompts that wait for a run.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The root of the workspace.
    #[must_use]
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    /// The outcome of the last finished run.
    #[must_use]
    pub fn last_outcome(&self) -> Option<&Outcome> {
        self.last_outcome.as_ref()
    }

    /// Asks that wait for an answer.
    #[must_use]
    pub fn open_asks(&self) -> &[Ask] {
        &self.asks
    }

    /// The run that has not finished, if any.
    #[must_use]
    pub fn open_run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Whether the open run waits for a person. If it does not, is not paused, and no process runs it, it was interrupted.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.run.is_some() && !self.asks.is_empty()
    }

    /// Whether the open run was paused and waits for no answer.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        let pause = self.run.as_ref().and_then(Run::pause);
        pause.is_some() && self.asks.is_empty()
    }

    /// The files that calls of the newest run changed, without diffs. Changes that commands made in an isolated copy
    /// are not in the log.
    #[must_use]
    pub fn run_files(&self) -> Vec<FileChange> {
        self.run_files.list()
    }

    /// The spending of the open run.
    #[must_use]
    pub fn run_spent(&self) -> Spent {
        self.run_spent
    }

    /// The spending of all finished runs.
    #[must_use]
    pub fn total(&self) -> Spent {
        self.total
    }

    /// The number of runs that were started.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The number of asks so far.
    #[must_use]
    pub fn ask_count(&self) -> u64 {
        self.ask_count
    }

    /// The sequence number of the last event.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The notes that the model took in this session.
    #[must_use]
    pub fn notes(&self) -> &str {
        &self.notes
    }

    /// The model in use, if it is known.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The phase of the session.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.ended {
            return Phase::Ended;
        }
        match self.asks.last().map(|ask| &ask.about) {
            Some(About::Approval(_) | About::Landing(_)) => return Phase::WaitingForConfirmation,
            Some(About::Question(_)) => return Phase::WaitingForInput,
            None => {}
        }
        match &self.run {
            None => Phase::Idle,
            Some(_) if self.is_paused() => Phase::Paused,
            Some(_)
                if self
                    .open
                    .iter()
                    .any(|open| open.started && open.result.is_none()) =>
            {
                Phase::WaitingForTool
            }
            Some(_) => Phase::Running,
        }
    }

    /// Removes an ask and stores its answer with the call it is about.
    fn answer(&mut self, id: &AskId, answer: Answer) {
        let Some(at) = self.asks.iter().position(|open| open.id == *id) else {
            return;
        };
        let ask = self.asks.remove(at);
        if let Some(open) = self
            .open
            .iter_mut()
            .find(|open| Some(&open.call.id) == ask.call.as_ref())
        {
            open.answered.push((ask, answer));
        }
    }

    /// Remembers an effect of a call that has no result yet.
    fn know(&mut self, call: &CallId, what: String) {
        if let Some(open) = self.open.iter_mut().find(|open| open.call.id == *call)
            && open.known.len() < MAX_KNOWN
        {
            open.known.push(what);
        }
    }

    fn settle(&mut self, result: ToolResult) {
        // The first result is final. A result for an unknown call is ignored.
        let Some(open) = self
            .open
            .iter_mut()
            .find(|open| open.call.id == result.id && open.result.is_none())
        else {
            return;
        };
        open.result = Some(result);
        while !self.open.is_empty() && self.front().all(|open| open.result.is_some()) {
            self.close_front("");
        }
    }

    /// The calls of the last message in the list.
    fn front(&self) -> impl Iterator<Item = &OpenCall> {
        self.open.iter().filter(|open| open.said == self.open_seq)
    }

    /// Whether a new message may be held back until the open calls have results.
    fn may_wait(&self) -> bool {
        self.open_calls().next().is_some() && self.later.len() < MAX_LATER
    }

    /// Closes all open calls, in call order; `why` is the reason for those without a result.
    fn close_open(&mut self, why: &str) {
        while !self.open.is_empty() || !self.later.is_empty() {
            self.close_front(why);
        }
    }

    /// Closes the calls of the last message and appends the messages that were held back, up to the next one with
    /// calls.
    fn close_front(&mut self, why: &str) {
        let front = self.open_seq;
        let (calls, rest): (Vec<_>, Vec<_>) =
            self.open.drain(..).partition(|open| open.said == front);
        self.open = rest;
        if !calls.is_empty() {
            let results = calls.into_iter().map(|open| open.settle(why)).collect();
            self.push(front, Message::results(results));
        }
        while let Some((seq, message)) = self.later.pop_front() {
            self.say(seq, message);
            if self.front().next().is_some() {
                break;
            }
        }
    }

    fn say(&mut self, seq: u64, message: Message) {
        self.open_seq = seq;
        if !message.parts.is_empty() {
            self.push(seq, message);
        }
    }

    fn push(&mut self, seq: u64, message: Message) {
        let entry = Entry::at(seq, message);
        self.held += entry.bytes();
        Arc::make_mut(&mut self.entries).push(entry);
    }
}

/// Compaction of the messages.
impl History {
    /// Facts about the work so far, computed from the log.
    #[must_use]
    pub fn facts(&self) -> &WorkRecord {
        &self.facts
    }

    /// The approximate size of the messages in bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Plans a compaction without a model. The caller logs the result, so that folding the log gives the same messages.
    /// `None` while calls are open, or if it would gain too little.
    #[must_use]
    pub fn compaction(&self, how: CompactionMode, room: usize) -> Option<Compaction> {
        if !self.open.is_empty() {
            return None;
        }
        by_the_log(&self.entries, &self.facts, how, room)
    }

    /// Limits memory while a long log is folded: once the messages exceed `most` bytes, compacts them to half of that.
    /// Returns whether it did. Nothing is logged here; see [`History::bounded`].
    pub fn bound(&mut self, most: usize) -> bool {
        // After an attempt that gained nothing, wait until the messages have grown by an eighth.
        if self.held <= most.max(self.stuck_at + self.stuck_at / 8) {
            return false;
        }
        let Some(compaction) =
            self.compaction(CompactionMode::Fit(CompactionCause::Memory), most / 2)
        else {
            self.stuck_at = self.held;
            return false;
        };
        self.compact(&compaction);
        self.stuck_at = 0;
        self.bounded = Some(compaction);
        true
    }

    /// The last compaction of [`History::bound`]. The writer of the log has to log it after the fold. Applying it again
    /// changes nothing.
    #[must_use]
    pub fn bounded(&self) -> Option<&Compaction> {
        self.bounded.as_ref()
    }

    /// Drops everything that a model gets of the session so far. Totals, queue and asks are no part of that.
    fn clear(&mut self) {
        self.close_open("the conversation was cleared");
        self.entries = Arc::default();
        (self.held, self.stuck_at) = (0, 0);
        self.bounded = None;
        self.facts = WorkRecord::default();
        self.notes.clear();
        self.foreign_session = None;
    }

    fn compact(&mut self, compaction: &Compaction) {
        let open = (!self.open.is_empty()).then_some(self.open_seq);
        let entries = compacted(&self.entries, compaction, open);
        self.held = entries.iter().map(Entry::bytes).sum();
        self.entries = Arc::new(entries);
    }
}

/// The first call without its result in a list of messages, in words; `None` if each call is followed by its result.
#[must_use]
pub fn unpaired(entries: &[Entry]) -> Option<String> {
    let mut waiting: Vec<&crate::id::CallId> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let results: Vec<_> = entry
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Result(result) => Some(&result.id),
                _ => None,
            })
            .collect();
        if results != waiting {
            return Some(format!(
                "message {at} answers {results:?}, but {waiting:?} were asked"
            ));
        }
        waiting = entry.calls().map(|call| &call.id).collect();
    }
    (!waiting.is_empty()).then(|| format!("{waiting:?} have no result"))
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
