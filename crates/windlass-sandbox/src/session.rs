//! The engine's side of the sandbox: spawns the helper, sends it commands, and receives how they ended. A thread reads
//! the helper's reports and calls the callback of each request, so this works with any async runtime. Only
//! [`SandboxSession::open`] blocks.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use crate::helper::{self, Helper};
use crate::inside::{PAUSE_ALL, RESUME_ALL};
use crate::spec::{Access, LimitsHit, Spec};
use crate::wire::{
    CommandLaunch, HIT_MEMORY, HIT_PROCESSES, Inbox, Refusal, SupervisorReport, SupervisorRequest,
    send,
};

/// The time that the helper may take to build the view of the file system.
const BUILD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that the helper may take to read one request.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that closing a session waits for the helper to kill all commands and clean up. After that the helper
/// continues on its own.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The usual time to wait for a helper to exit after its session has closed. After that the helper is left to the init
/// process.
pub const REAP_TIMEOUT: Duration = Duration::from_millis(100);

/// A sandbox could not be opened, or a command in it could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The kernel or its settings refuse a part of the sandbox; another [`crate::Tier`] may work.
    #[error("{0}")]
    Unavailable(String),
    /// The [`Spec`] or the request is wrong, for example because a path does not exist. No tier would work.
    #[error("{0}")]
    Invalid(String),
    /// This kernel, or a file system, cannot put a private overlay over a directory.
    #[error("{0}")]
    NoLayers(String),
    /// The sandbox works, but the command could not be started in it.
    #[error("{0}")]
    Command(String),
    /// The helper exited, and all commands ended with it.
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

/// A TCP listener with its port.
pub type Listener = (u16, std::net::TcpListener);

/// A new sandbox, with the listener and the tree that its [`Spec`] asked for.
#[derive(Debug)]
pub struct OpenedSandbox {
    /// The connection to the helper; dropping it ends the sandbox.
    pub session: SandboxSession,
    /// A listener on the sandbox's own loopback, for [`crate::Net::Proxy`].
    pub listener: Option<Listener>,
    /// The directory that commands work in, if it is not the workspace itself. The caller opens files beneath it;
    /// nothing in it is hidden or protected there. Changes by the caller and by commands are visible to each other at
    /// once.
    pub tree: Option<OwnedFd>,
    /// The end of the helper process.
    pub exit: HelperExit,
}

impl OpenedSandbox {
    /// Ends the sandbox and waits for its helper to exit.
    pub fn close(self) {
        drop(self.session);
        self.exit.wait_within(REAP_TIMEOUT);
    }
}

/// The end of a helper process. After the session has closed, the helper still removes the overlays of the caches,
/// beside other work of the caller. Before the caller's process exits, it should wait for that, because the init
/// process of a container often reaps nothing.
#[derive(Debug)]
pub struct HelperExit(Mutex<mpsc::Receiver<()>>);

impl HelperExit {
    /// Waits until the helper has exited and was reaped.
    pub fn wait_within(&self, time: Duration) {
        let _ = self.0.lock().recv_timeout(time);
    }

    /// Returns whether the helper was reaped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.lock().try_recv() == Err(mpsc::TryRecvError::Disconnected)
    }
}

/// A sandbox. When the last clone is dropped, the sandbox ends and all its processes are killed.
#[derive(Debug, Clone)]
pub struct SandboxSession(Arc<SessionShared>);

struct SessionShared {
    control: Arc<UnixStream>,
    /// Held while a frame is sent, so that two frames do not mix.
    sending: Mutex<()>,
    waiting: Mutex<Waiting>,
    /// The callbacks of [`SandboxedChild::pause`], by command id.
    pausing: Mutex<HashMap<u32, Callback<bool>>>,
    next: AtomicU32,
    /// The channel closes when the helper has cleaned up.
    cleaned_up: Mutex<mpsc::Receiver<()>>,
}

type Callback<T> = Box<dyn FnOnce(Result<T, SandboxError>) + Send>;

/// The callback of a request that the helper has not answered yet.
enum Waiter {
    End(Callback<Ended>),
    Place(Callback<(AgentView, Vec<Listener>)>),
}

impl Waiter {
    /// Calls the callback with an error.
    fn refuse(self, why: SandboxError) {
        match self {
            Self::End(done) => done(Err(why)),
            Self::Place(done) => done(Err(why)),
        }
    }
}

/// Pending requests by id; `None` once the helper is gone.
type Waiting = Option<HashMap<u32, Waiter>>;

impl std::fmt::Debug for SessionShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionShared")
    }
}

/// The end of a command. All processes that it started are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The exit status as the kernel reports it.
    pub status: ExitStatus,
    /// Limits that the sandbox killed the command for.
    pub limits: LimitsHit,
}

