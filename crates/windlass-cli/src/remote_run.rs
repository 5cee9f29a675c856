//! Follows a session of a server: passes its events to the view, its asks to the user, and typed lines to the server.

use std::collections::HashSet;
use std::time::Duration;

use windlass::core::ask::{About, Ask};
use windlass::core::event::{Event, EventKind};
use windlass::core::id::{AskId, RunId, SessionId};
use windlass::core::outcome::Outcome;
use windlass::model;
use windlass::sessions::PendingAsk;
use windlass::settings::Settings;
use windlass_client::{Client, PromptRequest, RemoteEvents, SessionStatus, StreamItem};
use windlass_text::sanitize::message;

use crate::args::{OutputArgs, OutputFormat};
use crate::command_error::CommandError;
use crate::commands::attach::refusal_of;
use crate::exit;
use crate::out::{self, say};
use crate::process;
use crate::sanitize::json_line;
use crate::session_run::{InterruptListener, RunAlert, TerminalInput, can_answer};
use crate::view::{RunView, ask};

/// The reason why following a session ended.
pub(crate) enum RemoteEnd {
    Finished(Outcome),
    /// The session has no run to follow.
    NoRun,
    /// The user left, and the run continues.
    Detached,
    /// The run waits for an answer, and no user is here to give it.
    Asked(Box<Ask>),
}

/// A session of a server with its view and its terminal.
pub(crate) struct RemoteRun {
    client: Client,
    session: SessionId,
    view: RunView,
    alert: RunAlert,
    input: TerminalInput,
    signals: InterruptListener,
    /// Send typed lines to the server.
    steers: bool,
    /// Print remarks for people besides the output of the view.
    remarks: bool,
    format: OutputFormat,
    /// End at an ask, because the run pauses there.
    pub(crate) pauses: bool,
    /// The options of prompts that the user types with `/next`.
    pub(crate) options: serde_json::Value,
    asking: Option<Ask>,
}

/// The run that is followed.
enum Followed {
    /// The run of the prompt with this number, once it has begun.
    Prompt(u64, Option<RunId>),
    /// All runs until the session has no work left.
    All,
}

impl RemoteRun {
    pub(crate) fn new(
        client: Client,
        session: SessionId,
        settings: &Settings,
        output: &OutputArgs,
        structured: bool,
    ) -> Result<Self, CommandError> {
        let view = RunView::new(output, &session, structured, None);
        Ok(Self {
            client,
            view,
            alert: RunAlert::new(settings, output),
            input: TerminalInput::default(),
            signals: InterruptListener::listen()?,
            steers: can_answer(),
            remarks: output.format() == OutputFormat::Text && !output.quiet,
            format: output.format(),
            pauses: false,
            options: serde_json::Value::Null,
            asking: None,
            session,
        })
    }

    /// Shows the last run of a session, and follows it until the session has no work left.
    pub(crate) async fn attach(
        &mut self,
        state: &SessionStatus,
    ) -> Result<RemoteEnd, CommandError> {
        if self.remarks {
            say!(
                "session {} in {} · {} · Ctrl-C detaches, /cancel ends the run",
                self.session,
                message(&state.workspace),
                state.state
            );
        }
        let mut events = self.client.events(&self.session, 0);
        let mut last_run = Vec::new();
        let mut seq = 0;
        while seq < state.last_seq {
            let item = tokio::select! {
                item = events.next() => item,
                () = self.signals.while_idle() => return Ok(self.detach()),
            };
            let Some(item) = item else { break };
            let StreamItem::Event(event) = item? else {
                continue;
            };
            seq = event.order.seq().unwrap_or(seq);
            if self.format == OutputFormat::StreamJson {
                self.view.event(&event);
            } else if matches!(event.kind, EventKind::RunStarted { .. }) {
                last_run.clear();
            }
            last_run.push(event);
        }
        let answered: HashSet<AskId> = last_run
            .iter()
            .filter_map(|event| answered(event))
            .collect();
        let mut outcome = None;
        for event in last_run {
            if self.format != OutputFormat::StreamJson {
                self.view.event(&event);
            }
            match event.kind {
                EventKind::Asked { ask } if !answered.contains(&ask.id) => self.ask(ask),
                EventKind::RunFinished(summary) => outcome = Some(summary.outcome),
                _ => {}
            }
        }
        if !state.has_work() {
            self.view.end();
            return Ok(outcome.map_or(RemoteEnd::NoRun, RemoteEnd::Finished));
        }
        self.follow(events, Followed::All).await
    }

    /// Follows the run of a queued prompt to its end.
    pub(crate) async fn follow_prompt(&mut self, queued: u64) -> Result<RemoteEnd, CommandError> {
        let events = self.client.events(&self.session, queued.saturating_sub(1));
        self.follow(events, Followed::Prompt(queued, None)).await
    }

