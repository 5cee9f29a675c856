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

use super::call::{AcpCall, block_text};
use super::text::{clean, clip, end_of};
use crate::dialogue::{DialogueOutput, OutputQueue};
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
pub(super) struct AcpTranscript {
    text: String,
    thought: String,
    message: Option<String>,
    /// The last complete message.
    last: String,
    turn_bytes: usize,
    /// Kinds of tools, by name, for tools that the agent reports as `other`.
    kinds: Arc<HashMap<String, ToolKind>>,
    root: PathBuf,
    open: HashMap<String, AcpCall>,
    order: Vec<String>,
    done: HashSet<String>,
    reused_ids: u64,
    /// Bytes above the limit of a turn.
    pub dropped: u64,
    /// Micro-USD of the session so far, if the agent reports dollars.
    pub cost_micros: Option<u64>,
}

impl AcpTranscript {
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
        (self.turn_bytes, self.message) = (0, None);
        self.last.clear();
    }

    pub(super) fn take(&mut self, out: &mut OutputQueue, update: Value) {
        let Ok(update) = serde_json::from_value::<SessionUpdate>(update) else {
            out.push(DialogueOutput::Unknown);
            return;
        };
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk(out, chunk, DeltaOf::Text),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk(out, chunk, DeltaOf::Reasoning),
            SessionUpdate::ToolCall(call) => {
                let id = key(&call.tool_call_id.0);
                // A completed call does not start again. The agent reuses its id for another call.
                if self.done.remove(&id) {
                    self.reused_ids += 1;
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
                out.push(DialogueOutput::Unknown);
            }
        }
    }

    fn chunk(&mut self, out: &mut OutputQueue, chunk: ContentChunk, of: DeltaOf) {
        let message = chunk.message_id.map(|id| clip(&id.0, 128).into_owned());
        if message.is_some() && self.message.is_some() && message != self.message {
            self.flush(out);
        }
        self.message = message.or(self.message.take());
        let text = block_text(&chunk.content);
        let remaining = MAX_TURN.saturating_sub(self.turn_bytes);
        let fits = &text[..text.floor_char_boundary(remaining)];
        self.dropped += (text.len() - fits.len()) as u64;
        self.turn_bytes += fits.len();
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

    fn call(&mut self, out: &mut OutputQueue, update: ToolCallUpdate) {
        let id = key(&update.tool_call_id.0);
        if self.done.contains(&id) {
            return;
        }
        let kinds = Arc::clone(&self.kinds);
        let acp_call = self.call_entry(out, &id);
        acp_call.merge(update, &kinds);
        if acp_call.is_completed() {
            return self.complete(out, &id);
        }
        if acp_call.has_results() && !acp_call.asked && !acp_call.started {
            self.announce(out, &id);
            self.begin_call(out, &id);
        }
        if let Some(acp_call) = self
            .open
            .get(&id)
            .filter(|acp_call| acp_call.announced && !acp_call.text.is_empty())
        {
            let newest = end_of(&acp_call.text, MAX_PROGRESS).to_owned();
            out.push(DialogueOutput::Progress(acp_call.id.clone(), newest));
        }
    }

    /// The call with this id, created if necessary.
    fn call_entry(&mut self, out: &mut OutputQueue, id: &str) -> &mut AcpCall {
        if !self.open.contains_key(id) {
            if self.open.len() >= MAX_OPEN {
                let oldest = self.order.first().cloned().unwrap_or_default();
                self.complete(out, &oldest);
            }
            let name = clean(id).into_owned();
            let unique = if self.reused_ids == 0 {
                name
            } else {
                format!("{name}#{}", self.reused_ids)
            };
            self.order.push(id.to_owned());
            self.open
                .insert(id.to_owned(), AcpCall::new(CallId(unique)));
        }
        self.open
            .entry(id.to_owned())
            .or_insert_with(|| AcpCall::new(CallId(id.to_owned())))
    }

    /// Whether a decision about a call is pending.
    pub(super) fn is_being_judged(&self, id: &str) -> bool {
        self.open
            .get(&key(id))
            .is_some_and(|acp_call| acp_call.asked && !acp_call.judged)
    }

    /// The agent asks about a call: merges the update and announces the call.
    pub(super) fn asked(&mut self, out: &mut OutputQueue, update: ToolCallUpdate) -> AcpCall {
        let id = key(&update.tool_call_id.0);
        // A second question, or one after the start of the call, is judged as a new call.
        let before = self
            .open
            .get(&id)
            .filter(|acp_call| acp_call.asked || acp_call.started)
            .cloned();
        if before.is_some() {
            self.complete(out, &id);
        }
        if self.done.remove(&id) {
            self.reused_ids += 1;
        }
        let kinds = Arc::clone(&self.kinds);
        let acp_call = self.call_entry(out, &id);
        if let Some(before) = before {
            *acp_call = before.with_id(acp_call.id.clone());
        }
        acp_call.merge(update, &kinds);
        acp_call.asked = true;
        // The text of a question is for the user, and is not a result of the call.
        acp_call.text.clear();
        self.announce(out, &id);
        self.open
            .get(&id)
            .cloned()
            .unwrap_or_else(|| AcpCall::new(CallId(id)))
    }

    /// Records the verdict about a call.
    pub(super) fn judged(&mut self, call: &CallId, admitted: bool) {
        let Some(acp_call) = self.open.values_mut().find(|acp_call| acp_call.id == *call) else {
            return;
        };
        acp_call.started |= admitted;
        acp_call.judged = true;
    }

    /// Announces a call in the log, after the collected messages.
    fn announce(&mut self, out: &mut OutputQueue, id: &str) {
        let Some(acp_call) = self.open.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut acp_call.announced, true) {
            return;
        }
        let call = acp_call.call();
        self.collect_messages(out);
        out.push(DialogueOutput::Announce(call));
    }

    fn begin_call(&mut self, out: &mut OutputQueue, id: &str) {
        let Some(acp_call) = self.open.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut acp_call.started, true) || acp_call.asked {
            return;
        }
        acp_call.without_question = true;
        self.observe(out, id);
    }

    /// Reports a call that the agent did not ask about.
    fn observe(&self, out: &mut OutputQueue, id: &str) {
        if let Some(acp_call) = self
            .open
            .get(id)
            .filter(|acp_call| acp_call.without_question)
        {
            let call = acp_call.call();
            let (like, effect) = acp_call.equivalent_calls(&self.root);
            out.push(DialogueOutput::Observed(ForeignCall { call, like, effect }));
        }
    }

    fn complete(&mut self, out: &mut OutputQueue, id: &str) {
        self.announce(out, id);
        // The input and the paths of a call may arrive after its start.
        match self.open.get(id).is_some_and(|acp_call| acp_call.started) {
            true => self.observe(out, id),
            false => self.begin_call(out, id),
        }
        self.order.retain(|known| known != id);
        let Some(acp_call) = self.open.remove(id) else {
            return;
        };
        if self.done.len() >= MAX_DONE {
            self.done.clear();
        }
        self.done.insert(id.to_owned());
        out.push(DialogueOutput::Revoke(acp_call.id.clone()));
        let text = acp_call.result();
        let (failed, text) = match acp_call.status {
            ToolCallStatus::Completed => (None, text),
            ToolCallStatus::Failed => (Some(ErrorCategory::Exception), text),
            _ => (
                Some(ErrorCategory::Interrupted),
                "the agent reported no result".to_owned(),
            ),
        };
        match acp_call.terminal {
            // A call that ran in a terminal of the client has no text of its own.
            Some(terminal) if text.is_empty() => out.push(DialogueOutput::TerminalResult {
                call: acp_call.id,
                terminal,
                failed,
            }),
            _ => out.result(&acp_call.id.0, text, failed, false),
        }
    }

    /// Logs the complete messages.
    pub(super) fn flush(&mut self, out: &mut OutputQueue) {
        self.collect_messages(out);
        out.push(DialogueOutput::Flush);
    }

    /// Collects the complete messages.
    fn collect_messages(&mut self, out: &mut OutputQueue) {
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
    pub(super) fn end(&mut self, out: &mut OutputQueue) -> String {
        while let Some(id) = self.order.first().cloned() {
            // A call that was never announced was not made.
            match self.open.get(&id) {
                Some(acp_call) if acp_call.announced => self.complete(out, &id),
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
    pub(super) fn open_call(&self, call: &CallId) -> Option<&AcpCall> {
        self.open.values().find(|acp_call| acp_call.id == *call)
    }
}

/// The agent's id of a call, limited in length.
fn key(id: &str) -> String {
    clip(id, 128).into_owned()
}
