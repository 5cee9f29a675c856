//! What a program of the machine says of itself in a few words: a Python or a Node, before something is installed for it.
//! It runs as it is, and is not waited for longer than that takes.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
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
    let ended = ended_within(&mut child, PATIENCE)
        .is_ok_and(|status| status.is_some_and(|status| status.success()));
    // What it started may still hold the pipe of one that had to be ended.
    let mut stdout = stdout.filter(|_| ended)?;
    // It has ended, so that what it said is in the pipe; whoever else holds that is not waited for.
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    let mut said = vec![0; MAX_SAID];
    let length = stdout.read(&mut said).ok()?;
    Some(String::from_utf8_lossy(&said[..length]).into_owned())
}

/// How a program ended; it is killed where it takes longer than that, and this is `None`.
pub(crate) fn ended_within(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= time {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
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
