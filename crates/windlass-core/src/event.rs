//! Events, in the past tense: one versioned enum that feeds the log and every view of it. New facts are added here,
//! never in a second enum; the checked-in schema makes every change visible.
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
use crate::pause::PauseReason;
use crate::provider::ProviderErrorKind;
use crate::redact::EventRedactor;
use crate::run::Judged;
use crate::terms::Terms;
use crate::validator::Report;
use crate::workspace::{FileChange, Landed, ProcessEnd};

/// The format version of the envelope and of all kinds. A log of another version is rejected and left untouched. New
/// kinds and new optional fields do not change the version.
pub const VERSION: u16 = 2;

/// One event of a session, with its envelope.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Event {
    /// The format version that the event was written with.
    pub v: u16,
    /// The position of the event in the session.
    #[serde(flatten)]
    pub order: Order,
    /// The wall-clock time. Events are ordered by `seq`, not by this time.
    pub at: Timestamp,
    /// The session that the event belongs to.
    pub session: SessionId,
    /// The run that the event belongs to; absent between runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The trace id, which links the event to traces in other systems.
    pub trace: TraceId,
    /// The kind of event with its data.
    #[serde(flatten, serialize_with = "write_kind")]
    pub kind: EventKind,
}

/// The name of [`EventKind::Unknown`] itself, which never occurs in a log.
const UNKNOWN: &str = "unknown";

/// An event of a kind that this version does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnknownEvent {
    /// The name of the kind, as in the log.
    pub kind: String,
    /// The data of the event, unchanged.
    pub data: serde_json::Value,
}

/// Writes an unknown kind as it was read.
fn write_kind<S: Serializer>(kind: &EventKind, serializer: S) -> Result<S::Ok, S::Error> {
    match kind {
        EventKind::Unknown(event) => event.serialize(serializer),
        known => known.serialize(serializer),
    }
}

/// The position of an event. Durable events are numbered without gaps; live events have a position relative to the last
/// durable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Order {
    /// The event is in the log.
    Durable {
        /// The sequence number, counted from 1.
        seq: u64,
    },
    /// The event is shown, but not logged.
    Live {
        /// The sequence number of the last durable event.
        after: u64,
        /// The position after that event, counted from 1.
        n: u32,
    },
}

impl Order {
    /// The sequence number of a durable event.
    #[must_use]
    pub fn seq(self) -> Option<u64> {
        match self {
            Self::Durable { seq } => Some(seq),
            Self::Live { .. } => None,
        }
    }
}

