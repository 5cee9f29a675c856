//! `cargo xtask crash`: builds the binary and the crash harness, and lets the harness kill a scripted run at every file
//! operation. The tests run a sample of that.

use anyhow::{Context as _, Result, bail};

use crate::cargo;

/// Runs the harness with these arguments; it reports wrong arguments itself.
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
        bail!("some checks failed (see above)")
    }
}
