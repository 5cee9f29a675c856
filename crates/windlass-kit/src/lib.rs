//! The conformance kit. It runs a windlass binary as a user would, with a scripted model as the vendor and real or
//! hostile agents as runtimes, and reports which of them keep the contract. It uses only the command line, the settings
//! and the session log of windlass. It listens only on loopback addresses, and home directories are temporary.
//!
//! The modules: [`windlass_scripted`] is the vendor, `scratch_dir` has the user's repository and home, `product` starts
//! windlass, `contract` checks every run, `scenario` has the test scenarios, [`Matrix`] their results, and [`speed`]
//! measures the overhead.

mod child;
mod claims;
mod contract;
mod facts;
mod matrix;
mod product;
mod report;
mod run;
mod runtime;
mod scenario;
mod scratch_dir;
pub mod speed;

pub use claims::Claims;
pub use matrix::{Matrix, MatrixCell};
pub use product::Product;
pub use report::KitReport;
pub use run::{CellResult, TestSelection, run};
pub use runtime::KitRuntime;
pub use scenario::{ATTACKS, SCENARIOS, Scenario, Theme};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while it held the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error message if the condition does not hold.
fn holds(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
