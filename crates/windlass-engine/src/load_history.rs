//! Loads the history of a session from its snapshot, if there is a valid one, and from the later events.

use futures_util::StreamExt;
use windlass_core::history::History;
use windlass_core::id::SessionId;
use windlass_core::store::{SessionStore, Skimmed, StoreError};

/// Maximum size of the messages in memory after a resume, in bytes. It is more than any model accepts; the oldest messages
/// are compacted.
pub(crate) const MAX_HISTORY: usize = 16 << 20;

/// Folds the log of a session in bounded memory.
pub async fn load_history(
    store: &dyn SessionStore,
    session: &SessionId,
) -> Result<History, StoreError> {
    let mut history = from_snapshot(store, session).await.unwrap_or_default();
    let mut events = store.skim(session, history.last_seq() + 1, History::needs);
    while let Some(event) = events.next().await {
        match event? {
            Skimmed::Event(event) => history.apply_owned(event),
            Skimmed::Passed { seq } => history.pass(seq),
        }
        history.bound(MAX_HISTORY);
    }
    Ok(history)
}

async fn from_snapshot(store: &dyn SessionStore, session: &SessionId) -> Option<History> {
    History::restore(&mut store.snapshot(session).await?)
}
