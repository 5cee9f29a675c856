//! Running prompts in a session: events to the view, asks to the person, signals to the run.

mod input;
mod signals;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass::agents::Choice;
use windlass::core::ask::{About, Answer, Ask};
use windlass::core::context::CompactionMode as Room;
use windlass::core::event::EventKind;
use windlass::core::id::SessionId;
use windlass::core::message::{Message, Role};
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::store::SessionStore;
use windlass::engine::{Delivery, OnAsk, RunHandle, RunOptions, Session};
use windlass::machine::{Root, SessionLog};
use windlass::settings::Places;

use crate::args::{Format, OutputArgs};
use crate::commands::block_on;
use crate::commands::trust::ask_about;
use crate::exit;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::process;
use crate::safe::json_line;
use crate::view::{View, ask};
pub(crate) use input::Input;
use signals::Signals;
pub(crate) use signals::survive_file_size_limit;
use windlass::core::workspace::Files as _;
use windlass::flags::RunFlags;
use windlass::model;
use windlass::settings::Settings;
use windlass::telemetry::Telemetry;
use windlass::transcript::first_line;
use windlass::{OpenRequest, Opened, Prepared, options_for, resume_options, saved_plan};

/// A session at work, with its view and its person.
pub(crate) struct InteractiveSession {
    pub(crate) session: Session,
    pub(crate) root: Arc<Root>,
    places: Places,
    /// The last words of a run are kept as a plan.
    plans: bool,
    view: View,
    telemetry: Telemetry,
    options: RunOptions,
    /// Lines that are typed while a run is going are words for it.
    pub(crate) steers: bool,
    /// A pause after each event that is shown, so that a person can watch.
    pub(crate) pace: Duration,
    /// The lines that a person types. The next session of this process takes them over.
    pub(crate) input: Input,
    signals: Signals,
}

/// Everything that can be wrong is found here, before a session is opened.
pub(crate) fn prepare(flags: &RunFlags) -> Result<Prepared, Failure> {
    let root = process::open_workspace(flags.agent.cd.as_deref())?;
    let mut settings = process::load_settings(Some(root.root()))?;
    if ask_about(&settings, root.root())? {
        settings = process::load_settings(Some(root.root()))?;
    }
    Ok(windlass::prepare(root, settings, flags)?)
}

/// The same without an agent.
pub(crate) fn prepare_landing(cd: Option<&std::path::Path>) -> Result<Prepared, Failure> {
    let root = process::open_workspace(cd)?;
    let settings = process::load_settings(Some(root.root()))?;
    Ok(windlass::prepare_landing(root, settings))
}

/// Whether a person at a terminal can answer asks.
fn can_answer() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Says who works, where nobody named one, and why.
fn tell_choice(choice: &Choice, output: &OutputArgs) {
    if output.quiet {
        return;
    }
    say!("runtime: {}", crate::safe::message(&choice.summary()));
    for reason in choice.reasons().filter(|_| output.verbose) {
        say!("  {}", crate::safe::message(&reason));
    }
}

impl InteractiveSession {
    pub(crate) async fn open(
        ready: Prepared,
        mut request: OpenRequest,
        output: &OutputArgs,
        room: Option<Room>,
    ) -> Result<Self, Failure> {
        for warning in ready.warnings() {
            say!("warning: {}", crate::safe::message(&warning));
        }
        request.can_answer = can_answer();
        let structured = request.flags.agent.json_schema.is_some();
        let opened = ready.open(request).await?;
        let Opened {
            session,
            store,
            root,
            settings,
            mut options,
            choice,
            fell_back,
            foreign,
            telemetry,
        } = opened;
        if let Some((from, to, reason)) = fell_back {
            say!("warning: working as {to} instead of {from} ({reason})");
        }
        if let Some(choice) = &choice {
            tell_choice(choice, output);
        }
        let view = View::new(output, session.id(), structured, foreign.as_deref());
        options.live = view.wants_live();
        let mut interactive = Self {
            session,
            root,
            places: settings.places,
            plans: settings.profile.is_some_and(|profile| profile.plans),
            view,
            telemetry,
            options,
            steers: false,
            pace: Duration::ZERO,
            input: Input::default(),
            signals: Signals::listen()?,
        };
        if let Some(how) = room {
            interactive.make_room(how).await?;
        }
        let first = interactive.session.first_seq();
        // What had to be repaired is said; a new session has nothing to say about itself.
        let repaired = first > 1
            && interactive
                .session
                .with_history(|history| history.last_seq())
                >= first;
        let format = output.format();
        if format == Format::StreamJson || (repaired && format == Format::Text) {
            interactive.show_opening(store.as_ref()).await?;
        }
        Ok(interactive)
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
        let options = options_for(&self.options, &prompt);
        let handle = self.session.run(prompt, options)?;
        self.follow_new(handle).await
    }

