//! Child processes with a deadline, which are killed when their handle is dropped.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The interval at which a child is polled.
const TICK: Duration = Duration::from_millis(10);
/// The number of log lines that are quoted.
const LAST_LINES: usize = 12;

/// A child that is killed when this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a child with its output in files, so that it never blocks on a full pipe.
    pub(crate) fn start(command: &mut Command, stdout: &Path, stderr: &Path) -> Result<Self> {
        let file = |path: &Path| {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))
        };
        command
            .stdin(Stdio::null())
            .stdout(file(stdout)?)
            .stderr(file(stderr)?);
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.spawn().with_context(|| {
            format!("`{program}` could not be started")
        })?))
    }

    /// Returns the exit status, if it has exited.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("the child cannot be waited for")
    }

    /// Waits until it exits, at most this long.
    pub(crate) fn wait(&mut self, most: Duration) -> Result<ExitStatus> {
        let mut status = None;
        let ended = until(most, || {
            status = self.ended()?;
            Ok(status.is_some())
        })?;
        ensure!(
            ended,
            "it did not end within {} s and was killed",
            most.as_secs()
        );
        status.context("it ended without a status")
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(&self) -> Result<()> {
        self.signal("-INT")
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) -> Result<()> {
        self.signal("-TERM")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        ensure!(
            sent.context("`kill` could not be started")?.success(),
            "the signal could not be sent"
        );
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the child is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls until the condition holds; returns false at the timeout.
pub(crate) fn until(most: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    let began = Instant::now();
    loop {
        if holds()? {
            return Ok(true);
        }
        if began.elapsed() >= most {
            return Ok(false);
        }
        std::thread::sleep(TICK);
    }
}

/// Runs a step of an installation. Its output goes to a log, which is quoted if the step fails.
pub(crate) fn step(command: &mut Command, log: &Path, most: Duration) -> Result<()> {
    let errors = log.with_extension("err");
    let status = Running::start(command, log, &errors)?.wait(most);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("it failed ({status}):\n{}", last_lines(&errors)),
        Err(err) => Err(err.context(last_lines(&errors))),
    }
}

/// Returns the last lines of a log.
pub(crate) fn last_lines(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
