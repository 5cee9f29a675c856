//! Whether it is done: the paths that may not be changed, the judges that were, then the chain of validators over
//! exactly what would land. What the person changed meanwhile is taken in first, and looked for again afterwards.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use windlass_core::event::EventKind;
use windlass_core::gate::{Bar, bar_at_landing, glob_match, may_write};
use windlass_core::outcome::Outcome;
use windlass_core::run::{Judged, paths_in_words};
use windlass_core::runtime::Outlet;
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator};
use windlass_core::workspace::{Changes, Transaction};

use super::driver::{RunParts, StepError};
use super::iterate::until_told_to_end;
use super::land;
use crate::executor::describe_panic;
use crate::run::Halt;

/// How often the chain runs again because a validator mended something.
const MAX_FIXES: usize = 3;

/// Judges what would land as the person's tree is now, and logs the result.
pub(super) async fn judge(run: &RunParts, transaction: &dyn Transaction) -> Result<(), StepError> {
    let judge = Judge { run, transaction };
    let (result, changes) = judge.judge().await?;
    let judged = EventKind::Judged {
        judge_changed: judge.judges_among(&changes),
        tree_hash: changes.tree_hash,
        result,
    };
    run.outlet.emit(judged).await?;
    Ok(())
}

struct Judge<'a> {
    run: &'a RunParts,
    transaction: &'a dyn Transaction,
}

/// A result, and the changes it is about.
type Checked = (Judged, Changes);

