//! What the scripted model does, in words that fit every agent. Plain data; a script can be read from JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One move. Each becomes one answer of the model, or two where an agent wants to read a file before it changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// Run a command line.
    Shell(String),
    /// Look into a file.
    Read(String),
    /// Make a file with this text.
    Write {
        /// Relative to the workspace.
        path: String,
        /// All of it.
        text: String,
    },
    /// Change a place in a file that is there.
    Edit {
        /// Relative to the workspace.
        path: String,
        /// One whole line or more.
        old: String,
        /// What stands there afterwards.
        new: String,
    },
    /// Remove a file.
    Delete(String),
    /// Call a tool by its name, offered or not.
    Call {
        /// The name, or the end of one: a host tool may have a prefix.
        tool: String,
        /// Its arguments.
        args: Value,
    },
    /// Say something and end the turn.
    Say(String),
    /// Give an answer of a schema, in the way that the agent asks for one.
    Json(Value),
    /// Decline, as the vendor declines.
    Refuse(String),
    /// Answer with an error; for ever, or so many times before the next move is played.
    Fail {
        /// The HTTP status.
        status: u16,
        /// How many times.
        #[serde(default)]
        times: Option<usize>,
    },
    /// Take the request and say nothing.
    Hang,
    /// What comes before is done once a question holds these words: agents that begin anew with each prompt have no
    /// history that says so.
    Heard(String),
    /// Say something word by word.
    Slow {
        /// The words.
        text: String,
        /// Milliseconds before each.
        pause_ms: u64,
    },
}

/// What every answer says it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input that came from no cache.
    pub fresh: u64,
    /// Input that came from a cache.
    pub cached: u64,
    /// Output.
    pub output: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            fresh: 200,
            cached: 1000,
            output: 30,
        }
    }
}

/// The whole of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// Played in order; what comes after the last is a plain "Done.".
    pub moves: Vec<Move>,
    /// What each answer used.
    pub usage: Usage,
    /// The workspace, as the agent sees it; agents that want absolute paths get them below it.
    pub root: String,
    /// Also requests without tools are the work itself, not side questions: for runtimes that give the model none.
    pub without_tools: bool,
}

impl Script {
    /// A script of these moves in that workspace.
    pub fn new(root: &std::path::Path, moves: impl Into<Vec<Move>>) -> Self {
        Self {
            moves: moves.into(),
            root: root.display().to_string(),
            ..Self::default()
        }
    }
}

impl Move {
    /// Whether it is an edit, which some agents want in the text of an answer.
    pub(crate) fn changes_a_file(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Edit { .. } | Self::Delete(_)
        )
    }
}
