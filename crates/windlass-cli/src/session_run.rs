//! Running prompts in a session: events to the view, asks to the person, signals to the run.

mod input;
mod signals;

use crate::out::{self, say};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::ask::{About, Answer, Ask};
use windlass_core::event::EventKind;
use windlass_core::gate::Mode;
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::store::SessionStore;
use windlass_core::tool::Tool;
use windlass_core::workspace::{Isolation, LandTo};
use windlass_engine::{Contract, OnAsk, Open, RunHandle, RunOptions, Session};
use windlass_host::config::Places;
use windlass_host::workspace::Root;

use crate::args::{AgentArgs, ContractArgs, Format, LimitArgs, OutputArgs};
use crate::commands::trust::ask_about;
use crate::failure::Failure;
use crate::plan::{self, ModelPlan};
use crate::programs::with_programs;
use crate::settings::Settings;
use crate::view::{View, ask};
use crate::{contract, exit, wire};
use input::Input;
use signals::Signals;

/// A session at work, with its view and its person.
pub(crate) struct Desk {
    pub(crate) session: Session,
    pub(crate) root: Arc<Root>,
    places: Places,
    view: View,
    options: RunOptions,
    input: Input,
    signals: Signals,
}

/// What to open.
pub(crate) struct Opening<'a> {
    pub(crate) agent: &'a AgentArgs,
    pub(crate) output: &'a OutputArgs,
    pub(crate) which: Which,
    pub(crate) isolation: Isolation,
    pub(crate) contract: &'a ContractArgs,
    /// Go on with this kept run.
    pub(crate) kept: Option<String>,
    /// Nobody works on it any more: what is there is judged, and lands.
    pub(crate) only_land: bool,
}

/// Which session.
pub(crate) enum Which {
    New,
    Newest,
    Named(String),
}

/// Settings, workspace and plan, before anything starts.
pub(crate) struct Ready {
    pub(crate) settings: Settings,
    pub(crate) root: Arc<Root>,
    plan: Option<ModelPlan>,
    /// Being made while the rest is prepared: their schemas are the longest part of a start.
    tools: std::thread::JoinHandle<Vec<Arc<dyn Tool>>>,
}

/// Everything that can be wrong is found here, before a session is opened.
pub(crate) fn prepare(agent: &AgentArgs, limits: &LimitArgs) -> Result<Ready, Failure> {
    let tools = std::thread::spawn(windlass_tools::all);
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let root = plan::open_workspace(agent.cd.as_deref(), home.as_deref())?;
    let mut settings = Settings::load(Some(windlass_core::workspace::Files::root(&root)))?;
    if ask_about(&settings, windlass_core::workspace::Files::root(&root))? {
        settings = Settings::load(Some(windlass_core::workspace::Files::root(&root)))?;
    }
    settings.add_flags(agent, limits)?;
    let plan = Some(ModelPlan::of(agent, &settings)?);
    Ok(Ready { settings, root: Arc::new(root), plan, tools })
}

/// The same without an agent.
pub(crate) fn prepare_landing(cd: Option<&std::path::Path>) -> Result<Ready, Failure> {
    let tools = std::thread::spawn(Vec::new);
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let root = plan::open_workspace(cd, home.as_deref())?;
    let settings = Settings::load(Some(windlass_core::workspace::Files::root(&root)))?;
    Ok(Ready { settings, root: Arc::new(root), plan: None, tools })
}

