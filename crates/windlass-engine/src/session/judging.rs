//! Whether it is done: the paths that may not be changed, the judges that were, then the chain of validators over
//! exactly what would land. What the person changed meanwhile is taken in first, and looked for again afterwards.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use windlass_core::event::EventKind;
use windlass_core::gate::{Bar, bar_at_landing, glob_match, may_write};
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::runtime::Outlet;
use windlass_core::validator::{CheckCtx, Evidence, Finding, Judgement, Proof, Report, Validator};
use windlass_core::workspace::{Changes, Transaction, WorkspaceError, WorkspaceErrorKind};

use super::drive::{Ended, Traces, Work};
use crate::executor::describe_panic;
use crate::run::Halt;

/// How often the tree may move under the validators before it is given up.
const MAX_CATCH_UPS: usize = 3;
/// How often the chain runs again because a validator mended something.
const MAX_FIXES: usize = 3;
/// Paths that are named in one message.
const MAX_NAMED: usize = 20;

/// What came of judging a try.
pub(super) enum Judged {
    /// Nothing blocks.
    Passed,
    /// There is nothing to judge.
    NothingChanged,
    /// These stand in the way.
    Objected(Vec<Objection>),
    /// The person changed the same files meanwhile.
    Conflict(String),
}

/// What one validator has against it.
pub(super) struct Objection {
    pub(super) validator: String,
    pub(super) findings: Vec<Finding>,
}

impl Objection {
    /// Each finding in a line, to be compared with those of another try.
    pub(super) fn lines(&self) -> Vec<String> {
        self.findings
            .iter()
            .map(|finding| format!("{}: {finding}", self.validator))
            .collect()
    }
}

impl Work {
    /// Judges what would land as the person's tree is now.
    pub(super) async fn judged(
        &self,
        transaction: &dyn Transaction,
        traces: &mut Traces,
    ) -> Result<Judged, Ended> {
        // In place there is no hash that evidence could be bound to, and nothing to stop for when nobody looks and
        // every path may be changed.
        let free = self.contract.write_paths.is_none() && !self.contract.strict_judge;
        if transaction.name().is_none() && self.parts.validators.is_empty() && free {
            return Ok(Judged::Passed);
        }
        transaction.freeze().await.map_err(broken)?;
        self.tell_notes(transaction).await?;
        let nothing = |changes: &Changes| {
            changes.files.is_empty() && changes.cannot.is_empty() && transaction.name().is_some()
        };
        let first = transaction.changes().await.map_err(broken)?;
        if nothing(&first) {
            // What changes nothing lands nothing, whatever the person did meanwhile: nobody need look.
            return match self.contract.allow_no_changes {
                true => self.judge(transaction, first, traces).await,
                false => Ok(Judged::NothingChanged),
            };
        }
        for _ in 0..=MAX_CATCH_UPS {
            if let Some(conflict) = self.catch_up(transaction).await? {
                return Ok(Judged::Conflict(conflict));
            }
            let changes = transaction.changes().await.map_err(broken)?;
            if nothing(&changes) && !self.contract.allow_no_changes {
                return Ok(Judged::NothingChanged);
            }
            let hash = changes.tree_hash.clone();
            let judged = self.judge(transaction, changes, traces).await?;
            if !matches!(judged, Judged::Passed)
                || transaction.moved().await.map_err(broken)?.is_empty()
            {
                return Ok(judged);
            }
            if self.contract.land_anyway {
                // Who reads the evidence has to see what it does not cover.
                traces.evidence.push(Evidence {
                    validator: "land_anyway".to_owned(),
                    judgement: Judgement::Unverifiable,
                    advisory: true,
                    tree_hash: traces
                        .evidence
                        .last()
                        .map_or(hash, |last| last.tree_hash.clone()),
                    proof: Proof::default(),
                });
                return Ok(judged);
            }
        }
        Ok(Judged::Conflict(format!(
            "the tree was changed {MAX_CATCH_UPS} times while the checks ran; stop what changes it, then land the kept copy"
        )))
    }

