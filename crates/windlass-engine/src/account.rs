//! What a run may still spend: the budget of `windlass-core` applied to the running totals and the clock.
//! Time spent waiting for a person does not count.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::BoxFuture;
use windlass_core::budget::{Budget, Limit, Price, Spent, Usage};
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::runtime::{Account, Hold, Outlet};
use windlass_core::store::StoreError;

use crate::run::RunOutlet;

/// The books of one run.
pub(crate) struct Books {
    budget: Budget,
    pub(crate) clock: Arc<dyn Clock>,
    started: Duration,
    /// What the run had taken before it was gone on with.
    before: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spent: Spent,
    waited: Duration,
    waiting_since: Option<Duration>,
    time_warned: bool,
    /// Calls that are under way, at what they may come to.
    held: Vec<(u64, Spent)>,
    holds: u64,
}

impl Books {
    /// The books of a run, which may have spent something before it came here.
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
            state: Mutex::new(State {
                spent,
                ..State::default()
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

    /// What is left of the time limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.budget
            .seconds
            .map(|max| Duration::from_secs(max).saturating_sub(self.elapsed()))
    }

    /// How long until four fifths of the time are used; `None` when that was said or there is no limit.
    pub(crate) fn time_to_warning(&self) -> Option<Duration> {
        let mark = Duration::from_secs(self.budget.seconds?).mul_f64(0.8);
        let warned = self.state.lock().time_warned;
        (!warned).then(|| mark.saturating_sub(self.elapsed()))
    }

    /// Whether it is time to say so; true once.
    pub(crate) fn warn_about_time(&self) -> bool {
        let due = self.time_to_warning().is_some_and(|left| left.is_zero());
        due && !std::mem::replace(&mut self.state.lock().time_warned, true)
    }

    /// Stops the clock while a person thinks, until the guard is dropped.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        let now = self.clock.monotonic();
        self.state.lock().waiting_since.get_or_insert(now);
        Waiting(self)
    }

    pub(crate) fn iteration_began(&self) {
        self.state.lock().spent.iterations += 1;
    }
}

/// While this lives, time does not count.
pub(crate) struct Waiting<'a>(&'a Books);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state.lock();
        if let Some(since) = state.waiting_since.take() {
            state.waited += now.saturating_sub(since);
        }
    }
}

/// The account as a runtime sees it: the books, and the log that hears of every booking.
impl Account for RunOutlet {
    fn elapsed(&self) -> Duration {
        self.books.elapsed()
    }

    fn spent(&self) -> Spent {
        self.books.spent()
    }

    fn exceeded(&self) -> Option<Limit> {
        self.books
            .budget
            .exceeded(&self.books.spent(), self.books.elapsed())
    }

    fn admit(&self, input: u64, want: u64, price: Option<Price>) -> Result<u64, Limit> {
        self.books
            .budget
            .admit(&self.books.spent(), input, want, price)
    }

    fn hold(&self, input: u64, want: u64, price: Option<Price>) -> Result<Hold, Limit> {
        let elapsed = self.books.elapsed();
        let mut state = self.books.state.lock();
        let mut spent = state.spent;
        state.held.iter().for_each(|(_, held)| spent.add(held));
        if let Some(limit) = self.books.budget.exceeded(&spent, elapsed) {
            return Err(limit);
        }
        let output = self.books.budget.admit(&spent, input, want, price)?;
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
        self.books
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
            let mut state = self.books.state.lock();
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
            for limit in self.books.budget.warned(&before, &after) {
                self.emit(EventKind::BudgetWarned { limit }).await?;
            }
            Ok(())
        })
    }
}
