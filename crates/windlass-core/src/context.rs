//! What of a session's messages a model still gets when they no longer fit: what is shortened, what a summary stands
//! for, what always stays. One [`Compaction`] says all of it, so that folding the log gives the same messages again.
//! It asks no model and writes no log.
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

pub use self::facts::{Changed, Facts, Ran};
pub use self::plan::{How, Plan, plan};
pub use self::summary::{Sections, TASK, transcript, write};
use crate::history::Entry;
use crate::message::{Message, Origin, Part, Role, ToolResult};

/// Tokens of the window that are kept free at the least.
const LEAST_RESERVE: u64 = 16_000;
/// What a word about something that was left out weighs, in bytes.
const NOTE: usize = 160;
/// The longest summary, in bytes.
pub const MAX_SUMMARY: usize = 24 << 10;

/// Tokens of a window that are kept free for the answer and for what a step adds: 16,000 or a fifth, and never more
/// than half.
#[must_use]
pub fn reserve(window: u64) -> u64 {
    LEAST_RESERVE.max(window / 5).min(window / 2)
}

/// Which older messages made room, and how. Everything that is needed to do it again is in here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compaction {
    /// The first event that stays as it was. Before it only a person's own words stay.
    pub kept_from: u64,
    /// What stands for the rest; empty where nothing was left out.
    pub summary: String,
    /// Older large results are shown by their beginning and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrink>,
    /// Older words of a person are shown by their beginning, because all of them would not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipped: Option<Clip>,
    /// What the model no longer gets; the log still has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Cause>,
}

/// How results are shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shrink {
    /// Those of steps before this event.
    pub before: u64,
    /// Those that are longer than this, in bytes.
    pub over: u64,
    /// So many bytes of their beginning stay, and half as many of their end.
    pub keep: u64,
}

/// How words of a person are shortened where all of them would not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clip {
    /// Those before this event.
    pub before: u64,
    /// So many bytes of each stay; with none, the message is left out.
    pub keep: u64,
    /// So many bytes of the first prompt stay.
    pub first: u64,
}

/// One kind of thing that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// In words.
    pub what: String,
    /// How many.
    pub count: u64,
    /// How many bytes of it.
    pub bytes: u64,
}

/// Why room was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The model's window was nearly full.
    Window,
    /// The server said that the request is too long.
    Length,
    /// A person wanted it.
    Person,
    /// The log is larger than what is held in memory.
    Memory,
}

impl Cause {
    /// In words.
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

/// A file of instructions that the model was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instruction {
    /// Where it is.
    pub path: String,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// Of its content.
    pub hash: String,
}

/// The messages after a compaction. `open` is the step whose calls still wait for results: it always stays.
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
    // A list must not begin with an answer, so where something is missing a word about it stands there in any case.
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

/// Room made without asking anybody: what the log alone can say stands for what is left out.
#[must_use]
pub fn by_the_log(entries: &[Entry], facts: &Facts, how: How, room: usize) -> Option<Compaction> {
    let Plan {
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

/// Whether a message is a person's own words.
#[must_use]
pub fn is_words(entry: &Entry) -> bool {
    entry.role == Role::User && entry.origin == Origin::Person
}

/// A message of results with the large ones shortened; `None` when there is nothing to shorten.
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

/// The beginning and the end of a long result, and where the rest is.
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
    // Never twice, and never to something longer.
    (stub.len() < text.len()).then_some(stub)
}

enum Kept {
    Whole,
    Part(Entry),
    Nothing,
}

/// The beginning of a person's words.
fn clipped(entry: &Entry, how: Clip, first: bool) -> Kept {
    if entry.seq() >= how.before {
        return Kept::Whole;
    }
    let keep = usize::try_from(if first { how.first } else { how.keep }).unwrap_or(usize::MAX);
    if keep == 0 {
        return Kept::Nothing;
    }
    // With the word about it, what was shortened to this much is a little longer: it is not shortened twice.
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
            // A picture is whole or it is nothing.
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
