//! Starting one process as the leader of its own group or session, or in a kernel sandbox, and ending all of it.
//! The only unsafe block of the crate is here: what the child does between fork and exec.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::fs::{Access, Mode, OFlags};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::oneshot;
use windlass_core::workspace::{Command, ProcessError};
use windlass_sandbox::{Access as May, Ended, SandboxError, Standard, Within};

use super::guard::Guard;
use crate::sandbox::Inside;

/// What to start.
pub(super) struct Launch<'a> {
    pub(super) program: &'a Path,
    pub(super) args: &'a [&'a str],
    pub(super) env: &'a [(OsString, OsString)],
    /// Where it starts.
    pub(super) dir: OwnedFd,
    /// What it reads.
    pub(super) input: Option<Vec<u8>>,
    /// How it is set apart from us.
    pub(super) apart: Apart,
    /// Who ends it when we cannot.
    pub(super) guard: &'a Arc<Guard>,
}

/// How a child is set apart from its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Apart {
    /// In a session of its own, so that it has no terminal. Needless when we have none either; then a group of
    /// its own does, which can be had without a fork of our whole memory map.
    pub(super) own_session: bool,
}

impl Apart {
    /// What is needed here and now.
    pub(super) fn needed() -> Self {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok();
        // Without a fork the directory can only be named by its handle's place in /proc.
        let proc_fds = rustix::fs::access("/proc/self/fd", Access::EXISTS).is_ok();
        Self {
            own_session: terminal || !proc_fds,
        }
    }
}

/// A started process.
pub(super) struct Running {
    pub(super) leader: Leader,
    /// Its standard output and error, in the order they were written: both are one pipe.
    pub(super) output: pipe::Receiver,
    pub(super) group: Group,
    /// What its sandbox said of its end.
    pub(super) ended: Option<Ended>,
}

/// The process whose end is the end of the command.
pub(super) enum Leader {
    Plain(Child),
    Boxed(oneshot::Receiver<Result<Ended, SandboxError>>),
}

impl Leader {
    /// Waits for the end; a command that could not be started in its sandbox says why.
    pub(super) async fn wait(&mut self) -> Result<(ExitStatus, Option<Ended>), String> {
        match self {
            // The only failure is that there is nobody to wait for; then it is gone, whatever its code was.
            Self::Plain(child) => Ok((child.wait().await.unwrap_or_default(), None)),
            Self::Boxed(ended) => match ended.await {
                Ok(Ok(ended)) => Ok((ended.status, Some(ended))),
                Ok(Err(err)) => Err(err.to_string()),
                Err(_) => Ok((ExitStatus::from_raw(9), None)),
            },
        }
    }
}

/// Starts a command in a sandbox.
pub(super) fn start_inside(
    inside: &Inside,
    argv: &[OsString],
    dir: &Path,
    command: &Command,
    layer: Option<Within<'_>>,
) -> Result<Running, ProcessError> {
    let fail = |err: std::io::Error| ProcessError(format!("cannot start a command: {err}"));
    let (output, write) = std::io::pipe().map_err(fail)?;
    let standard = Standard {
        input: feed(command.input.clone()).map_err(fail)?,
        output: write.try_clone().map_err(fail)?.into(),
        error: write.into(),
    };
    let access = if command.looks {
        May::ReadOnly
    } else {
        May::Write
    };
    let (done, ended) = oneshot::channel();
    // A command that nobody waits for any more ends without being heard.
    let done = move |result| drop(done.send(result));
    let within = layer.unwrap_or(Within::Workspace(access));
    let child = inside.start(argv, None, dir, within, standard, done);
    let child = child.map_err(|err| ProcessError(err.to_string()))?;
    let output = pipe::Receiver::from_owned_fd(output.into()).map_err(fail)?;
    Ok(Running {
        leader: Leader::Boxed(ended),
        output,
        group: Group::Boxed(child),
        ended: None,
    })
}

