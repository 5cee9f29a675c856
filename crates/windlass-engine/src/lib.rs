//! The engine: sessions, runs, iterations and steps. `windlass-core` decides, this crate performs the IO.
//!
//! The modules, in the order of one run:
//!
//! - `session`: [`Engine`] opens a session and starts runs; `session/driver.rs` drives a run to exactly one terminal event.
//! - `run`: the options, the handle and the event sink of one run.
//! - `native`: [`NativeRuntime`], the built-in agent loop, drives the pure `Turn` of the core.
//! - `compaction`: summarises old messages if the conversation no longer fits into the model's window.
//! - `executor`: judges, logs and executes tool calls.
//! - `ledger`: the amounts that the run has spent, compared with its budget.
//! - `log`: numbers, writes and displays every event.
//!
//! The crate `windlass-testing` has fakes of the ports for tests.
//!
//! The engine names no vendor, no tool and no user interface, and reaches the machine only through ports. It does not
//! change the process that embeds it: it prints nothing, sets up no logging, signal handler or panic hook, changes
//! neither the current directory nor the environment, and has no static state. `examples/ports` has an example for each
//! port and each method; `docs/engine.md` describes the guarantees of the methods.
//!
//! An embedder writes the following code, with a real store, workspace and provider in place of the fakes:
//!
//! ```
//! use std::sync::Arc;
//! use windlass_core::event::EventKind;
//! use windlass_core::message::Message;
//! use windlass_core::outcome::{Outcome, RunSummary};
//! use windlass_core::runtime::RunMode;
//! use windlass_testing::{ManualClock, MemoryArtifacts, MemoryStore, MemoryWorkspaces, ScriptedProvider, says};
//! use windlass_engine::{Engine, NativeOptions, NativeRuntime, OpenSession, RunOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(ManualClock::default());
//! let provider = Arc::new(ScriptedProvider::new([says("the tests pass now")]));
//! let options = NativeOptions { model: "any".into(), system: "Be brief.".into(), ..NativeOptions::default() };
//! let engine = Engine::builder()
//!     .runtime(Arc::new(NativeRuntime::new(provider, clock.clone(), options)))
//!     .store(Arc::new(MemoryStore::default()))
//!     .workspaces(Arc::new(MemoryWorkspaces::default()))
//!     .artifacts(Arc::new(|_| Arc::new(MemoryArtifacts::default())))
//!     .clock(clock)
//!     .build()?;
//! let session = engine.open(OpenSession::New, RunMode::Full).await?;
//! let mut run = session.run(Message::user("make the tests pass"), RunOptions::default())?;
//! let mut outcome = None;
//! while let Some(event) = run.next().await {
//!     if let EventKind::RunFinished(RunSummary { outcome: ended, .. }) = event.kind {
//!         outcome = Some(ended);
//!     }
//! }
//! assert_eq!(outcome, Some(Outcome::Completed));
//! # Ok(())
//! # }
//! ```

mod compaction;
mod executor;
mod facade;
mod ledger;
mod load_history;
mod log;
mod native;
mod pending_asks;
mod redact;
mod run;
mod schema;
mod session;

pub use facade::{AnswerRequest, Request, ResultFold, RunResult};
pub use load_history::load_history;
pub use native::{Instructions, NativeOptions, NativeRuntime};
pub use pending_asks::{NoSuchAsk, OnAsk};
pub use run::{Canceller, Contract, Pauser, RunControl, RunHandle, RunOptions};
pub use schema::{check_arguments, check_output, check_schema};
pub use session::{
    ArtifactsOf, Delivery, Engine, EngineBuilder, EngineError, OpenSession, QueueRequest, Session,
};
