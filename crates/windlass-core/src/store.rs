//! The port to where sessions are kept: one writer each, bounded reading.
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

/// Where sessions are kept.
pub trait SessionStore: Send + Sync {
    /// Becomes the one writer of a session. A second writer is an error that names the first.
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>>;
    /// The durable events from a sequence number on, in order and in bounded memory.
    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
    ) -> BoxStream<'a, Result<Event, StoreError>>;
    /// The same for a fold that needs only some kinds, by their names in the log. Of the others it learns the place
    /// alone, and a store may spare itself to build them; each is still known to be whole and in order.
    fn skim<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
        _wanted: fn(&str) -> bool,
    ) -> BoxStream<'a, Result<Skimmed, StoreError>> {
        Box::pin(Whole(self.read(session, from_seq)))
    }
    /// A fold that was saved for a session, if it still fits the session's log. A store may have none: only the time
    /// to resume depends on it.
    fn snapshot<'a>(&'a self, _session: &'a SessionId) -> BoxFuture<'a, Option<Snapshot>> {
        Box::pin(std::future::ready(None))
    }
    /// All sessions, newest first.
    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>>;
    /// Removes a session and what belongs to it.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Lets one session read the artifacts that another has now, for as long as it lives itself. A store without
    /// artifacts has nothing to share.
    fn share_artifacts<'a>(
        &'a self,
        _from: &'a SessionId,
        _to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Ids that are tried: two sessions of the same second may draw the same one.
const TRIES: usize = 4;

/// Creates a session, under the wanted id where that is free.
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

/// A saved fold of the first events of a log: the bytes that [`LogWriter::save_snapshot`] got.
pub type Snapshot = Box<dyn std::io::Read + Send>;

/// One line of a log, as a fold sees it.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives at a time; a box for each event costs more than the room"
)]
pub enum Skimmed {
    /// An event of a kind that is wanted, or of any where the store does not choose.
    Event(Event),
    /// There is one of another kind.
    Passed {
        /// Its place.
        seq: u64,
    },
}

/// Skims by giving everything.
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
    /// The machine was started anew since the last writer, or nobody knows: of what that one did not sync, anything may
    /// be gone. The log is still without gaps, but what was done may be more than it tells.
    pub after_power_cut: bool,
}

/// The one writer of a session.
pub trait LogWriter: Send {
    /// Appends one event. `line` is the event as one line of JSON without the newline, made once for everybody.
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// When it returns well, everything that was appended before it was first polled survives a power cut. It runs while
    /// more is appended. Nothing happens before it is polled; once it was, its failure is remembered even if it is
    /// dropped: nothing is appended or synced after it.
    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Whether so much was appended since the last snapshot that a new one is worth its time.
    fn snapshot_due(&self) -> bool {
        false
    }
    /// Saves a fold of everything that was appended. A failure is not reported: only the time to resume depends on it.
    fn save_snapshot(&mut self, _save: &dyn Fn(&mut dyn std::io::Write) -> std::io::Result<()>) {}
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
    /// Its state.
    pub state: SessionState,
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
    /// It was written by a version with another format.
    OtherVersion,
    /// No space is left.
    Full,
    /// Anything else from the system.
    Io,
}

impl StoreError {
    /// An error of that kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}
