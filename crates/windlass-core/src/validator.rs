//! The port to whoever says whether it is done: never the model.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workspace::{FileChange, Files, Processes};
use crate::{BoxFuture, CancellationToken};

/// Judges what would land.
pub trait Validator: Send + Sync {
    /// Its name, in events and findings.
    fn name(&self) -> &str;
    /// Whether its fail stops the landing.
    fn blocking(&self) -> bool {
        true
    }
    /// Looks, and changes nothing.
    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>>;
}

/// What a validator may reach.
pub struct CheckCtx<'a> {
    /// The tree that would land.
    pub files: &'a Arc<dyn Files>,
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

/// One finding, shown as `path:line: message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Relative to the root; empty when it is about the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Counted from 1; 0 when it is about the whole file.
    #[serde(default)]
    pub line: u32,
    /// What is wrong.
    pub message: String,
}

/// What a landing rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Who looked.
    pub validator: String,
    /// What they said.
    pub judgement: Judgement,
    /// The hash of exactly what they saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_hash: Option<String>,
}

/// The validator itself failed; counted as unverifiable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValidatorError(pub String);
