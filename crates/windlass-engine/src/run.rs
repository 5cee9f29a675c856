//! One run as its caller sees it: the options, the handle with the events, and the way to cancel it. A run has exactly one
//! terminal event, also if a tool or the runtime panics, the store fails, the time limit is reached or the run is cancelled.

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
use windlass_core::context::WorkRecord;
use windlass_core::event::{Event, EventKind};
use windlass_core::flags::SavedFlags;
use windlass_core::history::{Entry, History};
use windlass_core::id::{AskId, CallId, RunId};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::pause::PauseReason;
use windlass_core::queue::QueuedPrompt;
use windlass_core::runtime::EventSink;
use windlass_core::store::StoreError;
use windlass_core::terms::Isolation;
use windlass_core::workspace::LandTo;
use windlass_core::{BoxFuture, CancellationToken};

use crate::executor::millis;
use crate::ledger::RunLedger;
use crate::log::{EventLog, Scope};
use crate::pending_asks::{NoSuchAsk, OnAsk, PendingAsks};
use crate::redact::HeldDeltas;

/// The options of one run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub isolation: Isolation,
    pub contract: Contract,
    pub budget: Budget,
    pub on_ask: OnAsk,
    /// Maximum time that [`OnAsk::Wait`] waits for an answer. Without it, the run waits until the ask is answered or the run
    /// is paused or cancelled.
    pub ask_timeout: Option<Duration>,
    /// Time after which an ask can no longer be answered, by any process. Unlimited if absent.
    pub ask_expiry: Option<Duration>,
    /// Approve every call that a flag may approve. Calls that need a person still ask.
    pub yes: bool,
    /// Send live events (deltas and progress) to the handle.
    pub live: bool,
    /// The flags that the run was started with. They are logged, so that another process can resume the run with them.
    pub flags: SavedFlags,
}

/// The conditions for the landing of a run, and its target.
#[derive(Debug, Clone, Default)]
pub struct Contract {
    /// Resume with the copy that was kept under this name.
    pub kept: Option<String>,
    pub to: LandTo,
    /// Land even if the user changed other files during the checks, without judging again. The evidence records this.
    pub land_anyway: bool,
    /// A person ordered exactly this landing, so the engine does not ask for consent.
    pub ordered: bool,
    /// Fail a run that changes no file.
    pub require_changes: bool,
    /// Block a run that changes a judge: a test, a script or a setting on which a validator depends.
    pub strict_judge: bool,
    /// Judges (as globs) that the validators see in their version from before the run.
    pub protect: Vec<String>,
    /// Paths (as globs) that the settings of an untrusted project protect. Such settings cannot change the tree that the
    /// validators see, so a change of such a path blocks the landing instead.
    pub forbid: Vec<String>,
    /// Let the validators see the ignored files of the run. The evidence records this.
    pub keep_ignored: bool,
    /// Land even if detected checks fail, provided that they failed in the same way before the run.
    pub accept_preexisting: bool,
    /// The paths that may be changed, as anchored ignore patterns. `None` allows all paths, an empty list allows none.
    pub write_paths: Option<Vec<String>>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::Isolated,
            contract: Contract::default(),
            budget: Budget::default(),
            on_ask: OnAsk::Wait,
            ask_timeout: Some(Duration::from_secs(300)),
            ask_expiry: None,
            yes: false,
            live: true,
            flags: SavedFlags::default(),
        }
    }
}

/// A run in progress: the stream of its events, and methods to answer and to cancel. Dropping the handle cancels the run.
pub struct RunHandle {
    pub(crate) id: RunId,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) control: Arc<Control>,
}

impl RunHandle {
    /// The id of this run, as in the log.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Receives the next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Cancels the run; its terminal event still arrives.
    pub fn cancel(&self) {
        self.control.halt(HaltReason::Cancelled);
    }

    /// Returns a value that can cancel the run from a signal handler or a timer.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.control.clone())
    }

    /// Pauses the run at its next safe point; see [`Pauser::pause`].
    pub fn pause(&self, reason: PauseReason) {
        self.control.pause(reason);
    }

    /// Returns a value that can pause the run from a signal handler or a timer.
    #[must_use]
    pub fn pauser(&self) -> Pauser {
        Pauser(self.control.clone())
    }

    /// Returns a value that can answer the asks of the run and pause it, for callers that do not read its events.
    #[must_use]
    pub fn control(&self) -> RunControl {
        RunControl(self.control.clone())
    }

    /// Answers an open ask. Each ask can be answered once.
    pub fn answer(&self, ask: &AskId, answer: Answer) -> Result<(), NoSuchAsk> {
        self.answer_as(ask, answer, None)
    }

    /// Answers an open ask for a client. `who` is the name of its token, which the log records.
    pub fn answer_as(
        &self,
        ask: &AskId,
        answer: Answer,
        who: Option<String>,
    ) -> Result<(), NoSuchAsk> {
        self.control.pending_asks.answer(ask, answer, who)
    }

    /// Reads all events. Returns the outcome, or `None` if the run paused.
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
        self.control.halt(HaltReason::Cancelled);
    }
}

