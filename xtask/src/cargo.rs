//! Prepares cargo commands for a program that cargo started; callers run them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Variables that `cargo run` sets for this program. Build scripts would see them as changed inputs, and everything
/// that depends on them would be built again.
const OURS: &[&str] = &[
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "LD_LIBRARY_PATH",
];

/// Returns the root of the repository, which is the parent of this package.
pub(crate) fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask has no parent directory")?;
    root.canonicalize()
        .context("the repository this xtask was built in is gone; build it again")
}

/// Returns a command for the cargo that started this program, in the environment that it was started in.
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

/// Returns whether a program starts and exits successfully.
pub(crate) fn answers(mut command: Command) -> bool {
    command.stdin(std::process::Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

/// Makes a development build and returns the folder of the programs. `what` is `--workspace` or `-p PACKAGE …`: the
/// stages of `cargo xtask test` share the build of the whole workspace.
pub(crate) fn build(root: &std::path::Path, what: &[&str]) -> Result<PathBuf> {
    let mut build = command(["build", "--locked", "--quiet"]);
    let status = build.args(what).current_dir(root).status();
    ensure!(
        status.context("cargo could not be started")?.success(),
        "the binary could not be built"
    );
    Ok(target_directory(root)?.join("debug"))
}

/// Returns cargo's target directory.
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
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .context("the output of `cargo metadata` is not JSON")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("`cargo metadata` has no target directory")?;
    Ok(PathBuf::from(target))
}

/// Returns the path of this program. If a build replaces the file meanwhile, the system adds " (deleted)" to the path
/// of the old one.
pub(crate) fn own_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program has no path")?;
    let text = own.to_str().unwrap_or_default();
    Ok(text
        .strip_suffix(" (deleted)")
        .map_or_else(|| own.clone(), PathBuf::from))
}
