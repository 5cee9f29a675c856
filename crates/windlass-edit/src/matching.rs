//! Search and replace: finds the one place that an edit matches and puts the new text there.
//!
//! Compares exactly first, then ignores line endings, then trailing spaces, then indentation, then typographic quotes
//! and dashes. Never matches more loosely than that, never chooses between two places, never changes bytes outside the
//! match.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::nearest::{Nearest, nearest};
use super::punctuation::{fold, has_lookalikes};
use super::reindent::reindent;
use super::text::{LineEnding, LineKey, TextLine, ending_for, lines, texts, windows, with_endings};

/// Counting matches stops here; a message then says "more than".
const MAX_COUNTED: usize = 1000;
/// At most this many line numbers are listed in an error or a report.
const MAX_LISTED: usize = 20;
/// If text occurs more than once and the edit names a line, the only occurrence within this many lines of it is chosen.
pub(super) const NEAR: usize = 20;

/// A text to find and the text that replaces it.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'a> {
    /// The text to find.
    pub old: &'a str,
    /// The text to put in its place.
    pub new: &'a str,
    /// Replace every place instead of requiring exactly one.
    pub replace_all: bool,
}

/// The differences that were ignored to find the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchKind {
    /// None: every character was equal.
    Exact,
    /// Different line endings were ignored.
    LineEndings,
    /// Spaces at the ends of lines were ignored.
    TrailingSpace,
    /// Indentation was ignored; the new text was re-indented to fit.
    Indentation,
    /// Typographic quotes, dashes and spaces were treated as their ASCII equivalents.
    Punctuation,
}

/// The result of an edit that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The whole text afterwards.
    pub content: String,
    /// The number of places that were replaced.
    pub count: usize,
    /// Line numbers of the first places, in the text before the edit.
    pub lines: Vec<usize>,
    /// The differences that were ignored to find the text.
    pub how: MatchKind,
}

/// Why an edit was not applied. None of these cases changes anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text to find is empty.
    #[error("`old` is empty; give the text to replace, or write the whole file instead")]
    EmptyOld,
    /// The old and the new text are equal.
    #[error("`old` and `new` are the same text; nothing would change")]
    SameText,
    /// The replacement left the file as it was.
    #[error("the edit would leave the file exactly as it is")]
    NoChange,
    /// An earlier edit of the same list is equal.
    #[error("it is the same as edit {first}, so it would be made twice; give it once")]
    Repeated {
        /// Number of the earlier edit, from 1.
        first: usize,
    },
    /// The number of occurrences is not the one that the edit requires.
    #[error("`old` occurs {found} times, not {times} times")]
    Count {
        /// The number of occurrences in the file.
        found: usize,
        /// The number of occurrences that the edit requires.
        times: usize,
    },
    /// The `...` lines do not determine which lines of the file they stand for.
    #[error(
        "it is unclear which lines are left out with `...`; put the same `...` lines into the old and the new text, in the order of the file, each part after a line that stays"
    )]
    Elided,
    /// The text is not in the file.
    #[error("`old` was not found{}", describe_nearest(.nearest))]
    Missing {
        /// The most similar text in the file.
        nearest: Option<Nearest>,
    },
    /// The text is in the file more than once.
    #[error(
        "`old` occurs {}{count} times (lines {}); include more surrounding lines so that it occurs once, or set replace_all",
        if *.more { "more than " } else { "" }, list_lines(.lines, *.count)
    )]
    Ambiguous {
        /// The number of places, at most 1000.
        count: usize,
        /// Whether there are more than `count` places.
        more: bool,
        /// Line numbers of the first places.
        lines: Vec<usize>,
    },
}

fn describe_nearest(nearest: &Option<Nearest>) -> String {
    match nearest {
        Some(nearest) => format!("; {nearest}"),
        None => "; nothing in the file resembles it, so read the file again".to_owned(),
    }
}

