//! What the agent tells while it works, as facts of ours: pieces become messages, calls are announced with them, and each
//! call has one result. What it tells of a past turn is passed over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    ContentChunk, SessionUpdate, ToolCallStatus, ToolCallUpdate, ToolKind,
};
use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Origin, Part, Role, ToolResult};
use windlass_core::runtime::RuntimeError;

use super::call::{Told, words_of};
use super::desk::Desk;
use super::words::{clean, clip};
use crate::agent::Visit;
use crate::dollars::micros;

/// Bytes of one message; a longer one goes on as the next.
const MAX_MESSAGE: usize = 256 << 10;
/// Bytes that are said in one turn; what is over is counted.
const MAX_TURN: usize = 8 << 20;
/// Calls that are under way.
const MAX_OPEN: usize = 64;
/// Calls that are over and remembered, so that a late word about one is no new call.
const MAX_DONE: usize = 20_000;
/// Characters of a call's newest output that are shown.
const MAX_PROGRESS: usize = 4 << 10;

/// One conversation as it goes.
#[derive(Default)]
pub(super) struct Transcript {
    text: String,
    thought: String,
    message: Option<String>,
    /// The last words that were whole.
    last: String,
    said: usize,
    desk: Arc<Desk>,
    /// What tools do, by their names, where the agent says nothing of it.
    kinds: Arc<HashMap<String, ToolKind>>,
    open: HashMap<String, Told>,
    order: Vec<String>,
    done: HashSet<String>,
    renamed: u64,
    /// What was over the bound, in bytes.
    pub dropped: u64,
    /// Updates that were not understood.
    pub unknown: u64,
    /// What the session cost so far, in millionths of the currency, where it says so in dollars.
    pub cost_micros: Option<u64>,
}

impl Transcript {
    /// Of an agent that has this done through us.
    pub(super) fn new(desk: Arc<Desk>, kinds: Arc<HashMap<String, ToolKind>>) -> Self {
        Self {
            desk,
            kinds,
            ..Self::default()
        }
    }

    /// A new turn begins.
    pub(super) fn begin(&mut self) {
        (self.said, self.message) = (0, None);
        self.last.clear();
    }

