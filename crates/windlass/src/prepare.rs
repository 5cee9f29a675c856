//! From settings and flags to an open session: the one path that every surface takes. Whatever can be wrong is found
//! before the session is opened.
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
//!     OpenRequest, Opened, Prepared, Which, find_session, newest, options_for, prepare,
//!     prepare_landing, resume_options,
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
//!     which: Which::New,
//!     isolation: Isolation::InPlace,
//!     ..OpenRequest::new(RunFlags::default())
//! };
//! let opened: Opened = prepared.open(request).await?;
//! let prompt = Message::user("greet me");
//! let options = options_for(&opened.options, &prompt);
//! assert_eq!(resume_options(&options, &opened.session).on_ask, options.on_ask);
//! assert_eq!(newest(opened.store.as_ref(), &opened.root).await?, *opened.session.id());
//! let beginning = &opened.session.id().as_str()[..8];
//! let found = find_session(opened.store.as_ref(), Some(&opened.root), beginning).await?;
//! assert_eq!(found, *opened.session.id());
//!
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
use windlass_registry::Choice;

use crate::error::{Error, ErrorKind};
use crate::flags::RunFlags;
use crate::profile::Profile;
use crate::runtime_plan::RuntimePlan;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::{contract, program_tools, wire};

/// A workspace, its settings and the runtime that works, before a session is opened.
pub struct Prepared {
    /// The settings, with the flags on top.
    pub settings: Settings,
    /// The workspace.
    pub root: Arc<Root>,
    plan: Option<RuntimePlan>,
    choice: Option<Choice>,
    /// Built while the rest is prepared: their schemas are the longest part of a start.
    tools: JoinHandle<Vec<Arc<dyn Tool>>>,
}

/// Which session to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// A new one.
    New,
    /// The newest session of this workspace.
    Newest,
    /// This one.
    Named(SessionId),
}

/// How to open a session.
pub struct OpenRequest {
    /// Which session.
    pub which: Which,
    /// On the tree, or on a copy.
    pub isolation: Isolation,
    /// The flags of its runs, also for the log.
    pub flags: RunFlags,
    /// Resume this kept run.
    pub kept: Option<String>,
    /// No agent works: the kept run is checked, and lands.
    pub only_land: bool,
    /// A person is there to answer asks while a run is going.
    pub can_answer: bool,
    /// Tools beside the built-in ones and those of the settings.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Validators beside those of the settings.
    pub validators: Vec<Arc<dyn Validator>>,
}

