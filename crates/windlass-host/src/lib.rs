//! All access to this machine: no other crate opens a file or starts a process.
//!
//! [`workspace`] holds the project by a directory handle and does each file operation beneath it; its searches are in
//! [`search`]. [`exec`] runs commands, each in its own process group and limited in time and memory, in the kernel
//! sandbox that [`sandbox`] plans and opens; [`git`] uses it to run the git program. [`session_log`] stores events and
//! [`artifact`] large results. [`config`] reads settings with the origin of each value, [`instructions`] finds the
//! instruction files for a model, [`trust`] stores the user's trust in project settings, [`secret`] hides credentials,
//! and [`clock`] provides time and randomness. [`diagnosis`] and [`apparmor`] report the state of the machine.
//!
//! This crate does not read the environment, print, install signal handlers or decide what is allowed.

pub mod apparmor;
pub mod artifact;
pub mod clock;
pub mod config;
pub mod diagnosis;
pub mod exec;
pub mod git;
pub mod instructions;
pub mod private;
pub mod sandbox;
pub mod search;
pub mod secret;
pub mod session_log;
pub mod trust;
pub mod user_command;
pub mod workspace;
