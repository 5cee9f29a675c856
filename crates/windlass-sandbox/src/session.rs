//! The engine's side: starts the helper, sends commands, hears how they ended. Ends are waited for with a callback
//! from a thread of its own, so that it fits any runtime; nothing here blocks but opening.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use crate::helper::{self, Helper};
use crate::inside::{PAUSE_ALL, RESUME_ALL};
use crate::reap::reap_within;
use crate::spec::{Access, LimitsHit, Spec};
use crate::wire::{HIT_MEMORY, HIT_PROCESSES, Inbox, Launch, Refusal, Report, Request, send};

/// How long the helper may take to build the view.
const BUILD_TIME: Duration = Duration::from_secs(10);
/// How long the helper may take to read a command.
const SEND_TIME: Duration = Duration::from_secs(10);
/// How long it may take to end everything and clean up, before it is left to do so alone.
const TIDY_TIME: Duration = Duration::from_secs(2);
/// How long the helper may take to exit after that, before it is left to the first process of the machine.
const REAP_TIME: Duration = Duration::from_millis(100);

/// Why a sandbox cannot be had or a command not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The kernel or its settings refuse a part of it.
    #[error("{0}")]
    Unavailable(String),
    /// Something that was asked for is not there or cannot be, whatever the kernel offers.
    #[error("{0}")]
    Invalid(String),
    /// This kernel, or a file system, cannot put a private layer over a directory.
    #[error("{0}")]
    NoLayers(String),
    /// The command itself could not be started.
    #[error("{0}")]
    Command(String),
    /// The helper is gone.
    #[error("the sandbox is gone: {0}")]
    Gone(String),
}

impl From<Refusal> for SandboxError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unavailable(why) => Self::Unavailable(why),
            Refusal::Invalid(why) => Self::Invalid(why),
            Refusal::NoLayers(why) => Self::NoLayers(why),
        }
    }
}

/// A listener, with its port.
pub type Listener = (u16, std::net::TcpListener);

/// A sandbox that is built, and what else it was asked for.
#[derive(Debug)]
pub struct Opened {
    /// The sandbox.
    pub session: Session,
    /// A listener on the sandbox's own loopback, with its port.
    pub listener: Option<Listener>,
    /// The tree that commands work in, where it is not the workspace itself: a directory to open others beneath, with
    /// nothing covered in it. What is done there commands see at once, and the other way round.
    pub tree: Option<OwnedFd>,
}

/// A sandbox. It ends, with everything in it, when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    control: UnixStream,
    /// Held while a frame is sent: two must not be mixed.
    sending: Mutex<()>,
    waiting: Mutex<Waiting>,
    /// Who waits for commands to stop.
    pausing: Mutex<HashMap<u32, Callback<bool>>>,
    next: AtomicU32,
    /// Ends when the helper has cleaned up.
    tidied: Mutex<mpsc::Receiver<()>>,
}

type Callback<T> = Box<dyn FnOnce(Result<T, SandboxError>) + Send>;

/// Who waits for something, and for what.
enum Waiter {
    End(Callback<Ended>),
    Place(Callback<(Place, Vec<Listener>)>),
}

impl Waiter {
    /// What it waits for will not be.
    fn refuse(self, why: SandboxError) {
        match self {
            Self::End(done) => done(Err(why)),
            Self::Place(done) => done(Err(why)),
        }
    }
}

/// Who waits for which command or place; `None` once the helper is gone.
type Waiting = Option<HashMap<u32, Waiter>>;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// How a command ended. Everything it started is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// As the kernel gives it.
    pub status: ExitStatus,
    /// Limits it ran into.
    pub limits: LimitsHit,
}

/// What a command has as standard input, output and error.
#[derive(Debug)]
pub struct Standard {
    /// Where it reads.
    pub input: OwnedFd,
    /// Where it writes.
    pub output: OwnedFd,
    /// Where it complains.
    pub error: OwnedFd,
}

/// A command that runs. It does not keep the sandbox, and ends with it.
#[derive(Debug)]
pub struct Child {
    session: Weak<Shared>,
    id: u32,
}

/// The place of an agent: what is started in it sees [`crate::AGENT_HOME`], and has a network apart from that of the
/// commands where it was made with listeners. It does not keep the sandbox.
#[derive(Debug)]
pub struct Place {
    session: Weak<Shared>,
    id: u32,
}

