//! Kinds of work and what each demands of a runtime (spec 4.6): checked before the first token, by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Capabilities, Capability};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Work {
    /// Makes a plan or a specification.
    Planner,
    /// Looks and answers.
    Analysis,
    /// Edits and runs commands.
    FullCoder,
    /// Proposes a patch that the engine applies.
    PatchCoder,
    /// Tries out what was built.
    EndToEnd,
    /// Reviews what lies on a forge.
    RepositoryReview,
    /// Writes for another agent.
    WritingSubagent,
}

/// What a kind of work demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// All of these.
    pub all: Capabilities,
    /// And one of these, where there are any.
    pub one_of: Capabilities,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Planner,
        Self::Analysis,
        Self::FullCoder,
        Self::PatchCoder,
        Self::EndToEnd,
        Self::RepositoryReview,
        Self::WritingSubagent,
    ];

    /// In words.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Planner => "planner, spec writer",
            Self::Analysis => "text QA, analysis",
            Self::FullCoder => "full coder",
            Self::PatchCoder => "patch coder",
            Self::EndToEnd => "end-to-end QA",
            Self::RepositoryReview => "repository review",
            Self::WritingSubagent => "writing subagent",
        }
    }

    /// The word that people type.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// How a run works that is for it alone: who plans, answers or reviews changes nothing.
    #[must_use]
    pub fn mode(self) -> RunMode {
        match self {
            Self::Planner | Self::Analysis | Self::RepositoryReview => RunMode::Analysis,
            Self::PatchCoder => RunMode::Patch,
            Self::FullCoder | Self::EndToEnd | Self::WritingSubagent => RunMode::Full,
        }
    }

    /// What it demands. A browser is a tool of ours, so who takes our tools takes one; a forge is reached through MCP.
    #[must_use]
    pub fn needs(self) -> Needs {
        use Capability as C;
        let all = |which: &[C]| Needs {
            all: Capabilities::of(which.iter().copied()),
            one_of: Capabilities::NONE,
        };
        match self {
            Self::Planner | Self::PatchCoder => all(&[C::TextCompletion, C::StructuredOutput]),
            Self::Analysis => all(&[C::TextCompletion]),
            Self::FullCoder => all(&[C::NativeToolLoop, C::FilesystemEdit, C::Shell]),
            Self::EndToEnd => Needs {
                one_of: Capabilities::of([C::Mcp, C::FunctionTools]),
                ..all(&[C::Shell])
            },
            Self::RepositoryReview => all(&[C::TextCompletion, C::Mcp]),
            Self::WritingSubagent => all(&[C::FilesystemRead, C::FilesystemEdit, C::Subagents]),
        }
    }
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.all)?;
        if self.one_of == Capabilities::NONE {
            return Ok(());
        }
        let words: Vec<&str> = self.one_of.iter().map(Capability::word).collect();
        write!(f, ", and {}", words.join(" or "))
    }
}

/// How a run works (spec 4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RunMode {
    /// Edits and runs commands.
    #[default]
    Full,
    /// Proposes a patch that the engine applies.
    Patch,
    /// Looks and answers.
    Analysis,
}

impl RunMode {
    /// The work it is.
    #[must_use]
    pub fn work(self) -> Work {
        match self {
            Self::Full => Work::FullCoder,
            Self::Patch => Work::PatchCoder,
            Self::Analysis => Work::Analysis,
        }
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// The rung below it, for whoever accepts less: a patch instead of the work, an answer instead of a patch.
    #[must_use]
    pub fn below(self) -> Option<Self> {
        match self {
            Self::Full => Some(Self::Patch),
            Self::Patch => Some(Self::Analysis),
            Self::Analysis => None,
        }
    }
}
