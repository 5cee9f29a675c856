//! Closes calls and runs that a dead process left open. A call that started is never repeated: either the files prove that
//! it is done, or it is closed with a result that says what is unknown.

use windlass_core::ask::{About, Answer, AnsweredBy};
use windlass_core::event::EventKind;
use windlass_core::history::OpenCall;
use windlass_core::id::TraceId;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::run::Run;
use windlass_core::runtime::EventSink;
use windlass_core::store::StoreError;
use windlass_core::tool::{Effect, Happened};
use windlass_core::workspace::FileChange;

use super::driver::RunParts;
use crate::executor::Executor;
use crate::log::{EventLog, Scope};

/// The reason of a call without a result, if its process died.
const PROCESS_ENDED: &str = "the process ended while it ran";
/// The reason of a call without a result, if its ask was abandoned.
const ABANDONED: &str = "a new prompt came before it was answered";
/// The reason of a call without a result, if its run was paused and not resumed.
const NOT_RESUMED: &str = "the run was paused and not resumed";
/// The reason of a call without a result, if a user closed its run.
const CLOSED: &str = "the run was cancelled";
/// The reason of a started call without a result, if its run pauses.
const PAUSED: &str = "the run was paused while it ran";

/// Closes a run that will not be resumed: first its asks, then its calls, then the run itself. If the new run works on the
/// same files, `executor` is present and looks there for the effects of the calls. `outcome` replaces the outcome of a run
/// that was left open.
pub(super) async fn close(
    log: &EventLog,
    trace: &TraceId,
    run: Run,
    in_copy: Vec<FileChange>,
    executor: Option<&Executor>,
    outcome: Option<Outcome>,
) -> Result<(), StoreError> {
    let (asks, calls, totals, files) = log.with_history(|history| {
        let asks = history.open_asks().iter();
        let asks: Vec<_> = asks.map(|ask| ask.id.clone()).collect();
        let calls: Vec<OpenCall> = history.open_calls().cloned().collect();
        // The files of the copy are more accurate than the logged changes.
        let files = match in_copy.is_empty() {
            true => history.run_files(),
            false => in_copy,
        };
        (asks, calls, history.run_spent(), files)
    });
    let why = if outcome.is_some() {
        CLOSED
    } else if run.pause().is_some() {
        NOT_RESUMED
    } else if asks.is_empty() {
        PROCESS_ENDED
    } else {
        ABANDONED
    };
    let left_open = run.left_open();
    let summary = RunSummary {
        outcome: outcome.unwrap_or_else(|| left_open.outcome.clone()),
        totals,
        files,
        ..left_open
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
            who: None,
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

/// Logs results for the started calls that cannot continue. Returns the other open calls, which are still to be executed.
pub(super) async fn settle_open_calls(
    run: &RunParts,
    executor: &Executor,
) -> Result<Vec<ToolCall>, StoreError> {
    let log = &run.sink.log;
    let calls: Vec<OpenCall> = log.with_history(|history| history.open_calls().cloned().collect());
    let alone = is_alone(&calls);
    let mut pending = Vec::new();
    for open in calls {
        if !open.started || can_continue(executor, &open) {
            pending.push(open.call);
            continue;
        }
        let result =
            proven(executor, &open, alone).unwrap_or_else(|| interrupted_with_answer(open));
        run.sink
            .emit(EventKind::CallFinished { result, ms: 0 })
            .await?;
    }
    executor.prior_answers.retain_calls(&pending);
    Ok(pending)
}

/// Logs results for the started calls of a run that pauses. Calls that have not started stay open.
pub(super) async fn interrupt_started_calls(
    run: &RunParts,
    executor: &Executor,
) -> Result<(), StoreError> {
    let log = &run.sink.log;
    let calls: Vec<OpenCall> = log.with_history(|history| history.open_calls().cloned().collect());
    let alone = is_alone(&calls);
    for open in calls.into_iter().filter(|open| open.started) {
        let result = proven(executor, &open, alone).unwrap_or_else(|| open.settle(PAUSED));
        run.sink
            .emit(EventKind::CallFinished { result, ms: 0 })
            .await?;
    }
    Ok(())
}

/// True if only one call started, so that no other call can have undone its effect.
fn is_alone(calls: &[OpenCall]) -> bool {
    calls.iter().filter(|open| open.started).count() == 1
}

/// The result of a started call, if the files prove it. If other calls started too, they may have undone its effect; in that
/// case the call is never reported as not done.
fn proven(executor: &Executor, open: &OpenCall, alone: bool) -> Option<ToolResult> {
    if !open.started {
        return None;
    }
    let call = &open.call;
    Some(match executor.happened(call)? {
        Happened::Yes(how) => ToolResult::done(
            call,
            format!("done: {how} (the process ended before it reported this; the files show it)"),
        ),
        Happened::No(_) if !alone => return None,
        Happened::No(how) => {
            let text = format!("the process ended before it was done: {how}");
            ToolResult::failed(call, ErrorCategory::Interrupted, &text)
        }
    })
}

/// True if the call only reads and paused on a question: executing it again with the answer has no double effect.
fn can_continue(executor: &Executor, open: &OpenCall) -> bool {
    let tool = executor.tools.get(&open.call.name);
    tool.is_some_and(|tool| tool.spec().effect == Effect::Read) && !open.answered.is_empty()
}

/// The result of a call that asked a question in the middle of its work: the answer, and that the call was interrupted.
fn interrupted_with_answer(open: OpenCall) -> ToolResult {
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
            let text = format!(
                "{why}; the answer is: {text}; it may have happened in part, so check before you repeat it"
            );
            ToolResult::failed(&open.call, ErrorCategory::Interrupted, &text)
        }
        None => open.settle(why),
    }
}