/// The standard streams of a command.
#[derive(Debug)]
pub struct Standard {
    /// Becomes the command's stdin.
    pub input: OwnedFd,
    /// Becomes the command's stdout.
    pub output: OwnedFd,
    /// Becomes the command's stderr.
    pub error: OwnedFd,
}

/// A running command. It does not keep the sandbox open; when the sandbox closes, the command is killed.
#[derive(Debug)]
pub struct SandboxedChild {
    session: Weak<SessionShared>,
    id: u32,
}

/// The enclosure of an agent. Programs started in it see [`crate::AGENT_HOME`]; if it was made with listeners, they
/// also have a network apart from that of the commands. It does not keep the sandbox open.
#[derive(Debug)]
pub struct AgentView {
    session: Weak<SessionShared>,
    id: u32,
}

/// The file system and network that a command gets.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// The workspace itself, writable or read-only.
    Workspace(Access),
    /// A private overlay over the workspace. The name is that of its folder in [`Spec::command_layers`], which receives
    /// everything the command writes to the workspace, unseen by other commands. Protected names are writable in the
    /// overlay; hidden ones stay hidden. After the command has ended, no process writes there any more.
    Layer(&'a str),
    /// Like [`Within::Layer`], and the caller also receives the overlay directory while the command runs.
    LentLayer(&'a str, &'a TreeBorrower),
    /// The enclosure of an agent.
    Place(&'a AgentView),
}

/// Receives the overlay of a [`Within::LentLayer`] command as a directory to open files beneath. The command sees
/// writes there at once, and its file watchers report them.
#[derive(Debug)]
pub struct TreeBorrower {
    ours: UnixStream,
    lender: Mutex<Option<UnixStream>>,
}

impl TreeBorrower {
    /// Creates a borrower for one command.
    pub fn new() -> io::Result<Self> {
        let (ours, lender) = UnixStream::pair()?;
        ours.set_read_timeout(Some(BUILD_TIMEOUT))?;
        let lender = Mutex::new(Some(lender));
        Ok(Self { ours, lender })
    }

    /// Waits until the overlay is mounted. Fails if the command ended before that.
    pub fn receive(&self) -> io::Result<OwnedFd> {
        let mut inbox = Inbox::default();
        inbox.wait(&self.ours)?;
        inbox
            .handle()
            .ok_or_else(|| io::Error::other("the command has no overlay"))
    }
}

impl From<Access> for Within<'_> {
    fn from(access: Access) -> Self {
        Self::Workspace(access)
    }
}

impl Drop for AgentView {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            // If the helper is gone, the enclosure is gone as well.
            let _ = session.send(&SupervisorRequest::Leave { id: self.id }, &[]);
        }
    }
}

/// A helper that has no specification yet. It loads while the caller prepares the [`Spec`]. Dropping it ends the
/// process.
#[derive(Debug)]
pub struct StartedHelper {
    control: Arc<UnixStream>,
    /// `None` once a session owns the process.
    process: Option<Child>,
}

impl StartedHelper {
    /// Spawns the helper.
    pub fn spawn(helper: &Helper) -> Result<Self, SandboxError> {
        let (control, theirs) =
            UnixStream::pair().map_err(|err| unavailable("cannot create a socket pair", err))?;
        helper::is_linked();
        let mut command = std::process::Command::new(&helper.program);
        command.args(&helper.args).env_clear().current_dir("/");
        command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command
            .spawn()
            .map_err(|err| unavailable("cannot start the sandbox helper", err))?;
        Ok(Self {
            control: Arc::new(control),
            process: Some(process),
        })
    }
}

impl Drop for StartedHelper {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill().and_then(|()| process.wait());
        }
    }
}

impl SandboxSession {
    /// Spawns the helper and waits until it has built the view of the file system.
    pub fn open(helper: &Helper, spec: &Spec) -> Result<OpenedSandbox, SandboxError> {
        Self::open_in(StartedHelper::spawn(helper)?, spec)
    }