/// The kinds of events. An event is durable unless marked live.
#[derive(
    Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, IntoStaticStr, VariantNames,
)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// The session was created. This is the first event of every log.
    SessionOpened {
        /// The root of the workspace.
        workspace: String,
        /// The runtime that owns the agent loop.
        runtime: String,
        /// The model, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The version of the program that created the session.
        program: String,
    },
    /// A prompt was queued for the next run, or for the next step of the current run.
    Queued {
        /// The prompt that waits in the queue.
        prompt: Message,
        /// True if the prompt is meant for the current run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steer: bool,
        /// The command-line flags of the run that the prompt will start.
        #[serde(default, skip_serializing_if = "SavedFlags::is_empty")]
        flags: SavedFlags,
        /// The name of the token of the client that sent the prompt; absent for the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The idempotency key of the request that sent the prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// The queued prompts were put into another order, or some of them were removed.
    QueueChanged {
        /// Sequence numbers of the `queued` events of the prompts that remain, in their new order.
        order: Vec<u64>,
    },
    /// A run started working on a prompt.
    RunStarted {
        /// The prompt of the run.
        prompt: Message,
        /// Sequence number of the `queued` event that the prompt came from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
        /// The command-line flags of the run. Resuming the run applies them again.
        #[serde(default, skip_serializing_if = "SavedFlags::is_empty")]
        flags: SavedFlags,
    },
    /// The run's workspace was opened. The event states the isolation that is really in force, before the agent starts.
    TransactionOpened {
        /// The isolation and sandbox in force.
        #[serde(flatten)]
        terms: Terms,
        /// The name of the isolated copy, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// An iteration of the runtime started.
    IterationStarted {
        /// The iteration's number, counted from 1.
        iteration: u32,
        /// The foreign agent's own session id, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        foreign_session: Option<String>,
    },
    /// A message was committed: an answer of the model, or a message that the engine or a steering prompt added.
    Said {
        /// The message with all its parts.
        message: Message,
        /// Sequence number of the `queued` event, if the message is a prompt that steers the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
    },
    /// Live: a piece of streamed text, reasoning or arguments.
    Delta {
        /// The kind of content that the piece belongs to.
        of: DeltaOf,
        /// The text of the streamed piece.
        text: String,
    },
    /// A tool call is about to run. This is logged before the call has any effect, except for calls that a foreign
    /// agent ran without asking.
    CallStarted {
        /// The call with its arguments.
        call: ToolCall,
        /// The verdict of the permission gate; absent if the call was not judged before it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
        /// The rule that allowed the call, or the reason why it was not judged.
        rule: String,
    },
    /// A foreign agent ran a call without asking, although a deny or ask rule applies to it. The run does not land.
    RuleBroken {
        /// The id of the call.
        call: CallId,
        /// The rule that applies.
        rule: String,
    },
    /// The disk of the workspace had no room for changes of a call. A run in which no later call writes them fails.
    NotWritten {
        /// The id of the call.
        call: CallId,
        /// The first of these paths.
        paths: Vec<String>,
    },
    /// Live: a running call produced output.
    CallProgress {
        /// The id of the call.
        id: CallId,
        /// The most recent output.
        text: String,
    },
    /// A call finished. Every call gets exactly one result.
    CallFinished {
        /// The result of the call.
        result: ToolResult,
        /// Duration of the call in milliseconds.
        ms: u64,
    },
    /// A call or an agent changed a file.
    FileChanged {
        /// The id of the call; absent if the engine found the change in the copy and no call of the agent explains it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The change, with line counts and diff.
        #[serde(flatten)]
        change: FileChange,
        /// The content before and after, by hash; present if the change can be undone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        swap: Option<Swap>,
    },
    /// A call started a command.
    CommandStarted {
        /// The id of the call.
        call: CallId,
        /// The command line as it was run.
        command: String,
    },
    /// A command exited or was ended.
    CommandFinished {
        /// The id of the call.
        call: CallId,
        /// The exit status of the command.
        end: ProcessEnd,
        /// Bytes of output of the command.
        bytes: u64,
        /// Duration of the command in milliseconds.
        ms: u64,
    },
    /// The sandbox refused a network connection.
    ConnectionRefused {
        /// The host that the command tried to reach.
        host: String,
        /// The rule that refused the connection.
        rule: String,
    },
    /// The run asks a person a question or for an approval.
    Asked {
        /// The question with its id and deadline.
        ask: Ask,
    },
    /// An ask was answered.
    Answered {
        /// The id of the ask.
        ask: AskId,
        /// The answer that was given.
        answer: Answer,
        /// The origin of the answer.
        by: AnsweredBy,
        /// The name of the token of the client that answered; absent for the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        who: Option<String>,
    },
    /// The run paused between two steps and stays open. Any process can resume it.
    Paused {
        /// The reason of the pause.
        reason: PauseReason,
        /// The active time of the run so far, in milliseconds. A resumed run counts on from this value.
        #[serde(default, skip_serializing_if = "is_zero")]
        run_ms: u64,
    },
    /// A call was denied and did not run.
    Denied {
        /// The id of the call.
        call: CallId,
        /// The rule that denied it.
        rule: String,
        /// The reason, as the model is told.
        reason: String,
    },
    /// The session's notes were replaced.
    Noted {
        /// The complete text of the notes.
        text: String,
    },
    /// A model call failed and is retried after a wait.
    Waited {
        /// The error message of the provider.
        reason: String,
        /// The kind of the error.
        error: ProviderErrorKind,
        /// The wait before the retry, in milliseconds.
        ms: u64,
        /// The number of the attempt that follows; the first retry is attempt 2.
        attempt: u32,
    },
    /// A model call was charged to the budget.
    Spent {
        /// The name of the model.
        model: String,
        /// The tokens of this call.
        call: Usage,
        /// The cost of this call in micro-USD; absent if the price is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_micros: Option<u64>,
        /// True if the tokens are an estimate, because the vendor reported none.
        #[serde(default)]
        estimated: bool,
        /// The spending of the run so far.
        total: Spent,
    },
    /// The run has used 80 % of a limit.
    BudgetWarned {
        /// The limit that is nearly used up.
        limit: Limit,
    },
    /// A validator started to check the tree.
    ValidationStarted {
        /// The name of the validator.
        validator: String,
    },
    /// A validator reported its verdict.
    Validated {
        /// The name of the validator.
        validator: String,
        /// True if a failure prevents the landing.
        blocking: bool,
        /// The verdict with its findings.
        report: Report,
        /// The hash of the tree that would land; absent for a run in place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_hash: Option<String>,
    },
    /// An iteration of the runtime ended.
    IterationFinished {
        /// The iteration's number, counted from 1.
        iteration: u32,
        /// The reason why the iteration ended.
        stop: StopReason,
        /// The structured answer, if the run has an output schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<serde_json::Value>,
    },
    /// The changes of an iteration were judged by all validators.
    Judged {
        /// The combined result of all validators.
        #[serde(flatten)]
        result: Judged,
        /// The hash of the tree that would land; absent for a run in place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_hash: Option<String>,
        /// Tests, scripts and configs of validators that the run changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        judge_changed: Vec<String>,
    },
    /// The outcome of the run is decided. Next, its copy is kept if needed, and then the run is finished.
    RunEnding {
        /// The outcome that the run will have.
        outcome: Outcome,
    },
    /// The model proposed a patch.
    PatchProposed {
        /// The model's description of the patch.
        summary: String,
        /// The files that the patch names.
        files: Vec<String>,
    },
    /// A proposed patch was checked without being applied.
    PatchChecked {
        /// The problems that were found; empty if the patch applies.
        problems: Vec<String>,
    },
    /// A proposed patch was applied.
    PatchApplied {
        /// The files that were changed.
        files: Vec<String>,
    },
    /// The changes landed in the user's tree.
    Landed {
        /// The files or the branch that the changes went to.
        #[serde(flatten)]
        landed: Landed,
        /// The hash of the tree that landed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_hash: Option<String>,
    },
    /// The isolated copy was kept.
    Kept {
        /// The name of the kept run.
        name: String,
    },
    /// An isolated copy was deleted.
    Discarded {
        /// The name of the copy.
        name: String,
    },
    /// Changes of a run or a call were undone.
    Undone {
        /// Sequence number of the event that recorded the changes.
        of: u64,
        /// Sequence numbers of further such events.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<u64>,
        /// The paths of the restored files.
        files: Vec<String>,
        /// The content of each file before and after the undo.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        swaps: Vec<Swap>,
    },
    /// Undone changes were made again.
    Redone {
        /// Sequence number of the `undone` event.
        of: u64,
        /// The paths of the changed files.
        files: Vec<String>,
        /// The content of each file before and after the redo.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        swaps: Vec<Swap>,
    },
    /// Older messages were compacted. The log still has them.
    Compacted {
        /// The messages that were shortened or replaced, and the summary.
        #[serde(flatten)]
        compaction: Compaction,
    },
    /// The instructions that the model gets in addition to the messages. Logged once, and again when they change.
    Instructed {
        /// The instruction files, in the order in which the model gets them.
        files: Vec<Instruction>,
        /// Facts about the workspace when the session was opened, which the model gets in every run.
        opening: String,
    },
    /// The session switched to another model.
    ModelSwitched {
        /// The model before the switch.
        from: String,
        /// The model after the switch.
        to: String,
    },
    /// Another runtime or model took over after a failure.
    FailedOver {
        /// The runtime or model that failed.
        from: String,
        /// The runtime or model that took over.
        to: String,
        /// The error that caused the failover.
        reason: String,
    },
    /// This session was created as a copy of another one.
    Forked {
        /// The session that was copied.
        from: SessionId,
        /// Sequence number of the last copied event.
        at_seq: u64,
    },
    /// A warning for the user; the run continues.
    Warned {
        /// A stable identifier of the warning, for programs.
        code: String,
        /// A description of the problem and what to do about it.
        text: String,
    },
    /// The run ended. Every run has exactly one such event.
    RunFinished(RunSummary),
    /// The conversation was cleared between two runs: the next run starts without the messages and notes before this
    /// event. They stay in the log, and undo still works.
    Cleared {},
    /// The session was closed.
    SessionClosed {},
    /// An event of a later version. It is stored and shown, but otherwise ignored.
    #[serde(skip)]
    #[schemars(skip)]
    Unknown(UnknownEvent),
}

/// The kind of content that a delta belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeltaOf {
    /// The text of the answer.
    Text,
    /// The reasoning of the model.
    Reasoning,
    /// The arguments of a call, by the index of the call in the answer.
    Arguments(u32),
}

