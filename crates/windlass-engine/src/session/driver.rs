//! The driver of a run: it asks the fold of the log for the next step, does it and logs what came of it.
//!
//! Every decision is in [`windlass_core::run`]. This file has the IO between two decisions; the larger steps have files
//! of their own: `iterate`, `judge`, `land`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::OwnedMutexGuard;
use windlass_core::ask::{Answer, AnsweredBy, Ask};
use windlass_core::event::EventKind;
use windlass_core::flags::SavedFlags;
use windlass_core::gate::{Mode, PermissionGate};
use windlass_core::id::{RunId, SessionId};
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::run::{Here, Place, Run, Step};
use windlass_core::runtime::Outlet;
use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::terms::Isolation;
use windlass_core::validator::Finding;
use windlass_core::workspace::{
    Artifacts, FileChange, Opening, Transaction, WorkspaceError, WorkspaceErrorKind,
};

use super::{Parts, close, iterate, judge, land};
use crate::executor::{
    Earlier, Executor, ForeignCalls, OF_A_RUN, Unhidden, describe_panic, millis,
};
use crate::redact::RedactedArtifacts;
use crate::run::{Contract, RunOutlet};

/// The parts that every step of one run uses.
pub(super) struct RunParts {
    pub(super) parts: Arc<Parts>,
    pub(super) outlet: Arc<RunOutlet>,
    pub(super) gate: Arc<Mutex<PermissionGate>>,
    pub(super) artifacts: Arc<dyn Artifacts>,
    pub(super) session: SessionId,
    pub(super) run: RunId,
    pub(super) isolation: Isolation,
    pub(super) contract: Contract,
    pub(super) yes: bool,
    /// Somebody is here who can answer.
    pub(super) attended: bool,
    /// The findings of failing checks in the tree of before, by validator.
    pub(super) base_findings: Mutex<BTreeMap<String, Vec<Finding>>>,
}

/// The first event of a run in this process.
pub(super) enum Start {
    /// A prompt; with the number of its event if it was queued.
    Prompt {
        prompt: Message,
        flags: SavedFlags,
        queued: Option<u64>,
    },
    /// The answer that the run waited for.
    Answer {
        ask: Box<Ask>,
        answer: Answer,
        by: AnsweredBy,
    },
}

/// The transaction while it is open, and what does calls in it.
pub(super) struct OpenPlace {
    pub(super) transaction: Box<dyn Transaction>,
    pub(super) executor: Executor,
}

/// Why a step did not come to its own end.
pub(super) enum StepError {
    /// It decided how the run ends.
    Ends(Outcome),
    /// A person has to answer who is not here.
    Paused,
    /// The log could not be written.
    Store(StoreError),
}

impl From<StoreError> for StepError {
    fn from(err: StoreError) -> Self {
        Self::Store(err)
    }
}

impl From<WorkspaceError> for StepError {
    fn from(err: WorkspaceError) -> Self {
        let reason = match err.kind {
            WorkspaceErrorKind::Isolation => FailReason::Isolation,
            WorkspaceErrorKind::Conflict | WorkspaceErrorKind::Stale => FailReason::LandingConflict,
            WorkspaceErrorKind::Other => FailReason::Runtime,
        };
        Self::Ends(Outcome::failed(reason, err.message))
    }
}

/// One run, from its first event in this process to its last.
pub(super) struct Driver {
    /// The session's place for one run. First, because fields are dropped in order: whoever sees the last event may
    /// start the next run at once.
    _busy: OwnedMutexGuard<()>,
    run: RunParts,
    here: Here,
    place: Option<OpenPlace>,
    /// The changed files of the run, once they were looked up.
    files: Option<Vec<FileChange>>,
}

impl Driver {
    pub(super) fn new(busy: OwnedMutexGuard<()>, run: RunParts) -> Self {
        let here = Here {
            requires_changes: run.contract.require_changes,
            attended: run.attended,
            read_only: run.gate.lock().mode == Mode::Plan,
            only_lands: run.contract.ordered,
            max_iterations: run.outlet.books.budget().iterations,
            ..Here::default()
        };
        Self {
            _busy: busy,
            run,
            here,
            place: None,
            files: None,
        }
    }

