//! Prints the events of a run as they happen.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use std::io::Write;

use scratch::Scratch;
use windlass::core::event::EventKind;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let mut run = scratch
        .windlass()?
        .provider(scratch::repairs_the_sum(), "scripted")
        .validate("sh check.sh")
        .stream("make the check pass")
        .await?;
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::Delta { text, .. } => {
                print!("{text}");
                std::io::stdout().flush()?;
            }
            EventKind::CallStarted { call, .. } => println!("[{}]", call.name),
            EventKind::FileChanged { change, .. } => println!("[changed {}]", change.path),
            EventKind::Validated { validator, .. } => println!("[checked by {validator}]"),
            EventKind::Landed { landed, .. } => println!("[landed {} files]", landed.files.len()),
            EventKind::RunFinished(summary) => println!("[{:?}]", summary.outcome),
            _ => {}
        }
    }
    Ok(())
}
