//! [`Windlass`], [`Session`] and [`Run`]: the interface for programs that embed Windlass.

use std::path::Path;
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::ask::{About, Answer, Ask};
use windlass_core::event::{Event, EventKind};
use windlass_core::gate::Mode;
use windlass_core::id::{AskId, RunId, SessionId};
use windlass_core::message::Message;
use windlass_core::provider::Provider;
use windlass_core::runtime::RunMode;
use windlass_core::terms::Isolation;
use windlass_core::tool::Tool;
use windlass_core::validator::Validator;
use windlass_core::workspace::{Changes, FileChange, Files};
use windlass_engine::{
    Canceller, Delivery, NoSuchAsk, ResultFold, RunHandle, RunOptions, RunResult,
};
use windlass_host::config::SettingsLayer;
use windlass_host::workspace::Root;

use crate::environment::Environment;
use crate::error::Error;
use crate::flags::{Cap, RunFlags};
use crate::model::{self, GivenModel};
use crate::notices::Notices;
use crate::prepare::{
    OpenRequest, OpenedSession, SessionSelector, options_for, prepare, prepare_landing,
    resume_options,
};
use crate::recovery::recover;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::undo::{UndoOptions, UndoRequest, UndoTarget, plan_undo};
use crate::{kept, wire};

/// The callback of [`Windlass::on_ask`].
type AskCallback = Arc<dyn Fn(Ask) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A workspace with the options for runs in it. Methods that take `self` set an option. Methods that take `&self` act
/// on the workspace and can be called any number of times.
///
/// A run with a check and a spending limit:
///
/// ```
/// # use windlass_scripted::{Move, Script, Server};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (dir, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// # std::fs::write(dir.path().join("sum.sh"), "echo $(($1 - $2))\n")?;
/// # let edit = Move::Edit { path: "sum.sh".into(), old: "$1 - $2".into(), new: "$1 + $2".into() };
/// # let moves = vec![edit, Move::Say("It adds now.".into())];
/// # let server = Server::start(Script::new(dir.path(), moves))?;
/// # let environment = windlass::Environment::empty()
/// #     .with("HOME", home.path())
/// #     .with("PATH", "/usr/bin:/bin")
/// #     .with("ANTHROPIC_API_KEY", "not-a-key");
/// let result = windlass::Windlass::open_with(dir.path(), environment)?
///     .model("anthropic/claude-sonnet-5-5")
///     .base_url(&server.url)
///     .validate("test $(sh sum.sh 2 3) = 5")
///     .budget_usd(2.0)
///     .run("make the failing test pass")
///     .await?;
/// assert_eq!(result.files().len(), 1, "{:?}", result.outcome());
/// # Ok(())
/// # }
/// ```
///
/// A run with a provider of the caller's own, limits, and a callback that answers asks:
///
/// ```
/// use std::sync::Arc;
///
/// use windlass::core::ask::Answer;
/// use windlass::core::gate::Mode;
/// use windlass_testing::{ScriptedProvider, says};
/// use windlass::{Notices, Windlass};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let model = Arc::new(ScriptedProvider::new([says("hello")]));
/// let windlass = Windlass::without_settings(work.path(), data.path())?
///     .provider(model, "scripted")
///     .in_place()
///     .approval(Mode::Ask)
///     .max_steps(10)
///     .max_tokens(100_000)
///     .max_seconds(60)
///     .max_iterations(2)
///     .notices(Notices::default())
///     .on_ask(|_ask| async { Answer::No { note: None } });
/// let result = windlass.run("greet me").await?;
/// assert_eq!(result.text, "hello");
/// assert_eq!(windlass.workspace(), work.path());
/// assert!(windlass.kept_runs().is_empty() && windlass.settings().warnings.is_empty());
/// let copy = windlass.fork(&result.session, None).await?;
/// assert_ne!(copy, result.session);
/// # Ok(())
/// # }
/// ```
///
/// Streaming, undo and redo, asks that are answered later, and kept runs:
///
/// ```
/// use std::sync::Arc;
///
/// use serde_json::json;
/// use windlass::Windlass;
/// use windlass::core::ask::Answer;
/// use windlass::core::gate::Mode;
/// use windlass::undo::UndoTarget;
/// use windlass_testing::{ScriptedProvider, call, says};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let write = || call("1", "write_file", &json!({ "path": "a.txt", "content": "good\n" }));
/// let windlass = || {
///     let model = ScriptedProvider::new([write(), says("It is good now.")]);
///     let windlass = Windlass::without_settings(work.path(), data.path())?;
///     Ok::<_, windlass::Error>(windlass.provider(Arc::new(model), "scripted").require_changes())
/// };
/// let mut run = windlass()?.stream("make it good").await?;
/// let mut names = Vec::new();
/// while let Some(event) = run.next().await {
///     names.push(event.kind.name().to_owned());
/// }
/// assert_eq!(run.result().await?.files().len(), 1);
/// assert!(names.contains(&"landed".to_owned()));
/// assert_eq!(windlass()?.undo(UndoTarget::LastRun).await?.len(), 1);
/// windlass()?.redo().await?;
/// windlass()?.undo(UndoTarget::LastRun).await?;
///
/// // There is no callback, so the run pauses at its ask.
/// let asking = windlass()?.in_place().approval(Mode::Ask);
/// asking.run("make it good").await?;
/// let session = asking.resume_newest().await?;
/// let (id, asks) = (session.id().clone(), session.pending());
/// drop(session);
/// let result = asking.answer(&id, &asks[0].id, Answer::Once).await?;
/// assert_eq!(result.files().len(), 1);
/// assert!(asking.resume(&id).await?.pending().is_empty());
/// std::fs::remove_file(work.path().join("a.txt"))?;
///
/// // A run that fails its check is kept.
/// let strict = || Ok::<_, windlass::Error>(windlass()?.validate("grep -q better a.txt").max_iterations(1));
/// strict()?.run("make it good").await?;
/// strict()?.run("make it good").await?;
/// let [first, second] = <[String; 2]>::try_from(strict()?.kept_runs()).unwrap();
/// assert_eq!(strict()?.kept_changes(&first).await?.files.len(), 1);
/// strict()?.discard(&first).await?;
/// windlass()?.land(&second).await?;
/// assert!(work.path().join("a.txt").exists());
/// # Ok(())
/// # }
/// ```
///
/// The other options:
///
/// ```
/// use std::sync::Arc;
///
/// use windlass::Windlass;
/// use windlass::core::BoxFuture;
/// use windlass::core::tool::{Effect, ToolOutput};
/// use windlass::core::validator::{CheckCtx, Report, Validator, ValidatorError};
/// use windlass::flags::RunFlags;
/// use windlass_testing::FnTool;
///
/// struct Agreeable;
///
/// impl Validator for Agreeable {
///     fn name(&self) -> &str {
///         "agreeable"
///     }
///
///     fn check<'a>(&'a self, _: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
///         Box::pin(async { Ok(Report::pass()) })
///     }
/// }
///
/// let dir = tempfile::tempdir()?;
/// let tool = FnTool::new("ping", Effect::Read, |_, _| Box::pin(async { Ok(ToolOutput::text("pong")) }));
/// let windlass = Windlass::open(dir.path())?
///     .flags(RunFlags::default())
///     .runtime("codex")
///     .profile("implement")
///     .tool(tool.boxed())
///     .validator(Arc::new(Agreeable))
///     .commit("")
///     .json_schema(&serde_json::json!({ "type": "object" }))
///     .sandbox_helper("/usr/bin/windlass");
/// assert_eq!(windlass.workspace(), dir.path());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Windlass {
    root: std::path::PathBuf,
    settings: Settings,
    flags: RunFlags,
    isolation: Isolation,
    tools: Vec<Arc<dyn Tool>>,
    validators: Vec<Arc<dyn Validator>>,
    answering: Option<AskCallback>,
}