/// Cancels a run without its handle.
#[derive(Clone)]
pub struct Canceller(Arc<Control>);

impl Canceller {
    /// Cancels the run; its terminal event still arrives.
    pub fn cancel(&self) {
        self.0.halt(HaltReason::Cancelled);
    }
}

/// Pauses a run without its handle. A paused run stays open in the log, its copy is kept, and its event stream ends without
/// a terminal event; [`crate::Session::resume_paused`] continues it. A run that waits for an answer pauses at once, and its
/// ask stays open. A run whose outcome is decided ends instead. Keep the handle until the end of the event stream, because
/// dropping it cancels the run.
#[derive(Clone)]
pub struct Pauser(Arc<Control>);

impl Pauser {
    /// Pauses the run at its next safe point: before a model call of the built-in agent, at the end of a turn of a foreign
    /// agent, or before the checks, a retry or a landing. What is in progress is completed.
    pub fn pause(&self, reason: PauseReason) {
        self.0.pause(reason);
    }

    /// Pauses the run without waiting for a safe point: cancels a model call and running calls, which end as interrupted.
    /// Checks that are stopped run again later. A landing is still completed.
    pub fn pause_now(&self, reason: PauseReason) {
        self.0.pause(reason);
        self.0.halt(HaltReason::PausedNow);
    }
}

/// Answers the asks of a run and pauses it, without its handle.
#[derive(Clone)]
pub struct RunControl(Arc<Control>);

impl RunControl {
    /// Answers an open ask; `who` is the name of the client's token.
    pub fn answer_as(
        &self,
        ask: &AskId,
        answer: Answer,
        who: Option<String>,
    ) -> Result<(), NoSuchAsk> {
        self.0.pending_asks.answer(ask, answer, who)
    }

    /// Pauses the run; see [`Pauser`].
    #[must_use]
    pub fn pauser(&self) -> Pauser {
        Pauser(self.0.clone())
    }
}

/// The reason why a run has to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum HaltReason {
    Cancelled,
    TimedOut,
    /// The run pauses with an open ask.
    PausedOnAsk,
    /// The run pauses without waiting for a safe point.
    PausedNow,
}

/// The means to answer and stop a run. The handle holds only this part: if it held the sender of the events too, their
/// stream would never end.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) pending_asks: PendingAsks,
    /// Cancels everything in the run.
    pub(crate) stop: CancellationToken,
    halted: Mutex<Option<HaltReason>>,
    /// Cancelled when the run is to pause at its next safe point.
    pub(crate) pausing: CancellationToken,
    pause_reason: Mutex<Option<PauseReason>>,
}

impl Control {
    /// Stops the run. Only the first reason is recorded.
    pub(crate) fn halt(&self, why: HaltReason) {
        self.halted.lock().get_or_insert(why);
        self.stop.cancel();
    }

    pub(crate) fn halted(&self) -> Option<HaltReason> {
        *self.halted.lock()
    }

    /// Pauses the run at its next safe point. Only the first reason is recorded.
    pub(crate) fn pause(&self, reason: PauseReason) {
        self.pause_reason.lock().get_or_insert(reason);
        self.pausing.cancel();
    }

    pub(crate) fn pause_reason(&self) -> Option<PauseReason> {
        *self.pause_reason.lock()
    }

    /// True if the run is to pause, and does not have to stop for another reason.
    pub(crate) fn pauses(&self) -> bool {
        let may_pause = matches!(self.halted(), None | Some(HaltReason::PausedNow));
        may_pause && self.pause_reason().is_some()
    }

    /// Stops the run with an open ask. Returns false if it has to stop for another reason.
    fn pause_on_ask(&self) -> bool {
        let mut halted = self.halted.lock();
        if matches!(*halted, Some(HaltReason::Cancelled | HaltReason::TimedOut)) {
            return false;
        }
        *halted = Some(HaltReason::PausedOnAsk);
        drop(halted);
        self.stop.cancel();
        true
    }

    /// The fate of a stopped run in one word, for the results of its calls.
    pub(crate) fn stopped_word(&self) -> &'static str {
        match self.halted() {
            Some(HaltReason::PausedNow | HaltReason::PausedOnAsk) => "paused",
            _ => "cancelled",
        }
    }
}

