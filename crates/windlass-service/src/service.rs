//! [`Service`]: many sessions in many workspaces for many callers, in one process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use windlass::core::event::EventKind;
use windlass::core::id::SessionId;
use windlass::core::overview::SessionOverview;
use windlass::core::pause::PauseReason;
use windlass::core::store::{SessionStore, Skimmed};
use windlass::core::workspace::Files;
use windlass::flags::RunFlags;
use windlass::machine::{Root, SessionLog};
use windlass::notifications::Notifier;
use windlass::settings::{Places, Settings, places};
use windlass::{Environment, Notices, model, recover};

use crate::access::Caller;
use crate::host::SessionHost;
use crate::idempotency::IdempotencyKeys;
use crate::live::SessionEvents;
use crate::log_watch::LogWatch;
use crate::metrics::Metrics;
use crate::private_file;
use crate::problem::{Problem, ProblemCode};
use crate::reader::EventReader;
use crate::scheduler::{Scheduler, shutting_down};
use crate::spending::Spending;
use crate::tokens::{Token, Tokens, main_token};

/// Time that runs have to reach a safe point when the service shuts down.
const PAUSE_GRACE: Duration = Duration::from_secs(10);
/// Time after that until tasks are abandoned.
const CLOSE_GRACE: Duration = Duration::from_secs(10);
/// Time that notifications have to be delivered when the service shuts down.
const NOTIFY_GRACE: Duration = Duration::from_secs(5);
/// Free space below which no further run is accepted, in bytes.
const MIN_FREE: u64 = 16 << 20;

/// Options of a service.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The environment of settings, agents and commands.
    pub environment: Environment,
    /// The directories in which workspaces may be.
    pub roots: Vec<PathBuf>,
    /// Maximum number of concurrent runs.
    pub max_runs: usize,
    /// The most that all runs may cost together, in US dollars.
    pub budget_usd: Option<f64>,
    /// Starts prompts that were queued before the service was started.
    pub run_queued: bool,
    /// Continues runs that were interrupted by a crash, with a new run on their copy. They are closed in any case.
    pub resume_interrupted: bool,
    /// The flags of this process. They apply to every run whose request does not say otherwise, and are not part of the
    /// queued prompt.
    pub flags: RunFlags,
    /// The role of the service among the processes of the user.
    pub role: ServiceRole,
    /// Receives warnings that belong to no session.
    pub notices: Notices,
}

impl ServiceOptions {
    /// Options with the defaults, for workspaces in one directory.
    #[must_use]
    pub fn new(environment: Environment, root: impl Into<PathBuf>) -> Self {
        Self {
            environment,
            roots: vec![root.into()],
            max_runs: 16,
            budget_usd: None,
            run_queued: true,
            resume_interrupted: false,
            flags: RunFlags::default(),
            role: ServiceRole::Main,
            notices: Notices::default(),
        }
    }
}

/// The role of a service among the processes of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceRole {
    /// The only server of the user. It continues the work of the one before it. If there is one already, this is an error.
    Main,
    /// A service for one program, beside a server. If there is no server, it takes its role.
    Private,
    /// A service for one terminal, beside a server. It never takes the role of the server, which could start at any time.
    Terminal,
    /// It only changes tokens and settings, and runs nothing.
    Tool,
}

/// All sessions of a user, with the operations on them. Cloning is cheap.
#[derive(Clone)]
pub struct Service(pub(crate) Arc<ServiceParts>);

pub(crate) struct ServiceParts {
    pub(crate) options: ServiceOptions,
    pub(crate) places: Places,
    pub(crate) store: Arc<SessionLog>,
    hosts: Mutex<HashMap<SessionId, Weak<SessionHost>>>,
    /// The events of all sessions.
    pub(crate) feed: Arc<SessionEvents>,
    pub(crate) scheduler: Scheduler,
    pub(crate) tokens: Tokens,
    pub(crate) spending: Spending,
    pub(crate) keys: Arc<IdempotencyKeys>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    pub(crate) watch: LogWatch,
    /// Makes the ids of sessions unguessable, also for clients that choose the idempotency key.
    pub(crate) id_secret: [u8; 32],
    pub(crate) notifier: Notifier,
    /// The directory of a process that is not the server; it is deleted at the end.
    own_dir: Option<PathBuf>,
    _lock: Option<ServerLock>,
}