impl Windlass {
    /// Opens the workspace that contains `dir`, with the settings, keys and trust that the command line uses there.
    /// Settings of an untrusted project may only restrict a run further.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(dir, Environment::of_process())
    }

    /// Like [`Windlass::open`], with an environment that the caller passes.
    pub fn open_with(dir: impl AsRef<Path>, environment: Environment) -> Result<Self, Error> {
        let root = model::open_workspace(Some(dir.as_ref()), &environment)?;
        let settings = Settings::load(Some(root.root()), environment)?;
        Ok(Self::new(&root, settings))
    }

    /// Opens the workspace that contains `dir` without reading settings, environment variables or keys. Sessions and
    /// kept runs are stored in `data_dir`.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let data = tempfile::tempdir()?;
    /// let windlass = windlass::Windlass::without_settings(dir.path(), data.path())?;
    /// assert!(windlass.settings().layers.text("model").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_settings(
        dir: impl AsRef<Path>,
        data_dir: impl AsRef<Path>,
    ) -> Result<Self, Error> {
        let root = model::open_workspace(Some(dir.as_ref()), &Environment::empty())?;
        Ok(Self::new(&root, Settings::none(data_dir.as_ref())))
    }

    fn new(root: &Root, settings: Settings) -> Self {
        Self {
            root: root.root().to_owned(),
            settings,
            flags: RunFlags::default(),
            isolation: Isolation::Isolated,
            tools: Vec::new(),
            validators: Vec::new(),
            answering: None,
        }
    }

    /// The settings as they were read, without the options that were set on this value.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The root directory of the workspace.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.root
    }

    /// Sets the model, as `model` or `vendor/model`.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.flags.agent.model = Some(model.into());
        self
    }

    /// Uses a provider of the caller's own, and requests this model from it.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>, model: impl Into<String>) -> Self {
        self.settings.given_model = Some(GivenModel {
            provider,
            model: model.into(),
        });
        self
    }

    /// Sets the address of the model server, in place of the vendor's own.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.flags.agent.base_url = Some(url.into());
        self
    }

    /// Sets the runtime: a name that `windlass runtimes` lists, `acp:COMMAND`, or `auto`. The default is the built-in
    /// agent.
    #[must_use]
    pub fn runtime(mut self, name: impl Into<String>) -> Self {
        self.flags.agent.runtime = Some(name.into());
        self
    }

    /// Sets the profile: `plan`, `review`, `implement`, `verify`, or a profile from the settings.
    #[must_use]
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.flags.agent.profile = Some(name.into());
        self
    }

    /// Adds a check: a command that must succeed before changes land, the name of a validator, or `none`. May be called
    /// more than once. The default is the checks that are detected in the project.
    #[must_use]
    pub fn validate(mut self, check: impl Into<String>) -> Self {
        self.flags.contract.validate.push(check.into());
        self
    }

    /// Adds a validator of the caller's own.
    #[must_use]
    pub fn validator(mut self, validator: Arc<dyn Validator>) -> Self {
        self.validators.push(validator);
        self
    }

    /// Adds a tool of the caller's own.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Limits the cost of a run, in US dollars. The default is 10.
    #[must_use]
    pub fn budget_usd(mut self, usd: f64) -> Self {
        self.flags.limits.max_budget_usd = Some(Cap::At(usd));
        self
    }

    /// Limits the model calls of a run. The default is 50.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.flags.limits.max_steps = Some(Cap::At(steps.into()));
        self
    }

    /// Limits the tokens of a run. The default is 500,000, and 2,000,000 if the model server caches nothing.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.flags.limits.max_tokens = Some(Cap::At(tokens));
        self
    }

    /// Limits the duration of a run, without the time in which it waits for a person. The default is one hour.
    #[must_use]
    pub fn max_seconds(mut self, seconds: u64) -> Self {
        self.flags.limits.max_seconds = Some(Cap::At(seconds as f64));
        self
    }

    /// Limits the iterations until the checks pass. The default is 5.
    #[must_use]
    pub fn max_iterations(mut self, iterations: u32) -> Self {
        self.flags.contract.max_iterations = Some(Cap::At(iterations.into()));
        self
    }

    /// Sets the approval mode: which calls need the approval of a person.
    #[must_use]
    pub fn approval(mut self, mode: Mode) -> Self {
        self.flags.agent.approval = Some(mode);
        self
    }

    /// Lets runs change the files of the workspace directly. By default, a run works on a copy, and its changes land
    /// when the checks pass.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.isolation = Isolation::InPlace;
        self
    }

    /// Makes a run fail if it changes no file. By default, a run may complete with an answer only.
    #[must_use]
    pub fn require_changes(mut self) -> Self {
        self.flags.contract.require_changes = true;
        self
    }

    /// Commits the changes that land. If the message is empty, the prompt is the message.
    #[must_use]
    pub fn commit(mut self, message: impl Into<String>) -> Self {
        self.flags.contract.commit = Some(message.into());
        self
    }

    /// Requires an answer in JSON that matches this schema.
    #[must_use]
    pub fn json_schema(mut self, schema: &serde_json::Value) -> Self {
        self.flags.agent.json_schema = Some(schema.to_string());
        self
    }

    /// Sets all flags of the command line at once. They replace the options that were set before.
    #[must_use]
    pub fn flags(mut self, flags: RunFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Sets any setting by its name in the configuration file. It overrides all settings files and variables except the
    /// administrator's.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let windlass = windlass::Windlass::without_settings(dir.path(), dir.path().join(".data"))?
    ///     .setting("sandbox.net", "loopback")?;
    /// assert!(windlass.setting("sandbox.nte", "off").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn setting(mut self, key: &str, value: &str) -> Result<Self, Error> {
        self.settings
            .layers
            .add(SettingsLayer::Flag, key, value, "the program")?;
        Ok(self)
    }

    /// Sets the callback that answers asks during a run: approvals of calls, questions of the model, and landings that
    /// need consent. The engine treats the answers as those of a person. Without a callback, a run pauses at the first
    /// ask; [`Windlass::answer`] resumes it.
    #[must_use]
    pub fn on_ask<F, A>(mut self, answer: F) -> Self
    where
        F: Fn(Ask) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        self.answering = Some(Arc::new(move |ask| Box::pin(answer(ask))));
        self
    }

    /// Sets the receiver of warnings that belong to no session.
    #[must_use]
    pub fn notices(mut self, notices: Notices) -> Self {
        self.settings.notices = notices;
        self
    }

    /// Sets the program that acts as the sandbox helper. The default is the current executable.
    #[must_use]
    pub fn sandbox_helper(mut self, program: impl Into<std::path::PathBuf>) -> Self {
        self.settings.environment = self.settings.environment.with_helper(program);
        self
    }

    /// Runs a prompt in a new session, until the run ends or pauses at an ask that no callback answers.
    pub async fn run(&self, prompt: impl Into<String>) -> Result<RunResult, Error> {
        self.stream(prompt).await?.result().await
    }

    /// Starts a run in a new session. The returned [`Run`] yields events as they happen. The session ends with the run.
    pub async fn stream(&self, prompt: impl Into<String>) -> Result<Run, Error> {
        self.session().await?.stream(prompt)
    }

    /// Opens a new session, for several prompts in one conversation.
    pub async fn session(&self) -> Result<Session, Error> {
        self.open_session(SessionSelector::New).await
    }

    /// Opens an existing session.
    pub async fn resume(&self, session: &SessionId) -> Result<Session, Error> {
        self.open_session(SessionSelector::Named(session.clone()))
            .await
    }

    /// Opens the newest session of this workspace.
    pub async fn resume_newest(&self) -> Result<Session, Error> {
        self.open_session(SessionSelector::Newest).await
    }

    /// Answers the ask at which a run paused, and resumes the run until its end or its next ask.
    pub async fn answer(
        &self,
        session: &SessionId,
        ask: &AskId,
        answer: Answer,
    ) -> Result<RunResult, Error> {
        let session = self.resume(session).await?;
        session.answer(ask, answer)?.result().await
    }

    /// Forks a session: the new session has the events of the old one up to number `at`, or all of them.
    pub async fn fork(&self, session: &SessionId, at: Option<u64>) -> Result<SessionId, Error> {
        let engine = wire::session_engine(&self.settings)?;
        let forked = engine.fork(session, at, RunMode::Analysis).await?;
        Ok(forked.id().clone())
    }

    /// Undoes changes to the workspace: those of the last run, of a run, of a call, or everything since an event. Later
    /// edits of the user are merged. If a file cannot be undone, no file is changed.
    pub async fn undo(&self, wanted: UndoTarget) -> Result<Vec<FileChange>, Error> {
        self.apply_undo(&UndoRequest::Undo(wanted)).await
    }

    /// Redoes the change that was undone last.
    pub async fn redo(&self) -> Result<Vec<FileChange>, Error> {
        self.apply_undo(&UndoRequest::Redo).await
    }

    async fn apply_undo(&self, request: &UndoRequest) -> Result<Vec<FileChange>, Error> {
        self.recover().await;
        let root = Arc::new(self.open_root()?);
        let planned = plan_undo(&self.settings, &root, None, request).await?;
        let files = planned.files.clone();
        planned
            .apply(&self.settings, &root, &UndoOptions::default())
            .await?;
        Ok(files)
    }

    /// The names of the kept runs of this workspace, the newest first.
    #[must_use]
    pub fn kept_runs(&self) -> Vec<String> {
        let all = kept::shelf(&self.settings.places).list().into_iter();
        let own = all.filter(|(card, busy)| !busy && card.was_made() && card.root == self.root);
        own.map(|(card, _)| card.name).collect()
    }

    /// The changes of a kept run that would land.
    pub async fn kept_changes(&self, name: &str) -> Result<Changes, Error> {
        let root = Arc::new(self.open_root()?);
        let card = kept::find(&self.settings.places, &root, Some(name))?;
        kept::changes_of(&self.settings, &root, &card).await
    }

    /// Checks a kept run again and lands its changes.
    pub async fn land(&self, name: &str) -> Result<RunResult, Error> {
        self.recover().await;
        let root = self.open_root()?;
        let card = kept::find(&self.settings.places, &root, Some(name))?;
        let opened = prepare_landing(root, self.settings.clone())
            .open(OpenRequest {
                which: SessionSelector::Named(kept::session_of(&card)?),
                kept: Some(card.name.clone()),
                only_land: true,
                can_answer: self.answering.is_some(),
                validators: self.validators.clone(),
                ..OpenRequest::new(self.flags.clone())
            })
            .await?;
        let session = Session {
            shared: Arc::new(SharedSession::new(opened)),
            answering: self.answering.clone(),
        };
        session
            .run(format!("Land the kept run {}.", card.name))
            .await
    }

    /// Deletes a kept run and its copy.
    pub async fn discard(&self, name: &str) -> Result<(), Error> {
        kept::discard(&self.settings, name).await
    }

    /// Finishes or rolls back the landings of processes that died.
    async fn recover(&self) {
        let unlogged = recover(&self.settings.places, &self.settings.notices);
        unlogged.log(&self.settings).await;
    }

    fn open_root(&self) -> Result<Root, Error> {
        Root::open(&self.root).map_err(|err| Error::usage(err.to_string()))
    }

    async fn open_session(&self, which: SessionSelector) -> Result<Session, Error> {
        self.recover().await;
        let root = self.open_root()?;
        let prepared = prepare(root, self.settings.clone(), &self.flags)?;
        for warning in prepared.warnings() {
            self.settings.notices.warn(&warning);
        }
        let isolated = self.isolation == Isolation::Isolated || prepared.needs_copy();
        let opened = prepared
            .open(OpenRequest {
                which,
                isolation: Isolation::from_flag(isolated),
                can_answer: self.answering.is_some(),
                tools: self.tools.clone(),
                validators: self.validators.clone(),
                ..OpenRequest::new(self.flags.clone())
            })
            .await?;
        Ok(Session {
            shared: Arc::new(SharedSession::new(opened)),
            answering: self.answering.clone(),
        })
    }
}

