//! Tools that a model may call: the description, the touches of a call, and the port to run it. Metadata fails closed:
//! the effect has no default, and calls run in parallel only if the tool allows it.
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
use crate::shell::ShellScript;
use crate::store::StoreError;
use crate::turn::{Planned, Settled};
use crate::workspace::{
    Artifacts, FileChange, FileError, FileErrorKind, Files, Finished, ProcessEnd, Processes,
};
use crate::{BoxFuture, CancellationToken};

/// The name of the tool with which a model refuses the whole task. Calling it ends the loop.
pub const REFUSE: &str = "refuse";

/// The most severe effect of a tool, strictest last.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads files or other state.
    Read,
    /// Connects to the network.
    Network,
    /// Changes files in the workspace.
    Write,
    /// Runs programs on this machine.
    Execute,
    /// Has effects outside this machine.
    External,
}

/// The callers that a tool is available to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exposure {
    /// The native loop only.
    #[default]
    Native,
    /// Any runtime that accepts function tools.
    Function,
    /// Only the runtime that provides the tool.
    RuntimeOnly,
    /// No caller: the tool is disabled.
    Disabled,
}

/// The treatment of a running call when the run is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interrupt {
    /// The call is told to stop, and dropped after a grace period.
    #[default]
    Cancel,
    /// The call is short and must not be interrupted, so the engine waits for it.
    Finish,
}

/// The description of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// The name that models and rules use.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments; an object.
    pub schema: Value,
    /// The most severe effect that the tool can have.
    pub effect: Effect,
    /// True if several calls may run at the same time. Only used for reads.
    #[serde(default)]
    pub parallel: bool,
    /// The callers that the tool is available to.
    #[serde(default)]
    pub exposure: Exposure,
    /// The treatment of a running call when the run is cancelled.
    #[serde(default)]
    pub interrupt: Interrupt,
    /// Maximum characters of output for the model. Longer output becomes an artifact with a preview.
    pub max_output: usize,
}

impl ToolSpec {
    /// A native tool whose calls run one at a time, with the default output limit.
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

/// Something that a call would read, write, execute or connect to. Paths are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Touch {
    /// The call reads a path.
    Read {
        /// Relative to the workspace if inside, absolute if outside.
        path: String,
        /// Whether the path is inside the workspace.
        inside: bool,
    },
    /// The call writes, creates, moves or removes a path.
    Write {
        /// Relative to the workspace if inside, absolute if outside.
        path: String,
        /// Whether the path is inside the workspace.
        inside: bool,
        /// True if nothing exists at the path now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        new: bool,
    },
    /// The call runs a command.
    Execute {
        /// The command line as the model wrote it.
        command: String,
        /// The parsed command line. Without it, the effect of the command is unknown and a person is asked.
        #[serde(skip)]
        script: Option<Arc<ShellScript>>,
    },
    /// The call connects to a host.
    Connect {
        /// The name or address of the host.
        host: String,
    },
}

impl Touch {
    /// Whether both touch the same thing. The parsed script is ignored, because it follows from the command line.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Execute { command: one, .. }, Self::Execute { command: two, .. }) => one == two,
            (one, two) => one == two,
        }
    }
}

/// The evidence whether an interrupted call took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// The call took effect. The text describes the evidence.
    Yes(String),
    /// The call did not take effect. The text describes the evidence.
    No(String),
}

/// The port to a tool.
pub trait Tool: Send + Sync {
    /// The description, which must not change while the tool exists.
    fn spec(&self) -> &ToolSpec;
    /// The touches of this call, with resolved paths. Must not have any effect; the gate judges them before `run`.
    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure>;
    /// A preview of the change for an approval; `None` if there is nothing to show. A call that cannot succeed fails here,
    /// and no person is asked about it.
    fn preview(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        Ok(None)
    }
    /// Whether a call that had started when its process died took effect. Implementations inspect the present state and
    /// answer only if it leaves no doubt; otherwise `None`.
    fn happened(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Option<Happened> {
        None
    }
    /// Runs the call. The arguments match the schema. Path rules are enforced again when files are opened.
    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>>;
}

/// The context of a call: everything that it may use.
#[derive(Clone)]
pub struct ToolCtx<'a> {
    /// The files of this run's workspace.
    pub files: &'a Arc<dyn Files>,
    /// The processes of this run.
    pub processes: &'a Arc<dyn Processes>,
    /// The storage for large results.
    pub artifacts: &'a Arc<dyn Artifacts>,
    /// The channel back to the engine.
    pub call_output: &'a dyn CallOutput,
    /// Cancels the call and its commands.
    pub cancel: CancellationToken,
}

/// The channel from a running call to the engine.
pub trait CallOutput: Send + Sync {
    /// Reports progress, which is shown live and not stored.
    fn progress(&self, text: &str);
    /// Asks the user a question of the model. After a long wait, a call that only reads may be started once more with
    /// the answers so far: it must then ask the same questions in the same order.
    fn ask<'a>(&'a self, question: Question) -> BoxFuture<'a, Answer>;
    /// The present text of the session's notes.
    fn notes(&self) -> String;
    /// Replaces the session's notes durably.
    fn set_notes<'a>(&'a self, text: String) -> BoxFuture<'a, Result<(), ToolFailure>>;
}

