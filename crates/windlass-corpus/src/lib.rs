//! Drives a windlass binary as a user would. It reads cases of attacks and of everyday work, gives each its own scratch
//! directory, runs the real product in it, and reports every post-condition that does not hold. Of this workspace it
//! uses only the crate with the scripted model server.
//!
//! It starts processes, opens files and listens on loopback. It never runs a case's command itself: only the product
//! does, and command lines reach the product through files, never through a shell of this crate.
//!
//! The modules: [`case`](Case) parses a case, `schema` checks it, `fixture` and `setup` build the scratch directory,
//! `product` is the only module that knows the interface of windlass, `kind` gives the input to the product, `check`
//! evaluates the post-conditions, and [`Report`] counts.

mod case;
mod check;
mod child;
mod command;
mod facts;
mod fixture;
mod http_client;
mod kind;
mod listen;
mod processes;
mod product;
mod race;
mod report;
mod run;
mod schema;
mod server;
mod setup;
mod tar;
mod terminal;
mod web_server;

pub use case::{Case, Decision};
pub use command::command;
pub use report::{Report, Row, State, Totals};
pub use run::{Options, run};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while it held it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an error with the reason unless the condition holds.
fn holds(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// Returns the strings of a JSON list.
fn words(list: &serde_json::Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
}
