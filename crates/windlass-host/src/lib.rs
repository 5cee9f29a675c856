//! The one door to this machine.

pub mod clock;
pub mod edit;
mod search;
pub mod workspace;
