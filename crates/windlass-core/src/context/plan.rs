//! Decides which messages a compaction shortens or replaces. Large old tool results are shortened first. If that is not
//! enough, a summary replaces everything before a cut between two steps. Messages of the user stay. All of it is
//! arithmetic over message sizes.

use std::collections::BTreeMap;

use super::{
    Clip, Compaction, CompactionCause, Kept, LeftOut, MAX_SUMMARY, NOTE, Shrink, compacted,
    is_words,
};
use crate::history::Entry;
use crate::message::{Part, Role};

/// The number of recent steps whose results stay whole while older ones are shortened. The planner tries these in
/// order.
const WHOLE_STEPS: [usize; 3] = [4, 1, 0];
/// Results longer than this many bytes are shortened.
const LARGE: u64 = 2_048;
/// Bytes that stay of the beginning of a shortened result.
const KEEP: u64 = 600;
/// Minimum target size in bytes. Below it the messages are not the reason that a request is too long.
const LEAST_ROOM: usize = 4 << 10;
/// Minimum bytes of a shortened message of the user. A shorter one is useless and is left out.
const LEAST_CLIP: usize = 80;

/// Labels for omitted text of the user in the list of what was left out.
const CLIPPED: &str = "parts of older messages of yours";
const GONE: &str = "older messages of yours";

/// Whether some text of the user was left out.
pub(super) fn loses_words(left_out: &[LeftOut]) -> bool {
    left_out
        .iter()
        .any(|row| row.what == CLIPPED || row.what == GONE)
}

/// The goal of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionMode {
    /// Shorten the messages to the size that the caller gives.
    Fit(CompactionCause),
    /// Summarize everything except this many most recent steps.
    Last(u32),
    /// Summarize everything, even the last step.
    Summary,
}

/// A planned compaction; only its summary is missing.
#[derive(Clone)]
pub struct CompactionPlan {
    /// The compaction, with an empty summary.
    pub compaction: Compaction,
    /// The messages that the summary has to replace; empty if results are only shortened.
    pub dropped: Vec<Entry>,
}

/// Plans a compaction to about `room` bytes; `None` if it would gain too little. The messages must end between two
/// steps.
#[must_use]
pub fn plan(entries: &[Entry], how: CompactionMode, room: usize) -> Option<CompactionPlan> {
    let (all, room) = (MessageSizes::of(entries), room.max(LEAST_ROOM));
    let end = entries.last()?.seq() + 1;
    let mut compaction = match how {
        CompactionMode::Fit(by) => Compaction {
            by: Some(by),
            ..fitting(&all, end, room)
        },
        CompactionMode::Last(steps) => {
            let kept_from = all.last_steps(steps as usize).unwrap_or(end);
            Compaction {
                kept_from,
                by: Some(CompactionCause::Person),
                ..Compaction::default()
            }
        }
        CompactionMode::Summary => Compaction {
            kept_from: end,
            by: Some(CompactionCause::Person),
            ..Compaction::default()
        },
    };
    compaction.clipped = clip(entries, compaction.kept_from, room / 2);
    let dropped = |entry: &&Entry| entry.seq() < compaction.kept_from && !is_words(entry);
    let dropped: Vec<Entry> = entries.iter().filter(dropped).cloned().collect();
    compaction.left_out = left_out(entries, &compaction, &dropped);
    let before: usize = entries.iter().map(Entry::bytes).sum();
    let after: usize = compacted(entries, &compaction, None)
        .iter()
        .map(Entry::bytes)
        .sum();
    let worth = match how {
        // If the window is full again after the next step, a summary is not worth its cost.
        CompactionMode::Fit(_) => before.saturating_sub(after) >= (before / 8).max(1),
        CompactionMode::Last(_) | CompactionMode::Summary => {
            dropped.iter().any(|entry| !entry.is_summary())
        }
    };
    worth.then_some(CompactionPlan {
        compaction,
        dropped,
    })
}

/// The mildest compaction that fits; the strongest one if none does.
fn fitting(all: &MessageSizes, end: u64, room: usize) -> Compaction {
    let shrink = |whole: usize| Shrink {
        before: if whole == 0 {
            end
        } else {
            all.last_steps(whole).unwrap_or(0)
        },
        over: LARGE,
        keep: KEEP,
    };
    let start = all.rows.first().map_or(1, |row| row.seq);
    // Shortening results costs no model call, so it may leave more bytes than a summary would.
    if all.with(start, shrink(WHOLE_STEPS[0]).before, 0) <= room + room / 5 {
        return Compaction {
            kept_from: start,
            shrunk: Some(shrink(WHOLE_STEPS[0])),
            ..Compaction::default()
        };
    }
    let summary = summary_room(room);
    for whole in WHOLE_STEPS {
        let how = shrink(whole);
        let latest = all.last_steps(whole.max(1)).unwrap_or(end);
        // Keep the longest tail that fits, cut where a step begins. A summary costs a model call, so it has to free
        // more than the minimum.
        let cut = all.cut(how.before, |pinned, tail| {
            pinned.min(room / 2) + summary + tail <= room / 8 * 7
        });
        if let Some(kept_from) = cut.filter(|cut| *cut <= latest) {
            return Compaction {
                kept_from,
                shrunk: Some(how),
                ..Compaction::default()
            };
        }
    }
    Compaction {
        kept_from: end,
        ..Compaction::default()
    }
}

/// The share of `room` bytes that a summary may take.
pub(super) fn summary_room(room: usize) -> usize {
    MAX_SUMMARY.min(room / 4)
}