impl Desk {
    pub(crate) async fn open(ready: Ready, opening: Opening<'_>) -> Result<Self, Failure> {
        let Ready { mut settings, root, plan, tools } = ready;
        settings.add_contract_flags(opening.contract)?;
        let tools = tools.join().map_err(|_| Failure::new(exit::FAILED, "the tools could not be made"))?;
        let tools = with_programs(tools, &settings)?;
        let unknown = plan.as_ref().and_then(ModelPlan::unknown_model);
        for warning in settings.warnings.iter().chain(&unknown) {
            say!("warning: {}", crate::safe::message(warning));
        }
        let schema = opening.agent.json_schema.as_deref();
        let isolated = opening.isolation == Isolation::Isolated;
        contract::fits(opening.contract, isolated)?;
        // Nothing of an isolated run reaches the tree before it was judged, so that calls in it run freely.
        let default_mode = if isolated { Mode::Auto } else { Mode::Ask };
        let agent = plan
            .as_ref()
            .map_or(wire::Agent::Nobody, |plan| wire::Agent::Model(plan, schema, opening.agent.cd.as_deref()));
        let redactor = || wire::redactor(&settings);
        let validators = contract::validators(&settings, opening.contract, &root, redactor, isolated)?;
        let wired = wire::engine(&settings, &agent, root.clone(), default_mode, tools, validators)?;
        let which = match opening.which {
            Which::New => Open::New,
            Which::Named(id) => Open::Resume(session_id(&id)?),
            Which::Newest => Open::Resume(newest(wired.store.as_ref(), &root).await?),
        };
        let session = wired.engine.open(which, RunMode::Full).await?;
        let view = View::new(opening.output, session.id(), opening.agent.json_schema.is_some());
        let mut budget = settings.budget()?;
        if opening.only_land {
            budget.iterations = Some(1);
        }
        let terms = contract::terms(&settings, opening.contract)?;
        let options = RunOptions {
            isolation: opening.isolation,
            contract: Contract { kept: opening.kept, ordered: opening.only_land, ..terms },
            budget,
            on_ask: on_ask(&settings),
            yes: opening.agent.yes,
            live: view.wants_live(),
            ..RunOptions::default()
        };
        let mut desk = Self {
            session,
            root,
            places: settings.places,
            view,
            options,
            input: Input::default(),
            signals: Signals::listen()?,
        };
        if opening.output.format() == Format::StreamJson {
            desk.show_opening(wired.store.as_ref()).await?;
        }
        Ok(desk)
    }

    /// What opening the session wrote, so that the stream is the log without a gap.
    async fn show_opening(&mut self, store: &dyn SessionStore) -> Result<(), Failure> {
        let id = self.session.id().clone();
        let mut events = store.read(&id, self.session.first_seq());
        while let Some(event) = events.next().await {
            self.view.event(&event?);
        }
        Ok(())
    }

    /// One prompt to its end; `None` when it was left open on an ask.
    pub(crate) async fn run(&mut self, prompt: Message) -> Result<Option<Outcome>, Failure> {
        let mut options = self.options.clone();
        if let LandTo::Commit(message) = &mut options.contract.to
            && message.is_empty()
        {
            // A commit without words of its own has those of the prompt.
            message.push_str(prompt.text().trim());
        }
        let mut handle = self.session.run(prompt, options)?;
        // The copy that was kept is this run's now.
        self.options.contract.kept = None;
        self.signals.watch(Some(handle.canceller()));
        let mut ticker = tokio::time::interval(Duration::from_millis(100));
        let ticks = self.view.ticks();
        let mut asking: Option<Ask> = None;
        let mut answered: Option<Ask> = None;
        loop {
            tokio::select! {
                biased;
                event = handle.next() => {
                    let Some(event) = event else { break };
                    self.view.event(&event);
                    if out::broken().is_some() {
                        // Nobody reads the answer any more: no step is spent on it.
                        handle.cancel();
                    }
                    match event.kind {
                        EventKind::Asked { ask } if self.options.on_ask == OnAsk::Wait => {
                            self.view.hush();
                            self.input.ask(&ask::question(&ask));
                            asking = Some(ask);
                        }
                        EventKind::Answered { ask, answer, .. } => {
                            asking.take_if(|open| open.id == ask);
                            if let Some(open) = answered.take_if(|open| open.id == ask)
                                && answer == Answer::Always
                            {
                                self.remember(&open);
                            }
                        }
                        _ => {}
                    }
                }
                line = self.input.line(), if asking.is_some() => {
                    // Taken away at once: the next line belongs to the next question, not to this one.
                    if let Some(ask) = asking.take() {
                        match self.answer(&handle, &ask, line) {
                            true => answered = Some(ask),
                            false => asking = Some(ask),
                        }
                    }
                }
                _ = ticker.tick(), if ticks && asking.is_none() => self.view.tick(),
            }
        }
        self.signals.watch(None);
        self.view.end();
        // The log says how it ended, also to a view that missed it.
        Ok(self.session.look(|history| match history.open_run() {
            Some(_) => None,
            None => history.last_outcome().cloned(),
        }))
    }

