//! Whether it is done: the paths that may not be changed, the judges that were, then the chain of validators over
//! exactly what would land. What the person changed meanwhile is taken in first, and looked for again afterwards.

use std::collections::HashSet;

use windlass_core::event::EventKind;
use windlass_core::gate::{Bar, Place, bar_at_landing, glob_match, may_write};
use windlass_core::run::{Judged, paths_in_words, rules_broken};
use windlass_core::runtime::Outlet;
use windlass_core::terms::GateKind;
use windlass_core::validator::{Finding, Report};
use windlass_core::workspace::{Change, Changes, FileChange, Transaction};

use super::checks::{Chain, Checks};
use super::driver::{RunParts, StepError};
use super::land;

/// How often the chain runs again because a validator mended something.
const MAX_FIXES: usize = 3;
/// Broken rules that a person is told of who lands a kept run.
const MAX_BROKEN: usize = 20;

/// Judges what would land as the person's tree is now, and logs the result.
pub(super) async fn judge(run: &RunParts, transaction: &dyn Transaction) -> Result<(), StepError> {
    let judge = Judge { run, transaction };
    let (result, changes) = judge.judge().await?;
    let is_stale = matches!(result, Judged::Stale { .. });
    // The next round is not disturbed by other runs. Other runs do not wait while this one works on or asks a person.
    let lands = matches!(result, Judged::Passed { ask: None });
    let judged = EventKind::Judged {
        judge_changed: judge.judges_among(&changes),
        tree_hash: changes.tree_hash,
        result,
    };
    run.outlet.emit(judged).await?;
    if is_stale {
        land::take_turn(run, transaction).await?;
    } else if !lands {
        transaction.end_turn();
    }
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
        self.log_untold(&first).await?;
        self.match_rules(&first).await?;
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

    /// Logs changes that no event told of: commands of a foreign agent change files that their words do not name. The
    /// engine does not know which call made them, so the events name none.
    async fn log_untold(&self, changes: &Changes) -> Result<(), StepError> {
        if !self.run.parts.runtime.begins_itself() {
            return Ok(());
        }
        let outlet = &self.run.outlet;
        let told = outlet.log.with_history(|history| history.run_files());
        let told: HashSet<String> = told.into_iter().map(|file| file.path).collect();
        for change in changes
            .files
            .iter()
            .filter(|change| !told.contains(&change.path))
        {
            let changed = EventKind::FileChanged {
                call: None,
                change: FileChange {
                    diff: None,
                    ..change.clone()
                },
                swap: None,
            };
            outlet.emit(changed).await?;
        }
        Ok(())
    }

    /// Compares changes with the rules that were not in force while an agent worked: one that breaks a rule ends the run.
    /// A person who lands a kept run has decided about it, and is told which rules its changes break.
    async fn match_rules(&self, changes: &Changes) -> Result<(), StepError> {
        let ordered = self.run.contract.ordered;
        let mut terms = self.transaction.terms();
        self.run.parts.runtime.terms(&mut terms);
        if terms.gate == GateKind::PerCall && !ordered {
            return Ok(());
        }
        let place = Place {
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
            let text = format!("{rule} is about {path}, which lands because you order it");
            self.run.warn("rule_overridden", text).await?;
        }
        Ok(())
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
        self.run.base_findings.lock().clear();
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
                Chain::Passed { failing } => {
                    let ask = match self.transaction.name() {
                        Some(_) => land::question(self.run, &changes, failing),
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

    /// One round over the chain, with judges that are protected as they were before.
    async fn round(&self, changes: &Changes, judges: Vec<String>) -> Result<Chain, StepError> {
        let without: Vec<String> = judges
            .into_iter()
            .filter(|path| self.protects(path))
            .collect();
        if without.len() == changes.files.len() && !without.is_empty() {
            let why = "every changed file is protected (`validate.protect`), so the checks would judge the tree of before";
            return Ok(Chain::Blocked(Judged::Blocked {
                validator: "protect".to_owned(),
                findings: vec![Finding::whole(why)],
            }));
        }
        if !changes.newly_ignored.is_empty() {
            let text = format!(
                "the run wrote the rules that ignore these, so they do not land, and the checks run without them: {}",
                paths_in_words(&changes.newly_ignored)
            );
            self.run.warn("newly_ignored", text).await?;
        }
        let checks = Checks {
            run: self.run,
            transaction: self.transaction,
            changes,
            without,
        };
        checks.chain().await
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
            } else if isolated
                && let Some(Bar::Never(why)) =
                    bar_at_landing(path, change.change == Change::Created, "", &exposed)
            {
                let why = format!("it may not be changed ({why}); put it back as it was");
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
                    "the project protects it, and its settings are not trusted: put it back as it was, or trust them"
                        .to_owned(),
                );
            }
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
}