    /// Takes in what the person changed since; what cannot be is said.
    async fn catch_up(&self, transaction: &dyn Transaction) -> Result<Option<String>, Ended> {
        let moved = transaction.moved().await.map_err(broken)?;
        if moved.is_empty() {
            return Ok(None);
        }
        let text = format!("changed in your tree meanwhile: {}", named(&moved));
        self.outlet
            .emit(EventKind::Warned {
                code: "tree_moved".into(),
                text,
            })
            .await?;
        if self.contract.land_anyway {
            return Ok(None);
        }
        match transaction.catch_up().await {
            Ok(()) => Ok(None),
            Err(err) if err.kind == WorkspaceErrorKind::Conflict => Ok(Some(err.message)),
            Err(err) => Err(broken(err)),
        }
    }

    async fn judge(
        &self,
        transaction: &dyn Transaction,
        mut changes: Changes,
        traces: &mut Traces,
    ) -> Result<Judged, Ended> {
        for _ in 0..=MAX_FIXES {
            traces.evidence.clear();
            traces.judge_changed = self.judges_among(&changes);
            if let Some(objection) = self.forbidden(&changes, traces) {
                return Ok(Judged::Objected(vec![objection]));
            }
            let mut aside: Vec<String> = traces
                .judge_changed
                .iter()
                .filter(|path| self.protects(path))
                .cloned()
                .collect();
            aside.extend(changes.newly_ignored.iter().cloned());
            if !changes.newly_ignored.is_empty() {
                let text = format!(
                    "the run wrote the rules that ignore these, so they do not land, and the checks run without them: {}",
                    named(&changes.newly_ignored)
                );
                self.outlet
                    .emit(EventKind::Warned {
                        code: "newly_ignored".into(),
                        text,
                    })
                    .await?;
            }
            if !aside.is_empty() {
                transaction.set_aside(&aside).await.map_err(broken)?;
            }
            let chain = self.chain(transaction, &changes, traces).await;
            if !aside.is_empty() {
                transaction.put_back().await.map_err(broken)?;
            }
            match chain? {
                Chain::Passed => return Ok(Judged::Passed),
                Chain::Objected(objection) => return Ok(Judged::Objected(vec![objection])),
                Chain::Fixed => changes = transaction.changes().await.map_err(broken)?,
            }
        }
        let why = format!(
            "the fixers still changed something after {MAX_FIXES} rounds; they undo each other's work"
        );
        Ok(Judged::Objected(vec![Objection {
            validator: "fixers".into(),
            findings: vec![Finding::whole(why)],
        }]))
    }

