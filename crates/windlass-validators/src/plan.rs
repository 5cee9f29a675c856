//! Describes validators as plain data and creates them. The caller turns settings and flags into plans; this file reads
//! neither.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{CheckRole, USUAL_DEADLINE, Validator};
use windlass_core::workspace::Redactor;

use crate::bandit::{self, Bandit};
use crate::base::with_plan;
use crate::command::CommandCheck;
use crate::custom::CustomCheck;
use crate::secrets::SecretScan;
use crate::syntax::Syntax;
use crate::verdict_inputs::VerdictInputs;

/// The description from which [`build`] creates a validator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatorPlan {
    /// The name of the validator in events and findings.
    pub name: String,
    /// The kind of check and its command line.
    pub kind: PlanKind,
    /// The purpose of a detected command; `None` for other validators.
    pub purpose: Option<Purpose>,
    /// Where the validator comes from, or that it is a setup command.
    pub role: CheckRole,
    /// Whether a failure prevents landing.
    pub blocking: bool,
    /// The time limit of one check.
    pub timeout: Duration,
    /// Whether it may change the files that would land, as a formatter does.
    pub fixes: bool,
    /// Globs of further paths that its verdict depends on.
    pub judges: Vec<String>,
}

/// The kinds of validators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanKind {
    /// Parses changed files in their language.
    Syntax,
    /// Runs a command; its exit status is the verdict.
    Command {
        /// The command line, for the shell.
        line: String,
    },
    /// Looks for secrets that the change adds.
    Secrets,
    /// Looks for insecure Python.
    Bandit,
    /// Runs a command that reads the changes from stdin and writes a verdict to stdout, both as JSON.
    Custom {
        /// The command line, for the shell.
        line: String,
    },
}

/// The purpose of a project's command, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The command builds the project or checks types.
    Build,
    /// The command runs the tests.
    Test,
    /// The command runs a linter.
    Lint,
}

/// Things that validators need in addition to the run.
#[derive(Clone)]
pub struct Tools {
    /// Recognises secrets in text.
    pub redactor: Arc<dyn Redactor>,
    /// The path of the bandit program in its own virtual environment; `None` uses the one on `PATH`.
    pub bandit: Option<String>,
}

impl ValidatorPlan {
    /// Finds a validator by name: one of the built-in ones (`syntax`, `secrets`, `bandit`) or of the detected ones.
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

    /// The built-in validators. `syntax` blocks landing; the security checks only report.
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

    /// A blocking validator that runs a command given by the user.
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

/// The error for a name that no validator has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownValidator {
    /// The name that was given.
    pub name: String,
    /// The most similar name, if one is similar enough.
    pub nearest: Option<String>,
    /// The names of all validators.
    pub known: Vec<String>,
}

impl std::fmt::Display for UnknownValidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no validator `{}`", self.name)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => write!(f, "; known validators: {}", self.known.join(", ")),
        }
    }
}

impl std::error::Error for UnknownValidator {}

/// Creates the validator that a plan describes.
#[must_use]
pub fn build(plan: &ValidatorPlan, tools: &Tools) -> Arc<dyn Validator> {
    match &plan.kind {
        PlanKind::Syntax => with_plan(plan, VerdictInputs::default(), Syntax),
        PlanKind::Secrets => {
            let redactor = tools.redactor.clone();
            with_plan(plan, VerdictInputs::default(), SecretScan { redactor })
        }
        PlanKind::Bandit => {
            let judges = VerdictInputs::only(bandit::SETTINGS, &plan.judges);
            let program = tools.bandit.clone();
            with_plan(plan, judges, Bandit { program })
        }
        PlanKind::Command { line } => {
            let (judges, line) = (VerdictInputs::of(line, &plan.judges), line.clone());
            with_plan(plan, judges, CommandCheck { line })
        }
        PlanKind::Custom { line } => {
            let (judges, line) = (VerdictInputs::of(line, &plan.judges), line.clone());
            with_plan(plan, judges, CustomCheck { line })
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::workspace::NoSecrets;

    use super::*;

    #[test]
    fn a_validator_has_the_properties_of_its_plan() {
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
            let validator = build(&plan, &tools);
            let found = (
                validator.name().to_owned(),
                validator.blocking(),
                validator.deadline(),
                validator.fixes(),
            );
            assert_eq!(
                found,
                (plan.name.clone(), plan.blocking, plan.timeout, plan.fixes)
            );
        }
        let own = build(&ValidatorPlan::command("t", "sh check.sh"), &tools);
        assert!(own.judges("check.sh") && !own.judges("src/a.rs"));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest() {
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
            "there is no validator `zzz`; known validators: syntax, secrets, bandit, cargo-test",
        );
    }
}
