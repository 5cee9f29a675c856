//! The port to an agent loop, ours or foreign, and what a run may demand of it.
//! A runtime that cannot do the job fails here, by name, before the first token.
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
use crate::context::{Facts, How, by_the_log};
use crate::event::EventKind;
use crate::history::Entry;
use crate::id::AskId;
use crate::message::{Message, ToolCall};
use crate::outcome::{FailReason, RefusalCategory};
use crate::provider::ProviderError;
use crate::store::StoreError;
use crate::terms::Terms;
use crate::tool::{ToolSet, Toolbox};
use crate::workspace::{Files, Processes};
use crate::{BoxFuture, CancellationToken};

/// Owns an agent loop.
///
/// The port has nine methods; a runtime writes three of them. The others have defaults and say what differs.
pub trait Runtime: Send + Sync {
    /// Its name, as people type it.
    fn name(&self) -> &str;
    /// The model it will ask, where it knows.
    fn model(&self) -> Option<&str> {
        None
    }
    /// What a session loses that was with this model until now, in words; empty when nothing.
    fn loses_from(&self, _model: &str) -> Vec<String> {
        Vec::new()
    }
    /// What it can do. A claim that is not kept is a defect.
    fn capabilities(&self) -> Capabilities;
    /// How it can be held and steered, beside that.
    fn features(&self) -> Features {
        Features::NONE
    }
    /// Says in the terms of a run what is different with it: how its spending is known, how its calls are judged.
    fn terms(&self, _terms: &mut Terms) {}
    /// Whether it says itself that a try began, because it then knows the foreign agent's session.
    fn begins_itself(&self) -> bool {
        false
    }
    /// One iteration. Facts go through the job's outlet; the answer says why it ended.
    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>>;
    /// Makes room in the messages between two runs; false when nothing was to be gained. A runtime that has no model to
    /// ask for a summary lets the log write it.
    fn compact<'a>(&'a self, job: MakeRoom<'a>) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(async move {
            let history = job.outlet.history();
            let room = history.iter().map(Entry::bytes).sum::<usize>() / 4;
            let made = by_the_log(&history, &job.outlet.facts(), job.how, room);
            drop(history);
            let Some(compaction) = made else {
                return Ok(false);
            };
            job.outlet.emit(EventKind::Compacted { compaction }).await?;
            Ok(true)
        })
    }
}

/// What making room between two runs needs.
pub struct MakeRoom<'a> {
    /// How much is to give way.
    pub how: How,
    /// Facts out.
    pub outlet: &'a dyn Outlet,
    /// What a summary may cost.
    pub account: &'a dyn Account,
    /// The tools that are on offer in runs: they take room, too.
    pub tools: &'a ToolSet,
    /// Ends it.
    pub cancel: CancellationToken,
}

/// One iteration's work: everything a runtime needs, without knowing engine or host.
#[derive(Clone)]
pub struct Job<'a> {
    /// What to do; already in the history.
    pub prompt: &'a Message,
    /// Which try this is, from 1.
    pub iteration: u32,
    /// Calls of the last message that were asked for and never settled: the try goes on with them.
    pub pending: Vec<ToolCall>,
    /// The foreign agent's session that this session was last with, as it was said when that try began.
    pub foreign_session: Option<String>,
    /// Facts out, questions out.
    pub outlet: &'a dyn Outlet,
    /// Our tools, judged and logged.
    pub toolbox: &'a dyn Toolbox,
    /// What may be spent.
    pub account: &'a dyn Account,
    /// Files of this run's workspace.
    pub files: &'a Arc<dyn Files>,
    /// Processes of this run.
    pub processes: &'a Arc<dyn Processes>,
    /// Ends it.
    pub cancel: CancellationToken,
}

/// How a runtime talks back.
pub trait Outlet: Send + Sync {
    /// Logs a durable fact, then shows it. Returns its sequence number.
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>>;
    /// Shows a live fact (a delta, progress). Never blocks; may be dropped when nobody keeps up.
    fn show(&self, kind: EventKind);
    /// Whether anybody looks at live facts; when not, making them is a waste.
    fn watched(&self) -> bool;
    /// Asks a person and waits.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Result<Answer, StoreError>>;
    /// Says what a person wants to tell the run that is going, if they do: between steps, and before an end. Whether
    /// there was anything.
    fn steer(&self) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }
    /// The messages so far. Drop it before the next `emit`, or the list is copied.
    fn history(&self) -> Arc<Vec<Entry>>;
    /// What was done so far, by the log.
    fn facts(&self) -> Facts;
}

