//! Foreign agents, under the same contract as the built-in agent.
//!
//! In the order of one attempt: [`agents`] has a row for each agent, [`agent`] opens the enclosure and the model
//! endpoint and sends the contract ([`contract`]), the adapter ([`claude_code`], [`codex`], [`acp`], [`openhands`],
//! [`sidecar`], [`oneshot`]) starts the agent, and one driver follows it over [`lines`]. A protocol is a [`dialogue`]:
//! a pure state machine, tested with recorded transcripts. The gate judges the agent's calls, the meter
//! (`windlass-meter`) counts its model requests, and the agent's own reports about both are compared, but never
//! trusted.
//!
//! This crate opens no files and spawns no programs itself: it uses the ports of the job.

pub mod acp;
pub mod agent;
pub mod agents;
pub mod claude_code;
pub mod codex;
pub mod contract;
pub mod dialect;
pub mod dialogue;
pub mod install;
pub mod lines;
pub mod mcp_server;
pub mod oneshot;
pub mod openhands;
pub mod peer;
pub mod sidecar;

mod dollars;
mod driver;
mod equivalent_calls;
mod json;
mod offered_tools;
mod option_checks;
mod placeholders;
mod rpc;
mod services;
mod status;
mod turn_volume;
