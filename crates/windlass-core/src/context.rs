//! Compaction: which messages of a session a model still gets when they no longer fit its window, which results are
//! shortened, and which messages a summary replaces. A [`Compaction`] records the whole decision in the log, so that
//! folding the log gives the same messages again. This module calls no model and writes no log.
//!
//! ```
//! use windlass_core::context::{Compaction, compacted};
//! use windlass_core::history::Entry;
//! use windlass_core::message::Message;
//!
//! let entries = [
//!     Entry::at(1, Message::user("fix the build")),
//!     Entry::at(2, Message::assistant("a very long answer")),
//!     Entry::at(3, Message::user("and the tests")),
//! ];
//! let compaction = Compaction { kept_from: 3, summary: "the build was fixed".into(), ..Compaction::default() };
//! let texts: Vec<String> = compacted(&entries, &compaction, None).iter().map(|entry| entry.text()).collect();
//! assert!(texts.iter().any(|text| text.contains("fix the build")), "a person's words stay");
//! assert!(!texts.iter().any(|text| text.contains("a very long answer")));
//! ```

mod facts;
mod plan;
mod summary;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::facts::{ChangedFile, ExecutedCommand, WorkRecord};
pub use self::plan::{CompactionMode, CompactionPlan, plan};
pub use self::summary::{Sections, TASK, transcript, write};
use crate::history::Entry;
use crate::message::{Message, Origin, Part, Role, ToolResult};

/// Minimum tokens of the window that are kept free.
const LEAST_RESERVE: u64 = 16_000;
/// The estimated size of a note about omitted text, in bytes.
const NOTE: usize = 160;
/// Maximum size of a summary, in bytes.
pub const MAX_SUMMARY: usize = 24 << 10;

/// Tokens of a window that are kept free for the answer and for the results of a step: the larger of 16,000 and a
/// fifth, but never more than half.
#[must_use]
pub fn reserve(window: u64) -> u64 {
    LEAST_RESERVE.max(window / 5).min(window / 2)
}

/// One compaction: which older messages were shortened or replaced by a summary. It has everything that is needed to
/// apply it again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compaction {
    /// Sequence number of the first event whose message stays as it was. Of older messages, only those the user wrote
    /// stay.
    pub kept_from: u64,
    /// The summary that replaces the omitted messages; empty if none was omitted.
    pub summary: String,
    /// Shortening of older, large tool results to their beginning and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrink>,
    /// Shortening of older messages of the user to their beginning, if all of them would not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipped: Option<Clip>,
    /// Content that the model no longer gets, by kind. The log still has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The reason for the compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<CompactionCause>,
}

/// The rule by which large tool results are shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shrink {
    /// Only results before this event are shortened.
    pub before: u64,
    /// Only results longer than this are shortened, in bytes.
    pub over: u64,
    /// Bytes of the beginning that stay. Half as many stay of the end.
    pub keep: u64,
}

/// The rule by which messages of the user are shortened if all of them would not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clip {
    /// Only messages before this event are shortened.
    pub before: u64,
    /// Bytes of each message that stay; with zero, the message is left out.
    pub keep: u64,
    /// Bytes of the first prompt that stay.
    pub first: u64,
}

/// One kind of omitted content, with its count and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The kind, as text for people and models.
    pub what: String,
    /// The number of omitted pieces.
    pub count: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// The reason for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Cause")]
pub enum CompactionCause {
    /// The model's context window was nearly full.
    Window,
    /// The model's server rejected a request as too long.
    Length,
    /// The user asked for it.
    Person,
    /// The log is larger than the limit for messages in memory.
    Memory,
}

impl CompactionCause {
    /// The reason in words for the user.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Window => "the model's window was nearly full",
            Self::Length => "the model's server said that the request was too long",
            Self::Person => "you asked for it",
            Self::Memory => "the session is larger than what is held in memory",
        }
    }
}

/// An instruction file that the model was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instruction {
    /// The location of the file.
    pub path: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// Hash of the content.
    pub hash: String,
}

/// Applies a compaction to messages. `open` is the step whose calls still wait for results: that step always stays.
#[must_use]
pub fn compacted(entries: &[Entry], compaction: &Compaction, open: Option<u64>) -> Vec<Entry> {
    let from = open.map_or(compaction.kept_from, |open| compaction.kept_from.min(open));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let (mut first, mut dropped) = (true, false);
    for entry in entries {
        if entry.seq() >= from {
            after.push(
                compaction
                    .shrunk
                    .and_then(|how| shrunk(entry, how))
                    .unwrap_or_else(|| entry.clone()),
            );
            first &= !is_words(entry);
        } else if is_words(entry) {
            match compaction.clipped.map_or(Kept::Whole, |how| {
                clipped(entry, how, std::mem::take(&mut first))
            }) {
                Kept::Whole => before.push(entry.clone()),
                Kept::Part(part) => before.push(part),
                Kept::Nothing => dropped = true,
            }
            first = false;
        } else {
            dropped = true;
        }
    }
    // The list must not begin with an answer of the model, so a note replaces the omitted messages even without a
    // summary.
    if dropped || !compaction.summary.is_empty() {
        let text = if compaction.summary.is_empty() {
            NO_SUMMARY
        } else {
            &compaction.summary
        };
        before.push(Entry::summary(
            from.saturating_sub(1),
            Message::internal(text),
        ));
    }
    before.extend(after);
    before
}

