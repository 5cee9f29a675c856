//! Agents that are not ours, under the same contract as ours.
//!
//! A tour, in the order of one attempt: [`agents`] has a row for each agent, [`agent`] opens its enclosure and its model
//! endpoint and tells it the contract ([`contract`]), its adapter ([`claude_code`], [`codex`], [`acp`], [`openhands`],
//! [`sidecar`], [`oneshot`]) starts it, and one driver follows it over [`lines`]. A protocol is a [`dialogue`]: pure, and
//! tested by recorded transcripts. What the agent wants to do is judged by our gate, what it spends is counted where it
//! leaves (`windlass-meter`), and what it says about either is compared and never believed.
//!
//! Nothing here opens a file or starts a program: everything goes through the ports of the job.

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
mod filling;
mod given;
mod json;
mod likeness;
mod offered;
mod rpc;
mod said;
mod services;
mod status;
