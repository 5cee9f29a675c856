//! Drives a windlass binary as a user would; knows no other crate of ours but the server of tests. It takes cases of attack and of everyday
//! work, gives each a scratch directory of its own, runs the real product in it, and says what did not hold.
//!
//! It starts processes, opens files and listens on loopback by nature. It never runs a case's command itself: only
//! the product does, and command lines reach it through files, never through a shell of ours.
//!
//! The tour: [`case`](Case) reads the schema, `fixture` and `setup` build the place, `product` is the one place that
//! knows how windlass is spoken to, `kind` feeds the input in, `check` holds the post-conditions against what is
//! known afterwards, and [`Report`] counts.

mod case;
mod census;
mod check;
mod child;
mod command;
mod facts;
mod fixture;
mod kind;
mod listen;
mod product;
mod race;
mod report;
mod run;
mod schema;
mod server;
mod setup;
mod tar;
mod terminal;

pub use case::{Case, Decision};
pub use command::command;
pub use report::{Report, Row, State, Totals};
pub use run::{Options, run};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose data is good even when a thread that held it died.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds, or why not.
fn holds(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// The words of a JSON list.
fn words(list: &serde_json::Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
}
