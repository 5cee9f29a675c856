//! The motions of vi: from a position and a count to a target.

use super::motions::{
    WordKind, find_in_line, first_nonblank, left_in_line, line_end, line_number, line_start,
    next_word_end, next_word_start, prev_word_start, right_in_line,
};
use super::rows::prev_boundary;

/// A search for a character in the line: `f`, `F`, `t` or `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingFind {
    is_forward: bool,
    /// Stop one cluster before the target.
    is_till: bool,
    /// `;` and `,` skip a target next to the cursor.
    is_repeated: bool,
}

impl PendingFind {
    pub(super) fn new(key: char) -> Self {
        Self {
            is_forward: matches!(key, 'f' | 't'),
            is_till: matches!(key, 't' | 'T'),
            is_repeated: false,
        }
    }

    pub(super) fn repeated(self) -> Self {
        Self {
            is_repeated: true,
            ..self
        }
    }

    pub(super) fn reversed(self) -> Self {
        Self {
            is_forward: !self.is_forward,
            ..self
        }
    }
}

/// A motion in normal mode or after an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViMotion {
    Left,
    Right,
    LineBelow,
    LineAbove,
    WordStart(WordKind),
    WordBack(WordKind),
    WordEnd(WordKind),
    LineStart,
    FirstNonblank,
    LineEnd,
    FirstLine,
    LastLine,
    Find(PendingFind, char),
}

/// The text between the cursor and the target that an operator changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MotionReach {
    /// The cluster at the higher end is not included.
    Exclusive,
    Inclusive,
    /// Whole lines, from the line of the cursor to that of the target.
    Lines,
}

impl ViMotion {
    pub(super) fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'h' => Self::Left,
            'l' | ' ' => Self::Right,
            'j' => Self::LineBelow,
            'k' => Self::LineAbove,
            'w' => Self::WordStart(WordKind::Small),
            'W' => Self::WordStart(WordKind::Big),
            'b' => Self::WordBack(WordKind::Small),
            'B' => Self::WordBack(WordKind::Big),
            'e' => Self::WordEnd(WordKind::Small),
            'E' => Self::WordEnd(WordKind::Big),
            '0' => Self::LineStart,
            '^' => Self::FirstNonblank,
            '$' => Self::LineEnd,
            'G' => Self::LastLine,
            _ => return None,
        })
    }

    pub(super) fn is_word_start(self) -> bool {
        matches!(self, Self::WordStart(_))
    }
}

/// The target of a motion, or nothing if there is none.
pub(super) fn motion(
    text: &str,
    pos: usize,
    to: ViMotion,
    count: Option<usize>,
) -> Option<(usize, MotionReach)> {
    let times = count.unwrap_or(1).max(1);
    let repeat = |step: &dyn Fn(usize) -> usize| {
        let mut at = pos;
        for _ in 0..times {
            let next = step(at);
            if next == at {
                break;
            }
            at = next;
        }
        at
    };
    Some(match to {
        ViMotion::Left => (repeat(&|at| left_in_line(text, at)), MotionReach::Exclusive),
        ViMotion::Right => (
            repeat(&|at| right_in_line(text, at)),
            MotionReach::Exclusive,
        ),
        ViMotion::LineBelow => {
            let end = line_end(text, pos);
            if end >= text.len() {
                return None;
            }
            (repeat(&|at| below(text, at)), MotionReach::Lines)
        }
        ViMotion::LineAbove => {
            if line_start(text, pos) == 0 {
                return None;
            }
            (repeat(&|at| above(text, at)), MotionReach::Lines)
        }
        ViMotion::WordStart(kind) => (
            repeat(&|at| next_word_start(text, at, kind)),
            MotionReach::Exclusive,
        ),
        ViMotion::WordBack(kind) => (
            repeat(&|at| prev_word_start(text, at, kind)),
            MotionReach::Exclusive,
        ),
        ViMotion::WordEnd(kind) => (
            repeat(&|at| next_word_end(text, at, kind)),
            MotionReach::Inclusive,
        ),
        ViMotion::LineStart => (line_start(text, pos), MotionReach::Exclusive),
        ViMotion::FirstNonblank => (first_nonblank(text, pos), MotionReach::Exclusive),
        ViMotion::LineEnd => {
            let line = (1..times).fold(pos, |at, _| below(text, at));
            (line_end(text, line), MotionReach::Exclusive)
        }
        ViMotion::FirstLine => (
            first_nonblank(text, line_number(text, times)),
            MotionReach::Lines,
        ),
        ViMotion::LastLine => {
            let line = match count {
                Some(number) => line_number(text, number),
                None => line_start(text, text.len()),
            };
            (first_nonblank(text, line), MotionReach::Lines)
        }
        ViMotion::Find(find, target) => (found(text, pos, find, target, times)?, reach_of(find)),
    })
}

fn reach_of(find: PendingFind) -> MotionReach {
    if find.is_forward {
        MotionReach::Inclusive
    } else {
        MotionReach::Exclusive
    }
}

fn found(text: &str, pos: usize, find: PendingFind, target: char, count: usize) -> Option<usize> {
    let from = match (find.is_till && find.is_repeated, find.is_forward) {
        (false, _) => pos,
        (true, true) => {
            let next = right_in_line(text, pos);
            if text[next..].starts_with(target) {
                next
            } else {
                pos
            }
        }
        (true, false) => {
            let before = left_in_line(text, pos);
            if text[before..].starts_with(target) {
                before
            } else {
                pos
            }
        }
    };
    let at = find_in_line(text, from, target, find.is_forward, count)?;
    Some(match (find.is_till, find.is_forward) {
        (false, _) => at,
        (true, true) => prev_boundary(text, at),
        (true, false) => right_in_line(text, at),
    })
}

fn below(text: &str, pos: usize) -> usize {
    let end = line_end(text, pos);
    if end < text.len() { end + 1 } else { pos }
}

fn above(text: &str, pos: usize) -> usize {
    let start = line_start(text, pos);
    if start > 0 {
        line_start(text, start - 1)
    } else {
        pos
    }
}