    async fn follow(
        &mut self,
        mut events: RemoteEvents,
        mut followed: Followed,
    ) -> Result<RemoteEnd, CommandError> {
        let mut ticker = tokio::time::interval(Duration::from_millis(100));
        let ticks = self.view.ticks();
        self.alert.restart();
        let end = loop {
            tokio::select! {
                biased;
                item = events.next() => match item {
                    Some(Ok(StreamItem::Event(event))) => {
                        self.view.event(&event);
                        self.alert.event(&event);
                        if out::stdout_error().is_some() {
                            break self.detach();
                        }
                        if let Some(end) = self.apply(*event, &mut followed).await? {
                            break end;
                        }
                    }
                    Some(Ok(StreamItem::Gap { .. })) => {}
                    Some(Err(err)) => {
                        self.view.end();
                        return Err(CommandError::from(err).hint(self.attach_hint()));
                    }
                    None => break self.detach(),
                },
                () = self.signals.while_idle() => break self.detach(),
                line = self.input.line(), if self.asking.is_some() || self.steers => {
                    self.alert.restart();
                    match line {
                        Some(line) => {
                            let answers = self.input.answers(&line);
                            if let Err(error) = self.typed(line.text, answers).await {
                                error.print();
                            }
                        }
                        // The end of input: the run goes on for other clients.
                        None => break self.detach(),
                    }
                }
                _ = ticker.tick(), if ticks && self.asking.is_none() => self.view.tick(),
            }
        };
        self.input.discard_type_ahead();
        self.view.end();
        Ok(end)
    }

    /// Follows what an event means. Returns the end if there is nothing left to follow.
    async fn apply(
        &mut self,
        event: Event,
        followed: &mut Followed,
    ) -> Result<Option<RemoteEnd>, CommandError> {
        if let Followed::Prompt(queued, None) = followed
            && let Some(why) = refusal_of(&event.kind, *queued)
        {
            return Err(CommandError::usage(why.to_owned()));
        }
        match event.kind {
            EventKind::RunStarted { queued, .. } => {
                if let Followed::Prompt(own, run) = followed
                    && queued == Some(*own)
                {
                    *run = event.run;
                }
            }
            EventKind::Asked { ask } if self.pauses => {
                return Ok(Some(RemoteEnd::Asked(Box::new(ask))));
            }
            EventKind::Asked { ask } => self.ask(ask),
            EventKind::Answered { ask, .. } => {
                // The answer may have come from another client.
                self.asking.take_if(|open| open.id == ask);
            }
            EventKind::RunFinished(summary) => {
                let ends = match followed {
                    Followed::Prompt(_, run) => *run == event.run,
                    Followed::All => !self.client.session(&self.session).await?.has_work(),
                };
                if ends {
                    return Ok(Some(RemoteEnd::Finished(summary.outcome)));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn ask(&mut self, ask: Ask) {
        if self.steers {
            self.view.clear_status();
            self.input.ask(&ask::question(&ask));
            self.asking = Some(ask);
        }
    }

    fn detach(&mut self) -> RemoteEnd {
        if self.remarks {
            self.view.clear_status();
            say!("\ndetached; the session continues on the server");
            say!("hint: {}", self.attach_hint());
        }
        RemoteEnd::Detached
    }

    fn attach_hint(&self) -> String {
        format!(
            "`windlass attach {} {}` follows it again",
            self.client.url(),
            self.session
        )
    }

    /// Sends a typed line: the answer to the open ask, a command, or a message to the run.
    async fn typed(&mut self, line: String, answers: bool) -> Result<(), CommandError> {
        if line.trim() == "/cancel" {
            return Ok(self.client.cancel(&self.session).await?);
        }
        if answers && let Some(open) = self.asking.take() {
            let Some(answer) = ask::parse_answer(&open, &line) else {
                self.input.ask_again();
                self.asking = Some(open);
                return Ok(());
            };
            return Ok(self.client.answer(&self.session, &open.id, &answer).await?);
        }
        match line.trim() {
            "" => Ok(()),
            line if let Some(text) = line.strip_prefix("/next ") => {
                let prompt = PromptRequest {
                    options: self.options.clone(),
                    ..prompt(text.trim())?
                };
                Ok(self.client.queue(&self.session, &prompt).await.map(drop)?)
            }
            line if let Some(command) = crate::prompt_text::slash_command(line) => {
                self.view.remark(&format!(
                    "{command} is not available during a run; /cancel ends the run, /next PROMPT queues a prompt for \
                     after it"
                ));
                Ok(())
            }
            line => Ok(self.client.steer(&self.session, &prompt(line)?).await?),
        }
    }

    /// Prints the ask at which a run paused, for programs, and hints.
    pub(crate) fn print_pause(&self, ask: &Ask) {
        let pending = PendingAsk {
            ask: ask.clone(),
            session: self.session.clone(),
        };
        let _ = exit::print(&json_line(&pending));
        let need = match &ask.about {
            About::Landing(_) => "the changes need your approval to land",
            About::Approval(_) => "the call needs your approval",
            About::Question(_) => "the model asked you a question",
        };
        say!("paused: {need}; session {}", self.session);
        say!(
            "hint: answer at a terminal with `windlass attach {} {}`",
            self.client.url(),
            self.session
        );
    }
}

fn answered(event: &Event) -> Option<AskId> {
    match &event.kind {
        EventKind::Answered { ask, .. } => Some(ask.clone()),
        _ => None,
    }
}

/// A prompt with the files that it names as `@path`, if the current directory is a workspace.
fn prompt(text: &str) -> Result<PromptRequest, CommandError> {
    Ok(match process::open_workspace(None) {
        Ok(root) => PromptRequest::of(&model::attach(text.to_owned(), &root, &process::notices())?),
        Err(_) => PromptRequest {
            prompt: text.to_owned(),
            ..PromptRequest::default()
        },
    })
}
