//! The library of Windlass: the command line is built on it, and other programs can embed it.
//!
//! Begin with [`Windlass`]: it opens a workspace, sets the model, checks and limits, and runs prompts. The modules below
//! it are for surfaces that need single parts, for example the settings, the transcript of a session, or statistics.
//!
//! The library does not print, does not change the process, and reads environment variables only through the
//! [`Environment`] that the caller passes. It reports warnings that belong to no session through [`Notices`].

mod acp_agents;
pub mod auth;
pub mod cassette;
pub mod context;
pub mod contract;
pub mod doctor;
mod environment;
mod error;
pub mod export;
mod facade;
pub mod flags;
pub mod init;
pub mod instructions;
pub mod kept;
pub mod model;
mod notices;
pub mod notifications;
pub mod policy;
mod prepare;
pub mod profile;
pub mod program_tools;
pub mod recorded_files;
mod recovery;
pub mod runtime_plan;
mod runtime_rows;
pub mod sandboxing;
pub mod saved_plan;
pub mod sessions;
pub mod settings;
pub mod setup;
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
    OpenRequest, OpenedSession, PendingTools, Prepared, SessionSelector, find_session, newest,
    options_for, prepare, prepare_landing, prepare_with, resume_options,
};
pub use recovery::{Unlogged, close_interrupted, recover, recoveries};
pub use windlass_core as core;
pub use windlass_engine::{Canceller, NoSuchAsk, RunResult};

/// The table of known agents, and functions that find, install, probe and choose an agent.
///
/// ```
/// use windlass::agents::{AGENTS, needs_of};
/// use windlass::core::runtime::RunMode;
///
/// assert!(AGENTS.iter().any(|agent| agent.name == "codex"));
/// assert_eq!(needs_of(&[], Some(RunMode::Patch)).len(), 1);
/// ```
pub mod agents {
    pub use crate::acp_agents::{install_from_registry, registry};
    pub use crate::runtime_rows::{
        ChoiceRow, InstalledAgent, OtherRuntime, ProbeRow, RegistryRow, RuntimeReport,
        install_agents, names_to_probe, registry_rows, remove_agent, runtime_statuses,
    };
    pub use windlass_registry::{
        AcpEntry, AcpRegistry, InstalledAgents, ProbeResult, ProgramLocation, RegistryAgent,
        RegistryError, RuntimeChoice, RuntimeNeed, RuntimeProbe, RuntimeStatus, abilities, choose,
        does, needs_of, unknown_runtime,
    };
    pub use windlass_runtimes::agents::{AGENTS, AgentSpec};
}

/// Checks of files and projects, outside of a run.
///
/// ```
/// use windlass::checks::{Checked, Language, Project, check};
///
/// let checked = check(Language::Json, "a.json", b"{", &Project::default());
/// assert!(matches!(checked, Checked::Flaws(_)));
/// ```
pub mod checks {
    pub use windlass_validators::{Checked, Flaw, Language, Project, ValidatorPlan, check};
}

/// Applies text edits that are described as rows of JSON.
///
/// ```
/// use windlass::edits::{EditCase, run};
///
/// let row = serde_json::json!({ "format": "whole", "input": {}, "edit": {} });
/// let row: EditCase = serde_json::from_value(row)?;
/// assert!(!run(row).ok, "it names no file");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub mod edits {
    pub use windlass_edit::row::{EditCase, EditCaseResult, run};
}

/// The engine below [`Session`] and [`Run`], for surfaces that drive an [`OpenedSession`] themselves.
///
/// ```
/// use windlass::engine::{OnAsk, RunOptions};
///
/// assert_eq!(RunOptions::default().on_ask, OnAsk::Wait);
/// ```
pub mod engine {
    pub use windlass_engine::{
        Delivery, EngineError, NativeRuntime, OnAsk, OpenSession, Pauser, QueueRequest, RunControl,
        RunHandle, RunOptions, Session,
    };
}

/// Imports sessions from files: an export of Windlass, or the session files of other agents.
///
/// ```
/// use windlass::imports::{FileKind, ImportError};
///
/// assert_ne!(FileKind::Claude, FileKind::Codex);
/// assert!(!ImportError::NoKind.to_string().is_empty());
/// ```
pub mod imports {
    pub use windlass_import::{FileKind, ImportError, Imported, Importer};
}

/// Access to this machine: session logs, files of a workspace, processes, secrets and the clock.
///
/// ```
/// use windlass::core::workspace::Files;
/// use windlass::machine::{Root, SessionLog};
///
/// let dir = tempfile::tempdir()?;
/// assert_eq!(Root::open(dir.path())?.root(), dir.path());
/// let _store = SessionLog::new(dir.path().join("sessions"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod machine {
    pub use windlass_host::clock::SystemClock;
    pub use windlass_host::exec::child_env;
    pub use windlass_host::secret::{Credentials, Secret, SecretError, Secrets};
    pub use windlass_host::session_log::SessionLog;
    pub use windlass_host::workspace::{Root, discover, open_file};
}