    fn judges_among(&self, changes: &Changes) -> Vec<String> {
        let judges = |path: &str| {
            self.protects(path) || self.parts.validators.iter().any(|one| one.judges(path))
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
        self.contract
            .protect
            .iter()
            .any(|pattern| glob_match(pattern, path))
    }

    /// Changed paths that may not be changed.
    fn forbidden(&self, changes: &Changes, traces: &Traces) -> Option<Objection> {
        let mut findings = Vec::new();
        let mut object = |path: &str, message: String| {
            findings.push(Finding {
                path: path.to_owned(),
                line: 0,
                column: 0,
                message,
            });
        };
        let exposed = self.exposed();
        let isolated = changes.tree_hash.is_some();
        for change in &changes.files {
            let path = change.path.as_str();
            if self
                .contract
                .write_paths
                .as_ref()
                .is_some_and(|paths| !may_write(paths, path))
            {
                object(
                    path,
                    "only the allowed paths may be changed; put it back as it was".to_owned(),
                );
            } else if isolated && let Some(Bar::Never(why)) = bar_at_landing(path, "", &exposed) {
                object(
                    path,
                    format!("it may not be changed ({why}); put it back as it was"),
                );
            }
        }
        for (path, why) in &changes.cannot {
            object(path, format!("it cannot land: {why}"));
        }
        if self.contract.strict_judge {
            for path in &traces.judge_changed {
                object(
                    path,
                    "the checks hang on it, so it may not be changed; put it back as it was"
                        .to_owned(),
                );
            }
        }
        (!findings.is_empty()).then(|| Objection {
            validator: "paths".to_owned(),
            findings,
        })
    }

    /// Runs the validators in order until one blocks.
    async fn chain(
        &self,
        transaction: &dyn Transaction,
        changes: &Changes,
        traces: &mut Traces,
    ) -> Result<Chain, Ended> {
        // What validators see may differ from what lands by the judges that were put back.
        let mut seen = transaction.changes().await.map_err(broken)?.tree_hash;
        let mut fixed = false;
        for validator in &self.parts.validators {
            let name = validator.name().to_owned();
            self.outlet
                .emit(EventKind::ValidationStarted {
                    validator: name.clone(),
                })
                .await?;
            let mut report = self
                .ask_validator(validator.as_ref(), transaction, changes)
                .await?;
            let now = transaction.changes().await.map_err(broken)?;
            let disturbed = now.tree_hash != seen;
            if disturbed && validator.fixes() {
                fixed = true;
            } else if disturbed {
                report = Report {
                    proof: report.proof,
                    ..Report::unverifiable(disturbance(changes, &now))
                };
            }
            seen = now.tree_hash;
            let blocking = validator.blocking();
            let validated = EventKind::Validated {
                validator: name.clone(),
                blocking,
                report: report.clone(),
            };
            self.outlet.emit(validated).await?;
            let judgement = report.judgement;
            traces.evidence.push(Evidence {
                validator: name.clone(),
                judgement,
                advisory: !blocking,
                tree_hash: changes.tree_hash.clone(),
                proof: report.proof,
            });
            // A tree that was disturbed is not the one that the others saw, whoever did it.
            if judgement != Judgement::Pass && (blocking || (disturbed && !validator.fixes())) {
                return Ok(Chain::Objected(Objection {
                    validator: name,
                    findings: report.findings,
                }));
            }
        }
        Ok(if fixed { Chain::Fixed } else { Chain::Passed })
    }

    /// One validator under its deadline, whatever it does.
    async fn ask_validator(
        &self,
        validator: &dyn Validator,
        transaction: &dyn Transaction,
        changes: &Changes,
    ) -> Result<Report, Ended> {
        let (files, before, processes) = (
            transaction.files(),
            transaction.before(),
            transaction.processes(),
        );
        let deadline = validator.deadline();
        let cancel = self.outlet.control.stop.child_token();
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
            () = self.parts.clock.sleep(deadline) => {
                cancel.cancel();
                Ok(Ok(Report::unverifiable(format!("it took longer than {} seconds", deadline.as_secs()))))
            }
            () = self.until_told_to_end() => return Err(Ended::With(match self.outlet.control.halted() {
                Some(Halt::TimedOut) => Outcome::TimedOut,
                _ => Outcome::Cancelled,
            })),
        };
        transaction.freeze().await.map_err(broken)?;
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
    Objected(Objection),
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
        named(&paths)
    )
}

/// Paths in a sentence.
pub(super) fn named(paths: &[String]) -> String {
    let mut text = paths
        .iter()
        .take(MAX_NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if paths.len() > MAX_NAMED {
        text.push_str(&format!(" and {} more", paths.len() - MAX_NAMED));
    }
    text
}

/// The workspace itself failed.
pub(super) fn broken(err: WorkspaceError) -> Ended {
    let reason = match err.kind {
        WorkspaceErrorKind::Isolation => FailReason::Isolation,
        WorkspaceErrorKind::Conflict | WorkspaceErrorKind::Stale => FailReason::LandingConflict,
        WorkspaceErrorKind::Other => FailReason::Runtime,
    };
    Ended::With(Outcome::failed(reason, err.message))
}
