//! Runs a program of the machine for its short output, for example the version of Python or Node, with a timeout. The
//! program does not run in a sandbox.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_OUTPUT: usize = 4_096;

/// The standard output of a program that succeeds within the timeout; `None` otherwise.
pub(crate) fn short_output(program: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    // Version managers read the version to start from the current directory, which must not be the user's.
    command
        .args(args)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take();
    let ended = wait_timeout(&mut child, TIMEOUT)
        .is_ok_and(|status| status.is_some_and(|status| status.success()));
    let mut stdout = stdout.filter(|_| ended)?;
    // The program has exited, so its output is in the pipe. A child that it left behind may still hold the pipe open, so
    // the read must not wait for the end of the stream.
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    let mut output = vec![0; MAX_OUTPUT];
    let length = stdout.read(&mut output).ok()?;
    Some(String::from_utf8_lossy(&output[..length]).into_owned())
}

/// Waits for a program to exit. After the timeout, it is killed and the result is `None`.
pub(crate) fn wait_timeout(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
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
    fn children_that_a_program_leaves_behind_are_not_waited_for() {
        let shell = Path::new("/bin/sh");
        assert_eq!(
            short_output(shell, &["-c", "echo 3 12"]).as_deref(),
            Some("3 12\n")
        );
        assert_eq!(
            short_output(shell, &["-c", "echo 3 12; exec sleep 20 &"]).as_deref(),
            Some("3 12\n")
        );
        assert_eq!(short_output(shell, &["-c", "sleep 20 & exit 0"]), None);
        assert_eq!(short_output(shell, &["-c", "echo 3 12; exit 1"]), None);
    }
}
