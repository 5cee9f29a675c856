//! Runs the chain of validators over exactly the changes that would land, in a separate tree. A check that fails may run up
//! to two more times: with the ignored files of the run, and on the tree from before the run. The results tell whether the
//! check failed for lack of these files, and whether it failed before.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use windlass_core::event::EventKind;
use windlass_core::outcome::Outcome;
use windlass_core::run::{Judged, paths_in_words};
use windlass_core::runtime::EventSink;
use windlass_core::setup::install_command;
use windlass_core::validator::{
    CheckCtx, CheckRole, Finding, Judgement, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{Changes, CheckState, CheckTree, Transaction};

use super::driver::{RunParts, StepError};
use super::iterate::until_stopped;
use crate::executor::describe_panic;
use crate::run::HaltReason;

/// Maximum number of ignored files that the evidence names.
const MAX_IGNORED: usize = 20;
/// Caches that tools create again by themselves, so no check needs those of the run.
const CACHES: &[&str] = &[
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".DS_Store",
];

/// The result of the chain.
pub(super) enum ChainResult {
    /// Nothing blocks. The checks in `failing` fail, and also failed before the run.
    Passed {
        failing: Vec<String>,
    },
    Blocked(Judged),
    /// A fixer changed files that would land, so the chain has to run again.
    Fixed,
}

/// One round over the validators.
pub(super) struct ValidatorRound<'a> {
    pub(super) run: &'a RunParts,
    pub(super) transaction: &'a dyn Transaction,
    pub(super) changes: &'a Changes,
    /// Changed paths that the validators see in their version from before the run.
    pub(super) without: Vec<String>,
}

/// A tree for checks, or the name and the report of the setup that failed in it.
type Prepared = Result<Box<dyn CheckTree>, (String, Report)>;

