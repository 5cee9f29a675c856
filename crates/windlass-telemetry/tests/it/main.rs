//! Tests of the fold and the exporter with scripted logs.
#![allow(clippy::unwrap_used)]

mod export;
mod log;
mod schema;
mod spans;
