//! The terminal interface: `windlass` without a command, `chat`, `resume` and `attach` at a terminal.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use windlass::core::id::SessionId;
use windlass::core::store::SessionStore as _;
use windlass::core::terms::Isolation;
use windlass::core::workspace::Files as _;
use windlass::flags::RunFlags;
use windlass::machine::{Root, SessionLog};
use windlass::notifications::TerminalAlert;
use windlass::settings::Settings;
use windlass::{Notice, Notices, model};
use windlass_client::{Client, PromptRequest};
use windlass_service::{Service, ServiceOptions, ServiceRole};
use windlass_text::ColorTheme;
use windlass_tui::{
    Backend, DisplayMode, OperationError, SessionChoice, StatusFacts, TuiEnd, TuiOptions,
};

use super::trust::ask_about;
use super::{block_on, demo};
use crate::args::{DemoArgs, OutputArgs, OutputFormat};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;

/// Recorded events that wait until they are shown.
const RECORDED: usize = 64;
/// The longest pause of a recording in milliseconds.
const MAX_PAUSE_MS: f64 = 2_000.0;
/// Notices that wait until they are shown.
const NOTICES: usize = 64;

/// The session and the options with which the interface begins.
pub(crate) struct InterfaceRequest {
    pub(crate) flags: RunFlags,
    pub(crate) session: SessionChoice,
    /// Whether runs work on a copy; `None` for the isolation of the session.
    pub(crate) isolation: Option<Isolation>,
    pub(crate) first_prompt: Option<String>,
}

/// Whether this process can show the interface: it has a terminal with a cursor, and the user wants text.
pub(crate) fn is_available(output: &OutputArgs) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb
        && output.format() == OutputFormat::Text
        && !output.quiet
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
}

/// Opens the interface for the workspace of the current directory.
pub(crate) fn run(request: InterfaceRequest) -> Result<ExitCode, CommandError> {
    let root = Arc::new(process::open_workspace(request.flags.agent.cd.as_deref())?);
    let mut settings = process::load_settings(Some(root.root()))?;
    if ask_about(&settings, root.root())? {
        settings = process::load_settings(Some(root.root()))?;
    }
    let (notices, shown) = notices();
    let environment = process::environment();
    let service = ServiceOptions {
        role: ServiceRole::Terminal,
        flags: RunFlags {
            agent: windlass::flags::AgentFlags {
                cd: None,
                ..request.flags.agent.clone()
            },
            ..request.flags.clone()
        },
        notices: notices.clone(),
        ..ServiceOptions::new(environment, root.root())
    };
    let mut run_options = Map::new();
    if let Some(isolation) = request.isolation {
        run_options.insert("in_place".into(), (!isolation.is_isolated()).into());
    }
    if !request.flags.contract.validate.is_empty() {
        run_options.insert("validate".into(), json!(request.flags.contract.validate));
    }
    let in_place = request
        .isolation
        .is_none_or(|isolation| !isolation.is_isolated());
    let facts = facts(&settings, &request.flags, in_place);
    let offer_setup = names_no_model(&request.flags.agent) && request.first_prompt.is_none();
    let options = TuiOptions {
        run_options,
        facts,
        session: request.session,
        first_prompt: request.first_prompt,
        offer_setup,
        opening: Box::pin(async move { Ok(Backend::Local(Service::open(service).await?)) }),
        ..options(&settings, root, shown)?
    };
    show(options)
}

/// Whether the settings alone choose the agent and the model, so that the set-up can change them.
fn names_no_model(agent: &windlass::flags::AgentFlags) -> bool {
    agent.runtime.is_none()
        && agent.model.is_none()
        && agent.provider.is_none()
        && agent.base_url.is_none()
        && agent.script.is_none()
        && agent.cassette.is_none()
}

/// Opens the interface for a session of a server.
pub(crate) fn attach(
    settings: &Settings,
    client: Client,
    session: SessionId,
) -> Result<ExitCode, CommandError> {
    let root = Arc::new(process::open_workspace(None)?);
    let (_, shown) = notices();
    let server = client.url().to_owned();
    let mut facts = facts(settings, &RunFlags::default(), false);
    facts.server = Some(server);
    facts.model = None;
    let options = TuiOptions {
        facts,
        session: SessionChoice::Existing(session),
        opening: Box::pin(async move { Ok(Backend::Remote(Box::new(client))) }),
        ..options(settings, root, shown)?
    };
    show(options)
}

