//! The driver of a run: it asks the folded log for the next step, performs the step and logs the result.
//!
//! All decisions are in [`windlass_core::run`]. This file performs the IO between two decisions; the larger steps have files
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
use windlass_core::history::History;
use windlass_core::id::{RunId, SessionId};
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::run::{Here, Run, Step, TransactionState};
use windlass_core::runtime::EventSink;
use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::terms::Isolation;
use windlass_core::validator::Finding;
use windlass_core::workspace::{
    Artifacts, FileChange, Opening, Transaction, WorkspaceError, WorkspaceErrorKind,
};

use super::{EngineParts, close, iterate, judge, land};
use crate::executor::{
    Executor, FilteredFiles, ForeignCalls, PriorAnswers, SCAN_AFTER_RUN, describe_panic, millis,
};
use crate::redact::RedactedArtifacts;
use crate::run::{Contract, RunOutlet};

/// The parts that every step of one run uses.
pub(super) struct RunParts {
    pub(super) parts: Arc<EngineParts>,
    pub(super) sink: Arc<RunOutlet>,
    pub(super) gate: Arc<Mutex<PermissionGate>>,
    pub(super) artifacts: Arc<dyn Artifacts>,
    pub(super) session: SessionId,
    pub(super) run: RunId,
    pub(super) isolation: Isolation,
    pub(super) contract: Contract,
    pub(super) yes: bool,
    /// A user is connected who can answer asks.
    pub(super) attended: bool,
    /// The findings of failing checks on the tree from before the run, by validator.
    pub(super) base_findings: Mutex<BTreeMap<String, Vec<Finding>>>,
}

/// The first event of a run in this process.
pub(super) enum Start {
    /// A prompt. `queued` is the number of its event, if it was queued.
    Prompt {
        prompt: Message,
        flags: SavedFlags,
        queued: Option<u64>,
    },
    /// The answer to the ask that the run waited for.
    Answer {
        ask: Box<Ask>,
        answer: Answer,
        by: AnsweredBy,
        /// The name of the token of the client that answered.
        who: Option<String>,
    },
    /// The resumption of a paused run, which had been active for `run_ms` milliseconds.
    Resume { run_ms: u64 },
}

/// The open transaction, and the executor of the calls in it.
pub(super) struct OpenTransaction {
    pub(super) transaction: Box<dyn Transaction>,
    pub(super) executor: Executor,
}

/// The reason why a step did not complete.
pub(super) enum StepError {
    /// The run has to end with this outcome.
    Ends(Outcome),
    /// The run pauses, or waits for an answer and no user is connected.
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
            WorkspaceErrorKind::Busy | WorkspaceErrorKind::Other => FailReason::Runtime,
        };
        Self::Ends(Outcome::failed(reason, err.message))
    }
}

/// One run, from its first event in this process to its last.
pub(super) struct Driver {
    /// The lock of the session, held during a run. It is the first field, because fields are dropped in order: a reader that
    /// sees the end of the event stream can start the next run at once.
    _busy: OwnedMutexGuard<()>,
    run: RunParts,
    here: Here,
    open: Option<OpenTransaction>,
    /// The changed files of the run, once they are known.
    files: Option<Vec<FileChange>>,
}

impl Driver {
    pub(super) fn new(busy: OwnedMutexGuard<()>, run: RunParts) -> Self {
        let here = Here {
            requires_changes: run.contract.require_changes,
            attended: run.attended,
            read_only: run.gate.lock().mode == Mode::Plan,
            only_lands: run.contract.ordered,
            max_iterations: run.sink.ledger.budget().iterations,
            ..Here::default()
        };
        Self {
            _busy: busy,
            run,
            here,
            open: None,
            files: None,
        }
    }

    pub(super) async fn drive(mut self, start: Start) {
        // Even a panic in the engine itself must not leave a run without a terminal event.
        let ended = match AssertUnwindSafe(self.perform_steps(start))
            .catch_unwind()
            .await
        {
            Ok(Ok(Some(outcome))) => outcome,
            Ok(Ok(None)) => {
                let _ = self.run.sink.sync().await;
                return;
            }
            Ok(Err(err)) => store_failed(&err),
            Err(panic) => Outcome::failed(FailReason::Runtime, describe_panic(panic.as_ref())),
        };
        self.finish(ended).await;
    }