/// Where a command works.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// In the workspace, which it may change or only look at.
    Workspace(Access),
    /// Over a layer of its own: the name of its folder in [`Spec::command_layers`]. What it writes in the workspace goes
    /// there, and nobody else sees it; protected names are not covered for it, hidden ones are. Once it has ended nobody
    /// writes there any more.
    Layer(&'a str),
    /// The same, and the layered workspace is lent to the caller while the command runs.
    LentLayer(&'a str, &'a TreeBorrower),
    /// In the place of an agent.
    Place(&'a Place),
}

/// Receives the workspace as a command over a layer sees it: a directory to open others beneath. Writes there are seen by
/// the command at once, and its watchers hear of them.
#[derive(Debug)]
pub struct TreeBorrower {
    ours: UnixStream,
    lender: Mutex<Option<UnixStream>>,
}

impl TreeBorrower {
    /// For one command.
    pub fn new() -> io::Result<Self> {
        let (ours, lender) = UnixStream::pair()?;
        ours.set_read_timeout(Some(BUILD_TIME))?;
        let lender = Mutex::new(Some(lender));
        Ok(Self { ours, lender })
    }

    /// Waits until the layer is mounted; fails where the command ended before.
    pub fn receive(&self) -> io::Result<OwnedFd> {
        let mut inbox = Inbox::default();
        inbox.wait(&self.ours)?;
        inbox
            .handle()
            .ok_or_else(|| io::Error::other("the command has no layer"))
    }
}

impl From<Access> for Within<'_> {
    fn from(access: Access) -> Self {
        Self::Workspace(access)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            // A helper that is gone has no places either.
            let _ = session.send(&Request::Leave { id: self.id }, &[]);
        }
    }
}

impl Session {
    /// Starts the helper and waits until the view is built.
    pub fn open(helper: &Helper, spec: &Spec) -> Result<Opened, SandboxError> {
        let unavailable =
            |what: &str, err: io::Error| SandboxError::Unavailable(format!("{what}: {err}"));
        let logged = tracing::enabled!(tracing::Level::DEBUG).then(|| Spec {
            log: true,
            ..spec.clone()
        });
        let spec = logged.as_ref().unwrap_or(spec);
        tracing::debug!(tier = ?spec.tier, net = ?spec.net, root = %spec.root.display(), "sandbox: open");
        let (control, theirs) =
            UnixStream::pair().map_err(|err| unavailable("no socket pair", err))?;
        helper::is_linked();
        let mut command = std::process::Command::new(&helper.program);
        command.args(&helper.args).env_clear().current_dir("/");
        command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|err| unavailable("the sandbox helper cannot be started", err))?;
        drop(command);
        let mut inbox = Inbox::default();
        let (port, tree) = match introduce(&control, &mut inbox, spec) {
            Ok(ready) => ready,
            Err(err) => {
                tracing::warn!("sandbox: not built");
                // One that does not get on with us is not left behind.
                let _ = child.kill().and_then(|()| child.wait());
                return Err(err);
            }
        };
        let port = u16::try_from(port).ok().filter(|port| *port != 0);
        let listener =
            port.and_then(|port| Some((port, std::net::TcpListener::from(inbox.handle()?))));
        let tree = if tree { inbox.handle() } else { None };
        let reading = control
            .try_clone()
            .map_err(|err| unavailable("no handle is left", err))?;
        let (tidy, tidied) = mpsc::channel();
        let (waiting, tidied) = (Mutex::new(Some(HashMap::new())), Mutex::new(tidied));
        let shared = Arc::new(Shared {
            control,
            sending: Mutex::new(()),
            waiting,
            pausing: Mutex::default(),
            next: AtomicU32::new(1),
            tidied,
        });
        let hears = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("windlass-sandbox".into())
            .spawn(move || listen(&reading, inbox, &hears, child, tidy))
            .map_err(|err| unavailable("no thread can be started", err))?;
        Ok(Opened {
            session: Self(shared),
            listener,
            tree,
        })
    }

    /// Starts a command; `done` is called once, from another thread, when it has ended and everything it started is
    /// gone, or when it could not be started. [`SandboxError::NoLayers`] means that there are no layers here; then
    /// nothing was started.
    pub fn start<'a>(
        &self,
        argv: &[OsString],
        env: &[(OsString, OsString)],
        dir: &Path,
        within: impl Into<Within<'a>>,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<Child, SandboxError> {
        let pair = |(name, value): &(OsString, OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        let within = within.into();
        let (access, layer, place) = match within {
            Within::Workspace(access) => (access, "", 0),
            Within::Layer(layer) | Within::LentLayer(layer, _) => (Access::Write, layer, 0),
            Within::Place(place) => (Access::Write, "", place.id),
        };
        let lender = match within {
            Within::LentLayer(_, borrower) => borrower.lender.lock().take(),
            _ => None,
        };
        let run = |id| {
            Request::Run(Box::new(Launch {
                id,
                argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
                env: env.iter().map(pair).collect(),
                dir: dir.as_os_str().as_bytes().to_vec(),
                access,
                layer: layer.as_bytes().to_vec(),
                lends_tree: lender.is_some(),
                place,
            }))
        };
        let standard = [&standard.input, &standard.output, &standard.error];
        let lender = lender.as_ref().map(AsFd::as_fd);
        let handles: Vec<BorrowedFd<'_>> = standard
            .map(AsFd::as_fd)
            .into_iter()
            .chain(lender)
            .collect();
        let id = self.ask(run, &handles, Waiter::End(Box::new(done)))?;
        tracing::debug!(id, "sandbox: command sent");
        Ok(Child {
            session: Arc::downgrade(&self.0),
            id,
        })
    }

    /// Makes a place for an agent, with so many listeners on a loopback of its own that nobody else reaches; without
    /// any, its network is that of the commands. Needs [`Spec::agent`]. `done` is called once, from another thread.
    pub fn enclose(
        &self,
        listeners: u32,
        done: impl FnOnce(Result<(Place, Vec<Listener>), SandboxError>) + Send + 'static,
    ) -> Result<(), SandboxError> {
        let ask = |id| Request::Enclose { id, listeners };
        self.ask(ask, &[], Waiter::Place(Box::new(done))).map(drop)
    }

    /// Asks for something that somebody waits for; gives its number.
    fn ask(
        &self,
        request: impl FnOnce(u32) -> Request,
        handles: &[BorrowedFd<'_>],
        waiter: Waiter,
    ) -> Result<u32, SandboxError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut waiting = self.0.waiting.lock();
            let Some(waiting) = waiting.as_mut() else {
                return Err(SandboxError::Gone("its supervisor was ended".to_owned()));
            };
            waiting.insert(id, waiter);
        }
        if let Err(err) = self.0.send(&request(id), handles) {
            if let Some(waiting) = self.0.waiting.lock().as_mut() {
                waiting.remove(&id);
            }
            return Err(SandboxError::Gone(err.to_string()));
        }
        Ok(id)
    }
}