impl ValidatorRound<'_> {
    /// Runs the validators in order until one blocks.
    pub(super) async fn run_chain(&self) -> Result<ChainResult, StepError> {
        if self.run.parts.validators.is_empty() {
            let failing = Vec::new();
            return Ok(ChainResult::Passed { failing });
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
        let chain = self.run_chain_in(tree.as_ref()).await;
        close(tree).await;
        chain
    }

    async fn run_chain_in(&self, tree: &dyn CheckTree) -> Result<ChainResult, StepError> {
        let (mut fixed, mut failing) = (false, Vec::new());
        for validator in self.validators() {
            let (name, blocking) = (validator.name().to_owned(), validator.blocking());
            self.started(&name).await?;
            let mut report = self.run_validator(validator, tree).await?;
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
                report = self.recheck(validator, report).await?;
            }
            if self.run.contract.keep_ignored {
                let ignored = self.changes.left.iter().take(MAX_IGNORED);
                report.proof.ignored = ignored.cloned().collect();
            }
            // If a check changed the tree, the other checks did not judge the same files.
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
            true => ChainResult::Fixed,
            false => ChainResult::Passed { failing },
        })
    }

    fn validators(&self) -> impl Iterator<Item = &dyn Validator> {
        let all = self.run.parts.validators.iter().map(AsRef::as_ref);
        all.filter(|one| one.role() != CheckRole::Setup)
    }

    /// Opens a tree and runs the setup in it. If `logged`, the setup is logged.
    async fn prepare(&self, state: CheckState<'_>, logged: bool) -> Result<Prepared, StepError> {
        let tree = self.transaction.check_tree(state).await?;
        let all = self.run.parts.validators.iter();
        for setup in all.filter(|one| one.role() == CheckRole::Setup) {
            let name = setup.name().to_owned();
            if logged {
                self.started(&name).await?;
            }
            let report = self.run_validator(setup.as_ref(), tree.as_ref()).await?;
            if logged {
                self.validated(&name, true, report.clone()).await?;
            }
            if report.judgement != Judgement::Pass {
                close(tree).await;
                return Ok(Err((name, report)));
            }
        }
        // The setup must not change files that are judged.
        let written = tree.disturbed().await?;
        if !written.is_empty() {
            close(tree).await;
            let report = Report::unverifiable(disturbance(&written));
            return Ok(Err(("setup".to_owned(), report)));
        }
        tree.end_setup();
        Ok(Ok(tree))
    }

    /// Runs a check that did not pass again, to find the reason.
    async fn recheck(
        &self,
        validator: &dyn Validator,
        report: Report,
    ) -> Result<Report, StepError> {
        let report = match self.needs_ignored(validator) {
            true => self.with_ignored(validator, report).await?,
            false => report,
        };
        match (validator.role(), report.judgement) {
            (CheckRole::Detected, Judgement::Fail) => {
                self.mark_preexisting(validator, report).await
            }
            _ => Ok(report),
        }
    }

    fn needs_ignored(&self, validator: &dyn Validator) -> bool {
        let is_useful = |path: &String| !path.split('/').any(|name| CACHES.contains(&name));
        validator.reads_ignored()
            && !self.run.contract.keep_ignored
            && self.transaction.name().is_some()
            && self.changes.left.iter().any(is_useful)
    }

    /// Repeats a check with the ignored files of the run. If it passes only with them, the result is unverifiable. If it fails
    /// with them too, their absence is not the reason.
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
        let second = self.run_validator(validator, tree.as_ref()).await?;
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
             with `--keep-ignored`",
            paths_in_words(&self.changes.left)
        )
    }

    /// Marks the findings that the check also has on the tree from before the run.
    async fn mark_preexisting(
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

    /// The findings of a check on the tree from before the run; empty if it does not fail there.
    async fn on_base(&self, validator: &dyn Validator) -> Result<Vec<Finding>, StepError> {
        let tree = match self.prepare(CheckState::Base, false).await {
            Ok(Ok(tree)) => tree,
            Ok(Err(_)) => return Ok(Vec::new()),
            // Without that tree, every failure counts as new.
            Err(StepError::Ends(Outcome::Failed { detail, .. })) => {
                self.run.warn("no_base_tree", detail).await?;
                return Ok(Vec::new());
            }
            Err(err) => return Err(err),
        };
        let report = self.run_validator(validator, tree.as_ref()).await?;
        close(tree).await;
        Ok(match report.judgement {
            Judgement::Fail => report.findings,
            _ => Vec::new(),
        })
    }

    /// Runs one validator under its deadline. An error or a panic makes the result unverifiable.
    async fn run_validator(
        &self,
        validator: &dyn Validator,
        tree: &dyn CheckTree,
    ) -> Result<Report, StepError> {
        let run = self.run;
        let (files, processes) = (tree.files(), tree.processes());
        let before = self.transaction.before();
        let deadline = validator.deadline();
        let cancel = run.sink.control.stop.child_token();
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
                Ok(Ok(Report::unverifiable(format!("timed out after {} seconds", deadline.as_secs()))))
            }
            () = until_stopped(run) => return Err(match run.sink.control.halted() {
                Some(HaltReason::PausedNow | HaltReason::PausedOnAsk) => StepError::Paused,
                Some(HaltReason::TimedOut) => StepError::Ends(Outcome::TimedOut),
                _ => StepError::Ends(Outcome::Cancelled),
            }),
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
        self.run.sink.emit(started).await?;
        Ok(())
    }

    async fn validated(&self, name: &str, blocking: bool, report: Report) -> Result<(), StepError> {
        let validated = EventKind::Validated {
            validator: name.to_owned(),
            blocking,
            report,
            tree_hash: self.changes.tree_hash.clone(),
        };
        self.run.sink.emit(validated).await?;
        Ok(())
    }
}

fn blocked(validator: String, findings: Vec<Finding>) -> ChainResult {
    ChainResult::Blocked(Judged::Blocked {
        validator,
        findings,
    })
}

/// True if a verdict prevents the landing.
fn stops(role: CheckRole, report: &Report) -> bool {
    match report.judgement {
        Judgement::Pass => false,
        // A built-in check runs for every project, also for files that it cannot judge.
        Judgement::Unverifiable => role != CheckRole::BuiltIn,
        Judgement::Fail => !(role == CheckRole::Detected && report.failed_before()),
    }
}

/// Removes a tree. It may contain the output of a whole build, so this runs on a blocking thread.
async fn close(tree: Box<dyn CheckTree>) {
    let _ = tokio::task::spawn_blocking(move || drop(tree)).await;
}

fn disturbance(paths: &[String]) -> String {
    format!(
        "it changed files that would land ({}); add them to .gitignore, or declare the validator a fixer",
        paths_in_words(paths)
    )
}
