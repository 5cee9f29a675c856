//! The one door to this machine.

pub mod artifact;
pub mod clock;
pub mod edit;
pub mod exec;
mod private;
mod search;
pub mod secret;
pub mod session_log;
pub mod workspace;
