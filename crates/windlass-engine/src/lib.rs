//! Sessions, runs, iterations and steps: the ring that acts on what `windlass-core` decides.
//!
//! A tour, in the order of one run: [`Engine`] (`session`) opens a session and starts runs; `run` drives iterations to
//! exactly one terminal event; [`NativeRuntime`] (`native`) drives the pure `Turn`; `compact` makes room when the
//! messages no longer fit; `executor` judges, logs and runs calls; `account` keeps the budget; `log` numbers, writes and shows every event.
//! The crate `windlass-testing` has fakes of the ports for tests.
//!
//! It names no vendor, no tool and no view, and reaches the machine only through ports. It is a guest in its host's
//! process: no printing, no logging set-up, no signal handler, no panic hook, no directory, no variable, no static.
//! `examples/ports` has an example for each port and each call, `docs/engine.md` says what the calls promise.
//!
//! What an embedder writes; the fakes stand where the real store, workspace and provider would:
//!
//! ```
//! use std::sync::Arc;
//! use windlass_core::event::EventKind;
//! use windlass_core::message::Message;
//! use windlass_core::outcome::{Outcome, RunSummary};
//! use windlass_core::runtime::RunMode;
//! use windlass_testing::{ManualClock, MemoryArtifacts, MemoryStore, MemoryWorkspaces, ScriptedProvider, says};
//! use windlass_engine::{Engine, NativeOptions, NativeRuntime, Open, RunOptions};
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
//! let session = engine.open(Open::New, RunMode::Full).await?;
//! let mut run = session.run(Message::user("make the tests pass"), RunOptions::default())?;
//! let mut outcome = None;
//! while let Some(event) = run.next().await {
//!     if let EventKind::RunFinished(RunSummary { outcome: how, .. }) = event.kind {
//!         outcome = Some(how);
//!     }
//! }
//! assert_eq!(outcome, Some(Outcome::Completed));
//! # Ok(())
//! # }
//! ```

mod account;
mod asking;
mod compact;
mod executor;
mod facade;
mod load;
mod log;
mod native;
mod redact;
mod run;
mod schema;
mod session;

pub use asking::{NoSuchAsk, OnAsk};
pub use facade::{AnswerRequest, Request, ResultFold, RunResult};
pub use load::load_history;
pub use native::{Instructions, NativeOptions, NativeRuntime};
pub use run::{Canceller, Contract, RunHandle, RunOptions};
pub use schema::{check_arguments, check_output, check_schema};
pub use session::{ArtifactsOf, Delivery, Engine, EngineBuilder, EngineError, Open, Session};
