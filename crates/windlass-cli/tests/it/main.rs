//! The real binary, in a home and a workspace of its own, on scripted models.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod acp_registry;
mod answers;
mod attacks;
mod cassette;
mod codes;
mod context;
#[cfg(target_os = "linux")]
mod crash;
mod demo_picture;
mod developer_log;
mod differential;
mod doctor;
mod edits;
mod exports;
mod faults;
mod help;
mod imports;
mod in_place;
mod isolated;
mod json_action;
mod odd_trees;
mod own_agents;
mod place;
mod poisoned_checks;
mod policy;
mod profiles;
mod programs;
mod registry;
mod reports;
mod runtimes;
mod safe;
mod sandbox;
mod secrets;
mod sessions;
mod telemetry;
mod terminal;
mod transactions;
mod trust;
mod validate;
mod wire;
