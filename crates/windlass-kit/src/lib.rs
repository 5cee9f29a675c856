//! The conformance kit. It drives a windlass binary as a user would, with a scripted model as the vendor and real or
//! hostile agents as runtimes, and says which of them keep the contract. It knows no other crate of ours, only the
//! command line, the settings and the log; everything it listens on is loopback, and homes are temporary.

pub mod model;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose data is good even when a thread that held it died.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
