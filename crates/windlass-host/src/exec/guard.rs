//! A watcher outside this process that ends the commands when this process ends, however it ends: killed, crashed or
//! left without cleaning up. It is a small shell that holds one end of a pipe; the kernel closes the other end for us.
//! It never ends anything while this process lives.

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

/// Keeps a list of groups, told line by line, until the pipe ends; then kills those that are left.
/// The bond between a parent and its child that the kernel offers instead (`PR_SET_PDEATHSIG`) reaches one process
/// and not what that one started, and hangs on the thread that did.
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

/// The watcher of some runs; started with the first command, gone with the last owner.
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
    /// From now on the group dies with this process. (A process that is killed in the moment between starting a
    /// command and telling so leaves that one behind.)
    pub(super) fn add(&self, group: Pid) {
        let mut watcher = self.0.lock();
        if watcher.is_none() {
            // Without a shell or a free process there is no watcher; commands then end as this process cleans up.
            *watcher = start().ok();
        }
        tell(&mut watcher, '+', group);
    }

    /// The group is gone; its number may be another's soon.
    pub(super) fn remove(&self, group: Pid) {
        tell(&mut self.0.lock(), '-', group);
    }
}

fn tell(watcher: &mut Option<Watcher>, what: char, group: Pid) {
    let Some(pipe) = watcher.as_mut().and_then(|watcher| watcher.pipe.as_mut()) else {
        return;
    };
    let told = pipe.write_all(format!("{what} {}\n", group.as_raw_nonzero()).as_bytes());
    if told.is_err() {
        // The shell was killed, or stopped until the pipe was full: the next command gets another one.
        *watcher = None;
    }
}

fn start() -> std::io::Result<Watcher> {
    let (reads, writes) = std::io::pipe()?;
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", WATCH]).env_clear().current_dir("/");
    // In a group of its own, so that a signal for ours does not end it.
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
