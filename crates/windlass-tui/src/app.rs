//! The interface: it waits for keys, events and finished operations, applies them to the state, and draws.
//!
//! - `keys`: the meaning of keys outside of the composer
//! - `feed`: the events of the session, in batches
//! - `prompts`: prompts, steering and answers
//! - `commands`: the commands after `/`
//! - `reports`: results of commands as lines
//! - `setup`: the choices of a new user
//! - `live_area`: the rows below the finished lines
//! - `timeline`: the state after any event
//! - `tasks`: operations that run beside the interface

mod commands;
mod feed;
mod keys;
mod live_area;
mod panels;
mod prompts;
mod reports;
mod setup;
mod tasks;
mod timeline;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass::notifications::TerminalAlert;
use windlass_text::{ColorTheme, StyledLine};

pub(crate) use self::live_area::FullView;
pub(crate) use self::reports::SessionFacts;

use self::feed::{Batch, EventPump};
use self::panels::Panel;
use self::tasks::TaskResult;
use crate::backend::{Backend, EventSource, OperationError};
use crate::composer::{Composer, ComposerOptions};
use crate::conversation::Conversation;
use crate::full_screen::FullScreen;
use crate::screen::{DisplayMode, Screen, ScreenOptions};
use crate::shell::UserShell;
use crate::status_line::StatusFacts;
use crate::terminal::input::{TerminalEvent, TerminalEvents};
use crate::terminal::notify::TaskProgress;
use crate::terminal::session::TerminalRestorer;

/// The shortest time between two frames that no key caused.
const FRAME: Duration = Duration::from_millis(16);
/// The pause between two looks at the index of files, while it grows and its list is open.
const INDEX_POLL: Duration = Duration::from_millis(50);
/// Results of operations that wait.
const RESULTS: usize = 64;

/// The session that the interface opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new session, which is created with the first prompt.
    New,
    Existing(SessionId),
}

/// Turns the text of a prompt into the parameters of an operation, with the files that it names.
pub type AttachFiles = Box<dyn Fn(String) -> Result<Map<String, Value>, OperationError> + Send>;

/// Options of the interface.
pub struct TuiOptions {
    /// The directory of the workspace.
    pub workspace: PathBuf,
    /// The directory for the history of prompts and for drafts.
    pub state_dir: PathBuf,
    pub session: SessionChoice,
    /// Options of runs, as the operation `runs.create` takes them.
    pub run_options: Map<String, Value>,
    /// Facts that are shown before the first event.
    pub facts: StatusFacts,
    pub display: DisplayMode,
    pub theme: ColorTheme,
    pub vi_mode: bool,
    /// Draw no changes that only time causes.
    pub reduced_motion: bool,
    /// The environment of the process, for the properties of the terminal.
    pub environment: Vec<(String, String)>,
    /// Opens the sessions. The first frame does not wait for it.
    pub opening: BoxFuture<'static, Result<Backend, OperationError>>,
    /// Reads the files that a prompt names, and returns the parameters of the prompt.
    pub attach: AttachFiles,
    /// Warnings and progress that belong to no session.
    pub notices: mpsc::Receiver<String>,
    /// A text that is shown first, for example when no model is set up.
    pub greeting: Vec<StyledLine>,
    /// Calls the user back; `None` if the settings turn that off.
    pub alert: Option<TerminalAlert>,
    /// Shows these events of a recorded session instead of opening one. Nothing can be sent.
    pub recording: Option<mpsc::Receiver<Box<Event>>>,
    /// Receives a handle that restores the terminal, for the panic hook of the process.
    pub on_open: Box<dyn FnOnce(TerminalRestorer)>,
    /// A prompt that is submitted at once.
    pub first_prompt: Option<String>,
    /// Offer the set-up if no model is usable. The first frame does not wait for it.
    pub offer_setup: bool,
}

/// The result of the interface.
#[derive(Debug, Clone, Default)]
pub struct TuiEnd {
    /// The session that was shown last.
    pub session: Option<SessionId>,
    /// A run is still in progress, in another process or on a server.
    pub run_goes_on: bool,
    /// The user wants to watch the demo, which needs the terminal.
    pub run_demo: bool,
}