    pub(super) async fn drive(mut self, start: Start) {
        // The engine's own code must not leave a run without an end either.
        let ended = match AssertUnwindSafe(self.steps(start)).catch_unwind().await {
            Ok(Ok(Some(outcome))) => outcome,
            Ok(Ok(None)) => {
                let _ = self.run.outlet.sync().await;
                return;
            }
            Ok(Err(err)) => store_failed(&err),
            Err(panic) => Outcome::failed(FailReason::Runtime, describe_panic(panic.as_ref())),
        };
        self.finish(ended).await;
    }

    /// Does step after step; the outcome, or none when the run waits for a person.
    async fn steps(&mut self, start: Start) -> Result<Option<Outcome>, StoreError> {
        self.start(start).await?;
        let mut before = None;
        loop {
            let (step, seq) = self.run.outlet.log.with_history(|history| {
                let run = history.open_run();
                (run.map(|run| run.next(&self.here)), history.last_seq())
            });
            let now = Some((seq, self.here.clone()));
            let stuck = || {
                Outcome::failed(
                    FailReason::Runtime,
                    "a step of the run had no effect, which is a defect of windlass; resume the session to go on",
                )
            };
            let done = match step {
                Some(Step::Finish(outcome)) => return Ok(Some(self.within_limits(outcome))),
                Some(Step::Wait) => return Ok(None),
                None => return Ok(Some(stuck())),
                Some(_) if now == before => Err(StepError::Ends(stuck())),
                Some(step) => self.perform(step).await,
            };
            before = now;
            match done {
                Ok(()) => {}
                Err(StepError::Ends(outcome)) => {
                    self.emit(EventKind::RunEnding { outcome }).await?;
                }
                Err(StepError::Paused) => self.here.paused = true,
                Err(StepError::Store(err)) => return Err(err),
            }
        }
    }

    /// Logs the event that the run begins with here. A prompt closes a run that was left open before.
    async fn start(&mut self, start: Start) -> Result<(), StoreError> {
        match start {
            Start::Prompt {
                prompt,
                flags,
                queued,
            } => {
                self.close_left_open().await?;
                let started = EventKind::RunStarted {
                    prompt,
                    queued,
                    flags,
                };
                self.emit(started).await?;
            }
            // Once this is durable the answer is used up, whatever is done with it.
            Start::Answer { ask, answer, by } => {
                let ask = ask.id.clone();
                self.emit(EventKind::Answered { ask, answer, by }).await?;
                self.run.outlet.sync().await?;
            }
        }
        Ok(())
    }

    /// Closes a run that was left open. Where this run works at the same place, it looks there for what became of calls.
    async fn close_left_open(&mut self) -> Result<(), StoreError> {
        let log = self.run.outlet.log.clone();
        let Some(left) = log.with_history(|history| history.open_run().cloned()) else {
            return Ok(());
        };
        let kept = &self.run.contract.kept;
        let same_place = match left.isolation {
            Isolation::InPlace => kept.is_none() && !self.run.isolation.is_isolated(),
            Isolation::Isolated => left.copy.is_some() && left.copy == *kept,
        };
        if same_place {
            // An error is reported by the step that opens the place.
            self.place = self.run.open(None).await.ok();
        }
        let executor = self.place.as_ref().map(|place| &place.executor);
        let in_copy = match &left.copy {
            Some(copy) => self.run.parts.workspaces.left_changes(copy).await,
            None => Vec::new(),
        };
        close::close(&log, &self.run.outlet.scope.trace, left, in_copy, executor).await
    }

    async fn perform(&mut self, step: Step) -> Result<(), StepError> {
        match step {
            Step::Open { copy } => self.open(copy).await,
            Step::Iterate { iteration, started } => {
                iterate::iterate(&self.run, self.place()?, iteration, started).await
            }
            Step::Judge => {
                self.files = None;
                let place = self.place()?;
                place.transaction.freeze().await?;
                place.executor.log_job_changes().await?;
                judge::judge(&self.run, self.place()?.transaction.as_ref()).await
            }
            Step::Retry(prompt) => {
                self.emit(EventKind::said(*prompt)).await?;
                Ok(())
            }
            Step::AskToLand(ask) => {
                self.look_up_files().await?;
                land::ask(&self.run, ask).await
            }
            Step::Land { tree_hash, asked } => {
                self.look_up_files().await?;
                let transaction = self.place()?.transaction.as_ref();
                if land::land(&self.run, transaction, tree_hash, asked).await? {
                    self.discard().await?;
                }
                Ok(())
            }
            Step::End(outcome) => Err(StepError::Ends(outcome)),
            Step::Keep => self.keep().await,
            Step::Finish(_) | Step::Wait => Ok(()),
        }
    }

