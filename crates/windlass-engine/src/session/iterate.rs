//! One iteration of the runtime, under the time limit of the run. A panic or a hang of the runtime ends the iteration.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use windlass_core::budget::Limit;
use windlass_core::event::EventKind;
use windlass_core::message::ToolCall;
use windlass_core::outcome::{FailReason, Outcome, StopReason};
use windlass_core::run::Run;
use windlass_core::runtime::{EventSink, Job, RuntimeError, Stop};

use super::close::settle_open_calls;
use super::driver::{OpenTransaction, RunParts, StepError};
use crate::executor::describe_panic;
use crate::run::HaltReason;

/// Time that a runtime has to stop after a cancellation.
const GRACE: Duration = Duration::from_millis(900);
/// Maximum number of these periods that running calls get if they must not be interrupted.
const MAX_GRACES: u32 = 60;

/// Runs one iteration, from its start or from the point where it paused.
pub(super) async fn iterate(
    run: &RunParts,
    open: &OpenTransaction,
    iteration: u32,
    started: bool,
) -> Result<(), StepError> {
    let sink = &run.sink;
    let pending = settle_open_calls(run, &open.executor).await?;
    let started_event = || EventKind::IterationStarted {
        iteration,
        foreign_session: None,
    };
    if !started {
        sink.ledger.iteration_began();
        if !run.parts.runtime.begins_itself() {
            sink.emit(started_event()).await?;
        }
    }
    let stop = run_runtime(run, open, iteration, started, pending).await?;
    if stop == Stop::Paused {
        return Err(StepError::Paused);
    }
    // A runtime that logs the start itself may have failed before it did.
    if run.folded(Run::is_iterating) != Some(true) {
        sink.emit(started_event()).await?;
    }
    let output = match &stop {
        Stop::Answered { output } => Some(output.clone()),
        _ => None,
    };
    let finished = EventKind::IterationFinished {
        iteration,
        stop: reason_of(&stop),
        output,
    };
    sink.emit(finished).await?;
    outcome_of(stop).map_or(Ok(()), |outcome| Err(StepError::Ends(outcome)))
}

/// Calls the runtime and returns the reason why it stopped.
async fn run_runtime(
    run: &RunParts,
    OpenTransaction { executor, .. }: &OpenTransaction,
    iteration: u32,
    resumed: bool,
    pending: Vec<ToolCall>,
) -> Result<Stop, StepError> {
    let sink = run.sink.as_ref();
    let Some(request) = run.folded(|run| run.request().clone()) else {
        return Ok(Stop::Cancelled);
    };
    let job = Job {
        prompt: &request,
        iteration,
        resumed,
        pending,
        foreign_session: sink
            .log
            .with_history(|history| history.foreign_session().map(str::to_owned)),
        sink,
        toolbox: executor,
        account: sink,
        files: &executor.files,
        processes: &executor.processes,
        cancel: sink.control.stop.clone(),
    };
    let running = AssertUnwindSafe(run.parts.runtime.run(job)).catch_unwind();
    let mut running = std::pin::pin!(running);
    let ended = tokio::select! {
        biased;
        ended = &mut running => Some(ended),
        () = until_stopped(run) => match sink.control.halted() {
            // The run stays open with its ask, so there is nothing to clean up.
            Some(HaltReason::PausedOnAsk) => None,
            _ => tokio::select! {
                biased;
                ended = &mut running => Some(ended),
                () = grace(run) => None,
            },
        },
    };
    let failed = |detail| Stop::Failed {
        reason: FailReason::Runtime,
        detail,
    };
    let stop = match ended {
        Some(Ok(Ok(stop))) => stop,
        Some(Ok(Err(RuntimeError::Store(err)))) => return Err(err.into()),
        Some(Ok(Err(RuntimeError::Other(detail)))) => failed(detail),
        Some(Err(panic)) => failed(describe_panic(panic.as_ref())),
        None => Stop::Cancelled,
    };
    match (sink.control.halted(), stop) {
        (Some(HaltReason::PausedOnAsk), _) | (Some(HaltReason::PausedNow), Stop::Cancelled) => {
            Ok(Stop::Paused)
        }
        (Some(HaltReason::TimedOut), Stop::Cancelled) => {
            Ok(Stop::OverBudget { limit: Limit::Time })
        }
        (_, stop) => Ok(stop),
    }
}

/// Waits for the grace period of a cancelled runtime, and for running calls that must not be interrupted.
async fn grace(run: &RunParts) {
    for _ in 0..MAX_GRACES {
        run.parts.clock.sleep(GRACE).await;
        if run.sink.uncancellable.load(Ordering::Acquire) == 0 {
            return;
        }
    }
}

/// Returns when the run is stopped or its time limit is reached. Also logs the warning about the time limit.
pub(super) async fn until_stopped(run: &RunParts) {
    let sink = &run.sink;
    let stopped = sink.control.stop.cancelled();
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let Some(left) = sink.ledger.time_left() else {
            return stopped.await;
        };
        if left.is_zero() {
            return sink.control.halt(HaltReason::TimedOut);
        }
        // The timer stops while the run waits for a person, so compute the rest again after each sleep.
        let (sleep, warn) = sink
            .ledger
            .time_to_warning()
            .map_or((left, false), |until| (until.min(left), true));
        tokio::select! {
            () = &mut stopped => return,
            () = run.parts.clock.sleep(sleep) => {}
        }
        if warn && sink.ledger.take_time_warning() {
            // If the store fails here, it also fails at the next event, which ends the run.
            let warned = EventKind::BudgetWarned { limit: Limit::Time };
            let _ = sink.emit(warned).await;
        }
    }
}

/// The outcome of a run whose runtime stopped for this reason; `None` if its changes are judged next.
fn outcome_of(stop: Stop) -> Option<Outcome> {
    Some(match stop {
        Stop::Done | Stop::Answered { .. } | Stop::Paused => return None,
        Stop::Refused { category, detail } => Outcome::Refused { category, detail },
        Stop::OverBudget { limit: Limit::Time } => Outcome::TimedOut,
        Stop::OverBudget {
            limit: Limit::Steps,
        } => Outcome::MaxSteps,
        Stop::OverBudget { limit } => Outcome::BudgetExceeded { limit },
        Stop::Failed { reason, detail } => Outcome::failed(reason, detail),
        Stop::Provider(err) => Outcome::provider_failed(&err),
        Stop::Cancelled => Outcome::Cancelled,
    })
}

fn reason_of(stop: &Stop) -> StopReason {
    match stop {
        Stop::Done | Stop::Answered { .. } => StopReason::Done,
        Stop::Refused { .. } => StopReason::Refused,
        Stop::OverBudget { .. } => StopReason::OverBudget,
        Stop::Failed { .. } => StopReason::Failed,
        Stop::Provider(_) => StopReason::Provider,
        Stop::Cancelled => StopReason::Cancelled,
        Stop::Paused => StopReason::Paused,
    }
}
