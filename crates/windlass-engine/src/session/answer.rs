//! Answers an ask of a paused run, in any process.

use windlass_core::ask::{About, Answer, AnsweredBy, Ask};
use windlass_core::id::AskId;

use super::driver::Start;
use super::{EngineError, Session};
use crate::pending_asks::NoSuchAsk;
use crate::run::{RunHandle, RunOptions};

impl Session {
    /// Returns the asks that wait for an answer.
    #[must_use]
    pub fn pending(&self) -> Vec<Ask> {
        self.with_history(|history| history.open_asks().to_vec())
    }

    /// Answers an ask of a paused run and resumes the run. An ask is answered once. If it has expired, the answer is ignored
    /// and the run resumes without one. While a run is in progress, use its handle instead. The run keeps its isolation;
    /// `options.isolation` is ignored.
    pub fn answer(
        &self,
        ask: &AskId,
        answer: Answer,
        options: RunOptions,
    ) -> Result<RunHandle, EngineError> {
        self.answer_as(ask, answer, None, options)
    }

    /// Like [`Session::answer`], for a client. `who` is the name of its token, which the log records.
    pub fn answer_as(
        &self,
        ask: &AskId,
        answer: Answer,
        who: Option<String>,
        mut options: RunOptions,
    ) -> Result<RunHandle, EngineError> {
        let (asked, open) = self.with_history(|history| {
            let asked = history.open_asks().iter().find(|open| open.id == *ask);
            let run = history
                .open_run()
                .map(|run| (run.id.clone(), run.isolation));
            (asked.cloned(), run)
        });
        let (Some(asked), Some((run, isolation))) = (asked, open) else {
            return Err(EngineError::NoSuchAsk(NoSuchAsk(ask.clone())));
        };
        if !asked.fits(&answer) {
            return Err(EngineError::Unfitting {
                ask: ask.clone(),
                why: fitting_answers(&asked).to_owned(),
            });
        }
        let (answer, by, who) = match asked.is_over(self.parts.clock.now()) {
            true => (Answer::Expired, AnsweredBy::Engine, None),
            false => (answer, AnsweredBy::Person, who),
        };
        options.isolation = isolation;
        let start = Start::Answer {
            ask: Box::new(asked),
            answer,
            by,
            who,
        };
        self.begin(run, start, options)
    }
}

/// The answers that fit an ask, for the error.
fn fitting_answers(ask: &Ask) -> &'static str {
    match &ask.about {
        About::Approval(approval) if approval.always.is_some() => "answer yes, always or no",
        About::Approval(_) => "answer yes or no; `always` is not possible here",
        About::Landing(_) => "answer yes or no",
        About::Question(_) => "answer with a text",
    }
}
