//! The agent registry: which agents there are, where their programs are on this machine and in which version, how they are
//! installed, whether they work, and which one fits what a run needs.
//!
//! A row for each agent is in [`windlass_runtimes::agents`]; [`own`] makes such rows of the settings. [`acp_registry`] reads
//! the registry of ACP agents. [`install`] installs and finds programs, [`program`] says what they need to run, [`version`](Standing::look_closer) which version is here,
//! [`probe`] rehearses a run, [`choose`] picks one for `auto`, and [`adapter`] makes the adapter.
//!
//! Unlike `windlass-runtimes` it looks at the machine: it opens files and starts installers. It never talks to an agent
//! itself.

mod abilities;
mod acp_install;
pub mod acp_registry;
mod adapter;
mod choice;
mod error;
pub mod install;
pub mod options;
pub mod own;
pub mod probe;
pub mod program;
mod python;
mod said;
mod standing;
mod unpack;
mod version;

pub use abilities::{abilities, does};
pub use acp_install::RegistryAgent;
pub use acp_registry::{AcpEntry, AcpRegistry};
pub use adapter::{AgentSetup, adapter};
pub use choice::{Choice, Need, WhyNot, asked_by, choose, needs_of};
pub use error::{RegistryError, RegistryErrorKind};
pub use install::Installed;
pub use options::Given;
pub use own::{Own, unknown};
pub use probe::Rehearsal;
pub use program::{Program, plain_name};
pub use standing::{Found, Standing, Why};
