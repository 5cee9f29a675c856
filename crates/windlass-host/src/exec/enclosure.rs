//! The enclosure of a foreign agent: starts its programs with three pipes, reads and writes files in its home without
//! following symlinks out of it, and accepts connections to its model endpoint. It trusts nothing that the agent
//! reports.
//!
//! The enclosure holds only weak references to the sandbox and the tree. When the run's copy closes, all processes in
//! it are killed, even if another part still holds the enclosure.

use parking_lot::Mutex;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::{Arc, Weak};

use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch, ProcessHandle};
use windlass_core::workspace::{FileError, FileErrorKind, Files, ProcessEnd, ProcessError};
use windlass_core::{BoxFuture, CancellationToken};

use super::{KILL_GRACE, end_of, workdir_in};
use crate::sandbox::{
    EnclosureSetup, Ended, Limits, OpenSandbox, SandboxError, Standard, limits_hit,
};
use crate::workspace::Root;
use windlass_sandbox::Within;

/// The enclosure of one agent in a run.
pub(super) struct AgentEnclosure {
    setup: EnclosureSetup,
    inside: Weak<OpenSandbox>,
    root: Weak<Root>,
    home: Root,
    endpoint: Option<(u16, TcpListener)>,
    agents: Arc<EnclosedProcesses>,
}

impl AgentEnclosure {
    pub(super) fn new(
        mut setup: EnclosureSetup,
        inside: &Arc<OpenSandbox>,
        root: &Arc<Root>,
        agents: &Arc<EnclosedProcesses>,
    ) -> Result<Self, ProcessError> {
        let fail = |what: &str, err: &dyn std::fmt::Display| ProcessError(format!("{what}: {err}"));
        let home = Root::open_private(&setup.outer_home)
            .map_err(|err| fail("the agent's home cannot be opened", &err))?;
        let endpoint = setup.endpoint.take().map(|(port, listener)| {
            listener.set_nonblocking(true)?;
            Ok((port, TcpListener::from_std(listener)?))
        });
        let endpoint: io::Result<_> = endpoint.transpose();
        let endpoint =
            endpoint.map_err(|err| fail("cannot listen for the agent's model requests", &err))?;
        let (inside, root, agents) = (
            Arc::downgrade(inside),
            Arc::downgrade(root),
            Arc::clone(agents),
        );
        Ok(Self {
            setup,
            inside,
            root,
            home,
            endpoint,
            agents,
        })
    }

    /// Rejects paths outside the home, and files in it that belong to the user.
    fn own(&self, path: &str) -> Result<(), FileError> {
        let plain = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let bad = |message: String| {
            Err(FileError {
                kind: FileErrorKind::BadInput,
                message,
            })
        };
        match plain {
            false => bad(format!(
                "`{path}` is not a path in the agent's home; use a path relative to the home"
            )),
            true if self.setup.files.iter().any(|file| file == path) => bad(format!(
                "`{path}` is the user's own file, which the agent can only read"
            )),
            true => Ok(()),
        }
    }

    fn launch(&self, launch: &Launch) -> Result<AgentProcess, ProcessError> {
        let (Some(inside), Some(root)) = (self.inside.upgrade(), self.root.upgrade()) else {
            return Err(ProcessError(
                "the run's copy of the workspace is closed".to_owned(),
            ));
        };
        if launch.argv.is_empty() {
            return Err(ProcessError(
                "cannot start an agent: no program is named".to_owned(),
            ));
        }
        let dir = workdir_in(&root, &launch.workdir)?;
        let mut env = self.setup.env.clone();
        env.push(("PWD".into(), dir.clone().into()));
        env.retain(|(name, _)| !launch.env.iter().any(|(given, _)| name == given.as_str()));
        env.extend(
            launch
                .env
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        let argv: Vec<OsString> = launch.argv.iter().map(Into::into).collect();
        let (standard, stdin, stdout, stderr) =
            pipes().map_err(|err| ProcessError(format!("cannot start an agent: {err}")))?;
        let ended = CancellationToken::new();
        let (done, end) = oneshot::channel();
        let over = ended.clone();
        let done = move |result| {
            over.cancel();
            drop(done.send(result));
        };
        let place = Within::Place(&self.setup.place);
        let child = inside.start(&argv, Some(&env), &dir, place, standard, done);
        let child = child.map_err(|err| ProcessError(err.to_string()))?;
        let process = Arc::new(EnclosedProcess { child, ended });
        self.agents.add(&process);
        let handle = EnclosedProcessHandle {
            process,
            end: Some(end),
            over: None,
            limits: self.setup.limits,
        };
        Ok(AgentProcess {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            handle: Box::new(handle),
        })
    }
}

impl Enclosure for AgentEnclosure {
    fn home(&self) -> &Path {
        &self.setup.home
    }
    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.own(path)?;
        self.home.write(path, bytes)
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.own(path)?;
        self.home.read(path, max)
    }
    fn clear(&self, path: &str) -> Result<(), FileError> {
        self.own(path)?;
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        if matches!(name, "" | "." | "..") {
            let message = format!("`{path}` does not name a file in the agent's home");
            return Err(FileError {
                kind: FileErrorKind::BadInput,
                message,
            });
        }
        let folder = match self.home.open_directory(folder) {
            Ok(folder) => folder,
            Err(err) if err.kind == FileErrorKind::NotFound => return Ok(()),
            Err(err) => return Err(err),
        };
        // The path goes through the directory's handle, so that no symlink on the way leads elsewhere; the last name is
        // not followed.
        let at = Path::new("/proc/self/fd")
            .join(folder.as_raw_fd().to_string())
            .join(name);
        let removed = match at.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&at),
            Ok(_) => std::fs::remove_file(&at),
            Err(err) => Err(err),
        };
        match removed {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                let message = format!("cannot remove `{path}` from the agent's home: {err}");
                Err(FileError {
                    kind: FileErrorKind::Io,
                    message,
                })
            }
            _ => Ok(()),
        }
    }
    fn endpoint(&self) -> Option<u16> {
        self.endpoint.as_ref().map(|(port, _)| *port)
    }
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AgentConnection>>> {
        Box::pin(async move {
            let Some((_, listener)) = &self.endpoint else {
                return std::future::pending().await;
            };
            let (stream, _) = listener.accept().await?;
            // A model's answer arrives in small pieces, which must not be delayed.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn AgentConnection>)
        })
    }
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>> {
        Box::pin(async move { self.launch(&launch) })
    }
    fn take_refused(&self) -> Vec<String> {
        self.setup.take_refused()
    }
    fn resume(&self) -> bool {
        self.inside.upgrade().is_some() && self.agents.resume()
    }
}

