//! `cargo xtask crash`: builds the binary and the crash harness, and lets the harness strike at every operation on a
//! file that a scripted run makes. A sample of the same is part of the tests.

use anyhow::{Context as _, Result, bail};

use crate::cargo;

/// Runs the harness with what was typed; it says itself what is wrong with that.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = cargo::root()?;
    let programs = cargo::build(&root, &["-p", "windlass-cli", "-p", "windlass-crash"])?;
    let mut command = std::process::Command::new(programs.join("windlass-crash"));
    let ended = command
        .arg(programs.join("windlass"))
        .args(args)
        .status()
        .context("the harness could not be started")?;
    if ended.success() {
        Ok(())
    } else {
        bail!("not everything held (see above)")
    }
}
