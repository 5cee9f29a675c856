//! A watcher process that kills the commands when this process dies, for whatever reason: killed, crashed or exited
//! without cleanup. It is a small shell that reads from a pipe; the kernel closes the other end when this process dies.
//! It kills nothing while this process lives.

use parking_lot::Mutex;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::Pid;
use windlass_sandbox::reap_within;

/// The script reads a list of process groups, line by line, until the pipe closes, and then kills those that are left.
/// The kernel's alternative (`PR_SET_PDEATHSIG`) kills only one process and not its children, and it depends on the
/// thread that spawned the process.
const WATCH: &str = "trap '' HUP INT QUIT TERM
live=' '
while read -r what id; do
  case $what in
    +) live=\"$live$id \" ;;
    -) live=\"${live%% $id *} ${live#* $id }\" ;;
  esac
done
for id in $live; do kill -s KILL -- \"-$id\"; done";

/// The longest wait for the watcher to exit. After it, the first process of the machine reaps the watcher.
const REAP_TIME: Duration = Duration::from_millis(100);

/// The watcher of some runs. It starts with the first command and ends with the last owner.
#[derive(Debug, Default)]
pub struct Guard(Mutex<Option<Watcher>>);

/// The shell that watches, and the pipe that it reads.
#[derive(Debug)]
struct Watcher {
    pipe: Option<File>,
    shell: Child,
}

impl Drop for Watcher {
    /// Reaps the shell, because the first process of a container often reaps nothing.
    fn drop(&mut self) {
        self.pipe = None;
        reap_within(&mut self.shell, REAP_TIME);
    }
}

impl Guard {
    /// Adds a group, which from now on is killed when this process dies. A command is left behind if this process is
    /// killed between the spawn and this call.
    pub(super) fn add(&self, group: Pid) {
        let mut watcher = self.0.lock();
        if watcher.is_none() {
            // If the shell cannot be started there is no watcher; then only the cleanup of this process kills the
            // commands.
            *watcher = start().ok();
        }
        send(&mut watcher, '+', group);
    }

    /// Removes a group that is gone; the kernel may reuse its id soon.
    pub(super) fn remove(&self, group: Pid) {
        send(&mut self.0.lock(), '-', group);
    }
}

fn send(watcher: &mut Option<Watcher>, what: char, group: Pid) {
    let Some(pipe) = watcher.as_mut().and_then(|watcher| watcher.pipe.as_mut()) else {
        return;
    };
    let written = pipe.write_all(format!("{what} {}\n", group.as_raw_nonzero()).as_bytes());
    if written.is_err() {
        // The shell was killed, or was stopped until the pipe was full. The next command starts another watcher.
        *watcher = None;
    }
}

fn start() -> std::io::Result<Watcher> {
    let (reads, writes) = std::io::pipe()?;
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", WATCH]).env_clear().current_dir("/");
    // It has its own process group, so that a signal to ours does not end it.
    command
        .stdin(reads)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let writes = OwnedFd::from(writes);
    rustix::fs::fcntl_setfl(&writes, OFlags::NONBLOCK)?;
    Ok(Watcher {
        pipe: Some(File::from(writes)),
        shell: command.spawn()?,
    })
}
