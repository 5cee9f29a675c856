//! What happened, in the past tense: one versioned enum that feeds the log and every view of it.
//! Facts are added here, never in a second enum; a change shows in the checked-in schema.
//!
//! On the wire an event is `{"v","seq"|"after","n","at","session","run","trace","kind","data"}`.
//!
//! ```
//! use windlass_core::event::{Event, EventKind};
//!
//! let line = r#"{"v":2,"seq":7,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"noted","data":{"text":"x"}}"#;
//! let event: Event = serde_json::from_str(line).expect("an event");
//! assert_eq!(event.order.seq(), Some(7));
//! assert_eq!(event.kind, EventKind::Noted { text: "x".into() });
//! ```

mod line;

pub use self::line::{Line, read_line};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use strum::{IntoStaticStr, VariantNames};

use crate::ask::{Answer, AnsweredBy, Ask};
use crate::budget::{Limit, Spent, Usage};
use crate::clock::Timestamp;
use crate::context::{Compaction, Instruction};
use crate::flags::SavedFlags;
use crate::gate::Verdict;
use crate::id::{AskId, CallId, RunId, SessionId, TraceId};
use crate::image::Swap;
use crate::message::{Message, ToolCall, ToolResult};
use crate::outcome::{Outcome, RunSummary, StopReason};
use crate::provider::ProviderErrorKind;
use crate::redact::Clean;
use crate::run::Judged;
use crate::terms::Terms;
use crate::validator::Report;
use crate::workspace::{FileChange, Landed, ProcessEnd};

/// The version of the envelope and of every kind. A log with another one is refused untouched. New kinds and new optional
/// fields do not change it.
pub const VERSION: u16 = 2;

/// One fact.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Event {
    /// The version it was written by.
    pub v: u16,
    /// Its place.
    #[serde(flatten)]
    pub order: Order,
    /// When, by the wall clock; order is by `seq` alone.
    pub at: Timestamp,
    /// Whose log.
    pub session: SessionId,
    /// In which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Ties it to traces of other systems.
    pub trace: TraceId,
    /// What.
    #[serde(flatten, serialize_with = "write_kind")]
    pub kind: EventKind,
}

/// The name of [`EventKind::Unknown`] itself, which no log has.
const UNKNOWN: &str = "unknown";

/// An event of a kind that this version does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnknownEvent {
    /// The name of the kind.
    pub kind: String,
    /// Everything it says.
    pub data: serde_json::Value,
}

/// Writes an unknown kind as it was read.
fn write_kind<S: Serializer>(kind: &EventKind, serializer: S) -> Result<S::Ok, S::Error> {
    match kind {
        EventKind::Unknown(event) => event.serialize(serializer),
        known => known.serialize(serializer),
    }
}

/// A fact's place. Durable ones are numbered without gaps; live ones hang on the durable one before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Order {
    /// In the log.
    Durable {
        /// From 1.
        seq: u64,
    },
    /// Shown and forgotten.
    Live {
        /// The last durable one.
        after: u64,
        /// From 1 after that.
        n: u32,
    },
}

impl Order {
    /// The sequence number of a durable one.
    #[must_use]
    pub fn seq(self) -> Option<u64> {
        match self {
            Self::Durable { seq } => Some(seq),
            Self::Live { .. } => None,
        }
    }
}

