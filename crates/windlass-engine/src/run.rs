//! One run: a prompt, iterations, exactly one terminal event — also when a tool panics, the runtime panics, the store
//! fails or time is up. Cancelling at any point ends in the same place.

use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use windlass_core::ask::{About, Answer, AnsweredBy, Ask};
use windlass_core::budget::Budget;
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::context::Facts;
use windlass_core::event::{Event, EventKind};
use windlass_core::flags::SavedFlags;
use windlass_core::history::Entry;
use windlass_core::id::{AskId, CallId, RunId};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::queue::Waiting;
use windlass_core::runtime::Outlet;
use windlass_core::store::StoreError;
use windlass_core::terms::Isolation;
use windlass_core::workspace::LandTo;
use windlass_core::{BoxFuture, CancellationToken};

use crate::account::Books;
use crate::asking::{Desk, NoSuchAsk, OnAsk};
use crate::executor::millis;
use crate::log::{Log, Scope};
use crate::redact::HeldDeltas;

/// How one run is to be done.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// On the tree, or on a copy.
    pub isolation: Isolation,
    /// What must hold before it lands, and how it lands.
    pub contract: Contract,
    /// What it may spend.
    pub budget: Budget,
    /// What to do when nobody answers.
    pub on_ask: OnAsk,
    /// How long an ask waits for somebody who is there.
    pub ask_timeout: Duration,
    /// How long an ask can be answered at all, by whoever comes later; at any time when absent.
    pub ask_expiry: Option<Duration>,
    /// Answer yes to whatever a flag may answer.
    pub yes: bool,
    /// Whether deltas and progress are wanted.
    pub live: bool,
    /// The flags it was started with. They are logged, and a run that is resumed is resumed with them.
    pub flags: SavedFlags,
}

/// What must hold before the changes of a run land, and how they land.
#[derive(Debug, Clone, Default)]
pub struct Contract {
    /// Go on with the copy that was kept under this name.
    pub kept: Option<String>,
    /// Where the changes go.
    pub to: LandTo,
    /// Land although the person changed other files meanwhile, without judging again; the evidence says so.
    pub land_anyway: bool,
    /// A person ordered exactly this landing: they are not asked about it once more.
    pub ordered: bool,
    /// A run that changes no file fails.
    pub require_changes: bool,
    /// A changed judge (a test, a script, a setting of a validator) is a finding.
    pub strict_judge: bool,
    /// Judges that are put back to their version of before while the validators look, as globs.
    pub protect: Vec<String>,
    /// Paths that a project which nobody trusts protects, as globs. It cannot choose what the validators see: a change of
    /// such a path blocks.
    pub forbid: Vec<String>,
    /// Show the validators ignored files as the run left them; the evidence says so.
    pub keep_ignored: bool,
    /// Land although detected checks fail, if they failed in the same way before the run.
    pub accept_preexisting: bool,
    /// The only paths that may be changed, as anchored ignore patterns; all of them when absent, none when empty.
    pub write_paths: Option<Vec<String>>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::Isolated,
            contract: Contract::default(),
            budget: Budget::default(),
            on_ask: OnAsk::Wait,
            ask_timeout: Duration::from_secs(300),
            ask_expiry: None,
            yes: false,
            live: true,
            flags: SavedFlags::default(),
        }
    }
}

/// A run that is going: a stream of its events, and the way to steer it. Dropping it cancels the run.
pub struct RunHandle {
    pub(crate) id: RunId,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) control: Arc<Control>,
}

impl RunHandle {
    /// The run's id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Ends the run; its terminal event follows.
    pub fn cancel(&self) {
        self.control.halt(Halt::Cancelled);
    }

    /// A token that ends the run when it is cancelled, for signal handlers and timers of the host.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.control.clone())
    }

    /// Answers an open ask, once.
    pub fn answer(&self, ask: &AskId, answer: Answer) -> Result<(), NoSuchAsk> {
        self.control.desk.answer(ask, answer)
    }

    /// Reads all events to the end: the outcome, or `None` when the run was paused on an ask.
    pub async fn finish(mut self) -> Option<Outcome> {
        let mut last = None;
        while let Some(event) = self.next().await {
            if let EventKind::RunFinished(RunSummary { outcome, .. }) = event.kind {
                last = Some(outcome);
            }
        }
        last
    }
}

impl futures_util::Stream for RunHandle {
    type Item = Event;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(cx)
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        self.control.halt(Halt::Cancelled);
    }
}

/// Ends a run from elsewhere.
#[derive(Clone)]
pub struct Canceller(Arc<Control>);

impl Canceller {
    /// Ends the run; its terminal event follows.
    pub fn cancel(&self) {
        self.0.halt(Halt::Cancelled);
    }
}

/// Why a run was told to end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Halt {
    Cancelled,
    TimedOut,
    Paused(AskId),
}

/// What reaches into a run from outside. The handle holds this and no more, so that the event stream can end.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) desk: Desk,
    /// Ends everything in the run.
    pub(crate) stop: CancellationToken,
    halted: Mutex<Option<Halt>>,
}

impl Control {
    /// Tells everything in the run to end; the first reason stands.
    pub(crate) fn halt(&self, why: Halt) {
        self.halted.lock().get_or_insert(why);
        self.stop.cancel();
    }

    pub(crate) fn halted(&self) -> Option<Halt> {
        self.halted.lock().clone()
    }
}

