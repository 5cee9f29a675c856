//! The port to the storage of sessions: one writer per session, and reading with bounded memory.
//!
//! ```
//! use windlass_core::store::{StoreError, StoreErrorKind};
//!
//! let err = StoreError::new(StoreErrorKind::Full, "no space is left");
//! assert_eq!(err.kind, StoreErrorKind::Full);
//! ```

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::clock::{Clock, Timestamp};
use crate::event::Event;
use crate::id::SessionId;
use crate::session_state::SessionState;
use crate::{BoxFuture, BoxStream};

/// Stores the logs of sessions.
pub trait SessionStore: Send + Sync {
    /// Opens a session for writing, as its only writer. If there is another writer, the error names it.
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>>;
    /// The durable events from a sequence number on, in order and with bounded memory.
    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
    ) -> BoxStream<'a, Result<Event, StoreError>>;
    /// Reads like [`SessionStore::read`], for a fold that needs only events of some kinds, by their names in the log.
    /// For other events it returns only the sequence number, so that a store need not parse their data. They are still
    /// checked to be complete and in order.
    fn skim<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
        _wanted: fn(&str) -> bool,
    ) -> BoxStream<'a, Result<Skimmed, StoreError>> {
        Box::pin(Whole(self.read(session, from_seq)))
    }
    /// The saved snapshot of a session, if it still matches the log. A store may have none: snapshots only save time
    /// when a session is resumed.
    fn snapshot<'a>(&'a self, _session: &'a SessionId) -> BoxFuture<'a, Option<Snapshot>> {
        Box::pin(std::future::ready(None))
    }
    /// All sessions, newest first.
    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>>;
    /// Deletes a session and everything that belongs to it.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Lets session `to` read the present artifacts of session `from`, for as long as `to` exists. The default is for a
    /// store without artifacts.
    fn share_artifacts<'a>(
        &'a self,
        _from: &'a SessionId,
        _to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Maximum number of ids to try: two sessions that start in the same second may get the same random id.
const TRIES: usize = 4;

/// Creates a session, with the wanted id if that is free.
pub async fn create_session(
    store: &dyn SessionStore,
    clock: &dyn Clock,
    wanted: Option<&SessionId>,
) -> Result<(SessionId, Box<dyn LogWriter>), StoreError> {
    let fresh = || SessionId::fresh(clock.now(), clock.entropy());
    let ids = wanted
        .cloned()
        .into_iter()
        .chain(std::iter::repeat_with(fresh));
    for id in ids.take(TRIES) {
        match store.open_writer(&id, OpenLog::New).await {
            Ok(opened) => return Ok((id, opened.writer)),
            Err(err) if err.kind == StoreErrorKind::Exists => {}
            Err(err) => return Err(err),
        }
    }
    Err(StoreError::new(
        StoreErrorKind::Exists,
        "no free session id was found; try again",
    ))
}

/// A saved fold of the first events of a log: the bytes that [`LogWriter::save_snapshot`] wrote.
pub type Snapshot = Box<dyn std::io::Read + Send>;

/// One line of a log, for a fold.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives at a time; a box for each event costs more than the room"
)]
pub enum Skimmed {
    /// An event of a wanted kind. A store that does not filter returns all events this way.
    Event(Event),
    /// An event of another kind.
    Passed {
        /// The sequence number of the event.
        seq: u64,
    },
}

/// Implements `skim` by returning every event.
struct Whole<'a>(BoxStream<'a, Result<Event, StoreError>>);

impl Stream for Whole<'_> {
    type Item = Result<Skimmed, StoreError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .as_mut()
            .poll_next(cx)
            .map(|item| item.map(|event| event.map(Skimmed::Event)))
    }
}

/// Whether the session must exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenLog {
    /// The session must not exist.
    New,
    /// The session must exist.
    Existing,
}

/// A log that was opened for writing.
pub struct OpenedLog {
    /// The writer, which holds the lock until it is dropped.
    pub writer: Box<dyn LogWriter>,
    /// Repairs that were made (such as a torn tail that was set aside), to be shown as warnings.
    pub notices: Vec<String>,
    /// True if the machine has rebooted since the last writer, or if that is unknown. Events that were not synced may
    /// be lost then. The log still has no gaps, but more may have happened than it records.
    pub after_power_cut: bool,
}

/// The only writer of a session.
pub trait LogWriter: Send {
    /// Appends one event. `line` is the event as one line of JSON without the newline, serialized once for all readers.
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Syncs the log to disk. If the future succeeds, everything that was appended before its first poll survives a
    /// power failure. It may run while more is appended. Nothing happens before the first poll. After that, a failure
    /// is remembered even if the future is dropped: nothing is appended or synced any more.
    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Whether enough was appended since the last snapshot to make a new one worthwhile.
    fn snapshot_due(&self) -> bool {
        false
    }
    /// Saves a snapshot of everything that was appended. A failure is ignored: snapshots only save time when a session
    /// is resumed.
    fn save_snapshot(&mut self, _save: &dyn Fn(&mut dyn std::io::Write) -> std::io::Result<()>) {}
}

/// The entry of a session in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHead {
    /// The id of the session.
    pub id: SessionId,
    /// The time when it was created.
    pub opened: Timestamp,
    /// The time of its last event.
    pub last: Timestamp,
    /// The root of its workspace.
    pub workspace: String,
    /// The beginning of its first prompt.
    pub title: String,
    /// The number of its durable events.
    pub events: u64,
    pub state: SessionState,
}

/// An error of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// The kind of error, for programs.
    pub kind: StoreErrorKind,
    /// A description of the error, with the location and what to do about it.
    pub message: String,
}

/// Kinds of store errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// There is no such session.
    NotFound,
    /// The session exists already.
    Exists,
    /// Another writer has locked the session.
    Locked,
    /// The log is damaged and cannot be parsed.
    Damaged,
    /// The log was written in another format version.
    OtherVersion,
    /// The disk is full.
    Full,
    /// Any other error of the operating system.
    Io,
}

impl StoreError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}
