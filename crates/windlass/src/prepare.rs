//! Opens a session from settings and flags. All surfaces use this path, so errors in settings, flags and the workspace
//! are found in the same way everywhere, and before the session is opened.
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass::core::message::Message;
//! use windlass::core::terms::Isolation;
//! use windlass::flags::RunFlags;
//! use windlass::machine::Root;
//! use windlass::model::GivenModel;
//! use windlass::settings::Settings;
//! use windlass_testing::{ScriptedProvider, says};
//! use windlass::{
//!     OpenRequest, OpenedSession, PendingTools, Prepared, SessionSelector, find_session, newest, options_for,
//!     prepare, prepare_landing, prepare_with, resume_options,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! let mut settings = Settings::none(data.path());
//! let provider = Arc::new(ScriptedProvider::new([says("hello")]));
//! settings.given_model = Some(GivenModel { provider, model: "scripted".into() });
//!
//! let prepared: Prepared = prepare(Root::open(work.path())?, settings.clone(), &RunFlags::default())?;
//! assert!(!prepared.needs_copy());
//! println!("{:?}", prepared.warnings());
//! let request = OpenRequest {
//!     which: SessionSelector::New,
//!     isolation: Isolation::InPlace,
//!     ..OpenRequest::new(RunFlags::default())
//! };
//! let opened: OpenedSession = prepared.open(request).await?;
//! let prompt = Message::user("greet me");
//! let options = options_for(&opened.options, &prompt);
//! assert_eq!(resume_options(&options, &opened.session).on_ask, options.on_ask);
//! assert_eq!(newest(opened.store.as_ref(), &opened.root).await?, *opened.session.id());
//! let beginning = &opened.session.id().as_str()[..8];
//! let found = find_session(opened.store.as_ref(), Some(&opened.root), beginning).await?;
//! assert_eq!(found, *opened.session.id());
//!
//! // A program with other work before `prepare` lets a thread build the tools meanwhile.
//! let tools = PendingTools::build();
//! let early = prepare_with(tools, Root::open(work.path())?, settings.clone(), &RunFlags::default())?;
//! assert!(!early.needs_copy());
//! let landing = prepare_landing(Root::open(work.path())?, settings);
//! assert!(!landing.needs_copy());
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::event::EventKind;
use windlass_core::flags::SavedFlags;
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::runtime::RunMode;
use windlass_core::store::SessionStore;
use windlass_core::terms::Isolation;
use windlass_core::tool::Tool;
use windlass_core::validator::Validator;
use windlass_core::workspace::{Files, LandTo};
use windlass_engine::{Contract, OnAsk, OpenSession, RunOptions, Session};
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::Root;
use windlass_registry::RuntimeChoice;

use crate::error::{Error, ErrorKind};
use crate::flags::RunFlags;
use crate::profile::Profile;
use crate::runtime_plan::RuntimePlan;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::{contract, program_tools, wire};

/// A workspace with its settings and runtime, ready to open a session.
pub struct Prepared {
    /// The settings, including the flags.
    pub settings: Settings,
    pub root: Arc<Root>,
    plan: Option<RuntimePlan>,
    choice: Option<RuntimeChoice>,
    tools: PendingTools,
}

/// The built-in tools, which another thread builds: making their schemas is the longest part of a start.
#[derive(Debug)]
pub struct PendingTools(Option<JoinHandle<Vec<Arc<dyn Tool>>>>);

impl PendingTools {
    /// Begins to build the tools. A caller that has other work before [`prepare_with`] begins before that work.
    #[expect(
        clippy::disallowed_methods,
        reason = "making schemas while the settings are read shortens a start"
    )]
    #[must_use]
    pub fn build() -> Self {
        Self(Some(std::thread::spawn(windlass_tools::all)))
    }

    fn none() -> Self {
        Self(None)
    }

    fn finish(self) -> Result<Vec<Arc<dyn Tool>>, Error> {
        let Some(thread) = self.0 else {
            return Ok(Vec::new());
        };
        let failed = |_| Error::new(ErrorKind::Failed, "the tools could not be built");
        thread.join().map_err(failed)
    }
}

/// Selects the session to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionSelector {
    New,
    /// A new session with this id.
    Create(SessionId),
    /// The newest session of this workspace.
    Newest,
    Named(SessionId),
}

