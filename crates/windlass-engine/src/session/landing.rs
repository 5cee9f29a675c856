//! The end of an isolated run: what passed lands, everything else is kept by name. Nothing is thrown away here but a
//! copy that has landed or holds nothing.

use windlass_core::ask::{About, Answer, LandingAsk};
use windlass_core::event::EventKind;
use windlass_core::gate::{Bar, bar_at_landing};
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::runtime::Outlet;
use windlass_core::workspace::{Change, Changes, LandTo, Landing, Transaction};

use super::drive::{Ended, Start, Traces, Work};
use super::judging::{broken, named};
use crate::run::Halt;

/// So many removed files are worth a question when they are most of the tree.
const MANY: usize = 5;

/// A run that removes all or most of the tree has gone wrong more often than it was asked to.
fn clears_out(changes: &Changes) -> Option<(String, String)> {
    let before = changes.files_before?;
    let removed = changes
        .files
        .iter()
        .filter(|change| change.change == Change::Deleted)
        .count();
    let most = removed >= MANY && removed.saturating_mul(2) > before;
    (removed > 0 && (removed >= before || most)).then(|| {
        (
            ".".to_owned(),
            format!("it removes {removed} of {before} files"),
        )
    })
}

impl Work {
    pub(super) async fn land_or_keep(
        &self,
        transaction: Box<dyn Transaction>,
        outcome: Result<Outcome, Ended>,
        traces: &mut Traces,
    ) -> Result<Outcome, Ended> {
        let passed = matches!(
            outcome,
            Ok(Outcome::Completed | Outcome::CompletedWithLimitExceeded { .. })
        );
        let ended = if passed {
            self.land(transaction.as_ref(), traces).await
        } else {
            Ok(false)
        };
        let outcome = match ended {
            Ok(true) => {
                if let Err(err) = transaction.discard().await {
                    let warned = EventKind::Warned {
                        code: "copy_left".into(),
                        text: err.message,
                    };
                    self.outlet.emit(warned).await?;
                }
                return outcome;
            }
            Ok(false) => outcome,
            Err(ended) => Err(ended),
        };
        // Also when the run only waits for an answer: what it did must be there when it goes on.
        let copy = transaction.name().map(str::to_owned);
        match transaction.keep().await {
            Ok(Some(name)) => {
                traces.kept = Some(name.clone());
                self.outlet.emit(EventKind::Kept { name }).await?;
            }
            // Nothing was in it yet: who goes on begins with a new one.
            Ok(None) => {
                if let (Some(name), Err(Ended::Open)) = (copy, &outcome) {
                    self.outlet.emit(EventKind::Discarded { name }).await?;
                }
            }
            Err(err) => {
                let warned = EventKind::Warned {
                    code: "copy_not_kept".into(),
                    text: err.message,
                };
                self.outlet.emit(warned).await?;
            }
        }
        outcome
    }

    /// Whether everything is where it belongs now.
    async fn land(&self, transaction: &dyn Transaction, traces: &Traces) -> Result<bool, Ended> {
        let changes = transaction.changes().await.map_err(broken)?;
        if changes.files.is_empty() {
            return self.land_commits(transaction, changes.tree_hash).await;
        }
        if self.ask_about(&changes).await? && !self.contract.land_anyway {
            // An answer may take its time, and what the checks saw must be what is there.
            let moved = transaction.moved().await.map_err(broken)?;
            if !moved.is_empty() {
                let detail = format!(
                    "changed in your tree since the checks ran: {}; `windlass land` checks the kept copy once more",
                    named(&moved)
                );
                return Err(Ended::With(Outcome::failed(
                    FailReason::LandingConflict,
                    detail,
                )));
            }
        }
        // What was judged is what lands; without validators it is what was there a moment ago.
        let judged = traces
            .evidence
            .last()
            .map(|evidence| evidence.tree_hash.clone());
        let tree_hash = judged.unwrap_or(changes.tree_hash);
        let landing = Landing {
            tree_hash: tree_hash.clone(),
            to: self.contract.to.clone(),
        };
        match transaction.land(&landing).await {
            Ok(landed) => {
                let unfinished = landed.unfinished.clone();
                self.outlet
                    .emit(EventKind::Landed { landed, tree_hash })
                    .await?;
                self.outlet.sync().await?;
                // What cannot be undone, and what could not be brought over, is known only now.
                self.tell_notes(transaction).await?;
                match unfinished {
                    None => Ok(true),
                    Some(why) => Err(Ended::With(Outcome::failed(FailReason::Runtime, why))),
                }
            }
            Err(err) => Err(broken(err)),
        }
    }

