//! The conformance kit as a stage of `cargo xtask test`: our own runtimes, the kit's honest agent and its hostile one
//! through the built binary; with the real programs, the tables of the documentation are made from that run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{agents, cargo};

/// As it is typed to run it alone.
pub(crate) const REPEAT: &str = "target/debug/windlass-kit run --windlass target/debug/windlass --runtime native --runtime fixture --runtime hostile";
/// The tables for people.
const TABLES: &str = "docs/runtimes-matrix.md";
const OURS: &[&str] = &["native", "patch", "completion", "fixture", "cli:fixture", "hostile"];
/// The kit's word for every program that it knows.
const EVERY_PROGRAM: &str = "all";

/// With whom the kit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    /// What needs no package.
    Ours,
    /// Also the agents that CI certifies.
    Agents,
    /// Also all others that this machine can have.
    AllAgents,
}

impl With {
    /// The flag that asks for it.
    pub(crate) fn flag(flag: &str) -> Option<Self> {
        match flag {
            "--agents" => Some(Self::Agents),
            "--all-agents" => Some(Self::AllAgents),
            _ => None,
        }
    }
}

/// Runs the kit; with real agents it installs them first and writes the tables.
pub(crate) fn run(root: &Path, with: With) -> Result<()> {
    let program = built(root)?;
    let mut command = std::process::Command::new(program("windlass-kit"));
    command.current_dir(root).arg("run").arg("--windlass").arg(program("windlass"));
    let mut runtimes = OURS.to_vec();
    if with != With::Ours {
        println!("==> agents: cargo xtask agents");
        let all = with == With::AllAgents;
        let installed = agents::run(&program("windlass"), all)?;
        command.arg("--installed").arg(installed.folder).args(["--markdown", TABLES]);
        if all {
            runtimes.push(EVERY_PROGRAM);
            command.arg("--if-installed");
        } else {
            runtimes.extend(agents::CERTIFIED);
        }
    }
    command.args(runtimes.iter().flat_map(|runtime| ["--runtime", runtime]));
    let ended = command.status().context("the kit could not be started")?;
    if ended.success() {
        Ok(())
    } else {
        bail!("not every runtime keeps the contract (see above)\n  to repeat it: {REPEAT} --verbose")
    }
}

/// Installs the agents alone.
pub(crate) fn install(root: &Path, all: bool) -> Result<()> {
    let program = built(root)?;
    agents::run(&program("windlass"), all).map(drop)
}

/// Builds the binary and the kit; where a program of theirs is.
fn built(root: &Path) -> Result<impl Fn(&str) -> PathBuf> {
    let built = cargo::command(["build", "--workspace", "--locked", "--quiet"]).current_dir(root).status();
    if !built.context("cargo could not be started")?.success() {
        bail!("the binary and the kit could not be built");
    }
    let args = ["metadata", "--no-deps", "--format-version", "1", "--offline", "--locked"];
    let said = cargo::command(args).current_dir(root).output().context("cargo could not be started")?;
    let metadata: Value = serde_json::from_slice(&said.stdout).context("cargo metadata said no JSON")?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?.to_owned();
    Ok(move |name: &str| Path::new(&target).join("debug").join(name))
}
