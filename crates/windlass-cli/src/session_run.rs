//! Runs prompts in a session: passes events to the view, asks to the user, and interrupts to the run.

mod alert;
mod input;
mod interrupts;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass::agents::RuntimeChoice;
use windlass::core::ask::{About, Answer, Ask};
use windlass::core::context::CompactionMode as Room;
use windlass::core::event::EventKind;
use windlass::core::id::SessionId;
use windlass::core::message::{Message, Role};
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::store::SessionStore;
use windlass::engine::{Delivery, OnAsk, RunHandle, RunOptions, Session};
use windlass::machine::{Root, SessionLog};
use windlass::sessions::PendingAsk;
use windlass::settings::Places;

use crate::args::{OutputArgs, OutputFormat};
use crate::command_error::CommandError;
use crate::commands::block_on;
use crate::commands::trust::ask_about;
use crate::exit;
use crate::out::{self, say};
use crate::process;
use crate::sanitize::json_line;
use crate::view::{RunView, ask};
pub(crate) use alert::RunAlert;
pub(crate) use input::TerminalInput;
pub(crate) use interrupts::InterruptListener;
pub(crate) use interrupts::survive_file_size_limit;
use windlass::core::workspace::Files as _;
use windlass::flags::RunFlags;
use windlass::model;
use windlass::notifications::{Channels, Notifier, RunNotifications};
use windlass::settings::Settings;
use windlass::telemetry::Telemetry;
use windlass::transcript::first_line;
use windlass::{
    OpenRequest, OpenedSession, PendingTools, Prepared, options_for, resume_options, saved_plan,
};
use windlass_service::{LiveSession, LocalChannel};
use windlass_text::sanitize::message;

/// An open session with its view and its terminal.
pub(crate) struct InteractiveSession {
    pub(crate) session: Arc<Session>,
    /// Shows the run to other processes, and takes their answers and prompts.
    live: Arc<LiveSession>,
    _channel: Option<LocalChannel>,
    pub(crate) root: Arc<Root>,
    places: Places,
    /// Save the last answer of a completed run as a plan.
    plans: bool,
    view: RunView,
    telemetry: Telemetry,
    notifier: Notifier,
    notifications: RunNotifications,
    alert: RunAlert,
    options: RunOptions,
    /// Send lines that the user types during a run to the model.
    pub(crate) steers: bool,
    /// A pause after each displayed step, so that a person can follow.
    pub(crate) pace: Duration,
    /// The next session of this process reuses the input.
    pub(crate) input: TerminalInput,
    signals: InterruptListener,
}

/// Checks flags and settings, so that errors are found before a session is opened.
pub(crate) fn prepare(flags: &RunFlags) -> Result<Prepared, CommandError> {
    let tools = PendingTools::build();
    let root = process::open_workspace(flags.agent.cd.as_deref())?;
    let mut settings = process::load_settings(Some(root.root()))?;
    if ask_about(&settings, root.root())? {
        settings = process::load_settings(Some(root.root()))?;
    }
    Ok(windlass::prepare_with(tools, root, settings, flags)?)
}

/// Prepares a landing, which needs no agent.
pub(crate) fn prepare_landing(cd: Option<&std::path::Path>) -> Result<Prepared, CommandError> {
    let root = process::open_workspace(cd)?;
    let settings = process::load_settings(Some(root.root()))?;
    Ok(windlass::prepare_landing(root, settings))
}

/// Time that `notify.command` has to exit at the end of a run.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a user at a terminal can answer asks.
pub(crate) fn can_answer() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Prints the runtime that `auto` chose, and with `--verbose` the reasons.
fn print_choice(choice: &RuntimeChoice, output: &OutputArgs) {
    if output.quiet {
        return;
    }
    say!("runtime: {}", message(&choice.summary()));
    for reason in choice.reasons().filter(|_| output.verbose) {
        say!("  {}", message(&reason));
    }
}

