//! Scripted logs through the fold, and what comes of them through the port.
#![allow(clippy::unwrap_used, missing_docs)]

mod export;
mod log;
mod schema;
mod spans;
