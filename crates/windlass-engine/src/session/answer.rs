//! Answering an ask of a run that waits, in whichever process that is.

use windlass_core::ask::{About, Answer, AnsweredBy, Ask};
use windlass_core::id::AskId;

use super::driver::Start;
use super::{EngineError, Session};
use crate::asking::NoSuchAsk;
use crate::run::{RunHandle, RunOptions};

impl Session {
    /// Asks that wait for an answer.
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
        let (asked, open) = self.look(|history| {
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
                why: expected(&asked).to_owned(),
            });
        }
        let (answer, by) = match asked.is_over(self.parts.clock.now()) {
            true => (Answer::Expired, AnsweredBy::Engine),
            false => (answer, AnsweredBy::Person),
        };
        options.isolation = isolation;
        let start = Start::Answer {
            ask: Box::new(asked),
            answer,
            by,
        };
        self.begin(run, start, options)
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
