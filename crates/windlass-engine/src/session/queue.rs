//! The queue of prompts: adding prompts, running the first one, and changing their order. All decisions about the queue
//! are made while the log is locked, so a prompt that is removed never runs, and one whose run started never comes back.

use std::collections::BTreeSet;

use windlass_core::event::EventKind;
use windlass_core::flags::SavedFlags;
use windlass_core::history::History;
use windlass_core::message::{Message, Origin, Role};
use windlass_core::queue::QueuedPrompt;

use super::{EngineError, Session};
use crate::log::Scope;
use crate::run::{RunHandle, RunOptions};

/// Maximum number of queued prompts.
const MAX_QUEUED: usize = 100;

/// The time at which a queued prompt is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Between two steps of the run in progress.
    Steer,
    /// In a separate run, after the run in progress.
    FollowUp,
}

/// A prompt for the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRequest {
    pub prompt: Message,
    pub when: Delivery,
    /// The flags of the run that the prompt will start. The queue stores them; [`Session::run_queued`] uses the flags of
    /// its options.
    pub flags: SavedFlags,
    /// The name of the token of the client that sends the prompt.
    pub by: Option<String>,
    /// The idempotency key of the request. The queue stores it; the caller compares it.
    pub key: Option<String>,
}

impl QueueRequest {
    /// A prompt without flags, from the terminal.
    #[must_use]
    pub fn new(prompt: Message, when: Delivery) -> Self {
        Self {
            prompt,
            when,
            flags: SavedFlags::default(),
            by: None,
            key: None,
        }
    }
}

impl Session {
    /// Starts a run with the first queued prompt. Returns `None` if the queue is empty. If the prompt is removed from the
    /// queue before the run has started, no run is logged, and the event stream of the handle ends.
    pub fn run_queued(&self, options: RunOptions) -> Result<Option<RunHandle>, EngineError> {
        self.run_waiting(options, |history| history.queue().first())
    }

    /// Like [`Session::run_queued`], for the queued prompt with this number. Returns `None` if it is not in the queue. A
    /// caller that derives the options from the flags of a prompt uses this, because the order may change meanwhile.
    pub fn run_queued_prompt(
        &self,
        seq: u64,
        options: RunOptions,
    ) -> Result<Option<RunHandle>, EngineError> {
        self.run_waiting(options, |history| {
            let mut all = history.queue().all().iter();
            all.find(|waiting| waiting.seq == seq)
        })
    }

    fn run_waiting(
        &self,
        options: RunOptions,
        choose: impl FnOnce(&History) -> Option<&QueuedPrompt>,
    ) -> Result<Option<RunHandle>, EngineError> {
        let Some(waiting) = self.with_history(|history| choose(history).cloned()) else {
            return Ok(None);
        };
        self.start(waiting.prompt, Some(waiting.seq), options)
            .map(Some)
    }

    /// Queues a prompt. It is durable when this method returns. Returns the number of its event.
    pub async fn queue(&self, prompt: Message, when: Delivery) -> Result<u64, EngineError> {
        self.queue_request(QueueRequest::new(prompt, when)).await
    }

    /// Queues a prompt with the flags of its run and the client that sent it. It is durable when this method returns.
    /// Returns the number of its event. Possible during a run and between runs, also without a runtime.
    pub async fn queue_request(&self, request: QueueRequest) -> Result<u64, EngineError> {
        let QueueRequest {
            mut prompt,
            when,
            flags,
            by,
            key,
        } = request;
        // Only a person queues prompts, so the engine sets role and origin itself.
        (prompt.role, prompt.origin) = (Role::User, Origin::Person);
        let queued = EventKind::Queued {
            prompt,
            steer: when == Delivery::Steer,
            flags,
            by,
            key,
        };
        self.change_queue(|history| match history.queue().all().len() < MAX_QUEUED {
            true => Ok(queued),
            false => Err(EngineError::QueueFull(MAX_QUEUED)),
        })
        .await
    }

    /// Puts the queued prompts into this order, by the numbers of their `queued` events; prompts that are not listed are
    /// removed. The change is durable when this method returns. Returns the number of its event. Possible during a run and
    /// between runs. A prompt whose run has started is no longer queued, so its number is refused.
    pub async fn reorder_queue(&self, order: Vec<u64>) -> Result<u64, EngineError> {
        self.change_queue(|history| {
            let refuse = |seq: u64, why: &'static str| EngineError::InvalidQueueOrder { seq, why };
            let mut listed = BTreeSet::new();
            for seq in &order {
                if !history.queue().contains(*seq) {
                    let why = "is not queued: its run has started, or it was removed";
                    return Err(refuse(*seq, why));
                }
                if !listed.insert(*seq) {
                    return Err(refuse(*seq, "is listed twice"));
                }
            }
            Ok(EventKind::QueueChanged { order })
        })
        .await
    }

    /// Writes an event about the queue, which `decide` makes while the log is locked.
    async fn change_queue(
        &self,
        decide: impl FnOnce(&History) -> Result<EventKind, EngineError>,
    ) -> Result<u64, EngineError> {
        let current = self.current.lock().upgrade();
        // The reader of the run's events sees the change, in the order of the log.
        let scope = current.map_or_else(|| self.scope(None), |sink| sink.scope.clone());
        let scope = Scope { run: None, ..scope };
        let seq = self.log.emit_if(&scope, decide).await??;
        self.log.sync().await?;
        Ok(seq)
    }
}
