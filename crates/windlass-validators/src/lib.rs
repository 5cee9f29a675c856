//! The validators that come with the program. They sit behind the port of the core and reach the machine only
//! through it: files and processes are those of the run, inside its sandbox.
//!
//! [`check`] and [`Syntax`] read changed files with the parser of their language.

mod language;
mod syntax;

pub use language::{Certainty, Language};
pub use syntax::{Checked, Flaw, MAX_FILE, Project, Syntax, check};
