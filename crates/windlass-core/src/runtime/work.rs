//! Kinds of work, and the capabilities that each requires of a runtime (spec 4.6). They are checked before the first
//! token.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Capabilities, Capability};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Work {
    /// Writes a plan or a specification.
    Planner,
    /// Reads and answers, without changing files.
    Analysis,
    /// Edits files and runs commands.
    FullCoder,
    /// Proposes a patch, which the engine applies.
    PatchCoder,
    /// Tests what was built by running it.
    EndToEnd,
    /// Reviews a repository on a forge.
    RepositoryReview,
    /// Writes files on behalf of another agent.
    WritingSubagent,
}

/// The capabilities that a kind of work requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// All of these are required.
    pub all: Capabilities,
    /// One of these is required as well, unless the set is empty.
    pub one_of: Capabilities,
}

impl Work {
    /// All seven kinds of work.
    pub const ALL: [Self; 7] = [
        Self::Planner,
        Self::Analysis,
        Self::FullCoder,
        Self::PatchCoder,
        Self::EndToEnd,
        Self::RepositoryReview,
        Self::WritingSubagent,
    ];

    /// A short description, as in the spec.
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

    /// The name that users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The mode of a run for this work. A planner, analyst or reviewer changes no files.
    #[must_use]
    pub fn mode(self) -> RunMode {
        match self {
            Self::Planner | Self::Analysis | Self::RepositoryReview => RunMode::Analysis,
            Self::PatchCoder => RunMode::Patch,
            Self::FullCoder | Self::EndToEnd | Self::WritingSubagent => RunMode::Full,
        }
    }

    /// The required capabilities. A browser is one of our tools, so a runtime that accepts our tools has one; a forge
    /// is reached through MCP.
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

/// The mode of a run (spec 4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RunMode {
    /// The agent edits files and runs commands.
    #[default]
    Full,
    /// The agent proposes a patch, which the engine applies.
    Patch,
    /// The agent reads and answers, without changing files.
    Analysis,
}

impl RunMode {
    /// The kind of work that the mode stands for.
    #[must_use]
    pub fn work(self) -> Work {
        match self {
            Self::Full => Work::FullCoder,
            Self::Patch => Work::PatchCoder,
            Self::Analysis => Work::Analysis,
        }
    }

    /// The name of the mode, as in the settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// The next weaker mode, for `--fallback`: a patch instead of edits, an answer instead of a patch.
    #[must_use]
    pub fn below(self) -> Option<Self> {
        match self {
            Self::Full => Some(Self::Patch),
            Self::Patch => Some(Self::Analysis),
            Self::Analysis => None,
        }
    }
}