impl Drop for ServiceParts {
    fn drop(&mut self) {
        if let Some(dir) = &self.own_dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// The right to be the only server of a user, until it is dropped. The kernel releases it when the process ends.
struct ServerLock(#[expect(dead_code, reason = "the open file holds the lock")] std::fs::File);

impl ServerLock {
    /// Takes the lock; `None` if another process holds it.
    fn take(dir: &Path) -> Result<Option<Self>, Problem> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join("lock"))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(err) => Err(std::io::Error::from(err).into()),
        }
    }
}

impl Service {
    /// Opens the service: finishes what a dead process left, and continues paused and queued runs.
    pub async fn open(options: ServiceOptions) -> Result<Self, Problem> {
        let places = places(&options.environment)?;
        let dir = server_dir(&places);
        private_file::create_dir(&dir)?;
        let lock = match options.role {
            ServiceRole::Tool | ServiceRole::Terminal => None,
            ServiceRole::Main | ServiceRole::Private => ServerLock::take(&dir)?,
        };
        if lock.is_none() && options.role == ServiceRole::Main {
            return Err(Problem::new(
                ProblemCode::Locked,
                "another server of this user is running",
            )
            .hint("use that server: `windlass serve --print-url` prints its address; or stop it first"));
        }
        // The files of the server belong to the process that holds the lock.
        let own = match &lock {
            Some(_) => dir.clone(),
            None => dir.join(format!("process-{}", std::process::id())),
        };
        private_file::create_dir(&own)?;
        let is_main = lock.is_some();
        let mut roots = Vec::new();
        for root in &options.roots {
            let real = std::fs::canonicalize(root).map_err(|err| {
                Problem::invalid(format!("the root {} cannot be used: {err}", root.display()))
            })?;
            roots.push(real);
        }
        let options = ServiceOptions { roots, ..options };
        let store = Arc::new(SessionLog::new(places.sessions_dir()));
        let secret = main_token(&dir)?;
        let service = Self(Arc::new(ServiceParts {
            id_secret: blake3::derive_key("windlass session ids", secret.as_bytes()),
            watch: LogWatch::default(),
            notifier: Notifier::start(options.notices.clone()),
            scheduler: Scheduler::new(options.max_runs),
            tokens: Tokens::open(&dir)?,
            spending: Spending::open(&own, options.budget_usd)?,
            keys: Arc::new(IdempotencyKeys::open(&own)?),
            metrics: Metrics::default(),
            places,
            store,
            hosts: Mutex::default(),
            feed: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            own_dir: (!is_main).then_some(own),
            _lock: lock,
            options,
        }));
        // The command that opens a terminal has recovered landings already.
        if is_main {
            service.recover().await;
            service.settle_left_open().await?;
            service.continue_left_work().await?;
            service.start_retention();
        }
        Ok(service)
    }

    /// Finishes or rolls back the landings of processes that died.
    async fn recover(&self) {
        let (places, notices) = (self.0.places.clone(), self.0.options.notices.clone());
        let unlogged = tokio::task::spawn_blocking(move || recover(&places, &notices)).await;
        if let (Ok(unlogged), Ok(settings)) = (unlogged, self.settings(None)) {
            unlogged.log(&settings).await;
        }
    }

    /// Settles the reservations of runs whose process died, by what their logs say.
    async fn settle_left_open(&self) -> Result<(), Problem> {
        for (session, reservation) in self.0.spending.left_open() {
            let total = match self.total_cost(&session).await {
                Ok(total) => total,
                // The session was deleted or is damaged: nobody knows the cost, so all of it counts.
                Err(_) => reservation.before.saturating_add(reservation.micros),
            };
            let micros = total.saturating_sub(reservation.before);
            self.0.spending.settle(&session, micros)?;
        }
        Ok(())
    }

    /// The cost of all runs of a session, in micro-USD.
    pub(crate) async fn total_cost(&self, session: &SessionId) -> Result<u64, Problem> {
        let mut total = 0_u64;
        let mut events = self.0.store.skim(session, 1, |kind| kind == "spent");
        while let Some(event) = events.next().await {
            if let Skimmed::Event(event) = event?
                && let EventKind::Spent { cost_micros, .. } = event.kind
            {
                total = total.saturating_add(cost_micros.unwrap_or(0));
            }
        }
        Ok(total)
    }

    /// Flags of a run over those of this process.
    pub(crate) fn with_own_flags(&self, flags: &RunFlags) -> Result<RunFlags, Problem> {
        Ok(self.0.options.flags.overridden_by(flags)?)
    }

