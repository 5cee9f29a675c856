//! Judges the changes of an iteration: first the paths that may not be changed and the changed judges, then the chain of
//! validators over exactly the changes that would land. The user's own changes since the copy was made are merged first, and
//! looked for again afterwards.

use std::collections::HashSet;

use windlass_core::event::EventKind;
use windlass_core::gate::{Bar, CallProtection, bar_at_landing, glob_match, may_write};
use windlass_core::run::{Judged, paths_in_words, rules_broken};
use windlass_core::runtime::EventSink;
use windlass_core::terms::GateKind;
use windlass_core::validator::{Finding, Report};
use windlass_core::workspace::{Change, Changes, FileChange, Transaction};

use super::driver::{RunParts, StepError};
use super::land;
use super::validators::{ChainResult, ValidatorRound};

/// Maximum number of times that the chain runs again because a fixer changed something.
const MAX_FIXES: usize = 3;
/// Maximum number of warnings about broken rules when a person lands a kept run.
const MAX_BROKEN: usize = 20;

/// Judges the changes that would land on the current tree of the user, and logs the result.
pub(super) async fn judge(run: &RunParts, transaction: &dyn Transaction) -> Result<(), StepError> {
    let judge = ChangeJudge { run, transaction };
    let (result, changes) = judge.judge().await?;
    let is_stale = matches!(result, Judged::Stale { .. });
    // After a stale result, wait for the turn to land now, so that no other run disturbs the next round. If the run works on
    // or asks a person, give up the turn, so that other runs do not wait.
    let lands = matches!(result, Judged::Passed { ask: None });
    let judged = EventKind::Judged {
        judge_changed: judge.judges_among(&changes),
        tree_hash: changes.tree_hash,
        result,
    };
    run.sink.emit(judged).await?;
    if is_stale {
        land::take_turn(run, transaction).await?;
    } else if !lands {
        transaction.end_turn();
    }
    Ok(())
}

struct ChangeJudge<'a> {
    run: &'a RunParts,
    transaction: &'a dyn Transaction,
}

/// A result, and the changes that it applies to.
type Checked = (Judged, Changes);

