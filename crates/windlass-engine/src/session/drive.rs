//! What happens inside a run, from its first event to its last: workspace, iterations, validators, the end.

use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::OwnedMutexGuard;
use windlass_core::ask::{Answer, AnsweredBy, Ask};
use windlass_core::budget::Limit;
use windlass_core::event::EventKind;
use windlass_core::flags::SavedFlags;
use windlass_core::gate::{PermissionGate, Place};
use windlass_core::id::{RunId, SessionId};
use windlass_core::message::{Message, ToolCall};
use windlass_core::open_run::OpenRun;
use windlass_core::outcome::{FailReason, Outcome, RunSummary, StopReason};
use windlass_core::runtime::{Job, Outlet, RunMode, RuntimeError, Stop};
use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::terms::{Isolation, Terms};
use windlass_core::validator::Evidence;
use windlass_core::workspace::{Artifacts, FileChange, Opening, Transaction, WorkspaceErrorKind};

use super::Parts;
use crate::account::OpenAccount;
use crate::executor::{
    Earlier, Executor, ForeignCalls, OF_A_RUN, Unhidden, describe_panic, millis,
};
use crate::redact::RedactedArtifacts;
use crate::run::{Contract, Halt, RunOutlet};

/// How long a runtime may take to notice that it was told to end.
const GRACE: Duration = Duration::from_millis(900);
/// How many times that for calls that must not be torn.
const MAX_GRACES: u32 = 60;

/// Everything one run needs.
pub(super) struct Work {
    /// The session's place for one run. First, because fields are dropped in order: whoever sees the last event may
    /// start the next run at once.
    pub(super) _busy: OwnedMutexGuard<()>,
    pub(super) parts: Arc<Parts>,
    pub(super) outlet: Arc<RunOutlet>,
    pub(super) gate: Arc<Mutex<PermissionGate>>,
    pub(super) artifacts: Arc<dyn Artifacts>,
    pub(super) session: SessionId,
    pub(super) run: RunId,
    pub(super) mode: RunMode,
    pub(super) isolation: Isolation,
    pub(super) contract: Contract,
    pub(super) yes: bool,
    pub(super) flags: SavedFlags,
    pub(super) prompt: Message,
    pub(super) start: Start,
}

/// How a run comes to be worked on.
pub(super) enum Start {
    /// A prompt; with the number of its event if it was queued.
    Prompt { queued: Option<u64> },
    /// It waited for an answer, and here it is.
    Answer {
        /// What the log says of it.
        open: Box<OpenRun>,
        /// What was asked.
        ask: Box<Ask>,
        /// What was said.
        answer: Answer,
        /// By whom.
        by: AnsweredBy,
    },
}

/// What a run leaves behind for its terminal event.
#[derive(Default)]
pub(super) struct Traces {
    pub(super) files: Vec<FileChange>,
    pub(super) evidence: Vec<Evidence>,
    pub(super) judge_changed: Vec<String>,
    pub(super) output: Option<serde_json::Value>,
    pub(super) kept: Option<String>,
}

/// Why a run cannot simply go on.
pub(super) enum Ended {
    /// It has an outcome.
    With(Outcome),
    /// It waits for a person; it has no outcome yet.
    Open,
}

impl From<StoreError> for Ended {
    fn from(err: StoreError) -> Self {
        let advice = match err.kind {
            StoreErrorKind::Full => "; free some space, then resume the session",
            _ => "",
        };
        Self::With(Outcome::failed(
            FailReason::Store,
            format!("the session log could not be written: {err}{advice}"),
        ))
    }
}

impl Work {
    pub(super) async fn drive(self) {
        let mut traces = Traces::default();
        // The engine's own code must not leave a run without an end either.
        let ended = match AssertUnwindSafe(self.work(&mut traces))
            .catch_unwind()
            .await
        {
            Ok(Ok(outcome)) | Ok(Err(Ended::With(outcome))) => outcome,
            Ok(Err(Ended::Open)) => {
                let _ = self.outlet.sync().await;
                return;
            }
            Err(panic) => Outcome::failed(FailReason::Runtime, describe_panic(panic.as_ref())),
        };
        self.finish(ended, traces).await;
    }

