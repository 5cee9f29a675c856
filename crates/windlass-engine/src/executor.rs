//! Settles the calls of one step. For each: find the tool, check the arguments, ask what it would touch, judge, ask a
//! person where needed, log, run, log. Exactly one result for each call, in call order, whatever happens.
//! It names no tool and opens nothing.

mod earlier;
mod foreign;
mod hidden;
mod keys;
mod one;

pub(crate) use earlier::Earlier;
pub(crate) use foreign::ForeignCalls;

pub(crate) use hidden::Unhidden;
pub(crate) use keys::OF_A_RUN;
pub(crate) use one::describe_panic;

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::BoxFuture;
use windlass_core::CancellationToken;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::gate::{PermissionGate, Place, Verdict};
use windlass_core::id::CallId;
use windlass_core::image::Swap;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::Outlet;
use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::tool::{Admitted, Effect, ForeignCall, Seen, Tool, ToolSet, Toolbox};
use windlass_core::turn::{Planned, Settled};
use windlass_core::workspace::{
    Artifacts, CallChanges, FileChange, Files, Outside, Processes, Redactor, Snapshots,
};

use crate::run::RunOutlet;
use crate::schema::Schemas;

/// How many reads run at the same time.
const PARALLEL_READS: usize = 4;
/// How many reads are logged as started before the first of them ends: after a crash, the ones that never ran are few.
const MOST_STARTED: usize = 4 * PARALLEL_READS;
/// How many keys are remembered as told; a further one may be told twice.
const MAX_TOLD: usize = 1_000;
/// How many paths of one call are named that cannot be taken back.
const MAX_LOST: usize = 20;

/// Everything calls of one run need.
pub(crate) struct Executor {
    pub(crate) outlet: Arc<RunOutlet>,
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) gate: Arc<Mutex<PermissionGate>>,
    pub(crate) place: Place,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) processes: Arc<dyn Processes>,
    /// What each call changes in the user's own tree, where it is kept for undo.
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    pub(crate) artifacts: Arc<dyn Artifacts>,
    pub(crate) redactor: Arc<dyn Redactor>,
    pub(crate) outside: Option<Arc<dyn Outside>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cancel: CancellationToken,
    /// `--yes`: answers what a flag may answer.
    pub(crate) yes: bool,
    /// What cannot be undone and was told already.
    pub(crate) told_lost: Mutex<HashSet<String>>,
    /// Keys in changed files that were told already.
    pub(crate) told_keys: Mutex<Vec<String>>,
    /// What was asked and answered before this process came to it.
    pub(crate) earlier: Earlier,
    /// Calls of a foreign agent that are under way.
    pub(crate) foreign: ForeignCalls,
}

/// A call that may run.
struct Ready {
    call: ToolCall,
    tool: Arc<dyn Tool>,
    command: Option<String>,
    /// What it may read outside the workspace: exactly what was judged.
    outside: Vec<String>,
    /// The verdict and the rule under which it may run. None when it was begun by a process that ended while it asked:
    /// then nothing of it is logged twice.
    under: Option<(Verdict, String)>,
}

