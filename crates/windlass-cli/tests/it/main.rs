//! The real binary, in a home and a workspace of its own, on scripted models.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod cassette;
mod codes;
mod faults;
mod help;
mod json_action;
mod place;
mod policy;
mod sessions;
mod terminal;
mod wire;
