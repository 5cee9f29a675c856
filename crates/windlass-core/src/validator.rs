//! The port to validators, which decide whether a run's work is accepted. The model never decides that.
//!
//! ```
//! use windlass_core::validator::{Finding, Judgement, Report};
//!
//! let report = Report::new(Judgement::Fail, vec![Finding::whole("two tests fail")]);
//! assert_eq!(report.findings[0].to_string(), "two tests fail");
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workspace::{FileChange, FileError, Files, Processes};
use crate::{BoxFuture, CancellationToken};

/// The default timeout of a validator.
pub const USUAL_DEADLINE: Duration = Duration::from_secs(600);

/// Judges the changes that would land.
pub trait Validator: Send + Sync {
    /// The name in events and findings.
    fn name(&self) -> &str;
    /// Whether a failure prevents the landing.
    fn blocking(&self) -> bool {
        true
    }
    /// Whether the validator may change the tree. If it does, all validators run again on the changed tree. If a
    /// validator returns false here and changes the tree anyway, its verdict is discarded.
    fn fixes(&self) -> bool {
        false
    }
    /// The timeout of the validator.
    fn deadline(&self) -> Duration {
        USUAL_DEADLINE
    }
    /// The role of the validator, which determines what it can block.
    fn role(&self) -> CheckRole {
        CheckRole::Given
    }
    /// Whether the verdict can depend on ignored files. Only such a validator runs a second time with the ignored files
    /// of the run.
    fn reads_ignored(&self) -> bool {
        true
    }
    /// Whether the verdict depends on the file at this path: a test, a script or a setting.
    fn judges(&self, _path: &str) -> bool {
        false
    }
    /// Runs the validator on the tree of `ctx`.
    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>>;
}

/// The role of a validator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckRole {
    /// Prepares the tree for the others, such as `npm ci`. It runs first in every tree for validators, and prevents the
    /// landing if it fails.
    Setup,
    /// Given by the user. It prevents the landing unless it passes.
    #[default]
    Given,
    /// Detected in the project. Failures that existed before the run are presented to a person.
    Detected,
    /// Built in and always active. If it cannot judge a change, that does not prevent the landing.
    BuiltIn,
}

/// Read access to the tree as it was before the run.
pub trait BaseTree: Send + Sync {
    /// The content of a file; `None` if it did not exist. It is an error if the content is no longer known.
    fn read(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>, FileError>;
}

/// The context of a validator: everything that it may use.
pub struct CheckCtx<'a> {
    /// The tree that would land.
    pub files: &'a Arc<dyn Files>,
    /// The tree before the run. Commands and settings of validators come from here, never from what the run wrote.
    pub before: &'a Arc<dyn BaseTree>,
    /// For commands, which run in the run's sandbox.
    pub processes: &'a Arc<dyn Processes>,
    /// The changed files of the run.
    pub changes: &'a [FileChange],
    /// The timeout of the validator.
    pub deadline: Duration,
    /// Cancels the validator and its commands.
    pub cancel: CancellationToken,
}

/// The report of a validator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The verdict on the tree.
    pub judgement: Judgement,
    /// The findings that explain the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The evidence for the verdict.
    #[serde(default, skip_serializing_if = "Proof::is_empty")]
    pub proof: Proof,
}

impl Report {
    /// A verdict with findings and without proof.
    #[must_use]
    pub fn new(judgement: Judgement, findings: Vec<Finding>) -> Self {
        Self {
            judgement,
            findings,
            proof: Proof::default(),
        }
    }

    /// A pass without findings.
    #[must_use]
    pub fn pass() -> Self {
        Self::new(Judgement::Pass, Vec::new())
    }

    /// Whether the validator failed only with findings that existed before the run.
    #[must_use]
    pub fn failed_before(&self) -> bool {
        self.judgement == Judgement::Fail
            && !self.findings.is_empty()
            && self.findings.iter().all(|finding| finding.preexisting)
    }

    /// A verdict that could not be established, for this reason.
    #[must_use]
    pub fn unverifiable(why: impl Into<String>) -> Self {
        Self::new(Judgement::Unverifiable, vec![Finding::whole(why)])
    }
}

/// The evidence for a verdict, as far as the validator can provide it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The version of the tool that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The command line that was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The exit status of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The BLAKE3 hash of the stored part of its output, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Ignored files that the run changed and that were present during the check. They do not land.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

impl Proof {
    /// Whether there is no evidence at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The verdict of a validator. Unverifiable is reported and never counts as a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The tree fulfils the validator's condition.
    Pass,
    /// The tree violates the validator's condition.
    Fail,
    /// The verdict could not be established.
    Unverifiable,
}

/// One finding, shown as `path:line:column: message`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Path relative to the root; empty if the finding is about the whole tree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Line number, counted from 1; 0 if the finding is about the whole file.
    #[serde(default)]
    pub line: u32,
    /// Column in characters, counted from 1; 0 if the finding is about the whole line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub column: u32,
    /// A description of the problem.
    pub message: String,
    /// True if the problem existed before the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preexisting: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Finding {
    /// A finding about the whole tree.
    #[must_use]
    pub fn whole(message: impl Into<String>) -> Self {
        Self {
            path: String::new(),
            line: 0,
            column: 0,
            message: message.into(),
            preexisting: false,
        }
    }

    /// Whether both findings are about the same problem. Lines move, so only path and message are compared.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.path == other.path && self.message == other.message
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            f.write_str(&self.path)?;
            for number in [self.line, self.column]
                .into_iter()
                .take_while(|number| *number > 0)
            {
                write!(f, ":{number}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)?;
        match self.preexisting {
            true => f.write_str(" (failed before this run, too)"),
            false => Ok(()),
        }
    }
}

/// The verdict of one validator, as evidence for a landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The name of the validator.
    pub validator: String,
    /// The verdict of the validator.
    pub judgement: Judgement,
    /// True if a failure would not have prevented the landing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub advisory: bool,
    /// True if all its findings existed before the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preexisting: bool,
    /// The hash of the tree that was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_hash: Option<String>,
    /// The evidence for the verdict.
    #[serde(default, skip_serializing_if = "Proof::is_empty")]
    pub proof: Proof,
}

/// An error of the validator itself. It counts as unverifiable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValidatorError(pub String);
