//! The terminal interface: it shows the events of sessions and passes prompts and answers on.

pub mod composer;
pub mod terminal;