impl InteractiveSession {
    pub(crate) async fn open(
        ready: Prepared,
        mut request: OpenRequest,
        output: &OutputArgs,
        compaction: Option<Room>,
    ) -> Result<Self, CommandError> {
        for warning in ready.warnings() {
            say!("warning: {}", message(&warning));
        }
        request.can_answer = can_answer();
        let structured = request.flags.agent.json_schema.is_some();
        let opened = ready.open(request).await?;
        let OpenedSession {
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
            say!("warning: using {to} instead of {from} ({reason})");
        }
        if let Some(choice) = &choice {
            print_choice(choice, output);
        }
        let session = Arc::new(session);
        let live = LiveSession::new(session.clone());
        // Without a channel, the run works as before, but other processes cannot reach it.
        let channel = LocalChannel::open(&store, &live).ok();
        let view = RunView::new(output, session.id(), structured, foreign.as_deref());
        options.live = view.wants_live();
        let notifier = Notifier::start(settings.notices.clone());
        let notifications =
            RunNotifications::open(&settings, &notifier, root.root(), Channels::Command);
        let alert = RunAlert::new(&settings, output);
        let mut interactive = Self {
            session,
            live,
            _channel: channel,
            root,
            places: settings.places,
            plans: settings.profile.is_some_and(|profile| profile.plans),
            view,
            telemetry,
            notifier,
            notifications,
            alert,
            options,
            steers: false,
            pace: Duration::ZERO,
            input: TerminalInput::default(),
            signals: InterruptListener::listen()?,
        };
        if let Some(mode) = compaction {
            interactive.compact(mode).await?;
        }
        let first = interactive.session.first_seq();
        // Opening an existing session logs its repairs; a new session logs only that it was created.
        let repaired = first > 1
            && interactive
                .session
                .with_history(|history| history.last_seq())
                >= first;
        let format = output.format();
        if format == OutputFormat::StreamJson || (repaired && format == OutputFormat::Text) {
            interactive.show_opening(store.as_ref()).await?;
        }
        Ok(interactive)
    }

    /// Shows the events that opening the session wrote, so that the stream is the log without a gap.
    async fn show_opening(&mut self, store: &dyn SessionStore) -> Result<(), CommandError> {
        let id = self.session.id().clone();
        let mut events = store.read(&id, self.session.first_seq());
        while let Some(event) = events.next().await {
            self.view.event(&event?);
        }
        Ok(())
    }

    /// Runs a prompt; the outcome is `None` if the run paused on an ask.
    pub(crate) async fn run(&mut self, prompt: Message) -> Result<Option<Outcome>, CommandError> {
        let options = options_for(&self.options, &prompt);
        let handle = self.session.run(prompt, options)?;
        self.follow_new(handle).await
    }

    async fn follow_new(&mut self, handle: RunHandle) -> Result<Option<Outcome>, CommandError> {
        // The new run owns the kept copy now.
        self.options.contract.kept = None;
        self.follow(handle, None).await
    }

    /// Runs the first queued prompt; `None` if the queue is empty.
    pub(crate) async fn run_queued(&mut self) -> Result<Option<Option<Outcome>>, CommandError> {
        let Some(next) = self
            .session
            .with_history(|history| history.queue().first().cloned())
        else {
            return Ok(None);
        };
        self.view
            .remark(&format!("next: {}", first_line(&next.prompt.text(), 100)));
        let options = options_for(&self.options, &next.prompt);
        let Some(handle) = self.session.run_queued(options)? else {
            return Ok(None);
        };
        Ok(Some(self.follow_new(handle).await?))
    }

    /// Answers the ask that a run paused on, and follows the run to its end or to the next ask.
    pub(crate) async fn answer_open(
        &mut self,
        ask: &Ask,
        answer: Answer,
    ) -> Result<Option<Outcome>, CommandError> {
        let options = resume_options(&self.options, &self.session);
        let handle = self.session.answer(&ask.id, answer, options)?;
        self.follow(handle, Some(ask.clone())).await
    }

    /// Resumes the paused run, and follows it to its end or to an ask.
    pub(crate) async fn resume_paused(&mut self) -> Result<Option<Outcome>, CommandError> {
        let options = resume_options(&self.options, &self.session);
        let handle = self.session.resume_paused(options)?;
        self.follow(handle, None).await
    }