    /// Takes in one update.
    pub(super) async fn take(
        &mut self,
        visit: &Visit<'_>,
        update: Value,
    ) -> Result<(), RuntimeError> {
        let Ok(update) = serde_json::from_value::<SessionUpdate>(update) else {
            self.unknown += 1;
            return Ok(());
        };
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                self.chunk(visit, chunk, DeltaOf::Text).await
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.chunk(visit, chunk, DeltaOf::Reasoning).await
            }
            SessionUpdate::ToolCall(call) => {
                let id = key(&call.tool_call_id.0);
                // A call that is over does not begin again: another one has its name.
                if self.done.remove(&id) {
                    self.renamed += 1;
                }
                self.call(visit, call.into()).await
            }
            SessionUpdate::ToolCallUpdate(update) => self.call(visit, update).await,
            SessionUpdate::Plan(plan) => {
                let lines = plan
                    .entries
                    .iter()
                    .take(100)
                    .map(|entry| format!("- {}\n", clip(&clean(&entry.content), 300)));
                visit.delta(DeltaOf::Reasoning, &lines.collect::<String>());
                Ok(())
            }
            SessionUpdate::UsageUpdate(usage) => {
                if let Some(cost) = usage
                    .cost
                    .filter(|cost| cost.currency.eq_ignore_ascii_case("usd"))
                {
                    self.cost_micros = micros(cost.amount).or(self.cost_micros);
                }
                Ok(())
            }
            // Known, and nothing that the log needs.
            SessionUpdate::UserMessageChunk(_)
            | SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_) => Ok(()),
            _ => {
                self.unknown += 1;
                Ok(())
            }
        }
    }

    async fn chunk(
        &mut self,
        visit: &Visit<'_>,
        chunk: ContentChunk,
        of: DeltaOf,
    ) -> Result<(), RuntimeError> {
        let message = chunk.message_id.map(|id| clip(&id.0, 128).into_owned());
        if message.is_some() && self.message.is_some() && message != self.message {
            self.flush(visit).await?;
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
        visit.delta(of, fits);
        if whole.len() > MAX_MESSAGE {
            self.flush(visit).await?;
        }
        Ok(())
    }

    async fn call(
        &mut self,
        visit: &Visit<'_>,
        update: ToolCallUpdate,
    ) -> Result<(), RuntimeError> {
        let id = key(&update.tool_call_id.0);
        if self.done.contains(&id) {
            return Ok(());
        }
        let kinds = Arc::clone(&self.kinds);
        let told = self.told(visit, &id).await?;
        told.take(update, &kinds);
        if told.is_over() {
            return self.over(visit, &id).await;
        }
        if told.shows_work() && !told.asked && !told.begun {
            self.announce(visit, &id).await?;
            self.begin_call(visit, &id).await?;
        }
        if let Some(told) = self
            .open
            .get(&id)
            .filter(|told| told.announced && !told.text.is_empty())
        {
            let from = told
                .text
                .ceil_char_boundary(told.text.len().saturating_sub(MAX_PROGRESS));
            visit.progress(&told.id, &told.text[from..]);
        }
        Ok(())
    }

    /// The call of this name, a new one where there is none.
    async fn told(&mut self, visit: &Visit<'_>, id: &str) -> Result<&mut Told, RuntimeError> {
        if !self.open.contains_key(id) {
            if self.open.len() >= MAX_OPEN {
                let oldest = self.order.first().cloned().unwrap_or_default();
                self.over(visit, &oldest).await?;
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
        Ok(self
            .open
            .entry(id.to_owned())
            .or_insert_with(|| Told::new(CallId(id.to_owned()))))
    }

    /// Whether it is being decided about a call.
    pub(super) fn is_being_judged(&self, id: &str) -> bool {
        self.open
            .get(&key(id))
            .is_some_and(|told| told.asked && !told.judged)
    }

    /// The agent asks about a call: what it says of it is taken in, and it is in the log.
    pub(super) async fn asked(
        &mut self,
        visit: &Visit<'_>,
        update: ToolCallUpdate,
    ) -> Result<Told, RuntimeError> {
        let id = key(&update.tool_call_id.0);
        // What it asks about a second time, or after it began, is judged as a call of its own.
        let before = self
            .open
            .get(&id)
            .filter(|told| told.asked || told.begun)
            .cloned();
        if before.is_some() {
            self.over(visit, &id).await?;
        }
        if self.done.remove(&id) {
            self.renamed += 1;
        }
        let kinds = Arc::clone(&self.kinds);
        let told = self.told(visit, &id).await?;
        if let Some(before) = before {
            *told = before.again(told.id.clone());
        }
        told.take(update, &kinds);
        told.asked = true;
        // What it says to the person who decides is not what came of the call.
        told.text.clear();
        self.announce(visit, &id).await?;
        Ok(self
            .open
            .get(&id)
            .cloned()
            .unwrap_or_else(|| Told::new(CallId(id))))
    }

    /// What we said of a call that the agent asked about.
    pub(super) fn judged(&mut self, call: &CallId, admitted: bool) {
        let Some(told) = self.open.values_mut().find(|told| told.id == *call) else {
            return;
        };
        told.begun |= admitted;
        told.judged = true;
    }

    /// Puts a call into the log, with what was said before it.
    async fn announce(&mut self, visit: &Visit<'_>, id: &str) -> Result<(), RuntimeError> {
        let Some(told) = self.open.get_mut(id) else {
            return Ok(());
        };
        if std::mem::replace(&mut told.announced, true) {
            return Ok(());
        }
        let call = told.call();
        let mut parts = self.take_parts();
        parts.push(Part::Call(call));
        visit
            .said(Message {
                role: Role::Assistant,
                origin: Origin::Model,
                parts,
            })
            .await
    }

    async fn begin_call(&mut self, visit: &Visit<'_>, id: &str) -> Result<(), RuntimeError> {
        let Some(told) = self.open.get_mut(id) else {
            return Ok(());
        };
        if std::mem::replace(&mut told.begun, true) || told.asked {
            return Ok(());
        }
        let (call, effect) = (told.call(), told.effect());
        visit.observed(call, effect).await
    }

    async fn over(&mut self, visit: &Visit<'_>, id: &str) -> Result<(), RuntimeError> {
        self.announce(visit, id).await?;
        self.begin_call(visit, id).await?;
        self.order.retain(|known| known != id);
        let Some(told) = self.open.remove(id) else {
            return Ok(());
        };
        if self.done.len() >= MAX_DONE {
            self.done.clear();
        }
        self.done.insert(id.to_owned());
        let (call, mut text) = (told.call(), told.result());
        // One that worked in a terminal of ours says nothing itself.
        if let Some(terminal) = told.terminal.as_deref().filter(|_| text.is_empty()) {
            text = self.desk.terminals.said(terminal).unwrap_or_default();
        }
        let result = match told.status {
            ToolCallStatus::Completed => ToolResult {
                id: call.id.clone(),
                name: call.name.clone(),
                text,
                error: None,
                artifact: None,
            },
            ToolCallStatus::Failed => ToolResult::failed(&call, ErrorCategory::Exception, &text),
            _ => ToolResult::failed(
                &call,
                ErrorCategory::Interrupted,
                "the agent said no more of it",
            ),
        };
        visit.reported_result(result).await
    }

    /// Says what is whole.
    pub(super) async fn flush(&mut self, visit: &Visit<'_>) -> Result<(), RuntimeError> {
        let parts = self.take_parts();
        if parts.is_empty() {
            return Ok(());
        }
        visit
            .said(Message {
                role: Role::Assistant,
                origin: Origin::Model,
                parts,
            })
            .await
    }

    fn take_parts(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let thought = std::mem::take(&mut self.thought);
        if !thought.trim().is_empty() {
            parts.push(Part::Reasoning {
                text: thought,
                opaque: None,
            });
        }
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() {
            self.last.clone_from(&text);
            parts.push(Part::Text { text });
        }
        parts
    }

    /// A turn ends: what was not said is said, and calls that nobody ended are over. Its last words.
    pub(super) async fn end(&mut self, visit: &Visit<'_>) -> Result<String, RuntimeError> {
        while let Some(id) = self.order.first().cloned() {
            // One that was only begun to be told was never made.
            match self.open.get(&id) {
                Some(told) if told.announced => self.over(visit, &id).await?,
                _ => {
                    self.open.remove(&id);
                    self.order.retain(|known| *known != id);
                }
            }
        }
        self.flush(visit).await?;
        Ok(std::mem::take(&mut self.last))
    }

    /// Whether a call is over.
    pub(super) fn is_open(&self, call: &CallId) -> bool {
        self.open.values().any(|told| told.id == *call)
    }
}

/// The agent's name of a call, not longer than names are.
fn key(id: &str) -> String {
    clip(id, 128).into_owned()
}
