//! One try of the runtime, under the time limit, whatever it does.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use windlass_core::budget::Limit;
use windlass_core::event::EventKind;
use windlass_core::message::ToolCall;
use windlass_core::outcome::{FailReason, Outcome, StopReason};
use windlass_core::run::Run;
use windlass_core::runtime::{Job, Outlet, RuntimeError, Stop};

use super::close::settle_open_calls;
use super::driver::{OpenPlace, RunParts, StepError};
use crate::executor::describe_panic;
use crate::run::Halt;

/// How long a runtime may take to notice that it was told to end.
const GRACE: Duration = Duration::from_millis(900);
/// How many times that for calls that must not be torn.
const MAX_GRACES: u32 = 60;

/// Lets the runtime try, from the first event of the try or from where it waited for a person.
pub(super) async fn iterate(
    run: &RunParts,
    place: &OpenPlace,
    iteration: u32,
    started: bool,
) -> Result<(), StepError> {
    let outlet = &run.outlet;
    let pending = settle_open_calls(run, &place.executor).await?;
    let started_event = || EventKind::IterationStarted {
        iteration,
        foreign_session: None,
    };
    if !started {
        outlet.books.iteration_began();
        if !run.parts.runtime.begins_itself() {
            outlet.emit(started_event()).await?;
        }
    }
    let stop = run_runtime(run, place, iteration, pending).await?;
    if matches!(stop, Stop::Paused { .. }) {
        return Err(StepError::Paused);
    }
    // One that never came to say that it began has begun all the same.
    if run.folded(Run::is_iterating) != Some(true) {
        outlet.emit(started_event()).await?;
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
    outlet.emit(finished).await?;
    outcome_of(stop).map_or(Ok(()), |outcome| Err(StepError::Ends(outcome)))
}

/// How the runtime stopped.
async fn run_runtime(
    run: &RunParts,
    OpenPlace { executor, .. }: &OpenPlace,
    iteration: u32,
    pending: Vec<ToolCall>,
) -> Result<Stop, StepError> {
    let outlet = run.outlet.as_ref();
    let Some(request) = run.folded(|run| run.request().clone()) else {
        return Ok(Stop::Cancelled);
    };
    let job = Job {
        prompt: &request,
        iteration,
        pending,
        foreign_session: outlet
            .log
            .with_history(|history| history.foreign_session().map(str::to_owned)),
        outlet,
        toolbox: executor,
        account: outlet,
        files: &executor.files,
        processes: &executor.processes,
        cancel: outlet.control.stop.clone(),
    };
    let running = AssertUnwindSafe(run.parts.runtime.run(job)).catch_unwind();
    let mut running = std::pin::pin!(running);
    let ended = tokio::select! {
        biased;
        ended = &mut running => Some(ended),
        () = until_told_to_end(run) => match outlet.control.halted() {
            // Nothing is to be cleaned up: the run stays open around the ask.
            Some(Halt::Paused(_)) => None,
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
    match (outlet.control.halted(), stop) {
        (Some(Halt::Paused(ask)), _) => Ok(Stop::Paused { ask }),
        (Some(Halt::TimedOut), Stop::Cancelled) => Ok(Stop::OverBudget { limit: Limit::Time }),
        (_, stop) => Ok(stop),
    }
}

/// How long a runtime may still take: a moment, and as long as a call runs that must not be torn.
async fn grace(run: &RunParts) {
    for _ in 0..MAX_GRACES {
        run.parts.clock.sleep(GRACE).await;
        if run.outlet.untorn.load(Ordering::Acquire) == 0 {
            return;
        }
    }
}

/// Returns when the run was told to end, or its time is up.
pub(super) async fn until_told_to_end(run: &RunParts) {
    let outlet = &run.outlet;
    let told = outlet.control.stop.cancelled();
    let mut told = std::pin::pin!(told);
    loop {
        let Some(left) = outlet.books.time_left() else {
            return told.await;
        };
        if left.is_zero() {
            return outlet.control.halt(Halt::TimedOut);
        }
        // Waiting for a person stops the clock, so what is left is looked at again.
        let (nap, warn) = outlet
            .books
            .time_to_warning()
            .map_or((left, false), |until| (until.min(left), true));
        tokio::select! {
            () = &mut told => return,
            () = run.parts.clock.sleep(nap) => {}
        }
        if warn && outlet.books.warn_about_time() {
            // A store that fails here fails at the next event, where it ends the run.
            let warned = EventKind::BudgetWarned { limit: Limit::Time };
            let _ = outlet.emit(warned).await;
        }
    }
}

/// The outcome of a run whose try stopped like this; none when its changes are judged next.
fn outcome_of(stop: Stop) -> Option<Outcome> {
    Some(match stop {
        Stop::Done | Stop::Answered { .. } | Stop::Paused { .. } => return None,
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
        Stop::Paused { .. } => StopReason::Paused,
    }
}
