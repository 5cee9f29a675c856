//! The script of the model, in terms that fit every agent. It is plain data and can be read from JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One move. Each becomes one answer of the model, or two if an agent has to read a file before it changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// Run a command line.
    Shell(String),
    /// Read the file at this path.
    Read(String),
    /// Create a file with this text.
    Write {
        /// Path relative to the workspace.
        path: String,
        /// The whole content of the file.
        text: String,
    },
    /// Replace text in an existing file.
    Edit {
        /// Path relative to the workspace.
        path: String,
        /// The text to replace: one or more whole lines.
        old: String,
        /// The text that replaces `old`.
        new: String,
    },
    /// Delete the file at this path.
    Delete(String),
    /// Call a tool by its name, even if it is not offered.
    Call {
        /// The name or its last part, because a host tool may have a prefix.
        tool: String,
        /// The arguments of the call.
        args: Value,
    },
    /// Send a text and end the turn.
    Say(String),
    /// Give a structured answer, in the way that the agent asks for one.
    Json(Value),
    /// Refuse, in the vendor's form of a refusal.
    Refuse(String),
    /// Answer with an error, either always or a number of times before the next move.
    Fail {
        /// The HTTP status of the response.
        status: u16,
        /// The number of failures; absent to fail always.
        #[serde(default)]
        times: Option<usize>,
    },
    /// Accept the request and never answer.
    Hang,
    /// Treat all moves before this one as done if a request contains this text. It serves agents that start anew with
    /// each prompt, without a history.
    Heard(String),
    /// Send a text word by word.
    Slow {
        /// The text to send.
        text: String,
        /// The pause before each word in milliseconds.
        pause_ms: u64,
    },
}

/// The usage that every answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedUsage {
    /// Input tokens that were not cached.
    pub fresh: u64,
    /// Input tokens that were read from a cache.
    pub cached: u64,
    /// Output tokens of each answer.
    pub output: u64,
}

impl Default for ReportedUsage {
    fn default() -> Self {
        Self {
            fresh: 200,
            cached: 1000,
            output: 30,
        }
    }
}

/// A script with its parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// The moves in order. After the last one, every answer is "Done.".
    pub moves: Vec<Move>,
    /// The usage that every answer reports.
    pub usage: ReportedUsage,
    /// The workspace as the agent sees it. Agents that want absolute paths get paths below it.
    pub root: String,
    /// True if requests without tools belong to the work as well, instead of being side questions. For runtimes that
    /// give the model no tools.
    pub without_tools: bool,
}

impl Script {
    /// A script of these moves in this workspace.
    pub fn new(root: &std::path::Path, moves: impl Into<Vec<Move>>) -> Self {
        Self {
            moves: moves.into(),
            root: root.display().to_string(),
            ..Self::default()
        }
    }
}

impl Move {
    /// Whether it edits a file, which some agents want in the text of an answer.
    pub(crate) fn changes_a_file(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Edit { .. } | Self::Delete(_)
        )
    }
}