    /// Performs steps until the run ends. Returns the outcome, or `None` if the run paused or has not started.
    async fn perform_steps(&mut self, start: Start) -> Result<Option<Outcome>, StoreError> {
        if !self.start(start).await? {
            return Ok(None);
        }
        let mut before = None;
        loop {
            let (step, seq) = self.run.sink.log.with_history(|history| {
                let run = history.open_run();
                (run.map(|run| run.next(&self.here)), history.last_seq())
            });
            let now = Some((seq, self.here.clone()));
            let stuck = || {
                Outcome::failed(
                    FailReason::Runtime,
                    "a step of the run had no effect, which is a bug of windlass; resume the session to continue",
                )
            };
            let done = match step {
                Some(Step::Finish(outcome)) => return Ok(Some(self.within_limits(outcome))),
                Some(Step::Wait) => return Ok(None),
                None => return Ok(Some(stuck())),
                Some(_) if now == before => Err(StepError::Ends(stuck())),
                Some(step) if step.may_pause_before() && self.run.sink.control.pauses() => {
                    Err(StepError::Paused)
                }
                Some(step) => self.perform(step).await,
            };
            before = now;
            let done = match done {
                Err(StepError::Paused) => self.pause().await,
                done => done,
            };
            match done {
                Ok(()) | Err(StepError::Paused) => {}
                Err(StepError::Ends(outcome)) => {
                    self.emit(EventKind::RunEnding { outcome }).await?;
                }
                Err(StepError::Store(err)) => return Err(err),
            }
        }
    }

    /// Logs the first event of the run in this process. A prompt first closes a run that was left open. Returns false if
    /// the prompt was removed from the queue meanwhile.
    async fn start(&mut self, start: Start) -> Result<bool, StoreError> {
        match start {
            Start::Prompt {
                prompt,
                flags,
                queued,
            } => {
                let waits =
                    |history: &History| queued.is_none_or(|seq| history.queue().contains(seq));
                let sink = self.run.sink.clone();
                if !sink.log.with_history(|history| waits(history)) {
                    return Ok(false);
                }
                self.close_left_open().await?;
                let started = EventKind::RunStarted {
                    prompt,
                    queued,
                    flags,
                };
                let started = |history: &History| waits(history).then_some(started).ok_or(());
                Ok(sink.log.emit_if(&sink.scope, started).await?.is_ok())
            }
            // Sync before the answer takes effect, so that it cannot be used twice.
            Start::Answer {
                ask,
                answer,
                by,
                who,
            } => {
                let answered = EventKind::Answered {
                    ask: ask.id.clone(),
                    answer,
                    by,
                    who,
                };
                self.emit(answered).await?;
                self.run.sink.sync().await?;
                Ok(true)
            }
            // The run counts as paused until `transaction_opened`, so that another process can resume it if this one dies.
            Start::Resume { .. } => Ok(true),
        }
    }

    /// Logs that the run is paused, before its copy is kept. A run that waits for an answer is open because of its ask, so
    /// it needs no event.
    async fn pause(&mut self) -> Result<(), StepError> {
        let sink = self.run.sink.clone();
        if !sink.log.with_history(|history| history.waits()) {
            if let Some(open) = &self.open {
                close::interrupt_started_calls(&self.run, &open.executor).await?;
                self.collect_changed_files().await?;
            }
            let paused = EventKind::Paused {
                reason: sink.control.pause_reason().unwrap_or_default(),
                run_ms: millis(sink.ledger.elapsed()),
            };
            self.emit(paused).await?;
            sink.sync().await?;
        }
        self.here.paused = true;
        Ok(())
    }

    /// Closes a run that was left open. If this run works on the same files, it looks there for the effects of its calls.
    async fn close_left_open(&mut self) -> Result<(), StoreError> {
        let log = self.run.sink.log.clone();
        let Some(left) = log.with_history(|history| history.open_run().cloned()) else {
            return Ok(());
        };
        let kept = &self.run.contract.kept;
        let same_files = match left.isolation {
            Isolation::InPlace => kept.is_none() && !self.run.isolation.is_isolated(),
            Isolation::Isolated => left.copy.is_some() && left.copy == *kept,
        };
        if same_files {
            // Ignore an error here: the step that opens the transaction reports it.
            self.open = self.run.open(None).await.ok();
        }
        let executor = self.open.as_ref().map(|open| &open.executor);
        let in_copy = match &left.copy {
            Some(copy) => self.run.parts.workspaces.left_changes(copy).await,
            None => Vec::new(),
        };
        let trace = &self.run.sink.scope.trace;
        close::close(&log, trace, left, in_copy, executor, None).await
    }

