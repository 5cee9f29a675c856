//! Operations that run beside the interface, and their results.

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::core::ask::Ask;
use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass_text::StyledLine;

use super::feed::EventPump;
use super::panels::{Panel, PickedItem};
use super::setup::SetupFacts;
use super::{App, SessionChoice, reports};
use crate::backend::{Backend, EventSource, OperationError};
use crate::composer::ListPicker;
use crate::shell::ShellOutput;

/// Events of an existing session that are shown when it is opened.
const SHOWN_EVENTS: u64 = 400;

/// A session that was created.
#[derive(Debug, Deserialize)]
pub(super) struct NewSession {
    pub(super) id: SessionId,
}

/// A page of events.
#[derive(Debug, Deserialize)]
pub(super) struct EventPage {
    pub(super) events: Vec<Event>,
    last_seq: u64,
}

/// The beginning of a followed session.
pub(super) struct Followed {
    session: SessionId,
    detail: Value,
    /// The latest events, the oldest first.
    events: Vec<Event>,
    source: EventSource,
}

/// The result of an operation.
pub(super) enum TaskResult {
    Opened(Result<Backend, OperationError>),
    Created {
        created: Result<NewSession, OperationError>,
        text: String,
    },
    Sent {
        sent: Result<(), OperationError>,
        text: String,
    },
    Followed(Box<Result<Followed, OperationError>>),
    /// The answer to an ask; with an error, the ask if it is still open.
    Answered(Result<(), (OperationError, Option<Box<Ask>>)>),
    Done {
        done: Result<(), OperationError>,
        message: &'static str,
    },
    /// Lines for the conversation.
    Lines(Result<Vec<StyledLine>, OperationError>),
    /// A list to choose from.
    Pick(Result<ListPicker<PickedItem>, OperationError>),
    /// The session that was forked.
    Forked(Result<NewSession, OperationError>),
    /// The copy of the session up to an earlier prompt, and the files that were restored.
    Rewound {
        lines: Vec<StyledLine>,
        forked: Result<NewSession, OperationError>,
    },
    Window(Option<u64>),
    /// The findings for the set-up, and whether the user asked for them.
    Setup {
        facts: Result<SetupFacts, OperationError>,
        asked: bool,
    },
    /// The settings that a choice of the set-up changed.
    SetUp(Result<Value, OperationError>),
    Shell {
        command: String,
        output: ShellOutput,
    },
}

impl App {
    /// Runs an operation beside the interface.
    pub(super) fn spawn(&self, work: impl Future<Output = TaskResult> + Send + 'static) {
        let results = self.results.clone();
        tokio::spawn(async move {
            // The interface ended: nobody needs the result.
            let _ = results.send(work.await).await;
        });
    }

    /// Calls an operation for its effect. The message tells the user that it succeeded.
    pub(super) fn operate(&mut self, name: &'static str, params: Value, message: &'static str) {
        let Some(backend) = self.backend.clone() else {
            self.warn("the sessions are not open yet");
            return;
        };
        self.spawn(async move {
            let done = backend.call::<Value>(name, params).await.map(drop);
            TaskResult::Done { done, message }
        });
    }

    /// Calls an operation and shows its result as lines.
    pub(super) fn report(
        &mut self,
        name: &'static str,
        params: Value,
        show: impl FnOnce(Value) -> Vec<StyledLine> + Send + 'static,
    ) {
        let Some(backend) = self.backend.clone() else {
            self.warn("the sessions are not open yet");
            return;
        };
        self.spawn(async move { TaskResult::Lines(backend.call(name, params).await.map(show)) });
    }

    /// Calls an operation and lets the user choose from its result.
    pub(super) fn pick(
        &mut self,
        name: &'static str,
        params: Value,
        list: impl FnOnce(Value) -> ListPicker<PickedItem> + Send + 'static,
    ) {
        let Some(backend) = self.backend.clone() else {
            self.warn("the sessions are not open yet");
            return;
        };
        self.spawn(async move { TaskResult::Pick(backend.call(name, params).await.map(list)) });
    }

