//! One example for each port of the engine and for each call of its facade: a file each, and nothing of a machine.
//! `cargo run -p windlass-engine --example ports` shows them all, `... -- provider tool` those.
//! Each asserts what it claims, so an example that is wrong fails. One program, because
//! twenty would cost twenty seconds and 660 MB with every build.
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

/// What an example comes to.
pub(crate) type Shown = Result<(), Box<dyn Error>>;
/// One example, not begun yet.
type Show = fn() -> Pin<Box<dyn Future<Output = Shown>>>;

/// Every example by its name.
pub(crate) const ALL: &[(&str, Show)] = &[
    ("artifacts", || Box::pin(artifacts::show())),
    ("asks", || Box::pin(asks::show())),
    ("clock", || Box::pin(clock::show())),
    ("compact", || Box::pin(compact::show())),
    ("enclosure", || Box::pin(enclosure::show())),
    ("files", || Box::pin(files::show())),
    ("fork", || Box::pin(fork::show())),
    ("gate", || Box::pin(gate::show())),
    ("limits", || Box::pin(limits::show())),
    ("outside", || Box::pin(outside::show())),
    ("processes", || Box::pin(processes::show())),
    ("provider", || Box::pin(provider::show())),
    ("queue", || Box::pin(queue::show())),
    ("redactor", || Box::pin(redactor::show())),
    ("runtime", || Box::pin(runtime::show())),
    ("session_store", || Box::pin(session_store::show())),
    ("snapshots", || Box::pin(snapshots::show())),
    ("stream", || Box::pin(stream::show())),
    ("tool", || Box::pin(tool::show())),
    ("validator", || Box::pin(validator::show())),
    ("workspaces", || Box::pin(workspaces::show())),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Shown {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|name| ALL.iter().all(|(known, _)| known != name))
    {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "there is no example `{unknown}`; there are: {}",
            known.join(", ")
        )
        .into());
    }
    for (name, show) in ALL
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name))
    {
        show().await?;
        println!("{name}: as it says");
    }
    Ok(())
}
