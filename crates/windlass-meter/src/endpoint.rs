//! The model endpoint as a runtime sees it, and the reasons why it stops serving.

use windlass_core::budget::{Limit, Usage};
use windlass_core::enclosure::Enclosure;
use windlass_core::provider::ProviderError;
use windlass_core::runtime::{BudgetAccount, EventSink};
use windlass_core::store::StoreError;
use windlass_core::{BoxFuture, CancellationToken};

/// Receives and counts the model requests of a run.
pub trait Endpoint: Send + Sync {
    /// Returns the key that the agent must send. It is valid only here.
    fn key(&self) -> String;
    /// Serves connections from the enclosure. Returns when a call was refused because of a limit, when the model is not
    /// available, or, with `None`, when `done` is cancelled. By then the agent has received the refusal, and all calls
    /// are booked: pending calls are awaited, not dropped.
    fn serve<'a>(
        &'a self,
        place: &'a dyn Enclosure,
        ledger: Ledger<'a>,
        done: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Trip>, StoreError>>;
    /// Returns the error of the vendor's last answer, if it failed.
    fn failing(&self) -> Option<ProviderError> {
        None
    }
    /// Returns whether the model refused the last request for work. Many agents report that only as text.
    fn declined(&self) -> bool {
        false
    }
    /// Returns the usage since the last time this was called.
    fn take_usage(&self) -> Usage;
}

/// The account and the log in which model calls are booked.
#[derive(Clone, Copy)]
pub struct Ledger<'a> {
    /// The budget that calls are reserved and booked in.
    pub account: &'a dyn BudgetAccount,
    /// The log for warnings and waits.
    pub sink: &'a dyn EventSink,
}

/// The reason why no further model call is served.
#[derive(Debug, Clone, PartialEq)]
pub enum Trip {
    /// The next call would exceed this limit.
    OverBudget(Limit),
    /// The model is not available.
    Provider(ProviderError),
    /// The model refused, and the agent repeated the request again and again.
    Declined,
}
