//! `cargo xtask agents`: has the built binary install the agents that runtimes are certified with, into a folder of ours
//! that stands for a person's data. What is there in its version is not touched and needs no network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cargo;

/// Those that CI certifies. The others need Python or take long: they are for `--all`.
pub(crate) const CERTIFIED: &[&str] = &["claude-code", "codex", "opencode"];
/// What an install leaves in its folder once it is whole.
const NOTE: &str = "windlass-install.json";
/// The Node that the binary gets for scripts, where the machine's is too old.
const NODE: &str = "node";

/// Where everything is that was installed.
pub(crate) struct Installed {
    /// A folder for each agent.
    pub(crate) folder: PathBuf,
    /// For `PATH`: where the programs of npm are, for who runs them without windlass.
    pub(crate) path: OsString,
}

/// What is there already, where all that CI certifies is; nothing is installed.
pub(crate) fn installed_already() -> Result<Option<Installed>> {
    let folder = folder(&data()?);
    let there = CERTIFIED
        .iter()
        .all(|name| folder.join(name).join(NOTE).is_file());
    if there {
        installed(folder).map(Some)
    } else {
        Ok(None)
    }
}

/// Installs what is missing with this binary, and says where everything is. With `all`, an agent that this machine cannot
/// have is said and is no failure.
pub(crate) fn run(windlass: &Path, all: bool) -> Result<Installed> {
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
            "    not every agent can be had on this machine (see above); the matrix says so"
        ),
        (false, false) => bail!("the agents could not be installed (see above)"),
    }
    installed(folder(&data))
}

fn installed(folder: PathBuf) -> Result<Installed> {
    let bin = |name: &&str| folder.join(name).join("node_modules/.bin");
    let folders: Vec<PathBuf> = [NODE]
        .iter()
        .chain(CERTIFIED)
        .map(bin)
        .filter(|bin| bin.is_dir())
        .collect();
    let path = joined(&folders)?;
    Ok(Installed { folder, path })
}

/// What stands for a person's data.
fn data() -> Result<PathBuf> {
    Ok(match std::env::var_os("WINDLASS_AGENTS") {
        Some(folder) => PathBuf::from(folder),
        None => cargo::root()?.join("target/agents"),
    })
}

/// Where the binary installs agents below a person's data.
fn folder(data: &Path) -> PathBuf {
    data.join("windlass/runtimes")
}

/// These folders before those that are searched anyway.
fn joined(folders: &[PathBuf]) -> Result<OsString> {
    let usual = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let all = folders.iter().cloned().chain(std::env::split_paths(&usual));
    std::env::join_paths(all).context("a folder of the agents cannot stand in PATH")
}