/// Connects a runtime and its calls with the log, with the reader of the events, and with the person who answers asks.
pub(crate) struct RunOutlet {
    pub(crate) log: Arc<EventLog>,
    pub(crate) scope: Scope,
    pub(crate) ledger: RunLedger,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) on_ask: OnAsk,
    pub(crate) ask_timeout: Option<Duration>,
    pub(crate) ask_expiry: Option<Duration>,
    pub(crate) control: Arc<Control>,
    /// Number of running calls that must not be interrupted.
    pub(crate) uncancellable: AtomicU32,
    /// Text of the streamed answer that is not displayed yet, because it may be part of a secret.
    pub(crate) held: Mutex<HeldDeltas>,
}

impl RunOutlet {
    pub(crate) fn new(
        log: Arc<EventLog>,
        scope: Scope,
        ledger: RunLedger,
        options: &RunOptions,
    ) -> Self {
        Self {
            clock: ledger.clock.clone(),
            log,
            scope,
            ledger,
            on_ask: options.on_ask,
            ask_timeout: options.ask_timeout,
            ask_expiry: options.ask_expiry,
            control: Arc::default(),
            uncancellable: AtomicU32::new(0),
            held: Mutex::default(),
        }
    }

    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        self.log.sync().await
    }

    pub(crate) fn notes(&self) -> String {
        self.log.with_history(|history| history.notes().to_owned())
    }

    /// Creates an ask and waits for its answer.
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
            waits_ms: self
                .ask_timeout
                .filter(|_| self.on_ask == OnAsk::Wait)
                .map(millis),
            run_ms: millis(self.ledger.elapsed()),
        })
        .await
    }

    /// Displays the rest of the streamed answer before the answer is logged.
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
        who: Option<String>,
    ) -> Result<Answer, StoreError> {
        let used = answer.clone();
        let answered = EventKind::Answered {
            ask,
            answer,
            by,
            who,
        };
        self.emit(answered).await?;
        Ok(used)
    }

    /// Waits for the end of the time that an ask may take; forever if there is no limit.
    async fn ask_timed_out(&self) {
        match self.ask_timeout {
            Some(limit) => self.clock.sleep(limit).await,
            None => std::future::pending().await,
        }
    }
}

impl EventSink for RunOutlet {
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
            // Register the ask before its event is sent: the answer may arrive immediately.
            let mut answer = self.control.pending_asks.open(id.clone());
            self.emit(EventKind::Asked { ask }).await?;
            self.sync().await?;
            let waiting = self.ledger.pause_timer();
            let mut given = None;
            let (otherwise, pauses) = match self.on_ask {
                OnAsk::Deny => (Answer::Unanswered, false),
                OnAsk::Pause => (Answer::Abandoned, true),
                OnAsk::Wait => tokio::select! {
                    biased;
                    received = &mut answer => {
                        given = received.ok();
                        (Answer::Abandoned, false)
                    }
                    () = self.control.pausing.cancelled() => (Answer::Abandoned, true),
                    () = self.control.stop.cancelled() => (Answer::Abandoned, false),
                    () = self.ask_timed_out() => (Answer::Expired, false),
                },
            };
            drop(waiting);
            self.control.pending_asks.close(&id);
            // An answer that was accepted until now applies.
            let (answer, by, who) = match given.or_else(|| answer.try_recv().ok()) {
                Some((answer, who)) => (answer, AnsweredBy::Person, who),
                None if pauses && self.control.pause_on_ask() => {
                    // This future never completes: the driver drops the whole call, and the ask stays open in the log.
                    return std::future::pending().await;
                }
                None if self.on_ask == OnAsk::Deny => (otherwise, AnsweredBy::Policy, None),
                None => (otherwise, AnsweredBy::Engine, None),
            };
            let answer = self.answered(id, answer, by, who).await?;
            // After a power cut, an open ask without a timeout means that its call has not started.
            if self.on_ask == OnAsk::Wait && self.ask_timeout.is_none() {
                self.sync().await?;
            }
            Ok(answer)
        })
    }

    fn steer(&self) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let steered = |history: &History| {
                let QueuedPrompt { seq, prompt, .. } = history.queue().first_steering()?.clone();
                let (message, queued) = (prompt, Some(seq));
                Some(EventKind::Said { message, queued })
            };
            if self.log.with_history(|history| steered(history)).is_none() {
                return Ok(false);
            }
            self.show_held();
            let mut any = false;
            // A user may remove a prompt meanwhile, so look for the next one while the log is locked.
            while self
                .log
                .emit_if(&self.scope, |history| steered(history).ok_or(()))
                .await?
                .is_ok()
            {
                any = true;
            }
            Ok(any)
        })
    }

    fn pauses(&self) -> bool {
        self.control.pauses()
    }

    fn history(&self) -> Arc<Vec<Entry>> {
        self.log.entries()
    }

    fn facts(&self) -> WorkRecord {
        self.log.with_history(|history| history.facts().clone())
    }
}