    async fn open(&mut self, copy: Option<String>) -> Result<(), StepError> {
        let place = match self.place.take() {
            Some(place) => place,
            None => self.run.open(copy).await?,
        };
        let mut terms = place.transaction.terms();
        self.run.parts.runtime.terms(&mut terms);
        let name = place.transaction.name().map(str::to_owned);
        // In place there is nothing to judge when nobody looks and every path may be changed.
        let contract = &self.run.contract;
        self.here.judges = name.is_some()
            || !self.run.parts.validators.is_empty()
            || contract.write_paths.is_some()
            || contract.strict_judge;
        self.here.place = Place::Open;
        self.place = Some(place);
        self.emit(EventKind::TransactionOpened { terms, name })
            .await?;
        self.run
            .tell_notes(self.place()?.transaction.as_ref())
            .await?;
        Ok(())
    }

    /// Stops what runs and looks up what was changed, also for keys that commands wrote into files.
    async fn look_up_files(&mut self) -> Result<(), StepError> {
        if self.files.is_some() {
            return Ok(());
        }
        let OpenPlace {
            transaction,
            executor,
        } = self.place()?;
        transaction.processes().stop_all().await;
        executor.log_job_changes().await?;
        self.run.tell_notes(transaction.as_ref()).await?;
        let files = match transaction.changes().await {
            Ok(changes) => tell_keys(executor, changes.files).await?,
            Err(err) => {
                self.run.warn("changes_unknown", err.message).await?;
                Vec::new()
            }
        };
        let without_diff = |change| FileChange {
            diff: None,
            ..change
        };
        self.files = Some(files.into_iter().map(without_diff).collect());
        Ok(())
    }

    /// Drops a copy that has landed.
    async fn discard(&mut self) -> Result<(), StepError> {
        self.here.place = Place::Closed;
        if let Some(place) = self.place.take()
            && let Err(err) = place.transaction.discard().await
        {
            self.run.warn("copy_left", err.message).await?;
        }
        Ok(())
    }

    /// Keeps the copy, also when the run only waits for an answer: what it did must be there when it goes on.
    async fn keep(&mut self) -> Result<(), StepError> {
        self.look_up_files().await?;
        self.here.place = Place::Closed;
        let Some(OpenPlace { transaction, .. }) = self.place.take() else {
            return Ok(());
        };
        if !transaction.terms().isolation.is_isolated() {
            return Ok(());
        }
        let copy = transaction.name().map(str::to_owned);
        match (transaction.keep().await, copy) {
            (Ok(Some(name)), _) => {
                self.emit(EventKind::Kept { name }).await?;
            }
            // Nothing was in it: whoever resumes the run begins with a new one.
            (Ok(None), Some(name)) if self.here.paused => {
                self.emit(EventKind::Discarded { name }).await?;
            }
            (Ok(None), _) => {}
            (Err(err), _) => self.run.warn("copy_not_kept", err.message).await?,
        }
        Ok(())
    }

    /// Work that passed, and whether it cost more than it was allowed to.
    fn within_limits(&self, outcome: Outcome) -> Outcome {
        let books = &self.run.outlet.books;
        match books.budget().overrun(&books.spent(), books.elapsed()) {
            Some(limit) if outcome == Outcome::Completed => {
                Outcome::CompletedWithLimitExceeded { limit }
            }
            _ => outcome,
        }
    }

