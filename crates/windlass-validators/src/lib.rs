//! The validators that come with the program. They sit behind the port of the core and reach the machine only
//! through it: files and processes are those of the run, inside its sandbox.
//!
//! - [`check`] and [`Syntax`] read changed files with the parser of their language;
//! - [`CommandCheck`] runs a command of the project, and [`detect`] finds those that a project has;
//! - [`SecretScan`] and [`Bandit`] look for what must not land for security's sake;
//! - [`Custom`] asks a program that somebody else wrote.
//!
//! [`ValidatorPlan`] is all of them as plain data, and [`build`] makes them.

mod bandit;
mod command;
mod custom;
mod detect;
mod judges;
mod language;
mod output;
mod plan;
mod secrets;
mod syntax;
#[cfg(test)]
mod testing;

pub use bandit::{BANDIT_VERSION, Bandit, InstallPlan, bandit_install};
pub use command::CommandCheck;
pub use custom::Custom;
pub use detect::{Look, LookAt, detect};
pub use judges::Judges;
pub use language::{Certainty, Language};
pub use plan::{PlanKind, Purpose, Tools, UnknownValidator, ValidatorPlan, build};
pub use secrets::SecretScan;
pub use syntax::{Checked, Flaw, MAX_FILE, Project, Syntax, check};
