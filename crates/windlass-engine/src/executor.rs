//! Executes the tool calls of one step.
//!
//! For each call: find the tool, check the arguments, compute the touches, judge them, ask a person if necessary, log the
//! start, execute, log the end. Each call gets exactly one result, in call order, even after an error or a panic. The
//! executor names no tool and opens no file itself.

mod call;
mod filtered_files;
mod foreign;
mod key_scan;
mod prior_answers;

pub(crate) use call::describe_panic;
pub(crate) use filtered_files::FilteredFiles;
pub(crate) use foreign::ForeignCalls;
pub(crate) use key_scan::SCAN_AFTER_RUN;
pub(crate) use prior_answers::PriorAnswers;

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::BoxFuture;
use windlass_core::CancellationToken;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::gate::{CallProtection, PermissionGate, Verdict};
use windlass_core::id::CallId;
use windlass_core::image::Swap;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::EventSink;
use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::tool::{Admitted, Effect, ForeignCall, ObservedChange, Tool, ToolSet, Toolbox};
use windlass_core::turn::{Planned, Settled};
use windlass_core::workspace::{
    Artifacts, CallChanges, FileChange, Files, Outside, Processes, Redactor, Snapshots,
};

use crate::run::RunOutlet;
use crate::schema::Schemas;

/// Maximum number of reads that run concurrently.
const PARALLEL_READS: usize = 4;
/// Maximum number of reads that are logged as started before the first of them ends. The limit keeps the number of reads
/// small that a crash leaves started but not executed.
const MAX_STARTED_READS: usize = 4 * PARALLEL_READS;
/// Maximum number of remembered warnings about keys. Beyond it, a warning may be repeated.
const MAX_WARNED_KEYS: usize = 1_000;
/// Maximum number of warnings per call about changes that cannot be undone.
const MAX_NOT_UNDOABLE: usize = 20;

/// Executes the calls of one run.
pub(crate) struct Executor {
    pub(crate) sink: Arc<RunOutlet>,
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) gate: Arc<Mutex<PermissionGate>>,
    pub(crate) place: CallProtection,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) processes: Arc<dyn Processes>,
    /// Records the changes of each call in the user's tree, for undo. `None` for an isolated run.
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    pub(crate) artifacts: Arc<dyn Artifacts>,
    pub(crate) redactor: Arc<dyn Redactor>,
    pub(crate) outside: Option<Arc<dyn Outside>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cancel: CancellationToken,
    /// `--yes`: approve every call that a flag may approve.
    pub(crate) yes: bool,
    /// Warnings that were already logged.
    pub(crate) warned_not_undoable: Mutex<HashSet<String>>,
    /// Warnings about keys in changed files that were already logged.
    pub(crate) warned_keys: Mutex<Vec<String>>,
    /// Asks and answers of open calls that an earlier process logged.
    pub(crate) prior_answers: PriorAnswers,
    pub(crate) foreign: ForeignCalls,
}

/// A call that was approved and may run.
struct ReadyCall {
    call: ToolCall,
    tool: Arc<dyn Tool>,
    command: Option<String>,
    /// The paths outside the workspace that the call may read: exactly those that were judged.
    outside: Vec<String>,
    /// The verdict and the rule. `None` if an earlier process started the call and paused on its question: its start is
    /// not logged again.
    under: Option<(Verdict, String)>,
}

/// A call after the gate: approved, or settled without being executed.
enum GatedCall {
    Ready(ReadyCall),
    Settled(Settled),
}

impl Toolbox for Executor {
    fn tools(&self) -> &ToolSet {
        &self.tools
    }

    fn call<'a>(&'a self, calls: Vec<Planned>) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(self.settle_all(calls))
    }

    fn admit(&self, call: ForeignCall) -> BoxFuture<'_, Result<Admitted, StoreError>> {
        Box::pin(self.admit_foreign(call))
    }

    fn observed(&self, call: ForeignCall) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.observe_foreign(call))
    }

    fn reported(
        &self,
        result: ToolResult,
        seen: Vec<ObservedChange>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.report_foreign(result, seen))
    }
}

impl Executor {
    async fn settle_all(&self, calls: Vec<Planned>) -> Result<Vec<Settled>, StoreError> {
        let mut waiting: VecDeque<Planned> = calls.into();
        let mut settled = Vec::with_capacity(waiting.len());
        let mut step = StepState {
            synced: false,
            command_failed: self.failed_before(),
        };
        while let Some(first) = waiting.pop_front() {
            self.log_job_changes().await?;
            if !self.overlaps(&first) {
                settled.push(self.settle_one(first, &mut step).await?);
                continue;
            }
            let mut batch = vec![first];
            while batch.len() < MAX_STARTED_READS
                && let Some(next) = waiting.pop_front_if(|next| self.overlaps(next))
            {
                batch.push(next);
            }
            settled.extend(self.settle_reads(batch).await?);
        }
        // Sync in the background while the model answers. The next call with an effect waits for it.
        self.sink.log.sync_in_background().await?;
        Ok(settled)
    }