/// An open session: one conversation with any number of prompts. Only one process can have a session open.
///
/// ```
/// use std::sync::Arc;
///
/// use windlass::core::ask::Answer;
/// use windlass_testing::{ScriptedProvider, says};
/// use windlass::{Run, Session, Windlass};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let model = Arc::new(ScriptedProvider::new([says("hello"), says("and again"), says("still")]));
/// let windlass = Windlass::without_settings(work.path(), data.path())?
///     .provider(model, "scripted")
///     .in_place();
/// let session: Session = windlass.session().await?;
/// assert_eq!(session.run("greet me").await?.text, "hello");
/// assert!(session.pending().is_empty());
/// assert!(session.answer(&"r1-a1".parse()?, Answer::Once).is_err(), "nothing was asked");
///
/// let mut run: Run = session.stream("and again")?;
/// assert_eq!(run.session(), session.id());
/// println!("{} in {}", run.id(), session.id());
/// let canceller = run.canceller();
/// assert!(run.answer(&"r2-a1".parse()?, Answer::Once).is_err());
/// session.steer("be brief").await?;
/// while let Some(event) = run.next().await {
///     println!("{}", event.kind.name());
/// }
/// let run = session.stream("once more")?;
/// run.cancel();
/// session.cancel();
/// canceller.cancel();
/// println!("{:?}", run.result().await?.outcome());
/// # Ok(())
/// # }
/// ```
pub struct Session {
    shared: Arc<SharedSession>,
    answering: Option<AskCallback>,
}

