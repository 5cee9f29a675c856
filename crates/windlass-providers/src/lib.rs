//! Model wire protocols and vendors: how a request is shaped, sent and read back as chunks.
//! It opens no files, reads no environment and never retries; keys, addresses and scripts come in as values.
//!
//! A tour, in the order of one request: [`vendors`] says who is asked, [`endpoint`] where, [`auth`] with what key.
//! [`protocol`] shapes the body and reads the events that [`framing`] cuts out of what [`http`] delivers ([`sse`] is
//! the most common of its forms). [`provider`] ties them to the core's port. [`models`] knows prices and windows.
//! [`json_action`] gives tools to models that cannot call them. [`scripted`] plays answers from a script, and
//! [`cassette`] what was once recorded.

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
pub mod scripted;
pub mod sigv4;
pub mod sse;
mod think;
mod tls;
pub mod vendors;

pub use cassette::{Player, Recorder};
pub use http::{Http, HttpOptions};
pub use json_action::{JsonActions, with_tools};
pub use provider::{Parcel, ProviderOptions, SetupError, WireProvider};
pub use scripted::{Script, ScriptError, ScriptFormat, ScriptedProvider};
pub use secrecy::SecretString;
pub use sigv4::AwsKeys;
pub use vendors::{Setting, VENDORS, Vendor, vendor};
