//! Runs several sessions concurrently in one workspace, each on its own copy. They land one after the other.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use scratch::Scratch;
use serde_json::json;
use windlass_testing::{call, says};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let windlass = scratch.windlass()?.validate("none");
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 {
        let text = format!("{number}\n");
        let write = json!({ "path": format!("part-{number}.txt"), "content": text });
        let model = scratch::model([call("1", "write_file", &write), says("It is written.")]);
        let windlass = windlass.clone().provider(model, "scripted");
        tasks.spawn(async move { windlass.run(format!("write part {number}")).await });
    }
    while let Some(done) = tasks.join_next().await {
        let result = done??;
        println!("{}: {:?}", result.session, result.outcome());
    }
    let parts = (0..4).filter(|number| {
        let part = scratch.workspace().join(format!("part-{number}.txt"));
        part.exists()
    });
    println!("{} parts landed", parts.count());
    Ok(())
}