/// State that a session shares with its runs.
struct SharedSession {
    session: windlass_engine::Session,
    options: RunOptions,
    settings: Settings,
    root: std::path::PathBuf,
    telemetry: tokio::sync::Mutex<Telemetry>,
}

impl SharedSession {
    fn new(opened: OpenedSession) -> Self {
        Self {
            root: opened.root.root().to_owned(),
            session: opened.session,
            options: opened.options,
            settings: opened.settings,
            telemetry: tokio::sync::Mutex::new(opened.telemetry),
        }
    }
}

impl Session {
    /// The id of the session, with which [`Windlass::resume`] opens it again.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        self.shared.session.id()
    }

    /// The asks that wait for an answer.
    #[must_use]
    pub fn pending(&self) -> Vec<Ask> {
        self.shared.session.pending()
    }

    /// Runs a prompt, until the run ends or pauses at an ask that no callback answers.
    pub async fn run(&self, prompt: impl Into<String>) -> Result<RunResult, Error> {
        self.stream(prompt)?.result().await
    }

    /// Starts a run. The returned [`Run`] yields events as they happen.
    pub fn stream(&self, prompt: impl Into<String>) -> Result<Run, Error> {
        let prompt = Message::user(prompt);
        let options = options_for(&self.shared.options, &prompt);
        let handle = self.shared.session.run(prompt, options)?;
        Ok(self.followed(handle))
    }

    /// Answers the ask at which a run paused, and resumes the run.
    pub fn answer(&self, ask: &AskId, answer: Answer) -> Result<Run, Error> {
        let options = resume_options(&self.shared.options, &self.shared.session);
        let handle = self.shared.session.answer(ask, answer, options)?;
        Ok(self.followed(handle))
    }

    /// Queues a message that the current run receives between two steps. The message is durable when this returns.
    pub async fn steer(&self, text: impl Into<String>) -> Result<(), Error> {
        let message = Message::user(text);
        self.shared.session.queue(message, Delivery::Steer).await?;
        Ok(())
    }

    /// Cancels the current run, if there is one.
    pub fn cancel(&self) {
        self.shared.session.cancel();
    }

    fn followed(&self, handle: RunHandle) -> Run {
        let fold = ResultFold::new(self.id().clone(), handle.id().clone());
        Run {
            handle,
            fold,
            shared: self.shared.clone(),
            answering: self.answering.clone(),
            asking: None,
        }
    }
}

