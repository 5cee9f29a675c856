//! The one door to this machine.

pub mod clock;
mod search;
pub mod workspace;
