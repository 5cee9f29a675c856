//! The open asks of a run that waits for answers. Each ask is answered once; an answer to an ask that is not open is an
//! error.

use parking_lot::Mutex;
use std::collections::HashMap;

use tokio::sync::oneshot;
use windlass_core::ask::Answer;
use windlass_core::id::AskId;

/// The reaction of a run to its own asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAsk {
    /// Wait for the answer, at most `ask_timeout` if there is one.
    #[default]
    Wait,
    /// Pause; the run stays open, and any process can answer later.
    Pause,
    /// Deny the call and continue.
    Deny,
}

/// The error of an answer to an ask that is not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no open ask `{0}`: it was answered, expired, or belongs to another run")]
pub struct NoSuchAsk(pub AskId);

/// The answer of a person, and the name of the token of the client that sent it.
pub(crate) type PersonAnswer = (Answer, Option<String>);

/// The open asks of one run, each with the channel for its answer.
#[derive(Default)]
pub(crate) struct PendingAsks(Mutex<HashMap<AskId, oneshot::Sender<PersonAnswer>>>);

impl PendingAsks {
    pub(crate) fn open(&self, id: AskId) -> oneshot::Receiver<PersonAnswer> {
        let (to, from) = oneshot::channel();
        self.0.lock().insert(id, to);
        from
    }

    pub(crate) fn close(&self, id: &AskId) {
        self.0.lock().remove(id);
    }

    pub(crate) fn answer(
        &self,
        id: &AskId,
        answer: Answer,
        who: Option<String>,
    ) -> Result<(), NoSuchAsk> {
        let missing = || NoSuchAsk(id.clone());
        // Send while the asks are locked: after `close`, an accepted answer is in the channel.
        let mut asks = self.0.lock();
        let to = asks.remove(id).ok_or_else(missing)?;
        to.send((answer, who)).map_err(|_| missing())
    }
}
