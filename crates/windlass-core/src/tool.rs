//! What a model may call: its description, what a call would touch, and the port to run it.
//! Metadata fails closed: the effect has no default, nothing is parallel unless it says so.
//!
//! ```
//! use windlass_core::tool::{Effect, ToolSpec};
//!
//! let schema = serde_json::json!({ "type": "object", "properties": { "city": { "type": "string" } } });
//! let spec = ToolSpec::new("weather", "The weather of a city.", schema, Effect::Read);
//! assert!(!spec.parallel, "nothing is parallel unless it says so");
//! ```

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ask::{Answer, Question};
use crate::message::{ArtifactRef, ErrorCategory, ToolCall, ToolResult};
use crate::shell::Script;
use crate::store::StoreError;
use crate::turn::{Planned, Settled};
use crate::workspace::{
    Artifacts, FileChange, FileError, FileErrorKind, Files, Finished, ProcessEnd, Processes,
};
use crate::{BoxFuture, CancellationToken};

/// The tool by which a model declines the whole task: the loop ends with it.
pub const REFUSE: &str = "refuse";

/// The worst a tool can do, strictest last.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Looks.
    Read,
    /// Connects.
    Network,
    /// Changes files.
    Write,
    /// Runs programs.
    Execute,
    /// Acts outside this machine.
    External,
}

/// Who may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exposure {
    /// Our own loop.
    #[default]
    Native,
    /// Any runtime that takes functions.
    Function,
    /// Only the runtime that brings it.
    RuntimeOnly,
    /// Nobody.
    Disabled,
}

/// What happens to a running call when the run is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interrupt {
    /// It is told, and then dropped after a grace time.
    #[default]
    Cancel,
    /// It is short and must not be torn: it is waited for.
    Finish,
}

/// A tool's description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of its arguments; an object.
    pub schema: Value,
    /// The worst it can do.
    pub effect: Effect,
    /// Several calls may run at the same time. Only ever used for reads.
    #[serde(default)]
    pub parallel: bool,
    /// Who may call it.
    #[serde(default)]
    pub exposure: Exposure,
    /// What cancel does.
    #[serde(default)]
    pub interrupt: Interrupt,
    /// Characters of output the model gets; more becomes an artifact with a preview.
    pub max_output: usize,
}

impl ToolSpec {
    /// A serial native tool with the default output cap.
    #[must_use]
    pub fn new(name: &str, description: &str, schema: Value, effect: Effect) -> Self {
        Self {
            name: name.to_owned(),
            description: description.trim().to_owned(),
            schema,
            effect,
            parallel: false,
            exposure: Exposure::Native,
            interrupt: Interrupt::Cancel,
            max_output: 50_000,
        }
    }
}

/// Something a call would read, write, execute or connect to. Paths are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Touch {
    /// Reads a path.
    Read {
        /// Resolved: relative inside the workspace, absolute outside.
        path: String,
        /// Whether it is inside.
        inside: bool,
    },
    /// Writes, creates, moves or removes a path.
    Write {
        /// Resolved: relative inside the workspace, absolute outside.
        path: String,
        /// Whether it is inside.
        inside: bool,
        /// Whether nothing is there now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        new: bool,
    },
    /// Runs a command.
    Execute {
        /// The command line.
        command: String,
        /// The line taken apart. Without it nobody can tell what it does, so a person is asked.
        #[serde(skip)]
        script: Option<Arc<Script>>,
    },
    /// Connects to a host.
    Connect {
        /// Name or address.
        host: String,
    },
}

impl Touch {
    /// Whether it is the same thing that is touched. How a line was taken apart does not count: it follows from it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Execute { command: one, .. }, Self::Execute { command: two, .. }) => one == two,
            (one, two) => one == two,
        }
    }
}

/// What can be said of a call that was begun and never said how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// It was done; how that can be seen, in words.
    Yes(String),
    /// It was not done; how that can be seen, in words.
    No(String),
}

/// A tool.
pub trait Tool: Send + Sync {
    /// Its description; the same for the life of the tool.
    fn spec(&self) -> &ToolSpec;
    /// What this call would touch, resolved but untouched. Judged before `run`.
    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure>;
    /// What would change, to be shown with an approval; `None` when there is nothing to show. A call that cannot work
    /// fails here, and no person is asked about it.
    fn preview(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        Ok(None)
    }
    /// Whether a call that was begun, and whose process died, was done: by looking at what is there, and only where that
    /// leaves no doubt. `None` otherwise.
    fn happened(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Option<Happened> {
        None
    }
    /// Does it. The arguments fit the schema. The path rules are enforced again as files are opened.
    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>>;
}

/// What a call may reach.
#[derive(Clone)]
pub struct ToolCtx<'a> {
    /// Files of this run's workspace.
    pub files: &'a Arc<dyn Files>,
    /// Processes of this run.
    pub processes: &'a Arc<dyn Processes>,
    /// Large results.
    pub artifacts: &'a Arc<dyn Artifacts>,
    /// The way back to the engine.
    pub voice: &'a dyn Voice,
    /// Ends the call.
    pub cancel: CancellationToken,
}

