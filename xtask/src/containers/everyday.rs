//! Runs the tasks of `cargo xtask everyday` in containers, with the toolchain of this machine mounted read-only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::podman::{Podman, finish, mount};
use super::rows::{Container, SeccompProfile, USER};
use super::suite::rustc;
use super::{RowOutcome, outcome};

use crate::cargo;

/// The timeout for all tasks together.
const TASKS_TIMEOUT: Duration = Duration::from_secs(900);

pub(super) struct Tasks {
    pub(super) name: &'static str,
    container: Container,
}

pub(super) const ALL: &[Tasks] = &[
    Tasks {
        name: "everyday tasks, docker profile, uid 0",
        container: Container { uid: 0, ..USER },
    },
    Tasks {
        name: "everyday tasks, docker profile, uid 1000",
        container: USER,
    },
    Tasks {
        name: "everyday tasks, podman profile, uid 0",
        container: Container {
            profile: SeccompProfile::Podman,
            uid: 0,
            ..USER
        },
    },
    Tasks {
        name: "everyday tasks, podman profile, uid 1000",
        container: Container {
            profile: SeccompProfile::Podman,
            ..USER
        },
    },
];

/// Runs every task in one container; `shared` contains the binary and is mounted at `/wl`.
pub(super) fn run(
    tasks: &Tasks,
    podman: &Podman,
    root: &Path,
    shared: &Path,
    logs: &Path,
) -> Result<RowOutcome> {
    if let Some(why) = podman.lacks(&tasks.container) {
        return Ok(RowOutcome::NotRun(why));
    }
    let own = cargo::own_program()?;
    std::fs::copy(own, shared.join("xtask")).context("this program cannot be copied")?;
    let name = format!("windlass-everyday-{}", std::process::id());
    let mut command = podman.run(&name, &tasks.container)?;
    mount(&mut command, shared, "/wl", "ro");
    let sysroot = PathBuf::from(rustc(root, &["--print", "sysroot"])?);
    if !sysroot.starts_with("/usr") {
        mount(&mut command, &sysroot, "/opt/rust", "ro");
        command.args(["-e", "PATH=/opt/rust/bin:/usr/local/bin:/usr/bin:/bin"]);
    }
    command
        .arg(podman.image())
        .args(["/wl/xtask", "everyday", "--binary", "/wl/windlass"]);
    let log = logs.join(format!("{}.log", tasks.name.replace([' ', ','], "-")));
    let finished = finish(&mut command, &log, TASKS_TIMEOUT);
    podman.remove(&name);
    let (code, output) = finished?;
    let totals: Vec<&str> = output
        .lines()
        .filter(|line| line.contains(" passed, "))
        .collect();
    let isolation = totals.join("; ");
    Ok(match code {
        Some(0) => RowOutcome::Passed { isolation },
        _ => RowOutcome::Failed {
            isolation,
            why: vec![failures(&output)],
        },
    })
}

fn failures(output: &str) -> String {
    let failed: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with("FAILED"))
        .collect();
    if failed.is_empty() {
        outcome::last_lines(output)
    } else {
        failed.join("\n    ")
    }
}
