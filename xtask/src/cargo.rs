//! Calling cargo from inside a program that cargo started. It only prepares commands; callers run them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Variables that `cargo run` sets for us. Passed on they would look like changed inputs to build scripts, and
/// everything above them would be built again.
const OURS: &[&str] = &[
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "LD_LIBRARY_PATH",
];

/// The repository: the parent of this package.
pub(crate) fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask has no parent directory")?;
    root.canonicalize()
        .context("the repository this xtask was built in is gone; build it again")
}

/// The cargo that started us, in the environment that it was started in.
pub(crate) fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        let known = name
            .to_str()
            .is_some_and(|name| OURS.contains(&name) || name.starts_with("CARGO_PKG_"));
        if known {
            command.env_remove(&name);
        }
    }
    command
}

/// Whether a program starts and says it is fine.
pub(crate) fn answers(mut command: Command) -> bool {
    command.stdin(std::process::Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

/// Builds for development and returns the folder of the programs. `what` is `--workspace` or `-p PACKAGE …`: the
/// stages of `cargo xtask test` share the units of the whole workspace.
pub(crate) fn build(root: &std::path::Path, what: &[&str]) -> Result<PathBuf> {
    let mut build = command(["build", "--locked", "--quiet"]);
    let status = build.args(what).current_dir(root).status();
    ensure!(
        status.context("cargo could not be started")?.success(),
        "the binary could not be built"
    );
    Ok(target_directory(root)?.join("debug"))
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory(root: &std::path::Path) -> Result<PathBuf> {
    let args = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
        "--locked",
    ];
    let output = command(args)
        .current_dir(root)
        .output()
        .context("cargo could not be started")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata is no JSON")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo names no target directory")?;
    Ok(PathBuf::from(target))
}

/// This program. A build that runs meanwhile puts a new file in its place, and the system then names the old one.
pub(crate) fn own_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program has no path")?;
    let text = own.to_str().unwrap_or_default();
    Ok(text
        .strip_suffix(" (deleted)")
        .map_or_else(|| own.clone(), PathBuf::from))
}