impl Judge<'_> {
    async fn judge(&self) -> Result<Checked, StepError> {
        let (contract, transaction) = (&self.run.contract, self.transaction);
        transaction.freeze().await?;
        self.run.tell_notes(transaction).await?;
        // What changes nothing lands nothing, whatever the person did meanwhile: no check runs.
        let nothing = |changes: &Changes| changes.files.is_empty() && changes.cannot.is_empty();
        let first = transaction.changes().await?;
        if nothing(&first) {
            return Ok((Judged::NothingChanged, first));
        }
        self.catch_up().await?;
        let changes = transaction.changes().await?;
        if nothing(&changes) {
            return Ok((Judged::NothingChanged, changes));
        }
        let (result, changes) = self.check(changes).await?;
        if !matches!(result, Judged::Passed { .. }) {
            return Ok((result, changes));
        }
        let moved = transaction.moved().await?;
        if moved.is_empty() {
            return Ok((result, changes));
        }
        if !contract.land_anyway {
            return Ok((Judged::Stale { paths: moved }, changes));
        }
        // Whoever reads the evidence has to see what it does not cover.
        let uncovered = EventKind::Validated {
            validator: "land_anyway".to_owned(),
            blocking: false,
            report: Report::unverifiable(format!(
                "changed in your tree while the checks ran: {}",
                paths_in_words(&moved)
            )),
            tree_hash: changes.tree_hash.clone(),
        };
        self.run.outlet.emit(uncovered).await?;
        Ok((result, changes))
    }

    /// Takes in what the person changed since the copy was made. A conflict ends the run.
    async fn catch_up(&self) -> Result<(), StepError> {
        let moved = self.transaction.moved().await?;
        if moved.is_empty() {
            return Ok(());
        }
        let text = format!("changed in your tree meanwhile: {}", paths_in_words(&moved));
        self.run.warn("tree_moved", text).await?;
        if !self.run.contract.land_anyway {
            self.transaction.catch_up().await?;
        }
        Ok(())
    }

    /// Rounds over the chain of validators, until no fixer changes anything any more.
    async fn check(&self, mut changes: Changes) -> Result<Checked, StepError> {
        for _ in 0..=MAX_FIXES {
            let judges = self.judges_among(&changes);
            if let Some(blocked) = self.forbidden(&changes, &judges) {
                return Ok((blocked, changes));
            }
            match self.round(&changes, judges).await? {
                Chain::Passed => {
                    let ask = match self.transaction.name() {
                        Some(_) => land::question(self.run, &changes),
                        None => None,
                    };
                    return Ok((Judged::Passed { ask }, changes));
                }
                Chain::Blocked(blocked) => return Ok((blocked, changes)),
                Chain::Fixed => changes = self.transaction.changes().await?,
            }
        }
        let why = format!(
            "the fixers still changed something after {MAX_FIXES} rounds; they undo each other's work"
        );
        let blocked = Judged::Blocked {
            validator: "fixers".into(),
            findings: vec![Finding::whole(why)],
        };
        Ok((blocked, changes))
    }

    /// One round, without the files that must not take part in it.
    async fn round(&self, changes: &Changes, judges: Vec<String>) -> Result<Chain, StepError> {
        let protected = judges.into_iter().filter(|path| self.protects(path));
        let mut aside: Vec<String> = protected.collect();
        aside.extend(changes.newly_ignored.iter().cloned());
        if !changes.newly_ignored.is_empty() {
            let text = format!(
                "the run wrote the rules that ignore these, so they do not land, and the checks run without them: {}",
                paths_in_words(&changes.newly_ignored)
            );
            self.run.warn("newly_ignored", text).await?;
        }
        if aside.is_empty() {
            return self.chain(changes).await;
        }
        self.transaction.set_aside(&aside).await?;
        let chain = self.chain(changes).await;
        self.transaction.put_back().await?;
        chain
    }

    fn judges_among(&self, changes: &Changes) -> Vec<String> {
        let judges = |path: &str| {
            self.protects(path) || self.run.parts.validators.iter().any(|one| one.judges(path))
        };
        changes
            .files
            .iter()
            .map(|change| &change.path)
            .filter(|path| judges(path))
            .cloned()
            .collect()
    }

    fn protects(&self, path: &str) -> bool {
        let protected = &self.run.contract.protect;
        protected.iter().any(|pattern| glob_match(pattern, path))
    }

    /// Changed paths that may not be changed.
    fn forbidden(&self, changes: &Changes, judges: &[String]) -> Option<Judged> {
        let mut findings = Vec::new();
        let mut object = |path: &str, message: String| {
            findings.push(Finding {
                path: path.to_owned(),
                ..Finding::whole(message)
            });
        };
        let (contract, exposed) = (&self.run.contract, self.run.exposed());
        let isolated = changes.tree_hash.is_some();
        for change in &changes.files {
            let path = change.path.as_str();
            let allowed = contract.write_paths.as_ref();
            if allowed.is_some_and(|paths| !may_write(paths, path)) {
                let why = "only the allowed paths may be changed; put it back as it was";
                object(path, why.to_owned());
            } else if isolated && let Some(Bar::Never(why)) = bar_at_landing(path, "", &exposed) {
                let why = format!("it may not be changed ({why}); put it back as it was");
                object(path, why);
            }
        }
        for (path, why) in &changes.cannot {
            object(path, format!("it cannot land: {why}"));
        }
        if contract.strict_judge {
            let why = "the checks hang on it, so it may not be changed; put it back as it was";
            for path in judges {
                object(path, why.to_owned());
            }
        }
        (!findings.is_empty()).then(|| Judged::Blocked {
            validator: "paths".to_owned(),
            findings,
        })
    }

    /// Runs the validators in order until one blocks.
    async fn chain(&self, changes: &Changes) -> Result<Chain, StepError> {
        // What validators see may differ from what lands by the judges that were put back.
        let mut seen = self.transaction.changes().await?.tree_hash;
        let mut fixed = false;
        for validator in &self.run.parts.validators {
            let (name, blocking) = (validator.name().to_owned(), validator.blocking());
            let started = EventKind::ValidationStarted {
                validator: name.clone(),
            };
            self.run.outlet.emit(started).await?;
            let mut report = self.ask_validator(validator.as_ref(), changes).await?;
            let now = self.transaction.changes().await?;
            let changed = now.tree_hash != seen;
            let disturbed = changed && !validator.fixes();
            fixed |= changed && validator.fixes();
            if disturbed {
                report = Report {
                    proof: report.proof,
                    ..Report::unverifiable(disturbance(changes, &now))
                };
            }
            seen = now.tree_hash;
            // A tree that was disturbed is not the one that the others saw, whoever did it.
            let blocks = report.judgement != Judgement::Pass && (blocking || disturbed);
            let findings = report.findings.clone();
            let validated = EventKind::Validated {
                validator: name.clone(),
                blocking,
                report,
                tree_hash: changes.tree_hash.clone(),
            };
            self.run.outlet.emit(validated).await?;
            if blocks {
                return Ok(Chain::Blocked(Judged::Blocked {
                    validator: name,
                    findings,
                }));
            }
        }
        Ok(if fixed { Chain::Fixed } else { Chain::Passed })
    }

    /// One validator under its deadline, whatever it does.
    async fn ask_validator(
        &self,
        validator: &dyn Validator,
        changes: &Changes,
    ) -> Result<Report, StepError> {
        let (run, transaction) = (self.run, self.transaction);
        let (files, before, processes) = (
            transaction.files(),
            transaction.before(),
            transaction.processes(),
        );
        let deadline = validator.deadline();
        let cancel = run.outlet.control.stop.child_token();
        let ctx = CheckCtx {
            files: &files,
            before: &before,
            processes: &processes,
            changes: &changes.files,
            deadline,
            cancel: cancel.clone(),
        };
        let checked = tokio::select! {
            checked = AssertUnwindSafe(validator.check(&ctx)).catch_unwind() => checked,
            () = run.parts.clock.sleep(deadline) => {
                cancel.cancel();
                Ok(Ok(Report::unverifiable(format!("it took longer than {} seconds", deadline.as_secs()))))
            }
            () = until_told_to_end(run) => return Err(StepError::Ends(match run.outlet.control.halted() {
                Some(Halt::TimedOut) => Outcome::TimedOut,
                _ => Outcome::Cancelled,
            })),
        };
        transaction.freeze().await?;
        Ok(match checked {
            Ok(Ok(report)) => report,
            Ok(Err(err)) => Report::unverifiable(err.to_string()),
            Err(panic) => Report::unverifiable(describe_panic(panic.as_ref())),
        })
    }
}

/// What came of the chain.
enum Chain {
    Passed,
    Blocked(Judged),
    /// A fixer changed what would land: everything is to be looked at again.
    Fixed,
}

fn disturbance(before: &Changes, now: &Changes) -> String {
    let known = |path: &str| before.files.iter().find(|change| change.path == path);
    let others = now
        .files
        .iter()
        .filter(|change| known(&change.path) != Some(*change));
    let paths: Vec<String> = others.map(|change| change.path.clone()).collect();
    format!(
        "it changed files that would land ({}); ignore them in .gitignore, or declare the validator a fixer",
        paths_in_words(&paths)
    )
}
