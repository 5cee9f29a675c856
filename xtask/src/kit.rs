//! The conformance kit as a stage of `cargo xtask test`: our own runtimes, the kit's honest agent and its hostile one
//! through the built binary; with `--agents`, the real programs, too, and the table of the documentation from that run.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{agents, cargo};

/// As it is typed to run it alone.
pub(crate) const REPEAT: &str = "target/debug/windlass-kit run --windlass target/debug/windlass --runtime native --runtime fixture --runtime hostile";
/// The table for people.
const TABLE: &str = "docs/runtimes-matrix.md";
const OURS: &[&str] = &["native", "patch", "completion", "fixture", "hostile"];
const THEIRS: &[&str] = &["claude-code", "codex", "opencode"];

/// Runs the kit with what needs no package.
pub(crate) fn run(root: &Path) -> Result<()> {
    go(root, OURS, None, false)
}

/// Installs the real agents and runs the kit with all of them; writes the table.
pub(crate) fn run_with_agents(root: &Path) -> Result<()> {
    println!("==> agents: cargo xtask agents");
    let installed = agents::run()?;
    let all: Vec<&str> = OURS.iter().chain(THEIRS).copied().collect();
    go(root, &all, Some(installed), true)
}

fn go(root: &Path, runtimes: &[&str], installed: Option<agents::Installed>, write: bool) -> Result<()> {
    let built = cargo::command(["build", "--workspace", "--locked", "--quiet"]).current_dir(root).status();
    if !built.context("cargo could not be started")?.success() {
        bail!("the binary and the kit could not be built");
    }
    let args = ["metadata", "--no-deps", "--format-version", "1", "--offline", "--locked"];
    let said = cargo::command(args).current_dir(root).output().context("cargo could not be started")?;
    let metadata: Value = serde_json::from_slice(&said.stdout).context("cargo metadata said no JSON")?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let program = |name: &str| Path::new(target).join("debug").join(name);
    let mut command = std::process::Command::new(program("windlass-kit"));
    command.current_dir(root).arg("run").arg("--windlass").arg(program("windlass"));
    for runtime in runtimes {
        command.args(["--runtime", runtime]);
    }
    if write {
        command.args(["--markdown", TABLE]);
    }
    if let Some(installed) = installed {
        command.env("PATH", installed.path);
    }
    let ended = command.status().context("the kit could not be started")?;
    if ended.success() {
        Ok(())
    } else {
        bail!("not every runtime keeps the contract (see above)\n  to repeat it: {REPEAT} --verbose")
    }
}