/// The state of the interface.
struct App {
    options: TuiOptions,
    backend: Option<Backend>,
    /// Prompts that were submitted before the backend was open.
    early: Vec<crate::composer::Submission>,
    session: Option<SessionId>,
    /// A session is being created: further prompts wait for it.
    creating: bool,
    is_recording: bool,
    conversation: Conversation,
    composer: Composer,
    panel: Option<Panel>,
    screen: Screen,
    full: Option<FullScreen>,
    facts: StatusFacts,
    feed: Option<EventPump>,
    results: mpsc::Sender<TaskResult>,
    shell: UserShell,
    /// A message below the composer until the next key.
    notice: Option<StyledLine>,
    /// The next Enter queues the prompt for after the run instead of sending it to the run.
    queues: bool,
    /// The time of the last Esc, for Esc Esc.
    last_esc: Option<Instant>,
    /// The time of the last Ctrl-C without text, which has to be repeated to quit.
    last_interrupt: Option<Instant>,
    last_key_ms: i64,
    dirty: bool,
    quit: bool,
    run_demo: bool,
    /// Whether the window has the focus, if the terminal reports it.
    focus: Option<bool>,
}

/// Runs the interface until the user leaves it.
pub async fn run(options: TuiOptions) -> io::Result<TuiEnd> {
    let (results, mut finished) = mpsc::channel(RESULTS);
    let screen = Screen::open(ScreenOptions {
        theme: options.theme.clone(),
        environment: options.environment.clone(),
        display: options.display,
    })?;
    let mut options = options;
    let on_open = std::mem::replace(&mut options.on_open, Box::new(|_| ()));
    on_open(screen.restorer());
    let mut app = App::new(options, screen, results);
    let mut signals = EndSignals::listen()?;
    app.start();
    app.draw()?;
    let mut input = Some(TerminalEvents::new());
    let mut last_frame = Instant::now();
    while !app.quit {
        let next_frame = app.dirty.then(|| last_frame + FRAME);
        let wake = [
            next_frame,
            app.next_second(),
            app.next_index_poll(),
            app.screen.settles_at(),
        ];
        let wake = wake.into_iter().flatten().min();
        tokio::select! {
            biased;
            () = signals.next() => app.quit = true,
            event = next_event(&mut input) => match event {
                Some(Ok(event)) => {
                    app.input(event, &mut input).await?;
                    // A key draws at once.
                    app.draw()?;
                    last_frame = Instant::now();
                }
                // The terminal is gone.
                Some(Err(_)) | None => app.quit = true,
            },
            Some(result) = finished.recv() => app.finished(result),
            Some(text) = app.options.notices.recv() => app.warn(text),
            batch = feed::next_batch(&mut app.feed) => app.batch(batch),
            () = sleep_until(wake) => app.woke(),
        }
        if app.dirty && last_frame.elapsed() >= FRAME {
            app.draw()?;
            last_frame = Instant::now();
        }
    }
    app.close().await
}

