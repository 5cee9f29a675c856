//! The kernel sandbox. The engine starts a helper program ([`Helper`]); the helper builds, once for a
//! session, a view of the file system with namespaces of its own, and starts every command from it. [`Session`] is the
//! engine's side. What a sandbox is to be is a [`Spec`].
//!
//! Unsafe code is in `inside/sys.rs`, one system call a function; one more call is in `probe.rs`, and `helper.rs` has a
//! function that runs before `main`. This crate decides nothing
//! about what is allowed: it makes what it is told, or says why it cannot.
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "windlass needs Linux. On this target the sandbox (namespaces, Landlock, system call filters), isolated copies \
     (overlay mounts) and the landing (openat2, renameat2, syncfs) are missing. The crates windlass-core, -edit, -engine, \
     -shell, -providers, -meter, -telemetry, -validators, -import, -proposal and -runtimes do not depend on them."
);

mod reap;
mod spec;

mod helper;
mod inside;
mod probe;
mod session;
mod wire;

pub use helper::{HELPER_ARG, Helper};
pub use inside::shares_memory;
pub use probe::{Offer, landlock_version, probe, proc_is_masked};
pub use reap::reap_within;
pub use session::{
    Child, Ended, Listener, Opened, Place, SandboxError, Session, Standard, TreeBorrower, Within,
};
pub use spec::{
    AGENT_HOME, Access, AgentHome, Layer, Limits, LimitsHit, NO_LAYERS, Net, PRIVATE, Protected,
    Protection, Signals, Spec, Tier, Tree,
};
