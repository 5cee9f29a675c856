//! `cargo xtask agents`: lets the built binary install the agents that runtimes are certified with, into a folder that
//! takes the place of the user's data directory. An agent that is already installed in the right version is not touched
//! and needs no network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cargo;

/// The agents that CI certifies. The others need Python or take long; `--all` installs them.
pub(crate) const CERTIFIED: &[&str] = &["claude-code", "codex", "opencode"];
/// The file that an install leaves in its folder once it is complete.
const INSTALL_RECORD: &str = "windlass-install.json";
/// The Node that the binary installs for scripts if the machine's own is too old.
const NODE: &str = "node";

/// The folders of the installed agents.
pub(crate) struct InstalledAgents {
    /// Contains a folder for each agent.
    pub(crate) folder: PathBuf,
    /// A value for `PATH` with the programs of npm, for callers that run them without windlass.
    pub(crate) path: OsString,
}

/// Returns the installed agents if all that CI certifies are there; installs nothing.
pub(crate) fn installed_already() -> Result<Option<InstalledAgents>> {
    let folder = folder(&data()?);
    let there = CERTIFIED
        .iter()
        .all(|name| folder.join(name).join(INSTALL_RECORD).is_file());
    if there {
        installed(folder).map(Some)
    } else {
        Ok(None)
    }
}

/// Installs the missing agents with this binary and returns their folders. With `all`, an agent that cannot be
/// installed on this machine is reported and is not an error.
pub(crate) fn run(windlass: &Path, all: bool) -> Result<InstalledAgents> {
    let data = data()?;
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let mut command = Command::new(windlass);
    command
        .args(["runtimes", "install"])
        .env("XDG_DATA_HOME", &data);
    command.args(if all { &["--all"] } else { CERTIFIED });
    let status = command
        .status()
        .with_context(|| format!("{} could not be started", windlass.display()))?;
    match (status.success(), all) {
        (true, _) => {}
        (false, true) => println!(
            "    some agents cannot be installed on this machine (see above); the matrix lists them"
        ),
        (false, false) => bail!("the agents could not be installed (see above)"),
    }
    installed(folder(&data))
}

fn installed(folder: PathBuf) -> Result<InstalledAgents> {
    let bin = |name: &&str| folder.join(name).join("node_modules/.bin");
    let folders: Vec<PathBuf> = [NODE]
        .iter()
        .chain(CERTIFIED)
        .map(bin)
        .filter(|bin| bin.is_dir())
        .collect();
    let path = joined(&folders)?;
    Ok(InstalledAgents { folder, path })
}

/// Returns the folder that takes the place of the user's data directory.
fn data() -> Result<PathBuf> {
    Ok(match std::env::var_os("WINDLASS_AGENTS") {
        Some(folder) => PathBuf::from(folder),
        None => cargo::root()?.join("target/agents"),
    })
}

/// Returns the folder below the data directory in which the binary installs agents.
fn folder(data: &Path) -> PathBuf {
    data.join("windlass/runtimes")
}

/// Returns these folders followed by the current `PATH`.
fn joined(folders: &[PathBuf]) -> Result<OsString> {
    let usual = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let all = folders.iter().cloned().chain(std::env::split_paths(&usual));
    std::env::join_paths(all).context("a folder of the agents cannot stand in PATH")
}
