//! The port to an agent loop, native or foreign, and the capabilities that a run requires of it. A runtime that lacks
//! one fails here, before the first token, with an error that names what is missing.
//!
//! ```
//! use windlass_core::runtime::{Capabilities, RunMode};
//!
//! let unmet = Capabilities::NONE.require("toy", RunMode::Full.work());
//! assert!(unmet.is_err(), "a runtime that can do nothing is refused by name");
//! ```

mod features;
mod work;

pub use self::features::{Feature, Features};
pub use self::work::{Needs, RunMode, Work};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::{Answer, Ask};
use crate::budget::{Limit, Price, Spent, Usage};
use crate::context::{CompactionMode, WorkRecord, by_the_log};
use crate::event::EventKind;
use crate::history::Entry;
use crate::message::{Message, ToolCall};
use crate::outcome::{FailReason, RefusalCategory};
use crate::provider::ProviderError;
use crate::store::StoreError;
use crate::terms::Terms;
use crate::tool::{ToolSet, Toolbox};
use crate::workspace::{Files, Processes};
use crate::{BoxFuture, CancellationToken};

/// An agent loop.
///
/// Of the nine methods, a runtime has to implement three; the others have defaults.
pub trait Runtime: Send + Sync {
    /// The name that users type.
    fn name(&self) -> &str;
    /// The model that it will use, if it knows.
    fn model(&self) -> Option<&str> {
        None
    }
    /// The features that a session loses when it switches from this model, in words; empty if it loses none.
    fn loses_from(&self, _model: &str) -> Vec<String> {
        Vec::new()
    }
    /// The capabilities of the runtime. A claim that it does not fulfil is a defect.
    fn capabilities(&self) -> Capabilities;
    /// Further features by which runtimes differ.
    fn features(&self) -> Features {
        Features::NONE
    }
    /// Adjusts the terms of a run to this runtime: the source of its spending figures, and when its calls are judged.
    fn terms(&self, _terms: &mut Terms) {}
    /// Whether the runtime itself logs the start of an iteration, because only then the foreign agent's session is
    /// known.
    fn begins_itself(&self) -> bool {
        false
    }
    /// Runs one iteration. Events go through the job's sink; the return value says why the iteration ended.
    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>>;
    /// Compacts the messages between two runs; returns false if that would gain too little. The default is for runtimes
    /// without a model to write the summary: it is written from the log.
    fn compact<'a>(
        &'a self,
        job: CompactionRequest<'a>,
    ) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(async move {
            let history = job.sink.history();
            let room = history.iter().map(Entry::bytes).sum::<usize>() / 4;
            let made = by_the_log(&history, &job.sink.facts(), job.how, room);
            drop(history);
            let Some(compaction) = made else {
                return Ok(false);
            };
            job.sink.emit(EventKind::Compacted { compaction }).await?;
            Ok(true)
        })
    }
}

/// The arguments of a compaction between two runs.
pub struct CompactionRequest<'a> {
    /// The goal of the compaction.
    pub how: CompactionMode,
    /// The way to log events.
    pub sink: &'a dyn EventSink,
    /// The budget for writing the summary.
    pub account: &'a dyn BudgetAccount,
    /// The tools that runs offer, because they take part of the window, too.
    pub tools: &'a ToolSet,
    /// Cancels the compaction and its model call.
    pub cancel: CancellationToken,
}

/// The work of one iteration: everything that a runtime needs, so that it does not depend on engine or host.
#[derive(Clone)]
pub struct Job<'a> {
    /// The prompt, which is already in the history.
    pub prompt: &'a Message,
    /// The iteration's number, counted from 1.
    pub iteration: u32,
    /// True if the iteration started before the run paused. It continues, and its start is logged already.
    pub resumed: bool,
    /// Calls of the last message that have no result yet. The iteration resumes with them.
    pub pending: Vec<ToolCall>,
    /// The foreign agent's session of the previous iteration, as that iteration logged it.
    pub foreign_session: Option<String>,
    /// The way to log events and to ask a person.
    pub sink: &'a dyn EventSink,
    /// Our own tools. Calls are judged and logged.
    pub toolbox: &'a dyn Toolbox,
    /// The budget of the run.
    pub account: &'a dyn BudgetAccount,
    /// The files of this run's workspace.
    pub files: &'a Arc<dyn Files>,
    /// The processes of this run.
    pub processes: &'a Arc<dyn Processes>,
    /// Cancels the iteration and its calls.
    pub cancel: CancellationToken,
}

