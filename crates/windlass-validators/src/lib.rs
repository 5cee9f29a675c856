//! The validators that come with the program. They sit behind the port of the core and reach the machine only
//! through it: files and processes are those of the run, inside its sandbox.
//!
//! - [`check`] reads a file with the parser of its language, `syntax` does so for the changed files;
//! - `command` runs a command of the project, and [`detect`] finds those that a project has;
//! - `secrets` and `bandit` look for what must not land for security's sake;
//! - `custom` asks a program that somebody else wrote.
//!
//! [`ValidatorPlan`] is all of them as plain data, and [`build`] makes them. `base` has what they share: a new validator
//! is a file with a `Check`, and its kind in `plan`.

mod bandit;
mod base;
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

pub use bandit::{BANDIT_VERSION, InstallPlan, bandit_install};
pub use detect::{Look, LookAt, detect};
pub use language::Language;
pub use plan::{PlanKind, Purpose, Tools, UnknownValidator, ValidatorPlan, build, setup};
pub use syntax::{Checked, Flaw, MAX_FILE, Project, check};
