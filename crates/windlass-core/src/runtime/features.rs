//! How a runtime can be held and steered, beside what it can do: what was found to differ between real agents.

use std::fmt;

/// One way in which runtimes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Asks before each call.
    ToolApproval,
    /// Lets the answer change the call.
    RewrittenInput,
    /// Takes our tools and lets us run them.
    HostTools,
    /// Goes on with an earlier conversation of its own.
    Resume,
    /// Makes a branch of one.
    Fork,
    /// Can be told to stop in words of its protocol.
    Cancel,
    /// Can be told something while it works.
    Steering,
    /// Says how many tokens it used.
    ReportsTokens,
    /// Says what that cost.
    ReportsCost,
    /// Has a kernel sandbox of its own.
    OwnSandbox,
    /// Takes the name of a model.
    ModelChoice,
    /// Has modes of its own.
    Modes,
}

impl Feature {
    /// All of them.
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

    /// Its word.
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

    /// What it means, for the reference.
    #[must_use]
    pub fn doc(self) -> &'static str {
        match self {
            Self::ToolApproval => "asks before each call",
            Self::RewrittenInput => "lets the answer change the call",
            Self::HostTools => "takes our tools and lets us run them",
            Self::Resume => "goes on with an earlier conversation of its own",
            Self::Fork => "makes a branch of one",
            Self::Cancel => "can be told to stop in words of its protocol",
            Self::Steering => {
                "can be told something while it works; others hear it after their turn"
            }
            Self::ReportsTokens => "says how many tokens it used",
            Self::ReportsCost => "says what that cost",
            Self::OwnSandbox => "has a kernel sandbox of its own that works inside ours",
            Self::ModelChoice => "takes the name of a model",
            Self::Modes => "has modes of its own that can be set",
        }
    }
}

/// A set of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u16);

impl Features {
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    #[must_use]
    pub fn of(which: impl IntoIterator<Item = Feature>) -> Self {
        Self(
            which
                .into_iter()
                .fold(0, |bits, one| bits | 1 << one as u16),
        )
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn has(self, one: Feature) -> bool {
        self.0 & (1 << one as u16) != 0
    }

    /// In a fixed order.
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
