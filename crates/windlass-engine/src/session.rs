//! The entry point of the library: an engine opens sessions, and a session runs prompts, one at a time.
//! There is no global state: an engine gets everything it needs from its builder.

mod answer;
mod close;
mod compaction;
mod driver;
mod fork;
mod iterate;
mod judge;
mod land;
mod pause;
mod queue;
mod validators;

pub use self::queue::{Delivery, QueueRequest};

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
use windlass_core::message::Message;
use windlass_core::redact::clean_message;
use windlass_core::run::Run;
use windlass_core::runtime::{Capability, RunMode, Runtime, Unmet};
use windlass_core::store::{OpenLog, OpenedLog, SessionStore, StoreError};
use windlass_core::tool::{Exposure, Tool, ToolSet};
use windlass_core::validator::Validator;
use windlass_core::workspace::{
    Artifacts, FileChange, Landed, NoSecrets, Outside, Redactor, Workspaces,
};

use crate::ledger::RunLedger;
use crate::load_history::load_history;
use crate::log::{EventLog, Scope, ViewSender};
use crate::pending_asks::{NoSuchAsk, OnAsk};
use crate::run::{HaltReason, RunHandle, RunOptions, RunOutlet};
use crate::schema::Schemas;

/// Capacity of the event channel of a run. If it is full, durable events wait for the reader.
const VIEW_CAPACITY: usize = 1_024;

/// Returns the artifact store of a session.
pub type ArtifactsOf = Arc<dyn Fn(&SessionId) -> Arc<dyn Artifacts> + Send + Sync>;