impl ChangeJudge<'_> {
    async fn judge(&self) -> Result<Checked, StepError> {
        let (contract, transaction) = (&self.run.contract, self.transaction);
        transaction.freeze().await?;
        self.run.warn_about_workspace(transaction).await?;
        // Without changes there is nothing to land, so no check runs.
        let nothing = |changes: &Changes| changes.files.is_empty() && changes.cannot.is_empty();
        let first = transaction.changes().await?;
        if nothing(&first) {
            return Ok((Judged::NothingChanged, first));
        }
        self.log_unlogged(&first).await?;
        self.match_rules(&first).await?;
        self.merge_user_changes().await?;
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
        // The evidence has to name the changes that it does not cover.
        let uncovered = EventKind::Validated {
            validator: "land_anyway".to_owned(),
            blocking: false,
            report: Report::unverifiable(format!(
                "changed in your tree while the checks ran: {}",
                paths_in_words(&moved)
            )),
            tree_hash: changes.tree_hash.clone(),
        };
        self.run.sink.emit(uncovered).await?;
        Ok((result, changes))
    }

    /// Logs changes that are in no event yet: the commands of a foreign agent change files that their arguments do not name.
    /// The engine does not know which call made them, so the events name none.
    async fn log_unlogged(&self, changes: &Changes) -> Result<(), StepError> {
        if !self.run.parts.runtime.begins_itself() {
            return Ok(());
        }
        let sink = &self.run.sink;
        let logged = sink.log.with_history(|history| history.run_files());
        let logged: HashSet<String> = logged.into_iter().map(|file| file.path).collect();
        for change in changes
            .files
            .iter()
            .filter(|change| !logged.contains(&change.path))
        {
            let changed = EventKind::FileChanged {
                call: None,
                change: FileChange {
                    diff: None,
                    ..change.clone()
                },
                swap: None,
            };
            sink.emit(changed).await?;
        }
        Ok(())
    }

    /// Compares the changes with the rules, if the gate did not judge each call of the agent. A change that breaks a rule ends
    /// the run. A person who lands a kept run has decided to land it, and only gets a warning.
    async fn match_rules(&self, changes: &Changes) -> Result<(), StepError> {
        let ordered = self.run.contract.ordered;
        let mut terms = self.transaction.terms();
        self.run.parts.runtime.terms(&mut terms);
        if terms.gate == GateKind::PerCall && !ordered {
            return Ok(());
        }
        let place = CallProtection {
            isolation: terms.isolation,
            sandboxed: terms.tier.confines(),
            has_jobs: false,
        };
        let broken = |change: &FileChange| {
            let gate = self.run.gate.lock();
            let decision = gate.rule_about_change(&change.path, &change.change, place)?;
            Some((change.path.clone(), decision.rule))
        };
        let broken: Vec<_> = changes.files.iter().filter_map(broken).collect();
        for (path, rule) in broken.iter().take(MAX_BROKEN) {
            if !ordered {
                let what = format!("the change of {path}");
                return Err(StepError::Ends(rules_broken(&what, [rule.as_str()])));
            }
            let text =
                format!("{path} lands because you ordered it, although {rule} applies to it");
            self.run.warn("rule_overridden", text).await?;
        }
        Ok(())
    }

    /// Merges the user's changes since the copy was made. A conflict ends the run.
    async fn merge_user_changes(&self) -> Result<(), StepError> {
        let moved = self.transaction.moved().await?;
        if moved.is_empty() {
            return Ok(());
        }
        let text = format!(
            "changed in your tree during the run: {}",
            paths_in_words(&moved)
        );
        self.run.warn("tree_moved", text).await?;
        if !self.run.contract.land_anyway {
            self.transaction.catch_up().await?;
        }
        self.run.base_findings.lock().clear();
        Ok(())
    }

    /// Runs the chain of validators until no fixer changes anything.
    async fn check(&self, mut changes: Changes) -> Result<Checked, StepError> {
        for _ in 0..=MAX_FIXES {
            let judges = self.judges_among(&changes);
            if let Some(blocked) = self.forbidden(&changes, &judges) {
                return Ok((blocked, changes));
            }
            match self.round(&changes, judges).await? {
                ChainResult::Passed { failing } => {
                    let ask = match self.transaction.name() {
                        Some(_) => land::question(self.run, &changes, failing),
                        None => None,
                    };
                    return Ok((Judged::Passed { ask }, changes));
                }
                ChainResult::Blocked(blocked) => return Ok((blocked, changes)),
                ChainResult::Fixed => changes = self.transaction.changes().await?,
            }
        }
        let why = format!(
            "the fixers still changed files after {MAX_FIXES} rounds; they undo each other's changes"
        );
        let blocked = Judged::Blocked {
            validator: "fixers".into(),
            findings: vec![Finding::whole(why)],
        };
        Ok((blocked, changes))
    }

    /// Runs the chain once. The validators see protected judges in their version from before the run.
    async fn round(
        &self,
        changes: &Changes,
        judges: Vec<String>,
    ) -> Result<ChainResult, StepError> {
        let without: Vec<String> = judges
            .into_iter()
            .filter(|path| self.protects(path))
            .collect();
        if without.len() == changes.files.len() && !without.is_empty() {
            let why = "every changed file is protected (`validate.protect`), so the checks would judge the unchanged tree";
            return Ok(ChainResult::Blocked(Judged::Blocked {
                validator: "protect".to_owned(),
                findings: vec![Finding::whole(why)],
            }));
        }
        if !changes.newly_ignored.is_empty() {
            let text = format!(
                "the run added the ignore rules for these files, so they do not land, and the checks run without them: {}",
                paths_in_words(&changes.newly_ignored)
            );
            self.run.warn("newly_ignored", text).await?;
        }
        let checks = ValidatorRound {
            run: self.run,
            transaction: self.transaction,
            changes,
            without,
        };
        checks.run_chain().await
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

    /// The findings about changed paths that may not be changed.
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
                let why = "only the allowed paths may be changed; revert this change";
                object(path, why.to_owned());
            } else if isolated
                && let Some(Bar::Never(why)) =
                    bar_at_landing(path, change.change == Change::Created, "", &exposed)
            {
                let why = format!("this path may not be changed ({why}); revert the change");
                object(path, why);
            }
        }
        for (path, why) in &changes.cannot {
            object(path, format!("it cannot land: {why}"));
        }
        for change in &changes.files {
            let forbidden = |pattern: &String| glob_match(pattern, &change.path);
            if contract.forbid.iter().any(forbidden) {
                object(
                    &change.path,
                    "the project's settings protect this path, but they are not trusted; revert the change, or trust the settings"
                        .to_owned(),
                );
            }
        }
        if contract.strict_judge {
            let why = "the checks depend on this file, so it may not be changed; revert the change";
            for path in judges {
                object(path, why.to_owned());
            }
        }
        (!findings.is_empty()).then(|| Judged::Blocked {
            validator: "paths".to_owned(),
            findings,
        })
    }
}
