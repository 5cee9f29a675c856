//! `cargo xtask agents`: installs the agents that runtimes are certified with, in fixed versions, into a cache of ours.
//! npm must be on the machine; where its Node is too old for them, Node itself comes as a package, too. What is there is
//! not touched and needs no network.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo;

/// The Node that some of them want.
const NODE_AT_LEAST: u32 = 22;

/// A program that comes as a package.
struct Package {
    /// Its folder in the cache.
    name: &'static str,
    package: &'static str,
    version: &'static str,
    program: &'static str,
}

const NODE: Package = Package { name: "node", package: "node", version: "22.23.3", program: "node" };
const AGENTS: &[Package] = &[
    Package { name: "claude", package: "@anthropic-ai/claude-code", version: "2.1.325", program: "claude" },
    Package { name: "codex", package: "@openai/codex", version: "0.166.0", program: "codex" },
    Package { name: "opencode", package: "opencode-ai", version: "1.18.33", program: "opencode" },
];

/// Where programs are found with everything that is installed.
pub(crate) struct Installed {
    /// For `PATH`.
    pub(crate) path: OsString,
}

/// What is there already, where all of it is; nothing is installed.
pub(crate) fn installed_already() -> Result<Option<Installed>> {
    let cache = cache()?;
    let bin = |package: &Package| cache.join(package.name).join("node_modules/.bin");
    let mut folders = Vec::new();
    if node_on_path().is_none_or(|version| version < NODE_AT_LEAST) {
        folders.push(bin(&NODE));
    }
    for agent in AGENTS {
        if !answers(agent, &bin(agent).join(agent.program), &folders) {
            return Ok(None);
        }
        folders.push(bin(agent));
    }
    Ok(Some(Installed { path: joined(&folders)? }))
}

fn cache() -> Result<PathBuf> {
    Ok(match std::env::var_os("WINDLASS_AGENTS") {
        Some(folder) => PathBuf::from(folder),
        None => cargo::root()?.join("target/agents"),
    })
}

/// Installs what is missing, and says where everything is.
pub(crate) fn run() -> Result<Installed> {
    let cache = cache()?;
    let mut folders = Vec::new();
    if node_on_path().is_none_or(|version| version < NODE_AT_LEAST) {
        folders.push(installed(&NODE, &cache, &[])?);
    }
    for agent in AGENTS {
        let folder = installed(agent, &cache, &folders)?;
        folders.push(folder);
    }
    Ok(Installed { path: joined(&folders)? })
}

/// Sees to it that a package is there in its version; the folder of its program.
fn installed(package: &Package, cache: &Path, before: &[PathBuf]) -> Result<PathBuf> {
    let prefix = cache.join(package.name);
    let bin = prefix.join("node_modules/.bin");
    let program = bin.join(package.program);
    if !answers(package, &program, before) {
        println!("    installing {} {} into {}", package.package, package.version, prefix.display());
        std::fs::create_dir_all(&prefix).with_context(|| format!("cannot make {}", prefix.display()))?;
        install(package, &prefix, before)?;
        ensure!(
            answers(package, &program, before),
            "{} was installed, and does not say that it is version {}; remove {} and try again",
            program.display(),
            package.version,
            prefix.display()
        );
    }
    println!("    {:<9} {:<9} {}", package.name, package.version, program.display());
    Ok(bin)
}

fn install(package: &Package, prefix: &Path, before: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(prefix);
    command.arg(format!("{}@{}", package.package, package.version)).env("PATH", joined(before)?);
    let status = match command.status() {
        Ok(status) => status,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => bail!(
            "npm is needed to install the agents and was not found; install Node with the system's package manager, \
             for example `apt-get install npm` or `brew install node`"
        ),
        Err(err) => return Err(err).context("npm could not be started"),
    };
    ensure!(status.success(), "npm could not install {}@{} (see above)", package.package, package.version);
    Ok(())
}

/// Whether the program is there and says that it is this version.
fn answers(package: &Package, program: &Path, before: &[PathBuf]) -> bool {
    let Ok(path) = joined(before) else { return false };
    let mut command = Command::new(program);
    command.arg("--version").env("PATH", path).stdin(std::process::Stdio::null());
    let said = command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.split_whitespace().any(|word| word.trim_start_matches('v') == package.version)
}

/// The main version of the Node that is on this machine.
fn node_on_path() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    main_version(&said)
}

fn main_version(said: &str) -> Option<u32> {
    said.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}

/// These folders before those that are searched anyway.
fn joined(folders: &[PathBuf]) -> Result<OsString> {
    let usual = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let all = folders.iter().cloned().chain(std::env::split_paths(&usual));
    std::env::join_paths(all).context("a folder of the cache cannot stand in PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_version_of_node_is_read() {
        assert_eq!(main_version("v22.23.3\n"), Some(22));
        assert_eq!(main_version("v8.0.0"), Some(8));
        assert_eq!(main_version("no node"), None);
    }
}
