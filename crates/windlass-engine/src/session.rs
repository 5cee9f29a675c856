//! The library's front door: an engine opens sessions, a session runs prompts, one at a time.
//! No global state: everything an engine needs is handed to its builder.

mod answer;
mod checks;
mod close;
mod driver;
mod fork;
mod iterate;
mod judge;
mod land;
mod room;

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc};
use windlass_core::budget::Spent;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::gate::PermissionGate;
use windlass_core::history::History;
use windlass_core::id::{AskId, CallId, RunId, SessionId, TraceId};
use windlass_core::image::Swap;
use windlass_core::message::{Message, Origin, Role};
use windlass_core::redact::clean_message;
use windlass_core::run::Run;
use windlass_core::runtime::{Capability, RunMode, Runtime, Unmet};
use windlass_core::store::{OpenLog, OpenedLog, SessionStore, StoreError};
use windlass_core::tool::{Exposure, Tool, ToolSet};
use windlass_core::validator::Validator;
use windlass_core::workspace::{
    Artifacts, FileChange, Landed, NoSecrets, Outside, Redactor, Workspaces,
};

use crate::account::Books;
use crate::asking::{NoSuchAsk, OnAsk};
use crate::load::load_history;
use crate::log::{Log, Scope, View};
use crate::run::{Halt, RunHandle, RunOptions, RunOutlet};
use crate::schema::Schemas;

/// Events a view may be behind before a durable one waits for it.
const VIEW_ROOM: usize = 1_024;
/// Prompts that may wait at a time.
const MAX_QUEUED: usize = 100;

/// Where a session's large results go.
pub type ArtifactsOf = Arc<dyn Fn(&SessionId) -> Arc<dyn Artifacts> + Send + Sync>;

/// Everything sessions share.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) workspaces: Arc<dyn Workspaces>,
    pub(crate) artifacts: ArtifactsOf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Arc<dyn Redactor>,
    pub(crate) outside: Option<Arc<dyn Outside>>,
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) validators: Vec<Arc<dyn Validator>>,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) gate: PermissionGate,
    pub(crate) workspace: String,
    pub(crate) program: String,
}

impl Parts {
    fn fresh_trace(&self) -> TraceId {
        TraceId::fresh(self.clock.entropy(), self.clock.entropy())
    }
}

/// Opens sessions.
#[derive(Clone)]
pub struct Engine(Arc<Parts>);

/// What an engine is made of. `runtime`, `store`, `workspaces`, `artifacts` and `clock` are required.
#[derive(Default)]
pub struct EngineBuilder {
    runtime: Option<Arc<dyn Runtime>>,
    store: Option<Arc<dyn SessionStore>>,
    workspaces: Option<Arc<dyn Workspaces>>,
    artifacts: Option<ArtifactsOf>,
    clock: Option<Arc<dyn Clock>>,
    redactor: Option<Arc<dyn Redactor>>,
    outside: Option<Arc<dyn Outside>>,
    tools: Vec<Arc<dyn Tool>>,
    validators: Vec<Arc<dyn Validator>>,
    gate: PermissionGate,
    workspace: String,
    program: String,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty),* $(,)?) => { $(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$name = Some($name);
            self
        }
    )* };
}

impl EngineBuilder {
    setters! {
        /// Who owns the loop.
        runtime: Arc<dyn Runtime>,
        /// Where sessions are kept.
        store: Arc<dyn SessionStore>,
        /// How workspaces are opened.
        workspaces: Arc<dyn Workspaces>,
        /// Where large results go.
        artifacts: ArtifactsOf,
        /// The clock.
        clock: Arc<dyn Clock>,
        /// What takes secrets out of text; without one, nothing is taken out.
        redactor: Arc<dyn Redactor>,
        /// What reads outside the workspace for calls that were allowed to; without one, none can.
        outside: Arc<dyn Outside>,
    }

    /// More tools. Deny rules take tools away before the model sees them.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// One more validator, run in the order they are added.
    #[must_use]
    pub fn validator(mut self, validator: Arc<dyn Validator>) -> Self {
        self.validators.push(validator);
        self
    }

    /// Rules and mode.
    #[must_use]
    pub fn gate(mut self, gate: PermissionGate) -> Self {
        self.gate = gate;
        self
    }

    /// The workspace's root and the program's version, for the first line of each log.
    #[must_use]
    pub fn describe(mut self, workspace: impl Into<String>, program: impl Into<String>) -> Self {
        self.workspace = workspace.into();
        self.program = program.into();
        self
    }

