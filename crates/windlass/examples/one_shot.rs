//! Runs one task, from prompt to result. The changes land only if the check passes.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use scratch::Scratch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let result = scratch
        .windlass()?
        .provider(scratch::repairs_the_sum(), "scripted")
        .validate("sh check.sh")
        .budget_usd(2.0)
        .run("make the check pass")
        .await?;
    println!("{:?}: {}", result.outcome(), result.text);
    for file in result.files() {
        println!("changed {}", file.path);
    }
    scratch::print(&scratch.workspace().join("sum.sh"))?;
    Ok(())
}
