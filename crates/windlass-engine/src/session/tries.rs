//! Iterations: the runtime tries, the validators judge, the findings go back, until it passes, nothing improves or a
//! limit is reached. The conversation stays the same one, so that what is cached stays cached.

use std::collections::BTreeSet;

use windlass_core::budget::Limit;
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::runtime::{Outlet, RunMode, Stop};
use windlass_core::workspace::Transaction;

use super::drive::{Ended, Traces, Work, outcome_of, reason_of};
use super::going_on::Rest;
use super::judging::{Judged, Objection};
use crate::executor::Executor;

/// Findings that go back to the model.
const MAX_FINDINGS: usize = 50;
/// Earlier findings that are named once more, so that a try does not bring them back.
const MAX_EARLIER: usize = 20;
/// Characters of the request that are repeated; all of it is in the conversation.
const MAX_REQUEST: usize = 4_000;

impl Work {
    pub(super) async fn iterate(
        &self,
        executor: &Executor,
        transaction: &dyn Transaction,
        traces: &mut Traces,
    ) -> Result<Outcome, Ended> {
        let mut prompt = self.prompt.clone();
        let mut earlier: Vec<BTreeSet<String>> = Vec::new();
        if let Some(refused) = self.refused_to_land() {
            return Ok(refused);
        }
        let mut rest = self.rest(executor).await?;
        let first = rest.as_ref().map_or(1, |rest| rest.iteration);
        for iteration in first.. {
            let rest = rest.take();
            if !rest.as_ref().is_some_and(|rest| rest.tried) {
                let outcome = self
                    .try_once(executor, &prompt, iteration, rest, traces)
                    .await?;
                if outcome != Outcome::Completed {
                    return Ok(outcome);
                }
            }
            let objections = match self.judged(transaction, traces).await? {
                Judged::Passed => return Ok(self.within_limits()),
                Judged::NothingChanged if self.may_change_nothing(traces) => {
                    return Ok(self.within_limits());
                }
                Judged::NothingChanged => return Ok(nothing_changed()),
                Judged::Conflict(detail) => {
                    return Ok(Outcome::failed(FailReason::LandingConflict, detail));
                }
                Judged::Objected(objections) => objections,
            };
            let found: BTreeSet<String> = objections.iter().flat_map(Objection::lines).collect();
            if earlier.last() == Some(&found) {
                let detail = format!(
                    "nothing improved: two tries ended with the same findings:\n{}",
                    list(&objections)
                );
                return Ok(Outcome::failed(FailReason::Validation, detail));
            }
            if self
                .outlet
                .books
                .budget()
                .iterations
                .is_some_and(|max| iteration >= max)
            {
                let detail = format!(
                    "the checks still fail after {iteration} iterations:\n{}",
                    list(&objections)
                );
                return Ok(Outcome::failed(FailReason::Validation, detail));
            }
            prompt = Message::internal(retry_prompt(&self.prompt.text(), &objections, &earlier));
            earlier.push(found);
            self.outlet.emit(EventKind::said(prompt.clone())).await?;
        }
        Ok(Outcome::BudgetExceeded {
            limit: Limit::Iterations,
        })
    }

    /// One try of the runtime, from its first event or from where it waited.
    async fn try_once(
        &self,
        executor: &Executor,
        prompt: &Message,
        iteration: u32,
        rest: Option<Rest>,
        traces: &mut Traces,
    ) -> Result<Outcome, Ended> {
        if rest.is_none() {
            self.outlet.books.iteration_began();
            if !self.parts.runtime.begins_itself() {
                self.outlet
                    .emit(EventKind::IterationStarted {
                        iteration,
                        foreign_session: None,
                    })
                    .await?;
            }
        }
        let pending = rest.map_or_else(Vec::new, |rest| rest.pending);
        let stop = self.iteration(executor, prompt, iteration, pending).await?;
        if matches!(stop, Stop::Paused { .. }) {
            return Err(Ended::Open);
        }
        // One that never came to say that it began has begun all the same.
        if self
            .outlet
            .log
            .with_history(|history| history.iteration() != Some(iteration))
        {
            self.outlet
                .emit(EventKind::IterationStarted {
                    iteration,
                    foreign_session: None,
                })
                .await?;
        }
        self.outlet
            .emit(EventKind::IterationFinished {
                iteration,
                stop: reason_of(&stop),
            })
            .await?;
        if let Stop::Answered { output } = &stop {
            traces.output = Some(output.clone());
        }
        outcome_of(stop)
    }

    /// Work that passed, and whether it cost more than it was allowed to.
    fn within_limits(&self) -> Outcome {
        let books = &self.outlet.books;
        match books.budget().overrun(&books.spent(), books.elapsed()) {
            Some(limit) => Outcome::CompletedWithLimitExceeded { limit },
            None => Outcome::Completed,
        }
    }

    fn may_change_nothing(&self, traces: &Traces) -> bool {
        // Who asked for an answer got one; who lands a kept run with nothing but commits gets those.
        // A proposal is an answer, too; who writes its edits itself has to have written some.
        let answers = self.mode == RunMode::Analysis || traces.output.is_some();
        self.contract.allow_no_changes || self.contract.ordered || answers
    }
}

fn nothing_changed() -> Outcome {
    Outcome::failed(
        FailReason::NoChanges,
        "no file was changed; say more exactly what is to be done, or give --allow-no-changes where an answer is enough",
    )
}

/// What the model reads after a try that did not pass.
fn retry_prompt(request: &str, objections: &[Objection], earlier: &[BTreeSet<String>]) -> String {
    let mut text = format!(
        "The checks do not pass yet. Fix this:\n{}\n",
        list(objections)
    );
    let now: BTreeSet<String> = objections.iter().flat_map(Objection::lines).collect();
    let before: BTreeSet<&String> = earlier
        .iter()
        .flatten()
        .filter(|line| !now.contains(*line))
        .collect();
    if !before.is_empty() {
        text.push_str("\nEarlier tries failed with this; do not bring it back:\n");
        for line in before.iter().take(MAX_EARLIER) {
            text.push_str(&format!("- {line}\n"));
        }
    }
    let cut = request
        .char_indices()
        .nth(MAX_REQUEST)
        .map_or(request.len(), |(at, _)| at);
    text.push_str("\nThe request was:\n");
    text.push_str(&request[..cut]);
    if cut < request.len() {
        text.push_str(" …");
    }
    text
}

fn list(objections: &[Objection]) -> String {
    let mut text = String::new();
    let mut room = MAX_FINDINGS;
    for objection in objections {
        text.push_str(&format!("{}:\n", objection.validator));
        for finding in objection.findings.iter().take(room) {
            text.push_str(&format!("- {finding}\n"));
        }
        let left_out = objection.findings.len().saturating_sub(room);
        if left_out > 0 {
            text.push_str(&format!("- and {left_out} more\n"));
        }
        room = room.saturating_sub(objection.findings.len());
    }
    text.truncate(text.trim_end().len());
    text
}
