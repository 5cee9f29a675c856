//! One task from request to result, for whoever embeds the engine: a new session, one run, everything it came to in
//! one value. It adds nothing to what a session does.

use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::{Budget, Limit, Spent};
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{AskId, RunId, SessionId};
use windlass_core::message::{Message, Role};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::validator::Evidence;
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

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// In which session it is logged.
    pub session: SessionId,
    /// As which run.
    pub run: RunId,
    /// How it ended; `None` while it waits for a person.
    pub outcome: Option<Outcome>,
    /// What it waits for: [`Engine::answer`] goes on with it.
    pub asks: Vec<Ask>,
    /// What it changed.
    pub files: Vec<FileChange>,
    /// The agent's last words.
    pub summary: String,
    /// Tries, steps, tokens and money.
    pub totals: Spent,
    /// What it was allowed.
    pub limits: Option<Budget>,
    /// The limit it reached or overran.
    pub exceeded: Option<Limit>,
    /// How long it took without waiting for a person, in milliseconds.
    pub ms: u64,
    /// What the landing rests on.
    pub evidence: Vec<Evidence>,
    /// Tests, scripts and settings of validators that it changed.
    pub judge_changed: Vec<String>,
    /// The answer, where one of a schema was asked for.
    pub output: Option<serde_json::Value>,
    /// What landed.
    pub landed: Option<Landed>,
    /// The copy that was kept.
    pub transaction: Option<String>,
}

/// Folds the events of one run into its result.
#[derive(Debug, Clone)]
pub struct ResultFold(RunResult);

impl ResultFold {
    /// Before the first event.
    #[must_use]
    pub fn new(session: SessionId, run: RunId) -> Self {
        Self(RunResult {
            session,
            run,
            outcome: None,
            asks: Vec::new(),
            files: Vec::new(),
            summary: String::new(),
            totals: Spent::default(),
            limits: None,
            exceeded: None,
            ms: 0,
            evidence: Vec::new(),
            judge_changed: Vec::new(),
            output: None,
            landed: None,
            transaction: None,
        })
    }

    /// One more event.
    pub fn apply(&mut self, event: &Event) {
        let result = &mut self.0;
        match &event.kind {
            EventKind::Asked { ask } => result.asks.push(ask.clone()),
            EventKind::Answered { ask, .. } => result.asks.retain(|open| open.id != *ask),
            EventKind::Said { message } if message.role == Role::Assistant => {
                let text = message.text();
                if !text.trim().is_empty() {
                    result.summary = text;
                }
            }
            EventKind::Landed { landed, .. } => result.landed = Some(landed.clone()),
            EventKind::Kept { name } => result.transaction = Some(name.clone()),
            EventKind::RunFinished {
                outcome,
                files,
                totals,
                ms,
                evidence,
                judge_changed,
                limits,
                transaction,
                output,
            } => {
                result.exceeded = match outcome {
                    Outcome::BudgetExceeded { limit } | Outcome::CompletedWithLimitExceeded { limit } => Some(*limit),
                    Outcome::TimedOut => Some(Limit::Time),
                    Outcome::MaxSteps => Some(Limit::Steps),
                    _ => None,
                };
                result.outcome = Some(outcome.clone());
                result.asks.clear();
                result.files.clone_from(files);
                result.totals = *totals;
                result.ms = *ms;
                result.evidence.clone_from(evidence);
                result.judge_changed.clone_from(judge_changed);
                result.limits = *limits;
                result.transaction = transaction.clone().or(result.transaction.take());
                result.output.clone_from(output);
            }
            _ => {}
        }
    }

    /// What it came to.
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
    let on_ask = if options.on_ask == OnAsk::Wait { OnAsk::Pause } else { options.on_ask };
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
        match (&result.outcome, result.exceeded) {
            (Some(Outcome::CompletedWithLimitExceeded { .. }), _) | (_, None) => Ok(result),
            (_, Some(limit)) if raise => Err(EngineError::BudgetExceeded { limit, result: Box::new(result) }),
            _ => Ok(result),
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
        let opened = self.open(Open::Resume(session.clone()), request.mode).await?;
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
