//! Agents that speak the Agent Client Protocol, as scripts over pipes in memory.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod harness;
mod hostile;
mod recorded;
mod turns;
