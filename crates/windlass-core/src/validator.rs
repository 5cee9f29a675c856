//! The port to whoever says whether it is done: never the model.
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

/// How long a validator may take when it says nothing else.
pub const USUAL_DEADLINE: Duration = Duration::from_secs(600);

/// Judges what would land.
pub trait Validator: Send + Sync {
    /// Its name, in events and findings.
    fn name(&self) -> &str;
    /// Whether its fail stops the landing.
    fn blocking(&self) -> bool {
        true
    }
    /// Whether it may change what would land: then the chain runs again on what it left. Of one that does not say so,
    /// a verdict over a tree it changed counts for nothing.
    fn fixes(&self) -> bool {
        false
    }
    /// How long it may take.
    fn deadline(&self) -> Duration {
        USUAL_DEADLINE
    }
    /// Its part in the judging, which decides what it can block.
    fn role(&self) -> CheckRole {
        CheckRole::Given
    }
    /// Whether its verdict can depend on files that are ignored: only then it is run again with those of the run.
    fn reads_ignored(&self) -> bool {
        true
    }
    /// Whether a changed path is one of its judges: a test, a script or a setting that its verdict hangs on.
    fn judges(&self, _path: &str) -> bool {
        false
    }
    /// Looks.
    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>>;
}

/// The part of a validator in the judging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckRole {
    /// It prepares the tree for the others, as `npm ci` does. It runs first in every tree for checks, and blocks when it
    /// fails.
    Setup,
    /// A person gave it. It blocks whenever it does not pass.
    #[default]
    Given,
    /// It was found in the project. Failures that were there before the run are put to a person.
    Detected,
    /// It is always there. What it cannot judge does not block.
    BuiltIn,
}

/// The tree as it was before the run, for reading.
pub trait Before: Send + Sync {
    /// What a file held; `None` when there was none. An error when that is not known any more.
    fn read(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>, FileError>;
}

/// What a validator may reach.
pub struct CheckCtx<'a> {
    /// The tree that would land.
    pub files: &'a Arc<dyn Files>,
    /// What was there before: commands and settings of validators are taken from it, never from what the run wrote.
    pub before: &'a Arc<dyn Before>,
    /// For commands; inside the run's sandbox.
    pub processes: &'a Arc<dyn Processes>,
    /// What changed.
    pub changes: &'a [FileChange],
    /// How long it may take.
    pub deadline: Duration,
    /// Ends it.
    pub cancel: CancellationToken,
}

/// What a validator found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The verdict.
    pub judgement: Judgement,
    /// Why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// How it was come to.
    #[serde(default, skip_serializing_if = "Proof::is_empty")]
    pub proof: Proof,
}

impl Report {
    /// A verdict with findings.
    #[must_use]
    pub fn new(judgement: Judgement, findings: Vec<Finding>) -> Self {
        Self {
            judgement,
            findings,
            proof: Proof::default(),
        }
    }

    /// Nothing is wrong.
    #[must_use]
    pub fn pass() -> Self {
        Self::new(Judgement::Pass, Vec::new())
    }

    /// Whether it failed, and everything that it found was there before the run.
    #[must_use]
    pub fn failed_before(&self) -> bool {
        self.judgement == Judgement::Fail
            && !self.findings.is_empty()
            && self.findings.iter().all(|finding| finding.preexisting)
    }

    /// It could not be established, for this reason.
    #[must_use]
    pub fn unverifiable(why: impl Into<String>) -> Self {
        Self::new(Judgement::Unverifiable, vec![Finding::whole(why)])
    }
}

/// How a verdict was come to, as far as a validator can say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The version of whoever looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The command line that was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The BLAKE3 hash of its output, as far as it was kept, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Ignored files that the run changed and that were there when it looked. They do not land.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

impl Proof {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Three verdicts; unverifiable is reported and never counted as a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Fine.
    Pass,
    /// Not fine.
    Fail,
    /// It could not be established.
    Unverifiable,
}

/// One finding, shown as `path:line:column: message`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Relative to the root; empty when it is about the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Counted from 1; 0 when it is about the whole file.
    #[serde(default)]
    pub line: u32,
    /// Counted from 1, in characters; 0 when it is about the whole line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// It was wrong before the run, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preexisting: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Finding {
    /// About everything.
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

    /// Whether another one is about the same thing. Lines move, so only the path and the message count.
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

/// What a landing rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Who looked.
    pub validator: String,
    /// What they said.
    pub judgement: Judgement,
    /// Its fail would not have stopped the landing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub advisory: bool,
    /// All that it found was there before the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preexisting: bool,
    /// The hash of exactly what they saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_hash: Option<String>,
    /// How they came to it.
    #[serde(default, skip_serializing_if = "Proof::is_empty")]
    pub proof: Proof,
}

/// The validator itself failed; counted as unverifiable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValidatorError(pub String);