/// The size of one message, whole and with its results shortened.
struct MessageSize {
    seq: u64,
    bytes: usize,
    short: usize,
    words: bool,
    answer: bool,
}

struct MessageSizes {
    rows: Vec<MessageSize>,
}

impl MessageSizes {
    fn of(entries: &[Entry]) -> Self {
        let row = |entry: &Entry| MessageSize {
            seq: entry.seq(),
            bytes: entry.bytes(),
            short: short(entry),
            words: is_words(entry),
            answer: entry.role == Role::Assistant,
        };
        Self {
            rows: entries.iter().map(row).collect(),
        }
    }

    /// The sequence number at which the last `steps` steps begin; `None` if there is no step.
    fn last_steps(&self, steps: usize) -> Option<u64> {
        let answers = self.rows.iter().rev().filter(|row| row.answer).take(steps);
        answers.last().map(|row| row.seq)
    }

    /// The size that remains with this cut, and with results shortened before this event.
    fn with(&self, kept_from: u64, shrunk_before: u64, summary: usize) -> usize {
        let weight = |row: &MessageSize| match (row.seq < kept_from, row.seq < shrunk_before) {
            (true, _) if !row.words => 0,
            (false, true) => row.short,
            _ => row.bytes,
        };
        summary + self.rows.iter().map(weight).sum::<usize>()
    }

    /// The earliest cut that fits. `fits` gets the size of the user's messages before the cut and the size of
    /// everything after it.
    fn cut(&self, shrunk_before: u64, fits: impl Fn(usize, usize) -> bool) -> Option<u64> {
        let (mut pinned, mut tail) = (0, self.with(0, shrunk_before, 0));
        let mut last = None;
        for row in &self.rows {
            if last != Some(row.seq) && fits(pinned, tail) {
                return Some(row.seq);
            }
            last = Some(row.seq);
            tail -= if row.seq < shrunk_before {
                row.short
            } else {
                row.bytes
            };
            pinned += if row.words { row.bytes } else { 0 };
        }
        None
    }
}

/// The size of a message once its large results are shortened.
fn short(entry: &Entry) -> usize {
    let stub = usize::try_from(KEEP + KEEP / 2).unwrap_or(0) + NOTE;
    let saved = entry.parts.iter().map(|part| match part {
        Part::Result(result) if result.text.len() as u64 > LARGE => {
            result.text.len().saturating_sub(stub)
        }
        _ => 0,
    });
    entry.bytes().saturating_sub(saved.sum())
}

/// Plans the shortening of the user's messages before the cut, if all of them take more than `room`. The newest stay
/// whole; the first one gets a quarter of the room.
fn clip(entries: &[Entry], kept_from: u64, room: usize) -> Option<Clip> {
    let words: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.seq() < kept_from && is_words(entry))
        .collect();
    if words.iter().map(|entry| entry.bytes()).sum::<usize>() <= room {
        return None;
    }
    let first = room / 4;
    let mut left = room / 2;
    let (mut before, mut older) = (kept_from, words.len());
    for entry in words.iter().skip(1).rev() {
        if entry.bytes() > left {
            break;
        }
        left -= entry.bytes();
        (before, older) = (entry.seq(), older - 1);
    }
    let keep = (room / 4 / older.max(1)).saturating_sub(NOTE);
    let keep = if keep < LEAST_CLIP { 0 } else { keep };
    Some(Clip {
        before,
        keep: keep as u64,
        first: first.max(LEAST_CLIP) as u64,
    })
}

/// Counts by kind what the model no longer gets.
fn left_out(entries: &[Entry], compaction: &Compaction, dropped: &[Entry]) -> Vec<LeftOut> {
    let mut rows: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut add = |what: String, bytes: usize| {
        let row = rows.entry(what).or_default();
        *row = (row.0 + 1, row.1 + bytes as u64);
    };
    for entry in dropped.iter().filter(|entry| !entry.is_summary()) {
        match entry.role {
            Role::Assistant => add("answers of the model".into(), entry.bytes()),
            Role::User => add("messages of the engine".into(), entry.bytes()),
            Role::Tool => {
                for part in &entry.parts {
                    if let Part::Result(result) = part {
                        add(
                            format!("results of {}", name(&result.name)),
                            result.text.len(),
                        );
                    }
                }
            }
        }
    }
    let kept = entries
        .iter()
        .filter(|entry| entry.seq() >= compaction.kept_from);
    for (entry, how) in kept.filter_map(|entry| Some((entry, compaction.shrunk?))) {
        for part in entry
            .parts
            .iter()
            .filter(|_| entry.role == Role::Tool && entry.seq() < how.before)
        {
            if let Part::Result(result) = part
                && let Some(stub) = super::stub(result, how)
            {
                add(
                    format!("parts of results of {}", name(&result.name)),
                    result.text.len() - stub.len(),
                );
            }
        }
    }
    if let Some(how) = compaction.clipped {
        let words = entries
            .iter()
            .filter(|entry| entry.seq() < compaction.kept_from && is_words(entry));
        for (at, entry) in words.enumerate() {
            match super::clipped(entry, how, at == 0) {
                Kept::Whole => {}
                Kept::Part(part) => add(CLIPPED.into(), entry.bytes().saturating_sub(part.bytes())),
                Kept::Nothing => add(GONE.into(), entry.bytes()),
            }
        }
    }
    rows.into_iter()
        .map(|(what, (count, bytes))| LeftOut { what, count, bytes })
        .collect()
}

/// Cleans a tool's name: the model chose it, so it may be any text.
fn name(given: &str) -> String {
    given.chars().filter(|c| !c.is_control()).take(64).collect()
}
