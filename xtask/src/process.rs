//! Child processes that end: each has a deadline, and none outlives its handle.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How often a child is looked at.
const TICK: Duration = Duration::from_millis(10);
/// How much of a log is worth repeating.
const LAST_LINES: usize = 12;

/// A child that is killed when nobody holds it any more.
pub(crate) struct Running(Child);

impl Running {
    /// Starts it with its output in files: nobody has to read along for it to go on.
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

    /// Its status, once it ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("the child cannot be waited for")
    }

    /// Waits until it ends, at most so long.
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

    /// What Ctrl-C sends.
    pub(crate) fn interrupt(&self) -> Result<()> {
        let sent = Command::new("kill")
            .args(["-INT", &self.0.id().to_string()])
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
        // Both fail only for a child that is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks again and again until something holds; false when the time is over.
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

/// Runs a step of an installation, with its output in a log that is quoted when it fails.
pub(crate) fn step(command: &mut Command, log: &Path, most: Duration) -> Result<()> {
    let errors = log.with_extension("err");
    let status = Running::start(command, log, &errors)?.wait(most);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("it failed ({status}):\n{}", last_lines(&errors)),
        Err(err) => Err(err.context(last_lines(&errors))),
    }
}

/// The end of a log.
pub(crate) fn last_lines(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