/// How a running call speaks.
pub trait Voice: Send + Sync {
    /// Progress, shown live and not kept.
    fn progress(&self, text: &str);
    /// The model's own question to the person. A call that only looks may be begun once more after a long wait, with
    /// the answers it already has: it asks the same things in the same order.
    fn ask<'a>(&'a self, question: Question) -> BoxFuture<'a, Answer>;
    /// The session's notes, as they are.
    fn notes(&self) -> String;
    /// Replaces the session's notes; durable.
    fn set_notes<'a>(&'a self, text: String) -> BoxFuture<'a, Result<(), ToolFailure>>;
}

/// What a call gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// For the model.
    pub text: String,
    /// Set when what ran said that it failed (a non-zero exit): an error for the model, with its output.
    pub failed: Option<ErrorCategory>,
    /// Files that were changed.
    pub changes: Vec<FileChange>,
    /// Where the whole output is, when `text` is a preview already.
    pub artifact: Option<ArtifactRef>,
    /// A command that ran, for the log.
    pub command: Option<RanCommand>,
}

/// A command that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanCommand {
    /// How it ended.
    pub end: ProcessEnd,
    /// How long it took.
    pub took: Duration,
    /// Bytes it wrote.
    pub bytes: u64,
    /// Hosts that it was not allowed to reach.
    pub refused: Vec<String>,
}

impl From<&Finished> for RanCommand {
    fn from(finished: &Finished) -> Self {
        let Finished {
            end,
            took,
            total_bytes,
            refused,
            ..
        } = finished;
        Self {
            end: *end,
            took: *took,
            bytes: *total_bytes,
            refused: refused.clone(),
        }
    }
}

impl ToolOutput {
    /// Words only.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// Why a call failed, written so that the model's next call can be better.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ToolFailure {
    /// What to match on.
    pub category: ErrorCategory,
    /// What happened and what would work.
    pub text: String,
}

impl ToolFailure {
    /// A failure of that category.
    #[must_use]
    pub fn new(category: ErrorCategory, text: impl Into<String>) -> Self {
        Self {
            category,
            text: text.into(),
        }
    }

    /// A failure because of the arguments themselves.
    #[must_use]
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorCategory::InvalidArguments, text)
    }
}

impl From<FileError> for ToolFailure {
    fn from(err: FileError) -> Self {
        let category = match err.kind {
            FileErrorKind::NotFound => ErrorCategory::NotFound,
            FileErrorKind::Outside => ErrorCategory::Blocked,
            FileErrorKind::BadInput => ErrorCategory::InvalidArguments,
            FileErrorKind::Changed => ErrorCategory::Stale,
            FileErrorKind::Cancelled => ErrorCategory::Interrupted,
            FileErrorKind::Exists
            | FileErrorKind::WrongKind
            | FileErrorKind::TooLarge
            | FileErrorKind::Permission
            | FileErrorKind::Full
            | FileErrorKind::Io => ErrorCategory::Exception,
        };
        Self::new(category, err.message)
    }
}

/// The tools on offer in a run, in a stable order, with a place to keep their wire form.
#[derive(Default)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    wire: WireSlot,
}

impl ToolSet {
    /// A set; a later tool of the same name replaces an earlier one.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut set: Vec<Arc<dyn Tool>> = Vec::with_capacity(tools.len());
        for tool in tools {
            match set
                .iter()
                .position(|known| known.spec().name == tool.spec().name)
            {
                Some(at) => set[at] = tool,
                None => set.push(tool),
            }
        }
        Self {
            tools: set,
            wire: WireSlot::default(),
        }
    }

    /// By name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// None at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Where an encoder keeps the bytes of the tool list.
    #[must_use]
    pub fn wire(&self) -> &WireSlot {
        &self.wire
    }
}

/// A place beside a value for its encoded bytes, so that it is encoded once and not at every step.
///
/// Holds the form of one protocol; another protocol replaces it.
#[derive(Default)]
pub struct WireSlot(Mutex<Option<Encoded>>);

