//! The library that every surface uses: the command line today, other views and embedders later.
//!
//! Both modules fold the events of a session log: [`stats`] into time, tokens, money and calls, [`undo`] into the
//! changes that can be undone and redone.
//!
//! Nothing here prints, reads the environment or opens a file.

pub mod stats;
pub mod undo;
