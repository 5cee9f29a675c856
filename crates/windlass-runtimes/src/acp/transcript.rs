//! Converts the messages of the agent into events: pieces become messages, calls are announced with them, and each call
//! gets one result. Messages about past turns are ignored.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    ContentChunk, SessionUpdate, ToolCallStatus, ToolCallUpdate, ToolKind,
};
use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Part};
use windlass_core::tool::ForeignCall;

use super::call::{Told, words_of};
use super::words::{clean, clip, end_of};
use crate::dialogue::{Output, Outputs};
use crate::dollars::micros;

/// Bytes of one message. A longer one is split.
const MAX_MESSAGE: usize = 256 << 10;
/// Bytes of text in one turn. The rest is counted and dropped.
const MAX_TURN: usize = 8 << 20;
/// Calls that may be open at the same time.
const MAX_OPEN: usize = 64;
/// Completed calls that are remembered, so that a late update of one is not taken for a new call.
const MAX_DONE: usize = 20_000;
/// Bytes of a call's newest output that are displayed.
const MAX_PROGRESS: usize = 4 << 10;

/// The state of one conversation.
#[derive(Default)]
pub(super) struct Transcript {
    text: String,
    thought: String,
    message: Option<String>,
    /// The last complete message.
    last: String,
    said: usize,
    /// Kinds of tools, by name, for tools that the agent reports as `other`.
    kinds: Arc<HashMap<String, ToolKind>>,
    root: PathBuf,
    open: HashMap<String, Told>,
    order: Vec<String>,
    done: HashSet<String>,
    renamed: u64,
    /// Bytes above the limit of a turn.
    pub dropped: u64,
    /// Micro-USD of the session so far, if the agent reports dollars.
    pub cost_micros: Option<u64>,
}

impl Transcript {
    /// For an agent whose tools have these kinds, in the workspace at `root`.
    pub(super) fn new(kinds: Arc<HashMap<String, ToolKind>>, root: PathBuf) -> Self {
        Self {
            kinds,
            root,
            ..Self::default()
        }
    }

    /// Starts a new turn.
    pub(super) fn begin(&mut self) {
        (self.said, self.message) = (0, None);
        self.last.clear();
    }

