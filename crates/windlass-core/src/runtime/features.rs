//! Features by which real agents differ, in addition to capabilities: how they can be controlled and what they report.

use std::fmt;

/// One feature by which runtimes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Asks for permission before each call.
    ToolApproval,
    /// Lets the approval change the arguments of the call.
    RewrittenInput,
    /// Accepts our tools and lets us run them.
    HostTools,
    /// Resumes an earlier conversation of its own.
    Resume,
    /// Forks an earlier conversation of its own.
    Fork,
    /// Can be cancelled through its protocol.
    Cancel,
    /// Accepts messages while it works.
    Steering,
    /// Reports the tokens that it used.
    ReportsTokens,
    /// Reports the cost of its model calls.
    ReportsCost,
    /// Has its own kernel sandbox.
    OwnSandbox,
    /// Lets the caller choose the model.
    ModelChoice,
    /// Has modes of its own that can be set.
    Modes,
}

impl Feature {
    /// All twelve, in a fixed order.
    pub const ALL: [Self; 12] = [
        Self::ToolApproval,
        Self::RewrittenInput,
        Self::HostTools,
        Self::Resume,
        Self::Fork,
        Self::Cancel,
        Self::Steering,
        Self::ReportsTokens,
        Self::ReportsCost,
        Self::OwnSandbox,
        Self::ModelChoice,
        Self::Modes,
    ];

    /// The name of the feature, as in the reference.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ToolApproval => "per_tool_approval",
            Self::RewrittenInput => "approval_can_rewrite_input",
            Self::HostTools => "host_tools",
            Self::Resume => "resume",
            Self::Fork => "fork",
            Self::Cancel => "cancel",
            Self::Steering => "steer_mid_turn",
            Self::ReportsTokens => "reports_tokens",
            Self::ReportsCost => "reports_cost",
            Self::OwnSandbox => "own_sandbox",
            Self::ModelChoice => "model_switch",
            Self::Modes => "mode_switch",
        }
    }

    /// The description for the reference.
    #[must_use]
    pub fn doc(self) -> &'static str {
        match self {
            Self::ToolApproval => "asks for permission before each call",
            Self::RewrittenInput => "lets the approval change the arguments of the call",
            Self::HostTools => "accepts our tools and lets us run them",
            Self::Resume => "resumes an earlier conversation of its own",
            Self::Fork => "forks an earlier conversation of its own",
            Self::Cancel => "can be cancelled through its protocol",
            Self::Steering => "accepts messages while it works; others get them after their turn",
            Self::ReportsTokens => "reports the tokens that it used",
            Self::ReportsCost => "reports the cost of its model calls",
            Self::OwnSandbox => "has its own kernel sandbox, which works inside ours",
            Self::ModelChoice => "lets the caller choose the model",
            Self::Modes => "has modes of its own that can be set",
        }
    }
}

/// A set of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u16);

impl Features {
    /// The set without any feature.
    pub const NONE: Self = Self(0);

    /// The set of these features.
    #[must_use]
    pub fn of(which: impl IntoIterator<Item = Feature>) -> Self {
        Self(
            which
                .into_iter()
                .fold(0, |bits, one| bits | 1 << one as u16),
        )
    }

    /// Whether the feature is in the set.
    #[must_use]
    pub fn has(self, one: Feature) -> bool {
        self.0 & (1 << one as u16) != 0
    }

    /// The features in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Feature::word).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}
