//! The chain of validators over exactly what would land, in a tree of their own. A check that fails is looked at twice
//! more where that says something: with the ignored files that the run left, and on the tree of before the run.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use windlass_core::event::EventKind;
use windlass_core::outcome::Outcome;
use windlass_core::run::{Judged, paths_in_words};
use windlass_core::runtime::Outlet;
use windlass_core::setup::install_command;
use windlass_core::validator::{
    CheckCtx, CheckRole, Finding, Judgement, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{Changes, CheckState, CheckTree, Transaction};

use super::driver::{RunParts, StepError};
use super::iterate::until_told_to_end;
use crate::executor::describe_panic;
use crate::run::Halt;

/// Ignored files that are named in the evidence.
const MAX_IGNORED: usize = 20;
/// Caches that tools fill by themselves. No check needs those of the run.
const CACHES: &[&str] = &[
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".DS_Store",
];

/// What came of the chain.
pub(super) enum Chain {
    /// Nothing blocks; these checks fail, and failed before the run, too.
    Passed {
        failing: Vec<String>,
    },
    Blocked(Judged),
    /// A fixer changed what would land: everything is to be looked at again.
    Fixed,
}

/// One round over the validators.
pub(super) struct Checks<'a> {
    pub(super) run: &'a RunParts,
    pub(super) transaction: &'a dyn Transaction,
    pub(super) changes: &'a Changes,
    /// Changed paths that are shown as they were before.
    pub(super) without: Vec<String>,
}

/// A tree for checks, or the report of the set-up that failed in it.
type Prepared = Result<Box<dyn CheckTree>, (String, Report)>;

