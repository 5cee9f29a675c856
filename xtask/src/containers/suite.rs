//! Runs the test suite in a container, as `cargo xtask test` would there. The test programs are built outside, and the
//! repository, the toolchain and the test runner are mounted read-only at their own paths.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::RowOutcome;
use super::podman::{Podman, finish, mount};
use super::rows::{Container, SeccompProfile, USER};
use crate::cargo;
use crate::not_run::{self, NotRun};

/// The timeout for all tests together.
const SUITE_TIMEOUT: Duration = Duration::from_secs(1800);
/// The most failed tests that are printed.
const MAX_NAMES: usize = 200;
/// Kills a test that hangs. Outside of containers there is no such limit, so that a debugger can be attached.
const RUNNER_CONFIG: &str =
    "[profile.default]\nslow-timeout = { period = \"60s\", terminate-after = 4 }\n";

pub(super) struct Suite {
    pub(super) name: &'static str,
    container: Container,
}

pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "tests, docker profile, uid 1000",
        container: USER,
    },
    Suite {
        name: "tests, podman profile, uid 0",
        container: Container {
            profile: SeccompProfile::Podman,
            uid: 0,
            ..USER
        },
    },
];

/// Builds the tests and runs them in a container.
pub(super) fn run(
    suite: &Suite,
    podman: &Podman,
    root: &Path,
    folder: &Path,
    logs: &Path,
) -> Result<RowOutcome> {
    if let Some(why) = podman.lacks(&suite.container) {
        return Ok(RowOutcome::NotRun(why));
    }
    let Some(runner) = find_program("cargo-nextest") else {
        return Ok(RowOutcome::NotRun(
            "needs cargo-nextest, which can run tests that were built elsewhere".to_owned(),
        ));
    };
    let shared = folder.join("suite");
    build(root, &shared)?;
    let out = shared.join("out");
    std::fs::create_dir_all(&out)?;
    // The user of the container writes the list of skipped tests.
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o1777))?;
    let list = NotRun::at(out.join("not-run.txt"))?;
    std::fs::set_permissions(list.path(), std::fs::Permissions::from_mode(0o666))?;
    let name = format!("windlass-suite-{}", std::process::id());
    let mut command = podman.run(&name, &suite.container)?;
    mount_tools(&mut command, root, &runner)?;
    mount(&mut command, &shared, "/suite", "ro");
    mount(&mut command, &out, "/out", "rw");
    command.args([
        "-e",
        &format!("{}=/out/not-run.txt", not_run::VARIABLE),
        "-e",
        "INSTA_UPDATE=no",
    ]);
    command
        .arg("-w")
        .arg(root)
        .arg(podman.image())
        .args(["/usr/bin/bash", "-c", INSIDE]);
    let finished = finish(
        &mut command,
        &logs.join(format!("tests-uid-{}.log", suite.container.uid)),
        SUITE_TIMEOUT,
    );
    podman.remove(&name);
    let (code, output) = finished?;
    let not_run = list
        .finish()?
        .map(|sentence| format!("; {sentence}"))
        .unwrap_or_default();
    let isolation = format!("{}{not_run}", summary(&output));
    Ok(match code {
        Some(0) => RowOutcome::Passed { isolation },
        _ => RowOutcome::Failed {
            isolation,
            why: vec![failures(&output)],
        },
    })
}

/// The attacks are left out, as in `cargo xtask test`, where they are a separate stage. The shell stays process 1 and
/// reaps orphans, which would otherwise fill the container's limit on processes.
const INSIDE: &str = "mkdir -p \"$HOME\" && /wl/cargo-nextest nextest run --no-fail-fast --color never \
    --binaries-metadata /suite/binaries.json --cargo-metadata /suite/cargo.json --tool-config-file rows:/suite/runner.toml \
    -E 'not test(attacks_are_stopped_and_everyday_work_succeeds)' 2>&1; exit $?";