    async fn work(&self, traces: &mut Traces) -> Result<Outcome, Ended> {
        // An answer is used up before anything is done with it; a prompt closes what was left open first, and who closes
        // it looks at the place.
        self.take_answer().await?;
        let kept = self.kept();
        let opening = Opening {
            session: &self.session,
            run: &self.run,
            isolation: self.isolation,
            kept: kept.as_deref(),
        };
        let opened = self.parts.workspaces.open(opening).await;
        let place = |terms: &Terms| Place {
            isolation: terms.isolation,
            sandboxed: terms.tier.confines(),
        };
        let opened = opened.map(|transaction| {
            let executor = self.executor(transaction.as_ref(), place(&transaction.terms()));
            (transaction, executor)
        });
        if let Start::Prompt { queued } = self.start {
            self.close_left_behind(opened.as_ref().ok().map(|(_, executor)| executor))
                .await?;
            let (prompt, flags) = (self.prompt.clone(), self.flags.clone());
            self.outlet
                .emit(EventKind::RunStarted {
                    prompt,
                    queued,
                    flags,
                })
                .await?;
        }
        let (transaction, executor) = match opened {
            Ok(opened) => opened,
            Err(err) => {
                let reason = match err.kind {
                    WorkspaceErrorKind::Isolation => FailReason::Isolation,
                    _ => FailReason::Runtime,
                };
                return Ok(Outcome::failed(reason, err.message));
            }
        };
        let mut terms = transaction.terms();
        let isolation = terms.isolation;
        self.parts.runtime.terms(&mut terms);
        self.outlet
            .emit(EventKind::TransactionOpened {
                terms,
                name: transaction.name().map(str::to_owned),
            })
            .await?;
        self.tell_notes(transaction.as_ref()).await?;
        let outcome = self.iterate(&executor, transaction.as_ref(), traces).await;
        transaction.processes().stop_all().await;
        self.tell_notes(transaction.as_ref()).await?;
        match transaction.changes().await {
            Ok(changes) => {
                let changes = self.tell_keys(&executor, changes.files).await?;
                traces.files = changes
                    .into_iter()
                    .map(|change| FileChange {
                        diff: None,
                        ..change
                    })
                    .collect();
            }
            Err(err) => {
                let warned = EventKind::Warned {
                    code: "changes_unknown".into(),
                    text: err.message,
                };
                self.outlet.emit(warned).await?;
            }
        }
        match isolation {
            Isolation::Isolated => self.land_or_keep(transaction, outcome, traces).await,
            Isolation::InPlace => outcome,
        }
    }

    /// Passes on what the workspace has to say about itself.
    pub(super) async fn tell_notes(&self, transaction: &dyn Transaction) -> Result<(), Ended> {
        for text in transaction.notes() {
            self.outlet
                .emit(EventKind::Warned {
                    code: "workspace".into(),
                    text,
                })
                .await?;
        }
        Ok(())
    }

    /// Looks for keys in what was changed, for commands write, too; what a tool's own look told is not told again.
    async fn tell_keys(
        &self,
        executor: &Executor,
        changes: Vec<FileChange>,
    ) -> Result<Vec<FileChange>, Ended> {
        if changes.is_empty() {
            return Ok(changes);
        }
        let (files, redactor) = (executor.files.clone(), executor.redactor.clone());
        let told = executor.told_keys.lock().clone();
        let kept = changes.clone();
        let look = move || OF_A_RUN.keys_in(files.as_ref(), redactor.as_ref(), &changes, &told);
        // A look that broke off finds nothing; the run's outcome does not hang on it.
        let keys = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        executor.tell_keys(keys).await?;
        Ok(kept)
    }