impl Launch<'_> {
    pub(super) fn start(self) -> Result<Running, ProcessError> {
        let fail = |err: std::io::Error| {
            ProcessError(format!("cannot start {}: {err}", self.program.display()))
        };
        let (output, writing) = std::io::pipe().map_err(fail)?;
        let input = feed(self.input).map_err(fail)?;
        let mut command = std::process::Command::new(self.program);
        command
            .args(self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(input))
            .stdout(writing.try_clone().map_err(fail)?)
            .stderr(writing);
        let dir = set_apart(&mut command, self.dir, self.apart);
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn().map_err(fail)?;
        // The command holds the writing ends too: without this the pipe would never end.
        drop(command);
        drop(dir);
        let id = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            self.guard.add(id);
        }
        let group = Group::Plain {
            id,
            guard: Arc::clone(self.guard),
        };
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(fail)?;
        Ok(Running {
            leader: Leader::Plain(child),
            output,
            group,
            ended: None,
        })
    }
}

/// What a command reads: nothing, or the bytes that are written to it as it takes them.
fn feed(input: Option<Vec<u8>>) -> std::io::Result<OwnedFd> {
    let Some(bytes) = input else {
        return Ok(rustix::fs::open(
            "/dev/null",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
    };
    let (reading, writing) = std::io::pipe()?;
    let mut writing = pipe::Sender::from_owned_fd(writing.into())?;
    // A command that does not read to the end is free not to; then the rest goes nowhere.
    tokio::spawn(async move { drop(writing.write_all(&bytes).await) });
    Ok(reading.into())
}

/// Puts the child into its own session or group and into its directory, whose handle must live until it is started.
fn set_apart(command: &mut std::process::Command, dir: OwnedFd, apart: Apart) -> Option<OwnedFd> {
    if apart.own_session {
        enter(command, dir);
        return None;
    }
    command
        .process_group(0)
        .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    Some(dir)
}

/// Makes the child the leader of its own session, in the given directory.
#[allow(unsafe_code)]
fn enter(command: &mut std::process::Command, dir: OwnedFd) {
    let in_child = move || {
        // A session of its own has no controlling terminal, so that nothing can ask a question there.
        rustix::process::setsid()?;
        rustix::process::fchdir(dir.as_fd())?;
        Ok(())
    };
    // SAFETY: the closure runs in the forked child before exec. It makes two plain system calls and neither
    // allocates nor locks; `dir` was opened before the fork and stays open until the command is dropped.
    unsafe {
        command.pre_exec(in_child);
    }
}

/// Everything a started process started. Dropped, it is killed.
pub(super) enum Group {
    /// A process group.
    Plain {
        /// Its number, until it is gone.
        id: Option<Pid>,
        /// Who ends it when we cannot.
        guard: Arc<Guard>,
    },
    /// A sandbox's command, with all that is in it.
    Boxed(windlass_sandbox::Child),
}

impl Group {
    /// Asks every process of the group to end.
    pub(super) fn terminate(&self) {
        match self {
            Self::Plain { id, .. } => signal(*id, Signal::TERM),
            Self::Boxed(child) => child.terminate(),
        }
    }

    /// Ends every process of the group.
    pub(super) fn kill(&self) {
        match self {
            Self::Plain { id, .. } => signal(*id, Signal::KILL),
            Self::Boxed(child) => child.kill(),
        }
    }

    /// Ends what is left of the group, once the leader is gone.
    ///
    /// The number is free for others as soon as the group is empty, so this comes right after the leader's end:
    /// the kernel hands out every other number before it comes to this one again.
    pub(super) fn finish(&mut self) {
        // What was in a sandbox is gone before its end is told.
        if let Self::Plain { id, guard } = self
            && let Some(id) = id.take()
        {
            signal(Some(id), Signal::KILL);
            guard.remove(id);
        }
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Nobody is left to be signalled, which is what was wanted.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        match self {
            Self::Plain { .. } => self.finish(),
            Self::Boxed(child) => child.kill(),
        }
    }
}
