//! Positions in a text that movement leads to: words, lines and characters. Nothing here changes the text.

use unicode_segmentation::UnicodeSegmentation;

use super::folds::is_mark;
use super::rows::{line_bounds, next_boundary, prev_boundary};

/// The classes that words are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterClass {
    Space,
    LineBreak,
    Word,
    Punctuation,
    /// A folded paste, which is a word of its own.
    Fold,
}

/// The words that a motion stops at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordKind {
    /// Letters and digits are words, and punctuation is.
    Small,
    /// Everything between spaces is a word.
    Big,
}

fn class(cluster: &str, kind: WordKind) -> ClusterClass {
    let Some(c) = cluster.chars().next() else {
        return ClusterClass::Space;
    };
    match c {
        '\n' => ClusterClass::LineBreak,
        _ if c.is_whitespace() => ClusterClass::Space,
        _ if is_mark(c) => ClusterClass::Fold,
        _ if kind == WordKind::Big => ClusterClass::Word,
        _ if c.is_alphanumeric() || c == '_' => ClusterClass::Word,
        _ => ClusterClass::Punctuation,
    }
}

/// The clusters from `pos`, with their distances from it.
fn clusters_after(text: &str, pos: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = pos;
    std::iter::from_fn(move || {
        let next = next_boundary(text, at);
        let cluster = (at - pos, &text[at..next]);
        at = next;
        (!cluster.1.is_empty()).then_some(cluster)
    })
}

/// The clusters before `pos`, last first.
fn clusters_before(text: &str, pos: usize) -> impl Iterator<Item = &str> {
    let mut at = pos;
    std::iter::from_fn(move || {
        let before = prev_boundary(text, at);
        let cluster = &text[before..at];
        at = before;
        (!cluster.is_empty()).then_some(cluster)
    })
}

fn is_blank(class: ClusterClass) -> bool {
    matches!(class, ClusterClass::Space | ClusterClass::LineBreak)
}

/// The end of the next word, as Emacs moves: over spaces and punctuation, then over letters.
pub(super) fn word_forward(text: &str, pos: usize) -> usize {
    let is_word = |class| matches!(class, ClusterClass::Word | ClusterClass::Fold);
    let mut at = pos;
    let mut inside = false;
    for cluster in clusters_after(text, pos).map(|(_, cluster)| cluster) {
        let class = class(cluster, WordKind::Small);
        if inside && class != ClusterClass::Word {
            break;
        }
        at += cluster.len();
        if class == ClusterClass::Fold {
            break;
        }
        inside |= is_word(class);
    }
    at
}

/// The beginning of the word before the cursor, as Emacs moves.
pub(super) fn word_backward(text: &str, pos: usize) -> usize {
    let mut at = pos;
    let mut inside = false;
    for cluster in clusters_before(text, pos) {
        let class = class(cluster, WordKind::Small);
        if inside && class != ClusterClass::Word {
            break;
        }
        at -= cluster.len();
        if class == ClusterClass::Fold {
            break;
        }
        inside |= class == ClusterClass::Word;
    }
    at
}

/// The beginning of the text between spaces before the cursor.
pub(super) fn big_word_backward(text: &str, pos: usize) -> usize {
    prev_word_start(text, pos, WordKind::Big)
}

/// The beginning of the next word: `w` of vi.
pub(super) fn next_word_start(text: &str, pos: usize, kind: WordKind) -> usize {
    let mut clusters = clusters_after(text, pos);
    let Some((_, first)) = clusters.next() else {
        return pos;
    };
    let mut last = class(first, kind);
    for (at, cluster) in clusters {
        let now = class(cluster, kind);
        let is_empty_line = now == ClusterClass::LineBreak && last == ClusterClass::LineBreak;
        let begins = now != last || now == ClusterClass::Fold;
        if is_empty_line || (begins && !is_blank(now)) {
            return pos + at;
        }
        last = now;
    }
    text.len()
}

/// The beginning of the word before the cursor: `b` of vi.
pub(super) fn prev_word_start(text: &str, pos: usize, kind: WordKind) -> usize {
    let mut at = pos;
    let mut inside: Option<ClusterClass> = None;
    for cluster in clusters_before(text, pos) {
        let now = class(cluster, kind);
        if let Some(word) = inside
            && (now != word || word == ClusterClass::Fold)
        {
            break;
        }
        at -= cluster.len();
        if !is_blank(now) {
            inside = Some(now);
        }
    }
    at
}

/// The last cluster of the next word: `e` of vi.
pub(super) fn next_word_end(text: &str, pos: usize, kind: WordKind) -> usize {
    let mut clusters = clusters_after(text, pos).skip(1).peekable();
    while let Some((at, cluster)) = clusters.next() {
        let now = class(cluster, kind);
        if is_blank(now) {
            continue;
        }
        let continues = clusters
            .peek()
            .is_some_and(|(_, next)| class(next, kind) == now && now != ClusterClass::Fold);
        if !continues {
            return pos + at;
        }
    }
    prev_boundary(text, text.len()).max(pos)
}

pub(super) fn line_start(text: &str, pos: usize) -> usize {
    line_bounds(text, pos).0
}

pub(super) fn line_end(text: &str, pos: usize) -> usize {
    line_bounds(text, pos).1
}

/// The first cluster of the line that is no space: `^` of vi.
pub(super) fn first_nonblank(text: &str, pos: usize) -> usize {
    let (start, end) = line_bounds(text, pos);
    let blank = text[start..end]
        .find(|c: char| !c.is_whitespace())
        .unwrap_or(end - start);
    start + blank
}

/// The cluster to the left in the same line: `h` of vi.
pub(super) fn left_in_line(text: &str, pos: usize) -> usize {
    if pos > line_start(text, pos) {
        prev_boundary(text, pos)
    } else {
        pos
    }
}

/// The cluster to the right in the same line, at most its end: `l` of vi.
pub(super) fn right_in_line(text: &str, pos: usize) -> usize {
    if pos < line_end(text, pos) {
        next_boundary(text, pos)
    } else {
        pos
    }
}

/// The `count`th occurrence of `target` in the line: `f` and `F` of vi.
pub(super) fn find_in_line(
    text: &str,
    pos: usize,
    target: char,
    forward: bool,
    count: usize,
) -> Option<usize> {
    let (start, end) = line_bounds(text, pos);
    let is_target = |cluster: &str| cluster.starts_with(target);
    let nth = count.max(1) - 1;
    if forward {
        let from = right_in_line(text, pos);
        text[from..end]
            .grapheme_indices(true)
            .filter(|(_, cluster)| is_target(cluster))
            .nth(nth)
            .map(|(at, _)| from + at)
    } else {
        text[start..pos]
            .grapheme_indices(true)
            .rev()
            .filter(|(_, cluster)| is_target(cluster))
            .nth(nth)
            .map(|(at, _)| start + at)
    }
}

/// The line with this number, counted from 1, or the last one.
pub(super) fn line_number(text: &str, number: usize) -> usize {
    let mut start = 0;
    for _ in 1..number {
        match text[start..].find('\n') {
            Some(at) => start += at + 1,
            None => break,
        }
    }
    start
}
