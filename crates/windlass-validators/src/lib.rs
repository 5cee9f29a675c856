//! The built-in validators. They implement the `Validator` port of the core and access files and processes only through
//! the ports of the run, that is, inside its sandbox.
//!
//! - [`check`] parses a file in its language; the validator `syntax` does so for the changed files;
//! - `command` runs a command of the project, and [`detect`] finds the commands of a project;
//! - `secrets` and `bandit` look for security problems;
//! - `custom` runs a validator program that the user provides.
//!
//! [`ValidatorPlan`] describes a validator as plain data, and [`build`] creates it. `base` is the shared code: a new
//! validator is a file with an implementation of `ValidatorCheck`, and a variant of `PlanKind`.

mod bandit;
mod base;
mod command;
mod custom;
mod detect;
mod language;
mod output;
mod plan;
mod secrets;
mod syntax;
#[cfg(test)]
mod testing;
mod verdict_inputs;

pub use bandit::{BANDIT_VERSION, InstallPlan, bandit_install};
pub use detect::{LookAt, ProjectFiles, detect};
pub use language::Language;
pub use plan::{PlanKind, Purpose, Tools, UnknownValidator, ValidatorPlan, build, setup};
pub use syntax::{Checked, Flaw, MAX_FILE, Project, check};
