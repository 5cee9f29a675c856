//! Behaviour of the engine, through its public door and the fakes it ships.
#![allow(clippy::unwrap_used)]

mod attacks;
mod context;
mod contract;
mod durable;
mod endings;
mod examples;
mod foreign;
mod guest;
mod lab;
mod people;
mod providers;
mod resume;
mod scenarios;
mod snapshots;
mod steps;