    async fn follow_new(&mut self, handle: RunHandle) -> Result<Option<Outcome>, Failure> {
        // The copy that was kept is this run's now.
        self.options.contract.kept = None;
        self.follow(handle, None).await
    }

    /// The first prompt that waits, to its end; none when none does.
    pub(crate) async fn run_queued(&mut self) -> Result<Option<Option<Outcome>>, Failure> {
        let Some(next) = self
            .session
            .with_history(|history| history.queue().first().cloned())
        else {
            return Ok(None);
        };
        self.view
            .say(&format!("next: {}", first_line(&next.prompt.text(), 100)));
        let options = options_for(&self.options, &next.prompt);
        let Some(handle) = self.session.run_queued(options)? else {
            return Ok(None);
        };
        Ok(Some(self.follow_new(handle).await?))
    }

    /// Answers what a run was left open on, and follows it to its end, or to the next ask.
    pub(crate) async fn answer_open(
        &mut self,
        ask: &Ask,
        answer: Answer,
    ) -> Result<Option<Outcome>, Failure> {
        let options = resume_options(&self.options, &self.session);
        let handle = self.session.answer(&ask.id, answer, options)?;
        self.follow(handle, Some(ask.clone())).await
    }

    /// Asks the person what a run was left open on; none when they left.
    pub(crate) async fn ask_open(&mut self, ask: &Ask) -> Option<Answer> {
        self.input.ask(&ask::question(ask));
        loop {
            let line = tokio::select! {
                line = self.input.line() => line?,
                () = self.signals.while_idle() => return None,
            };
            match ask::understand(ask, &line.text).filter(|_| self.input.answers(&line)) {
                Some(answer) => return Some(answer),
                None => self.input.ask("please answer as shown: "),
            }
        }
    }

    /// Compacts the conversation, and says what came of it.
    pub(crate) async fn make_room(&mut self, how: Room) -> Result<(), Failure> {
        let before = self.session.with_history(|history| history.held());
        match self.session.compact(how, self.options.budget).await? {
            true => {
                let after = self.session.with_history(|history| history.held());
                self.view.say(&format!(
                    "room was made: {before} bytes of messages are {after} now"
                ));
            }
            false => self.view.say("there was nothing to make room of"),
        }
        Ok(())
    }

    /// Keeps what a planning run ended with, when it was done.
    pub(crate) fn keep_plan(&mut self, outcome: Option<&Outcome>) -> Result<(), Failure> {
        if !self.plans || outcome != Some(&Outcome::Completed) {
            return Ok(());
        }
        let text = self.session.with_history(|history| {
            let last = history
                .entries()
                .iter()
                .rev()
                .find(|entry| entry.role == Role::Assistant)
                .map(|entry| entry.text());
            last.unwrap_or_default()
        });
        if text.trim().is_empty() {
            return Ok(());
        }
        let (name, path) = saved_plan::save(&self.places, self.session.id(), &text)?;
        say!("plan {name} is kept in {}", path.display());
        say!(
            "hint: `windlass run --profile implement --plan {name}` carries it out; change the file first if you like"
        );
        Ok(())
    }