/// The first line numbers as text, with `…` at the end if `count` is higher.
pub(super) fn list_lines(lines: &[usize], count: usize) -> String {
    let first: Vec<String> = lines
        .iter()
        .take(MAX_LISTED)
        .map(usize::to_string)
        .collect();
    let more = if count > first.len() { ", …" } else { "" };
    first.join(", ") + more
}

/// Applies one edit to `content`.
pub fn apply(content: &str, edit: &Edit<'_>) -> Result<Applied, EditError> {
    if edit.old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if edit.old == edit.new {
        return Err(EditError::SameText);
    }
    let file = SearchedFile {
        content,
        lines: lines(content),
    };
    for how in [
        MatchKind::Exact,
        MatchKind::LineEndings,
        MatchKind::TrailingSpace,
        MatchKind::Indentation,
        MatchKind::Punctuation,
    ] {
        let places = match how {
            MatchKind::Exact => file.exact(edit),
            MatchKind::LineEndings => file.any_endings(edit),
            MatchKind::TrailingSpace | MatchKind::Indentation => file.whole_lines(edit, how),
            MatchKind::Punctuation => file.any_punctuation(edit),
        };
        if !places.is_empty() {
            return file.replace(edit, &places, how);
        }
    }
    Err(file.missing(edit.old))
}

/// Finds `old` as whole lines. `near` is the line (from 1) that the edit names: it decides between equal matches, and
/// never makes text match that differs.
pub(super) fn find_lines(
    content: &str,
    edit: &Edit<'_>,
    near: Option<usize>,
) -> Result<Replacement, EditError> {
    if edit.old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    let file = SearchedFile {
        content,
        lines: lines(content),
    };
    for how in [
        MatchKind::Exact,
        MatchKind::TrailingSpace,
        MatchKind::Indentation,
        MatchKind::Punctuation,
    ] {
        let mut places = file.whole_lines(edit, how);
        if places.len() > 1
            && let Some(near) = near
        {
            places = file.nearby(places, near);
        }
        if places.len() > 1 {
            return Err(file.ambiguous(&places));
        }
        if let Some(only) = places.pop() {
            return Ok(only);
        }
    }
    Err(file.missing(edit.old))
}

/// Applies edits in order, each to the result of the previous one; either all are applied or none.
/// The error contains the index (from 0) of the edit that failed.
pub fn apply_all(content: &str, edits: &[Edit<'_>]) -> Result<Vec<Applied>, (usize, EditError)> {
    let mut done: Vec<Applied> = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let before = done
            .last()
            .map_or(content, |applied| applied.content.as_str());
        let applied = apply(before, edit).map_err(|err| (index, err))?;
        if let Some(last) = done.last_mut() {
            // Only the last text is needed; keeping one copy of the file per edit would cost memory.
            last.content = String::new();
        }
        done.push(applied);
    }
    Ok(done)
}

/// The text of a file and its lines.
struct SearchedFile<'a> {
    content: &'a str,
    lines: Vec<TextLine<'a>>,
}

/// A byte range of the file and the text that replaces it.
pub(super) struct Replacement {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) new: String,
}