    /// Handles one update.
    pub(super) fn take(&mut self, out: &mut Outputs, update: Value) {
        let Ok(update) = serde_json::from_value::<SessionUpdate>(update) else {
            out.push(Output::Unknown);
            return;
        };
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk(out, chunk, DeltaOf::Text),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk(out, chunk, DeltaOf::Reasoning),
            SessionUpdate::ToolCall(call) => {
                let id = key(&call.tool_call_id.0);
                // A completed call does not start again. The agent reuses its id for another call.
                if self.done.remove(&id) {
                    self.renamed += 1;
                }
                self.call(out, call.into())
            }
            SessionUpdate::ToolCallUpdate(update) => self.call(out, update),
            SessionUpdate::Plan(plan) => {
                let lines = plan
                    .entries
                    .iter()
                    .take(100)
                    .map(|entry| format!("- {}\n", clip(&clean(&entry.content), 300)));
                out.delta(DeltaOf::Reasoning, &lines.collect::<String>());
            }
            SessionUpdate::UsageUpdate(usage) => {
                if let Some(cost) = usage
                    .cost
                    .filter(|cost| cost.currency.eq_ignore_ascii_case("usd"))
                {
                    self.cost_micros = micros(cost.amount).or(self.cost_micros);
                }
            }
            // Known updates that the log does not need.
            SessionUpdate::UserMessageChunk(_)
            | SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_) => {}
            _ => {
                out.push(Output::Unknown);
            }
        }
    }

    fn chunk(&mut self, out: &mut Outputs, chunk: ContentChunk, of: DeltaOf) {
        let message = chunk.message_id.map(|id| clip(&id.0, 128).into_owned());
        if message.is_some() && self.message.is_some() && message != self.message {
            self.flush(out);
        }
        self.message = message.or(self.message.take());
        let text = words_of(&chunk.content);
        let room = MAX_TURN.saturating_sub(self.said);
        let fits = &text[..text.floor_char_boundary(room)];
        self.dropped += (text.len() - fits.len()) as u64;
        self.said += fits.len();
        let whole = match of {
            DeltaOf::Reasoning => &mut self.thought,
            _ => &mut self.text,
        };
        whole.push_str(fits);
        out.delta(of, fits);
        if whole.len() > MAX_MESSAGE {
            self.flush(out);
        }
    }

    fn call(&mut self, out: &mut Outputs, update: ToolCallUpdate) {
        let id = key(&update.tool_call_id.0);
        if self.done.contains(&id) {
            return;
        }
        let kinds = Arc::clone(&self.kinds);
        let told = self.told(out, &id);
        told.take(update, &kinds);
        if told.is_over() {
            return self.over(out, &id);
        }
        if told.shows_work() && !told.asked && !told.begun {
            self.announce(out, &id);
            self.begin_call(out, &id);
        }
        if let Some(told) = self
            .open
            .get(&id)
            .filter(|told| told.announced && !told.text.is_empty())
        {
            let newest = end_of(&told.text, MAX_PROGRESS).to_owned();
            out.push(Output::Progress(told.id.clone(), newest));
        }
    }

    /// The call with this id, created if necessary.
    fn told(&mut self, out: &mut Outputs, id: &str) -> &mut Told {
        if !self.open.contains_key(id) {
            if self.open.len() >= MAX_OPEN {
                let oldest = self.order.first().cloned().unwrap_or_default();
                self.over(out, &oldest);
            }
            let name = clean(id).into_owned();
            let unique = if self.renamed == 0 {
                name
            } else {
                format!("{name}#{}", self.renamed)
            };
            self.order.push(id.to_owned());
            self.open.insert(id.to_owned(), Told::new(CallId(unique)));
        }
        self.open
            .entry(id.to_owned())
            .or_insert_with(|| Told::new(CallId(id.to_owned())))
    }

    /// Whether a decision about a call is pending.
    pub(super) fn is_being_judged(&self, id: &str) -> bool {
        self.open
            .get(&key(id))
            .is_some_and(|told| told.asked && !told.judged)
    }

    /// The agent asks about a call: merges the update and announces the call.
    pub(super) fn asked(&mut self, out: &mut Outputs, update: ToolCallUpdate) -> Told {
        let id = key(&update.tool_call_id.0);
        // A second question, or one after the start of the call, is judged as a new call.
        let before = self
            .open
            .get(&id)
            .filter(|told| told.asked || told.begun)
            .cloned();
        if before.is_some() {
            self.over(out, &id);
        }
        if self.done.remove(&id) {
            self.renamed += 1;
        }
        let kinds = Arc::clone(&self.kinds);
        let told = self.told(out, &id);
        if let Some(before) = before {
            *told = before.again(told.id.clone());
        }
        told.take(update, &kinds);
        told.asked = true;
        // The text of a question is for the user, and is not a result of the call.
        told.text.clear();
        self.announce(out, &id);
        self.open
            .get(&id)
            .cloned()
            .unwrap_or_else(|| Told::new(CallId(id)))
    }

    /// Records the verdict about a call.
    pub(super) fn judged(&mut self, call: &CallId, admitted: bool) {
        let Some(told) = self.open.values_mut().find(|told| told.id == *call) else {
            return;
        };
        told.begun |= admitted;
        told.judged = true;
    }

    /// Announces a call in the log, after the collected messages.
    fn announce(&mut self, out: &mut Outputs, id: &str) {
        let Some(told) = self.open.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut told.announced, true) {
            return;
        }
        let call = told.call();
        self.say(out);
        out.push(Output::Announce(call));
    }

    fn begin_call(&mut self, out: &mut Outputs, id: &str) {
        let Some(told) = self.open.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut told.begun, true) || told.asked {
            return;
        }
        told.unasked = true;
        self.observe(out, id);
    }

    /// Reports a call that the agent did not ask about.
    fn observe(&self, out: &mut Outputs, id: &str) {
        if let Some(told) = self.open.get(id).filter(|told| told.unasked) {
            let call = told.call();
            let (like, effect) = told.likeness(&self.root);
            out.push(Output::Observed(ForeignCall { call, like, effect }));
        }
    }

    fn over(&mut self, out: &mut Outputs, id: &str) {
        self.announce(out, id);
        // The input and the paths of a call may arrive after its start.
        match self.open.get(id).is_some_and(|told| told.begun) {
            true => self.observe(out, id),
            false => self.begin_call(out, id),
        }
        self.order.retain(|known| known != id);
        let Some(told) = self.open.remove(id) else {
            return;
        };
        if self.done.len() >= MAX_DONE {
            self.done.clear();
        }
        self.done.insert(id.to_owned());
        out.push(Output::Revoke(told.id.clone()));
        let text = told.result();
        let (failed, text) = match told.status {
            ToolCallStatus::Completed => (None, text),
            ToolCallStatus::Failed => (Some(ErrorCategory::Exception), text),
            _ => (
                Some(ErrorCategory::Interrupted),
                "the agent reported no result".to_owned(),
            ),
        };
        match told.terminal {
            // A call that ran in a terminal of the client has no text of its own.
            Some(terminal) if text.is_empty() => out.push(Output::TerminalResult {
                call: told.id,
                terminal,
                failed,
            }),
            _ => out.result(&told.id.0, text, failed, false),
        }
    }

    /// Logs the complete messages.
    pub(super) fn flush(&mut self, out: &mut Outputs) {
        self.say(out);
        out.push(Output::Flush);
    }

    /// Collects the complete messages.
    fn say(&mut self, out: &mut Outputs) {
        let thought = std::mem::take(&mut self.thought);
        if !thought.trim().is_empty() {
            out.part(Part::reasoning(thought));
        }
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() {
            self.last.clone_from(&text);
            out.part(Part::Text { text });
        }
    }

    /// Ends a turn: logs the remaining text, completes all open calls, and returns the last message.
    pub(super) fn end(&mut self, out: &mut Outputs) -> String {
        while let Some(id) = self.order.first().cloned() {
            // A call that was never announced was not made.
            match self.open.get(&id) {
                Some(told) if told.announced => self.over(out, &id),
                _ => {
                    self.open.remove(&id);
                    self.order.retain(|known| *known != id);
                }
            }
        }
        self.flush(out);
        std::mem::take(&mut self.last)
    }

    /// The open call with this id in the log.
    pub(super) fn open_call(&self, call: &CallId) -> Option<&Told> {
        self.open.values().find(|told| told.id == *call)
    }
}

/// The agent's id of a call, limited in length.
fn key(id: &str) -> String {
    clip(id, 128).into_owned()
}