/// Options for opening a session.
pub struct OpenRequest {
    pub which: SessionSelector,
    pub isolation: Isolation,
    /// The flags of the runs. The log stores them.
    pub flags: RunFlags,
    /// The name of a kept run to resume.
    pub kept: Option<String>,
    /// Only check and land the kept run, without an agent.
    pub only_land: bool,
    /// Whether a person or a callback answers asks during a run.
    pub can_answer: bool,
    /// Tools in addition to the built-in ones and those of the settings.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Validators in addition to those of the settings.
    pub validators: Vec<Arc<dyn Validator>>,
}

impl OpenRequest {
    /// A request for a new session with isolated runs.
    #[must_use]
    pub fn new(flags: RunFlags) -> Self {
        Self {
            which: SessionSelector::New,
            isolation: Isolation::Isolated,
            flags,
            kept: None,
            only_land: false,
            can_answer: false,
            tools: Vec::new(),
            validators: Vec::new(),
        }
    }
}

/// An open session with the options for its runs.
pub struct OpenedSession {
    pub session: Session,
    pub store: Arc<SessionLog>,
    pub root: Arc<Root>,
    pub settings: Settings,
    pub options: RunOptions,
    /// The record of the choice, if `auto` selected the runtime.
    pub choice: Option<RuntimeChoice>,
    /// If the runtime could not do the requested kind of work: the requested mode, the mode that is used, and the
    /// reason.
    pub fell_back: Option<(String, String, String)>,
    /// The name of the foreign agent; `None` for the built-in one.
    pub foreign: Option<String>,
    /// Sends traces and metrics, if the settings enable it.
    pub telemetry: Telemetry,
}

/// Adds the flags to the settings and chooses the runtime.
pub fn prepare(root: Root, settings: Settings, flags: &RunFlags) -> Result<Prepared, Error> {
    prepare_with(PendingTools::build(), root, settings, flags)
}

/// Like [`prepare`], with tools that a thread builds already.
pub fn prepare_with(
    tools: PendingTools,
    root: Root,
    mut settings: Settings,
    flags: &RunFlags,
) -> Result<Prepared, Error> {
    settings.add_flags(&flags.agent, &flags.limits)?;
    let (plan, choice) = RuntimePlan::of(&flags.agent, &settings)?;
    // The settings of the chosen runtime apply in the same way as those of a named one.
    settings.chosen = choice.as_ref().and_then(|choice| choice.chosen.clone());
    Ok(Prepared {
        settings,
        root: Arc::new(root),
        plan: Some(plan),
        choice,
        tools,
    })
}

/// Like [`prepare`], but without a runtime, for landing a kept run.
#[must_use]
pub fn prepare_landing(root: Root, settings: Settings) -> Prepared {
    Prepared {
        settings,
        root: Arc::new(root),
        plan: None,
        choice: None,
        tools: PendingTools::none(),
    }
}

impl Prepared {
    /// Whether runs must be isolated, because of the profile or the agent.
    #[must_use]
    pub fn needs_copy(&self) -> bool {
        let profile = self.settings.profile.as_ref();
        profile.is_some_and(Profile::needs_copy)
            || self.plan.as_ref().is_some_and(RuntimePlan::needs_copy)
    }

