//! Outcomes of runs, and phases of sessions (spec 4.2). Outcomes are values, not errors; exit codes and SDK states are
//! derived from them.
//!
//! ```
//! use windlass_core::outcome::{FailReason, Outcome};
//!
//! let outcome = Outcome::failed(FailReason::Validation, "the tests fail");
//! assert_eq!(outcome.word(), "failed");
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Limit, Spent};
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::validator::Evidence;
use crate::workspace::FileChange;

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No run is active.
    #[default]
    Idle,
    /// A model call is in progress.
    Running,
    /// A tool call is running.
    WaitingForTool,
    /// The model asked the user a question.
    WaitingForInput,
    /// A call or a landing waits for approval.
    WaitingForConfirmation,
    /// The run is paused, and any process can resume it.
    Paused,
    /// The session was closed.
    Ended,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// The run finished and every blocking validator passed.
    Completed,
    /// The run finished and passed, but exceeded a limit on the way.
    CompletedWithLimitExceeded {
        /// The limit that was exceeded.
        limit: Limit,
    },
    /// The run failed for this reason.
    Failed {
        /// The category of the failure.
        reason: FailReason,
        /// A description of the failure and what to do next.
        detail: String,
        /// The kind of the provider's error, if that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_error: Option<ProviderErrorKind>,
    },
    /// The model, its vendor or a policy refused.
    Refused {
        /// The category of the refusal.
        category: RefusalCategory,
        /// The explanation of the model, the vendor or the policy.
        detail: String,
    },
    /// The next call would have exceeded a limit.
    BudgetExceeded {
        /// The limit that would have been exceeded.
        limit: Limit,
    },
    /// The run reached its time limit.
    TimedOut,
    /// The run reached its maximum number of steps.
    MaxSteps,
    /// The user or the host process cancelled the run.
    Cancelled,
}

/// The result of a run, as in the terminal event, the library and the JSON output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// The outcome of the run.
    pub outcome: Outcome,
    /// Changed files, without diffs.
    pub files: Vec<FileChange>,
    /// Iterations, steps, tokens and money spent.
    pub totals: Spent,
    /// Duration in milliseconds, without the time spent waiting for a person.
    pub ms: u64,
    /// Verdicts of the validators on exactly the tree that lands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Tests, scripts and configs of validators that the run changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judge_changed: Vec<String>,
    /// The budget of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Budget>,
    /// The name of the kept run, if its copy was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// The structured answer, if the run has an output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<serde_json::Value>,
}

impl RunSummary {
    /// The summary of a run that neither changed nor spent anything.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            files: Vec::new(),
            totals: Spent::default(),
            ms: 0,
            evidence: Vec::new(),
            judge_changed: Vec::new(),
            limits: None,
            transaction: None,
            output: None,
        }
    }
}

/// The reason why an iteration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The agent reported that it is done.
    Done,
    /// The model, its vendor or a policy refused.
    Refused,
    /// The next call would have exceeded a limit.
    OverBudget,
    /// The model could not be reached, or its answer was invalid.
    Provider,
    /// The user or the host process cancelled it.
    Cancelled,
    /// The run is paused, or waits for a person.
    Paused,
    /// The process ended during the iteration.
    Interrupted,
    /// The iteration failed. Unknown values of later versions also map to this one.
    #[serde(other)]
    Failed,
}

impl StopReason {
    /// The name of the reason, as in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The reason why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// A blocking validator did not pass.
    Validation,
    /// The run was expected to change files and did not.
    NoChanges,
    /// The model could not be reached, or its answer was invalid.
    Provider,
    /// The agent's runtime failed.
    Runtime,
    /// Answers were truncated too often.
    Truncation,
    /// The same call gave the same result too often.
    Repetition,
    /// No answer matched the output schema.
    StructuredOutput,
    /// The user changed the same files during the run.
    LandingConflict,
    /// A policy forbids the run or its landing.
    Policy,
    /// The required isolation is not available.
    Isolation,
    /// The session's log could not be written.
    Store,
    /// The process died during the run.
    Interrupted,
}

/// The category of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCategory {
    /// Safety rules of the model or its vendor.
    Safety,
    /// A rule of the user or the organisation.
    Policy,
    /// A required capability is missing.
    Capability,
}

impl Outcome {
    /// A failure without a provider error.
    #[must_use]
    pub fn failed(reason: FailReason, detail: impl Into<String>) -> Self {
        Self::Failed {
            reason,
            detail: detail.into(),
            provider_error: None,
        }
    }

    /// A failure caused by the provider.
    #[must_use]
    pub fn provider_failed(err: &ProviderError) -> Self {
        let detail = format!("{}: {err}", err.kind.word());
        Self::Failed {
            reason: FailReason::Provider,
            detail,
            provider_error: Some(err.kind.clone()),
        }
    }

    /// The limit that was reached or exceeded.
    #[must_use]
    pub fn exceeded(&self) -> Option<Limit> {
        match self {
            Self::BudgetExceeded { limit } | Self::CompletedWithLimitExceeded { limit } => {
                Some(*limit)
            }
            Self::TimedOut => Some(Limit::Time),
            Self::MaxSteps => Some(Limit::Steps),
            _ => None,
        }
    }

    /// The name of the outcome, as in the spec.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }

    /// The outcome as one of the five states of the SDK.
    #[must_use]
    pub fn sdk_status(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::CompletedWithLimitExceeded { .. } => "completed_with_limit_exceeded",
            Self::BudgetExceeded { .. } | Self::TimedOut | Self::MaxSteps => "budget_exceeded",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } | Self::Cancelled => "failed",
        }
    }
}