/// Creates the standard streams of a program. Returns its ends and our ends.
fn pipes() -> io::Result<(Standard, pipe::Sender, pipe::Receiver, pipe::Receiver)> {
    let (input, stdin) = io::pipe()?;
    let (stdout, output) = io::pipe()?;
    let (stderr, error) = io::pipe()?;
    let standard = Standard {
        input: input.into(),
        output: output.into(),
        error: error.into(),
    };
    let receiver = |end: io::PipeReader| pipe::Receiver::from_owned_fd(OwnedFd::from(end));
    Ok((
        standard,
        pipe::Sender::from_owned_fd(stdin.into())?,
        receiver(stdout)?,
        receiver(stderr)?,
    ))
}

/// A program of an agent that was started.
struct EnclosedProcess {
    child: windlass_sandbox::SandboxedChild,
    /// Cancelled when all processes of the program are gone.
    ended: CancellationToken,
}

/// The programs of all agents of a run.
#[derive(Default)]
pub(super) struct EnclosedProcesses(Mutex<Vec<Arc<EnclosedProcess>>>);

impl EnclosedProcesses {
    fn add(&self, process: &Arc<EnclosedProcess>) {
        let mut all = self.0.lock();
        all.retain(|one| !one.ended.is_cancelled());
        all.push(Arc::clone(process));
    }

    /// Pauses all programs until they are resumed. A program that cannot be paused in time is killed.
    pub(super) async fn pause_all(&self) {
        let all = self.0.lock().clone();
        for one in all.iter().filter(|one| !one.ended.is_cancelled()) {
            let (done, paused) = oneshot::channel();
            one.child.pause(|result| drop(done.send(result)));
            let paused = tokio::time::timeout(KILL_GRACE, paused).await;
            if !matches!(paused, Ok(Ok(Ok(true)))) {
                one.child.kill();
                let _ = tokio::time::timeout(KILL_GRACE, one.ended.cancelled()).await;
            }
        }
    }

    /// Resumes the paused programs. Returns whether there are any.
    fn resume(&self) -> bool {
        let mut all = self.0.lock();
        all.retain(|one| !one.ended.is_cancelled());
        all.iter().for_each(|one| one.child.resume());
        !all.is_empty()
    }

    /// Kills all programs and waits until they are gone; gives up only if the kernel is stuck.
    pub(super) async fn end_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        all.iter()
            .filter(|one| !one.ended.is_cancelled())
            .for_each(|one| one.child.kill());
        for one in all {
            let _ = tokio::time::timeout(KILL_GRACE, one.ended.cancelled()).await;
        }
    }
}

/// The handle of one program. Dropping it kills the program.
struct EnclosedProcessHandle {
    process: Arc<EnclosedProcess>,
    end: Option<oneshot::Receiver<Result<Ended, SandboxError>>>,
    over: Option<Result<ProcessEnd, ProcessError>>,
    limits: Limits,
}

impl EnclosedProcessHandle {
    fn judge(&self, ended: Result<Ended, SandboxError>) -> Result<ProcessEnd, ProcessError> {
        let ended = ended.map_err(|err| ProcessError(err.to_string()))?;
        if let Some(limit) = limits_hit(&self.limits, ended).next() {
            return Err(ProcessError(format!(
                "the agent was stopped because it reached {limit}"
            )));
        }
        Ok(end_of(ended.status))
    }
}

impl ProcessHandle for EnclosedProcessHandle {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async move {
            if let Some(end) = &mut self.end {
                let gone = |_| {
                    Err(SandboxError::Gone(
                        "the run's copy of the workspace was closed".to_owned(),
                    ))
                };
                let ended = end.await.unwrap_or_else(gone);
                self.end = None;
                self.over = Some(self.judge(ended));
            }
            self.over
                .clone()
                .unwrap_or(Ok(ProcessEnd::Signalled { signal: 9 }))
        })
    }
    fn terminate(&self) {
        self.process.child.terminate();
    }
    fn kill(&self) {
        self.process.child.kill();
    }
}

impl Drop for EnclosedProcessHandle {
    fn drop(&mut self) {
        if !self.process.ended.is_cancelled() {
            self.process.child.kill();
        }
    }
}
