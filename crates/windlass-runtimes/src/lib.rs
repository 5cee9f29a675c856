//! Agents that are not ours, under the same contract as ours.
//!
//! A tour, in the order of one try: [`agent`] opens the agent's place and its model endpoint, tells it the contract
//! ([`contract`]) and lets its adapter speak with it over [`lines`]; what it wants to do is judged by our gate, what it
//! spends is counted where it leaves, and what it says about either is compared and never believed.
//!
//! [`import`] reads the session files that such agents write, and our own exports.
//!
//! Nothing here opens a file or starts a program: everything goes through the ports of the job.

pub mod acp;
pub mod agent;
pub mod agents;
pub mod claude_code;
pub mod codex;
pub mod completion;
pub mod contract;
pub mod dialect;
pub mod dialogue;
pub mod import;
pub mod install;
pub mod lines;
pub mod mcp_server;
pub mod meter;
pub mod oneshot;
pub mod openhands;
pub mod patch_proposal;
pub mod peer;
pub mod sidecar;

mod dollars;
mod driver;
mod filling;
mod given;
mod no_tools;
mod offered;
mod rpc;
mod said;
mod services;
mod shown_files;
mod status;