impl EventKind {
    /// A message that did not come from the queue.
    #[must_use]
    pub fn said(message: Message) -> Self {
        Self::Said {
            message,
            queued: None,
        }
    }

    /// A warning for the user.
    #[must_use]
    pub fn warned(code: &str, text: impl Into<String>) -> Self {
        let (code, text) = (code.to_owned(), text.into());
        Self::Warned { code, text }
    }

    /// The event of an undo.
    #[must_use]
    pub fn undone(of: u64, also: Vec<u64>, swaps: Vec<Swap>) -> Self {
        Self::Undone {
            of,
            also,
            files: paths(&swaps),
            swaps,
        }
    }

    /// The event of a redo.
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

    /// Whether the event may occur outside of any run: an undo, the landing of a kept run, a cleared conversation, a note of
    /// the user, a failover or a warning.
    #[must_use]
    pub fn happens_between_runs(&self) -> bool {
        matches!(
            self,
            Self::Undone { .. }
                | Self::Redone { .. }
                | Self::Discarded { .. }
                | Self::Landed { .. }
                | Self::FailedOver { .. }
                | Self::Cleared {}
                | Self::Noted { .. }
                | Self::Warned { .. }
        )
    }

    /// Redacts every text of the event. A new kind has to list its text fields here.
    pub(crate) fn redact(&mut self, clean: &EventRedactor<'_>) {
        match self {
            Self::Said { message, .. } => clean.message(message),
            Self::Queued { prompt, flags, .. } | Self::RunStarted { prompt, flags, .. } => {
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
                answer:
                    Answer::No { note: Some(text) }
                    | Answer::Text { text }
                    | Answer::Always { rule: Some(text) },
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
            // These kinds have only numbers, names and paths. The text of live events is redacted where it is shown.
            Self::SessionOpened { .. }
            | Self::QueueChanged { .. }
            | Self::Paused { .. }
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
            | Self::Cleared {}
            | Self::SessionClosed {} => {}
        }
    }
}

/// Serde's `skip_serializing_if`: leaves a time of zero out of the log.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
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
