//! The code that all validators share: name, time limit, the paths that the verdict depends on, the loop over changed
//! files, and the verdict. A validator itself only implements [`ValidatorCheck`]. Running commands is in `command`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_core::validator::{
    CheckCtx, CheckRole, Finding, Judgement, Proof, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{Change, FileChange};
use windlass_core::{BoxFuture, CancellationToken};

use crate::plan::{PlanKind, ValidatorPlan};
use crate::verdict_inputs::VerdictInputs;

/// The part that differs between the kinds of validators.
pub(crate) trait ValidatorCheck: Send + Sync + 'static {
    /// Checks the changes that would land, for at most `time`.
    fn check(
        &self,
        ctx: &CheckCtx<'_>,
        time: Duration,
    ) -> impl Future<Output = Result<Report, ValidatorError>> + Send;
}

/// Makes a validator from a check, with the name and the limits of the plan.
pub(crate) fn with_plan(
    plan: &ValidatorPlan,
    judges: VerdictInputs,
    check: impl ValidatorCheck,
) -> Arc<dyn Validator> {
    let plan = plan.clone();
    Arc::new(PlannedValidator {
        plan,
        judges,
        check,
    })
}

struct PlannedValidator<C> {
    plan: ValidatorPlan,
    judges: VerdictInputs,
    check: C,
}

impl<C: ValidatorCheck> Validator for PlannedValidator<C> {
    fn name(&self) -> &str {
        &self.plan.name
    }

    fn blocking(&self) -> bool {
        self.plan.blocking
    }

    fn fixes(&self) -> bool {
        self.plan.fixes
    }

    fn deadline(&self) -> Duration {
        self.plan.timeout
    }

    fn role(&self) -> CheckRole {
        self.plan.role
    }

    fn reads_ignored(&self) -> bool {
        matches!(
            self.plan.kind,
            PlanKind::Command { .. } | PlanKind::Custom { .. }
        )
    }

    fn judges(&self, path: &str) -> bool {
        self.judges.contains(path)
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(self.check.check(ctx, self.plan.timeout.min(ctx.deadline)))
    }
}

/// The findings so far: flaws, and files that could not be checked. At most `max` of each are kept.
pub(crate) struct CollectedFindings {
    flaws: Vec<Finding>,
    unverified: Vec<Finding>,
    max: usize,
}

impl CollectedFindings {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            flaws: Vec::new(),
            unverified: Vec::new(),
            max,
        }
    }

    pub(crate) fn add_flaws(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let free = self.max - self.flaws.len();
        self.flaws.extend(findings.into_iter().take(free));
    }

    pub(crate) fn add_unverified(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let free = self.max - self.unverified.len();
        self.unverified.extend(findings.into_iter().take(free));
    }

    /// Any flaw is a fail; otherwise any file that could not be checked makes the result unverifiable.
    pub(crate) fn report(mut self) -> Report {
        let judgement = match (self.flaws.is_empty(), self.unverified.is_empty()) {
            (false, _) => Judgement::Fail,
            (true, false) => Judgement::Unverifiable,
            (true, true) => Judgement::Pass,
        };
        self.flaws.append(&mut self.unverified);
        self.flaws.truncate(self.max);
        Report::new(judgement, self.flaws)
    }
}

/// A finding about a file as a whole.
pub(crate) fn finding_about(path: &str, message: impl Into<String>) -> Finding {
    Finding {
        path: path.to_owned(),
        ..Finding::whole(message)
    }
}

/// Calls `look` for each changed file that still exists, on a blocking thread, until the time limit. The proof in the
/// report is the version of this crate.
pub(crate) async fn each_file(
    ctx: &CheckCtx<'_>,
    time: Duration,
    max_findings: usize,
    look: impl FnMut(&FileChange, &mut CollectedFindings) + Send + 'static,
) -> Result<Report, ValidatorError> {
    let (changes, cancel) = (ctx.changes.to_vec(), ctx.cancel.clone());
    tokio::task::spawn_blocking(move || {
        let mut found = CollectedFindings::new(max_findings);
        if let Some((path, why)) = look_until(&changes, &cancel, time, &mut found, look) {
            found.add_unverified([Finding::whole(format!("{why} before {path} was checked"))]);
        }
        let proof = Proof {
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Proof::default()
        };
        Report {
            proof,
            ..found.report()
        }
    })
    .await
    .map_err(|err| ValidatorError(format!("the check failed: {err}")))
}

/// Returns the first file that was not checked and the reason, or `None` if all were checked or the limit of findings was
/// reached.
fn look_until<'a>(
    changes: &'a [FileChange],
    cancel: &CancellationToken,
    time: Duration,
    found: &mut CollectedFindings,
    mut look: impl FnMut(&FileChange, &mut CollectedFindings),
) -> Option<(&'a str, &'static str)> {
    let started = Instant::now();
    let there = |change: &&FileChange| change.change != Change::Deleted;
    for change in changes.iter().filter(there) {
        if cancel.is_cancelled() {
            return Some((&change.path, "it was cancelled"));
        }
        if started.elapsed() > time {
            return Some((&change.path, "it timed out"));
        }
        if found.flaws.len() == found.max {
            return None;
        }
        look(change, found);
    }
    None
}