    /// Closes what is open and logs the summary: the one terminal event.
    async fn finish(&mut self, outcome: Outcome) {
        let (run, outlet) = (&self.run, &self.run.outlet);
        let results = outlet
            .log
            .with_history(|history| history.closing_results("the run ended while it was open"));
        for result in results {
            // A store that fails here fails below, too, where it is said.
            let _ = outlet.emit(EventKind::CallFinished { result, ms: 0 }).await;
        }
        let (evidence, judge_changed, output, transaction) = run
            .folded(|run| {
                let (evidence, judges) = (run.evidence.clone(), run.judge_changed.clone());
                (evidence, judges, run.output.clone(), run.kept.clone())
            })
            .unwrap_or_default();
        let mut summary = RunSummary {
            outcome,
            files: self.files.take().unwrap_or_default(),
            totals: outlet.books.spent(),
            ms: millis(outlet.books.elapsed()),
            evidence,
            judge_changed,
            limits: Some(*outlet.books.budget()),
            transaction,
            output,
        };
        let unwritten = match outlet.emit(EventKind::RunFinished(summary.clone())).await {
            Ok(_) => match outlet.sync().await {
                Ok(()) => return outlet.log.save_snapshot().await,
                Err(err) => EventKind::warned(
                    "store_not_synced",
                    format!("the end of the run may not survive a power cut: {err}"),
                ),
            },
            Err(err) => {
                let known = matches!(
                    summary.outcome,
                    Outcome::Failed {
                        reason: FailReason::Store,
                        ..
                    }
                );
                if !known {
                    summary.outcome = store_failed(&err);
                }
                EventKind::RunFinished(summary)
            }
        };
        outlet.log.show_unwritten(&outlet.scope, unwritten).await;
    }

    fn place(&self) -> Result<&OpenPlace, StepError> {
        self.place.as_ref().ok_or_else(|| {
            let detail = "a step needs a transaction that is not open, which is a defect of windlass; resume the session to go on";
            StepError::Ends(Outcome::failed(FailReason::Runtime, detail))
        })
    }

    async fn emit(&self, kind: EventKind) -> Result<u64, StoreError> {
        self.run.outlet.emit(kind).await
    }
}

impl RunParts {
    /// Looks at the state of the run.
    pub(super) fn folded<T>(&self, look: impl FnOnce(&Run) -> T) -> Option<T> {
        let log = &self.outlet.log;
        log.with_history(|history| history.open_run().map(look))
    }

    pub(super) async fn warn(&self, code: &str, text: String) -> Result<(), StoreError> {
        let code = code.to_owned();
        self.outlet.emit(EventKind::Warned { code, text }).await?;
        Ok(())
    }

    /// Passes on what the workspace has to say about itself.
    pub(super) async fn tell_notes(&self, transaction: &dyn Transaction) -> Result<(), StoreError> {
        for text in transaction.notes() {
            self.warn("workspace", text).await?;
        }
        Ok(())
    }

    /// Credentials that the configuration names as fit to be shown.
    pub(super) fn exposed(&self) -> Vec<String> {
        self.gate.lock().exposed.clone()
    }

    async fn open(&self, copy: Option<String>) -> Result<OpenPlace, WorkspaceError> {
        let kept = copy.or_else(|| self.contract.kept.clone());
        let opening = Opening {
            session: &self.session,
            run: &self.run,
            isolation: self.isolation,
            kept: kept.as_deref(),
        };
        let transaction = self.parts.workspaces.open(opening).await?;
        let executor = self.executor(transaction.as_ref());
        Ok(OpenPlace {
            transaction,
            executor,
        })
    }

    fn executor(&self, transaction: &dyn Transaction) -> Executor {
        let parts = &self.parts;
        let terms = transaction.terms();
        let hidden = self.gate.lock().hidden_paths();
        let log = &self.outlet.log;
        Executor {
            outlet: self.outlet.clone(),
            tools: parts.tools.clone(),
            schemas: parts.schemas.clone(),
            gate: self.gate.clone(),
            place: windlass_core::gate::Place {
                isolation: terms.isolation,
                sandboxed: terms.tier.confines(),
                has_jobs: false,
            },
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
            earlier: log.with_history(|history| Earlier::of(history.open_calls())),
            foreign: ForeignCalls::default(),
        }
    }
}

/// Looks for keys in what was changed, for commands write, too; what a tool's own look told is not told again.
async fn tell_keys(
    executor: &Executor,
    changes: Vec<FileChange>,
) -> Result<Vec<FileChange>, StoreError> {
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

fn store_failed(err: &StoreError) -> Outcome {
    let advice = match err.kind {
        StoreErrorKind::Full => "; free some space, then resume the session",
        _ => "",
    };
    Outcome::failed(
        FailReason::Store,
        format!("the session log could not be written: {err}{advice}"),
    )
}
