//! Probes for namespaces and mounts. They use the system's `unshare` program, so that they can be repeated in a shell.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The timeout of a probe, which usually takes a few milliseconds.
const TIMEOUT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(2);

/// Mounts over folders that exist on every machine.
const NAMESPACES: &str = r#"mount -t tmpfs none "$FOLDER" && mount -t proc none /proc"#;
/// The part of it that the sandbox needs to use namespaces at all.
const MOUNTS: &str = r#"mount -t tmpfs none "$FOLDER""#;
/// The layers are in a folder of the caller; the options are those of the sandbox.
const OVERLAY: &str = r#"cd "$FOLDER" && mkdir lower upper work merged &&
mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work none merged && echo x > merged/file
found=$?
umount merged 2>/dev/null
# The kernel makes a folder there that only root of this namespace can remove.
rm -rf work
exit $found"#;

pub(crate) fn namespaces() -> Result<(), String> {
    run_in_namespaces(NAMESPACES, &std::env::temp_dir())
}

pub(crate) fn command_layers() -> Result<(), String> {
    let mounts = || run_in_namespaces(MOUNTS, &std::env::temp_dir());
    overlay().or_else(|why| mounts().map_or(Ok(()), |()| Err(why)))
}

pub(crate) fn overlay() -> Result<(), String> {
    namespaces()?;
    let folder = std::env::temp_dir().join(format!("windlass-needs-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|err| format!("{}: {err}", folder.display()))?;
    let result = run_in_namespaces(OVERLAY, &folder);
    // If this fails, only empty folders are left in the folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// Runs a shell command in new namespaces; the error is the first line that it printed.
fn run_in_namespaces(line: &str, folder: &std::path::Path) -> Result<(), String> {
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--net",
        "sh",
        "-c",
        line,
    ]);
    command.env("FOLDER", folder).env("LC_ALL", "C");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|err| format!("cannot start the program `unshare`: {err}"))?;
    let began = Instant::now();
    while child.try_wait().map_err(|err| err.to_string())?.is_none() {
        if began.elapsed() >= TIMEOUT {
            let _ = child.kill();
            break;
        }
        std::thread::sleep(TICK);
    }
    let output = child.wait_with_output().map_err(|err| err.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("it printed no reason");
    Err(first.replace('\t', " "))
}
