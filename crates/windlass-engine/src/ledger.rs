//! The amounts that a run has spent, compared with its budget. The time limit does not include the time that the run
//! waits for a person.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::BoxFuture;
use windlass_core::budget::{Budget, Limit, Price, Spent, Usage};
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::runtime::{BudgetAccount, EventSink, Hold};
use windlass_core::store::StoreError;

use crate::run::RunOutlet;

/// The budget, the amounts spent and the timer of one run.
pub(crate) struct RunLedger {
    budget: Budget,
    pub(crate) clock: Arc<dyn Clock>,
    started: Duration,
    /// The time that the run had used in earlier processes.
    before: Duration,
    state: Mutex<LedgerState>,
}

#[derive(Default)]
struct LedgerState {
    spent: Spent,
    waited: Duration,
    waiting_since: Option<Duration>,
    time_warned: bool,
    /// Model calls in progress, with the maximum that each may cost.
    held: Vec<(u64, Spent)>,
    holds: u64,
}

impl RunLedger {
    /// Starts the timer. A resumed run has already spent `spent` and used the time `before`.
    pub(crate) fn new(
        budget: Budget,
        clock: Arc<dyn Clock>,
        spent: Spent,
        before: Duration,
    ) -> Self {
        let started = clock.monotonic();
        Self {
            budget,
            clock,
            started,
            before,
            state: Mutex::new(LedgerState {
                spent,
                ..LedgerState::default()
            }),
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn spent(&self) -> Spent {
        self.state.lock().spent
    }

    pub(crate) fn elapsed(&self) -> Duration {
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let waiting = state.waiting_since.map(|since| now.saturating_sub(since));
        let waited = state.waited + waiting.unwrap_or_default();
        self.before + now.saturating_sub(self.started).saturating_sub(waited)
    }

    /// The rest of the time limit; `None` without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.budget
            .seconds
            .map(|max| Duration::from_secs(max).saturating_sub(self.elapsed()))
    }

    /// The time until 80 % of the time limit are used; `None` without a limit or after the warning.
    pub(crate) fn time_to_warning(&self) -> Option<Duration> {
        let mark = Duration::from_secs(self.budget.seconds?).mul_f64(0.8);
        let warned = self.state.lock().time_warned;
        (!warned).then(|| mark.saturating_sub(self.elapsed()))
    }

    /// True if the warning about the time limit is due. Returns true only once.
    pub(crate) fn take_time_warning(&self) -> bool {
        let due = self.time_to_warning().is_some_and(|left| left.is_zero());
        due && !std::mem::replace(&mut self.state.lock().time_warned, true)
    }

    /// Stops the timer until the guard is dropped.
    pub(crate) fn pause_timer(&self) -> TimerPause<'_> {
        let now = self.clock.monotonic();
        self.state.lock().waiting_since.get_or_insert(now);
        TimerPause(self)
    }

    pub(crate) fn iteration_began(&self) {
        self.state.lock().spent.iterations += 1;
    }
}

/// The timer of the run stands still while this guard lives.
pub(crate) struct TimerPause<'a>(&'a RunLedger);

impl Drop for TimerPause<'_> {
    fn drop(&mut self) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        if let Some(since) = state.waiting_since.take() {
            state.waited += now.saturating_sub(since);
        }
    }
}

/// Gives a runtime access to the ledger and logs each amount.
impl BudgetAccount for RunOutlet {
    fn elapsed(&self) -> Duration {
        self.ledger.elapsed()
    }

    fn spent(&self) -> Spent {
        self.ledger.spent()
    }

    fn exceeded(&self) -> Option<Limit> {
        self.ledger
            .budget
            .exceeded(&self.ledger.spent(), self.ledger.elapsed())
    }

    fn admit(&self, input: u64, want: u64, price: Option<Price>) -> Result<u64, Limit> {
        self.ledger
            .budget
            .admit(&self.ledger.spent(), input, want, price)
    }

    fn hold(&self, input: u64, want: u64, price: Option<Price>) -> Result<Hold, Limit> {
        let elapsed = self.ledger.elapsed();
        let mut state = self.ledger.state.lock();
        let mut spent = state.spent;
        state.held.iter().for_each(|(_, held)| spent.add(held));
        if let Some(limit) = self.ledger.budget.exceeded(&spent, elapsed) {
            return Err(limit);
        }
        let output = self.ledger.budget.admit(&spent, input, want, price)?;
        let mut held = Spent {
            steps: 1,
            ..Spent::default()
        };
        let usage = Usage {
            input,
            output,
            ..Usage::default()
        };
        held.settle(usage, price, false);
        state.holds += 1;
        let id = state.holds;
        state.held.push((id, held));
        Ok(Hold { id, output })
    }

    fn release(&self, hold: Hold) {
        self.ledger
            .state
            .lock()
            .held
            .retain(|(id, _)| *id != hold.id);
    }

    fn settle<'a>(
        &'a self,
        usage: Usage,
        price: Option<Price>,
        estimated: bool,
        model: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (before, after) = {
            let mut state = self.ledger.state.lock();
            let before = state.spent;
            state.spent.settle(usage, price, estimated);
            state.spent.steps += 1;
            (before, state.spent)
        };
        Box::pin(async move {
            let spent = EventKind::Spent {
                model: model.to_owned(),
                call: usage,
                cost_micros: price.map(|price| price.cost(usage)),
                estimated,
                total: after,
            };
            self.emit(spent).await?;
            for limit in self.ledger.budget.warned(&before, &after) {
                self.emit(EventKind::BudgetWarned { limit }).await?;
            }
            Ok(())
        })
    }
}