    /// The settings for a workspace.
    pub(crate) fn settings(&self, workspace: Option<&Path>) -> Result<Settings, Problem> {
        let environment = self.0.options.environment.clone();
        let mut settings = Settings::load(workspace, environment)?;
        settings.notices = self.0.options.notices.clone();
        Ok(settings)
    }

    /// Opens a workspace inside the roots of the service.
    pub(crate) fn open_workspace(&self, caller: &Caller, dir: &Path) -> Result<Root, Problem> {
        // A relative path depends on the directory of the server, which the caller does not know.
        if !dir.is_absolute() {
            return Err(
                Problem::invalid(format!("`{}` is not an absolute path", shown(dir)))
                    .hint("name a workspace by its absolute path"),
            );
        }
        let real = std::fs::canonicalize(dir).map_err(|err| {
            Problem::unprocessable(format!(
                "the workspace {} cannot be opened: {err}",
                shown(dir)
            ))
        })?;
        let root = model::open_workspace(Some(&real), &self.0.options.environment)?;
        self.check_workspace(caller, root.root())?;
        Ok(root)
    }

    /// Refuses a workspace outside the roots, or one that the caller must not see.
    pub(crate) fn check_workspace(&self, caller: &Caller, workspace: &Path) -> Result<(), Problem> {
        let roots = &self.0.options.roots;
        if roots.iter().any(|root| workspace.starts_with(root)) && caller.sees(workspace) {
            return Ok(());
        }
        Err(Problem::new(
            ProblemCode::Forbidden,
            format!("the workspace {} is not available here", shown(workspace)),
        )
        .hint("start the server with `--root DIR` for further directories, or use a token for this workspace"))
    }

    /// Whether a caller can see a workspace.
    pub(crate) fn shows(&self, caller: &Caller, workspace: &str) -> bool {
        self.check_workspace(caller, Path::new(workspace)).is_ok()
    }

    /// The default workspace: the first root that is one.
    pub(crate) fn default_workspace(&self) -> Option<&Path> {
        self.0.options.roots.first().map(PathBuf::as_path)
    }

