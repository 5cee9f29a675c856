//! An agent that is not ours in its place: programs with three pipes and nothing between, a home that is read and
//! written without ever following a link out of it, and the next connection to its model. Believes nothing it says.
//!
//! Nothing here keeps the sandbox or the tree: with the run's copy everything in it goes, whoever still holds this.

use parking_lot::Mutex;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::{Arc, Weak};

use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use windlass_core::enclosure::{Enclosure, Inmate, Launch, Life, Wire};
use windlass_core::workspace::{FileError, FileErrorKind, Files, ProcessEnd, ProcessError};
use windlass_core::{BoxFuture, CancellationToken};

use super::{KILL_GRACE, end_of, workdir_in};
use crate::sandbox::{Ended, Inside, Limits, Lodging, SandboxError, Standard, limits_hit};
use crate::workspace::Root;
use windlass_sandbox::Within;

/// The place of an agent in a run.
pub(super) struct Enclosed {
    lodging: Lodging,
    inside: Weak<Inside>,
    root: Weak<Root>,
    home: Root,
    endpoint: Option<(u16, TcpListener)>,
    tenants: Arc<Tenants>,
}

impl Enclosed {
    pub(super) fn new(
        mut lodging: Lodging,
        inside: &Arc<Inside>,
        root: &Arc<Root>,
        tenants: &Arc<Tenants>,
    ) -> Result<Self, ProcessError> {
        let fail = |what: &str, err: &dyn std::fmt::Display| ProcessError(format!("{what}: {err}"));
        let home = Root::open_private(&lodging.outer_home)
            .map_err(|err| fail("the agent's home cannot be opened", &err))?;
        let endpoint = lodging.endpoint.take().map(|(port, listener)| {
            listener.set_nonblocking(true)?;
            Ok((port, TcpListener::from_std(listener)?))
        });
        let endpoint: io::Result<_> = endpoint.transpose();
        let endpoint = endpoint.map_err(|err| fail("nobody can listen for the agent", &err))?;
        let (inside, root, tenants) = (
            Arc::downgrade(inside),
            Arc::downgrade(root),
            Arc::clone(tenants),
        );
        Ok(Self {
            lodging,
            inside,
            root,
            home,
            endpoint,
            tenants,
        })
    }

    /// Refuses paths that are none in the home, and files in it that are the person's.
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
                "`{path}` is no path in an agent's home: write it relative to the home"
            )),
            true if self.lodging.files.iter().any(|file| file == path) => bad(format!(
                "`{path}` is the person's own file, which is only shown to the agent"
            )),
            true => Ok(()),
        }
    }

    fn launch(&self, launch: &Launch) -> Result<Inmate, ProcessError> {
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
        let mut env = self.lodging.env.clone();
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
        let place = Within::Place(&self.lodging.place);
        let child = inside.start(&argv, Some(&env), &dir, place, standard, done);
        let child = child.map_err(|err| ProcessError(err.to_string()))?;
        let tenant = Arc::new(Tenant { child, ended });
        self.tenants.add(&tenant);
        let life = Tenancy {
            tenant,
            end: Some(end),
            over: None,
            limits: self.lodging.limits,
        };
        Ok(Inmate {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            life: Box::new(life),
        })
    }
}

impl Enclosure for Enclosed {
    fn home(&self) -> &Path {
        &self.lodging.home
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
            let message = format!("`{path}` names nothing in the agent's home");
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
        // By the handle of its folder, so that no link on the way leads elsewhere; the last name is not followed.
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
                let message = format!("`{path}` of the agent's home cannot be removed: {err}");
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
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Wire>>> {
        Box::pin(async move {
            let Some((_, listener)) = &self.endpoint else {
                return std::future::pending().await;
            };
            let (stream, _) = listener.accept().await?;
            // A model's answer comes in small pieces, each of which somebody waits for.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        })
    }
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Inmate, ProcessError>> {
        Box::pin(async move { self.launch(&launch) })
    }
    fn take_refused(&self) -> Vec<String> {
        self.lodging.take_refused()
    }
    fn resume(&self) -> bool {
        self.inside.upgrade().is_some() && self.tenants.resume()
    }
}

/// What a program has as standard input, output and error, and our ends of it.
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

/// A program that was started.
struct Tenant {
    child: windlass_sandbox::Child,
    /// Cancelled when everything of it is gone.
    ended: CancellationToken,
}

/// The programs of all agents of a run.
#[derive(Default)]
pub(super) struct Tenants(Mutex<Vec<Arc<Tenant>>>);

impl Tenants {
    fn add(&self, tenant: &Arc<Tenant>) {
        let mut all = self.0.lock();
        all.retain(|one| !one.ended.is_cancelled());
        all.push(Arc::clone(tenant));
    }

    /// Stops them until they are resumed. One that cannot be stopped in time is ended.
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

    /// Lets those run again that were stopped; whether there are any.
    fn resume(&self) -> bool {
        let mut all = self.0.lock();
        all.retain(|one| !one.ended.is_cancelled());
        all.iter().for_each(|one| one.child.resume());
        !all.is_empty()
    }

    /// Ends them, and waits until they are gone; longer only when the kernel itself is stuck.
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

/// The life of one of them.
struct Tenancy {
    tenant: Arc<Tenant>,
    end: Option<oneshot::Receiver<Result<Ended, SandboxError>>>,
    over: Option<Result<ProcessEnd, ProcessError>>,
    limits: Limits,
}

impl Tenancy {
    fn judge(&self, ended: Result<Ended, SandboxError>) -> Result<ProcessEnd, ProcessError> {
        let ended = ended.map_err(|err| ProcessError(err.to_string()))?;
        if let Some(limit) = limits_hit(&self.limits, ended).next() {
            return Err(ProcessError(format!("the agent was ended at {limit}")));
        }
        Ok(end_of(ended.status))
    }
}

impl Life for Tenancy {
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
        self.tenant.child.terminate();
    }
    fn kill(&self) {
        self.tenant.child.kill();
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        if !self.tenant.ended.is_cancelled() {
            self.tenant.child.kill();
        }
    }
}
