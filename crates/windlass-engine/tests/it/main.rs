//! Tests of the engine through its public interface, with the fakes of `windlass-testing`.
#![allow(clippy::unwrap_used)]

mod answers;
mod attacks;
mod clear;
mod context;
mod contract;
mod durable;
mod examples;
mod fixture;
mod foreign;
mod host_process;
mod outcomes;
mod pause;
mod providers;
mod queue;
mod resume;
mod scenarios;
mod snapshots;
mod steps;
