//! Questions to a person while a run waits: the desk where answers are handed in.
//! An answer is used once; one for an ask that is not open is an error.

use parking_lot::Mutex;
use std::collections::HashMap;

use tokio::sync::oneshot;
use windlass_core::ask::Answer;
use windlass_core::id::AskId;

/// What to do when an ask finds nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAsk {
    /// Somebody watches and will answer: wait until the ask expires.
    #[default]
    Wait,
    /// Stop here; the run stays open.
    Pause,
    /// Go on without: the call is denied.
    Deny,
}

/// There is no such open ask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no open ask `{0}`: it was answered, expired, or belongs to another run")]
pub struct NoSuchAsk(pub AskId);

/// Open asks of one run.
#[derive(Default)]
pub(crate) struct Desk(Mutex<HashMap<AskId, oneshot::Sender<Answer>>>);

impl Desk {
    pub(crate) fn open(&self, id: AskId) -> oneshot::Receiver<Answer> {
        let (to, from) = oneshot::channel();
        self.0.lock().insert(id, to);
        from
    }

    pub(crate) fn close(&self, id: &AskId) {
        self.0.lock().remove(id);
    }

    pub(crate) fn answer(&self, id: &AskId, answer: Answer) -> Result<(), NoSuchAsk> {
        let missing = || NoSuchAsk(id.clone());
        let to = self.0.lock().remove(id).ok_or_else(missing)?;
        to.send(answer).map_err(|_| missing())
    }
}