impl Child {
    /// Asks everything in the command to end.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Ends everything in the command.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Stops everything in the command until [`Child::resume`]. `done` is called once, from another thread: with whether
    /// nothing of it runs any more, or when the command or the sandbox is gone. What could not be stopped should be
    /// killed.
    pub fn pause(&self, done: impl FnOnce(Result<bool, SandboxError>) + Send + 'static) {
        let gone = || Err(SandboxError::Gone("the command has ended".to_owned()));
        let Some(session) = self.session.upgrade() else {
            return done(gone());
        };
        // Registered under the lock that its end takes, so that one of the two is heard.
        let waiting = session.waiting.lock();
        let is_running = waiting
            .as_ref()
            .is_some_and(|all| all.contains_key(&self.id));
        if !is_running {
            drop(waiting);
            return done(gone());
        }
        let earlier = session.pausing.lock().insert(self.id, Box::new(done));
        drop(waiting);
        if let Some(earlier) = earlier {
            earlier(gone());
        }
        self.signal(PAUSE_ALL);
    }

    /// Lets everything in the command run again.
    pub fn resume(&self) {
        self.signal(RESUME_ALL);
    }

    fn signal(&self, signal: i32) {
        // A helper that is gone has taken the command with it.
        if let Some(session) = self.session.upgrade() {
            let _ = session.send(
                &Request::Signal {
                    id: self.id,
                    signal,
                },
                &[],
            );
        }
    }
}

impl Shared {
    fn send(&self, request: &Request, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _alone = self.sending.lock();
        send(self.control.as_fd(), &request.encode(), handles)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The helper sees the end of its socket, ends every command and takes its placeholders away; that is waited
        // for, so that nobody finds them afterwards.
        let _ = self.control.shutdown(std::net::Shutdown::Write);
        let tidied = self.tidied.lock();
        let _ = tidied.recv_timeout(TIDY_TIME);
    }
}

/// Says what the sandbox is to be, and waits until it is; the port of the listener, or 0, and whether a tree comes.
fn introduce(
    control: &UnixStream,
    inbox: &mut Inbox,
    spec: &Spec,
) -> Result<(u32, bool), SandboxError> {
    let unavailable =
        |what: &str, err: io::Error| SandboxError::Unavailable(format!("{what}: {err}"));
    let spec = serde_json::to_vec(spec).map_err(|err| {
        SandboxError::Unavailable(format!("a path of the sandbox is not UTF-8: {err}"))
    })?;
    send(control.as_fd(), &spec, &[])
        .map_err(|err| unavailable("the sandbox helper does not listen", err))?;
    control
        .set_read_timeout(Some(BUILD_TIME))
        .map_err(|err| unavailable("the sandbox helper", err))?;
    let ready = first_report(control, inbox)?;
    control
        .set_read_timeout(None)
        .and_then(|()| control.set_write_timeout(Some(SEND_TIME)))
        .map_err(|err| unavailable("the sandbox helper", err))?;
    match ready {
        Report::Ready { port, tree } => Ok((port, tree)),
        Report::Refused(why) => Err(why.into()),
        _ => Err(SandboxError::Unavailable(
            "the sandbox helper speaks another language".to_owned(),
        )),
    }
}

