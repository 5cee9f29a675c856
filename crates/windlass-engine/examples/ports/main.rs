//! One example for each port of the engine and for each method of its facade: one file each, without access to the machine.
//! `cargo run -p windlass-engine --example ports` runs them all, `... -- provider tool` only those.
//! Each example asserts its claims, so a wrong example fails. They are one program, because
//! twenty programs would cost twenty seconds and 660 MB with every build.
#![allow(clippy::print_stdout, reason = "a program, not the library")]

mod artifacts;
mod asks;
mod clock;
mod compact;
mod enclosure;
mod fakes;
mod files;
mod fork;
mod gate;
mod limits;
mod outside;
mod processes;
mod provider;
mod queue;
mod redactor;
mod runtime;
mod session_store;
mod snapshots;
mod stream;
mod tool;
mod validator;
mod workspaces;

use std::error::Error;
use std::pin::Pin;

/// The result of an example.
pub(crate) type ExampleResult = Result<(), Box<dyn Error>>;
/// The function of an example.
type Example = fn() -> Pin<Box<dyn Future<Output = ExampleResult>>>;

/// All examples by name.
pub(crate) const ALL: &[(&str, Example)] = &[
    ("artifacts", || Box::pin(artifacts::run_example())),
    ("asks", || Box::pin(asks::run_example())),
    ("clock", || Box::pin(clock::run_example())),
    ("compact", || Box::pin(compact::run_example())),
    ("enclosure", || Box::pin(enclosure::run_example())),
    ("files", || Box::pin(files::run_example())),
    ("fork", || Box::pin(fork::run_example())),
    ("gate", || Box::pin(gate::run_example())),
    ("limits", || Box::pin(limits::run_example())),
    ("outside", || Box::pin(outside::run_example())),
    ("processes", || Box::pin(processes::run_example())),
    ("provider", || Box::pin(provider::run_example())),
    ("queue", || Box::pin(queue::run_example())),
    ("redactor", || Box::pin(redactor::run_example())),
    ("runtime", || Box::pin(runtime::run_example())),
    ("session_store", || Box::pin(session_store::run_example())),
    ("snapshots", || Box::pin(snapshots::run_example())),
    ("stream", || Box::pin(stream::run_example())),
    ("tool", || Box::pin(tool::run_example())),
    ("validator", || Box::pin(validator::run_example())),
    ("workspaces", || Box::pin(workspaces::run_example())),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExampleResult {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|name| ALL.iter().all(|(known, _)| known != name))
    {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "there is no example `{unknown}`; the examples are: {}",
            known.join(", ")
        )
        .into());
    }
    for (name, example) in ALL
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name))
    {
        example().await?;
        println!("{name}: passed");
    }
    Ok(())
}
