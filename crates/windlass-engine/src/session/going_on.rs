//! Going on with a run that waits for a person: the answer is logged, once, and the run goes on where it stopped, in
//! whichever process that is.

use windlass_core::ask::{About, Answer, AnsweredBy, Ask};
use windlass_core::event::EventKind;
use windlass_core::history::OpenCall;
use windlass_core::id::AskId;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::Outlet;
use windlass_core::tool::Effect;

use super::closing::proven;
use super::drive::{Ended, Start, Work};
use super::landing::not_let_land;
use super::{EngineError, Session};
use crate::asking::NoSuchAsk;
use crate::executor::Executor;
use crate::run::{RunHandle, RunOptions};

impl Session {
    /// What waits for a person.
    #[must_use]
    pub fn pending(&self) -> Vec<Ask> {
        self.look(|history| history.open_asks().to_vec())
    }

    /// Answers an ask of a run that was left open on it, and goes on with that run. An ask is answered once; one that
    /// is over counts as not answered, and the run goes on without. While a run is going here its own handle answers.
    /// It works where it worked, whatever the options say of that.
    pub fn answer(
        &self,
        ask: &AskId,
        answer: Answer,
        mut options: RunOptions,
    ) -> Result<RunHandle, EngineError> {
        let missing = || EngineError::NoSuchAsk(NoSuchAsk(ask.clone()));
        let (asked, open) = self.look(|history| {
            let asked = history
                .open_asks()
                .iter()
                .find(|open| open.id == *ask)
                .cloned();
            (asked, history.open_run().cloned())
        });
        let (Some(asked), Some(open)) = (asked, open) else {
            return Err(missing());
        };
        if !asked.fits(&answer) {
            return Err(EngineError::Unfitting {
                ask: ask.clone(),
                why: expected(&asked).to_owned(),
            });
        }
        let (answer, by) = match asked.is_over(self.parts.clock.now()) {
            true => (Answer::Expired, AnsweredBy::Engine),
            false => (answer, AnsweredBy::Person),
        };
        options.isolation = open.isolation;
        let (id, prompt) = (open.id.clone(), open.prompt.clone());
        let start = Start::Answer {
            open: Box::new(open),
            ask: Box::new(asked),
            answer,
            by,
        };
        self.begin(id, prompt, start, options)
    }
}

/// How an ask can be answered.
fn expected(ask: &Ask) -> &'static str {
    match &ask.about {
        About::Approval(approval) if approval.always.is_some() => "say yes, always or no",
        About::Approval(_) => "say yes or no; it cannot be answered for good",
        About::Landing(_) => "say yes or no",
        About::Question(_) => "say something in words",
    }
}

/// What is left to do of a try that waited.
pub(super) struct Rest {
    /// Its number.
    pub(super) iteration: u32,
    /// The agent is done with it: what is left is judging and landing.
    pub(super) tried: bool,
    /// Calls that still have to be settled.
    pub(super) pending: Vec<ToolCall>,
}

impl Work {
    /// Logs the answer this run was gone on with: from here on it is used up.
    pub(super) async fn take_answer(&self) -> Result<(), Ended> {
        let Start::Answer {
            ask, answer, by, ..
        } = &self.start
        else {
            return Ok(());
        };
        let (ask, answer, by) = (ask.id.clone(), answer.clone(), *by);
        self.outlet
            .emit(EventKind::Answered { ask, answer, by })
            .await?;
        self.outlet.sync().await?;
        Ok(())
    }

    /// The end of a run that waited to land and was not let.
    pub(super) fn refused_to_land(&self) -> Option<Outcome> {
        let Start::Answer { ask, answer, .. } = &self.start else {
            return None;
        };
        let About::Landing(landing) = &ask.about else {
            return None;
        };
        let names: Vec<String> = landing.paths.iter().map(|(path, _)| path.clone()).collect();
        (*answer != Answer::Once).then(|| not_let_land(&names))
    }

    /// What is left to do, after the calls that were begun and cannot be taken up again have their results.
    pub(super) async fn rest(&self, executor: &Executor) -> Result<Option<Rest>, Ended> {
        let Start::Answer { open, .. } = &self.start else {
            return Ok(None);
        };
        let calls: Vec<OpenCall> = self
            .outlet
            .log
            .with_history(|history| history.open_calls().cloned().collect());
        let alone = calls.iter().filter(|open| open.started).count() == 1;
        let mut pending = Vec::new();
        for open in calls {
            if !open.started || can_be_taken_up(executor, &open) {
                pending.push(open.call);
                continue;
            }
            let result = proven(executor, &open, alone).unwrap_or_else(|| told(open));
            self.outlet
                .emit(EventKind::CallFinished { result, ms: 0 })
                .await?;
        }
        executor.earlier.only(&pending);
        Ok(Some(Rest {
            iteration: open.iteration.max(1),
            tried: open.tried,
            pending,
        }))
    }
}

/// A call that only looks, and was asking: begun once more with its answers it does nothing twice.
fn can_be_taken_up(executor: &Executor, open: &OpenCall) -> bool {
    let looks = executor
        .tools
        .get(&open.call.name)
        .is_some_and(|tool| tool.spec().effect == Effect::Read);
    looks && !open.answered.is_empty()
}

/// The result of a call that asked in the middle of what it did: the model hears the answer, and that it was stopped.
fn told(open: OpenCall) -> ToolResult {
    let answer = open
        .answered
        .iter()
        .rev()
        .find_map(|(ask, answer)| match (&ask.about, answer) {
            (About::Question(_), Answer::Text { text }) => Some(text.clone()),
            _ => None,
        });
    let why = "the process ended while it waited for an answer";
    match answer {
        Some(text) => {
            let call = open.call.clone();
            let said = format!(
                "{why}; the answer is: {text}; it may have happened in part, so check before you repeat it"
            );
            ToolResult::failed(&call, ErrorCategory::Interrupted, &said)
        }
        None => open.settle(why),
    }
}
