//! Installs tools that the checks need and a bare Rust toolchain may lack. Tools that exist are never updated.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::cargo;

/// Versions that are installed if a tool is missing.
const CARGO_DENY: &str = "0.20.2";
const MDBOOK: &str = "0.5.4";
const TYPOS: &str = "1.51.1";

/// Makes sure that every program of the checks is installed.
pub(crate) fn install_missing() -> Result<()> {
    let mut git = Command::new("git");
    git.arg("--version");
    ensure!(
        cargo::answers(git),
        "git is needed by the tests and was not found; install it with the system's package manager, for example \
         `apt-get install git` or `brew install git`"
    );
    component("rustfmt", "fmt")?;
    component("clippy", "clippy")?;
    cargo_deny()
}

/// Returns whether the faster test runner is installed. It is never installed here, because the built-in one does the
/// same work.
pub(crate) fn has_nextest() -> bool {
    cargo::answers(cargo::command(["nextest", "--version"]))
}

fn component(name: &str, subcommand: &str) -> Result<()> {
    if cargo::answers(cargo::command([subcommand, "--version"])) {
        return Ok(());
    }
    println!("    {name} is missing: rustup component add {name}");
    let added = Command::new("rustup")
        .args(["component", "add", name])
        .status();
    match added {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            bail!("`rustup component add {name}` failed ({status}); run it by hand to see why")
        }
        Err(_) => bail!(
            "{name} is missing and there is no rustup to add it; install it the way Rust was installed"
        ),
    }
}

fn cargo_deny() -> Result<()> {
    if cargo::answers(cargo::command(["deny", "--version"])) {
        return Ok(());
    }
    println!(
        "    cargo-deny is missing: installing version {CARGO_DENY} into cargo's own directory, once"
    );
    println!("    (a few minutes; it checks licences and forbidden crates)");
    cargo_install(&["--version", CARGO_DENY, "cargo-deny"])
}

/// mdBook, which builds the site of the docs.
pub(crate) fn mdbook() -> Result<PathBuf> {
    tool("mdbook", &["--version", MDBOOK, "mdbook"])
}

/// The spell checker of the source and the docs.
pub(crate) fn typos() -> Result<PathBuf> {
    match wheel("typos", TYPOS)? {
        Some(program) => Ok(program),
        None => tool("typos", &["--version", TYPOS, "typos-cli"]),
    }
}

/// A program of a PyPI package that contains it built, which takes seconds instead of minutes. Returns nothing where
/// pip does not install it, for example for want of Python or of a build for this machine.
fn wheel(name: &str, version: &str) -> Result<Option<PathBuf>> {
    let folder = cargo::root()?
        .join("target/tools")
        .join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]);
        pip.arg("--disable-pip-version-check")
            .arg("--target")
            .arg(&folder);
        pip.arg(format!("{name}=={version}"));
        if !cargo::answers(pip) {
            return Ok(None);
        }
    }
    Ok(program.is_file().then_some(program))
}

/// A program on the PATH, or one that is installed into `target/tools` for us alone.
fn tool(name: &str, args: &[&str]) -> Result<PathBuf> {
    let folder = cargo::root()?.join("target/tools");
    let own = folder.join("bin").join(name);
    for program in [PathBuf::from(name), own.clone()] {
        let mut version = Command::new(&program);
        version.arg("--version");
        if cargo::answers(version) {
            return Ok(program);
        }
    }
    println!("    {name} is missing: installing it into target/tools, once (a few minutes)");
    let folder = folder.to_string_lossy().into_owned();
    cargo_install(&[&["--root", &folder], args].concat())?;
    Ok(own)
}

fn cargo_install(args: &[&str]) -> Result<()> {
    // A build without optimisation takes a third of the time, and these tools have little to do here.
    let installed = cargo::command(["install", "--locked", "--debug"])
        .args(args)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        // Not into this repository's target directory: the tool has another lock file and other features.
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(std::env::temp_dir())
        .status();
    ensure!(
        installed.is_ok_and(|status| status.success()),
        "`cargo install --locked {}` failed (it needs the network and a C compiler); put a ready-made program on the PATH \
         instead",
        args.join(" ")
    );
    Ok(())
}
