//! The kernel sandbox: runs commands so that they see and change only what a [`Spec`] allows.
//!
//! The engine never enters the sandbox itself. It spawns a helper process ([`Helper`]), which builds a private view of
//! the file system once per session and starts every command in it. [`SandboxSession`] is the engine's side of that
//! connection; the code that runs in the helper is in `inside/`, and its module comment explains the processes.
//!
//! There are three tiers, because not every machine allows user namespaces: [`Tier::Namespaces`] is the full sandbox,
//! [`Tier::Broker`] replaces namespaces by a broker that performs some system calls for the command, and
//! [`Tier::Landlock`] uses only Landlock and system call filters. [`probe()`] finds out which of them work here.
//!
//! This crate decides nothing about permissions: it builds the sandbox that the [`Spec`] describes, or returns why it
//! cannot.
//!
//! Unsafe code is in `inside/sys.rs`, one system call per function; one more call is in `probe.rs`, and `helper.rs` has
//! a function that runs before `main`.
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
    AgentView, Ended, HelperExit, Listener, OpenedSandbox, REAP_TIMEOUT, SandboxError,
    SandboxSession, SandboxedChild, Standard, StartedHelper, TreeBorrower, Within,
};
pub use spec::{
    AGENT_HOME, Access, AgentHome, Limits, LimitsHit, NO_LAYERS, Net, OverlayDir, PRIVATE,
    Protected, Protection, SignalBarrier, Spec, Tier, Tree,
};
