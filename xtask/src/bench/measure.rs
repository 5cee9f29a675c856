//! Running one program to its end and asking the kernel what it took. Bounded: a program that does not end is ended.
//! The only unsafe block of this crate is here, the system call that tells what a child used.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Longer than any measured program takes.
const LIMIT: Duration = Duration::from_secs(300);

/// What one run of a program took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// From before it was started until its end was known.
    pub(crate) wall: Duration,
    /// Processor time in it and in the kernel for it, its own children included.
    pub(crate) cpu: Duration,
    /// The most memory it held at once, in bytes.
    pub(crate) rss: u64,
}

/// Runs a program; its output is dropped. Anything but success is an error with the end of what it complained about.
pub(crate) fn measure(command: &mut Command, complaints: &std::path::Path) -> Result<Sample> {
    let stderr =
        std::fs::File::create(complaints).context("cannot write to the temporary directory")?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    let began = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let (status, usage) = reap(child)?;
    let wall = began.elapsed();
    if status != 0 {
        let said = std::fs::read_to_string(complaints).unwrap_or_default();
        let tail: Vec<&str> = said.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!(
            "{command:?} failed (wait status {status:#x}): {}",
            tail.join("\n")
        );
    }
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.unsigned_abs())
            + Duration::from_micros(value.tv_usec.unsigned_abs())
    };
    // Linux counts this one in KiB.
    let rss = usage.ru_maxrss.unsigned_abs() * 1024;
    Ok(Sample {
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        rss,
    })
}

/// Waits for a child and takes its account. Ends it when the limit passes.
#[allow(unsafe_code)]
fn reap(mut child: Child) -> Result<(i32, libc::rusage)> {
    let pid = i32::try_from(child.id()).context("a process number out of range")?;
    let (done, wait) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if wait
            .recv_timeout(LIMIT)
            .is_err_and(|err| err == mpsc::RecvTimeoutError::Timeout)
        {
            // Not waited for yet, so the number still means this child.
            let _ = child.kill();
        }
    });
    let mut status = 0;
    let reaped = loop {
        // SAFETY: both pointers are to live values of the types that wait4 fills, and all zeroes is a valid rusage.
        let (reaped, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid, &raw mut status, 0, &raw mut usage), usage)
        };
        match std::io::Error::last_os_error() {
            _ if reaped == pid => break Ok((status, usage)),
            err if err.kind() == std::io::ErrorKind::Interrupted => {}
            err => break Err(err),
        }
    };
    drop(done);
    let _ = guard.join();
    reaped.context("a child could not be waited for")
}

/// The minimum and the median of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
}

impl Spread {
    /// Of at least one figure.
    pub(crate) fn of(mut figures: Vec<f64>) -> Result<Self> {
        figures.sort_by(f64::total_cmp);
        let (Some(min), Some(median)) = (figures.first(), figures.get(figures.len() / 2)) else {
            bail!("nothing was measured");
        };
        Ok(Self {
            min: *min,
            median: *median,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn complaints() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new().unwrap()
    }

    #[test]
    fn a_program_is_measured_with_what_it_started() {
        let line = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; (:)";
        let sample = measure(Command::new("sh").args(["-c", line]), complaints().path()).unwrap();
        assert!(
            sample.cpu > Duration::ZERO && sample.wall > Duration::ZERO && sample.rss > 100_000,
            "{sample:?}"
        );
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let err = measure(
            Command::new("sh").args(["-c", "echo because >&2; exit 3"]),
            complaints().path(),
        );
        assert!(err.unwrap_err().to_string().contains("because"));
    }

    #[test]
    fn the_spread_is_the_minimum_and_the_median() {
        assert_eq!(
            Spread::of(vec![3.0, 1.0, 2.0]).unwrap(),
            Spread {
                min: 1.0,
                median: 2.0
            }
        );
        assert!(Spread::of(Vec::new()).is_err());
    }
}