    /// The host of a session that the caller can see. Reads the first event of the log if the session is not known yet.
    pub(crate) async fn host(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Arc<SessionHost>, Problem> {
        let host = self.any_host(session).await?;
        // A session that the caller must not see does not exist for it.
        if !self.shows(caller, &host.workspace.display().to_string()) {
            return Err(no_such_session(session));
        }
        Ok(host)
    }

    pub(crate) async fn any_host(&self, session: &SessionId) -> Result<Arc<SessionHost>, Problem> {
        if let Some(host) = self.known_host(session) {
            return Ok(host);
        }
        let mut events = self.0.store.read(session, 1);
        let first = events.next().await;
        drop(events);
        let workspace = match first {
            Some(Ok(event)) => match event.kind {
                EventKind::SessionOpened { workspace, .. } => workspace,
                _ => String::new(),
            },
            Some(Err(err)) => return Err(err.into()),
            None => return Err(no_such_session(session)),
        };
        Ok(self.add_host(session, workspace.into()))
    }

    fn known_host(&self, session: &SessionId) -> Option<Arc<SessionHost>> {
        self.0.hosts.lock().get(session)?.upgrade()
    }

    pub(crate) fn add_host(&self, session: &SessionId, workspace: PathBuf) -> Arc<SessionHost> {
        let mut hosts = self.0.hosts.lock();
        if let Some(host) = hosts.get(session).and_then(Weak::upgrade) {
            return host;
        }
        // Hosts that nobody uses any more leave only their entries behind.
        if hosts.len() > 64 && hosts.len().is_power_of_two() {
            hosts.retain(|_, host| host.strong_count() > 0);
        }
        let host = Arc::new(SessionHost::new(session.clone(), workspace));
        hosts.insert(session.clone(), Arc::downgrade(&host));
        host
    }

    /// All sessions that are in use: they have readers or runs.
    pub(crate) fn used_hosts(&self) -> Vec<Arc<SessionHost>> {
        self.0
            .hosts
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Reads the events of a session after a sequence number, and then those that happen.
    pub async fn events(
        &self,
        caller: &Caller,
        session: &SessionId,
        after: u64,
        live: bool,
    ) -> Result<EventReader, Problem> {
        let host = self.host(caller, session).await?;
        self.0.watch_log(&host);
        Ok(EventReader::new(
            self.0.store.clone(),
            session.clone(),
            host.events.clone(),
            after,
            live,
        )
        .keeping(host))
    }

    /// Folds the log of a session to an overview.
    pub(crate) async fn overview(
        &self,
        session: &SessionId,
        at: Option<u64>,
    ) -> Result<SessionOverview, Problem> {
        let mut overview = SessionOverview::default();
        let mut events = self.0.store.skim(session, 1, SessionOverview::needs);
        while at.is_none_or(|at| overview.last_seq < at)
            && let Some(event) = events.next().await
        {
            match event? {
                Skimmed::Event(event) => overview.apply(&event),
                Skimmed::Passed { seq } => overview.last_seq = seq,
            }
        }
        Ok(overview)
    }

    /// The token of a caller with its budget in micro-USD.
    pub(crate) fn token_of(&self, caller: &Caller) -> Option<Token> {
        self.0.tokens.named(caller.token.as_deref()?)
    }

    /// Refuses new work if the service shuts down or the disk is nearly full.
    pub(crate) fn accept_work(&self) -> Result<(), Problem> {
        if self.0.closing.is_cancelled() || self.0.scheduler.is_stopped() {
            return Err(shutting_down());
        }
        match free_space(&self.0.places.data_dir) {
            Some(free) if free < MIN_FREE => Err(Problem::new(
                ProblemCode::StorageFull,
                format!("only {} MB are free for session data", free >> 20),
            )
            .hint("free some disk space, or delete old sessions; nothing was started")),
            _ => Ok(()),
        }
    }

    /// Whether the service accepts work.
    pub fn accepts_work(&self) -> Result<(), Problem> {
        self.accept_work()
    }

    /// The caller with this token.
    #[must_use]
    pub fn caller(&self, token: &str) -> Option<Caller> {
        self.0.tokens.caller(token)
    }

    /// Whether the token of a caller was not revoked since.
    #[must_use]
    pub fn is_valid(&self, caller: &Caller) -> bool {
        self.0.tokens.is_valid(caller)
    }

    /// The caller that logged in with this cookie.
    #[must_use]
    pub fn caller_of_cookie(&self, cookie: &str) -> Option<Caller> {
        self.0.tokens.caller_of_cookie(cookie)
    }

    /// A one-time code for a login link, which is valid for five minutes.
    pub fn login_ticket(&self) -> Result<String, Problem> {
        self.0.tokens.ticket()
    }

    /// Exchanges the code of a login link for the value of a cookie; `None` if the code is not valid.
    pub fn login(&self, ticket: &str) -> Result<Option<String>, Problem> {
        self.0.tokens.login(ticket)
    }

    /// Shuts the service down: no further run starts, and runs in progress pause at a safe point, so that they continue when
    /// the service is opened again.
    pub async fn close(&self) {
        let parts = &self.0;
        parts.closing.cancel();
        parts.scheduler.stop();
        let pause = |now| {
            for host in self.used_hosts() {
                if let Some(live) = host.live() {
                    live.pause(PauseReason::Shutdown, now);
                }
            }
        };
        pause(false);
        parts.tasks.close();
        if tokio::time::timeout(PAUSE_GRACE, parts.tasks.wait())
            .await
            .is_err()
        {
            pause(true);
            let _ = tokio::time::timeout(CLOSE_GRACE, parts.tasks.wait()).await;
        }
        parts.notifier.flush(NOTIFY_GRACE).await;
    }

    /// Cancelled when the service shuts down; event streams end then.
    #[must_use]
    pub fn closing(&self) -> CancellationToken {
        self.0.closing.clone()
    }
}

impl ServiceParts {
    pub(crate) fn server_dir(&self) -> PathBuf {
        server_dir(&self.places)
    }
}

/// The directory of the data of servers.
#[must_use]
pub fn server_dir(places: &Places) -> PathBuf {
    places.data_dir.join("server")
}

/// The free space of the file system of a directory, in bytes.
fn free_space(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub(crate) fn no_such_session(session: &SessionId) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no session `{session}`"),
    )
    .hint("`GET /v1/sessions` lists the sessions")
}

/// A path in a message: short and without control characters.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    text.chars()
        .take(300)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Opens the root of a workspace that a session names.
pub(crate) fn open_root(workspace: &Path) -> Result<Root, Problem> {
    Root::open(workspace).map_err(|err| {
        Problem::new(
            ProblemCode::Conflict,
            format!("the workspace cannot be opened: {err}"),
        )
    })
}