    /// True if a command of this step failed in an earlier process.
    fn failed_before(&self) -> bool {
        let log = &self.sink.log;
        log.with_history(|history| history.failed_in_step().any(|name| self.executes(name)))
    }

    fn executes(&self, tool: &str) -> bool {
        let tool = self.tools.get(tool);
        tool.is_some_and(|tool| tool.spec().effect == Effect::Execute)
    }

    /// True if the call may run concurrently with others: its tool is marked as parallel and only reads.
    fn overlaps(&self, planned: &Planned) -> bool {
        let spec = self.tools.get(&planned.call.name).map(|tool| tool.spec());
        planned.refuse.is_none()
            && spec.is_some_and(|spec| spec.parallel && spec.effect == Effect::Read)
    }

    async fn settle_reads(&self, batch: Vec<Planned>) -> Result<Vec<Settled>, StoreError> {
        let mut judged = Vec::with_capacity(batch.len());
        for planned in batch {
            judged.push(self.judge(planned).await?);
        }
        // Log the starts after all calls are judged: if one of them asks and the run pauses, none of the others may be
        // logged as started without being executed.
        for one in &judged {
            if let GatedCall::Ready(ready) = one {
                self.log_ready(ready).await?;
            }
        }
        let results = futures_util::stream::iter(judged.into_iter().map(|one| async move {
            match one {
                GatedCall::Settled(settled) => (settled, None),
                GatedCall::Ready(ready) => {
                    let began = self.clock.monotonic();
                    let result = self.execute(&ready).await.result;
                    let effect = Some(Effect::Read);
                    (Settled { result, effect }, Some(began))
                }
            }
        }))
        .buffered(PARALLEL_READS);
        let mut results = std::pin::pin!(results);
        let mut settled = Vec::new();
        while let Some((one, ran)) = results.next().await {
            if let Some(began) = ran {
                self.log_executed(&one.result, began).await?;
            }
            settled.push(one);
        }
        Ok(settled)
    }

    async fn settle_one(
        &self,
        planned: Planned,
        step: &mut StepState,
    ) -> Result<Settled, StoreError> {
        let ready = match self.judge_after(planned, step).await? {
            GatedCall::Settled(settled) => return Ok(settled),
            GatedCall::Ready(ready) => ready,
        };
        self.log_ready(&ready).await?;
        let call = || ready.call.id.clone();
        let effect = ready.tool.spec().effect;
        if let Some(command) = ready.command.clone() {
            let call = call();
            let started = EventKind::CommandStarted { call, command };
            self.sink.emit(started).await?;
        }
        // Write-ahead: the log must be on disk before the effect. One sync per step is enough, because it covers the
        // model's message, which contains all calls of the step.
        if effect > Effect::Read && !step.synced {
            self.sink.sync().await?;
            step.synced = true;
        }
        let began = self.clock.monotonic();
        let snapshots = self.snapshots.as_ref().filter(|_| effect > Effect::Read);
        if let Some(snapshots) = snapshots {
            snapshots.begin(&ready.call.id);
        }
        let done = self.execute(&ready).await;
        if let Some(ran) = done.command {
            for host in ran.refused {
                let rule = "sandbox: network".to_owned();
                let refused = EventKind::ConnectionRefused { host, rule };
                self.sink.emit(refused).await?;
            }
            let finished = EventKind::CommandFinished {
                call: call(),
                end: ran.end,
                bytes: ran.bytes,
                ms: millis(ran.took),
            };
            self.sink.emit(finished).await?;
        }
        let full = self.log_changes(snapshots, &call(), done.changes).await?;
        self.warn_about_keys(done.keys).await?;
        self.log_executed(&done.result, began).await?;
        if let Some(why) = full {
            return Err(StoreError::new(StoreErrorKind::Full, why));
        }
        step.command_failed |= effect == Effect::Execute && done.result.error.is_some();
        Ok(Settled {
            result: done.result,
            effect: Some(effect),
        })
    }

    /// Lands and logs the changes of background jobs since the last call.
    pub(crate) async fn log_job_changes(&self) -> Result<(), StoreError> {
        let Some(snapshots) = &self.snapshots else {
            return Ok(());
        };
        for call in snapshots.land_jobs().await {
            let full = self.log_changes(Some(snapshots), &call, Vec::new()).await?;
            if let Some(why) = full {
                return Err(StoreError::new(StoreErrorKind::Full, why));
            }
        }
        Ok(())
    }