/// The way from a runtime and its calls to the log, the view and the person.
pub(crate) struct RunOutlet {
    pub(crate) log: Arc<Log>,
    pub(crate) scope: Scope,
    pub(crate) books: Books,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_ask: OnAsk,
    pub(crate) ask_timeout: Duration,
    pub(crate) ask_expiry: Option<Duration>,
    pub(crate) control: Arc<Control>,
    /// Calls that are running and must not be torn.
    pub(crate) untorn: AtomicU32,
    /// What of the running answer is not shown yet.
    pub(crate) held: Mutex<HeldDeltas>,
}

impl RunOutlet {
    pub(crate) fn new(log: Arc<Log>, scope: Scope, books: Books, options: &RunOptions) -> Self {
        Self {
            clock: books.clock.clone(),
            log,
            scope,
            books,
            on_ask: options.on_ask,
            ask_timeout: options.ask_timeout,
            ask_expiry: options.ask_expiry,
            control: Arc::default(),
            untorn: AtomicU32::new(0),
            held: Mutex::default(),
        }
    }

    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        self.log.sync().await
    }

    pub(crate) fn notes(&self) -> String {
        self.log.with_history(|history| history.notes().to_owned())
    }

    /// Makes an ask and waits for its answer.
    pub(crate) async fn ask_about(
        &self,
        about: About,
        person: bool,
        call: Option<CallId>,
    ) -> Result<Answer, StoreError> {
        let count = self.log.with_history(|history| history.ask_count());
        let later = |wait: Duration| {
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(self.clock.now().as_millis().saturating_add(wait))
        };
        self.ask(Ask {
            id: AskId::nth(count + 1, self.clock.entropy()),
            about,
            call,
            person,
            expires: self.ask_expiry.map(later),
            waits_ms: (self.on_ask == OnAsk::Wait).then(|| millis(self.ask_timeout)),
            run_ms: millis(self.books.elapsed()),
        })
        .await
    }

    /// Shows what was held back of an answer that is about to be committed.
    fn show_held(&self) {
        let rest = self.held.lock().finish(self.log.redactor());
        for (of, text) in rest {
            let delta = EventKind::Delta { of, text };
            self.log.show_live(&self.scope, delta);
        }
    }

    async fn answered(
        &self,
        ask: AskId,
        answer: Answer,
        by: AnsweredBy,
    ) -> Result<Answer, StoreError> {
        let used = answer.clone();
        self.emit(EventKind::Answered { ask, answer, by }).await?;
        Ok(used)
    }
}

impl Outlet for RunOutlet {
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>> {
        if matches!(kind, EventKind::Said { .. }) {
            self.show_held();
        }
        Box::pin(self.log.emit(&self.scope, kind))
    }

    fn show(&self, kind: EventKind) {
        let kind = match kind {
            EventKind::Delta { of, text } => {
                let text = self.held.lock().push(self.log.redactor(), &of, &text);
                if text.is_empty() {
                    return;
                }
                EventKind::Delta { of, text }
            }
            other => other,
        };
        self.log.show_live(&self.scope, kind);
    }

    fn watched(&self) -> bool {
        let view = self.scope.view.as_ref();
        view.is_some_and(|view| view.live && !view.to.is_closed())
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Result<Answer, StoreError>> {
        Box::pin(async move {
            let id = ask.id.clone();
            // Opened before it is shown: an answer may come as soon as the event is seen.
            let answer = self.control.desk.open(id.clone());
            self.emit(EventKind::Asked { ask }).await?;
            self.sync().await?;
            match self.on_ask {
                OnAsk::Wait => {}
                OnAsk::Deny => {
                    self.control.desk.close(&id);
                    return self
                        .answered(id, Answer::Unanswered, AnsweredBy::Policy)
                        .await;
                }
                OnAsk::Pause => {
                    self.control.halt(Halt::Paused(id.clone()));
                    if !matches!(self.control.halted(), Some(Halt::Paused(_))) {
                        // The run was told to end before.
                        self.control.desk.close(&id);
                        let (answer, by) = (Answer::Abandoned, AnsweredBy::Engine);
                        return self.answered(id, answer, by).await;
                    }
                    // The run ends around this call; the ask stays open in the log.
                    std::future::pending::<()>().await;
                }
            }
            let waiting = self.books.waiting();
            let (answer, by) = tokio::select! {
                biased;
                answer = answer => (answer.unwrap_or(Answer::Abandoned), AnsweredBy::Person),
                () = self.control.stop.cancelled() => (Answer::Abandoned, AnsweredBy::Engine),
                () = self.clock.sleep(self.ask_timeout) => (Answer::Expired, AnsweredBy::Engine),
            };
            drop(waiting);
            self.control.desk.close(&id);
            self.answered(id, answer, by).await
        })
    }

    fn steer(&self) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let queued = self.log.with_history(|history| history.queue().steering());
            let any = !queued.is_empty();
            for Waiting { seq, prompt, .. } in queued {
                let (message, queued) = (prompt, Some(seq));
                self.emit(EventKind::Said { message, queued }).await?;
            }
            Ok(any)
        })
    }

    fn history(&self) -> Arc<Vec<Entry>> {
        self.log.entries()
    }

    fn facts(&self) -> Facts {
        self.log.with_history(|history| history.facts().clone())
    }
}