    /// Warnings about the settings and the model, for the user.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let plan = self.plan.iter();
        let of_plan = plan.flat_map(|plan| plan.warnings(&self.settings, self.root.root()));
        self.settings
            .warnings
            .iter()
            .cloned()
            .chain(of_plan)
            .collect()
    }

    /// Builds the engine and opens the session.
    pub async fn open(self, request: OpenRequest) -> Result<OpenedSession, Error> {
        let Self {
            mut settings,
            root,
            plan,
            choice,
            tools,
        } = self;
        let contract = &request.flags.contract;
        settings.add_contract_flags(contract)?;
        let mut tools = tools.finish()?;
        tools.extend(request.tools.iter().cloned());
        let tools = program_tools::with_programs(tools, &settings)?;
        let isolated = request.isolation == Isolation::Isolated;
        contract::check_landing_flags(contract, isolated)?;
        check_isolation(&settings, plan.as_ref(), isolated)?;
        let schema = request.flags.agent.json_schema.as_deref();
        let mode = settings
            .profile
            .as_ref()
            .map(|profile| profile.mode)
            .or(choice.as_ref().and_then(RuntimeChoice::mode));
        let works = |plan| wire::RuntimeRequest {
            plan,
            mode: mode.unwrap_or(RuntimePlan::mode(plan)),
            schema,
            cd: request.flags.agent.cd.as_deref(),
            fallback: request.flags.agent.fallback
                || settings.layers.boolean("runtime_fallback") == Some(true),
            accept_ungated: request.flags.agent.accept_ungated,
        };
        let agent = plan.as_ref().map_or(wire::EngineAgent::None, |plan| {
            wire::EngineAgent::Runtime(works(plan))
        });
        let redactor = || wire::redactor(&settings);
        let mut validators = contract::validators(&settings, contract, &root, redactor, isolated)?;
        validators.extend(request.validators.iter().cloned());
        let root_of_run = root.clone();
        let built = wire::engine(&settings, &agent, root_of_run, isolated, tools, validators)?;
        let which = match &request.which {
            SessionSelector::New => OpenSession::New,
            SessionSelector::Create(id) => OpenSession::Create(id.clone()),
            SessionSelector::Named(id) => OpenSession::Resume(id.clone()),
            SessionSelector::Newest => {
                OpenSession::Resume(newest(built.store.as_ref(), &root).await?)
            }
        };
        let session = built.engine.open(which, built.mode).await?;
        let fell_back = match &built.fell_back {
            Some(EventKind::FailedOver { from, to, reason }) => {
                Some((from.clone(), to.clone(), reason.clone()))
            }
            _ => None,
        };
        if let Some(event) = built.fell_back {
            session.note(event).await?;
        }
        if let Some(choice) = &choice {
            session
                .note(EventKind::warned("runtime_chosen", choice.whole()))
                .await?;
        }
        let vendor = plan.as_ref().and_then(RuntimePlan::vendor);
        let telemetry = Telemetry::open(&settings, vendor, &session, built.store.as_ref()).await;
        let options = run_options(&settings, &request, choice.as_ref(), built.mode)?;
        Ok(OpenedSession {
            session,
            store: built.store,
            foreign: plan
                .as_ref()
                .and_then(|plan| plan.foreign().map(str::to_owned)),
            root,
            settings,
            options,
            choice,
            fell_back,
            telemetry,
        })
    }
}

/// Refuses an in-place run if the profile or the agent needs isolation.
fn check_isolation(
    settings: &Settings,
    plan: Option<&RuntimePlan>,
    isolated: bool,
) -> Result<(), Error> {
    if isolated {
        return Ok(());
    }
    if let Some(profile) = settings.profile.as_ref().filter(|one| one.needs_copy()) {
        return Err(Error::usage(format!(
            "runs of the profile `{}` must be isolated",
            profile.name
        ))
        .hint("omit `--in-place` or the profile"));
    }
    if plan.is_some_and(RuntimePlan::needs_copy) {
        return Err(
            Error::usage("a foreign agent cannot work in place").hint(
                "omit `--in-place`: the agent works on a copy, and its changes land when the checks pass",
            ),
        );
    }
    Ok(())
}

/// The options for the runs of a session.
fn run_options(
    settings: &Settings,
    request: &OpenRequest,
    choice: Option<&RuntimeChoice>,
    mode: RunMode,
) -> Result<RunOptions, Error> {
    let mut budget = settings.budget()?;
    if request.only_land {
        budget.iterations = Some(1);
    }
    let mut terms = contract::terms(settings, &request.flags.contract)?;
    let read_only = mode == RunMode::Analysis
        || settings
            .profile
            .as_ref()
            .is_some_and(|one| one.lands_nothing);
    if request.isolation == Isolation::Isolated && read_only && !request.only_land {
        terms.write_paths = Some(Vec::new());
        terms.require_changes = false;
    }
    Ok(RunOptions {
        isolation: request.isolation,
        contract: Contract {
            kept: request.kept.clone(),
            ordered: request.only_land,
            ..terms
        },
        budget,
        on_ask: on_ask(settings, request.can_answer),
        ask_expiry: ask_expiry(settings)?,
        yes: request.flags.agent.yes,
        flags: saved_flags(request, choice),
        ..RunOptions::default()
    })
}