    /// A run that left every file as it was may still have made commits.
    async fn land_commits(
        &self,
        transaction: &dyn Transaction,
        tree_hash: Option<String>,
    ) -> Result<bool, Ended> {
        let landing = Landing {
            tree_hash: tree_hash.clone(),
            to: LandTo::Tree,
        };
        let landed = transaction.land(&landing).await.map_err(broken)?;
        if landed.refname.is_some() {
            self.outlet
                .emit(EventKind::Landed { landed, tree_hash })
                .await?;
            self.outlet.sync().await?;
        }
        self.tell_notes(transaction).await?;
        Ok(true)
    }

    /// Asks a person about changed files that other programs or agents act on, unless the prompt named them. Whether
    /// there was anything to ask.
    async fn ask_about(&self, changes: &Changes) -> Result<bool, Ended> {
        if self.contract.ordered {
            return Ok(false);
        }
        let prompt = self.prompt.text();
        let exposed = self.exposed();
        let barred = changes.files.iter().filter_map(|change| {
            match bar_at_landing(&change.path, &prompt, &exposed)? {
                Bar::Person(why) | Bar::Never(why) => Some((change.path.clone(), why)),
            }
        });
        let mut paths: Vec<(String, String)> = barred.collect();
        paths.extend(clears_out(changes));
        if paths.is_empty() {
            return Ok(false);
        }
        let names: Vec<String> = paths.iter().map(|(path, _)| path.clone()).collect();
        let asked = LandingAsk {
            paths,
            tree_hash: changes.tree_hash.clone(),
        };
        let answer = match self.earlier_answer(&asked) {
            Some(answer) => answer,
            None => self.ask_to_land(asked).await?,
        };
        match answer {
            Answer::Once | Answer::Always => Ok(true),
            Answer::Abandoned => Err(Ended::With(Outcome::Cancelled)),
            _ => Err(Ended::With(not_let_land(&names))),
        }
    }

    /// The answer this run was gone on with, where exactly this was asked.
    fn earlier_answer(&self, asked: &LandingAsk) -> Option<Answer> {
        match &self.start {
            Start::Answer { ask, answer, .. } if ask.about == About::Landing(asked.clone()) => {
                Some(answer.clone())
            }
            _ => None,
        }
    }

    async fn ask_to_land(&self, asked: LandingAsk) -> Result<Answer, Ended> {
        let asking = self.outlet.ask_about(About::Landing(asked), true, None);
        tokio::select! {
            biased;
            answer = asking => Ok(answer?),
            // An ask that nobody is there for ends the run around it.
            () = self.outlet.control.stop.cancelled() => match self.outlet.control.halted() {
                Some(Halt::Paused(_)) => Err(Ended::Open),
                Some(Halt::TimedOut) => Err(Ended::With(Outcome::TimedOut)),
                _ => Ok(Answer::Abandoned),
            },
        }
    }
}

/// The end of a run whose changes a person did not let land.
pub(super) fn not_let_land(names: &[String]) -> Outcome {
    let detail = format!(
        "a person has to let these land, and nobody did: {}; name them in the prompt, or look at the kept copy and \
         land it yourself",
        named(names)
    );
    Outcome::failed(FailReason::Policy, detail)
}
