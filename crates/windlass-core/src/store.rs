//! The port to where sessions are kept: one writer each, bounded reading.

use crate::clock::Timestamp;
use crate::event::Event;
use crate::id::SessionId;
use crate::{BoxFuture, BoxStream};

/// Where sessions are kept.
pub trait SessionStore: Send + Sync {
    /// Becomes the one writer of a session. A second writer is an error that names the first.
    fn open_writer<'a>(&'a self, session: &'a SessionId, how: OpenLog) -> BoxFuture<'a, Result<OpenedLog, StoreError>>;
    /// The durable events from a sequence number on, in order and in bounded memory.
    fn read<'a>(&'a self, session: &'a SessionId, from_seq: u64) -> BoxStream<'a, Result<Event, StoreError>>;
    /// All sessions, newest first.
    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>>;
    /// Gives one session the stored results of another as well.
    fn share_artifacts<'a>(
        &'a self,
        _from: &'a SessionId,
        _to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Removes a session and what belongs to it.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Whether the session has to be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenLog {
    /// It must not exist.
    New,
    /// It must exist.
    Existing,
}

/// An opened log.
pub struct OpenedLog {
    /// The lease; dropped, it is free again.
    pub writer: Box<dyn LogWriter>,
    /// What had to be repaired (a torn tail that was set aside), to be told as warnings.
    pub notices: Vec<String>,
}

/// The one writer of a session.
pub trait LogWriter: Send {
    /// Appends one event. `line` is the event as one line of JSON without the newline, made once for everybody.
    fn append<'a>(&'a mut self, event: &'a Event, line: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Returns when everything appended so far will survive a power cut.
    fn sync(&mut self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// What a list shows of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHead {
    /// Its id.
    pub id: SessionId,
    /// When it was opened.
    pub opened: Timestamp,
    /// When it was last written.
    pub last: Timestamp,
    /// The workspace it is about.
    pub workspace: String,
    /// The beginning of its first prompt.
    pub title: String,
    /// How many durable events it has.
    pub events: u64,
}

/// Why the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What to match on.
    pub kind: StoreErrorKind,
    /// What happened, where, and what to do.
    pub message: String,
}

/// Kinds of store errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// No such session.
    NotFound,
    /// It is there already.
    Exists,
    /// Another writer has it.
    Locked,
    /// It does not parse.
    Damaged,
    /// It was written by a newer version.
    Newer,
    /// No space is left.
    Full,
    /// Anything else from the system.
    Io,
}

impl StoreError {
    /// An error of that kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