    /// The engine, or what is missing.
    pub fn build(self) -> Result<Engine, EngineError> {
        let missing = |what: &'static str| EngineError::Incomplete(what);
        let gate = self.gate;
        let offered = |tool: &Arc<dyn Tool>| {
            tool.spec().exposure != Exposure::Disabled && !gate.hides(&tool.spec().name)
        };
        let tools = ToolSet::new(self.tools.into_iter().filter(offered).collect());
        Ok(Engine(Arc::new(Parts {
            runtime: self.runtime.ok_or_else(|| missing("runtime"))?,
            store: self.store.ok_or_else(|| missing("store"))?,
            workspaces: self.workspaces.ok_or_else(|| missing("workspaces"))?,
            artifacts: self.artifacts.ok_or_else(|| missing("artifacts"))?,
            clock: self.clock.ok_or_else(|| missing("clock"))?,
            redactor: self.redactor.unwrap_or_else(|| Arc::new(NoSecrets)),
            outside: self.outside,
            tools: Arc::new(tools),
            validators: self.validators,
            schemas: Arc::default(),
            gate,
            workspace: self.workspace,
            program: self.program,
        })))
    }
}

/// Which session to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    /// A new one.
    New,
    /// One that exists, to go on with it.
    Resume(SessionId),
}

