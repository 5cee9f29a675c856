//! Closing what another process left behind: a run that was broken off, or one whose asks nobody answers any more.
//! A call that was begun is never begun again: it is proven done, or closed with what is known of it.

use windlass_core::ask::Answer;
use windlass_core::event::EventKind;
use windlass_core::history::OpenCall;
use windlass_core::message::{ErrorCategory, ToolResult};
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::store::StoreError;
use windlass_core::tool::Happened;

use super::drive::Work;
use crate::executor::Executor;
use crate::log::Scope;

/// Why a call has no result.
const BROKEN_OFF: &str = "the process ended while it ran";
const ABANDONED: &str = "a new prompt came before it was answered";

impl Work {
    /// Closes a run that was left open before this one begins: asks first, then calls, then the run itself. Whoever
    /// works at the same place looks at what is there.
    pub(super) async fn close_left_behind(&self, looking: Option<&Executor>) -> Result<(), StoreError> {
        let log = &self.outlet.log;
        let (run, asks, totals, waited) = log.with_history(|history| {
            let asks: Vec<_> = history.open_asks().iter().map(|ask| ask.id.clone()).collect();
            (history.open_run().cloned(), asks, history.run_spent(), history.waits())
        });
        let Some(run) = run else { return Ok(()) };
        let same_place = match run.isolated {
            false => self.contract.kept.is_none() && !self.isolated(),
            true => run.copy.is_some() && run.copy == self.contract.kept,
        };
        let scope = Scope { run: Some(run.id), trace: self.outlet.scope.trace.clone(), view: None };
        for ask in asks {
            log.emit(&scope, EventKind::Answered { ask, answer: Answer::Abandoned, by: "engine".into() }).await?;
        }
        let why = if waited { ABANDONED } else { BROKEN_OFF };
        for result in self.results_of_begun(looking.filter(|_| same_place), why) {
            log.emit(&scope, EventKind::CallFinished { result, ms: 0 }).await?;
        }
        let detail = "the run was left open; the session goes on from what was logged";
        let finished = EventKind::RunFinished {
            outcome: Outcome::failed(FailReason::Interrupted, detail),
            files: Vec::new(),
            totals,
            ms: 0,
            evidence: Vec::new(),
            judge_changed: Vec::new(),
            limits: None,
            transaction: run.copy.filter(|_| run.isolated),
            output: None,
        };
        log.emit(&scope, finished).await?;
        Ok(())
    }

    /// The results of all calls that have none.
    pub(super) fn results_of_begun(&self, looking: Option<&Executor>, why: &str) -> Vec<ToolResult> {
        let open: Vec<OpenCall> = self.outlet.log.with_history(|history| history.open_calls().cloned().collect());
        open.into_iter()
            .map(|open| looking.and_then(|look| proven(look, &open)).unwrap_or_else(|| open.settle(why)))
            .collect()
    }
}

/// The result of a call that was begun, where what is there leaves no doubt about it.
pub(super) fn proven(executor: &Executor, open: &OpenCall) -> Option<ToolResult> {
    if !open.started {
        return None;
    }
    let call = &open.call;
    Some(match executor.happened(call)? {
        Happened::Yes(how) => ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            text: format!("done: {how} (the process ended before it could say so; this was found by looking)"),
            error: None,
            artifact: None,
        },
        Happened::No(how) => ToolResult::failed(
            call,
            ErrorCategory::Interrupted,
            &format!("the process ended before it was done: {how}"),
        ),
    })
}
