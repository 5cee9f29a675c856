//! Asks of all sessions that wait for an answer.
//!
//! ```
//! use windlass::Notices;
//! use windlass::machine::SessionLog;
//! use windlass::sessions::{FoundAsk, PendingAsk, find_ask, pending_asks};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let store = SessionLog::new(dir.path().join("sessions"));
//! let pending: Vec<PendingAsk> = pending_asks(&store, None, &Notices::default()).await;
//! assert!(pending.is_empty());
//! let found: Option<FoundAsk> = find_ask(&store, &"r1-a1".parse()?).await;
//! assert!(found.is_none());
//! # Ok(())
//! # }
//! ```

use std::path::Path;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::ask::Ask;
use windlass_core::id::{AskId, SessionId};
use windlass_core::overview::SessionOverview;
use windlass_core::store::SessionStore;
use windlass_host::session_log::SessionLog;

use super::read_overview;
use crate::notices::Notices;

/// The most sessions that are searched for asks.
const MAX_SESSIONS: usize = 10_000;

/// An ask that waits for an answer, with its session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PendingAsk {
    #[serde(flatten)]
    pub ask: Ask,
    pub session: SessionId,
}

/// An ask that waits for an answer, with the state of its session.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundAsk {
    pub session: SessionId,
    pub overview: SessionOverview,
    pub ask: Ask,
}

/// The pending asks of the workspace with this root, or of all workspaces, newest session first. Sessions that cannot be
/// read are reported as warnings.
pub async fn pending_asks(
    store: &SessionLog,
    root: Option<&Path>,
    notices: &Notices,
) -> Vec<PendingAsk> {
    let mut pending = Vec::new();
    let mut heads = store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let session = match head {
            Ok(head) if root.is_some_and(|root| root != Path::new(&head.workspace)) => continue,
            Ok(head) => head.id,
            Err(err) => {
                notices.warn(&err.to_string());
                continue;
            }
        };
        match read_overview(store, &session).await {
            Ok(overview) => pending.extend(overview.asks.into_iter().map(|ask| PendingAsk {
                ask,
                session: session.clone(),
            })),
            Err(err) => notices.warn(err.message()),
        }
    }
    pending
}

/// Finds a pending ask in all sessions. The newest sessions are searched first, because most answers come soon. A damaged
/// session does not hide the others.
pub async fn find_ask(store: &SessionLog, id: &AskId) -> Option<FoundAsk> {
    let mut heads = store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let Ok(head) = head else { continue };
        let Ok(overview) = read_overview(store, &head.id).await else {
            continue;
        };
        if let Some(ask) = overview.asks.iter().find(|ask| ask.id == *id).cloned() {
            return Some(FoundAsk {
                session: head.id,
                overview,
                ask,
            });
        }
    }
    None
}