/// Why an engine or a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The builder was not given something it needs.
    #[error("the engine has no {0}: give the builder one")]
    Incomplete(&'static str),
    /// A limit was reached, and whoever asked wants that as an error.
    #[error("the run reached its limit of {limit}; raise it and resume, or ask for less")]
    BudgetExceeded {
        /// Which.
        limit: windlass_core::budget::Limit,
        /// What it came to until then.
        result: Box<crate::facade::RunResult>,
    },
    /// The runtime cannot do the work.
    #[error(transparent)]
    Unmet(#[from] Unmet),
    /// A tool that the runtime cannot be given.
    #[error("the runtime `{runtime}` takes no tools of ours, so it cannot be given `{tool}`")]
    Unusable {
        /// Which tool.
        tool: String,
        /// Who.
        runtime: String,
    },
    /// The log could not be opened or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session is about another workspace than the engine.
    #[error("session `{session}` is about another workspace: {workspace}")]
    OtherWorkspace {
        /// Which session.
        session: SessionId,
        /// Where it works.
        workspace: String,
    },
    /// An answer that fits no open ask.
    #[error(transparent)]
    NoSuchAsk(#[from] NoSuchAsk),
    /// An answer that cannot be one to what was asked.
    #[error("`{ask}` cannot be answered like that: {why}")]
    Unfitting {
        /// Which ask.
        ask: AskId,
        /// What can be said instead.
        why: String,
    },
    /// There is no event of that number.
    #[error("session `{session}` has {last} events, so it cannot be forked at event {at}")]
    NoSuchEvent {
        /// Which session.
        session: SessionId,
        /// What was asked for.
        at: u64,
        /// What there is.
        last: u64,
    },
    /// No room could be made.
    #[error("no room could be made in the conversation: {0}")]
    NoRoom(String),
    /// More prompts wait than anybody would want to.
    #[error("{0} prompts wait already: let some of them run first, or cancel")]
    QueueFull(usize),
    /// An event that only a run writes.
    #[error("an event `{0}` is written by a run, not between runs")]
    NotBetweenRuns(String),
    /// A session does one run at a time.
    #[error("the session is busy with a run: wait for its end, or cancel it")]
    Busy,
}

impl Engine {
    /// Begins to put an engine together.
    #[must_use]
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Opens a session for a kind of work. A runtime that cannot do it fails here, by name.
    pub async fn open(&self, which: Open, mode: RunMode) -> Result<Session, EngineError> {
        self.require(mode)?;
        match which {
            Open::New => self.create().await,
            Open::Resume(id) => self.resume(id).await,
        }
    }

    /// Refuses a kind of work that the runtime cannot do, and tools that it cannot be given.
    fn require(&self, mode: RunMode) -> Result<(), EngineError> {
        let parts = &self.0;
        let (name, can) = (parts.runtime.name(), parts.runtime.capabilities());
        can.require(name, mode.work())?;
        // Those that are for our own loop alone are nobody else's loss.
        let given = parts
            .tools
            .iter()
            .find(|tool| tool.spec().exposure == Exposure::Function);
        if let Some(tool) = given.filter(|_| !can.has(Capability::FunctionTools)) {
            return Err(EngineError::Unusable {
                tool: tool.spec().name.clone(),
                runtime: name.to_owned(),
            });
        }
        Ok(())
    }

    async fn create(&self) -> Result<Session, EngineError> {
        let parts = &self.0;
        let (id, writer) = self.free().await?;
        let session = self.session(id, writer, History::default());
        let opened = EventKind::SessionOpened {
            workspace: parts.workspace.clone(),
            runtime: parts.runtime.name().to_owned(),
            model: parts.runtime.model().map(str::to_owned),
            program: parts.program.clone(),
        };
        session.log.emit(&session.scope(None), opened).await?;
        Ok(session)
    }

    async fn resume(&self, id: SessionId) -> Result<Session, EngineError> {
        let parts = &self.0;
        let OpenedLog {
            writer,
            notices,
            after_power_cut,
        } = parts.store.open_writer(&id, OpenLog::Existing).await?;
        let mut history = load_history(parts.store.as_ref(), &id).await?;
        if after_power_cut {
            history.doubt();
        }
        let bounded = history.bounded().cloned();
        if !parts.workspace.is_empty() && history.workspace() != parts.workspace {
            return Err(EngineError::OtherWorkspace {
                session: id,
                workspace: history.workspace().to_owned(),
            });
        }
        let session = self.session(id, writer, history);
        let scope = session.scope(None);
        for text in notices {
            let warned = EventKind::warned("log_repaired", text);
            session.log.emit(&scope, warned).await?;
        }
        if let Some(compaction) = bounded {
            let compacted = EventKind::Compacted { compaction };
            session.log.emit(&scope, compacted).await?;
        }
        session.note_model().await?;
        Ok(session)
    }

    fn session(
        &self,
        id: SessionId,
        writer: Box<dyn windlass_core::store::LogWriter>,
        history: History,
    ) -> Session {
        let parts = self.0.clone();
        let trace = parts.fresh_trace();
        let first_seq = history.last_seq() + 1;
        let log = Arc::new(Log::new(
            id.clone(),
            parts.clock.clone(),
            writer,
            history,
            parts.redactor.clone(),
        ));
        let gate = Arc::new(Mutex::new(parts.gate.clone()));
        Session {
            id,
            parts,
            log,
            gate,
            trace,
            first_seq,
            busy: Arc::default(),
            current: Mutex::default(),
        }
    }
}

/// One durable log about one workspace.
pub struct Session {
    id: SessionId,
    pub(crate) parts: Arc<Parts>,
    pub(crate) log: Arc<Log>,
    pub(crate) gate: Arc<Mutex<PermissionGate>>,
    trace: TraceId,
    first_seq: u64,
    busy: Arc<AsyncMutex<()>>,
    /// The run that is going. Weak: whoever watches it sees its end when it is over.
    current: Mutex<Weak<RunOutlet>>,
}

/// When a prompt that comes while a run is going is to be taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// By the run that is going, between two of its steps.
    Steer,
    /// By a run of its own, after it.
    FollowUp,
}

impl Session {
    /// The first event that was written since it was opened here.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Looks at the folded state.
    pub fn look<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        self.log.with_history(|history| look(history))
    }

    /// Starts a run. It goes on by itself; read the handle for its events. Asks that are open are abandoned, and a run
    /// that was left open is closed.
    pub fn run(&self, prompt: Message, options: RunOptions) -> Result<RunHandle, EngineError> {
        self.start(prompt, None, options)
    }

    fn start(
        &self,
        prompt: Message,
        queued: Option<u64>,
        options: RunOptions,
    ) -> Result<RunHandle, EngineError> {
        let id = RunId::nth(self.look(|history| history.runs()) + 1);
        let start = driver::Start::Prompt {
            prompt: self.redacted(prompt),
            flags: options.flags.clone(),
            queued,
        };
        self.begin(id, start, options)
    }

    /// Starts a run with the first prompt that waits; none when none does.
    pub fn run_queued(&self, options: RunOptions) -> Result<Option<RunHandle>, EngineError> {
        let Some(waiting) = self.look(|history| history.queue().first().cloned()) else {
            return Ok(None);
        };
        self.start(waiting.prompt, Some(waiting.seq), options)
            .map(Some)
    }

    /// Keeps a prompt for later: durable when this returns. Gives the number of its event.
    pub async fn queue(&self, mut prompt: Message, when: Delivery) -> Result<u64, EngineError> {
        // Whoever made it: what waits is what a person says.
        (prompt.role, prompt.origin) = (Role::User, Origin::Person);
        let waiting = self.look(|history| history.queue().all().len());
        if waiting >= MAX_QUEUED {
            return Err(EngineError::QueueFull(MAX_QUEUED));
        }
        let current = self.current.lock().upgrade();
        // Shown to whoever watches the run, in its place.
        let scope = current.map_or_else(|| self.scope(None), |outlet| outlet.scope.clone());
        let queued = EventKind::Queued {
            prompt,
            steer: when == Delivery::Steer,
        };
        let seq = self.log.emit(&Scope { run: None, ..scope }, queued).await?;
        self.log.sync().await?;
        Ok(seq)
    }

    /// Ends the run that is going, if one is, and drops the prompts that wait.
    pub fn cancel(&self) {
        if let Some(outlet) = self.current.lock().upgrade() {
            outlet.control.halt(Halt::Cancelled);
        }
    }

    fn begin(
        &self,
        id: RunId,
        start: driver::Start,
        options: RunOptions,
    ) -> Result<RunHandle, EngineError> {
        let busy = self.alone()?;
        let parts = &self.parts;
        let (spent, before) = match &start {
            driver::Start::Prompt { .. } => (Spent::default(), Duration::ZERO),
            driver::Start::Answer { ask, .. } => (
                self.look(|history| history.run_spent()),
                Duration::from_millis(ask.run_ms),
            ),
        };
        let books = Books::new(options.budget, parts.clock.clone(), spent, before);
        let scope = Scope {
            run: Some(id.clone()),
            trace: parts.fresh_trace(),
            view: None,
        };
        let mut outlet = RunOutlet::new(self.log.clone(), scope, books, &options);
        let control = outlet.control.clone();
        let (to, events) = mpsc::channel(VIEW_ROOM);
        outlet.scope.view = Some(View {
            to,
            live: options.live,
            gone: control.stop.clone(),
            lost: Arc::default(),
        });
        let outlet = Arc::new(outlet);
        *self.current.lock() = Arc::downgrade(&outlet);
        let run = driver::RunParts {
            parts: parts.clone(),
            outlet,
            gate: self.gate.clone(),
            artifacts: (parts.artifacts)(&self.id),
            session: self.id.clone(),
            run: id.clone(),
            isolation: options.isolation,
            contract: options.contract,
            yes: options.yes,
            attended: options.on_ask == OnAsk::Wait,
            base_findings: Mutex::default(),
        };
        tokio::spawn(driver::Driver::new(busy, run).drive(start));
        Ok(RunHandle {
            id,
            events,
            control,
        })
    }

    /// Logs an event that happened outside of any run: a change of the user's tree or of a kept copy, or a change of the
    /// runtime. Returns the number of the event. Other events are written by runs alone and are refused.
    pub async fn note(&self, kind: EventKind) -> Result<u64, EngineError> {
        if !kind.happens_between_runs() {
            return Err(EngineError::NotBetweenRuns(kind.name().to_owned()));
        }
        self.write_alone(None, kind).await
    }

    /// Logs that a copy had landed when the process of its run died. The event belongs to the run that was left open on
    /// that copy. Returns the number of the event.
    pub async fn log_recovered_landing(
        &self,
        copy: &str,
        landed: Landed,
        tree_hash: Option<String>,
    ) -> Result<u64, EngineError> {
        let run = self.look(|history| {
            let on_copy = |run: &&Run| run.copy.as_deref() == Some(copy);
            history.open_run().filter(on_copy).map(|run| run.id.clone())
        });
        self.write_alone(run, EventKind::Landed { landed, tree_hash })
            .await
    }

    /// Logs a change that a call of an earlier process landed before that process died. Returns the number of the event.
    pub async fn log_recovered(
        &self,
        run: RunId,
        call: CallId,
        change: FileChange,
        swap: Swap,
    ) -> Result<u64, EngineError> {
        let kind = EventKind::FileChanged {
            call: Some(call),
            change,
            swap: Some(swap),
        };
        self.write_alone(Some(run), kind).await
    }

    /// Writes one durable event while no run is going here.
    async fn write_alone(&self, run: Option<RunId>, kind: EventKind) -> Result<u64, EngineError> {
        let _alone = self.alone()?;
        let seq = self.log.emit(&self.scope(run), kind).await?;
        self.log.sync().await?;
        Ok(seq)
    }

    /// The session's place for one run, as long as no run is going.
    fn alone(&self) -> Result<OwnedMutexGuard<()>, EngineError> {
        let busy = self.busy.clone().try_lock_owned();
        busy.map_err(|_| EngineError::Busy)
    }

    fn redacted(&self, mut prompt: Message) -> Message {
        clean_message(self.parts.redactor.as_ref(), &mut prompt);
        prompt
    }

    fn scope(&self, run: Option<RunId>) -> Scope {
        Scope {
            run,
            trace: self.trace.clone(),
            view: None,
        }
    }

    async fn note_model(&self) -> Result<(), EngineError> {
        let now = self.parts.runtime.model().map(str::to_owned);
        let was = self.look(|history| history.model().map(str::to_owned));
        if let (Some(from), Some(to)) = (was, now)
            && from != to
        {
            let lost = self.parts.runtime.loses_from(&from);
            let text = format!(
                "`{to}` goes on where `{from}` was, without: {}",
                lost.join(", ")
            );
            let scope = self.scope(None);
            let switched = EventKind::ModelSwitched { from, to };
            self.log.emit(&scope, switched).await?;
            if !lost.is_empty() {
                let warned = EventKind::warned("abilities_differ", text);
                self.log.emit(&scope, warned).await?;
            }
        }
        Ok(())
    }
}
