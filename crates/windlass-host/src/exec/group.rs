//! Starts a process as the leader of its own process group or session, or in a kernel sandbox, and kills all of it. The
//! only unsafe block of the crate is here: the code that the child executes between fork and exec.

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
use crate::sandbox::OpenSandbox;

/// A program to start outside a sandbox.
pub(super) struct HostLaunch<'a> {
    pub(super) program: &'a Path,
    pub(super) args: &'a [&'a str],
    pub(super) env: &'a [(OsString, OsString)],
    pub(super) dir: OwnedFd,
    /// The bytes for its standard input.
    pub(super) input: Option<Vec<u8>>,
    pub(super) detachment: Detachment,
    /// Kills the process if this process dies.
    pub(super) guard: &'a Arc<Guard>,
}

/// The separation of a child from the terminal of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Detachment {
    /// The child gets its own session, so that it has no controlling terminal. This is not needed if this process has
    /// none either; then its own process group is enough, which does not need a fork of the whole memory map.
    pub(super) own_session: bool,
}

impl Detachment {
    /// Returns the separation that this process needs at the moment.
    pub(super) fn needed() -> Self {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok();
        // Without a fork, the directory can only be named by its handle's path in /proc.
        let proc_fds = rustix::fs::access("/proc/self/fd", Access::EXISTS).is_ok();
        Self {
            own_session: terminal || !proc_fds,
        }
    }
}

/// A process that was started, with its output and its group.
pub(super) struct StartedProcess {
    pub(super) leader: Leader,
    /// Standard output and standard error share one pipe, which keeps their order.
    pub(super) output: pipe::Receiver,
    pub(super) group: ProcessGroup,
    /// The end of the process as its sandbox reported it.
    pub(super) ended: Option<Ended>,
}

/// The process whose exit ends the command.
pub(super) enum Leader {
    Plain(Child),
    Boxed(oneshot::Receiver<Result<Ended, SandboxError>>),
}

impl Leader {
    /// Waits for the exit. The error is the reason why a command could not be started in its sandbox.
    pub(super) async fn wait(&mut self) -> Result<(ExitStatus, Option<Ended>), String> {
        match self {
            // The wait fails only if there is no such child; then it is gone, with an unknown exit code.
            Self::Plain(child) => Ok((child.wait().await.unwrap_or_default(), None)),
            Self::Boxed(ended) => match ended.await {
                Ok(Ok(ended)) => Ok((ended.status, Some(ended))),
                Ok(Err(err)) => Err(err.to_string()),
                Err(_) => Ok((ExitStatus::from_raw(9), None)),
            },
        }
    }
}

/// Starts a command in an open sandbox.
pub(super) fn start_inside(
    inside: &OpenSandbox,
    argv: &[OsString],
    dir: &Path,
    command: &Command,
    layer: Option<Within<'_>>,
) -> Result<StartedProcess, ProcessError> {
    let fail = |err: std::io::Error| ProcessError(format!("cannot start a command: {err}"));
    let (output, write) = std::io::pipe().map_err(fail)?;
    let standard = Standard {
        input: stdin_pipe(command.input.clone()).map_err(fail)?,
        output: write.try_clone().map_err(fail)?.into(),
        error: write.into(),
    };
    let access = if command.looks {
        May::ReadOnly
    } else {
        May::Write
    };
    let (done, ended) = oneshot::channel();
    // The receiver may be dropped already; then the result is not needed.
    let done = move |result| drop(done.send(result));
    let within = layer.unwrap_or(Within::Workspace(access));
    let child = inside.start(argv, None, dir, within, standard, done);
    let child = child.map_err(|err| ProcessError(err.to_string()))?;
    let output = pipe::Receiver::from_owned_fd(output.into()).map_err(fail)?;
    Ok(StartedProcess {
        leader: Leader::Boxed(ended),
        output,
        group: ProcessGroup::Boxed(child),
        ended: None,
    })
}

impl HostLaunch<'_> {
    pub(super) fn start(self) -> Result<StartedProcess, ProcessError> {
        let fail = |err: std::io::Error| {
            ProcessError(format!("cannot start {}: {err}", self.program.display()))
        };
        let (output, writing) = std::io::pipe().map_err(fail)?;
        let input = stdin_pipe(self.input).map_err(fail)?;
        let mut command = std::process::Command::new(self.program);
        command
            .args(self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(input))
            .stdout(writing.try_clone().map_err(fail)?)
            .stderr(writing);
        let dir = detach(&mut command, self.dir, self.detachment);
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn().map_err(fail)?;
        // The command also holds the writing ends: without this drop the pipe would never end.
        drop(command);
        drop(dir);
        let id = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            self.guard.add(id);
        }
        let group = ProcessGroup::Plain {
            id,
            guard: Arc::clone(self.guard),
        };
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(fail)?;
        Ok(StartedProcess {
            leader: Leader::Plain(child),
            output,
            group,
            ended: None,
        })
    }
}

/// Returns the standard input of a command: empty, or a pipe that a task writes the bytes to.
fn stdin_pipe(input: Option<Vec<u8>>) -> std::io::Result<OwnedFd> {
    let Some(bytes) = input else {
        return Ok(rustix::fs::open(
            "/dev/null",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
    };
    let (reading, writing) = std::io::pipe()?;
    let mut writing = pipe::Sender::from_owned_fd(writing.into())?;
    // A command may stop reading early; then the rest is discarded.
    tokio::spawn(async move { drop(writing.write_all(&bytes).await) });
    Ok(reading.into())
}

/// Puts the child into its own session or group and into its directory. The returned handle must stay open until the
/// child is started.
fn detach(
    command: &mut std::process::Command,
    dir: OwnedFd,
    detachment: Detachment,
) -> Option<OwnedFd> {
    if detachment.own_session {
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
        // A new session has no controlling terminal, so that no program can ask a question there.
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

/// All processes of a command. Dropping it kills them.
pub(super) enum ProcessGroup {
    /// A process group on the host.
    Plain {
        /// The group id, until the group is gone.
        id: Option<Pid>,
        /// Kills the group if this process dies.
        guard: Arc<Guard>,
    },
    /// A command in a sandbox, with all processes in it.
    Boxed(windlass_sandbox::SandboxedChild),
}

impl ProcessGroup {
    /// Sends SIGTERM to all processes of the group.
    pub(super) fn terminate(&self) {
        match self {
            Self::Plain { id, .. } => signal(*id, Signal::TERM),
            Self::Boxed(child) => child.terminate(),
        }
    }

    /// Kills all processes of the group.
    pub(super) fn kill(&self) {
        match self {
            Self::Plain { id, .. } => signal(*id, Signal::KILL),
            Self::Boxed(child) => child.kill(),
        }
    }

    /// Kills the rest of the group after its leader exited.
    ///
    /// The kernel may reuse the group id as soon as the group is empty, so the caller must do this directly after the
    /// leader's exit: the kernel assigns all other ids before it assigns this one again.
    pub(super) fn finish(&mut self) {
        // All processes in a sandbox are gone before it reports the exit.
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
        // An error means that no process is left, which is the goal.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        match self {
            Self::Plain { .. } => self.finish(),
            Self::Boxed(child) => child.kill(),
        }
    }
}