    /// Logs the changes of a call: those that its tool reported, and those that a comparison of contents found. Returns a
    /// reason if the disk has no space for the data that undo needs.
    async fn log_changes(
        &self,
        snapshots: Option<&Arc<dyn Snapshots>>,
        call: &CallId,
        reported: Vec<FileChange>,
    ) -> Result<Option<String>, StoreError> {
        let found = match snapshots {
            Some(snapshots) => self.found(snapshots.as_ref(), call).await?,
            None => CallChanges::default(),
        };
        for (change, swap) in merge_changes(reported, found.files) {
            let call = Some(call.clone());
            let changed = EventKind::FileChanged { call, change, swap };
            self.sink.emit(changed).await?;
        }
        if !found.not_written.is_empty() {
            let (call, paths) = (call.clone(), found.not_written);
            let not_written = EventKind::NotWritten { call, paths };
            self.sink.emit(not_written).await?;
        }
        if let Some(snapshots) = snapshots {
            snapshots.logged(call);
        }
        Ok(found.full)
    }

    /// The changes of the call, found by comparing contents. Warns about those that cannot be undone or merged.
    async fn found(
        &self,
        snapshots: &dyn Snapshots,
        call: &CallId,
    ) -> Result<CallChanges, StoreError> {
        let mut changes = match snapshots.end(call).await {
            Ok(changes) => changes,
            Err(err) => CallChanges {
                lost: vec![("the changes of this call".to_owned(), err.message)],
                ..CallChanges::default()
            },
        };
        for (code, text) in std::mem::take(&mut changes.warnings) {
            self.sink.emit(EventKind::warned(code, text)).await?;
        }
        for (what, why) in changes.lost.drain(..).take(MAX_NOT_UNDOABLE) {
            let text = format!("{what} cannot be undone: {why}");
            // Many commands of a run cause the same warning; log it once.
            if !self.warned_not_undoable.lock().insert(text.clone()) {
                continue;
            }
            let warned = EventKind::warned("not_undoable", text);
            self.sink.emit(warned).await?;
        }
        Ok(changes)
    }

    /// Logs warnings about keys in changed files.
    pub(crate) async fn warn_about_keys(&self, keys: Vec<String>) -> Result<(), StoreError> {
        for text in keys {
            {
                let mut told = self.warned_keys.lock();
                if told.len() < MAX_WARNED_KEYS {
                    told.push(text.clone());
                }
            }
            let warned = EventKind::warned("key_in_file", text);
            self.sink.emit(warned).await?;
        }
        Ok(())
    }

    /// Judges a call. After a failed command, the later commands of the same step are not executed.
    async fn judge_after(
        &self,
        planned: Planned,
        step: &StepState,
    ) -> Result<GatedCall, StoreError> {
        let executes = self.executes(&planned.call.name);
        if step.command_failed && executes && planned.refuse.is_none() {
            let text =
                "not run, because an earlier command of this step failed; read its result first";
            let category = ErrorCategory::Interrupted;
            return self.refused(&planned.call, category, text).await;
        }
        self.judge(planned).await
    }

    async fn refused(
        &self,
        call: &ToolCall,
        category: ErrorCategory,
        text: &str,
    ) -> Result<GatedCall, StoreError> {
        let result = ToolResult::failed(call, category, text);
        self.log_finished(result.clone(), 0).await?;
        let effect = self.tools.get(&call.name).map(|tool| tool.spec().effect);
        Ok(GatedCall::Settled(Settled { result, effect }))
    }

    async fn log_ready(&self, ready: &ReadyCall) -> Result<(), StoreError> {
        match ready.under.clone() {
            Some((verdict, rule)) => {
                self.log_started(ready.call.clone(), Some(verdict), rule)
                    .await
            }
            None => Ok(()),
        }
    }

    async fn log_started(
        &self,
        call: ToolCall,
        verdict: Option<Verdict>,
        rule: String,
    ) -> Result<(), StoreError> {
        let started = EventKind::CallStarted {
            call,
            verdict,
            rule,
        };
        self.sink.emit(started).await.map(drop)
    }

    async fn log_executed(&self, result: &ToolResult, began: Duration) -> Result<(), StoreError> {
        let ms = millis(self.clock.monotonic().saturating_sub(began));
        self.log_finished(result.clone(), ms).await
    }

    async fn log_finished(&self, result: ToolResult, ms: u64) -> Result<(), StoreError> {
        let finished = EventKind::CallFinished { result, ms };
        self.sink.emit(finished).await.map(drop)
    }
}

/// Merges the changes that a tool reported with those that a comparison found. For a path in both, the report of the tool
/// wins.
fn merge_changes(
    reported: Vec<FileChange>,
    mut found: Vec<(FileChange, Swap)>,
) -> Vec<(FileChange, Option<Swap>)> {
    let mut all = Vec::with_capacity(reported.len().max(found.len()));
    for change in reported {
        let own = found.iter().position(|(_, swap)| swap.path == change.path);
        all.push((change, own.map(|at| found.remove(at).1)));
    }
    all.extend(found.into_iter().map(|(change, swap)| (change, Some(swap))));
    all
}

/// State that the calls of one step share.
struct StepState {
    /// The log was synced during this step.
    synced: bool,
    command_failed: bool,
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