impl SearchedFile<'_> {
    fn exact(&self, edit: &Edit<'_>) -> Vec<Replacement> {
        let bytes = self.content.as_bytes();
        // A match that begins or ends between `\r` and `\n` is ignored: replacing it would break the pair.
        let splits_crlf =
            |at: usize| at > 0 && bytes.get(at) == Some(&b'\n') && bytes[at - 1] == b'\r';
        let (advance, limit) = stride(edit, edit.old.len());
        occurrences(self.content, edit.old, advance)
            .map(|start| (start, start + edit.old.len()))
            .filter(|&(start, end)| !splits_crlf(start) && !splits_crlf(end))
            .take(limit)
            .map(|(start, end)| self.place(start, end, edit.new, true))
            .collect()
    }

    fn any_endings(&self, edit: &Edit<'_>) -> Vec<Replacement> {
        if !self.content.contains('\r') && !edit.old.contains('\r') {
            return Vec::new();
        }
        self.in_normalized(
            edit,
            &with_endings(edit.old, LineEnding::Lf, false),
            |text| text.to_owned(),
        )
    }

    fn any_punctuation(&self, edit: &Edit<'_>) -> Vec<Replacement> {
        if !has_lookalikes(self.content) && !has_lookalikes(edit.old) {
            return Vec::new();
        }
        self.in_normalized(
            edit,
            &fold(&with_endings(edit.old, LineEnding::Lf, false)),
            fold,
        )
    }

    /// Searches a copy of the file in which every line ending is `\n` and every line has gone through `key`. `key` keeps
    /// the number of characters, so that a match in the copy can be mapped back to the file.
    fn in_normalized(
        &self,
        edit: &Edit<'_>,
        old: &str,
        key: fn(&str) -> String,
    ) -> Vec<Replacement> {
        let mut plain = String::with_capacity(self.content.len());
        let mut starts = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            starts.push(plain.len());
            plain.push_str(&key(line.text));
            if line.ending != LineEnding::None {
                plain.push('\n');
            }
        }
        let original = |at| self.original(&plain, &starts, at);
        let (advance, limit) = stride(edit, old.len());
        occurrences(&plain, old, advance)
            .take(limit)
            .map(|start| {
                self.place(
                    original(start),
                    original(start + old.len()),
                    edit.new,
                    false,
                )
            })
            .collect()
    }

    /// Maps an offset in the normalized copy `plain`, whose lines start at `starts`, to an offset in the file.
    fn original(&self, plain: &str, starts: &[usize], at: usize) -> usize {
        let index = starts.partition_point(|&start| start <= at) - 1;
        let line = &self.lines[index];
        let (from, until) = (
            starts[index],
            starts.get(index + 1).map_or(plain.len(), |next| *next),
        );
        let shown = plain[from..until]
            .strip_suffix('\n')
            .unwrap_or(&plain[from..until]);
        if at > from + shown.len() {
            return line.end();
        }
        // Folding keeps the number of characters, not of bytes.
        let characters = plain[from..at].chars().count();
        line.start
            + line
                .text
                .char_indices()
                .nth(characters)
                .map_or(line.text.len(), |(offset, _)| offset)
    }

    /// Searches for `old` as whole lines, ignoring the differences that `how` allows.
    fn whole_lines(&self, edit: &Edit<'_>, how: MatchKind) -> Vec<Replacement> {
        let key: LineKey = match how {
            MatchKind::Exact | MatchKind::LineEndings => |text| Cow::Borrowed(text),
            MatchKind::TrailingSpace => |text| Cow::Borrowed(text.trim_end()),
            MatchKind::Indentation => |text| Cow::Borrowed(text.trim()),
            MatchKind::Punctuation => |text| Cow::Owned(fold(text.trim_end())),
        };
        let wanted = lines(edit.old);
        // Blank lines alone match everywhere, so they do not identify a place.
        if how != MatchKind::Exact && wanted.iter().all(|line| line.text.trim().is_empty()) {
            return Vec::new();
        }
        let (advance, limit) = stride(edit, wanted.len());
        let mut next = 0;
        windows(&self.lines, &texts(&wanted), key)
            .into_iter()
            .filter(|first| {
                let free = *first >= next;
                next = if free { first + advance } else { next };
                free
            })
            .filter_map(|first| self.window(edit, &wanted, first, how))
            .take(limit)
            .collect()
    }

    fn window(
        &self,
        edit: &Edit<'_>,
        wanted: &[TextLine<'_>],
        first: usize,
        how: MatchKind,
    ) -> Option<Replacement> {
        let found = self.lines.get(first..first + wanted.len())?;
        let last = found.last()?;
        let mut new = edit.new.to_owned();
        if how == MatchKind::Indentation {
            new = reindent(&texts(wanted), &texts(found), &new)?;
        }
        let ends_line = wanted
            .last()
            .is_some_and(|line| line.ending != LineEnding::None);
        if ends_line && last.ending == LineEnding::None {
            // The file has no final newline; do not add one.
            let shorter = new.strip_suffix('\n').unwrap_or(&new);
            new.truncate(shorter.strip_suffix('\r').unwrap_or(shorter).len());
        }
        let end = if ends_line {
            last.end()
        } else {
            last.text_end()
        };
        Some(self.place(found[0].start, end, &new, false))
    }

    fn missing(&self, old: &str) -> EditError {
        EditError::Missing {
            nearest: nearest(&self.lines, &texts(&lines(old))),
        }
    }

    fn ambiguous(&self, places: &[Replacement]) -> EditError {
        EditError::Ambiguous {
            count: places.len().min(MAX_COUNTED),
            more: places.len() > MAX_COUNTED,
            lines: self.numbers(places),
        }
    }

    /// The line numbers of the first places.
    fn numbers(&self, places: &[Replacement]) -> Vec<usize> {
        let first = places.iter().take(MAX_LISTED);
        first.map(|place| self.line_at(place.start) + 1).collect()
    }

    /// The place at line `near`, else the only place within [`NEAR`] lines of it, else all places.
    fn nearby(&self, mut places: Vec<Replacement>, near: usize) -> Vec<Replacement> {
        let line = |place: &Replacement| self.line_at(place.start) + 1;
        if let Some(exact) = places.iter().position(|place| line(place) == near) {
            return vec![places.swap_remove(exact)];
        }
        let close: Vec<usize> = (0..places.len())
            .filter(|&at| line(&places[at]).abs_diff(near) <= NEAR)
            .collect();
        match close[..] {
            [only] => vec![places.swap_remove(only)],
            _ => places,
        }
    }

    fn place(&self, start: usize, end: usize, new: &str, keep_explicit: bool) -> Replacement {
        let from = self.line_at(start);
        let to = (self.line_at(end.saturating_sub(1).max(start)) + 1).min(self.lines.len());
        let ending = ending_for(&self.lines[from.min(to)..to], &self.lines);
        Replacement {
            start,
            end,
            new: with_endings(new, ending, keep_explicit),
        }
    }

    fn line_at(&self, offset: usize) -> usize {
        self.lines
            .partition_point(|line| line.start <= offset)
            .saturating_sub(1)
    }

    fn replace(
        &self,
        edit: &Edit<'_>,
        places: &[Replacement],
        how: MatchKind,
    ) -> Result<Applied, EditError> {
        if places.len() > 1 && !edit.replace_all {
            return Err(self.ambiguous(places));
        }
        Ok(Applied {
            content: splice(self.content, places)?,
            count: places.len(),
            lines: self.numbers(places),
            how,
        })
    }
}

/// Applies the replacements to `text`. They must be sorted and must not overlap.
pub(super) fn splice(text: &str, places: &[Replacement]) -> Result<String, EditError> {
    let mut after = String::with_capacity(text.len());
    let mut done = 0;
    for place in places {
        after.push_str(&text[done..place.start]);
        after.push_str(&place.new);
        done = place.end;
    }
    after.push_str(&text[done..]);
    if after == text {
        return Err(EditError::NoChange);
    }
    Ok(after)
}

/// The offsets of `needle`. Each search starts `advance` bytes after the previous match.
fn occurrences(hay: &str, needle: &str, advance: usize) -> impl Iterator<Item = usize> {
    let finder = Finder::new(needle).into_owned();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(hay.as_bytes().get(from..)?)?;
        from = at + advance;
        Some(at)
    })
}

/// The step after a match and the maximum number of matches. With `replace_all`, matches must not overlap. Otherwise
/// overlapping matches are counted too, because they make the edit ambiguous.
fn stride(edit: &Edit<'_>, whole: usize) -> (usize, usize) {
    if edit.replace_all {
        (whole.max(1), usize::MAX)
    } else {
        (1, MAX_COUNTED + 1)
    }
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
