//! The agent registry: finds, installs, probes and chooses agents on this machine.
//!
//! [`windlass_runtimes::agents`] has the table of known agents; [`custom_agents`] adds those that the settings define, and
//! [`acp_registry`] those of the ACP registry. [`install`] installs and finds programs, [`program`] determines which paths
//! a program needs in its sandbox, [`RuntimeStatus::find_version`] finds its version, [`probe`] tests a runtime with a
//! complete run, [`choose`] selects a runtime for `auto`, and [`adapter`] makes the adapter.
//!
//! In contrast to `windlass-runtimes`, this crate reads files of the machine and starts installers. It does not speak the
//! protocol of any agent.

mod abilities;
mod acp_install;
pub mod acp_registry;
mod adapter;
pub mod agent_settings;
mod choice;
pub mod custom_agents;
mod error;
pub mod install;
pub mod probe;
pub mod program;
mod python;
mod runtime_status;
mod short_command;
mod unpack;
mod version;

pub use abilities::{abilities, does};
pub use acp_install::RegistryAgent;
pub use acp_registry::{AcpEntry, AcpRegistry};
pub use adapter::{AgentSetup, adapter};
pub use agent_settings::AgentSettings;
pub use choice::{RuntimeChoice, RuntimeNeed, WhyNot, choose, needs_of, parse_auto};
pub use custom_agents::{CustomAgent, unknown_runtime};
pub use error::{RegistryError, RegistryErrorKind};
pub use install::InstalledAgents;
pub use probe::{ProbeResult, RuntimeProbe};
pub use program::{AgentProgram, plain_name};
pub use runtime_status::{ProgramLocation, RuntimeStatus, UnusableReason};
