//! How a run ended, and in which phase a session is (spec 4.2).
//! Ends are values, not errors; exit codes and SDK words are views of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::Limit;

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
        Self::Failed { reason, detail: detail.into() }
    }

    /// The word of the outcome, as in the spec.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::CompletedWithLimitExceeded { .. } => "completed_with_limit_exceeded",
            Self::Failed { .. } => "failed",
            Self::Refused { .. } => "refused",
            Self::BudgetExceeded { .. } => "budget_exceeded",
            Self::TimedOut => "timed_out",
            Self::MaxSteps => "max_steps",
            Self::Cancelled => "cancelled",
        }
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
