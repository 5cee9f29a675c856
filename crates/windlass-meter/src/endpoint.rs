//! The model endpoint as a runtime sees it, and why it stops serving.

use windlass_core::budget::{Limit, Usage};
use windlass_core::enclosure::Enclosure;
use windlass_core::provider::ProviderError;
use windlass_core::runtime::{Account, Outlet};
use windlass_core::store::StoreError;
use windlass_core::{BoxFuture, CancellationToken};

/// Where the model traffic of a run goes, and who counts it.
pub trait Endpoint: Send + Sync {
    /// What the agent has to show there; it opens nothing else.
    fn key(&self) -> String;
    /// Serves connections of the place until a call was refused because of a limit, the model cannot be had, or `done` is
    /// cancelled, which gives `None`. A refusal has reached the agent by then, and what was under way is booked: it is
    /// waited for, not dropped.
    fn serve<'a>(
        &'a self,
        place: &'a dyn Enclosure,
        ledger: Ledger<'a>,
        done: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Trip>, StoreError>>;
    /// What the last answer of the model's vendor failed with, if it did.
    fn failing(&self) -> Option<ProviderError> {
        None
    }
    /// Whether the model declined the last time it was asked for work. Many agents only say so in words.
    fn declined(&self) -> bool {
        false
    }
    /// What went through since it was last asked.
    fn take_usage(&self) -> Usage;
}

/// Where model calls are booked.
#[derive(Clone, Copy)]
pub struct Ledger<'a> {
    /// What may be spent.
    pub account: &'a dyn Account,
    /// Where warnings and waits are said.
    pub outlet: &'a dyn Outlet,
}

/// Why no further model call is served.
#[derive(Debug, Clone, PartialEq)]
pub enum Trip {
    /// The next call would cross this limit.
    OverBudget(Limit),
    /// The model cannot be had.
    Provider(ProviderError),
    /// The model declined, and the agent asked it the same again and again.
    Declined,
}