/// Builds every test program and writes their paths to a file.
fn build(root: &Path, shared: &Path) -> Result<()> {
    std::fs::create_dir_all(shared)?;
    std::fs::set_permissions(shared, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(shared.join("runner.toml"), RUNNER_CONFIG)?;
    let list = [
        "nextest",
        "list",
        "--workspace",
        "--locked",
        "--list-type",
        "binaries-only",
        "--message-format",
        "json",
    ];
    // Without the platform, cargo wants crates for other systems, which no build here has downloaded.
    let platform = rustc(root, &["--print", "host-tuple"])?;
    let metadata = [
        "metadata",
        "--format-version",
        "1",
        "--offline",
        "--locked",
        "--filter-platform",
        &platform,
    ];
    for (file, args) in [("binaries.json", &list[..]), ("cargo.json", &metadata[..])] {
        let mut command = cargo::command(args.iter().copied());
        let made = command
            .current_dir(root)
            .stderr(std::process::Stdio::inherit())
            .output();
        let made = made.context("cargo could not be started")?;
        ensure!(
            made.status.success(),
            "the tests could not be built (see above)"
        );
        std::fs::write(shared.join(file), made.stdout)?;
    }
    Ok(())
}

/// Mounts what a machine with a Rust toolchain and a clone of this repository has.
fn mount_tools(command: &mut Command, root: &Path, runner: &Path) -> Result<()> {
    let target = cargo::target_directory(root)?;
    let sysroot = PathBuf::from(rustc(root, &["--print", "sysroot"])?);
    let mut folders = vec![root.to_owned()];
    if !target.starts_with(root) {
        folders.push(target);
    }
    if !sysroot.starts_with("/usr") {
        folders.push(sysroot.clone());
    }
    for folder in folders {
        let path = folder
            .to_str()
            .context("a path of the tools is not Unicode")?
            .to_owned();
        mount(command, &folder, &path, "ro");
    }
    mount(command, runner, "/wl/cargo-nextest", "ro");
    let bin = sysroot.join("bin");
    command.args([
        "-e",
        &format!("PATH={}:/usr/local/bin:/usr/bin:/bin", bin.display()),
    ]);
    Ok(())
}

/// Asks the compiler of this repository for a property.
pub(super) fn rustc(root: &Path, args: &[&str]) -> Result<String> {
    let printed = Command::new("rustc")
        .args(args)
        .current_dir(root)
        .output()
        .context("rustc could not be started")?;
    ensure!(
        printed.status.success(),
        "`rustc {}` failed",
        args.join(" ")
    );
    Ok(String::from_utf8_lossy(&printed.stdout).trim().to_owned())
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Returns the runner's line of counts.
fn summary(output: &str) -> String {
    let line = output
        .lines()
        .rev()
        .find(|line| line.trim_start().starts_with("Summary"));
    line.map_or("the runner did not finish", str::trim)
        .to_owned()
}

/// Returns the names of the failed tests, or the end of the output if there are none.
fn failures(output: &str) -> String {
    let failed = |line: &&str| {
        ["FAIL [", "TIMEOUT [", "ABORT [", "SIG"]
            .iter()
            .any(|word| line.trim().starts_with(word))
    };
    let mut names: Vec<&str> = output
        .lines()
        .filter(failed)
        .filter_map(|line| line.rsplit_once(") "))
        .map(|(_, name)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return super::outcome::last_lines(output);
    }
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 {
        format!("\n        and {more} more")
    } else {
        String::new()
    };
    format!(
        "failed:\n        {}{more}",
        names[..names.len().min(MAX_NAMES)].join("\n        ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named_once() {
        let output = "        PASS [   0.1s] (1/3) a::it b\n        FAIL [   0.1s] (2/3) a::it c\n   TIMEOUT [ 240.0s] (3/3) a d\n\
                      ────────────\n     Summary [   0.3s] 3 tests run: 1 passed, 2 failed\n        FAIL [   0.1s] (2/3) a::it c\n";
        assert_eq!(failures(output), "failed:\n        a d\n        a::it c");
        assert_eq!(
            summary(output),
            "Summary [   0.3s] 3 tests run: 1 passed, 2 failed"
        );
        assert_eq!(summary(""), "the runner did not finish");
    }
}