/// What a run may still spend.
pub trait Account: Send + Sync {
    /// Time so far, without waiting for a person.
    fn elapsed(&self) -> Duration;
    /// What has been spent.
    fn spent(&self) -> Spent;
    /// The limit that is reached, if any.
    fn exceeded(&self) -> Option<Limit>;
    /// Reserves a model call; see [`crate::budget::Budget::admit`].
    fn admit(&self, input: u64, want: u64, price: Option<Price>) -> Result<u64, Limit>;
    /// Reserves a model call beside others that are under way, until it is given up. The limits of steps and time are
    /// looked at, too.
    fn hold(&self, input: u64, want: u64, price: Option<Price>) -> Result<Hold, Limit>;
    /// Gives up what was reserved: the call was settled, or not sent.
    fn release(&self, hold: Hold);
    /// Books a model call and says so in the log.
    fn settle<'a>(
        &'a self,
        usage: Usage,
        price: Option<Price>,
        estimated: bool,
        model: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// A reserved model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Tells it from others.
    pub id: u64,
    /// How many output tokens it may produce.
    pub output: u64,
}

/// Why one iteration ended. Expected ends are values, not errors.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// The agent says it is done.
    Done,
    /// It is done, with an answer that fits the schema that was asked for.
    Answered {
        /// The answer.
        output: serde_json::Value,
    },
    /// The model or its vendor declined.
    Refused {
        /// On what ground.
        category: RefusalCategory,
        /// In its words.
        detail: String,
    },
    /// The next call would cross a limit.
    OverBudget {
        /// Which.
        limit: Limit,
    },
    /// It cannot go on.
    Failed {
        /// Why.
        reason: FailReason,
        /// What happened and what to do.
        detail: String,
    },
    /// The model could not be had.
    Provider(ProviderError),
    /// A person or the host ended it.
    Cancelled,
    /// It waits for a person who is not there; the run stays open.
    Paused {
        /// For what.
        ask: AskId,
    },
}

/// The runtime itself failed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The log could not be written; nothing more may be done.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What a runtime can do (decision 1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Capability {
    /// Answers in words.
    TextCompletion,
    /// Streams them.
    StreamingText,
    /// Answers in a given schema.
    StructuredOutput,
    /// Calls tools in a loop of its own.
    NativeToolLoop,
    /// Takes our tools.
    FunctionTools,
    /// Takes MCP servers.
    Mcp,
    /// Reads files.
    FilesystemRead,
    /// Changes files.
    FilesystemEdit,
    /// Runs commands.
    Shell,
    /// Applies patches.
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

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The schema of [`Capability`], with what each of them means.
#[must_use]
pub fn capability_schema() -> serde_json::Value {
    schemars::schema_for!(Capability).to_value()
}

/// A set of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    #[must_use]
    pub fn of(which: impl IntoIterator<Item = Capability>) -> Self {
        Self(
            which
                .into_iter()
                .fold(0, |bits, one| bits | 1 << one as u16),
        )
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn has(self, one: Capability) -> bool {
        self.0 & (1 << one as u16) != 0
    }

    /// In the order of the spec.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL
            .into_iter()
            .filter(move |one| self.has(*one))
    }

    /// Fails with everything a person needs to choose differently.
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

/// A runtime that cannot do the work it was chosen for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the runtime `{runtime}` cannot do this work ({})\n  required:  {needs}\n  available: {offered}\n  missing:   {missing}\n  what to do: choose a runtime or a model that has it (`windlass runtimes` lists them), or a kind of work that needs less (`--fallback` steps down by itself)",
    work.word()
)]
pub struct Unmet {
    /// Who.
    pub runtime: String,
    /// What for.
    pub work: Work,
    /// All that is needed.
    pub needs: Needs,
    /// All that is offered.
    pub offered: Capabilities,
    /// The difference.
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
    fn of_alternatives_one_is_enough_and_none_names_all() {
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