const NO_SUMMARY: &str = "[Earlier messages of this session were left out to make room.]";

/// Compacts without a model: the summary is written from the log's own facts.
#[must_use]
pub fn by_the_log(
    entries: &[Entry],
    facts: &WorkRecord,
    how: CompactionMode,
    room: usize,
) -> Option<Compaction> {
    let CompactionPlan {
        mut compaction,
        dropped,
    } = plan(entries, how, room)?;
    if !dropped.is_empty() {
        compaction.summary = write(
            &Sections::known(&dropped, facts),
            facts,
            &compaction.left_out,
            room,
        );
    }
    Some(compaction)
}

/// Whether a message was written by the user, rather than by the engine.
#[must_use]
pub fn is_words(entry: &Entry) -> bool {
    entry.role == Role::User && entry.origin == Origin::Person
}

/// A message of tool results with the large ones shortened; `None` if nothing is to be shortened.
fn shrunk(entry: &Entry, how: Shrink) -> Option<Entry> {
    if entry.role != Role::Tool || entry.seq() >= how.before {
        return None;
    }
    let mut any = false;
    let parts = entry.parts.iter().map(|part| match part {
        Part::Result(result) => match stub(result, how) {
            Some(text) => {
                any = true;
                Part::Result(ToolResult {
                    text,
                    ..result.clone()
                })
            }
            None => part.clone(),
        },
        other => other.clone(),
    });
    let message = Message {
        parts: parts.collect(),
        ..Message::clone(entry)
    };
    any.then(|| Entry::at(entry.seq(), message))
}

/// The beginning and the end of a long result, with a note on how to get the rest. `None` if the result is short
/// enough.
fn stub(result: &ToolResult, how: Shrink) -> Option<String> {
    let text = &result.text;
    if text.len() as u64 <= how.over {
        return None;
    }
    let keep = usize::try_from(how.keep).unwrap_or(usize::MAX);
    let head = &text[..text.floor_char_boundary(keep)];
    let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(keep / 2))..];
    let rest = match &result.artifact {
        Some(artifact) => format!("read_file with path \"artifact:{}\" reads it", artifact.id),
        None => "make the call again if you need it".to_owned(),
    };
    let cut = text.len().saturating_sub(head.len() + tail.len());
    let stub =
        format!("{head}\n[... {cut} bytes of this older result were left out; {rest} ...]\n{tail}");
    // A shortened result is not shortened again, and no result gets longer.
    (stub.len() < text.len()).then_some(stub)
}

/// The part of a message of the user that stays.
enum Kept {
    Whole,
    Part(Entry),
    Nothing,
}

/// Shortens a message of the user to its beginning.
fn clipped(entry: &Entry, how: Clip, first: bool) -> Kept {
    if entry.seq() >= how.before {
        return Kept::Whole;
    }
    let keep = usize::try_from(if first { how.first } else { how.keep }).unwrap_or(usize::MAX);
    if keep == 0 {
        return Kept::Nothing;
    }
    // A message that was shortened to `keep` bytes is longer than that by the note about it. It must not be shortened
    // again.
    if entry.bytes() <= keep.saturating_add(NOTE) {
        return Kept::Whole;
    }
    let (mut room, mut cut, mut parts) = (keep, 0, Vec::new());
    for part in &entry.parts {
        match part {
            Part::Text { text } => {
                let end = text.floor_char_boundary(room);
                cut += text.len() - end;
                room -= end;
                if end > 0 {
                    parts.push(Part::Text {
                        text: text[..end].to_owned(),
                    });
                }
            }
            // A picture cannot be shortened, so it is left out.
            Part::Image { data, .. } => cut += data.len(),
            other => parts.push(other.clone()),
        }
    }
    if cut == 0 {
        return Kept::Whole;
    }
    parts.push(Part::Text {
        text: format!("\n[... {cut} bytes of this message were left out to make room ...]"),
    });
    Kept::Part(Entry::at(
        entry.seq(),
        Message {
            parts,
            ..Message::clone(entry)
        },
    ))
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