async fn next_event(input: &mut Option<TerminalEvents>) -> Option<io::Result<TerminalEvent>> {
    match input {
        Some(input) => input.next().await,
        None => None,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The signals that end the interface.
struct EndSignals {
    terminate: Signal,
    hang_up: Signal,
}

impl EndSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

impl App {
    fn new(mut options: TuiOptions, screen: Screen, results: mpsc::Sender<TaskResult>) -> Self {
        let composer = Composer::new(ComposerOptions {
            placeholder: "ask for a change, or type / for commands".to_owned(),
            vi_mode: options.vi_mode,
            commands: commands::slash_commands(),
            ..prompts::composer_parts(&options)
        });
        let mut conversation = Conversation::new(screen.columns());
        conversation.remark(std::mem::take(&mut options.greeting));
        let own_shell = options.environment.iter().find(|(name, _)| name == "SHELL");
        let own_shell = own_shell.map(|(_, shell)| shell.as_str());
        let shell = UserShell::new(&options.workspace, own_shell);
        Self {
            facts: options.facts.clone(),
            backend: None,
            early: Vec::new(),
            session: None,
            creating: false,
            is_recording: false,
            conversation,
            composer,
            panel: None,
            full: None,
            feed: None,
            results,
            shell,
            notice: None,
            queues: false,
            last_esc: None,
            last_interrupt: None,
            last_key_ms: 0,
            dirty: true,
            quit: false,
            run_demo: false,
            focus: None,
            screen,
            options,
        }
    }

    /// Opens the backend beside the interface, and restores the draft.
    fn start(&mut self) {
        match self.options.recording.take() {
            Some(events) => {
                self.is_recording = true;
                self.feed = Some(EventPump::start(EventSource::Recorded(events)));
            }
            None => {
                let pending = Box::pin(std::future::pending());
                let opening = std::mem::replace(&mut self.options.opening, pending);
                self.spawn(async move { TaskResult::Opened(opening.await) });
            }
        }
        if let Err(err) = self.composer.restore_draft() {
            self.warn(format!("the draft cannot be read: {err}"));
        }
        self.facts.branch = reports::branch(&self.options.workspace);
        if self.options.display == DisplayMode::Full {
            self.show_full_screen();
        }
        if let Some(prompt) = self.options.first_prompt.take() {
            self.submit_prompt(&prompt);
        }
    }

    fn next_second(&self) -> Option<Instant> {
        let runs = self
            .conversation
            .run
            .as_ref()
            .is_some_and(|run| !run.paused);
        let moves = runs && !self.options.reduced_motion && self.screen.shows_time();
        let arms = self
            .panel
            .as_ref()
            .is_some_and(|panel| panel.waits_to_arm(now_ms()));
        match (moves, arms) {
            (_, true) => Some(Instant::now() + Duration::from_millis(100)),
            (true, false) => {
                let part = now_ms().rem_euclid(1_000).unsigned_abs();
                Some(Instant::now() + Duration::from_millis(1_000 - part))
            }
            (false, false) if self.composer.draft_changed() => {
                Some(Instant::now() + Duration::from_millis(500))
            }
            (false, false) => None,
        }
    }

    fn next_index_poll(&self) -> Option<Instant> {
        let waits = self.composer.is_indexing() && self.composer.has_popup();
        waits.then(|| Instant::now() + INDEX_POLL)
    }

    fn woke(&mut self) {
        let moves = self.conversation.run.is_some()
            || self.panel.is_some()
            || self.screen.settles_at().is_some();
        if self.composer.poll_files() || moves {
            self.dirty = true;
        }
        if let Err(err) = self.composer.save_draft(Instant::now()) {
            self.warn(format!("the draft cannot be saved: {err}"));
        }
    }

    async fn input(
        &mut self,
        event: TerminalEvent,
        input: &mut Option<TerminalEvents>,
    ) -> io::Result<()> {
        self.dirty = true;
        match event {
            TerminalEvent::Key(key) => {
                self.notice = None;
                self.key(key, input).await?;
            }
            TerminalEvent::Paste(pasted) => self.paste(pasted),
            TerminalEvent::Resize(_) => {
                self.screen.resize_reported();
                self.conversation.set_columns(self.screen.columns());
            }
            TerminalEvent::Focus(focus) => self.focus = Some(focus),
            TerminalEvent::Mouse(event) => {
                let selected = self.full.as_mut().and_then(|full| full.mouse(event));
                if let Some(text) = selected {
                    self.copy(&text);
                }
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: Batch) {
        self.dirty = true;
        self.apply(batch);
    }

    fn draw(&mut self) -> io::Result<()> {
        self.dirty = false;
        let now = now_ms();
        self.show_progress();
        let finished = self.conversation.take_finished();
        match &mut self.full {
            Some(full) => {
                self.screen.hold(finished);
                let view = live_area::FullView {
                    conversation: &self.conversation,
                    composer: &mut self.composer,
                    panel: self.panel.as_mut(),
                    facts: &self.facts,
                    notice: self.notice.as_ref(),
                    now_ms: now,
                };
                full.draw(view)?;
            }
            None => {
                self.screen.commit(finished)?;
                let live = self.live_area(now);
                self.screen.draw(&live)?;
            }
        }
        if let Some(panel) = &mut self.panel {
            panel.was_shown(now);
        }
        Ok(())
    }

    fn show_progress(&mut self) {
        let progress = match &self.conversation.run {
            Some(_) if !self.conversation.asks.is_empty() => TaskProgress::Paused,
            Some(run) if !run.paused => TaskProgress::Unknown,
            _ => TaskProgress::Hidden,
        };
        self.screen.set_progress(progress);
    }

    fn warn(&mut self, text: impl AsRef<str>) {
        self.notice = Some(reports::warning(text.as_ref()));
        self.dirty = true;
    }

    fn say(&mut self, lines: Vec<StyledLine>) {
        self.conversation.remark(lines);
        self.dirty = true;
    }

    /// Ends the interface: pauses runs of this process at a safe point, and restores the terminal.
    async fn close(mut self) -> io::Result<TuiEnd> {
        let _ = self.composer.flush_draft(Instant::now());
        if self.full.take().is_some() {
            self.screen.leave_full_screen()?;
        }
        let finished = self.conversation.take_finished();
        self.screen.commit(finished)?;
        self.screen.finish()?;
        let runs = self.conversation.run.is_some();
        if let Some(Backend::Local(service)) = &self.backend {
            if runs {
                let mut out = io::stderr();
                let _ = writeln!(out, "pausing the run at its next safe point…");
            }
            service.close().await;
        }
        self.shell.close();
        Ok(TuiEnd {
            session: self.session,
            run_goes_on: runs,
            run_demo: self.run_demo,
        })
    }

    /// The parameters of an operation on the current session.
    fn of_session(&self, more: Value) -> Value {
        let mut params = json!({ "session": self.session });
        if let (Value::Object(params), Value::Object(more)) = (&mut params, more) {
            params.extend(more);
        }
        params
    }
}

/// The wall-clock time in milliseconds since the epoch, as events have it.
fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
}