/// A run in progress. Dropping it cancels the run.
pub struct Run {
    handle: RunHandle,
    fold: ResultFold,
    shared: Arc<SharedSession>,
    answering: Option<AskCallback>,
    /// The ask that is being answered.
    asking: Option<(Ask, BoxFuture<'static, Answer>)>,
}

impl Run {
    /// The id of the run, which is unique within its session.
    #[must_use]
    pub fn id(&self) -> &RunId {
        self.handle.id()
    }

    /// The id of the session to which the run belongs.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        self.shared.session.id()
    }

    /// Waits for the next event; `None` after the last one. The callback of [`Windlass::on_ask`] answers asks while this
    /// method waits, so a caller must poll it for the run to proceed.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match &mut self.asking {
                None => self.handle.next().await,
                Some((ask, answering)) => {
                    tokio::select! {
                        event = self.handle.next() => event,
                        answer = answering => {
                            self.shared.settle(&self.handle, ask, answer);
                            self.asking = None;
                            continue;
                        }
                    }
                }
            };
            if let Some(event) = &event {
                self.shared.telemetry.lock().await.event(event);
                self.fold.apply(event);
                if let EventKind::Asked { ask } = &event.kind
                    && let Some(answering) = &self.answering
                {
                    self.asking = Some((ask.clone(), answering(ask.clone())));
                }
            } else {
                self.shared.telemetry.lock().await.flush().await;
            }
            return event;
        }
    }

    /// Answers a pending ask of this run.
    pub fn answer(&self, ask: &AskId, answer: Answer) -> Result<(), NoSuchAsk> {
        self.handle.answer(ask, answer)
    }

    /// Cancels the run. [`Run::next`] still yields the events until the end of the run.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// A handle that cancels the run from another task, for example from a signal handler or a timer.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.handle.canceller()
    }

    /// Reads the remaining events and returns the result of the run.
    pub async fn result(mut self) -> Result<RunResult, Error> {
        while self.next().await.is_some() {}
        Ok(self.fold.finish())
    }
}

impl SharedSession {
    /// Passes the answer of the callback to the run. [`Answer::Always`] also stores the rule for this workspace.
    fn settle(&self, handle: &RunHandle, ask: &Ask, answer: Answer) {
        if let About::Approval(approval) = &ask.about
            && let Some(rule) = approval.added_rule(&answer)
            && let Err(error) = Settings::remember_rule(&self.settings.places, &self.root, rule)
        {
            self.settings
                .notices
                .warn(&format!("the rule applies to this session only: {error}"));
        }
        // An ask that expired meanwhile needs no answer.
        let _ = handle.answer(&ask.id, answer);
    }
}
