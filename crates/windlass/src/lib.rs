//! The library that every surface uses: the command line today, other views and embedders later.
//!
//! Nothing here prints, changes the process or reads the environment by itself: the caller passes an [`Environment`] and
//! receives remarks through [`Notices`].

pub mod cassette;
pub mod contract;
mod environment;
mod error;
mod facade;
pub mod flags;
pub mod instructions;
pub mod kept;
pub mod model;
mod notices;
mod prepare;
pub mod profile;
pub mod program_tools;
mod recovery;
pub mod runtime_plan;
pub mod sandboxing;
pub mod saved_plan;
pub mod settings;
pub mod stats;
pub mod telemetry;
pub mod trust;
pub mod undo;
pub mod wire;

pub use environment::Environment;
pub use error::{Error, ErrorKind};
pub use facade::{Run, Session, Windlass};
pub use notices::{Notice, Notices};
pub use prepare::{
    OpenRequest, Opened, Prepared, Which, newest, options_for, prepare, prepare_landing,
    resume_options,
};
pub use recovery::{Unlogged, recover, recoveries};
pub use windlass_core as core;
pub use windlass_engine::{Canceller, NoSuchAsk, RunResult};