    /// Waits until the helper has built the view of the file system.
    pub fn open_in(mut helper: StartedHelper, spec: &Spec) -> Result<OpenedSandbox, SandboxError> {
        let logged = tracing::enabled!(tracing::Level::DEBUG).then(|| Spec {
            log: true,
            ..spec.clone()
        });
        let spec = logged.as_ref().unwrap_or(spec);
        tracing::debug!(tier = ?spec.tier, net = ?spec.net, root = %spec.root.display(), "sandbox: open");
        let mut inbox = Inbox::default();
        // On an error, dropping the helper ends it: it could not build the sandbox or did not answer.
        let (port, tree) = send_spec(&helper.control, &mut inbox, spec)
            .inspect_err(|_| tracing::warn!("sandbox: not built"))?;
        let port = u16::try_from(port).ok().filter(|port| *port != 0);
        let listener =
            port.and_then(|port| Some((port, std::net::TcpListener::from(inbox.handle()?))));
        let tree = if tree { inbox.handle() } else { None };
        let control = Arc::clone(&helper.control);
        let reading = Arc::clone(&control);
        let mut child = helper.process.take().ok_or_else(gone)?;
        let (cleanup_done, cleaned_up) = mpsc::channel();
        let (reaped, exit) = mpsc::channel();
        let (waiting, cleaned_up) = (Mutex::new(Some(HashMap::new())), Mutex::new(cleaned_up));
        let shared = Arc::new(SessionShared {
            control,
            sending: Mutex::new(()),
            waiting,
            pausing: Mutex::default(),
            next: AtomicU32::new(1),
            cleaned_up,
        });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("windlass-sandbox".into())
            .spawn(move || {
                read_reports(&reading, inbox, &weak, cleanup_done);
                let _ = child.wait();
                drop(reaped);
            })
            .map_err(|err| unavailable("cannot start a thread", err))?;
        Ok(OpenedSandbox {
            session: Self(shared),
            listener,
            tree,
            exit: HelperExit(Mutex::new(exit)),
        })
    }