/// The output of a successful call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The text for the model.
    pub text: String,
    /// Set if the program that ran reported a failure (a non-zero exit status). The model then gets an error with this
    /// output.
    pub failed: Option<ErrorCategory>,
    /// Files that the call changed.
    pub changes: Vec<FileChange>,
    /// The whole output, if `text` is already a preview of it.
    pub artifact: Option<ArtifactRef>,
    /// The command that the call ran, for the log.
    pub command: Option<RanCommand>,
}

/// The result of a command, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanCommand {
    /// The exit status of the command.
    pub end: ProcessEnd,
    /// Duration of the command.
    pub took: Duration,
    /// Bytes of output, including omitted ones.
    pub bytes: u64,
    /// Hosts that the sandbox refused to connect to.
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
    /// A result with only text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// The failure of a call, worded so that the model's next call can be better.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ToolFailure {
    /// The category of the failure.
    pub category: ErrorCategory,
    /// A description of the failure and what would work instead.
    pub text: String,
}

impl ToolFailure {
    /// A failure of this category.
    #[must_use]
    pub fn new(category: ErrorCategory, text: impl Into<String>) -> Self {
        Self {
            category,
            text: text.into(),
        }
    }

    /// A failure caused by the arguments.
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

/// The tools of a run in a stable order, with a cache for their wire form.
#[derive(Default)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    wire: WireSlot,
}

impl ToolSet {
    /// Creates a set. A later tool replaces an earlier one of the same name.
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

    /// Finds a tool by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    /// Iterates over all tools in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// The number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether the set has no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The cache for the encoded list of tools.
    #[must_use]
    pub fn wire(&self) -> &WireSlot {
        &self.wire
    }
}

/// A cache for the encoded form of a value, so that it is encoded once rather than in every step.
///
/// It holds the form of one protocol; another protocol replaces it.
#[derive(Default)]
pub struct WireSlot(Mutex<Option<Encoded>>);

/// The name of a protocol and the encoded bytes.
type Encoded = (&'static str, Arc<[u8]>);

impl WireSlot {
    /// The bytes for this protocol. `encode` is called if they are not cached.
    pub fn get_or_encode(
        &self,
        protocol: &'static str,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Arc<[u8]> {
        self.with(protocol, encode, Arc::clone)
    }

    /// Appends the bytes for this protocol and returns their number. Every step appends the whole history, so this
    /// avoids the reference count of [`WireSlot::get_or_encode`].
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
        // If `encode` panics, the slot keeps its previous content; this mutex has no poisoning.
        let mut slot = self.0.lock();
        match &*slot {
            Some((known, bytes)) if *known == protocol => look(bytes),
            _ => look(&slot.insert((protocol, encode().into())).1),
        }
    }
}

/// Our tools for foreign runtimes. The engine's executor judges, logs and runs the calls.
pub trait Toolbox: Send + Sync {
    /// The tools that are offered.
    fn tools(&self) -> &ToolSet;
    /// Judges, logs and runs the calls of one step. Returns exactly one result for each, in call order.
    fn call<'a>(&'a self, calls: Vec<Planned>) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>>;
    /// Judges a call that a foreign agent wants to run itself, and asks a person if needed. An allowed call is logged
    /// as started, a refused one with its result. The decision is final.
    fn admit(&self, _call: ForeignCall) -> BoxFuture<'_, Result<Admitted, StoreError>> {
        let why = "calls of foreign agents are not judged here";
        Box::pin(std::future::ready(Ok(Admitted::blocked(why))))
    }
    /// Logs that a foreign agent runs a call without having asked, and the rule that forbids it, if any. The sandbox
    /// confines the call. Calls that were admitted are ignored here.
    fn observed(&self, _call: ForeignCall) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Logs the result that a foreign agent reports for a call, with the observed changes of files. A file that was
    /// inspected and has not changed has no change. A call that already has a result keeps it.
    fn reported(
        &self,
        _result: ToolResult,
        _seen: Vec<ObservedChange>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A call that a foreign agent wants to run, with the equivalent calls of our own tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignCall {
    /// The call as the agent made it.
    pub call: ToolCall,
    /// Equivalent calls of our tools. The strictest verdict on them applies, with the same rules, modes and floor.
    pub like: Vec<Like>,
    /// The most severe effect of the call if `like` is empty.
    pub effect: Effect,
}

impl ForeignCall {
    /// A call without an equivalent: it is judged as the execution of a program.
    #[must_use]
    pub fn unknown(call: ToolCall) -> Self {
        Self {
            call,
            like: Vec::new(),
            effect: Effect::Execute,
        }
    }
}

/// A file that was inspected before and after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedChange {
    /// Path relative to the root of the workspace.
    pub path: String,
    /// The change, if there was one.
    pub change: Option<FileChange>,
}

/// A call of one of our tools.
#[derive(Debug, Clone, PartialEq)]
pub struct Like {
    /// The name of the tool.
    pub tool: String,
    /// The arguments of the call.
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

/// The decision about a call of a foreign agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// The call may run.
    Yes {
        /// Paths in the workspace that the call would write.
        writes: Vec<String>,
        /// The rule that allowed the call.
        rule: String,
    },
    /// The call must not run.
    No {
        /// The category of the refusal.
        category: ErrorCategory,
        /// The reason for the model.
        text: String,
    },
}

impl Admitted {
    /// A refusal for this reason.
    #[must_use]
    pub fn blocked(why: &str) -> Self {
        Self::No {
            category: ErrorCategory::Blocked,
            text: why.to_owned(),
        }
    }
}

/// Maps names that other systems use for our tools to our names; used in rules and imports (spec 4.5).
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