fn saved_flags(request: &OpenRequest, choice: Option<&RuntimeChoice>) -> SavedFlags {
    if request.only_land {
        return SavedFlags::default();
    }
    let given = &request.flags;
    let mut flags = RunFlags::new(&given.agent, &given.limits, &given.contract);
    // Resuming must use the same runtime, so the log stores the choice in place of `auto`.
    if let Some(chosen) = choice.and_then(|choice| choice.chosen.clone()) {
        flags.agent.runtime = Some(chosen);
    }
    flags.save()
}

/// The time until a pending ask expires; `None` if it never expires.
fn ask_expiry(settings: &Settings) -> Result<Option<Duration>, Error> {
    match settings.layers.number("ask_expiry_hours") {
        None => Ok(None),
        Some(hours) if (0.001..=87_600.0).contains(&hours) => {
            Ok(Some(Duration::from_secs_f64(hours * 3_600.0)))
        }
        Some(_) => Err(Error::usage(
            "`ask_expiry_hours` must be a number of hours, up to ten years",
        )),
    }
}

/// The handling of asks. If a person can answer, the run waits. Otherwise the flag or the setting decides; without them,
/// the run denies in CI and pauses elsewhere.
fn on_ask(settings: &Settings, can_answer: bool) -> OnAsk {
    let in_ci = || {
        let value = settings.environment.get("CI");
        value.is_some_and(|value| !value.is_empty() && value != "false")
    };
    match settings.layers.text("on_ask") {
        _ if can_answer => OnAsk::Wait,
        Some("deny") => OnAsk::Deny,
        Some("pause") => OnAsk::Pause,
        _ if in_ci() => OnAsk::Deny,
        _ => OnAsk::Pause,
    }
}

/// The options of a run with this prompt. If a commit was requested without a message, the prompt is the message.
#[must_use]
pub fn options_for(options: &RunOptions, prompt: &Message) -> RunOptions {
    let mut options = options.clone();
    if let LandTo::Commit(message) = &mut options.contract.to
        && message.is_empty()
    {
        message.push_str(prompt.text().trim());
    }
    options
}

/// The options for resuming the open run of a session.
#[must_use]
pub fn resume_options(options: &RunOptions, session: &Session) -> RunOptions {
    match session.with_history(|history| history.open_run().cloned()) {
        Some(open) => options_for(options, &open.prompt),
        None => options.clone(),
    }
}

/// The id of the newest session of a workspace.
pub async fn newest(store: &dyn SessionStore, root: &Root) -> Result<SessionId, Error> {
    let here = root.root().display().to_string();
    let mut heads = store.list();
    while let Some(head) = heads.next().await {
        // A damaged session is skipped here; opening it by its id reports the damage.
        if let Ok(head) = head
            && head.workspace == here
        {
            return Ok(head.id);
        }
    }
    Err(Error::usage("this workspace has no sessions yet")
        .hint("start one with `windlass run` or `windlass chat`"))
}

/// Finds a session by `last` (the newest one, of the workspace if it is given), by its id, or by a unique prefix of its
/// id.
pub async fn find_session(
    store: &SessionLog,
    root: Option<&Root>,
    text: &str,
) -> Result<SessionId, Error> {
    match (text, root) {
        ("last", Some(root)) => return newest(store, root).await,
        ("last", None) => {
            let mut heads = store
                .list()
                .filter_map(|head| std::future::ready(head.ok()));
            let newest = heads.next().await.map(|head| head.id);
            return newest.ok_or_else(|| Error::usage("there are no sessions yet"));
        }
        _ => {}
    }
    let id: SessionId = text.parse().map_err(|err: windlass_core::id::IdError| {
        Error::usage(err.to_string()).hint("`windlass sessions list` lists the sessions")
    })?;
    let found = store.ids_starting_with(text)?;
    match &found[..] {
        _ if found.contains(&id) => Ok(id),
        [one] => Ok(one.clone()),
        [] => Ok(id),
        [first, second, ..] => Err(Error::usage(format!(
            "{} sessions begin with `{text}`, for example {first} and {second}",
            found.len()
        ))
        .hint("type more characters of the id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_without_a_message_uses_the_prompt() {
        let check = |given: &str, expect: &str| {
            let mut options = RunOptions::default();
            options.contract.to = LandTo::Commit(given.to_owned());
            let options = options_for(&options, &Message::user(" fix it \n"));
            assert_eq!(options.contract.to, LandTo::Commit(expect.to_owned()));
        };
        check("", "fix it");
        check("own words", "own words");
    }
}
