//! The kernel sandbox. The engine starts a helper program ([`Helper`]); the helper builds, once for a
//! session, a view of the file system with namespaces of its own, and starts every command from it. [`Session`] is the
//! engine's side. What a sandbox is to be is a [`Spec`].
//!
//! Unsafe code is in `inside/sys.rs`, one system call a function; one more call is in `probe.rs`, and `helper.rs` has a
//! function that runs before `main`. This crate decides nothing
//! about what is allowed: it makes what it is told, or says why it cannot.
#![cfg_attr(target_os = "linux", allow(unsafe_code))]

pub mod elsewhere;
mod reap;
mod spec;

#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod inside;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub use helper::{HELPER_ARG, Helper};
#[cfg(target_os = "linux")]
pub use inside::shares_memory;
#[cfg(target_os = "linux")]
pub use probe::{Offer, landlock_version, probe, proc_is_masked};
pub use reap::reap_within;
#[cfg(target_os = "linux")]
pub use session::{Child, Ended, Listener, Opened, Place, SandboxError, Session, Standard};
pub use spec::{
    AGENT_HOME, Access, AgentHome, Layer, Limits, LimitsHit, Net, PRIVATE, Protected, Protection,
    Signals, Spec, Tier, Tree,
};