    /// Passes a typed line on; whether it was an answer.
    fn answer(&mut self, handle: &RunHandle, ask: &Ask, line: Option<String>) -> bool {
        let answer = match &line {
            // The person left: that is a no, and not a yes to anything.
            None => Some(Answer::No { note: Some("the terminal was closed".into()) }),
            Some(line) => ask::understand(ask, line),
        };
        match answer {
            // An ask that expired meanwhile needs no answer.
            Some(answer) => drop(handle.answer(&ask.id, answer)),
            None => {
                self.input.ask("please answer as shown: ");
                return false;
            }
        }
        true
    }

    /// What was approved for good holds for the next session of this workspace, too.
    fn remember(&self, ask: &Ask) {
        let About::Approval(approval) = &ask.about else { return };
        let Some(rule) = &approval.always else { return };
        let root = windlass_core::workspace::Files::root(self.root.as_ref());
        if let Err(failure) = Settings::remember_rule(&self.places, root, rule) {
            say!("warning: the rule holds for this session only: {}", crate::safe::message(&failure.message()));
        }
    }

    /// The next prompt of a chat; `None` at its end.
    pub(crate) async fn prompt(&mut self) -> Option<String> {
        let mut text = String::new();
        self.input.ask(if std::io::stdin().is_terminal() { "\n> " } else { "" });
        loop {
            let line = tokio::select! {
                line = self.input.line() => line?,
                () = self.signals.while_idle() => return None,
            };
            match line.strip_suffix('\\') {
                Some(more) => {
                    text.push_str(more);
                    text.push('\n');
                    self.input.ask("… ");
                }
                None => {
                    text.push_str(&line);
                    return Some(text);
                }
            }
        }
    }
}

/// The exit code of a run, with the ask on standard output when it was left open.
pub(crate) fn finish(outcome: Option<&Outcome>, session: &Session, format: Format) -> ExitCode {
    if outcome.is_none() && format == Format::Text {
        let open = session.look(|history| history.open_asks().to_vec());
        let landing = open.iter().any(|ask| matches!(ask.about, About::Landing(_)));
        for ask in open {
            if let Ok(json) = serde_json::to_string(&ask) {
                let _ = exit::printed(&format!("{json}\n"));
            }
        }
        if landing {
            say!("stopped on an ask, and nothing was landed; session {}", session.id());
            say!("hint: look at the kept run with `windlass diff`, then land it yourself with `windlass land`");
            return exit::unless_broken(exit::code(outcome));
        }
        let person = session.look(|history| history.open_asks().iter().any(|ask| ask.person));
        say!("stopped on an ask, and the call was not run; session {}", session.id());
        let flag = if person { "" } else { ", with --yes" };
        say!("hint: start it again at a terminal{flag}, or allow it with a rule (`windlass config set rules.allow …`)");
    }
    exit::unless_broken(exit::code(outcome))
}

/// What to do with asks: a terminal can answer; without one it is the flag, the setting, or by whether this is CI.
fn on_ask(settings: &Settings) -> OnAsk {
    match settings.layers.text("on_ask") {
        _ if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() => OnAsk::Wait,
        Some("deny") => OnAsk::Deny,
        Some("pause") => OnAsk::Pause,
        _ if std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false") => OnAsk::Deny,
        _ => OnAsk::Pause,
    }
}

pub(crate) fn session_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|err: windlass_core::id::IdError| {
        Failure::usage(err.to_string()).hint("`windlass sessions list` shows the sessions there are")
    })
}

pub(crate) async fn newest(store: &dyn SessionStore, root: &Root) -> Result<SessionId, Failure> {
    let here = windlass_core::workspace::Files::root(root).display().to_string();
    let mut heads = store.list();
    while let Some(head) = heads.next().await {
        // A damaged session does not hide the others; naming it says what is wrong with it.
        if let Ok(head) = head
            && head.workspace == here
        {
            return Ok(head.id);
        }
    }
    Err(Failure::usage("there is no session of this workspace yet")
        .hint("start one with `windlass run` or `windlass chat`"))
}
