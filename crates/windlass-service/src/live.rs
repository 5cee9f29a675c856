//! A session that this process writes, while a run is in progress: answers, prompts and cancellation reach the run, and its
//! events reach the readers. A server and a single run of the command line use the same type.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use windlass::core::ask::{Answer, Ask};
use windlass::core::event::{Event, EventKind};
use windlass::core::id::{AskId, RunId, SessionId};
use windlass::core::pause::PauseReason;
use windlass::engine::{QueueRequest, RunControl, RunHandle, Session};

use crate::problem::{Problem, ProblemCode};
use crate::ring::{EventLine, EventRing};

/// The events of a session for its readers. Events are encoded only if there are readers.
#[derive(Default)]
pub(crate) struct SessionEvents {
    pub(crate) ring: EventRing,
    followers: AtomicUsize,
}

/// Counts a reader while it exists.
pub(crate) struct Follower(Arc<SessionEvents>);

impl SessionEvents {
    /// Registers a reader. Events from now on are kept for it; earlier ones are in the log.
    pub(crate) fn follow(self: &Arc<Self>) -> Follower {
        self.followers.fetch_add(1, Ordering::AcqRel);
        Follower(self.clone())
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::Acquire) > 0
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.0.followers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ring.clear();
        }
    }
}

/// A session whose log this process writes.
pub struct LiveSession {
    pub(crate) session: Arc<Session>,
    pub(crate) events: Arc<SessionEvents>,
    /// The feed of all sessions of a service, if there is one.
    feed: Option<Arc<SessionEvents>>,
    control: Mutex<Option<(RunId, RunControl)>>,
}

impl LiveSession {
    /// A session that is open in this process, without a service.
    #[must_use]
    pub fn new(session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self::with_events(session, Arc::default(), None))
    }

    pub(crate) fn with_events(
        session: Arc<Session>,
        events: Arc<SessionEvents>,
        feed: Option<Arc<SessionEvents>>,
    ) -> Self {
        Self {
            session,
            events,
            feed,
            control: Mutex::default(),
        }
    }

    /// The id of the session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// Connects a run: answers reach it from now on.
    pub fn connect(&self, run: &RunHandle) {
        *self.control.lock() = Some((run.id().clone(), run.control()));
    }

    /// Shows an event of the run to the readers.
    pub fn show(&self, event: &Event) {
        let feed = self.feed.as_ref().filter(|feed| feed.has_followers());
        let own = self.events.has_followers();
        if own || feed.is_some() {
            let line = EventLine::of(event);
            if let Some(feed) = feed {
                feed.ring.push(line.clone());
            }
            if own {
                self.events.ring.push(line);
            }
        }
        if matches!(event.kind, EventKind::RunFinished(_)) {
            self.disconnect();
        }
    }

    /// Disconnects a run that has ended or paused.
    pub fn disconnect(&self) {
        *self.control.lock() = None;
    }

    /// The id of the run in progress.
    #[must_use]
    pub fn current_run(&self) -> Option<RunId> {
        self.control.lock().as_ref().map(|(run, _)| run.clone())
    }

    /// Queues a prompt, or sends it to the run in progress. Returns the number of its event.
    pub async fn queue(&self, request: QueueRequest) -> Result<u64, Problem> {
        let seq = self.session.queue_request(request).await?;
        self.wrote_between_runs();
        Ok(seq)
    }

    /// Changes the order of the queued prompts, and removes those that are not listed.
    pub async fn reorder_queue(&self, order: Vec<u64>) -> Result<u64, Problem> {
        let seq = self.session.reorder_queue(order).await?;
        self.wrote_between_runs();
        Ok(seq)
    }

    /// Readers find an event in the log that no run showed them.
    fn wrote_between_runs(&self) {
        if self.current_run().is_none() {
            self.events.ring.touch();
        }
    }

    /// Answers an open ask of the run in progress. `who` is the name of the token.
    pub fn answer(&self, ask: &AskId, answer: Answer, who: Option<String>) -> Result<(), Problem> {
        let open = self.open_ask(ask)?;
        check_answer(&open, &answer)?;
        let control = self.control.lock();
        let Some((_, control)) = control.as_ref() else {
            return Err(no_such_ask(ask));
        };
        control
            .answer_as(ask, answer, who)
            .map_err(|_| no_such_ask(ask))
    }

    fn open_ask(&self, ask: &AskId) -> Result<Ask, Problem> {
        let pending = self.session.pending();
        let open = pending.into_iter().find(|open| open.id == *ask);
        open.ok_or_else(|| no_such_ask(ask))
    }

    /// Cancels the run in progress and clears the queue. Returns whether there was a run.
    pub fn cancel(&self) -> bool {
        let running = self.current_run().is_some();
        self.session.cancel();
        running
    }

    /// Pauses the run in progress at its next safe point, or at once.
    pub fn pause(&self, reason: PauseReason, now: bool) {
        if let Some((_, control)) = self.control.lock().as_ref() {
            match now {
                true => control.pauser().pause_now(reason),
                false => control.pauser().pause(reason),
            }
        }
    }
}

/// Refuses an answer whose form does not fit the ask.
pub(crate) fn check_answer(ask: &Ask, answer: &Answer) -> Result<(), Problem> {
    if ask.fits(answer) {
        return Ok(());
    }
    Err(
        Problem::unprocessable(format!("this answer does not fit the ask `{}`", ask.id))
            .hint("read the ask: approvals take `once`, `always` (if offered) or `no`; questions take `text`"),
    )
}

pub(crate) fn no_such_ask(ask: &AskId) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!(
            "there is no open ask `{ask}`: it was answered, expired, or belongs to another run"
        ),
    )
    .hint("`GET /v1/asks` lists the open asks")
    .fact("ask", ask.as_str())
}