    /// Applies the result of an operation.
    pub(super) fn finished(&mut self, result: TaskResult) {
        self.dirty = true;
        match result {
            TaskResult::Opened(Ok(backend)) => self.opened(backend),
            TaskResult::Opened(Err(error)) => self.say(reports::error(&error)),
            TaskResult::Created { created, text } => self.created(created, &text),
            TaskResult::Sent { sent: Ok(()), .. } => {}
            TaskResult::Sent {
                sent: Err(error),
                text,
            } => self.give_back(&error, &text),
            TaskResult::Followed(followed) => match *followed {
                Ok(followed) => self.followed(followed),
                Err(error) => self.say(reports::error(&error)),
            },
            TaskResult::Answered(Ok(())) => {}
            TaskResult::Answered(Err((error, ask))) => {
                self.say(reports::error(&error));
                if let Some(ask) = ask
                    && !self.conversation.asks.iter().any(|open| open.id == ask.id)
                {
                    self.conversation.asks.insert(0, *ask);
                    self.show_asks();
                }
            }
            TaskResult::Done {
                done: Ok(()),
                message,
            } => {
                if !message.is_empty() {
                    self.notice = Some(reports::remark(message));
                }
            }
            TaskResult::Done {
                done: Err(error), ..
            }
            | TaskResult::Lines(Err(error))
            | TaskResult::Pick(Err(error))
            | TaskResult::SetUp(Err(error))
            | TaskResult::Forked(Err(error)) => self.say(reports::error(&error)),
            TaskResult::Lines(Ok(lines)) => self.say(lines),
            TaskResult::Pick(Ok(picker)) => self.panel = Some(Panel::Picker(Box::new(picker))),
            TaskResult::Forked(Ok(forked)) => self.forked(forked),
            TaskResult::Rewound { lines, forked } => {
                if !lines.is_empty() {
                    self.say(lines);
                }
                match forked {
                    Ok(forked) => self.forked(forked),
                    Err(error) => self.say(reports::error(&error)),
                }
            }
            TaskResult::Setup { facts, asked } => self.show_setup(facts, asked),
            TaskResult::SetUp(Ok(change)) => self.was_set_up(&change),
            TaskResult::Window(window) => self.facts.window = window,
            TaskResult::Shell { command, output } => self.say(reports::shell(&command, &output)),
        }
    }

    fn forked(&mut self, forked: NewSession) {
        let text = format!("continuing in the new session {}", forked.id);
        self.say(vec![reports::remark(&text)]);
        self.follow(forked.id);
    }

    fn opened(&mut self, backend: Backend) {
        self.backend = Some(backend);
        if let SessionChoice::Existing(session) = self.options.session.clone() {
            self.creating = true;
            self.follow(session);
        } else {
            self.send_early();
        }
        if self.options.offer_setup {
            self.open_setup(false);
        }
    }

    fn created(&mut self, created: Result<NewSession, OperationError>, text: &str) {
        self.creating = false;
        match created {
            Ok(new) => self.follow(new.id),
            Err(error) => self.give_back(&error, text),
        }
    }

    /// Shows an error, and puts the text that could not be sent into the composer again.
    fn give_back(&mut self, error: &OperationError, text: &str) {
        self.say(reports::error(error));
        if self.composer.is_empty() {
            self.composer.set_text(text);
        }
    }

    /// Shows another session from now on.
    pub(super) fn follow(&mut self, session: SessionId) {
        let Some(backend) = self.backend.clone() else {
            return;
        };
        self.feed = None;
        self.session = Some(session.clone());
        self.spawn(async move {
            TaskResult::Followed(Box::new(begin_to_follow(&backend, session).await))
        });
    }

    fn followed(&mut self, followed: Followed) {
        // The user may have chosen another session meanwhile.
        if self.session.as_ref() != Some(&followed.session) {
            return;
        }
        let mut conversation = crate::conversation::Conversation::new(self.screen.columns());
        conversation.take_over_remarks(&mut self.conversation);
        self.conversation = conversation;
        if !self.options.run_options.contains_key("in_place") {
            let in_place = followed.detail["isolation"] == "in_place";
            self.facts.set_in_place(in_place);
        }
        let state = reports::SessionFacts::of(&followed.detail);
        self.conversation.begin(state);
        for event in &followed.events {
            self.conversation.apply(event);
        }
        self.feed = Some(EventPump::start(followed.source));
        self.screen
            .set_title(&reports::title(&self.options.workspace));
        self.creating = false;
        self.show_asks();
        self.read_window();
        self.send_early();
    }

    /// Asks for the context window of the model.
    pub(super) fn read_window(&mut self) {
        let Some(backend) = self.backend.clone() else {
            return;
        };
        let params = self.of_session(json!({}));
        self.spawn(async move {
            let report = backend.call::<Value>("context.get", params).await;
            TaskResult::Window(report.ok().and_then(|report| report["window"].as_u64()))
        });
    }
}

/// Reads the state and the latest events of a session, and follows it from there.
async fn begin_to_follow(
    backend: &Backend,
    session: SessionId,
) -> Result<Followed, OperationError> {
    let detail: Value = backend
        .call("sessions.get", json!({ "session": session }))
        .await?;
    let last = detail["last_seq"].as_u64().unwrap_or(0);
    let after = last.saturating_sub(SHOWN_EVENTS);
    let params = json!({ "session": session, "after": after, "limit": SHOWN_EVENTS });
    let page: EventPage = backend.call("events.list", params).await?;
    // The stream continues after the last event of the page, so that nothing is lost between the two.
    let source = backend.events(&session, page.last_seq).await?;
    Ok(Followed {
        session,
        detail,
        events: page.events,
        source,
    })
}