impl OpenRequest {
    /// A new session that works on a copy.
    #[must_use]
    pub fn new(flags: RunFlags) -> Self {
        Self {
            which: Which::New,
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

/// An open session, and how its runs are to be done.
pub struct Opened {
    /// The session.
    pub session: Session,
    /// The store it is logged in.
    pub store: Arc<SessionLog>,
    /// The workspace.
    pub root: Arc<Root>,
    /// The settings it was opened with.
    pub settings: Settings,
    /// How a run of it is to be done.
    pub options: RunOptions,
    /// How the runtime was found, where none was named.
    pub choice: Option<Choice>,
    /// The kind of work became less than what was asked for: from, to and the reason.
    pub fell_back: Option<(String, String, String)>,
    /// The agent's name, where it is not the built-in one.
    pub foreign: Option<String>,
    /// Sends traces and metrics, where the settings say so.
    pub telemetry: Telemetry,
}

/// Finds the runtime for a workspace. The flags are added to the settings.
pub fn prepare(root: Root, mut settings: Settings, flags: &RunFlags) -> Result<Prepared, Error> {
    let tools = spawn_tools(true);
    settings.add_flags(&flags.agent, &flags.limits)?;
    let (plan, choice) = RuntimePlan::of(&flags.agent, &settings)?;
    // Settings of the runtime that was chosen apply, however it was found.
    settings.chosen = choice.as_ref().and_then(|choice| choice.chosen.clone());
    Ok(Prepared {
        settings,
        root: Arc::new(root),
        plan: Some(plan),
        choice,
        tools,
    })
}

/// The same without a runtime, for a kept run that is only to land.
#[must_use]
pub fn prepare_landing(root: Root, settings: Settings) -> Prepared {
    Prepared {
        settings,
        root: Arc::new(root),
        plan: None,
        choice: None,
        tools: spawn_tools(false),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "schemas are compiled beside reading settings, which halves the time of a start"
)]
fn spawn_tools(wanted: bool) -> JoinHandle<Vec<Arc<dyn Tool>>> {
    std::thread::spawn(move || {
        if wanted {
            windlass_tools::all()
        } else {
            Vec::new()
        }
    })
}

impl Prepared {
    /// Whether it works on a copy, whatever else is said.
    #[must_use]
    pub fn needs_copy(&self) -> bool {
        let profile = self.settings.profile.as_ref();
        profile.is_some_and(Profile::needs_copy)
            || self.plan.as_ref().is_some_and(RuntimePlan::needs_copy)
    }

    /// Remarks about the settings and the model, for a person.
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

    /// Opens the session.
    pub async fn open(self, request: OpenRequest) -> Result<Opened, Error> {
        let Self {
            mut settings,
            root,
            plan,
            choice,
            tools,
        } = self;
        let contract = &request.flags.contract;
        settings.add_contract_flags(contract)?;
        let mut tools = tools
            .join()
            .map_err(|_| Error::new(ErrorKind::Failed, "the tools could not be built"))?;
        tools.extend(request.tools.iter().cloned());
        let tools = program_tools::with_programs(tools, &settings)?;
        let isolated = request.isolation == Isolation::Isolated;
        contract::fits(contract, isolated)?;
        check_isolation(&settings, plan.as_ref(), isolated)?;
        let schema = request.flags.agent.json_schema.as_deref();
        let mode = settings
            .profile
            .as_ref()
            .map(|profile| profile.mode)
            .or(choice.as_ref().and_then(Choice::mode));
        let works = |plan| wire::Works {
            plan,
            mode: mode.unwrap_or(RuntimePlan::mode(plan)),
            schema,
            cd: request.flags.agent.cd.as_deref(),
            fallback: request.flags.agent.fallback
                || settings.layers.boolean("runtime_fallback") == Some(true),
            accept_ungated: request.flags.agent.accept_ungated,
        };
        let agent = plan
            .as_ref()
            .map_or(wire::Agent::None, |plan| wire::Agent::Works(works(plan)));
        let redactor = || wire::redactor(&settings);
        let mut validators = contract::validators(&settings, contract, &root, redactor, isolated)?;
        validators.extend(request.validators.iter().cloned());
        let root_of_run = root.clone();
        let wired = wire::engine(&settings, &agent, root_of_run, isolated, tools, validators)?;
        let which = match &request.which {
            Which::New => OpenSession::New,
            Which::Named(id) => OpenSession::Resume(id.clone()),
            Which::Newest => OpenSession::Resume(newest(wired.store.as_ref(), &root).await?),
        };
        let session = wired.engine.open(which, wired.mode).await?;
        let fell_back = match &wired.fell {
            Some(EventKind::FailedOver { from, to, reason }) => {
                Some((from.clone(), to.clone(), reason.clone()))
            }
            _ => None,
        };
        if let Some(fell) = wired.fell {
            session.note(fell).await?;
        }
        if let Some(choice) = &choice {
            session
                .note(EventKind::warned("runtime_chosen", choice.whole()))
                .await?;
        }
        let vendor = plan.as_ref().and_then(RuntimePlan::vendor);
        let telemetry = Telemetry::open(&settings, vendor, &session, wired.store.as_ref()).await;
        let options = run_options(&settings, &request, choice.as_ref(), wired.mode)?;
        Ok(Opened {
            session,
            store: wired.store,
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

/// Refuses work in place where the profile or the agent needs a copy.
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
            "the profile `{}` works on a copy, and this run does not",
            profile.name
        ))
        .hint("leave `--in-place` out, or the profile"));
    }
    if plan.is_some_and(RuntimePlan::needs_copy) {
        return Err(
            Error::usage("an agent that is not ours never works on the tree itself")
                .hint("leave `--in-place` out: it works on a copy that lands when the checks pass"),
        );
    }
    Ok(())
}

/// How runs of a session are to be done.
fn run_options(
    settings: &Settings,
    request: &OpenRequest,
    choice: Option<&Choice>,
    mode: RunMode,
) -> Result<RunOptions, Error> {
    let mut budget = settings.budget()?;
    if request.only_land {
        budget.iterations = Some(1);
    }
    let mut terms = contract::terms(settings, &request.flags.contract)?;
    let looks = mode == RunMode::Analysis
        || settings
            .profile
            .as_ref()
            .is_some_and(|one| one.lands_nothing);
    if request.isolation == Isolation::Isolated && looks && !request.only_land {
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

fn saved_flags(request: &OpenRequest, choice: Option<&Choice>) -> SavedFlags {
    if request.only_land {
        return SavedFlags::default();
    }
    let given = &request.flags;
    let mut flags = RunFlags::new(&given.agent, &given.limits, &given.contract);
    // A run that is resumed is resumed with the runtime that was chosen.
    if let Some(chosen) = choice.and_then(|choice| choice.chosen.clone()) {
        flags.agent.runtime = Some(chosen);
    }
    flags.save()
}

/// How long an ask can be answered at all.
fn ask_expiry(settings: &Settings) -> Result<Option<Duration>, Error> {
    match settings.layers.number("ask_expiry_hours") {
        None => Ok(None),
        Some(hours) if (0.001..=87_600.0).contains(&hours) => {
            Ok(Some(Duration::from_secs_f64(hours * 3_600.0)))
        }
        Some(_) => Err(Error::usage(
            "`ask_expiry_hours` is a number of hours, up to ten years",
        )),
    }
}

/// What becomes of an ask: a person answers it where one is there. Otherwise the flag or the setting decides, and after
/// them whether this is CI.
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

/// The options of a run with this prompt: a commit without a message of its own has the prompt as its message.
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

/// The options for the run that is open in a session, to resume it.
#[must_use]
pub fn resume_options(options: &RunOptions, session: &Session) -> RunOptions {
    match session.with_history(|history| history.open_run().cloned()) {
        Some(open) => options_for(options, &open.prompt),
        None => options.clone(),
    }
}

/// The newest session of a workspace.
pub async fn newest(store: &dyn SessionStore, root: &Root) -> Result<SessionId, Error> {
    let here = root.root().display().to_string();
    let mut heads = store.list();
    while let Some(head) = heads.next().await {
        // A damaged session does not hide the others; naming it says what is wrong with it.
        if let Ok(head) = head
            && head.workspace == here
        {
            return Ok(head.id);
        }
    }
    Err(Error::usage("there is no session of this workspace yet")
        .hint("start one with `windlass run` or `windlass chat`"))
}

/// The session that a word names: `last` for the newest (of the workspace, where there is one), an id, or the beginning
/// of one.
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
            return newest.ok_or_else(|| Error::usage("there is no session yet"));
        }
        _ => {}
    }
    let id: SessionId = text.parse().map_err(|err: windlass_core::id::IdError| {
        Error::usage(err.to_string()).hint("`windlass sessions list` shows the sessions there are")
    })?;
    let found = store.ids_starting_with(text)?;
    match &found[..] {
        _ if found.contains(&id) => Ok(id),
        [one] => Ok(one.clone()),
        [] => Ok(id),
        [first, second, ..] => Err(Error::usage(format!(
            "`{text}` is the beginning of {} sessions, {first} and {second} among them",
            found.len()
        ))
        .hint("type more of the id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_without_a_message_has_that_of_the_prompt() {
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