    /// Shows a run until it ends, passes answers on, and what is typed meanwhile.
    async fn follow(
        &mut self,
        mut handle: RunHandle,
        mut answered: Option<Ask>,
    ) -> Result<Option<Outcome>, Failure> {
        self.signals.watch(Some(handle.canceller()));
        let mut ticker = tokio::time::interval(Duration::from_millis(100));
        let ticks = self.view.ticks();
        let mut asking: Option<Ask> = None;
        let mut finished = None;
        loop {
            tokio::select! {
                biased;
                event = handle.next() => {
                    let Some(event) = event else { break };
                    self.view.event(&event);
                    if !self.pace.is_zero() && is_step(&event.kind) {
                        tokio::time::sleep(self.pace).await;
                    }
                    self.telemetry.event(&event);
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
                        // Also where it could not be written: then the log does not know.
                        EventKind::RunFinished(RunSummary { outcome, .. }) => finished = Some(outcome),
                        _ => {}
                    }
                }
                line = self.input.line(), if asking.is_some() || self.steers => match (line, asking.take()) {
                    // Taken away at once: the next line belongs to the next question, not to this one.
                    (line, Some(ask)) if line.as_ref().is_none_or(|line| self.input.answers(line)) => {
                        match self.answer(&handle, &ask, line.map(|line| line.text)) {
                            true => answered = Some(ask),
                            false => asking = Some(ask),
                        }
                    }
                    (Some(line), open) => {
                        asking = open;
                        self.steer(&line.text).await?;
                    }
                    (None, open) => {
                        asking = open;
                        self.steers = false;
                    }
                },
                _ = ticker.tick(), if ticks && asking.is_none() => self.view.tick(),
            }
        }
        self.signals.watch(None);
        self.view.end();
        self.telemetry.rest().await;
        // The log says how it ended, also to a view that missed it.
        Ok(finished.or_else(|| {
            self.session
                .with_history(|history| match history.open_run() {
                    Some(_) => None,
                    None => history.last_outcome().cloned(),
                })
        }))
    }

    /// What is typed while a run is going: words for it, or with `/next` words for after it.
    async fn steer(&mut self, line: &str) -> Result<(), Failure> {
        let (text, when) = match line.trim() {
            "" => return Ok(()),
            "/cancel" => {
                self.session.cancel();
                return Ok(());
            }
            line if let Some(command) = crate::typed::slash_command(line)
                && command != "/next" =>
            {
                self.view.say(&format!(
                    "{command} is not for a run that is going; /cancel ends it, /next WORDS waits"
                ));
                return Ok(());
            }
            line => match line.strip_prefix("/next ") {
                Some(text) => (text.trim(), Delivery::FollowUp),
                None => (line, Delivery::Steer),
            },
        };
        match model::attach(text.to_owned(), &self.root, &crate::process::notices()) {
            Ok(prompt) => drop(self.session.queue(prompt, when).await?),
            Err(error) => Failure::from(error).print(),
        }
        Ok(())
    }

    /// Passes a typed line on; whether it was an answer.
    fn answer(&mut self, handle: &RunHandle, ask: &Ask, line: Option<String>) -> bool {
        let answer = match &line {
            // The person left: that is a no, and not a yes to anything.
            None => Some(Answer::No {
                note: Some("the terminal was closed".into()),
            }),
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
        let About::Approval(approval) = &ask.about else {
            return;
        };
        let Some(rule) = &approval.always else { return };
        let root = windlass::core::workspace::Files::root(self.root.as_ref());
        if let Err(failure) = Settings::remember_rule(&self.places, root, rule) {
            say!(
                "warning: the rule holds for this session only: {}",
                crate::safe::message(failure.message())
            );
        }
    }

    /// The next prompt of a chat; `None` at its end.
    pub(crate) async fn prompt(&mut self) -> Option<String> {
        let mut text = String::new();
        self.input.show(if std::io::stdin().is_terminal() {
            "\n> "
        } else {
            ""
        });
        loop {
            let line = tokio::select! {
                line = self.input.line() => line?.text,
                () = self.signals.while_idle() => return None,
            };
            match line.strip_suffix('\\') {
                Some(more) => {
                    text.push_str(more);
                    text.push('\n');
                    self.input.show("… ");
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
        for ask in session.pending() {
            let _ = exit::printed(&json_line(&ask_row(session.id(), &ask)));
            let what = match &ask.about {
                About::Landing(_) => "nothing was landed",
                About::Approval(_) => "the call was not run",
                About::Question(_) => "the question waits",
            };
            say!("stopped on an ask, and {what}; session {}", session.id());
            let how = if matches!(ask.about, About::Question(_)) {
                "YOUR ANSWER"
            } else {
                "yes|no"
            };
            if matches!(ask.about, About::Landing(_)) {
                say!(
                    "hint: look at the kept run with `windlass diff`; `windlass land` lands it as well"
                );
            }
            say!(
                "hint: answer it with `windlass answer {} {how}`, from anywhere and at any time",
                ask.id
            );
        }
    }
    exit::unless_broken(exit::code(outcome))
}

/// Whether a person who watches needs a moment for it.
fn is_step(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::CallStarted { .. }
            | EventKind::CallFinished { .. }
            | EventKind::Said { .. }
            | EventKind::Validated { .. }
            | EventKind::Landed { .. }
    )
}

/// An open ask for programs: the object itself, and where it belongs.
pub(crate) fn ask_row(session: &SessionId, ask: &Ask) -> serde_json::Value {
    let mut row = serde_json::to_value(ask).unwrap_or_default();
    row["session"] = session.as_str().into();
    row
}

/// The session that a word names: `last`, an id, or the beginning of one.
pub(crate) fn find_session(text: &str) -> Result<SessionId, Failure> {
    let store = SessionLog::new(process::places()?.sessions_dir());
    let root = process::open_workspace(None).ok();
    block_on(async { Ok(windlass::find_session(&store, root.as_ref(), text).await?) })
}

pub(crate) fn session_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|err: windlass::core::id::IdError| {
        Failure::usage(err.to_string())
            .hint("`windlass sessions list` shows the sessions there are")
    })
}
