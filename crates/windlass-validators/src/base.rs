//! The base of every validator: a check is what one of them does, and everything else (name, time limit, judges, the
//! walk over changed files, the verdict) is here once. Commands are in `command`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_core::validator::{
    CheckCtx, CheckRole, Finding, Judgement, Proof, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{Change, FileChange};
use windlass_core::{BoxFuture, CancellationToken};

use crate::judges::Judges;
use crate::plan::{PlanKind, ValidatorPlan};

/// What one kind of validator does.
pub(crate) trait Check: Send + Sync + 'static {
    /// Looks at what would land, for no longer than `time`.
    fn check(
        &self,
        ctx: &CheckCtx<'_>,
        time: Duration,
    ) -> impl Future<Output = Result<Report, ValidatorError>> + Send;
}

/// A check under the name and limits of a plan.
pub(crate) fn planned(
    plan: &ValidatorPlan,
    judges: Judges,
    check: impl Check,
) -> Arc<dyn Validator> {
    let plan = plan.clone();
    Arc::new(Planned {
        plan,
        judges,
        check,
    })
}

struct Planned<C> {
    plan: ValidatorPlan,
    judges: Judges,
    check: C,
}

impl<C: Check> Validator for Planned<C> {
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
        self.judges.holds(path)
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(self.check.check(ctx, self.plan.timeout.min(ctx.deadline)))
    }
}

/// What was found so far: what is wrong, and what could not be looked at. Bounded.
pub(crate) struct Found {
    wrong: Vec<Finding>,
    unsure: Vec<Finding>,
    max: usize,
}

impl Found {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            wrong: Vec::new(),
            unsure: Vec::new(),
            max,
        }
    }

    pub(crate) fn wrong(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let room = self.max - self.wrong.len();
        self.wrong.extend(findings.into_iter().take(room));
    }

    pub(crate) fn unsure(&mut self, findings: impl IntoIterator<Item = Finding>) {
        let room = self.max - self.unsure.len();
        self.unsure.extend(findings.into_iter().take(room));
    }

    /// Anything wrong is a fail; otherwise anything that could not be looked at is no verdict.
    pub(crate) fn report(mut self) -> Report {
        let judgement = match (self.wrong.is_empty(), self.unsure.is_empty()) {
            (false, _) => Judgement::Fail,
            (true, false) => Judgement::Unverifiable,
            (true, true) => Judgement::Pass,
        };
        self.wrong.append(&mut self.unsure);
        self.wrong.truncate(self.max);
        Report::new(judgement, self.wrong)
    }
}

/// A finding about a file as a whole.
pub(crate) fn about(path: &str, message: impl Into<String>) -> Finding {
    Finding {
        path: path.to_owned(),
        ..Finding::whole(message)
    }
}

/// Looks at each changed file that is still there, on a thread that may block, until the time is over. The proof is our
/// own version.
pub(crate) async fn each_file(
    ctx: &CheckCtx<'_>,
    time: Duration,
    max_findings: usize,
    look: impl FnMut(&FileChange, &mut Found) + Send + 'static,
) -> Result<Report, ValidatorError> {
    let (changes, cancel) = (ctx.changes.to_vec(), ctx.cancel.clone());
    tokio::task::spawn_blocking(move || {
        let mut found = Found::new(max_findings);
        if let Some((path, why)) = look_until(&changes, &cancel, time, &mut found, look) {
            found.unsure([Finding::whole(format!("{why} before {path} was looked at"))]);
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

/// The first file that was not looked at, and why. Enough findings are no reason.
fn look_until<'a>(
    changes: &'a [FileChange],
    cancel: &CancellationToken,
    time: Duration,
    found: &mut Found,
    mut look: impl FnMut(&FileChange, &mut Found),
) -> Option<(&'a str, &'static str)> {
    let started = Instant::now();
    let there = |change: &&FileChange| change.change != Change::Deleted;
    for change in changes.iter().filter(there) {
        if cancel.is_cancelled() {
            return Some((&change.path, "it was stopped"));
        }
        if started.elapsed() > time {
            return Some((&change.path, "its time was over"));
        }
        if found.wrong.len() == found.max {
            return None;
        }
        look(change, found);
    }
    None
}
