//! Runs a foreign agent under the same contract: `codex`, `claude-code`, or any program that speaks ACP. The agent works
//! in a sandbox on a copy, its model calls go through the meter, and its changes land only if the check passes.
//!
//! The argument is the name of an agent (`windlass runtimes` lists them), or `acp:COMMAND`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use scratch::Scratch;
use windlass::core::event::EventKind;
use windlass::{Environment, Windlass};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "codex".to_owned());
    let scratch = Scratch::new()?;
    // The example stores sessions in a scratch directory. Omit this to share the sessions of the command line.
    let environment = Environment::of_process().with("XDG_DATA_HOME", scratch.data());
    let mut run = Windlass::open_with(scratch.workspace(), environment)?
        .runtime(agent)
        .validate("sh check.sh")
        .budget_usd(2.0)
        .stream("make the check pass")
        .await?;
    while let Some(event) = run.next().await {
        if let EventKind::RunFinished(summary) = event.kind {
            println!("{:?}", summary.outcome);
        }
    }
    scratch::print(&scratch.workspace().join("sum.sh"))?;
    Ok(())
}