/// Plays a recorded session. Pauses are as long as they were, divided by the speed, and two seconds at the most.
pub(crate) fn play(session: &SessionId, speed: f64) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let root = Arc::new(process::open_workspace(None)?);
    let settings = process::load_settings(Some(root.root()))?;
    let (_, shown) = notices();
    let (to, recording) = tokio::sync::mpsc::channel(RECORDED);
    let store = SessionLog::new(places.sessions_dir());
    let id = session.clone();
    let player = async move {
        let mut events = store.read(&id, 1);
        let mut before: Option<i64> = None;
        while let Some(Ok(event)) = events.next().await {
            let at = event.at.as_millis();
            let pause = before.map_or(0, |before| at.saturating_sub(before).max(0));
            before = Some(at);
            let pause = (pause as f64 / speed).min(MAX_PAUSE_MS);
            tokio::time::sleep(std::time::Duration::from_millis(pause as u64)).await;
            if to.send(Box::new(event)).await.is_err() {
                return;
            }
        }
    };
    let options = TuiOptions {
        facts: facts(&settings, &RunFlags::default(), true),
        recording: Some(recording),
        ..options(&settings, root, shown)?
    };
    block_on(async {
        let player = tokio::spawn(player);
        let shown = windlass_tui::run(options).await;
        player.abort();
        shown?;
        Ok(())
    })?;
    Ok(exit::after_output(0))
}

fn show(options: TuiOptions) -> Result<ExitCode, CommandError> {
    let remote = options.facts.server.is_some();
    let end = block_on(async { Ok(windlass_tui::run(options).await?) })?;
    farewell(&end, remote);
    if end.run_demo {
        return demo::run(&DemoArgs::default());
    }
    Ok(exit::after_output(0))
}

/// Tells how to come back.
fn farewell(end: &TuiEnd, remote: bool) {
    let Some(session) = &end.session else { return };
    match (remote, end.run_goes_on) {
        (true, true) => say!("the run continues on the server; `windlass attach` shows it again"),
        (true, false) => {}
        (false, true) => say!("the run is paused; continue with `windlass resume {session}`"),
        (false, false) => say!("continue with `windlass resume {session}`"),
    }
}

/// Notices of the library, for the interface. Those that arrive while it is busy and have no room are dropped.
fn notices() -> (Notices, tokio::sync::mpsc::Receiver<String>) {
    let (to, shown) = tokio::sync::mpsc::channel(NOTICES);
    let notices = Notices::new(move |notice| {
        let (Notice::Warning(text) | Notice::Progress(text)) = notice else {
            return;
        };
        let _ = to.try_send(text.to_owned());
    });
    (notices, shown)
}

fn options(
    settings: &Settings,
    root: Arc<Root>,
    notices: tokio::sync::mpsc::Receiver<String>,
) -> Result<TuiOptions, CommandError> {
    let workspace = root.root().to_owned();
    let quiet = Notices::default();
    let attach = move |text: String| {
        let prompt = model::attach(text, &root, &quiet).map_err(|err| OperationError {
            detail: err.message().to_owned(),
            hint: None,
        })?;
        let request = PromptRequest::of(&prompt);
        let mut params = Map::new();
        params.insert("prompt".into(), request.prompt.into());
        if !request.images.is_empty() {
            params.insert("images".into(), json!(request.images));
        }
        Ok(params)
    };
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(TuiOptions {
        workspace,
        state_dir: settings.places.data_dir.join("terminal"),
        session: SessionChoice::New,
        run_options: Map::new(),
        facts: StatusFacts::default(),
        display: settings
            .layers
            .text("interface.screen")
            .and_then(DisplayMode::named)
            .unwrap_or_default(),
        theme: theme(settings)?,
        vi_mode: settings
            .layers
            .boolean("interface.vi_mode")
            .unwrap_or(false),
        reduced_motion: settings
            .layers
            .boolean("interface.reduced_motion")
            .unwrap_or(false),
        environment: environment.collect(),
        opening: Box::pin(std::future::pending()),
        attach: Box::new(attach),
        notices,
        alert: TerminalAlert::of(settings),
        recording: None,
        on_open: Box::new(crate::command_error::restore_after_panic),
        greeting: Vec::new(),
        first_prompt: None,
        offer_setup: false,
    })
}

/// The colours that the settings choose.
fn theme(settings: &Settings) -> Result<ColorTheme, CommandError> {
    const COLORS: &str = "interface.colors.";
    let base = settings
        .layers
        .text("interface.theme")
        .unwrap_or("terminal");
    let own = settings
        .layers
        .iter()
        .filter_map(|(name, _)| Some((name.strip_prefix(COLORS)?, settings.layers.text(name)?)));
    let rows: Vec<_> = std::iter::once(("base", base)).chain(own).collect();
    ColorTheme::from_table(rows).map_err(|err| {
        CommandError::usage(err.to_string())
            .hint("correct `interface.colors` in the settings; `windlass config --origin` shows where it is set")
    })
}

/// The facts of the next run, as settings and flags say.
fn facts(settings: &Settings, flags: &RunFlags, in_place: bool) -> StatusFacts {
    let text = |key: &str| settings.layers.text(key).map(str::to_owned);
    let given = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let mode = given(flags.agent.approval.map(|mode| json!(mode))).or_else(|| text("approval"));
    StatusFacts {
        model: flags.agent.model.clone().or_else(|| text("model")),
        agent: flags.agent.runtime.clone().or_else(|| text("runtime")),
        mode_is_default: mode.is_none(),
        mode: mode.unwrap_or_else(|| StatusFacts::default_mode(in_place).to_owned()),
        in_place,
        budget_micros: settings.budget().ok().and_then(|budget| budget.cost_micros),
        ..StatusFacts::default()
    }
}