/// A protocol's name and the bytes of one value in it.
type Encoded = (&'static str, Arc<[u8]>);

impl WireSlot {
    /// The bytes for this protocol, made by `encode` when they are not there yet.
    pub fn get_or_encode(
        &self,
        protocol: &'static str,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Arc<[u8]> {
        self.with(protocol, encode, Arc::clone)
    }

    /// Appends the bytes for this protocol; says how many. A long history is gone through at every step, so nothing
    /// is shared or counted on the way.
    pub fn append_to(
        &self,
        out: &mut Vec<u8>,
        protocol: &'static str,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> usize {
        self.with(protocol, encode, |bytes| {
            out.extend_from_slice(bytes);
            bytes.len()
        })
    }

    fn with<T>(
        &self,
        protocol: &'static str,
        encode: impl FnOnce() -> Vec<u8>,
        look: impl FnOnce(&Arc<[u8]>) -> T,
    ) -> T {
        // A poisoned slot only means that an encoder panicked: its content is still whole or absent.
        let mut slot = self.0.lock();
        match &*slot {
            Some((known, bytes)) if *known == protocol => look(bytes),
            _ => look(&slot.insert((protocol, encode().into())).1),
        }
    }
}

/// Our tools for a runtime that is not ours: judged, logged and run by the engine's executor.
pub trait Toolbox: Send + Sync {
    /// The tools on offer.
    fn tools(&self) -> &ToolSet;
    /// Judges, logs and runs the calls of one step; exactly one result for each, in call order.
    fn call<'a>(&'a self, calls: Vec<Planned>) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>>;
    /// Judges a call that a foreign agent asks to run itself, and asks a person where that is needed. What may run is
    /// logged as begun, what may not is logged with its result; either way the answer is final.
    fn admit(&self, _call: ForeignCall) -> BoxFuture<'_, Result<Admitted, StoreError>> {
        let why = "calls of foreign agents are not judged here";
        Box::pin(std::future::ready(Ok(Admitted::blocked(why))))
    }
    /// Logs that a foreign agent runs a call that it did not ask about, and which rule is against it. The sandbox holds the
    /// call. One that was admitted is known already.
    fn observed(&self, _call: ForeignCall) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Logs what a foreign agent says came of a call, with what was seen to have become of files, where somebody looked:
    /// nothing where they are as they were. A call that has its result keeps it.
    fn reported(
        &self,
        _result: ToolResult,
        _seen: Vec<Seen>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A call that a foreign agent wants to run, and what of ours it amounts to.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignCall {
    /// In its own words.
    pub call: ToolCall,
    /// Calls of our tools that do the same: the strictest verdict on them counts, with the same rules, modes and floor.
    pub like: Vec<Like>,
    /// The worst it can do, where nothing of ours is like it.
    pub effect: Effect,
}

impl ForeignCall {
    /// A call that is like nothing of ours: it is judged as a program.
    #[must_use]
    pub fn unknown(call: ToolCall) -> Self {
        Self {
            call,
            like: Vec::new(),
            effect: Effect::Execute,
        }
    }
}

/// A file that was looked at before and after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Relative to the root.
    pub path: String,
    /// What became of it.
    pub change: Option<FileChange>,
}

/// A call of a tool of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Like {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Value,
}

impl Like {
    /// A call of this tool with these arguments.
    #[must_use]
    pub fn new(tool: impl Into<String>, args: Value) -> Self {
        Self {
            tool: tool.into(),
            args,
        }
    }
}

/// What a foreign agent is told of a call it asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// It may run.
    Yes {
        /// Paths in the workspace that it would write.
        writes: Vec<String>,
        /// Under this rule.
        rule: String,
    },
    /// It may not.
    No {
        /// Why, to match on.
        category: ErrorCategory,
        /// Why, for the model.
        text: String,
    },
}

impl Admitted {
    /// It may not run, for this reason.
    #[must_use]
    pub fn blocked(why: &str) -> Self {
        Self::No {
            category: ErrorCategory::Blocked,
            text: why.to_owned(),
        }
    }
}

/// The names other systems use for our tools; accepted in rules and imports (spec 4.5).
#[must_use]
pub fn canonical_name(name: &str) -> &str {
    match name {
        "Read" | "read" | "view" | "cat" => "read_file",
        "Write" | "write" | "create_file" => "write_file",
        "Edit" | "edit" | "MultiEdit" | "replace_text" | "str_replace" => "edit_file",
        "list_files" | "LS" | "ls" => "list_directory",
        "Glob" | "glob" => "find_files",
        "Grep" | "search_text" | "search" => "grep",
        "Bash" | "run_command" | "shell" | "execute" => "bash",
        "WebFetch" | "fetch" => "web_fetch",
        "WebSearch" => "web_search",
        "Task" | "task" => "spawn_agent",
        "AskUserQuestion" => "ask_user",
        other => other,
    }
}