/// The ports and settings that all sessions of an engine share.
pub(crate) struct EngineParts {
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

impl EngineParts {
    fn fresh_trace(&self) -> TraceId {
        TraceId::fresh(self.clock.entropy(), self.clock.entropy())
    }
}

/// Opens sessions and runs tasks in them. Cloning is cheap.
#[derive(Clone)]
pub struct Engine(Arc<EngineParts>);

/// Collects the parts of an engine. `runtime`, `store`, `workspaces`, `artifacts` and `clock` are required.
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
        /// Sets the owner of the agent loop.
        runtime: Arc<dyn Runtime>,
        /// Sets the storage of sessions.
        store: Arc<dyn SessionStore>,
        /// Sets the port that opens the workspace of a run.
        workspaces: Arc<dyn Workspaces>,
        /// Sets the storage of results that are too large for the conversation.
        artifacts: ArtifactsOf,
        /// Sets the source of time and randomness.
        clock: Arc<dyn Clock>,
        /// Sets the redactor of secrets. Without one, nothing is redacted.
        redactor: Arc<dyn Redactor>,
        /// Sets the port for approved reads outside the workspace. Without one, no call can read there.
        outside: Arc<dyn Outside>,
    }

    /// Adds tools. A tool that a deny rule removes is not offered to the model.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Adds a validator. Validators run in the order in which they are added.
    #[must_use]
    pub fn validator(mut self, validator: Arc<dyn Validator>) -> Self {
        self.validators.push(validator);
        self
    }

    /// Sets the permission rules and the approval mode.
    #[must_use]
    pub fn gate(mut self, gate: PermissionGate) -> Self {
        self.gate = gate;
        self
    }

    /// Sets the root of the workspace and the version of the program, for the first event of each log.
    #[must_use]
    pub fn describe(mut self, workspace: impl Into<String>, program: impl Into<String>) -> Self {
        self.workspace = workspace.into();
        self.program = program.into();
        self
    }

    /// Builds the engine; the error names a missing part.
    pub fn build(self) -> Result<Engine, EngineError> {
        let missing = |what: &'static str| EngineError::Incomplete(what);
        let gate = self.gate;
        let offered = |tool: &Arc<dyn Tool>| {
            tool.spec().exposure != Exposure::Disabled && !gate.hides(&tool.spec().name)
        };
        let tools = ToolSet::new(self.tools.into_iter().filter(offered).collect());
        Ok(Engine(Arc::new(EngineParts {
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

/// Selects the session that [`Engine::open`] opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenSession {
    New,
    /// A new session with this id; an error if it exists.
    Create(SessionId),
    Resume(SessionId),
}

/// An error of an engine or a session.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A required part of the builder is missing.
    #[error("the engine has no {0}; pass one to the builder")]
    Incomplete(&'static str),
    /// A limit was reached, and the request has `raise_on_budget_exceeded`.
    #[error("the run reached its limit of {limit}; raise it and resume, or ask for less")]
    BudgetExceeded {
        limit: windlass_core::budget::Limit,
        /// The result of the run until then.
        result: Box<crate::facade::RunResult>,
    },
    /// The runtime cannot do the work.
    #[error(transparent)]
    Unmet(#[from] Unmet),
    /// The engine has function tools, which the runtime does not support.
    #[error("the runtime `{runtime}` does not support additional tools, so it cannot use `{tool}`")]
    Unusable { tool: String, runtime: String },
    /// The log could not be opened or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session belongs to another workspace than the engine.
    #[error("session `{session}` belongs to another workspace: {workspace}")]
    OtherWorkspace {
        session: SessionId,
        /// The root of the session's workspace.
        workspace: String,
    },
    /// The ask is not open.
    #[error(transparent)]
    NoSuchAsk(#[from] NoSuchAsk),
    /// The kind of the answer does not fit the ask.
    #[error("this answer does not fit ask `{ask}`: {why}")]
    Unfitting {
        ask: AskId,
        /// The answers that fit.
        why: String,
    },
    /// A fork was requested at an event that does not exist.
    #[error("session `{session}` has {last} events, so it cannot be forked at event {at}")]
    NoSuchEvent {
        session: SessionId,
        at: u64,
        /// The number of the last event.
        last: u64,
    },
    /// No run of the session is paused, so none can be resumed or closed.
    #[error("no run is paused: {0}")]
    NotPaused(&'static str),
    /// The run is paused, waits for an answer, or was left open by a process that died.
    #[error("the session has a run that did not finish; resume it, answer it or close it first")]
    RunOpen,
    /// The conversation could not be compacted.
    #[error("the conversation could not be compacted: {0}")]
    CompactionFailed(String),
    /// The queue of prompts is full.
    #[error("{0} prompts are queued already; wait until some of them have run, or cancel")]
    QueueFull(usize),
    /// The new order of the queue names a prompt that is not queued, or names one twice.
    #[error(
        "prompt {seq} {why}; read the queue again, and list each prompt that is to remain once"
    )]
    InvalidQueueOrder {
        seq: u64,
        /// The reason why the number is refused.
        why: &'static str,
    },
    /// Only a run may write the event.
    #[error("an event `{0}` can only be written by a run")]
    NotBetweenRuns(String),
    /// A run is in progress. A session has one run at a time.
    #[error("a run is in progress in this session; wait for its end, or cancel it")]
    Busy,
}

impl Engine {
    /// Returns a builder without any parts.
    #[must_use]
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Opens a session for a kind of work. Fails here if the runtime lacks a capability that this work needs.
    pub async fn open(&self, which: OpenSession, mode: RunMode) -> Result<Session, EngineError> {
        self.require(mode)?;
        match which {
            OpenSession::New => self.create(None).await,
            OpenSession::Create(id) => self.create(Some(&id)).await,
            OpenSession::Resume(id) => self.resume(id).await,
        }
    }

    /// Refuses a kind of work that the runtime cannot do, and tools that it does not support.
    fn require(&self, mode: RunMode) -> Result<(), EngineError> {
        let parts = &self.0;
        let (name, can) = (parts.runtime.name(), parts.runtime.capabilities());
        can.require(name, mode.work())?;
        // Other tools exist only for the built-in loop; a foreign runtime does not need them.
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

    async fn create(&self, wanted: Option<&SessionId>) -> Result<Session, EngineError> {
        let parts = &self.0;
        let (id, writer) = match wanted {
            // Another id than the wanted one would be a surprise.
            Some(id) => {
                let opened = parts.store.open_writer(id, OpenLog::New).await?;
                (id.clone(), opened.writer)
            }
            None => self.create_log().await?,
        };
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
        let log = Arc::new(EventLog::new(
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
    pub(crate) parts: Arc<EngineParts>,
    pub(crate) log: Arc<EventLog>,
    pub(crate) gate: Arc<Mutex<PermissionGate>>,
    trace: TraceId,
    first_seq: u64,
    busy: Arc<AsyncMutex<()>>,
    /// The run in progress. Weak, because the event stream ends when the driver drops its reference.
    current: Mutex<Weak<RunOutlet>>,
}

impl Session {
    /// The number of the first event that this process writes.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The id of this session, as in the log.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Gives access to the state that is folded from the log.
    pub fn with_history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        self.log.with_history(|history| read(history))
    }

    /// Starts a run in a task of its own; the handle receives its events. Open asks are abandoned, and a run that was left
    /// open is closed.
    pub fn run(&self, prompt: Message, options: RunOptions) -> Result<RunHandle, EngineError> {
        self.start(prompt, None, options)
    }

    fn start(
        &self,
        prompt: Message,
        queued: Option<u64>,
        options: RunOptions,
    ) -> Result<RunHandle, EngineError> {
        let id = RunId::nth(self.with_history(|history| history.runs()) + 1);
        let start = driver::Start::Prompt {
            prompt: self.redacted(prompt),
            flags: options.flags.clone(),
            queued,
        };
        self.begin(id, start, options)
    }

    /// Cancels the run in progress, if there is one. This also drops the queued prompts.
    pub fn cancel(&self) {
        if let Some(sink) = self.current.lock().upgrade() {
            sink.control.halt(HaltReason::Cancelled);
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
                self.with_history(|history| history.run_spent()),
                Duration::from_millis(ask.run_ms),
            ),
            driver::Start::Resume { run_ms } => (
                self.with_history(|history| history.run_spent()),
                Duration::from_millis(*run_ms),
            ),
        };
        let ledger = RunLedger::new(options.budget, parts.clock.clone(), spent, before);
        let scope = Scope {
            run: Some(id.clone()),
            trace: parts.fresh_trace(),
            view: None,
        };
        let mut sink = RunOutlet::new(self.log.clone(), scope, ledger, &options);
        let control = sink.control.clone();
        let (to, events) = mpsc::channel(VIEW_CAPACITY);
        sink.scope.view = Some(ViewSender {
            to,
            live: options.live,
            stop: control.stop.clone(),
            lost: Arc::default(),
        });
        let sink = Arc::new(sink);
        *self.current.lock() = Arc::downgrade(&sink);
        let run = driver::RunParts {
            parts: parts.clone(),
            sink,
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
        let run = self.with_history(|history| {
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

    /// Clears the conversation: the next run starts without the messages and notes so far, and a foreign agent with a new
    /// session of its own. Totals, undo, queue and landings stay, and the log keeps everything. Fails while a run is in
    /// progress or open. Returns the number of the event.
    pub async fn clear(&self) -> Result<u64, EngineError> {
        let _alone = self.alone()?;
        if self.with_history(|history| history.open_run().is_some()) {
            return Err(EngineError::RunOpen);
        }
        let cleared = EventKind::Cleared {};
        let seq = self.log.emit(&self.scope(None), cleared).await?;
        self.log.sync().await?;
        self.log.save_snapshot().await;
        Ok(seq)
    }

    /// Adds a line to the session's notes, which the model reads and writes with its tool. Fails while a run is in progress.
    /// Returns the number of the event.
    pub async fn add_note(&self, line: &str) -> Result<u64, EngineError> {
        let mut text = self.with_history(|history| history.notes().trim_end().to_owned());
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line.trim());
        self.write_alone(None, EventKind::Noted { text }).await
    }

    /// Writes one durable event while no run is in progress.
    async fn write_alone(&self, run: Option<RunId>, kind: EventKind) -> Result<u64, EngineError> {
        let _alone = self.alone()?;
        let seq = self.log.emit(&self.scope(run), kind).await?;
        self.log.sync().await?;
        Ok(seq)
    }

    /// The changes in the copy of a run that no process drives.
    async fn changes_in_copy(&self, run: &Run) -> Vec<FileChange> {
        match &run.copy {
            Some(copy) => self.parts.workspaces.left_changes(copy).await,
            None => Vec::new(),
        }
    }

    /// Takes the lock that a run holds, or fails if a run is in progress.
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
        let was = self.with_history(|history| history.model().map(str::to_owned));
        if let (Some(from), Some(to)) = (was, now)
            && from != to
        {
            let lost = self.parts.runtime.loses_from(&from);
            let text = format!("`{to}` replaces `{from}` and lacks: {}", lost.join(", "));
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