    /// Starts a command. `done` is called once, from another thread: when the command has ended and all its processes
    /// are gone, or when it could not be started. [`SandboxError::NoLayers`] means that overlays do not work here; then
    /// no process was started.
    pub fn start<'a>(
        &self,
        argv: &[OsString],
        env: &[(OsString, OsString)],
        dir: &Path,
        within: impl Into<Within<'a>>,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<SandboxedChild, SandboxError> {
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
            SupervisorRequest::Run(Box::new(CommandLaunch {
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
        Ok(SandboxedChild {
            session: Arc::downgrade(&self.0),
            id,
        })
    }

    /// Makes an enclosure for an agent. It gets `listeners` listeners on its own loopback, which no other command
    /// reaches; with 0 listeners it shares the network of the commands. Needs [`Spec::agent`]. `done` is called once,
    /// from another thread.
    pub fn enclose(
        &self,
        listeners: u32,
        done: impl FnOnce(Result<(AgentView, Vec<Listener>), SandboxError>) + Send + 'static,
    ) -> Result<(), SandboxError> {
        let ask = |id| SupervisorRequest::Enclose { id, listeners };
        self.ask(ask, &[], Waiter::Place(Box::new(done))).map(drop)
    }

    /// Sends a request and registers its callback; returns the request's id.
    fn ask(
        &self,
        request: impl FnOnce(u32) -> SupervisorRequest,
        handles: &[BorrowedFd<'_>],
        waiter: Waiter,
    ) -> Result<u32, SandboxError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut waiting = self.0.waiting.lock();
            let Some(waiting) = waiting.as_mut() else {
                return Err(gone());
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

impl SandboxedChild {
    /// Sends SIGTERM to all processes of the command.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Kills all processes of the command.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Stops all processes of the command until [`SandboxedChild::resume`]. `done` is called once, from another thread, with
    /// whether all of them are stopped, or with an error if the command or the sandbox is gone. If some process could
    /// not be stopped, the caller should kill the command.
    pub fn pause(&self, done: impl FnOnce(Result<bool, SandboxError>) + Send + 'static) {
        let gone = || Err(SandboxError::Gone("the command has ended".to_owned()));
        let Some(session) = self.session.upgrade() else {
            return done(gone());
        };
        // The thread that reports the end of a command takes the same lock. So either this sees that the command ended,
        // or that thread finds the callback.
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

    /// Continues all processes that [`SandboxedChild::pause`] stopped.
    pub fn resume(&self) {
        self.signal(RESUME_ALL);
    }

    fn signal(&self, signal: i32) {
        // If the helper is gone, so is the command.
        if let Some(session) = self.session.upgrade() {
            let _ = session.send(
                &SupervisorRequest::Signal {
                    id: self.id,
                    signal,
                },
                &[],
            );
        }
    }
}

impl SessionShared {
    fn send(&self, request: &SupervisorRequest, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _alone = self.sending.lock();
        send(self.control.as_fd(), &request.encode(), handles)
    }
}

impl Drop for SessionShared {
    fn drop(&mut self) {
        // The helper sees the end of its socket, kills every command and removes its placeholders. Wait for that, so
        // that the caller does not find placeholders in the workspace afterwards.
        let _ = self.control.shutdown(std::net::Shutdown::Write);
        let cleaned_up = self.cleaned_up.lock();
        let _ = cleaned_up.recv_timeout(CLEANUP_TIMEOUT);
    }
}

fn unavailable(what: &str, err: io::Error) -> SandboxError {
    SandboxError::Unavailable(format!("{what}: {err}"))
}

fn gone() -> SandboxError {
    SandboxError::Gone("its helper process exited".to_owned())
}

/// Sends the [`Spec`] and waits until the sandbox is built. Returns the port of the listener, or 0, and whether a file
/// descriptor of the tree follows.
fn send_spec(
    control: &UnixStream,
    inbox: &mut Inbox,
    spec: &Spec,
) -> Result<(u32, bool), SandboxError> {
    let spec = serde_json::to_vec(spec).map_err(|err| {
        SandboxError::Unavailable(format!("a path of the sandbox is not UTF-8: {err}"))
    })?;
    send(control.as_fd(), &spec, &[])
        .map_err(|err| unavailable("cannot write to the sandbox helper", err))?;
    control
        .set_read_timeout(Some(BUILD_TIMEOUT))
        .map_err(|err| unavailable("the sandbox helper", err))?;
    let ready = first_report(control, inbox)?;
    control
        .set_read_timeout(None)
        .and_then(|()| control.set_write_timeout(Some(SEND_TIMEOUT)))
        .map_err(|err| unavailable("the sandbox helper", err))?;
    match ready {
        SupervisorReport::Ready { port, tree } => Ok((port, tree)),
        SupervisorReport::Refused(why) => Err(why.into()),
        _ => Err(SandboxError::Unavailable(
            "the sandbox helper sent an unexpected report".to_owned(),
        )),
    }
}

fn first_report(control: &UnixStream, inbox: &mut Inbox) -> Result<SupervisorReport, SandboxError> {
    let unavailable = |why: &str| SandboxError::Unavailable(why.to_owned());
    let frame = inbox.wait(control).map_err(|err| match err.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            unavailable("the sandbox helper did not answer in time")
        }
        _ => unavailable(&err.to_string()),
    })?;
    let frame = frame.ok_or_else(|| unavailable("the sandbox helper exited without a report"))?;
    SupervisorReport::decode(&frame).map_err(|err| unavailable(&err.to_string()))
}

/// Reads reports until the helper has cleaned up, then fails all pending requests.
fn read_reports(
    reading: &UnixStream,
    mut inbox: Inbox,
    shared: &Weak<SessionShared>,
    cleanup_done: mpsc::Sender<()>,
) {
    while matches!(inbox.fill(reading), Ok(true)) {
        while let Ok(Some(frame)) = inbox.next() {
            match SupervisorReport::decode(&frame) {
                Ok(report) => handle_report(report, &mut inbox, shared),
                Err(_) => continue,
            }
        }
    }
    tracing::debug!("sandbox: the helper is gone");
    let left = shared
        .upgrade()
        .and_then(|shared| shared.waiting.lock().take());
    // `waiting` is `None` now, so `pause` adds no more callbacks.
    let pausing = shared
        .upgrade()
        .map(|shared| std::mem::take(&mut *shared.pausing.lock()));
    for (_, done) in pausing.into_iter().flatten() {
        done(Err(gone()));
    }
    for (_, waiter) in left.into_iter().flatten() {
        waiter.refuse(gone());
    }
    drop(cleanup_done);
}

/// Calls the callback of the request that a report answers.
fn handle_report(report: SupervisorReport, inbox: &mut Inbox, shared: &Weak<SessionShared>) {
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
        SupervisorReport::Log { line } => tracing::debug!("sandbox helper: {line}"),
        SupervisorReport::Ended { id, status, limits } => {
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
        SupervisorReport::Paused { id, stopped } => {
            tracing::debug!(id, stopped, "sandbox: command paused");
            if let Some(done) = pausing(id) {
                done(Ok(stopped));
            }
        }
        SupervisorReport::Enclosed { id, ports } => {
            // Take the file descriptors even if the callback is gone: the ones behind them belong to the next report.
            let listener = |port| {
                Some((
                    u16::try_from(port).ok()?,
                    std::net::TcpListener::from(inbox.handle()?),
                ))
            };
            let listeners: Option<Vec<Listener>> = ports.into_iter().map(listener).collect();
            let place = AgentView {
                session: Weak::clone(shared),
                id,
            };
            if let Some(Waiter::Place(done)) = waiter(id) {
                let lost = || {
                    SandboxError::Gone(
                        "the helper sent no file descriptor for a listener".to_owned(),
                    )
                };
                done(
                    listeners
                        .map(|listeners| (place, listeners))
                        .ok_or_else(lost),
                );
            }
        }
        SupervisorReport::Failed { id, why } => {
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
        SupervisorReport::Ready { .. } | SupervisorReport::Refused(_) => {}
    }
}