impl Checks<'_> {
    /// Runs the validators in order until one blocks.
    pub(super) async fn chain(&self) -> Result<Chain, StepError> {
        if self.run.parts.validators.is_empty() {
            let failing = Vec::new();
            return Ok(Chain::Passed { failing });
        }
        let without = self.without.as_slice();
        let state = match self.run.contract.keep_ignored {
            true => CheckState::WithIgnored { without },
            false => CheckState::Landing { without },
        };
        let tree = match self.prepare(state, true).await? {
            Ok(tree) => tree,
            Err((name, report)) => return Ok(blocked(name, report.findings)),
        };
        let chain = self.chain_in(tree.as_ref()).await;
        close(tree).await;
        chain
    }

    async fn chain_in(&self, tree: &dyn CheckTree) -> Result<Chain, StepError> {
        let (mut fixed, mut failing) = (false, Vec::new());
        for validator in self.validators() {
            let (name, blocking) = (validator.name().to_owned(), validator.blocking());
            self.started(&name).await?;
            let mut report = self.ask(validator, tree).await?;
            let disturbed = tree.disturbed().await?;
            let fixes = validator.fixes() && !disturbed.is_empty();
            if fixes {
                tree.take_over().await?;
                fixed = true;
            } else if !disturbed.is_empty() {
                let proof = report.proof;
                report = Report {
                    proof,
                    ..Report::unverifiable(disturbance(&disturbed))
                };
            } else if report.judgement != Judgement::Pass {
                report = self.look_again(validator, report).await?;
            }
            if self.run.contract.keep_ignored {
                let ignored = self.changes.left.iter().take(MAX_IGNORED);
                report.proof.ignored = ignored.cloned().collect();
            }
            // A tree that was disturbed is not the one that the others saw, whoever did it.
            let disturbs = !fixes && !disturbed.is_empty();
            let blocks = disturbs || (blocking && stops(validator.role(), &report));
            let (findings, before) = (report.findings.clone(), report.failed_before());
            self.validated(&name, blocking, report).await?;
            if blocks {
                return Ok(blocked(name, findings));
            }
            if before && blocking && !self.run.contract.accept_preexisting {
                failing.push(name);
            }
        }
        Ok(match fixed {
            true => Chain::Fixed,
            false => Chain::Passed { failing },
        })
    }

    fn validators(&self) -> impl Iterator<Item = &dyn Validator> {
        let all = self.run.parts.validators.iter().map(AsRef::as_ref);
        all.filter(|one| one.role() != CheckRole::Setup)
    }

    /// Opens a tree and runs the set-up in it. `told` logs the set-up.
    async fn prepare(&self, state: CheckState<'_>, told: bool) -> Result<Prepared, StepError> {
        let tree = self.transaction.check_tree(state).await?;
        let all = self.run.parts.validators.iter();
        for setup in all.filter(|one| one.role() == CheckRole::Setup) {
            let name = setup.name().to_owned();
            if told {
                self.started(&name).await?;
            }
            let report = self.ask(setup.as_ref(), tree.as_ref()).await?;
            if told {
                self.validated(&name, true, report.clone()).await?;
            }
            if report.judgement != Judgement::Pass {
                close(tree).await;
                return Ok(Err((name, report)));
            }
        }
        // What the set-up wrote is a part of the tree that is judged.
        let written = tree.disturbed().await?;
        if !written.is_empty() {
            close(tree).await;
            let report = Report::unverifiable(disturbance(&written));
            return Ok(Err(("setup".to_owned(), report)));
        }
        tree.end_setup();
        Ok(Ok(tree))
    }

    /// A second look at a check that did not pass.
    async fn look_again(
        &self,
        validator: &dyn Validator,
        report: Report,
    ) -> Result<Report, StepError> {
        let report = match self.needs_ignored(validator) {
            true => self.with_ignored(validator, report).await?,
            false => report,
        };
        match (validator.role(), report.judgement) {
            (CheckRole::Detected, Judgement::Fail) => self.compare(validator, report).await,
            _ => Ok(report),
        }
    }

    fn needs_ignored(&self, validator: &dyn Validator) -> bool {
        let of_use = |path: &String| !path.split('/').any(|name| CACHES.contains(&name));
        validator.reads_ignored()
            && !self.run.contract.keep_ignored
            && self.transaction.name().is_some()
            && self.changes.left.iter().any(of_use)
    }

    /// The same check with the ignored files that the run left. What passes only with them is not proven; what fails
    /// with them fails for another reason than that they are missing.
    async fn with_ignored(
        &self,
        validator: &dyn Validator,
        report: Report,
    ) -> Result<Report, StepError> {
        let without = [self.without.as_slice(), &self.changes.newly_ignored].concat();
        let state = CheckState::WithIgnored { without: &without };
        let Ok(tree) = self.prepare(state, false).await? else {
            return Ok(report);
        };
        let second = self.ask(validator, tree.as_ref()).await?;
        close(tree).await;
        if second.judgement != Judgement::Pass {
            return Ok(second);
        }
        let proof = report.proof;
        Ok(Report {
            proof,
            ..Report::unverifiable(self.only_with_ignored())
        })
    }

    fn only_with_ignored(&self) -> String {
        let install = install_command(self.changes);
        let setup = match install {
            Some(line) => format!("prepare the checks with `validate.setup = [\"{line}\"]`"),
            None => "prepare the checks with `validate.setup`".to_owned(),
        };
        format!(
            "it passes only with ignored files that the run changed and that do not land ({}); {setup}, or accept them \
             with --keep-ignored",
            paths_in_words(&self.changes.left)
        )
    }

    /// Marks the findings that the check has on the tree of before, too.
    async fn compare(
        &self,
        validator: &dyn Validator,
        mut report: Report,
    ) -> Result<Report, StepError> {
        let known = self.run.base_findings.lock().get(validator.name()).cloned();
        let before = match known {
            Some(findings) => findings,
            None => {
                let findings = self.on_base(validator).await?;
                let mut all = self.run.base_findings.lock();
                all.insert(validator.name().to_owned(), findings.clone());
                findings
            }
        };
        for finding in &mut report.findings {
            finding.preexisting = before.iter().any(|old| old.is_like(finding));
        }
        Ok(report)
    }

    /// The findings of a check on the tree of before; none where it does not fail there.
    async fn on_base(&self, validator: &dyn Validator) -> Result<Vec<Finding>, StepError> {
        let tree = match self.prepare(CheckState::Base, false).await {
            Ok(Ok(tree)) => tree,
            Ok(Err(_)) => return Ok(Vec::new()),
            // Then every failure counts as new.
            Err(StepError::Ends(Outcome::Failed { detail, .. })) => {
                self.run.warn("no_base_tree", detail).await?;
                return Ok(Vec::new());
            }
            Err(err) => return Err(err),
        };
        let report = self.ask(validator, tree.as_ref()).await?;
        close(tree).await;
        Ok(match report.judgement {
            Judgement::Fail => report.findings,
            _ => Vec::new(),
        })
    }

    /// One validator under its deadline, whatever it does.
    async fn ask(
        &self,
        validator: &dyn Validator,
        tree: &dyn CheckTree,
    ) -> Result<Report, StepError> {
        let run = self.run;
        let (files, processes) = (tree.files(), tree.processes());
        let before = self.transaction.before();
        let deadline = validator.deadline();
        let cancel = run.outlet.control.stop.child_token();
        let ctx = CheckCtx {
            files: &files,
            before: &before,
            processes: &processes,
            changes: &self.changes.files,
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
        tree.freeze().await?;
        Ok(match checked {
            Ok(Ok(report)) => report,
            Ok(Err(ValidatorError(why))) => Report::unverifiable(why),
            Err(panic) => Report::unverifiable(describe_panic(panic.as_ref())),
        })
    }

    async fn started(&self, name: &str) -> Result<(), StepError> {
        let validator = name.to_owned();
        let started = EventKind::ValidationStarted { validator };
        self.run.outlet.emit(started).await?;
        Ok(())
    }

    async fn validated(&self, name: &str, blocking: bool, report: Report) -> Result<(), StepError> {
        let validated = EventKind::Validated {
            validator: name.to_owned(),
            blocking,
            report,
            tree_hash: self.changes.tree_hash.clone(),
        };
        self.run.outlet.emit(validated).await?;
        Ok(())
    }
}

fn blocked(validator: String, findings: Vec<Finding>) -> Chain {
    Chain::Blocked(Judged::Blocked {
        validator,
        findings,
    })
}

/// Whether a verdict stops the landing.
fn stops(role: CheckRole, report: &Report) -> bool {
    match report.judgement {
        Judgement::Pass => false,
        // Checks that are always there do what they can; they know nothing of what they cannot judge.
        Judgement::Unverifiable => role != CheckRole::BuiltIn,
        Judgement::Fail => !(role == CheckRole::Detected && report.failed_before()),
    }
}

/// Removes a tree; it may hold the output of a whole build.
async fn close(tree: Box<dyn CheckTree>) {
    let _ = tokio::task::spawn_blocking(move || drop(tree)).await;
}

fn disturbance(paths: &[String]) -> String {
    format!(
        "it changed files that would land ({}); ignore them in .gitignore, or declare the validator a fixer",
        paths_in_words(paths)
    )
}
