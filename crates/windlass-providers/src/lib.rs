//! Model wire protocols and vendors: encodes a request, sends it, and decodes the answer into chunks.
//! This crate opens no files, reads no environment variables and never retries; keys, addresses and scripts are
//! arguments.
//!
//! The modules, in the order in which a request uses them: [`vendors`] describes the model service, [`endpoint`] its
//! address, and [`auth`] how its key is sent. [`protocol`] encodes the body. [`http`] sends it and receives bytes,
//! [`framing`] splits them into events (most vendors use [`sse`]), and [`protocol`] decodes the events. [`provider`]
//! implements the core's provider trait with them. [`models`] has prices and context windows. [`json_action`] gives
//! tools to models that cannot call them. [`scripted`] plays answers from a script, and [`cassette`] records exchanges
//! and plays them back.

pub mod auth;
pub mod cassette;
pub mod endpoint;
mod errors;
pub mod framing;
pub mod http;
pub mod json_action;
#[cfg(test)]
mod loopback;
pub mod models;
pub mod probe;
pub mod protocol;
pub mod provider;
pub mod public_address;
pub mod scripted;
pub mod sigv4;
pub mod sse;
mod think;
mod tls;
pub mod vendors;

pub use cassette::{CassettePlayer, Recorder};
pub use http::{Http, HttpOptions};
pub use json_action::{JsonActions, with_tools};
pub use provider::{ProviderOptions, RelayedRequest, SetupError, WireProvider};
pub use scripted::{ModelScript, ScriptError, ScriptFormat, ScriptedModelProvider};
pub use secrecy::SecretString;
pub use sigv4::AwsKeys;
pub use vendors::{VENDORS, Vendor, VendorSetting, vendor};
