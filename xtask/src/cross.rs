//! `cargo xtask cross`: builds the binary for aarch64 and runs unit tests and the demo under qemu's user mode. qemu passes
//! neither namespaces nor Landlock nor filters on, so the sandbox itself is not tested: docs/aarch64.md says what is.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const RUNNER: &str = "xtask/tools/run-aarch64.sh";
/// Names a compiler that has the standard library. Not `RUSTC`: that would also build this program again.
const COMPILER: &str = "WINDLASS_CROSS_RUSTC";

/// Crates whose unit tests need no sandbox.
const TESTED: &[&str] = &[
    "windlass-core",
    "windlass-engine",
    "windlass-providers",
    "windlass-shell",
    "windlass-telemetry",
    "windlass-validators",
];

pub(crate) fn run() -> Result<()> {
    let root = cargo::root()?;
    needs(&root)?;
    cargo(&root, &["build", "--locked", "-p", "windlass-cli"])?;
    let packages = TESTED.iter().flat_map(|name| ["-p", *name]);
    cargo(&root, &["test", "--locked", "--lib"].into_iter().chain(packages).collect::<Vec<_>>())?;
    let binary = root.join("target/cross").join(TARGET).join("debug/windlass");
    for args in [&["--version"][..], &["doctor"], &["demo"]] {
        let mut command = Command::new(root.join(RUNNER));
        let status = command.arg(&binary).args(args).status().context("the runner could not be started")?;
        // Without a sandbox the doctor reports failure, and an isolated run may be refused: only the status is shown.
        ensure!(status.success() || args != ["--version"], "the binary does not start under qemu: {status}");
        println!("windlass {} ended with {status}", args.join(" "));
    }
    Ok(())
}

/// Says what is missing before the first long step.
fn needs(root: &Path) -> Result<()> {
    let starts = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version");
        cargo::answers(command)
    };
    let programs = [("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"), ("qemu-aarch64-static", "qemu-user-static")];
    for (program, package) in programs {
        ensure!(starts(program), "`{program}` is missing; on Debian: apt install {package} libc6-dev-arm64-cross");
    }
    let rustc = std::env::var_os(COMPILER).unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output()?;
    let libdir = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || !Path::new(&libdir).is_dir() {
        bail!(
            "the compiler has no standard library for {TARGET}: `rustup target add {TARGET}`, or see docs/aarch64.md"
        );
    }
    let mut runner = Command::new(root.join(RUNNER));
    runner.arg("true");
    ensure!(cargo::answers(runner), "{RUNNER} does not work here: it needs user namespaces and Linux 6.7 or newer");
    Ok(())
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    let mut command = cargo::command(args.iter().copied());
    command.args(["--target", TARGET, "--target-dir", "target/cross"]).current_dir(root);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", root.join(RUNNER));
    command.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc");
    if let Some(rustc) = std::env::var_os(COMPILER) {
        command.env("RUSTC", rustc);
    }
    // Half the size and time, and no test looks at it.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    let status = command.status().context("cargo could not be started")?;
    if status.success() { Ok(()) } else { bail!("cargo {} failed for {TARGET}", args.join(" ")) }
}
