//! Sessions, runs, iterations and steps: the ring that acts on what `windlass-core` decides.
//!
//! A tour, in the order of one run: [`Engine`] (`session`) opens a session and starts runs; `run` drives iterations to
//! exactly one terminal event; [`NativeRuntime`] (`native`) drives the pure `Turn`; `executor` judges, logs and runs
//! calls; `account` keeps the budget; `log` numbers, writes and shows every event.
//! [`testing`] has the fakes that embedders need too.
//!
//! It names no vendor, no tool and no view, and reaches the machine only through ports.

mod account;
mod asking;
mod executor;
mod log;
mod native;
mod run;
mod schema;
mod session;
pub mod testing;

pub use asking::{NoSuchAsk, OnAsk};
pub use native::{NativeOptions, NativeRuntime};
pub use run::{RunHandle, RunOptions};
pub use session::{ArtifactsOf, Engine, EngineBuilder, EngineError, Open, Session};