/// What happened. Durable unless marked live.
#[derive(
    Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, IntoStaticStr, VariantNames,
)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// The first line of every log.
    SessionOpened {
        /// The workspace's root.
        workspace: String,
        /// Who owns the loop.
        runtime: String,
        /// The model, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The version of the program.
        program: String,
    },
    /// A prompt waits: for the next run, or for the next step of the one that is going.
    Queued {
        /// The prompt.
        prompt: Message,
        /// It is meant for the run that is going.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steer: bool,
    },
    /// A run began.
    RunStarted {
        /// What is asked.
        prompt: Message,
        /// The `queued` event that the prompt came from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
        /// The flags it was started with. A run that is resumed is resumed with them.
        #[serde(default, skip_serializing_if = "SavedFlags::is_empty")]
        flags: SavedFlags,
    },
    /// What the run's isolation really is; stated before it starts.
    TransactionOpened {
        /// The terms.
        #[serde(flatten)]
        terms: Terms,
        /// The name of the copy, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A try of the runtime began.
    IterationStarted {
        /// From 1.
        iteration: u32,
        /// The foreign agent's own session, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        foreign_session: Option<String>,
    },
    /// A committed assistant or injected message.
    Said {
        /// The message.
        message: Message,
        /// The `queued` event that it came from: a prompt that steers the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
    },
    /// Live: more text, reasoning or arguments.
    Delta {
        /// Of what.
        of: DeltaOf,
        /// The piece.
        text: String,
    },
    /// A call is about to run; logged before its effect, unless a foreign agent ran it without asking.
    CallStarted {
        /// The call.
        call: ToolCall,
        /// How it was judged; absent when nothing judged it before it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
        /// The rule that let it run, or the reason why it was not judged.
        rule: String,
    },
    /// A foreign agent ran a call without asking, and a deny or ask rule is about it. The run does not land.
    RuleBroken {
        /// The call.
        call: CallId,
        /// The rule.
        rule: String,
    },
    /// The disk of the workspace had no room for changes of a call. A run in which they are not written later fails.
    NotWritten {
        /// The call.
        call: CallId,
        /// The first paths of them.
        paths: Vec<String>,
    },
    /// Live: a call shows what it is doing.
    CallProgress {
        /// Which.
        id: CallId,
        /// The newest output.
        text: String,
    },
    /// A call has its one result.
    CallFinished {
        /// The result.
        result: ToolResult,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// A file was changed by a call.
    FileChanged {
        /// By which.
        call: CallId,
        /// How.
        #[serde(flatten)]
        change: FileChange,
        /// What was there and what is there now, by content, where it can be taken back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        swap: Option<Swap>,
    },
    /// A command began.
    CommandStarted {
        /// By which call.
        call: CallId,
        /// The command line.
        command: String,
    },
    /// A command ended.
    CommandFinished {
        /// By which call.
        call: CallId,
        /// How.
        end: ProcessEnd,
        /// Bytes it wrote.
        bytes: u64,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// The sandbox refused a connection.
    ConnectionRefused {
        /// To whom.
        host: String,
        /// By which rule.
        rule: String,
    },
    /// A person is asked.
    Asked {
        /// What.
        ask: Ask,
    },
    /// An ask was answered.
    Answered {
        /// Which.
        ask: AskId,
        /// How.
        answer: Answer,
        /// By whom.
        by: AnsweredBy,
    },
    /// A call was not run.
    Denied {
        /// Which.
        call: CallId,
        /// By which rule.
        rule: String,
        /// Why.
        reason: String,
    },
    /// The session's notes are now these.
    Noted {
        /// All of them.
        text: String,
    },
    /// A model call is tried again later.
    Waited {
        /// Why, in the provider's words.
        reason: String,
        /// The kind of the error.
        error: ProviderErrorKind,
        /// How long, in milliseconds.
        ms: u64,
        /// Which try follows.
        attempt: u32,
    },
    /// A model call was booked.
    Spent {
        /// Of which model.
        model: String,
        /// This call.
        call: Usage,
        /// What this call cost, in micro-USD; absent when the price is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_micros: Option<u64>,
        /// It is our own count.
        #[serde(default)]
        estimated: bool,
        /// The run so far.
        total: Spent,
    },
    /// Four fifths of a limit are used.
    BudgetWarned {
        /// Which.
        limit: Limit,
    },
    /// A validator looks.
    ValidationStarted {
        /// Which.
        validator: String,
    },
    /// A validator said what it found.
    Validated {
        /// Which.
        validator: String,
        /// Whether its fail stops the landing.
        blocking: bool,
        /// What it found.
        report: Report,
        /// The hash of the tree that would land; none in place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_hash: Option<String>,
    },
    /// A try of the runtime ended.
    IterationFinished {
        /// From 1.
        iteration: u32,
        /// Why.
        stop: StopReason,
        /// The answer, where one that fits a schema was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<serde_json::Value>,
    },
    /// The changes of a try were judged.
    Judged {
        /// The result.
        #[serde(flatten)]
        result: Judged,
        /// The hash of the tree that would land; none in place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_hash: Option<String>,
        /// Tests, scripts and configs of validators that the run changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        judge_changed: Vec<String>,
    },
    /// It is decided how the run ends. Its copy is kept next, then the run is finished.
    RunEnding {
        /// The outcome.
        outcome: Outcome,
    },
    /// A patch was proposed.
    PatchProposed {
        /// What it says it does.
        summary: String,
        /// The files it names.
        files: Vec<String>,
    },
    /// A proposed patch was checked without being applied.
    PatchChecked {
        /// What is wrong with it; empty when nothing is.
        problems: Vec<String>,
    },
    /// A proposed patch was applied.
    PatchApplied {
        /// To these files.
        files: Vec<String>,
    },
    /// The changes reached the user's tree.
    Landed {
        /// What.
        #[serde(flatten)]
        landed: Landed,
        /// The hash of exactly that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_hash: Option<String>,
    },
    /// The copy was kept.
    Kept {
        /// Under this name.
        name: String,
    },
    /// The copy was thrown away.
    Discarded {
        /// Its name.
        name: String,
    },
    /// Changes were taken back.
    Undone {
        /// The event that told of them.
        of: u64,
        /// Further such events.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<u64>,
        /// These files.
        files: Vec<String>,
        /// Each by content, before and after.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        swaps: Vec<Swap>,
    },
    /// Changes that were taken back were made again.
    Redone {
        /// The event that told of taking them back.
        of: u64,
        /// These files.
        files: Vec<String>,
        /// Each by content, before and after.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        swaps: Vec<Swap>,
    },
    /// Older messages made room. They stay in the log.
    Compacted {
        /// Which, and how.
        #[serde(flatten)]
        compaction: Compaction,
    },
    /// What the model is told beside the messages: said once, and again when it is not what it was.
    Instructed {
        /// The instruction files, in the order they are told.
        files: Vec<Instruction>,
        /// Facts of the moment the session was opened, as the model is told them in every run.
        opening: String,
    },
    /// Another model goes on.
    ModelSwitched {
        /// Until now.
        from: String,
        /// From now on.
        to: String,
    },
    /// Another runtime or model took over.
    FailedOver {
        /// Until now.
        from: String,
        /// From now on.
        to: String,
        /// Why.
        reason: String,
    },
    /// This session began as a copy of another.
    Forked {
        /// Of this one.
        from: SessionId,
        /// Up to this event.
        at_seq: u64,
    },
    /// Something a person should know; the run goes on.
    Warned {
        /// A stable word for programs.
        code: String,
        /// What happened and what to do.
        text: String,
    },
    /// The run ended: exactly one for each run.
    RunFinished(RunSummary),
    /// The session was closed.
    SessionClosed {},
    /// An event of a later version. It is kept and shown; nothing else is made of it.
    #[serde(skip)]
    #[schemars(skip)]
    Unknown(UnknownEvent),
}

/// What a delta is a piece of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeltaOf {
    /// The answer.
    Text,
    /// The reasoning.
    Reasoning,
    /// The arguments of a call, by its place in the answer.
    Arguments(u32),
}

impl EventKind {
    /// A message that was not queued.
    #[must_use]
    pub fn said(message: Message) -> Self {
        Self::Said {
            message,
            queued: None,
        }
    }

    /// Something a person should know.
    #[must_use]
    pub fn warned(code: &str, text: impl Into<String>) -> Self {
        let (code, text) = (code.to_owned(), text.into());
        Self::Warned { code, text }
    }

    /// Changes that were taken back.
    #[must_use]
    pub fn undone(of: u64, also: Vec<u64>, swaps: Vec<Swap>) -> Self {
        Self::Undone {
            of,
            also,
            files: paths(&swaps),
            swaps,
        }
    }

    /// Changes that were taken back and made again.
    #[must_use]
    pub fn redone(of: u64, swaps: Vec<Swap>) -> Self {
        Self::Redone {
            of,
            files: paths(&swaps),
            swaps,
        }
    }

    /// The name of the kind, as in the log.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown(event) => &event.kind,
            known => known.into(),
        }
    }

    /// Whether this version knows a kind of this name.
    #[must_use]
    pub fn is_known(name: &str) -> bool {
        Self::VARIANTS.contains(&name) && name != UNKNOWN
    }

    /// Whether it may happen outside of any run: to the user's tree, to a kept copy, or to who does the work.
    #[must_use]
    pub fn happens_between_runs(&self) -> bool {
        matches!(
            self,
            Self::Undone { .. }
                | Self::Redone { .. }
                | Self::Discarded { .. }
                | Self::Landed { .. }
                | Self::FailedOver { .. }
                | Self::Warned { .. }
        )
    }

    /// Redacts every text of the event. A new kind says here which of its fields are text.
    pub(crate) fn redact(&mut self, clean: &Clean<'_>) {
        match self {
            Self::Queued {
                prompt: message, ..
            }
            | Self::Said { message, .. } => clean.message(message),
            Self::RunStarted { prompt, flags, .. } => {
                clean.message(prompt);
                flags.values_mut().for_each(|value| clean.value(value));
            }
            Self::CallStarted { call, rule, .. } => {
                clean.call(call);
                clean.text(rule);
            }
            Self::CallFinished { result, .. } => clean.text(&mut result.text),
            Self::FileChanged { change, .. } => {
                if let Some(diff) = &mut change.diff {
                    clean.text(diff);
                }
            }
            Self::Asked { ask } => clean.ask(ask),
            Self::Answered {
                answer: Answer::No { note: Some(text) } | Answer::Text { text },
                ..
            } => clean.text(text),
            Self::RuleBroken { rule, .. } => clean.text(rule),
            Self::Denied { rule, reason, .. } => {
                clean.text(rule);
                clean.text(reason);
            }
            Self::ValidationStarted { validator } => clean.text(validator),
            Self::Validated {
                validator, report, ..
            } => {
                clean.text(validator);
                report
                    .proof
                    .command
                    .iter_mut()
                    .for_each(|command| clean.text(command));
                clean.findings(&mut report.findings);
            }
            Self::Judged { result, .. } => match result {
                Judged::Passed { ask: Some(ask) } => clean.landing(ask),
                Judged::Blocked {
                    validator,
                    findings,
                } => {
                    clean.text(validator);
                    clean.findings(findings);
                }
                Judged::Passed { ask: None } | Judged::NothingChanged | Judged::Stale { .. } => {}
            },
            Self::IterationFinished { output, .. } => {
                output.iter_mut().for_each(|output| clean.value(output));
            }
            Self::RunEnding { outcome } => clean.outcome(outcome),
            Self::PatchChecked { problems } => {
                problems.iter_mut().for_each(|problem| clean.text(problem))
            }
            Self::RunFinished(RunSummary {
                outcome,
                evidence,
                output,
                ..
            }) => {
                clean.outcome(outcome);
                for one in evidence {
                    clean.text(&mut one.validator);
                    one.proof
                        .command
                        .iter_mut()
                        .for_each(|command| clean.text(command));
                }
                output.iter_mut().for_each(|output| clean.value(output));
            }
            Self::CommandStarted { command: text, .. }
            | Self::ConnectionRefused { host: text, .. }
            | Self::Noted { text }
            | Self::Waited { reason: text, .. }
            | Self::PatchProposed { summary: text, .. }
            | Self::Compacted {
                compaction: Compaction { summary: text, .. },
            }
            | Self::Instructed { opening: text, .. }
            | Self::FailedOver { reason: text, .. }
            | Self::Warned { text, .. } => clean.text(text),
            Self::Unknown(event) => clean.value(&mut event.data),
            // Numbers, names and paths; and live facts, which are cleaned as they are shown.
            Self::SessionOpened { .. }
            | Self::TransactionOpened { .. }
            | Self::IterationStarted { .. }
            | Self::Delta { .. }
            | Self::CallProgress { .. }
            | Self::CommandFinished { .. }
            | Self::Answered { .. }
            | Self::Spent { .. }
            | Self::BudgetWarned { .. }
            | Self::PatchApplied { .. }
            | Self::Landed { .. }
            | Self::Kept { .. }
            | Self::Discarded { .. }
            | Self::Undone { .. }
            | Self::Redone { .. }
            | Self::ModelSwitched { .. }
            | Self::Forked { .. }
            | Self::NotWritten { .. }
            | Self::SessionClosed {} => {}
        }
    }
}

fn paths(swaps: &[Swap]) -> Vec<String> {
    swaps.iter().map(|swap| swap.path.clone()).collect()
}

/// The schema of [`Event`], as it is checked in.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Event).to_value()
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
