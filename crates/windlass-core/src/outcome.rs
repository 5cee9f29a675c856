//! How a run ended, and in which phase a session is (spec 4.2).
//! Ends are values, not errors; exit codes and SDK words are views of them.
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

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// A model is being asked.
    Running,
    /// A call is running.
    WaitingForTool,
    /// The model asked the person something.
    WaitingForInput,
    /// A call waits for approval.
    WaitingForConfirmation,
    /// The session was closed.
    Ended,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Done, and every blocking check passed.
    Completed,
    /// Done and passed, but a limit was overrun on the way.
    CompletedWithLimitExceeded {
        /// Which.
        limit: Limit,
    },
    /// Not done.
    Failed {
        /// Why.
        reason: FailReason,
        /// What happened and what to do next.
        detail: String,
        /// The kind of the provider's error, where that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_error: Option<ProviderErrorKind>,
    },
    /// The model, its vendor or a policy declined.
    Refused {
        /// On what ground.
        category: RefusalCategory,
        /// In whose words.
        detail: String,
    },
    /// The next call would have crossed a limit.
    BudgetExceeded {
        /// Which.
        limit: Limit,
    },
    /// The time was up.
    TimedOut,
    /// The steps were used up.
    MaxSteps,
    /// A person or the host ended it.
    Cancelled,
}

/// The end of a run: what the terminal event, the result of a run and the JSON output say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// The outcome.
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
    /// The name of the copy that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// The answer, where one that fits a schema was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<serde_json::Value>,
}

impl RunSummary {
    /// A run that ended and neither changed nor spent anything.
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

/// Why an iteration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The agent says it is done.
    Done,
    /// The model, its vendor or a policy declined.
    Refused,
    /// The next call would have crossed a limit.
    OverBudget,
    /// The model could not be reached or answered nonsense.
    Provider,
    /// A person or the host ended it.
    Cancelled,
    /// It waits for a person.
    Paused,
    /// The process ended in the middle.
    Interrupted,
    /// It failed. Also what a value of a later version reads as.
    #[serde(other)]
    Failed,
}

impl StopReason {
    /// The word of it, as in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// A blocking validator did not pass.
    Validation,
    /// It was to change something and did not.
    NoChanges,
    /// The model could not be reached or answered nonsense.
    Provider,
    /// The runtime failed.
    Runtime,
    /// Answers were cut off too often.
    Truncation,
    /// The same call gave the same result again and again.
    Repetition,
    /// The answer never fitted its schema.
    StructuredOutput,
    /// The person changed the same files meanwhile.
    LandingConflict,
    /// A policy forbids it.
    Policy,
    /// The isolation asked for is not to be had.
    Isolation,
    /// The log could not be written.
    Store,
    /// The process died in the middle.
    Interrupted,
}

/// On what ground something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCategory {
    /// The model's or vendor's safety rules.
    Safety,
    /// A rule of the person or organisation.
    Policy,
    /// It cannot be done with what is there.
    Capability,
}

impl Outcome {
    /// A failure.
    #[must_use]
    pub fn failed(reason: FailReason, detail: impl Into<String>) -> Self {
        Self::Failed {
            reason,
            detail: detail.into(),
            provider_error: None,
        }
    }

    /// A failure of the provider.
    #[must_use]
    pub fn provider_failed(err: &ProviderError) -> Self {
        let detail = format!("{}: {err}", err.kind.word());
        Self::Failed {
            reason: FailReason::Provider,
            detail,
            provider_error: Some(err.kind.clone()),
        }
    }

    /// The limit that was reached or overrun.
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

    /// The word of the outcome, as in the spec.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }

    /// The five words of the SDK.
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
