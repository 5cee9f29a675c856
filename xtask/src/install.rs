//! Installs tools that the checks need and a bare Rust toolchain may lack. Tools that exist are never updated.

use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::cargo;

/// The version that is installed if there is none.
const CARGO_DENY: &str = "0.20.2";

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
    // A build without optimisation takes a third of the time, and the tool has little to do here.
    let args = [
        "install",
        "--locked",
        "--debug",
        "--version",
        CARGO_DENY,
        "cargo-deny",
    ];
    let installed = cargo::command(args)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        // Not into this repository's target directory: the tool has another lock file and other features.
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(std::env::temp_dir())
        .status();
    ensure!(
        installed.is_ok_and(|status| status.success()),
        "cargo-deny could not be installed; `cargo install --locked cargo-deny` shows why (it needs the network and \
         a C compiler), or put a ready-made `cargo-deny` on the PATH"
    );
    Ok(())
}
