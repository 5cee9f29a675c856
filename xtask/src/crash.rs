//! `cargo xtask crash`: builds the binary and the crash harness, and lets the harness strike at every operation on a
//! file that a scripted run makes. A sample of the same is part of the tests.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo;

/// Runs the harness with what was typed; it says itself what is wrong with that.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = cargo::root()?;
    let built = cargo::command([
        "build",
        "--locked",
        "--quiet",
        "-p",
        "windlass-cli",
        "-p",
        "windlass-crash",
    ]);
    if !{ built }
        .current_dir(&root)
        .status()
        .context("cargo could not be started")?
        .success()
    {
        bail!("the binary and the harness could not be built");
    }
    let metadata = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
        "--locked",
    ];
    let said = cargo::command(metadata)
        .current_dir(&root)
        .output()
        .context("cargo could not be started")?;
    let metadata: Value =
        serde_json::from_slice(&said.stdout).context("cargo metadata said no JSON")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo names no target directory")?;
    let program = |name: &str| Path::new(target).join("debug").join(name);
    let mut command = std::process::Command::new(program("windlass-crash"));
    let ended = command
        .arg(program("windlass"))
        .args(args)
        .status()
        .context("the harness could not be started")?;
    if ended.success() {
        Ok(())
    } else {
        bail!("not everything held (see above)")
    }
}
