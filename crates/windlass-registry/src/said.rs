//! What a program of the machine says of itself in a few words: a Python or a Node, before something is installed for it.
//! It runs as it is, and is not waited for longer than that takes.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(10);
const MAX_SAID: usize = 4_096;

/// What a program says, when it ends well and soon.
pub(crate) fn said(program: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    // Not where the person stands: launchers of versions read there which one they are to start.
    command
        .args(args)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take();
    let began = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
        }
    };
    // What it started may still hold the pipe of one that had to be ended.
    let mut stdout = stdout.filter(|_| ended)?;
    // It has ended, so that what it said is in the pipe; whoever else holds that is not waited for.
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    let mut said = vec![0; MAX_SAID];
    let length = stdout.read(&mut said).ok()?;
    Some(String::from_utf8_lossy(&said[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_leaves_behind_is_not_waited_for() {
        let shell = Path::new("/bin/sh");
        assert_eq!(said(shell, &["-c", "echo 3 12"]).as_deref(), Some("3 12\n"));
        assert_eq!(
            said(shell, &["-c", "echo 3 12; exec sleep 20 &"]).as_deref(),
            Some("3 12\n")
        );
        assert_eq!(said(shell, &["-c", "sleep 20 & exit 0"]), None);
        assert_eq!(said(shell, &["-c", "echo 3 12; exit 1"]), None);
    }
}
