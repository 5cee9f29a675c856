//! The one door to this machine: no other crate opens a file or starts a process.
//!
//! A tour. [`workspace`] holds the project by a directory handle and does every file operation beneath it; its
//! searches are in [`search`]. [`exec`] runs commands, each in a group of its own, bounded in time and memory,
//! in the kernel sandbox that [`sandbox`] plans and opens; [`git`] asks the git program through it.
//! [`session_log`] keeps events and [`artifact`] large results. [`config`] reads settings with the origin of
//! every value, [`instructions`] finds the files that tell a model how to work, [`secret`] keeps credentials out of sight, [`clock`] is time and chance.
//!
//! Nothing here reads the environment, prints, installs signal handlers or judges what may be done.

pub mod artifact;
pub mod clock;
pub mod config;
pub mod exec;
pub mod git;
pub mod instructions;
pub mod private;
pub mod sandbox;
pub mod search;
pub mod secret;
pub mod session_log;
pub mod trust;
pub mod workspace;