    /// The copy it goes on with.
    fn kept(&self) -> Option<String> {
        match &self.start {
            Start::Answer { open, .. } => {
                open.copy.clone().filter(|_| open.isolation.is_isolated())
            }
            Start::Prompt { .. } => self.contract.kept.clone(),
        }
    }

    /// One try of the runtime, under the time limit, whatever it does.
    pub(super) async fn iteration(
        &self,
        executor: &Executor,
        prompt: &Message,
        iteration: u32,
        pending: Vec<ToolCall>,
    ) -> Result<Stop, Ended> {
        let outlet = self.outlet.as_ref();
        let account = OpenAccount {
            books: &outlet.books,
            outlet,
        };
        let job = Job {
            prompt,
            iteration,
            pending,
            foreign_session: outlet
                .log
                .with_history(|history| history.foreign_session().map(str::to_owned)),
            outlet,
            toolbox: executor,
            account: &account,
            files: &executor.files,
            processes: &executor.processes,
            cancel: outlet.control.stop.clone(),
        };
        let running = AssertUnwindSafe(self.parts.runtime.run(job)).catch_unwind();
        let mut running = std::pin::pin!(running);
        let ended = tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            () = self.until_told_to_end() => match outlet.control.halted() {
                // Nothing is to be cleaned up: the run stays open around the ask.
                Some(Halt::Paused(_)) => None,
                _ => tokio::select! {
                    biased;
                    ended = &mut running => Some(ended),
                    () = self.grace() => None,
                },
            },
        };
        let stop = match ended {
            Some(Ok(Ok(stop))) => stop,
            Some(Ok(Err(RuntimeError::Store(err)))) => return Err(err.into()),
            Some(Ok(Err(RuntimeError::Other(detail)))) => Stop::Failed {
                reason: FailReason::Runtime,
                detail,
            },
            Some(Err(panic)) => Stop::Failed {
                reason: FailReason::Runtime,
                detail: describe_panic(panic.as_ref()),
            },
            None => Stop::Cancelled,
        };
        match (outlet.control.halted(), stop) {
            (Some(Halt::Paused(ask)), _) => Ok(Stop::Paused { ask }),
            (Some(Halt::TimedOut), Stop::Cancelled) => Ok(Stop::OverBudget { limit: Limit::Time }),
            (_, stop) => Ok(stop),
        }
    }

    /// How long a runtime may still take: a moment, and as long as a call runs that must not be torn.
    async fn grace(&self) {
        for _ in 0..MAX_GRACES {
            self.parts.clock.sleep(GRACE).await;
            if self.outlet.untorn.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// Returns when the run was told to end, or its time is up.
    pub(super) async fn until_told_to_end(&self) {
        let told = self.outlet.control.stop.cancelled();
        let mut told = std::pin::pin!(told);
        loop {
            let Some(left) = self.outlet.books.time_left() else {
                return told.await;
            };
            if left.is_zero() {
                return self.outlet.control.halt(Halt::TimedOut);
            }
            // Waiting for a person stops the clock, so what is left is looked at again.
            let (nap, warn) = self
                .outlet
                .books
                .time_to_warning()
                .map_or((left, false), |until| (until.min(left), true));
            tokio::select! {
                () = &mut told => return,
                () = self.parts.clock.sleep(nap) => {}
            }
            if warn && self.outlet.books.warn_about_time() {
                // A store that fails here fails at the next event, where it ends the run.
                let _ = self
                    .outlet
                    .emit(EventKind::BudgetWarned { limit: Limit::Time })
                    .await;
            }
        }
    }

    /// Closes what is open and says how it ended: the one terminal event.
    async fn finish(&self, outcome: Outcome, traces: Traces) {
        let why = "the run ended while it was open";
        let results = self
            .outlet
            .log
            .with_history(|history| history.closing_results(why));
        for result in results {
            // A store that fails here fails below, too, where it is said.
            let _ = self
                .outlet
                .emit(EventKind::CallFinished { result, ms: 0 })
                .await;
        }
        let finished = |outcome| {
            EventKind::RunFinished(RunSummary {
                outcome,
                files: traces.files.clone(),
                totals: self.outlet.books.spent(),
                ms: millis(self.outlet.books.elapsed()),
                evidence: traces.evidence.clone(),
                judge_changed: traces.judge_changed.clone(),
                limits: Some(*self.outlet.books.budget()),
                transaction: traces.kept.clone(),
                output: traces.output.clone(),
            })
        };
        let logged = match self.outlet.emit(finished(outcome.clone())).await {
            Ok(_) => self.outlet.sync().await,
            Err(err) => {
                let outcome = match (outcome, Ended::from(err)) {
                    (
                        Outcome::Failed {
                            reason: FailReason::Store,
                            detail,
                            ..
                        },
                        _,
                    ) => Outcome::failed(FailReason::Store, detail),
                    (_, Ended::With(outcome)) => outcome,
                    (outcome, Ended::Open) => outcome,
                };
                self.outlet
                    .log
                    .show_unwritten(&self.outlet.scope, finished(outcome))
                    .await;
                return;
            }
        };
        if let Err(err) = logged {
            let text = format!("the end of the run may not survive a power cut: {err}");
            let warned = EventKind::Warned {
                code: "store_not_synced".into(),
                text,
            };
            self.outlet
                .log
                .show_unwritten(&self.outlet.scope, warned)
                .await;
        }
    }

    /// Credentials that the configuration names as fit to be shown.
    pub(super) fn exposed(&self) -> Vec<String> {
        self.gate.lock().exposed.clone()
    }

    fn executor(&self, transaction: &dyn Transaction, place: Place) -> Executor {
        let parts = &self.parts;
        let hidden = self.gate.lock().hidden_paths();
        Executor {
            outlet: self.outlet.clone(),
            tools: parts.tools.clone(),
            schemas: parts.schemas.clone(),
            gate: self.gate.clone(),
            place,
            files: Unhidden::over(transaction.files(), hidden),
            processes: transaction.processes(),
            snapshots: transaction.snapshots(),
            artifacts: Arc::new(RedactedArtifacts::new(
                self.artifacts.clone(),
                parts.redactor.clone(),
            )),
            redactor: parts.redactor.clone(),
            outside: parts.outside.clone(),
            clock: parts.clock.clone(),
            cancel: self.outlet.control.stop.clone(),
            yes: self.yes,
            told_lost: Mutex::default(),
            told_keys: Mutex::default(),
            earlier: match self.start {
                Start::Prompt { .. } => Earlier::default(),
                Start::Answer { .. } => self
                    .outlet
                    .log
                    .with_history(|history| Earlier::of(history.open_calls())),
            },
            foreign: ForeignCalls::default(),
        }
    }
}

pub(super) fn outcome_of(stop: Stop) -> Result<Outcome, Ended> {
    Ok(match stop {
        Stop::Done | Stop::Answered { .. } => Outcome::Completed,
        Stop::Refused { category, detail } => Outcome::Refused { category, detail },
        Stop::OverBudget { limit: Limit::Time } => Outcome::TimedOut,
        Stop::OverBudget {
            limit: Limit::Steps,
        } => Outcome::MaxSteps,
        Stop::OverBudget { limit } => Outcome::BudgetExceeded { limit },
        Stop::Failed { reason, detail } => Outcome::failed(reason, detail),
        Stop::Provider(err) => Outcome::provider_failed(&err),
        Stop::Cancelled => Outcome::Cancelled,
        Stop::Paused { .. } => return Err(Ended::Open),
    })
}

pub(super) fn reason_of(stop: &Stop) -> StopReason {
    match stop {
        Stop::Done | Stop::Answered { .. } => StopReason::Done,
        Stop::Refused { .. } => StopReason::Refused,
        Stop::OverBudget { .. } => StopReason::OverBudget,
        Stop::Failed { .. } => StopReason::Failed,
        Stop::Provider(_) => StopReason::Provider,
        Stop::Cancelled => StopReason::Cancelled,
        Stop::Paused { .. } => StopReason::Paused,
    }
}