    /// Shows the ask that a run paused on; `None` if the user left without an answer.
    pub(crate) async fn ask_open(&mut self, ask: &Ask) -> Option<Answer> {
        self.input.ask(&ask::question(ask));
        loop {
            let line = tokio::select! {
                line = self.input.line() => line?,
                () = self.signals.while_idle() => return None,
            };
            match ask::parse_answer(ask, &line.text).filter(|_| self.input.answers(&line)) {
                Some(answer) => return Some(answer),
                None => self.input.ask_again(),
            }
        }
    }

    /// Compacts the conversation and prints the sizes before and after.
    pub(crate) async fn compact(&mut self, mode: Room) -> Result<(), CommandError> {
        let before = self.session.with_history(|history| history.held());
        match self.session.compact(mode, self.options.budget).await? {
            true => {
                let after = self.session.with_history(|history| history.held());
                self.view.remark(&format!(
                    "compacted the conversation: {before} → {after} bytes"
                ));
            }
            false => self.view.remark("the conversation is too short to compact"),
        }
        Ok(())
    }

    /// Saves the last answer of a completed planning run as a plan.
    pub(crate) fn keep_plan(&mut self, outcome: Option<&Outcome>) -> Result<(), CommandError> {
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
        say!("saved the plan {name} in {}", path.display());
        say!(
            "hint: implement it with `windlass run --profile implement --plan {name}`; you can edit the file before"
        );
        Ok(())
    }