/// The engine's interface for a runtime.
pub trait EventSink: Send + Sync {
    /// Logs a durable event, then shows it. Returns its sequence number.
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>>;
    /// Shows a live event (a delta, progress). Never blocks; the event may be dropped if a view is too slow.
    fn show(&self, kind: EventKind);
    /// Whether any view shows live events. If not, a runtime need not create them.
    fn watched(&self) -> bool;
    /// Asks a person and waits for the answer.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Result<Answer, StoreError>>;
    /// Logs the queued prompts that steer the current run. Called between steps, and before the end. Returns whether
    /// there were any.
    fn steer(&self) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }
    /// Whether the run is to pause. A runtime asks this between two steps, when each call has its result, and returns
    /// [`Stop::Paused`].
    fn pauses(&self) -> bool {
        false
    }
    /// The messages so far. Drop the list before the next `emit`, or it is copied.
    fn history(&self) -> Arc<Vec<Entry>>;
    /// Facts about the work so far, computed from the log.
    fn facts(&self) -> WorkRecord;
}

/// The budget of a run with its spending.
pub trait BudgetAccount: Send + Sync {
    /// The active time so far, without the time spent waiting for a person.
    fn elapsed(&self) -> Duration;
    /// The spending so far.
    fn spent(&self) -> Spent;
    /// The limit that has been reached, if any.
    fn exceeded(&self) -> Option<Limit>;
    /// Reserves a model call; see [`crate::budget::Budget::admit`].
    fn admit(&self, input: u64, want: u64, price: Option<Price>) -> Result<u64, Limit>;
    /// Reserves a model call while others are in flight. The reservation lasts until it is released. The limits of
    /// steps and time are also checked.
    fn hold(&self, input: u64, want: u64, price: Option<Price>) -> Result<Hold, Limit>;
    /// Releases a reservation after the call was settled, or if it is not sent.
    fn release(&self, hold: Hold);
    /// Adds a model call to the spending and logs it.
    fn settle<'a>(
        &'a self,
        usage: Usage,
        price: Option<Price>,
        estimated: bool,
        model: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// The reservation of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Distinguishes the reservation from others.
    pub id: u64,
    /// Maximum output tokens of the call.
    pub output: u64,
}

/// The reason why an iteration ended. Expected ends are values, not errors.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// The agent reported that it is done.
    Done,
    /// The agent is done and gave an answer that matches the output schema.
    Answered {
        /// The answer that matches the schema.
        output: serde_json::Value,
    },
    /// The model or its vendor refused.
    Refused {
        /// The category of the refusal.
        category: RefusalCategory,
        /// The explanation of the model or vendor.
        detail: String,
    },
    /// The next call would exceed a limit.
    OverBudget {
        /// The limit that would be exceeded.
        limit: Limit,
    },
    /// The agent cannot continue.
    Failed {
        /// The category of the failure.
        reason: FailReason,
        /// A description of the failure and what to do about it.
        detail: String,
    },
    /// The provider failed with this error.
    Provider(ProviderError),
    /// The user or the host process cancelled it.
    Cancelled,
    /// The iteration stopped between two steps, because the run is to pause or waits for a person who is not connected.
    /// The run stays open, and the iteration continues when it is resumed.
    Paused,
}

/// An error of the runtime itself.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The log could not be written, so the run has to stop.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Any other error, in words.
    #[error("{0}")]
    Other(String),
}

/// The capabilities of a runtime (decision 1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Capability {
    /// Answers in the form of text.
    TextCompletion,
    /// Streams its answer while generating it.
    StreamingText,
    /// Answers according to a JSON schema.
    StructuredOutput,
    /// Calls tools in its own loop.
    NativeToolLoop,
    /// Accepts our tools as functions.
    FunctionTools,
    /// Connects to MCP servers.
    Mcp,
    /// Reads files of the workspace.
    FilesystemRead,
    /// Changes files of the workspace.
    FilesystemEdit,
    /// Runs shell commands in the workspace.
    Shell,
    /// Applies patches to files.
    ApplyPatch,
    /// Starts agents of its own.
    Subagents,
    /// Runs in a kernel sandbox.
    Sandbox,
}

