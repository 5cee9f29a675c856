//! Validators as plain data, and how they are made of it. Settings and flags become plans; nothing here reads either.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{CheckRole, USUAL_DEADLINE, Validator};
use windlass_core::workspace::Redactor;

use crate::bandit::{self, Bandit};
use crate::base::planned;
use crate::command::CommandCheck;
use crate::custom::Custom;
use crate::judges::Judges;
use crate::secrets::SecretScan;
use crate::syntax::Syntax;

/// A validator that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatorPlan {
    /// Its name, in events and findings.
    pub name: String,
    /// What it does.
    pub kind: PlanKind,
    /// What a detected command is for.
    pub purpose: Option<Purpose>,
    /// Its part in the judging.
    pub role: CheckRole,
    /// Whether its fail stops the landing.
    pub blocking: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it may change what would land.
    pub fixes: bool,
    /// More paths that its verdict hangs on, as globs.
    pub judges: Vec<String>,
}

/// What a validator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanKind {
    /// Reads changed files by their language.
    Syntax,
    /// Runs a command; its exit code is the verdict.
    Command {
        /// The command line.
        line: String,
    },
    /// Looks for secrets that the change adds.
    Secrets,
    /// Looks for insecure Python.
    Bandit,
    /// Runs a command that is told the changes and answers with a verdict, both as JSON.
    Custom {
        /// The command line.
        line: String,
    },
}

/// What a command of a project is for, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// It builds or checks types.
    Build,
    /// It runs the tests.
    Test,
    /// It finds fault with the style.
    Lint,
}

/// What validators need besides the run they judge.
#[derive(Clone)]
pub struct Tools {
    /// Knows what a secret looks like.
    pub redactor: Arc<dyn Redactor>,
    /// Where bandit is, in the tool's own environment; `None` takes the one on the path.
    pub bandit: Option<String>,
}

impl ValidatorPlan {
    /// One of those that are always there: `syntax`, `secrets`, `bandit`; or one of these that were detected.
    pub fn named(name: &str, detected: &[Self]) -> Result<Self, UnknownValidator> {
        let built_in = Self::built_in();
        let known = || built_in.iter().chain(detected);
        if let Some(plan) = known().find(|plan| plan.name == name) {
            return Ok(plan.clone());
        }
        let near = known().map(|plan| (strsim::jaro_winkler(name, &plan.name), &plan.name));
        let nearest = near
            .filter(|(score, _)| *score > 0.75)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        Err(UnknownValidator {
            name: name.to_owned(),
            nearest: nearest.map(|(_, name)| name.clone()),
            known: known().map(|plan| plan.name.clone()).collect(),
        })
    }

    /// Those that are always there. Syntax blocks; what looks for security advises.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        let plan = |name: &str, kind, blocking, seconds| Self {
            kind,
            blocking,
            timeout: Duration::from_secs(seconds),
            role: CheckRole::BuiltIn,
            ..Self::command(name, "")
        };
        vec![
            plan("syntax", PlanKind::Syntax, true, 120),
            plan("secrets", PlanKind::Secrets, false, 60),
            plan("bandit", PlanKind::Bandit, false, 120),
        ]
    }

    /// A command that a person gave; it blocks.
    #[must_use]
    pub fn command(name: &str, line: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: PlanKind::Command {
                line: line.to_owned(),
            },
            purpose: None,
            role: CheckRole::Given,
            blocking: true,
            timeout: USUAL_DEADLINE,
            fixes: false,
            judges: Vec::new(),
        }
    }
}

/// A command that prepares the tree for the checks.
#[must_use]
pub fn setup(line: &str) -> ValidatorPlan {
    ValidatorPlan {
        role: CheckRole::Setup,
        ..ValidatorPlan::command(&format!("setup: {line}"), line)
    }
}

/// A name that no validator has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownValidator {
    /// What was asked for.
    pub name: String,
    /// What was probably meant.
    pub nearest: Option<String>,
    /// What there is.
    pub known: Vec<String>,
}

impl std::fmt::Display for UnknownValidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no validator `{}`", self.name)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => write!(f, "; there are {}", self.known.join(", ")),
        }
    }
}

impl std::error::Error for UnknownValidator {}

/// Makes a validator.
#[must_use]
pub fn build(plan: &ValidatorPlan, tools: &Tools) -> Arc<dyn Validator> {
    match &plan.kind {
        PlanKind::Syntax => planned(plan, Judges::default(), Syntax),
        PlanKind::Secrets => {
            let redactor = tools.redactor.clone();
            planned(plan, Judges::default(), SecretScan { redactor })
        }
        PlanKind::Bandit => {
            let judges = Judges::only(bandit::SETTINGS, &plan.judges);
            let program = tools.bandit.clone();
            planned(plan, judges, Bandit { program })
        }
        PlanKind::Command { line } => {
            let (judges, line) = (Judges::of(line, &plan.judges), line.clone());
            planned(plan, judges, CommandCheck { line })
        }
        PlanKind::Custom { line } => {
            let (judges, line) = (Judges::of(line, &plan.judges), line.clone());
            planned(plan, judges, Custom { line })
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::workspace::NoSecrets;

    use super::*;

    #[test]
    fn a_plan_becomes_a_validator_that_says_what_the_plan_says() {
        let tools = Tools {
            redactor: Arc::new(NoSecrets),
            bandit: None,
        };
        let custom = ValidatorPlan {
            kind: PlanKind::Custom {
                line: "sh own.sh".into(),
            },
            ..ValidatorPlan::command("own", "")
        };
        let fixer = ValidatorPlan {
            fixes: true,
            ..ValidatorPlan::command("fmt", "cargo fmt")
        };
        for plan in ValidatorPlan::built_in().into_iter().chain([
            custom,
            fixer,
            ValidatorPlan::command("t", "make t"),
        ]) {
            let made = build(&plan, &tools);
            let said = (
                made.name().to_owned(),
                made.blocking(),
                made.deadline(),
                made.fixes(),
            );
            assert_eq!(
                said,
                (plan.name.clone(), plan.blocking, plan.timeout, plan.fixes)
            );
        }
        let own = build(&ValidatorPlan::command("t", "sh check.sh"), &tools);
        assert!(own.judges("check.sh") && !own.judges("src/a.rs"));
    }

    #[test]
    fn an_unknown_name_is_told_with_the_nearest() {
        let detected = [ValidatorPlan::command("cargo-test", "cargo test")];
        let check = |name: &str, expect: &str| {
            let said = ValidatorPlan::named(name, &detected);
            assert_eq!(
                said.map_or_else(|err| err.to_string(), |plan| plan.name),
                expect
            );
        };
        check("syntax", "syntax");
        check("cargo-test", "cargo-test");
        check(
            "sintax",
            "there is no validator `sintax`; did you mean `syntax`?",
        );
        check(
            "cargo-tests",
            "there is no validator `cargo-tests`; did you mean `cargo-test`?",
        );
        check(
            "zzz",
            "there is no validator `zzz`; there are syntax, secrets, bandit, cargo-test",
        );
    }
}