/// What became of a call before it ran.
enum Judged {
    Ready(Ready),
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
        seen: Vec<Seen>,
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
            while batch.len() < MOST_STARTED
                && let Some(next) = waiting.pop_front_if(|next| self.overlaps(next))
            {
                batch.push(next);
            }
            settled.extend(self.settle_reads(batch).await?);
        }
        // On its way to the disk while the model thinks; before the next effect it is waited for.
        self.outlet.log.sync_behind().await?;
        Ok(settled)
    }

    /// Whether a command of this step failed before this process came to it.
    fn failed_before(&self) -> bool {
        let log = &self.outlet.log;
        log.with_history(|history| history.failed_in_step().any(|name| self.executes(name)))
    }

    fn executes(&self, tool: &str) -> bool {
        let tool = self.tools.get(tool);
        tool.is_some_and(|tool| tool.spec().effect == Effect::Execute)
    }

    /// Whether a call may run beside its neighbours: it says so, and only looks.
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
        // Only when all are judged: a question about one must not leave another begun and not run.
        for one in &judged {
            if let Judged::Ready(ready) = one {
                self.log_ready(ready).await?;
            }
        }
        let results = futures_util::stream::iter(judged.into_iter().map(|one| async move {
            match one {
                Judged::Settled(settled) => (settled, None),
                Judged::Ready(ready) => {
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
                self.log_ran(&one.result, began).await?;
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
            Judged::Settled(settled) => return Ok(settled),
            Judged::Ready(ready) => ready,
        };
        self.log_ready(&ready).await?;
        let call = || ready.call.id.clone();
        let effect = ready.tool.spec().effect;
        if let Some(command) = ready.command.clone() {
            let call = call();
            let started = EventKind::CommandStarted { call, command };
            self.outlet.emit(started).await?;
        }
        // What may have happened must be on disk before it happens; one sync serves the whole step, because the
        // message that asked for all its calls is in it.
        if effect > Effect::Read && !step.synced {
            self.outlet.sync().await?;
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
                self.outlet.emit(refused).await?;
            }
            let finished = EventKind::CommandFinished {
                call: call(),
                end: ran.end,
                bytes: ran.bytes,
                ms: millis(ran.took),
            };
            self.outlet.emit(finished).await?;
        }
        let full = self.log_changes(snapshots, &call(), done.changes).await?;
        self.tell_keys(done.keys).await?;
        self.log_ran(&done.result, began).await?;
        if let Some(why) = full {
            return Err(StoreError::new(StoreErrorKind::Full, why));
        }
        step.command_failed |= effect == Effect::Execute && done.result.error.is_some();
        Ok(Settled {
            result: done.result,
            effect: Some(effect),
        })
    }

    /// Lands and logs what background jobs changed since the last call.
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

    /// Logs the changes of a call: those that its tool described, and those that were found by content. Gives the reason
    /// where no space is left for what undo needs.
    async fn log_changes(
        &self,
        snapshots: Option<&Arc<dyn Snapshots>>,
        call: &CallId,
        described: Vec<FileChange>,
    ) -> Result<Option<String>, StoreError> {
        let found = match snapshots {
            Some(snapshots) => self.found(snapshots.as_ref(), call).await?,
            None => CallChanges::default(),
        };
        for (change, swap) in matched(described, found.files) {
            let call = Some(call.clone());
            let changed = EventKind::FileChanged { call, change, swap };
            self.outlet.emit(changed).await?;
        }
        if !found.not_written.is_empty() {
            let (call, paths) = (call.clone(), found.not_written);
            let not_written = EventKind::NotWritten { call, paths };
            self.outlet.emit(not_written).await?;
        }
        if let Some(snapshots) = snapshots {
            snapshots.logged(call);
        }
        Ok(found.full)
    }

    /// The changes of the call, by content. Warns of those that cannot be undone or merged.
    async fn found(
        &self,
        snapshots: &dyn Snapshots,
        call: &CallId,
    ) -> Result<CallChanges, StoreError> {
        let mut changes = match snapshots.end(call).await {
            Ok(changes) => changes,
            Err(err) => CallChanges {
                lost: vec![("its changes".to_owned(), err.message)],
                ..CallChanges::default()
            },
        };
        for (code, text) in std::mem::take(&mut changes.warnings) {
            self.outlet.emit(EventKind::warned(code, text)).await?;
        }
        for (what, why) in changes.lost.drain(..).take(MAX_LOST) {
            let text = format!("{what} cannot be undone: {why}");
            // What every command of a run does is told with the first.
            if !self.told_lost.lock().insert(text.clone()) {
                continue;
            }
            let warned = EventKind::warned("not_undoable", text);
            self.outlet.emit(warned).await?;
        }
        Ok(changes)
    }

    /// Warns of keys in changed files.
    pub(crate) async fn tell_keys(&self, keys: Vec<String>) -> Result<(), StoreError> {
        for text in keys {
            {
                let mut told = self.told_keys.lock();
                if told.len() < MAX_TOLD {
                    told.push(text.clone());
                }
            }
            let warned = EventKind::warned("key_in_file", text);
            self.outlet.emit(warned).await?;
        }
        Ok(())
    }

    /// Judges a call in the light of the ones before it: after a failed command, later commands of the step do not run.
    async fn judge_after(&self, planned: Planned, step: &StepState) -> Result<Judged, StoreError> {
        let executes = self.executes(&planned.call.name);
        if step.command_failed && executes && planned.refuse.is_none() {
            let text = "not run, because a command before it in the same step failed; look at that result first";
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
    ) -> Result<Judged, StoreError> {
        let result = ToolResult::failed(call, category, text);
        self.log_finished(result.clone(), 0).await?;
        let effect = self.tools.get(&call.name).map(|tool| tool.spec().effect);
        Ok(Judged::Settled(Settled { result, effect }))
    }

    async fn log_ready(&self, ready: &Ready) -> Result<(), StoreError> {
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
        self.outlet.emit(started).await.map(drop)
    }

    async fn log_ran(&self, result: &ToolResult, began: Duration) -> Result<(), StoreError> {
        let ms = millis(self.clock.monotonic().saturating_sub(began));
        self.log_finished(result.clone(), ms).await
    }

    async fn log_finished(&self, result: ToolResult, ms: u64) -> Result<(), StoreError> {
        let finished = EventKind::CallFinished { result, ms };
        self.outlet.emit(finished).await.map(drop)
    }
}

/// Joins what a tool says it changed with what was found to have changed. The words of the tool win for its own paths.
fn matched(
    changes: Vec<FileChange>,
    mut found: Vec<(FileChange, Swap)>,
) -> Vec<(FileChange, Option<Swap>)> {
    let mut all = Vec::with_capacity(changes.len().max(found.len()));
    for change in changes {
        let own = found.iter().position(|(_, swap)| swap.path == change.path);
        all.push((change, own.map(|at| found.remove(at).1)));
    }
    all.extend(found.into_iter().map(|(change, swap)| (change, Some(swap))));
    all
}

/// What the calls of one step have in common.
struct StepState {
    synced: bool,
    command_failed: bool,
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
