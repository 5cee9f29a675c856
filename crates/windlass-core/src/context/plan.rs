//! Which messages make room: large old results are shortened first; where that is not enough, everything up to a cut
//! between two steps gives way to a summary. A person's own words stay. Plain arithmetic over what the messages weigh.

use std::collections::BTreeMap;

use super::{
    Cause, Clip, Compaction, Kept, LeftOut, MAX_SUMMARY, NOTE, Shrink, compacted, is_words,
};
use crate::history::Entry;
use crate::message::{Part, Role};

/// Steps whose results stay whole while older ones are shortened, tried in this order.
const WHOLE_STEPS: [usize; 3] = [4, 1, 0];
/// Results over this many bytes are shortened.
const LARGE: u64 = 2_048;
/// Bytes of their beginning that stay.
const KEEP: u64 = 600;
/// With less room than this, in bytes, nothing could be said any more: whatever is too long, it is not the messages.
const LEAST_ROOM: usize = 4 << 10;
/// A person's words that were shortened to less than this say nothing any more.
const LEAST_CLIP: usize = 80;

/// What a person's words that do not fit are called among what was left out.
const CLIPPED: &str = "parts of older messages of yours";
const GONE: &str = "older messages of yours";

/// Whether something of what a person wrote was left out.
pub(super) fn loses_words(left_out: &[LeftOut]) -> bool {
    left_out
        .iter()
        .any(|row| row.what == CLIPPED || row.what == GONE)
}

/// What room is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// So that the messages fit into what the caller says.
    Fit(Cause),
    /// All but the last so many steps give way.
    Last(u32),
    /// Everything gives way.
    Summary,
}

/// What is to be done, without the summary.
#[derive(Clone)]
pub struct Plan {
    /// Its summary is still empty.
    pub compaction: Compaction,
    /// The messages that the summary stands for; none when results are only shortened.
    pub dropped: Vec<Entry>,
}

/// How to bring the messages to about `room` bytes; `None` when nothing is gained. They must be between two steps.
#[must_use]
pub fn plan(entries: &[Entry], how: How, room: usize) -> Option<Plan> {
    let (all, room) = (Weights::of(entries), room.max(LEAST_ROOM));
    let end = entries.last()?.seq() + 1;
    let mut compaction = match how {
        How::Fit(by) => Compaction {
            by: Some(by),
            ..fitting(&all, end, room)
        },
        How::Last(steps) => {
            let kept_from = all.last_steps(steps as usize).unwrap_or(end);
            Compaction {
                kept_from,
                by: Some(Cause::Person),
                ..Compaction::default()
            }
        }
        How::Summary => Compaction {
            kept_from: end,
            by: Some(Cause::Person),
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
        // Room that is full again after the next step is not worth a summary.
        How::Fit(_) => before.saturating_sub(after) >= (before / 8).max(1),
        How::Last(_) | How::Summary => dropped.iter().any(|entry| !entry.is_summary()),
    };
    worth.then_some(Plan {
        compaction,
        dropped,
    })
}

/// The mildest way that fits; the sharpest when none does.
fn fitting(all: &Weights, end: u64, room: usize) -> Compaction {
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
    // It costs nothing, so that it need not gain as much as a summary.
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
        // The longest tail that fits, cut where a step begins. A summary costs a call, so that it makes more room.
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

/// Bytes that a summary may take of so much room.
pub(super) fn summary_room(room: usize) -> usize {
    MAX_SUMMARY.min(room / 4)
}

/// What one message weighs, whole and with its results shortened.
struct Row {
    seq: u64,
    bytes: usize,
    short: usize,
    words: bool,
    answer: bool,
}

struct Weights {
    rows: Vec<Row>,
}

impl Weights {
    fn of(entries: &[Entry]) -> Self {
        let row = |entry: &Entry| Row {
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

    /// Where the last so many steps begin; `None` when there are no steps at all.
    fn last_steps(&self, steps: usize) -> Option<u64> {
        let answers = self.rows.iter().rev().filter(|row| row.answer).take(steps);
        answers.last().map(|row| row.seq)
    }

    /// What is left with a cut and with results shortened before an event.
    fn with(&self, kept_from: u64, shrunk_before: u64, summary: usize) -> usize {
        let weight = |row: &Row| match (row.seq < kept_from, row.seq < shrunk_before) {
            (true, _) if !row.words => 0,
            (false, true) => row.short,
            _ => row.bytes,
        };
        summary + self.rows.iter().map(weight).sum::<usize>()
    }

    /// The earliest cut that fits, by what a person said before it and what stays after it.
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

/// What a message weighs once its large results are shortened.
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

/// How a person's words before the cut are shortened, where all of them take more than `room`: the newest stay whole,
/// the first keeps a quarter.
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

/// What the model no longer gets, by kind.
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

/// A tool's name as a model wrote it may be anything.
fn name(given: &str) -> String {
    given.chars().filter(|c| !c.is_control()).take(64).collect()
}