    async fn perform(&mut self, step: Step) -> Result<(), StepError> {
        match step {
            Step::Open { copy } => self.open(copy).await,
            Step::Iterate { iteration, started } => {
                iterate::iterate(&self.run, self.opened()?, iteration, started).await
            }
            Step::Judge => {
                self.files = None;
                let open = self.opened()?;
                open.transaction.freeze().await?;
                open.executor.log_job_changes().await?;
                judge::judge(&self.run, self.opened()?.transaction.as_ref()).await
            }
            Step::Retry(prompt) => {
                self.emit(EventKind::said(*prompt)).await?;
                Ok(())
            }
            Step::AskToLand(ask) => {
                self.collect_changed_files().await?;
                land::ask(&self.run, ask).await
            }
            Step::Land { tree_hash, asked } => {
                self.collect_changed_files().await?;
                let transaction = self.opened()?.transaction.as_ref();
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
        let open = match self.open.take() {
            Some(open) => open,
            None => self.run.open(copy).await?,
        };
        let mut terms = open.transaction.terms();
        self.run.parts.runtime.terms(&mut terms);
        let name = open.transaction.name().map(str::to_owned);
        // In place there is nothing to judge if there are no validators and every path may be changed.
        let contract = &self.run.contract;
        self.here.judges = name.is_some()
            || !self.run.parts.validators.is_empty()
            || contract.write_paths.is_some()
            || contract.strict_judge;
        self.here.place = TransactionState::Open;
        self.open = Some(open);
        self.emit(EventKind::TransactionOpened { terms, name })
            .await?;
        self.run
            .warn_about_workspace(self.opened()?.transaction.as_ref())
            .await?;
        Ok(())
    }

    /// Stops all processes and collects the changed files. Warns about keys that commands wrote into them.
    async fn collect_changed_files(&mut self) -> Result<(), StepError> {
        if self.files.is_some() {
            return Ok(());
        }
        let OpenTransaction {
            transaction,
            executor,
        } = self.opened()?;
        transaction.processes().stop_all().await;
        executor.log_job_changes().await?;
        self.run.warn_about_workspace(transaction.as_ref()).await?;
        let files = match transaction.changes().await {
            Ok(changes) => warn_about_keys(executor, changes.files).await?,
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

    /// Removes a copy that has landed.
    async fn discard(&mut self) -> Result<(), StepError> {
        self.here.place = TransactionState::Closed;
        if let Some(open) = self.open.take()
            && let Err(err) = open.transaction.discard().await
        {
            self.run.warn("copy_left", err.message).await?;
        }
        Ok(())
    }

    /// Keeps the copy, also if the run is paused or waits for an answer, because the resumed run needs its changes.
    async fn keep(&mut self) -> Result<(), StepError> {
        self.collect_changed_files().await?;
        self.here.place = TransactionState::Closed;
        let Some(OpenTransaction { transaction, .. }) = self.open.take() else {
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
            // The copy had no changes, so the resumed run starts with a new one.
            (Ok(None), Some(name)) if self.here.paused => {
                self.emit(EventKind::Discarded { name }).await?;
            }
            (Ok(None), _) => {}
            (Err(err), _) => self.run.warn("copy_not_kept", err.message).await?,
        }
        Ok(())
    }

    /// Changes the outcome of a completed run that exceeded a limit.
    fn within_limits(&self, outcome: Outcome) -> Outcome {
        let ledger = &self.run.sink.ledger;
        match ledger.budget().overrun(&ledger.spent(), ledger.elapsed()) {
            Some(limit) if outcome == Outcome::Completed => {
                Outcome::CompletedWithLimitExceeded { limit }
            }
            _ => outcome,
        }
    }

    /// Closes open calls and logs the summary, which is the only terminal event of the run.
    async fn finish(&mut self, outcome: Outcome) {
        let (run, sink) = (&self.run, &self.run.sink);
        let results = sink
            .log
            .with_history(|history| history.closing_results("the run ended while it was open"));
        for result in results {
            // If the store fails here, it also fails below, where the error is reported.
            let _ = sink.emit(EventKind::CallFinished { result, ms: 0 }).await;
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
            totals: sink.ledger.spent(),
            ms: millis(sink.ledger.elapsed()),
            evidence,
            judge_changed,
            limits: Some(*sink.ledger.budget()),
            transaction,
            output,
        };
        let unwritten = match sink.emit(EventKind::RunFinished(summary.clone())).await {
            Ok(_) => match sink.sync().await {
                Ok(()) => return sink.log.save_snapshot().await,
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
        sink.log.show_unwritten(&sink.scope, unwritten).await;
    }

    fn opened(&self) -> Result<&OpenTransaction, StepError> {
        self.open.as_ref().ok_or_else(|| {
            let detail = "a step needs a transaction that is not open, which is a bug of windlass; resume the session to continue";
            StepError::Ends(Outcome::failed(FailReason::Runtime, detail))
        })
    }

    async fn emit(&self, kind: EventKind) -> Result<u64, StoreError> {
        self.run.sink.emit(kind).await
    }
}

impl RunParts {
    /// Gives access to the folded state of the run.
    pub(super) fn folded<T>(&self, read: impl FnOnce(&Run) -> T) -> Option<T> {
        let log = &self.sink.log;
        log.with_history(|history| history.open_run().map(read))
    }

    pub(super) async fn warn(&self, code: &str, text: String) -> Result<(), StoreError> {
        let code = code.to_owned();
        self.sink.emit(EventKind::Warned { code, text }).await?;
        Ok(())
    }

    /// Logs the warnings of the workspace.
    pub(super) async fn warn_about_workspace(
        &self,
        transaction: &dyn Transaction,
    ) -> Result<(), StoreError> {
        for text in transaction.notes() {
            self.warn("workspace", text).await?;
        }
        Ok(())
    }

    /// Credential files that the configuration allows to be read.
    pub(super) fn exposed(&self) -> Vec<String> {
        self.gate.lock().exposed.clone()
    }

    async fn open(&self, copy: Option<String>) -> Result<OpenTransaction, WorkspaceError> {
        let kept = copy.or_else(|| self.contract.kept.clone());
        let opening = Opening {
            session: &self.session,
            run: &self.run,
            isolation: self.isolation,
            kept: kept.as_deref(),
        };
        let transaction = self.parts.workspaces.open(opening).await?;
        let executor = self.executor(transaction.as_ref());
        Ok(OpenTransaction {
            transaction,
            executor,
        })
    }

    fn executor(&self, transaction: &dyn Transaction) -> Executor {
        let parts = &self.parts;
        let terms = transaction.terms();
        let hidden = self.gate.lock().hidden_paths();
        let log = &self.sink.log;
        Executor {
            sink: self.sink.clone(),
            tools: parts.tools.clone(),
            schemas: parts.schemas.clone(),
            gate: self.gate.clone(),
            place: windlass_core::gate::CallProtection {
                isolation: terms.isolation,
                sandboxed: terms.tier.confines(),
                has_jobs: false,
            },
            files: FilteredFiles::wrap(transaction.files(), hidden),
            processes: transaction.processes(),
            snapshots: transaction.snapshots(),
            artifacts: Arc::new(RedactedArtifacts::new(
                self.artifacts.clone(),
                parts.redactor.clone(),
            )),
            redactor: parts.redactor.clone(),
            outside: parts.outside.clone(),
            clock: parts.clock.clone(),
            cancel: self.sink.control.stop.clone(),
            yes: self.yes,
            warned_not_undoable: Mutex::default(),
            warned_keys: Mutex::default(),
            prior_answers: log.with_history(|history| PriorAnswers::of(history.open_calls())),
            foreign: ForeignCalls::default(),
        }
    }
}

/// Searches the changed files for keys, because commands also write files. Keys that a call already warned about are
/// skipped.
async fn warn_about_keys(
    executor: &Executor,
    changes: Vec<FileChange>,
) -> Result<Vec<FileChange>, StoreError> {
    if changes.is_empty() {
        return Ok(changes);
    }
    let (files, redactor) = (executor.files.clone(), executor.redactor.clone());
    let known = executor.warned_keys.lock().clone();
    let kept = changes.clone();
    let scan = move || SCAN_AFTER_RUN.keys_in(files.as_ref(), redactor.as_ref(), &changes, &known);
    // A panic of the scan finds nothing; the outcome of the run does not depend on it.
    let keys = tokio::task::spawn_blocking(scan).await.unwrap_or_default();
    executor.warn_about_keys(keys).await?;
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
