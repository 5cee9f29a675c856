//! `cargo xtask cross`: builds the binary for aarch64 and runs unit tests and the demo under qemu's user mode. qemu
//! supports neither namespaces nor Landlock nor filters, so the sandbox itself is not tested; docs/aarch64.md lists
//! what is.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo;
use crate::not_run::{self, NotRun};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The list of tests that cannot run under qemu.
const NOT_RUN: &str = "target/cross/not-run.txt";
const RUNNER: &str = "xtask/tools/run-aarch64.sh";
/// Names a compiler that has the standard library for the target. `RUSTC` would also rebuild this program.
const COMPILER: &str = "WINDLASS_CROSS_RUSTC";

/// Crates whose unit tests need no sandbox.
const TESTED: &[&str] = &[
    "windlass-core",
    "windlass-edit",
    "windlass-engine",
    "windlass-import",
    "windlass-meter",
    "windlass-providers",
    "windlass-registry",
    "windlass-sandbox",
    "windlass-telemetry",
    "windlass-transaction",
    "windlass-validators",
];

/// Crates without unit tests whose integration tests need no sandbox.
const TESTED_FROM_OUTSIDE: &[&str] = &["windlass-proposal", "windlass-shell"];

/// Arguments for the emulated binary and the text it must print. It must also exit with 0. No sandbox works under
/// qemu's user mode, so the demo works in place there.
const STARTED: &[(&str, &[&str])] = &[
    (
        "--version",
        &[concat!("windlass ", env!("CARGO_PKG_VERSION"))],
    ),
    ("doctor", &["no sandbox is available for commands"]),
    (
        "demo",
        &[
            "so the demo works in place",
            "completed · 5 steps",
            "undone 1 file",
            "redone 1 file",
        ],
    ),
];

pub(crate) fn run() -> Result<()> {
    let root = cargo::root()?;
    needs(&root)?;
    cargo(&root, &["build", "--locked", "-p", "windlass-cli"])?;
    let not_run = NotRun::at(root.join(NOT_RUN))?;
    for (kind, names) in [("--lib", TESTED), ("--tests", TESTED_FROM_OUTSIDE)] {
        let packages = names.iter().flat_map(|name| ["-p", *name]);
        cargo(
            &root,
            &["test", "--locked", kind]
                .into_iter()
                .chain(packages)
                .collect::<Vec<_>>(),
        )?;
    }
    if let Some(sentence) = not_run.finish()? {
        println!("{sentence}\n    every one of them: {NOT_RUN}");
    }
    let binary = root
        .join("target/cross")
        .join(TARGET)
        .join("debug/windlass");
    for (arg, expected) in STARTED {
        start_program(&root, &binary, arg, expected)?;
    }
    Ok(())
}

fn start_program(root: &Path, binary: &Path, arg: &str, expected: &[&str]) -> Result<()> {
    let mut command = Command::new(root.join(RUNNER));
    // The program would warn about this variable, which is only for the build.
    command.env_remove(COMPILER);
    let output = command
        .arg(binary)
        .arg(arg)
        .output()
        .context("the runner could not be started")?;
    let printed = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    print!("{printed}");
    println!("windlass {arg} ended with {}", output.status);
    ensure!(output.status.success(), "windlass {arg} failed under qemu");
    for text in expected {
        ensure!(
            printed.contains(text),
            "windlass {arg} did not print `{text}` under qemu"
        );
    }
    Ok(())
}

/// Reports missing tools before the first long step.
fn needs(root: &Path) -> Result<()> {
    let starts = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version");
        cargo::answers(command)
    };
    let programs = [
        ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
        ("qemu-aarch64-static", "qemu-user-static"),
    ];
    for (program, package) in programs {
        ensure!(
            starts(program),
            "`{program}` is missing; on Debian: apt install {package} libc6-dev-arm64-cross"
        );
    }
    let rustc = std::env::var_os(COMPILER).unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()?;
    let libdir = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || !Path::new(&libdir).is_dir() {
        bail!(
            "the compiler has no standard library for {TARGET}: `rustup target add {TARGET}`, or see docs/aarch64.md"
        );
    }
    let mut runner = Command::new(root.join(RUNNER));
    runner.arg("true");
    ensure!(
        cargo::answers(runner),
        "{RUNNER} does not work here: it needs user namespaces and Linux 6.7 or newer"
    );
    Ok(())
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    let mut command = cargo::command(args.iter().copied());
    command
        .args(["--target", TARGET, "--target-dir", "target/cross"])
        .current_dir(root);
    command.env(
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
        "aarch64-linux-gnu-gcc",
    );
    command.env(
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
        root.join(RUNNER),
    );
    command.env(not_run::VARIABLE, root.join(NOT_RUN));
    command.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc");
    if let Some(rustc) = std::env::var_os(COMPILER) {
        command.env("RUSTC", rustc);
    }
    // Half the size and time, and no test needs debug information.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    let status = command.status().context("cargo could not be started")?;
    if status.success() {
        Ok(())
    } else {
        bail!("cargo {} failed for {TARGET}", args.join(" "))
    }
}
