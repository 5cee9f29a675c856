//! The conformance kit. It drives a windlass binary as a user would, with a scripted model as the vendor and real or
//! hostile agents as runtimes, and says which of them keep the contract. Of ours it knows the scripted model, the
//! command line, the settings and the log; everything it listens on is loopback, and homes are temporary.
//!
//! The tour: [`windlass_scripted`] is the vendor, `place` a person's things, `product` how windlass is spoken to, `contract` what
//! holds for every run, `scenario` what is tried, [`Matrix`] what came of it, and [`speed`] what it costs.

mod child;
mod claims;
mod contract;
mod facts;
mod matrix;
mod place;
mod product;
mod report;
mod run;
mod runtime;
mod scenario;
pub mod speed;

pub use claims::Claims;
pub use matrix::{Cell, Matrix};
pub use product::Product;
pub use report::Report;
pub use run::{Options, Told, run};
pub use runtime::Runtime;
pub use scenario::{ATTACKS, SCENARIOS, Scenario, Theme};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose data is good even when a thread that held it died.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds, or why not.
fn holds(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
