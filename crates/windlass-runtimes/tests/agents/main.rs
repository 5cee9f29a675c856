//! Adapters against what their programs really say: scripted peers in the place of the programs, trimmed from recordings;
//! and, where a person names one, the real program.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod claude_code;
mod codex;
mod oneshot;
mod openhands;
mod script;
mod sidecar;
mod sidecar_program;
mod stage;
