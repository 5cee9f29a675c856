//! The stored sessions of this user: lists, overviews, searches, pending asks, imports and deletions.
//!
//! ```
//! use futures_util::StreamExt;
//! use windlass::Notices;
//! use windlass::machine::SessionLog;
//! use windlass::sessions::{
//!     OverviewRow, SalvageRow, SessionDeletion, SessionRow, read_overview, session_rows, workspace_sessions,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let model = windlass_testing::ScriptedProvider::new([windlass_testing::says("hello")]);
//! # let windlass = windlass::Windlass::without_settings(work.path(), data.path())?
//! #     .provider(std::sync::Arc::new(model), "scripted");
//! # let session = windlass.run("greet me").await?.session;
//! let store = SessionLog::new(windlass.settings().places.sessions_dir());
//! let rows: Vec<SessionRow> = session_rows(&store).filter_map(async |row| row.ok()).collect().await;
//! assert_eq!((rows.len(), rows[0].title.as_str()), (1, "greet me"));
//!
//! let overview = OverviewRow::new(&session, read_overview(&store, &session).await?);
//! assert!(overview.open_run.is_none() && overview.asks.is_empty());
//! assert_eq!(SalvageRow::from(store.salvage(&session)?).lost, 0);
//!
//! let notices = Notices::default();
//! let ids = workspace_sessions(&store, windlass.workspace(), &notices).await;
//! let mut deletion = SessionDeletion::new(&windlass.settings().places, &store);
//! assert_eq!(deletion.delete_all(&ids, &notices).await, 1);
//! deletion.finish().await?;
//! # Ok(())
//! # }
//! ```

mod deletion;
mod import;
mod pending_asks;
mod search;

use std::path::{Path, PathBuf};

use futures_util::{Stream, StreamExt};
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::ask::Ask;
use windlass_core::clock::Timestamp;
use windlass_core::flags::SavedFlags;
use windlass_core::id::{RunId, SessionId};
use windlass_core::overview::SessionOverview;
use windlass_core::queue::QueuedPrompt;
use windlass_core::store::{SessionHead, SessionStore, Skimmed, StoreError};
use windlass_core::terms::Isolation;
use windlass_host::session_log::{Salvaged, SessionLog};

use crate::error::Error;
use crate::notices::Notices;

pub use self::deletion::SessionDeletion;
pub use self::import::{ImportRequest, ImportRow, import_session};
pub use self::pending_asks::{FoundAsk, PendingAsk, find_ask, pending_asks};
pub use self::search::{SearchMatch, SessionSearch};

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionRow {
    pub id: SessionId,
    pub opened: Timestamp,
    /// The time of its last event.
    pub last: Timestamp,
    /// The root of its workspace.
    pub workspace: String,
    /// The beginning of its first prompt.
    pub title: String,
    /// The number of its durable events.
    pub events: u64,
    /// `new`, `running`, `waiting`, `interrupted`, `closed`, `damaged`, or the outcome of its last run.
    pub state: String,
}

/// The state of a session, without its messages.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OverviewRow {
    pub session: SessionId,
    /// The root of its workspace.
    pub workspace: String,
    /// The flags of its last run.
    pub flags: SavedFlags,
    /// The isolation of its last run.
    pub isolation: Isolation,
    /// The name of the kept run that the last run left.
    pub kept: Option<String>,
    /// The run that has not finished.
    pub open_run: Option<RunId>,
    /// Asks that wait for an answer.
    pub asks: Vec<Ask>,
    /// Prompts that wait for a run, oldest first.
    pub queued: Vec<QueuedPrompt>,
    /// The number of its last event.
    pub last_seq: u64,
}

/// The result of salvaging a damaged session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SalvageRow {
    pub id: SessionId,
    /// The number of events in the log now.
    pub kept: u64,
    /// The number of lines that were removed, from the first bad one on.
    pub lost: u64,
    /// `None` if the log was not damaged; then it is unchanged.
    pub first_bad_line: Option<u64>,
    /// The file in its original state: the log itself if it was not damaged.
    pub original: PathBuf,
    /// The file with the readable lines after the damage, if there are any.
    pub rest: Option<PathBuf>,
}

impl From<SessionHead> for SessionRow {
    fn from(head: SessionHead) -> Self {
        Self {
            state: head.state.word().to_owned(),
            id: head.id,
            opened: head.opened,
            last: head.last,
            workspace: head.workspace,
            title: head.title,
            events: head.events,
        }
    }
}

impl From<Salvaged> for SalvageRow {
    fn from(salvaged: Salvaged) -> Self {
        Self {
            id: salvaged.id,
            kept: salvaged.kept,
            lost: salvaged.lost,
            first_bad_line: salvaged.first_bad_line,
            original: salvaged.original,
            rest: salvaged.rest,
        }
    }
}

impl OverviewRow {
    /// The overview of this session for programs.
    #[must_use]
    pub fn new(session: &SessionId, overview: SessionOverview) -> Self {
        Self {
            session: session.clone(),
            workspace: overview.workspace,
            flags: overview.flags,
            isolation: overview.isolation,
            kept: overview.kept,
            open_run: overview.open.map(|run| run.id),
            asks: overview.asks,
            queued: overview.queue.all().to_vec(),
            last_seq: overview.last_seq,
        }
    }
}

/// All sessions, newest first. A damaged session is an error; the others follow it.
pub fn session_rows(
    store: &SessionLog,
) -> impl Stream<Item = Result<SessionRow, StoreError>> + Unpin + '_ {
    store.list().map(|head| head.map(SessionRow::from))
}

/// Folds the log of a session to an overview, without reading its messages.
pub async fn read_overview(store: &SessionLog, id: &SessionId) -> Result<SessionOverview, Error> {
    let mut overview = SessionOverview::default();
    let mut events = store.skim(id, 1, SessionOverview::needs);
    while let Some(event) = events.next().await {
        match event? {
            Skimmed::Event(event) => overview.apply(&event),
            Skimmed::Passed { seq } => overview.last_seq = seq,
        }
    }
    Ok(overview)
}

/// The sessions of the workspace with this root, newest first. Damaged sessions are reported as warnings.
pub async fn workspace_sessions(
    store: &SessionLog,
    root: &Path,
    notices: &Notices,
) -> Vec<SessionId> {
    let mut ids = Vec::new();
    let mut heads = store.list();
    while let Some(head) = heads.next().await {
        match head {
            Ok(head) if Path::new(&head.workspace) == root => ids.push(head.id),
            Ok(_) => {}
            Err(err) => notices.warn(&err.to_string()),
        }
    }
    ids
}
