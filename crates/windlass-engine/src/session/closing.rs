//! Closing what another process left behind: a run that was broken off, or one whose asks nobody answers any more.
//! A call that was begun is never begun again: it is proven done, or closed with what is known of it.

use windlass_core::ask::{Answer, AnsweredBy};
use windlass_core::event::EventKind;
use windlass_core::history::OpenCall;
use windlass_core::id::TraceId;
use windlass_core::message::{ErrorCategory, ToolResult};
use windlass_core::open_run::OpenRun;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::store::StoreError;
use windlass_core::terms::Isolation;
use windlass_core::tool::Happened;

use super::drive::Work;
use crate::executor::Executor;
use crate::log::{Log, Scope};

/// Why a call has no result.
const BROKEN_OFF: &str = "the process ended while it ran";
const ABANDONED: &str = "a new prompt came before it was answered";

impl Work {
    /// Closes a run that was left open before this one begins. Whoever works at the same place looks at what is there.
    pub(super) async fn close_left_behind(
        &self,
        looking: Option<&Executor>,
    ) -> Result<(), StoreError> {
        let log = &self.outlet.log;
        let Some(run) = log.with_history(|history| history.open_run().cloned()) else {
            return Ok(());
        };
        let same_place = match run.isolation {
            Isolation::InPlace => self.contract.kept.is_none() && !self.isolation.is_isolated(),
            Isolation::Isolated => run.copy.is_some() && run.copy == self.contract.kept,
        };
        close(
            log,
            &self.outlet.scope.trace,
            run,
            looking.filter(|_| same_place),
        )
        .await
    }
}

/// Closes a run that nobody goes on with: asks first, then calls, then the run itself.
pub(super) async fn close(
    log: &Log,
    trace: &TraceId,
    run: OpenRun,
    looking: Option<&Executor>,
) -> Result<(), StoreError> {
    let (asks, calls, totals) = log.with_history(|history| {
        let asks: Vec<_> = history
            .open_asks()
            .iter()
            .map(|ask| ask.id.clone())
            .collect();
        let calls: Vec<OpenCall> = history.open_calls().cloned().collect();
        (asks, calls, history.run_spent())
    });
    let why = if asks.is_empty() {
        BROKEN_OFF
    } else {
        ABANDONED
    };
    let scope = Scope {
        run: Some(run.id),
        trace: trace.clone(),
        view: None,
    };
    for ask in asks {
        log.emit(
            &scope,
            EventKind::Answered {
                ask,
                answer: Answer::Abandoned,
                by: AnsweredBy::Engine,
            },
        )
        .await?;
    }
    let alone = calls.iter().filter(|open| open.started).count() == 1;
    for open in calls {
        let result = looking
            .and_then(|look| proven(look, &open, alone))
            .unwrap_or_else(|| open.settle(why));
        log.emit(&scope, EventKind::CallFinished { result, ms: 0 })
            .await?;
    }
    let detail = "the run was left open; the session goes on from what was logged";
    let summary = RunSummary {
        totals,
        transaction: run.copy.filter(|_| run.isolation.is_isolated()),
        ..RunSummary::new(Outcome::failed(FailReason::Interrupted, detail))
    };
    log.emit(&scope, EventKind::RunFinished(summary)).await?;
    Ok(())
}

/// The result of a call that was begun, where what is there leaves no doubt about it. Where another may have been begun
/// after it, that one may have put back what it looks for: then it is never proven not done.
pub(super) fn proven(executor: &Executor, open: &OpenCall, alone: bool) -> Option<ToolResult> {
    if !open.started {
        return None;
    }
    let call = &open.call;
    Some(match executor.happened(call)? {
        Happened::Yes(how) => ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            text: format!(
                "done: {how} (the process ended before it could say so; this was found by looking)"
            ),
            error: None,
            artifact: None,
        },
        Happened::No(_) if !alone => return None,
        Happened::No(how) => ToolResult::failed(
            call,
            ErrorCategory::Interrupted,
            &format!("the process ended before it was done: {how}"),
        ),
    })
}
