//! Runs one task in a new session and returns its result as one value. This is a convenience on top of [`Engine::open`] and
//! the methods of a session.

use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::Spent;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{AskId, RunId, SessionId};
use windlass_core::message::{Message, Role};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::runtime::RunMode;
use windlass_core::workspace::{FileChange, Landed};

use crate::pending_asks::OnAsk;
use crate::run::{RunHandle, RunOptions};
use crate::session::{Engine, EngineError, OpenSession};

/// One task: the prompt and the options.
#[derive(Debug, Clone)]
pub struct Request {
    /// The text and its attachments.
    pub prompt: Message,
    pub mode: RunMode,
    pub options: RunOptions,
    /// Return an error if a limit is reached, instead of an outcome.
    pub raise_on_budget_exceeded: bool,
}

impl Request {
    /// A prompt with default options.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: Message::user(prompt),
            mode: RunMode::default(),
            options: RunOptions::default(),
            raise_on_budget_exceeded: false,
        }
    }
}

/// The result of a run, or its open asks if it is paused.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    pub session: SessionId,
    pub run: RunId,
    /// The outcome and the totals; `None` while the run waits for a person.
    pub summary: Option<RunSummary>,
    /// Open asks: [`Engine::answer`] answers one and resumes the run.
    pub asks: Vec<Ask>,
    /// The last message of the agent that is not empty.
    pub text: String,
    pub landed: Option<Landed>,
}

impl RunResult {
    /// The outcome; `None` while the run waits for a person.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.summary.as_ref().map(|summary| &summary.outcome)
    }

    /// The amounts spent; zero while the run waits for a person.
    #[must_use]
    pub fn totals(&self) -> Spent {
        self.summary
            .as_ref()
            .map_or_else(Spent::default, |summary| summary.totals)
    }

    /// The changed files; empty while the run waits for a person.
    #[must_use]
    pub fn files(&self) -> &[FileChange] {
        self.summary.as_ref().map_or(&[], |summary| &summary.files)
    }
}

/// Folds the events of one run into its result.
#[derive(Debug, Clone)]
pub struct ResultFold(RunResult);

impl ResultFold {
    /// The state before the first event.
    #[must_use]
    pub fn new(session: SessionId, run: RunId) -> Self {
        let (asks, text) = (Vec::new(), String::new());
        Self(RunResult {
            session,
            run,
            summary: None,
            asks,
            text,
            landed: None,
        })
    }

    /// Adds the next event of the run.
    pub fn apply(&mut self, event: &Event) {
        let result = &mut self.0;
        match &event.kind {
            EventKind::Asked { ask } => result.asks.push(ask.clone()),
            EventKind::Answered { ask, .. } => result.asks.retain(|open| open.id != *ask),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                let text = message.text();
                if !text.trim().is_empty() {
                    result.text = text;
                }
            }
            EventKind::Landed { landed, .. } => result.landed = Some(landed.clone()),
            EventKind::RunFinished(summary) => {
                result.asks.clear();
                result.summary = Some(summary.clone());
            }
            _ => {}
        }
    }

    /// Returns the result of the events so far.
    #[must_use]
    pub fn finish(self) -> RunResult {
        self.0
    }
}

/// The options for resuming a paused run. Pass those that the run was started with.
#[derive(Debug, Clone, Default)]
pub struct AnswerRequest {
    pub mode: RunMode,
    /// The budget is that of the whole run, including the amounts already spent.
    pub options: RunOptions,
}

/// Options for a run whose caller sees no event before its end: no answer can arrive, so the run pauses instead of waiting.
fn pause_on_asks(options: RunOptions) -> RunOptions {
    let on_ask = if options.on_ask == OnAsk::Wait {
        OnAsk::Pause
    } else {
        options.on_ask
    };
    RunOptions { on_ask, ..options }
}

async fn read_to_end(session: SessionId, mut run: RunHandle) -> RunResult {
    let mut fold = ResultFold::new(session, run.id().clone());
    while let Some(event) = run.next().await {
        fold.apply(&event);
    }
    fold.finish()
}

impl Engine {
    /// Runs one task in a new session, until it ends or pauses on an ask. No caller could answer meanwhile, so
    /// [`OnAsk::Wait`] is treated as [`OnAsk::Pause`].
    pub async fn execute(&self, mut request: Request) -> Result<RunResult, EngineError> {
        request.options = pause_on_asks(request.options);
        let raise = request.raise_on_budget_exceeded;
        let (session, run) = self.start(request).await?;
        let result = read_to_end(session, run).await;
        match result.outcome() {
            Some(Outcome::CompletedWithLimitExceeded { .. }) | None => Ok(result),
            Some(outcome) => match outcome.exceeded() {
                Some(limit) if raise => Err(EngineError::BudgetExceeded {
                    limit,
                    result: Box::new(result),
                }),
                _ => Ok(result),
            },
        }
    }

    /// Answers an ask of a paused run and resumes the run, until it ends or pauses again. Any process can do this. If the ask
    /// is not open, this is an error and nothing changes.
    pub async fn answer(
        &self,
        session: &SessionId,
        ask: &AskId,
        answer: Answer,
        request: AnswerRequest,
    ) -> Result<RunResult, EngineError> {
        let opened = self
            .open(OpenSession::Resume(session.clone()), request.mode)
            .await?;
        let run = opened.answer(ask, answer, pause_on_asks(request.options))?;
        Ok(read_to_end(session.clone(), run).await)
    }

    /// Runs one task in a new session and returns its events. [`ResultFold`] computes the result from them. The caller
    /// answers asks through the handle.
    pub async fn stream(&self, request: Request) -> Result<RunHandle, EngineError> {
        Ok(self.start(request).await?.1)
    }

    async fn start(&self, request: Request) -> Result<(SessionId, RunHandle), EngineError> {
        let session = self.open(OpenSession::New, request.mode).await?;
        let run = session.run(request.prompt, request.options)?;
        Ok((session.id().clone(), run))
    }
}
