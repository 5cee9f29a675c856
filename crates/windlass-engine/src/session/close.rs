//! Calls and runs that a process which is gone left open. A call that was begun is never begun again: it is proven done,
//! or closed with what is known of it.

use windlass_core::ask::{About, Answer, AnsweredBy};
use windlass_core::event::EventKind;
use windlass_core::history::OpenCall;
use windlass_core::id::TraceId;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::outcome::RunSummary;
use windlass_core::run::Run;
use windlass_core::runtime::Outlet;
use windlass_core::store::StoreError;
use windlass_core::tool::{Effect, Happened};
use windlass_core::workspace::FileChange;

use super::driver::RunParts;
use crate::executor::Executor;
use crate::log::{Log, Scope};

/// Why a call has no result.
const BROKEN_OFF: &str = "the process ended while it ran";
const ABANDONED: &str = "a new prompt came before it was answered";

/// Closes a run that nobody resumes: asks first, then calls, then the run itself. Whoever works at the same place looks
/// at what is there.
pub(super) async fn close(
    log: &Log,
    trace: &TraceId,
    run: Run,
    in_copy: Vec<FileChange>,
    executor: Option<&Executor>,
) -> Result<(), StoreError> {
    let (asks, calls, totals, files) = log.with_history(|history| {
        let asks = history.open_asks().iter();
        let asks: Vec<_> = asks.map(|ask| ask.id.clone()).collect();
        let calls: Vec<OpenCall> = history.open_calls().cloned().collect();
        // The copy holds the result of its edits.
        let files = match in_copy.is_empty() {
            true => history.run_files(),
            false => in_copy,
        };
        (asks, calls, history.run_spent(), files)
    });
    let why = match asks.is_empty() {
        true => BROKEN_OFF,
        false => ABANDONED,
    };
    let summary = RunSummary {
        totals,
        files,
        ..run.left_open()
    };
    let scope = Scope {
        run: Some(run.id),
        trace: trace.clone(),
        view: None,
    };
    for ask in asks {
        let answered = EventKind::Answered {
            ask,
            answer: Answer::Abandoned,
            by: AnsweredBy::Engine,
        };
        log.emit(&scope, answered).await?;
    }
    let alone = is_alone(&calls);
    for open in calls {
        let result = executor
            .and_then(|executor| proven(executor, &open, alone))
            .unwrap_or_else(|| open.settle(why));
        log.emit(&scope, EventKind::CallFinished { result, ms: 0 })
            .await?;
    }
    log.emit(&scope, EventKind::RunFinished(summary)).await?;
    Ok(())
}

/// Gives the calls that were begun and cannot be taken up again their results; the others are what is left to do.
pub(super) async fn settle_open_calls(
    run: &RunParts,
    executor: &Executor,
) -> Result<Vec<ToolCall>, StoreError> {
    let log = &run.outlet.log;
    let calls: Vec<OpenCall> = log.with_history(|history| history.open_calls().cloned().collect());
    let alone = is_alone(&calls);
    let mut pending = Vec::new();
    for open in calls {
        if !open.started || can_be_taken_up(executor, &open) {
            pending.push(open.call);
            continue;
        }
        let result = proven(executor, &open, alone).unwrap_or_else(|| told(open));
        run.outlet
            .emit(EventKind::CallFinished { result, ms: 0 })
            .await?;
    }
    executor.earlier.only(&pending);
    Ok(pending)
}

/// Whether no second call was begun that may have put back what the first did.
fn is_alone(calls: &[OpenCall]) -> bool {
    calls.iter().filter(|open| open.started).count() == 1
}

/// The result of a call that was begun, where what is there leaves no doubt about it. Where another may have been begun
/// after it, that one may have put back what it looks for: then it is never proven not done.
fn proven(executor: &Executor, open: &OpenCall, alone: bool) -> Option<ToolResult> {
    if !open.started {
        return None;
    }
    let call = &open.call;
    Some(match executor.happened(call)? {
        Happened::Yes(how) => ToolResult::done(
            call,
            format!(
                "done: {how} (the process ended before it could say so; this was found by looking)"
            ),
        ),
        Happened::No(_) if !alone => return None,
        Happened::No(how) => {
            let text = format!("the process ended before it was done: {how}");
            ToolResult::failed(call, ErrorCategory::Interrupted, &text)
        }
    })
}

/// A call that only looks, and was asking: begun once more with its answers it does nothing twice.
fn can_be_taken_up(executor: &Executor, open: &OpenCall) -> bool {
    let tool = executor.tools.get(&open.call.name);
    tool.is_some_and(|tool| tool.spec().effect == Effect::Read) && !open.answered.is_empty()
}

/// The result of a call that asked in the middle of what it did: the model hears the answer, and that it was stopped.
fn told(open: OpenCall) -> ToolResult {
    let answer = open
        .answered
        .iter()
        .rev()
        .find_map(|(ask, answer)| match (&ask.about, answer) {
            (About::Question(_), Answer::Text { text }) => Some(text.clone()),
            _ => None,
        });
    let why = "the process ended while it waited for an answer";
    match answer {
        Some(text) => {
            let said = format!(
                "{why}; the answer is: {text}; it may have happened in part, so check before you repeat it"
            );
            ToolResult::failed(&open.call, ErrorCategory::Interrupted, &said)
        }
        None => open.settle(why),
    }
}