impl Capability {
    /// All twelve, in the order of the spec.
    pub const ALL: [Self; 12] = [
        Self::TextCompletion,
        Self::StreamingText,
        Self::StructuredOutput,
        Self::NativeToolLoop,
        Self::FunctionTools,
        Self::Mcp,
        Self::FilesystemRead,
        Self::FilesystemEdit,
        Self::Shell,
        Self::ApplyPatch,
        Self::Subagents,
        Self::Sandbox,
    ];

    /// The name of the capability, as in the spec.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The schema of [`Capability`], with a description of each.
#[must_use]
pub fn capability_schema() -> serde_json::Value {
    schemars::schema_for!(Capability).to_value()
}

/// A set of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// The set without any capability.
    pub const NONE: Self = Self(0);

    /// The set of these capabilities.
    #[must_use]
    pub fn of(which: impl IntoIterator<Item = Capability>) -> Self {
        Self(
            which
                .into_iter()
                .fold(0, |bits, one| bits | 1 << one as u16),
        )
    }

    /// Whether the capability is in the set.
    #[must_use]
    pub fn has(self, one: Capability) -> bool {
        self.0 & (1 << one as u16) != 0
    }

    /// The capabilities in the order of the spec.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL
            .into_iter()
            .filter(move |one| self.has(*one))
    }

    /// Checks that the set has everything that a kind of work needs. The error lists what is required, available and
    /// missing.
    pub fn require(self, runtime: &str, work: Work) -> Result<(), Unmet> {
        let needs = work.needs();
        let mut missing = Self(needs.all.0 & !self.0);
        if needs.one_of.0 & self.0 == 0 {
            missing.0 |= needs.one_of.0;
        }
        if missing.0 == 0 {
            return Ok(());
        }
        Err(Unmet {
            runtime: runtime.to_owned(),
            work,
            needs,
            offered: self,
            missing,
        })
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("nothing");
        }
        for (n, one) in self.iter().enumerate() {
            if n > 0 {
                f.write_str(", ")?;
            }
            f.write_str(one.word())?;
        }
        Ok(())
    }
}

/// The error for a runtime that cannot do the work it was chosen for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the runtime `{runtime}` cannot do this work ({})\n  required:  {needs}\n  available: {offered}\n  missing:   {missing}\n  what to do: choose a runtime or a model that has it (`windlass runtimes` lists them), or a kind of work that needs less (`--fallback` steps down by itself)",
    work.word()
)]
pub struct Unmet {
    /// The name of the runtime.
    pub runtime: String,
    /// The kind of work.
    pub work: Work,
    /// All capabilities that the work requires.
    pub needs: Needs,
    /// The capabilities that the runtime has.
    pub offered: Capabilities,
    /// The required capabilities that it lacks.
    pub missing: Capabilities,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_required_available_missing_and_what_to_do() {
        let offered = Capabilities::of([Capability::TextCompletion, Capability::Shell]);
        let text = offered
            .require("toy", Work::FullCoder)
            .map_err(|err| err.to_string());
        let golden = "the runtime `toy` cannot do this work (full coder)\n  \
             required:  native_tool_loop, filesystem_edit, shell\n  \
             available: text_completion, shell\n  \
             missing:   native_tool_loop, filesystem_edit\n  \
             what to do: choose a runtime or a model that has it (`windlass runtimes` lists them), or a kind of work \
             that needs less (`--fallback` steps down by itself)";
        assert_eq!(text, Err(golden.to_owned()));
        for work in Work::ALL {
            assert_eq!(
                Capabilities::of(Capability::ALL).require("toy", work),
                Ok(())
            );
        }
    }

    #[test]
    fn one_of_several_alternatives_is_enough_and_otherwise_all_are_named() {
        let shell = Capabilities::of([Capability::Shell]);
        let unmet = shell
            .require("toy", Work::EndToEnd)
            .map_err(|err| err.to_string());
        let text = unmet.err().unwrap_or_default();
        assert!(
            text.contains("required:  shell, and function_tools or mcp"),
            "{text}"
        );
        assert!(text.contains("missing:   function_tools, mcp"), "{text}");
        let with = Capabilities::of([Capability::Shell, Capability::Mcp]);
        assert_eq!(with.require("toy", Work::EndToEnd), Ok(()));
    }

    #[test]
    fn every_capability_is_its_own_bit() {
        let all = Capabilities::of(Capability::ALL);
        assert_eq!(all.iter().count(), 12);
        assert_eq!(Capabilities::NONE.to_string(), "nothing");
    }
}
