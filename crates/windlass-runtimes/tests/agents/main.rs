//! Tests of the adapters with scripted peers in place of the programs, trimmed from recordings.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod claude_code;
mod codex;
mod harness;
mod oneshot;
mod openhands;
mod script;
mod sidecar;
mod sidecar_program;
