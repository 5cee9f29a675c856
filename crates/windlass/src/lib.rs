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
pub mod policy;
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
pub mod transcript;
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

/// Agents: the table of those that are known, and how one is found, installed, rehearsed and chosen.
pub mod agents {
    pub use windlass_registry::{
        Choice, Found, Installed, Need, RegistryError, Rehearsal, Standing, abilities, choose,
        does, needs_of, own, unknown,
    };
    pub use windlass_runtimes::agents::{AGENTS, AgentSpec};
}

/// Checks of files and projects, outside of a run.
pub mod checks {
    pub use windlass_validators::{Checked, Flaw, Language, Project, ValidatorPlan, check};
}

/// Text edits, one row of JSON at a time.
pub mod edits {
    pub use windlass_edit::row::{Done, Row, run};
}

/// The engine below [`Session`] and [`Run`], for surfaces that drive an [`Opened`] session themselves.
pub mod engine {
    pub use windlass_engine::{
        Delivery, EngineError, NativeRuntime, OnAsk, RunHandle, RunOptions, Session,
    };
}

/// Sessions read from files: our own export and the session files of other agents.
pub mod imports {
    pub use windlass_import::{FileKind, ImportError, Imported, Importer};
}

/// This machine: session logs, files of a workspace, processes, secrets and the clock.
pub mod machine {
    pub use windlass_host::clock::SystemClock;
    pub use windlass_host::exec::child_env;
    pub use windlass_host::secret::{Credentials, Secret, SecretError, Secrets};
    pub use windlass_host::session_log::SessionLog;
    pub use windlass_host::workspace::{Root, discover, open_file};
}