    /// Shows the events of a run until it ends, and passes answers and typed lines to it.
    async fn follow(
        &mut self,
        mut handle: RunHandle,
        answered: Option<Ask>,
    ) -> Result<Option<Outcome>, CommandError> {
        self.signals.watch(Some(handle.canceller()));
        self.live.connect(&handle);
        self.alert.restart();
        let mut ticker = tokio::time::interval(Duration::from_millis(100));
        let ticks = self.view.ticks();
        let mut asking: Option<Ask> = None;
        let mut asked: Vec<Ask> = answered.into_iter().collect();
        let mut finished = None;
        loop {
            tokio::select! {
                biased;
                event = handle.next() => {
                    let Some(event) = event else { break };
                    self.live.show(&event);
                    self.view.event(&event);
                    if !self.pace.is_zero() && is_step(&event.kind) {
                        tokio::time::sleep(self.pace).await;
                    }
                    self.telemetry.event(&event);
                    self.notifications.event(&event);
                    self.alert.event(&event);
                    if out::stdout_error().is_some() {
                        // The answer cannot be printed any more: spend no further step on it.
                        handle.cancel();
                    }
                    match event.kind {
                        EventKind::Asked { ask } if self.options.on_ask == OnAsk::Wait => {
                            self.view.clear_status();
                            self.input.ask(&ask::question(&ask));
                            asked.push(ask.clone());
                            asking = Some(ask);
                        }
                        EventKind::Answered { ask, answer, .. } => {
                            // The answer may have come from another process.
                            asking.take_if(|open| open.id == ask);
                            if let Some(at) = asked.iter().position(|open| open.id == ask) {
                                let open = asked.swap_remove(at);
                                self.remember(&open, &answer);
                            }
                        }
                        // If the store failed, this event is shown without being logged.
                        EventKind::RunFinished(RunSummary { outcome, .. }) => finished = Some(outcome),
                        _ => {}
                    }
                }
                line = self.input.line(), if asking.is_some() || self.steers => match (line, asking.take()) {
                    // `take` first: the next line must not answer this question a second time.
                    (line, Some(ask)) if line.as_ref().is_none_or(|line| self.input.answers(line)) => {
                        self.alert.restart();
                        if !self.answer(&handle, &ask, line.map(|line| line.text)) {
                            asking = Some(ask);
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
        self.live.disconnect();
        self.view.end();
        self.telemetry.flush().await;
        self.notifier.flush(NOTIFY_TIMEOUT).await;
        // If the stream ended without the terminal event, the log has the outcome.
        Ok(finished.or_else(|| {
            self.session
                .with_history(|history| match history.open_run() {
                    Some(_) => None,
                    None => history.last_outcome().cloned(),
                })
        }))
    }

    /// Queues a line that the user typed during a run: for the next step, or with `/next` for the next run.
    async fn steer(&mut self, line: &str) -> Result<(), CommandError> {
        let (text, when) = match line.trim() {
            "" => return Ok(()),
            "/cancel" => {
                self.session.cancel();
                return Ok(());
            }
            line if let Some(command) = crate::prompt_text::slash_command(line)
                && command != "/next" =>
            {
                self.view.remark(&format!(
                    "{command} is not available during a run; /cancel ends the run, /next PROMPT queues a prompt for \
                     after it"
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
            Err(error) => CommandError::from(error).print(),
        }
        Ok(())
    }

    /// Passes a typed line to the run; returns whether it was a valid answer.
    fn answer(&mut self, handle: &RunHandle, ask: &Ask, line: Option<String>) -> bool {
        let answer = match &line {
            // The end of input denies the call.
            None => Some(Answer::No {
                note: Some("the terminal was closed".into()),
            }),
            Some(line) => ask::parse_answer(ask, line),
        };
        match answer {
            // An error means that the ask expired meanwhile: no answer is needed.
            Some(answer) => drop(handle.answer(&ask.id, answer)),
            None => {
                self.input.ask_again();
                return false;
            }
        }
        true
    }

    /// Saves the rule of an answer `always` for later sessions of this workspace.
    fn remember(&self, ask: &Ask, answer: &Answer) {
        let About::Approval(approval) = &ask.about else {
            return;
        };
        let Some(rule) = approval.added_rule(answer) else {
            return;
        };
        let root = windlass::core::workspace::Files::root(self.root.as_ref());
        if let Err(failure) = Settings::remember_rule(&self.places, root, rule) {
            say!(
                "warning: the rule applies to this session only, because it could not be saved: {}",
                message(failure.message())
            );
        }
    }

    /// Reads the next prompt of a chat; `None` at its end. A line that ends in a backslash continues in the next one.
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

/// Returns the exit code of a run. If the run paused, prints the ask to standard output as JSON, and hints.
pub(crate) fn finish(
    outcome: Option<&Outcome>,
    session: &Session,
    format: OutputFormat,
) -> ExitCode {
    if outcome.is_none() && format == OutputFormat::Text {
        for ask in session.pending() {
            let _ = exit::print(&json_line(&PendingAsk {
                ask: ask.clone(),
                session: session.id().clone(),
            }));
            let need = match &ask.about {
                About::Landing(_) => "the changes need your approval to land",
                About::Approval(_) => "the call needs your approval",
                About::Question(_) => "the model asked you a question",
            };
            say!("paused: {need}; session {}", session.id());
            let answer = if matches!(ask.about, About::Question(_)) {
                "YOUR ANSWER"
            } else {
                "yes|no"
            };
            if matches!(ask.about, About::Landing(_)) {
                say!("hint: see the changes with `windlass diff`; `windlass land` lands them, too");
            }
            say!(
                "hint: answer with `windlass answer {} {answer}`, at any time and in any directory",
                ask.id
            );
        }
    }
    exit::after_output(exit::code(outcome))
}

/// Whether `pace` applies to an event.
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

/// Finds a session by `last`, its id, or the beginning of its id.
pub(crate) fn find_session(text: &str) -> Result<SessionId, CommandError> {
    let store = SessionLog::new(process::places()?.sessions_dir());
    let root = process::open_workspace(None).ok();
    block_on(async { Ok(windlass::find_session(&store, root.as_ref(), text).await?) })
}

pub(crate) fn session_id(text: &str) -> Result<SessionId, CommandError> {
    text.parse().map_err(|err: windlass::core::id::IdError| {
        CommandError::usage(err.to_string()).hint("`windlass sessions list` lists the sessions")
    })
}
