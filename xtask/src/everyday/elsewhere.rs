//! The same tasks without parts of the kernel, or as another user: copies of both programs go into a folder that every
//! user can read, and this program starts itself there behind the filters of `cargo xtask without`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Options;

use crate::cargo;

/// Variables that would lead the other user into the folders of this one.
const OWN_FOLDERS: &[&str] = &[
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

pub(super) fn run(options: &Options, binary: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let own = cargo::own_program()?;
    let copies = [(own.as_path(), "xtask"), (binary, "windlass")];
    for (from, name) in copies {
        std::fs::copy(from, folder.path().join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let mut command = Command::new(folder.path().join("xtask"));
    command
        .arg("without")
        .args(options.without.iter().map(|feature| feature.name()));
    if let Some(uid) = options.uid {
        let home = folder.path().join("home");
        std::fs::create_dir(&home)?;
        std::os::unix::fs::chown(&home, Some(uid), Some(uid))
            .context("only root can run tasks as another user")?;
        command.args(["--uid", &uid.to_string()]).env("HOME", &home);
        for name in OWN_FOLDERS {
            command.env_remove(name);
        }
    }
    command
        .arg("--")
        .arg(folder.path().join("xtask"))
        .arg("everyday");
    command.arg("--binary").arg(folder.path().join("windlass"));
    if options.sample {
        command.arg("--sample");
    }
    if let Some(text) = &options.only {
        command.args(["--only", text]);
    }
    if let Some(jobs) = options.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    let status = command
        .current_dir(folder.path())
        .status()
        .context("the tasks could not be started")?;
    if !status.success() {
        bail!("not every task passed (see above)");
    }
    Ok(())
}
