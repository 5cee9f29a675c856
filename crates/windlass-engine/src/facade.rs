//! One task from request to result, for whoever embeds the engine: a new session, one run, everything it came to in
//! one value. It adds nothing to what a session does.

use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::Spent;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{AskId, RunId, SessionId};
use windlass_core::message::{Message, Role};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::runtime::RunMode;
use windlass_core::workspace::{FileChange, Landed};

use crate::asking::OnAsk;
use crate::run::{RunHandle, RunOptions};
use crate::session::{Engine, EngineError, Open};

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Request {
    /// In words, with what is attached.
    pub prompt: Message,
    /// What kind of work it is.
    pub mode: RunMode,
    /// How it is to be done, what it may spend and what must hold before it lands.
    pub options: RunOptions,
    /// Make a reached limit an error instead of an outcome.
    pub raise_on_budget_exceeded: bool,
}

impl Request {
    /// A prompt under the usual terms.
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

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// The session it is logged in.
    pub session: SessionId,
    /// Its id there.
    pub run: RunId,
    /// How it ended; `None` while it waits for a person.
    pub summary: Option<RunSummary>,
    /// Open asks: [`Engine::answer`] answers one and resumes the run.
    pub asks: Vec<Ask>,
    /// The last words of the agent.
    pub text: String,
    /// What landed.
    pub landed: Option<Landed>,
}

impl RunResult {
    /// How it ended; `None` while it waits for a person.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.summary.as_ref().map(|summary| &summary.outcome)
    }

    /// What it spent; nothing while it waits for a person.
    #[must_use]
    pub fn totals(&self) -> Spent {
        self.summary
            .as_ref()
            .map_or_else(Spent::default, |summary| summary.totals)
    }

    /// The files it changed; none while it waits for a person.
    #[must_use]
    pub fn files(&self) -> &[FileChange] {
        self.summary.as_ref().map_or(&[], |summary| &summary.files)
    }
}

/// Folds the events of one run into its result.
#[derive(Debug, Clone)]
pub struct ResultFold(RunResult);

impl ResultFold {
    /// Before the first event.
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

    /// One more event.
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

    /// The result so far.
    #[must_use]
    pub fn finish(self) -> RunResult {
        self.0
    }
}

/// How a run that waited goes on: the same as it was asked for.
#[derive(Debug, Clone, Default)]
pub struct AnswerRequest {
    /// What kind of work it is.
    pub mode: RunMode,
    /// How it is to be done, what it may spend in all and what must hold before it lands.
    pub options: RunOptions,
}

/// Options for a run whose events nobody sees before its end: waiting for an answer would be waiting in vain.
fn unwatched(options: RunOptions) -> RunOptions {
    let on_ask = if options.on_ask == OnAsk::Wait {
        OnAsk::Pause
    } else {
        options.on_ask
    };
    RunOptions { on_ask, ..options }
}

async fn followed(session: SessionId, mut run: RunHandle) -> RunResult {
    let mut fold = ResultFold::new(session, run.id().clone());
    while let Some(event) = run.next().await {
        fold.apply(&event);
    }
    fold.finish()
}

impl Engine {
    /// Does one task in a new session, to its end or to the first ask: nobody watches who could answer one meanwhile,
    /// so [`OnAsk::Wait`] is [`OnAsk::Pause`] here.
    pub async fn execute(&self, mut request: Request) -> Result<RunResult, EngineError> {
        request.options = unwatched(request.options);
        let raise = request.raise_on_budget_exceeded;
        let (session, run) = self.start(request).await?;
        let result = followed(session, run).await;
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

    /// Answers what a run of a session waits for and goes on with it, to its end or to the next ask, in whichever
    /// process that is. An id that is not open there is an error, and nothing changes.
    pub async fn answer(
        &self,
        session: &SessionId,
        ask: &AskId,
        answer: Answer,
        request: AnswerRequest,
    ) -> Result<RunResult, EngineError> {
        let opened = self
            .open(Open::Resume(session.clone()), request.mode)
            .await?;
        let run = opened.answer(ask, answer, unwatched(request.options))?;
        Ok(followed(session.clone(), run).await)
    }

    /// The same as a stream of events; [`ResultFold`] makes the result of them. Whoever reads it answers asks through
    /// the handle.
    pub async fn stream(&self, request: Request) -> Result<RunHandle, EngineError> {
        Ok(self.start(request).await?.1)
    }

    async fn start(&self, request: Request) -> Result<(SessionId, RunHandle), EngineError> {
        let session = self.open(Open::New, request.mode).await?;
        let run = session.run(request.prompt, request.options)?;
        Ok((session.id().clone(), run))
    }
}