fn first_report(control: &UnixStream, inbox: &mut Inbox) -> Result<Report, SandboxError> {
    let unavailable = |why: &str| SandboxError::Unavailable(why.to_owned());
    let frame = inbox.wait(control).map_err(|err| match err.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            unavailable("the sandbox helper took too long")
        }
        _ => unavailable(&err.to_string()),
    })?;
    let frame = frame.ok_or_else(|| unavailable("the sandbox helper ended without a word"))?;
    Report::decode(&frame).map_err(|err| unavailable(&err.to_string()))
}

/// Hears reports until the helper is gone.
fn listen(
    reading: &UnixStream,
    mut inbox: Inbox,
    shared: &Weak<Shared>,
    mut helper: std::process::Child,
    tidy: mpsc::Sender<()>,
) {
    while matches!(inbox.fill(reading), Ok(true)) {
        while let Ok(Some(frame)) = inbox.next() {
            match Report::decode(&frame) {
                Ok(report) => hear(report, &mut inbox, shared),
                Err(_) => continue,
            }
        }
    }
    tracing::debug!("sandbox: the helper is gone");
    let left = shared
        .upgrade()
        .and_then(|shared| shared.waiting.lock().take());
    // After that nothing more is added here.
    let pausing = shared
        .upgrade()
        .map(|shared| std::mem::take(&mut *shared.pausing.lock()));
    for (_, done) in pausing.into_iter().flatten() {
        done(Err(SandboxError::Gone(
            "its supervisor was ended".to_owned(),
        )));
    }
    for (_, waiter) in left.into_iter().flatten() {
        waiter.refuse(SandboxError::Gone("its supervisor was ended".to_owned()));
    }
    // The helper still removes its layers of caches, which may be large. Most are gone at once: then the helper is
    // reaped before this process exits, because the first process of a container often reaps nothing.
    reap_within(&mut helper, REAP_TIME);
    drop(tidy);
    let _ = helper.wait();
}

/// Tells whoever waits for it.
fn hear(report: Report, inbox: &mut Inbox, shared: &Weak<Shared>) {
    let waiter = |id: u32| {
        shared
            .upgrade()
            .and_then(|shared| shared.waiting.lock().as_mut()?.remove(&id))
    };
    let pausing = |id: u32| {
        let shared = shared.upgrade()?;
        shared.pausing.lock().remove(&id)
    };
    match report {
        Report::Log { line } => tracing::debug!("sandbox helper: {line}"),
        Report::Ended { id, status, limits } => {
            tracing::debug!(id, status, limits, "sandbox: command ended");
            let limits = LimitsHit {
                processes: limits & HIT_PROCESSES != 0,
                memory: limits & HIT_MEMORY != 0,
            };
            let ended = waiter(id);
            if let Some(done) = pausing(id) {
                done(Err(SandboxError::Gone("the command has ended".to_owned())));
            }
            if let Some(Waiter::End(done)) = ended {
                done(Ok(Ended {
                    status: ExitStatus::from_raw(status),
                    limits,
                }));
            }
        }
        Report::Paused { id, stopped } => {
            tracing::debug!(id, stopped, "sandbox: command paused");
            if let Some(done) = pausing(id) {
                done(Ok(stopped));
            }
        }
        Report::Enclosed { id, ports } => {
            // Taken also when nobody waits any more: the next handles are somebody else's.
            let listener = |port| {
                Some((
                    u16::try_from(port).ok()?,
                    std::net::TcpListener::from(inbox.handle()?),
                ))
            };
            let listeners: Option<Vec<Listener>> = ports.into_iter().map(listener).collect();
            let place = Place {
                session: Weak::clone(shared),
                id,
            };
            if let Some(Waiter::Place(done)) = waiter(id) {
                let lost = || SandboxError::Gone("a listener was lost on the way".to_owned());
                done(
                    listeners
                        .map(|listeners| (place, listeners))
                        .ok_or_else(lost),
                );
            }
        }
        Report::Failed { id, why } => {
            if let Some(done) = pausing(id) {
                done(Err(SandboxError::Gone("the command has ended".to_owned())));
            }
            if let Some(waiter) = waiter(id) {
                waiter.refuse(match why {
                    Refusal::NoLayers(why) => SandboxError::NoLayers(why),
                    Refusal::Unavailable(why) | Refusal::Invalid(why) => SandboxError::Command(why),
                });
            }
        }
        Report::Ready { .. } | Report::Refused(_) => {}
    }
}
