//! Search and replace: finds the one place an edit means and puts the new text there.
//!
//! Looks exactly first, then without regard to line endings, to trailing spaces, to indentation, to how quotes and
//! dashes are written. Never applies anything fuzzier, never chooses between two places, never changes bytes outside
//! the match.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::nearest::{Nearest, nearest};
use super::punctuation::{fold, folded};
use super::reindent::reindent;
use super::text::{Ending, Key, Line, ending_for, lines, texts, windows, with_endings};

/// Places counted before "more than" is said.
const MAX_COUNTED: usize = 1000;
/// Line numbers listed in an error or a report.
const MAX_LISTED: usize = 20;
/// A text that occurs more than once is taken where a line was named if it is once within this many lines of it.
pub(super) const NEAR: usize = 20;

/// One replacement.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'a> {
    /// The text to find.
    pub old: &'a str,
    /// The text to put in its place.
    pub new: &'a str,
    /// Replace every place instead of requiring exactly one.
    pub replace_all: bool,
}

/// How the text was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Character for character.
    Exact,
    /// Apart from line endings.
    LineEndings,
    /// Apart from spaces at the ends of lines.
    TrailingSpace,
    /// Apart from indentation; the new text was re-indented to fit.
    Indentation,
    /// Apart from how quotes, dashes and spaces are written.
    Punctuation,
}

/// What an edit did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The whole text afterwards.
    pub content: String,
    /// How many places were replaced.
    pub count: usize,
    /// Line numbers of the first places, in the text before the edit.
    pub lines: Vec<usize>,
    /// How the text was recognised.
    pub how: How,
}

/// Why an edit was not made. Nothing is changed in any of these cases.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// There is nothing to look for.
    #[error("`old` is empty; give the text to replace, or write the whole file instead")]
    EmptyOld,
    /// The replacement is what is replaced.
    #[error("`old` and `new` are the same text; nothing would change")]
    SameText,
    /// The replacement left the file as it was.
    #[error("the edit would leave the file exactly as it is")]
    NoChange,
    /// The same edit was given before.
    #[error("it is the same as edit {first}, so it would be made twice; give it once")]
    Repeated {
        /// Number of the other one, from 1.
        first: usize,
    },
    /// The text is not there as often as it was said to be.
    #[error("`old` occurs {found} times, not {times} times")]
    Count {
        /// How often it is there.
        found: usize,
        /// How often it should be.
        times: usize,
    },
    /// Lines were left out in a way that leaves the place open.
    #[error(
        "the lines left out with `...` cannot be told; have the same `...` lines in the old and the new text, in the order of the file, each part after a line that stays"
    )]
    Elided,
    /// The text is not in the file.
    #[error("`old` was not found{}", shown(.nearest))]
    Missing {
        /// What comes closest.
        nearest: Option<Nearest>,
    },
    /// The text is in the file more than once.
    #[error(
        "`old` occurs {}{count} times (lines {}); include more surrounding lines so that it occurs once, or set replace_all",
        if *.more { "more than " } else { "" }, listed(.lines, *.count)
    )]
    Ambiguous {
        /// How many places there are, as far as counted.
        count: usize,
        /// Whether counting stopped early.
        more: bool,
        /// Line numbers of the first places.
        lines: Vec<usize>,
    },
}

fn shown(nearest: &Option<Nearest>) -> String {
    match nearest {
        Some(nearest) => format!("; {nearest}"),
        None => "; nothing in the file resembles it, so read the file again".to_owned(),
    }
}

/// The first line numbers, with a mark where there are more of them.
pub(super) fn listed(lines: &[usize], count: usize) -> String {
    let first: Vec<String> = lines
        .iter()
        .take(MAX_LISTED)
        .map(usize::to_string)
        .collect();
    let more = if count > first.len() { ", …" } else { "" };
    first.join(", ") + more
}

/// Makes one edit.
pub fn apply(content: &str, edit: &Edit<'_>) -> Result<Applied, EditError> {
    if edit.old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if edit.old == edit.new {
        return Err(EditError::SameText);
    }
    let file = File {
        content,
        lines: lines(content),
    };
    for how in [
        How::Exact,
        How::LineEndings,
        How::TrailingSpace,
        How::Indentation,
        How::Punctuation,
    ] {
        let places = match how {
            How::Exact => file.exact(edit),
            How::LineEndings => file.any_endings(edit),
            How::TrailingSpace | How::Indentation => file.whole_lines(edit, how),
            How::Punctuation => file.any_punctuation(edit),
        };
        if !places.is_empty() {
            return file.replace(edit, &places, how);
        }
    }
    Err(file.missing(edit.old))
}

/// Where `old` stands as whole lines, and what goes there. `near` is the line (from 1) the edit is said to be at: it
/// decides between equal places, and never overrules the text.
pub(super) fn find_lines(
    content: &str,
    edit: &Edit<'_>,
    near: Option<usize>,
) -> Result<Place, EditError> {
    if edit.old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    let file = File {
        content,
        lines: lines(content),
    };
    for how in [
        How::Exact,
        How::TrailingSpace,
        How::Indentation,
        How::Punctuation,
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

/// Makes several edits one after another, each on the result of the one before; all or none.
/// The error says which edit (from 0) failed.
pub fn apply_all(content: &str, edits: &[Edit<'_>]) -> Result<Vec<Applied>, (usize, EditError)> {
    let mut done: Vec<Applied> = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let before = done
            .last()
            .map_or(content, |applied| applied.content.as_str());
        let applied = apply(before, edit).map_err(|err| (index, err))?;
        if let Some(last) = done.last_mut() {
            // Only the last text is needed; the ones before would add up.
            last.content = String::new();
        }
        done.push(applied);
    }
    Ok(done)
}

struct File<'a> {
    content: &'a str,
    lines: Vec<Line<'a>>,
}

/// A stretch of the file and what goes there.
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) new: String,
}

impl File<'_> {
    fn exact(&self, edit: &Edit<'_>) -> Vec<Place> {
        let bytes = self.content.as_bytes();
        // A match that begins or ends between `\r` and `\n` is not this text: replacing it would tear the pair.
        let tears = |at: usize| at > 0 && bytes.get(at) == Some(&b'\n') && bytes[at - 1] == b'\r';
        let (advance, limit) = stride(edit, edit.old.len());
        occurrences(self.content, edit.old, advance)
            .map(|start| (start, start + edit.old.len()))
            .filter(|&(start, end)| !tears(start) && !tears(end))
            .take(limit)
            .map(|(start, end)| self.place(start, end, edit.new, true))
            .collect()
    }

    fn any_endings(&self, edit: &Edit<'_>) -> Vec<Place> {
        if !self.content.contains('\r') && !edit.old.contains('\r') {
            return Vec::new();
        }
        self.in_plain(edit, &with_endings(edit.old, Ending::Lf, false), |text| {
            text.to_owned()
        })
    }

    fn any_punctuation(&self, edit: &Edit<'_>) -> Vec<Place> {
        if !folded(self.content) && !folded(edit.old) {
            return Vec::new();
        }
        self.in_plain(
            edit,
            &fold(&with_endings(edit.old, Ending::Lf, false)),
            fold,
        )
    }

    /// Places of `old` in the file with plain line endings and each line as `key` gives it: as many characters as
    /// before, so that a place there is a place here.
    fn in_plain(&self, edit: &Edit<'_>, old: &str, key: fn(&str) -> String) -> Vec<Place> {
        let mut plain = String::with_capacity(self.content.len());
        let mut starts = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            starts.push(plain.len());
            plain.push_str(&key(line.text));
            if line.ending != Ending::None {
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

    /// The place here of one in the plain text, whose lines start at `starts`.
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

    /// Whole lines, compared as `how` says.
    fn whole_lines(&self, edit: &Edit<'_>, how: How) -> Vec<Place> {
        let key: Key = match how {
            How::Exact | How::LineEndings => |text| Cow::Borrowed(text),
            How::TrailingSpace => |text| Cow::Borrowed(text.trim_end()),
            How::Indentation => |text| Cow::Borrowed(text.trim()),
            How::Punctuation => |text| Cow::Owned(fold(text.trim_end())),
        };
        let wanted = lines(edit.old);
        // Blank lines are alike everywhere, so alone they say nothing about the place.
        if how != How::Exact && wanted.iter().all(|line| line.text.trim().is_empty()) {
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
        wanted: &[Line<'_>],
        first: usize,
        how: How,
    ) -> Option<Place> {
        let found = self.lines.get(first..first + wanted.len())?;
        let last = found.last()?;
        let mut new = edit.new.to_owned();
        if how == How::Indentation {
            new = reindent(&texts(wanted), &texts(found), &new)?;
        }
        let ends_line = wanted
            .last()
            .is_some_and(|line| line.ending != Ending::None);
        if ends_line && last.ending == Ending::None {
            // The file has no final newline and gets none.
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

    fn ambiguous(&self, places: &[Place]) -> EditError {
        EditError::Ambiguous {
            count: places.len().min(MAX_COUNTED),
            more: places.len() > MAX_COUNTED,
            lines: self.numbers(places),
        }
    }

    /// The line numbers of the first places.
    fn numbers(&self, places: &[Place]) -> Vec<usize> {
        let first = places.iter().take(MAX_LISTED);
        first.map(|place| self.line_at(place.start) + 1).collect()
    }

    /// The one place at the line, else the one place not far from it; all of them where that decides nothing.
    fn nearby(&self, mut places: Vec<Place>, near: usize) -> Vec<Place> {
        let line = |place: &Place| self.line_at(place.start) + 1;
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

    fn place(&self, start: usize, end: usize, new: &str, keep_explicit: bool) -> Place {
        let from = self.line_at(start);
        let to = (self.line_at(end.saturating_sub(1).max(start)) + 1).min(self.lines.len());
        let ending = ending_for(&self.lines[from.min(to)..to], &self.lines);
        Place {
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

    fn replace(&self, edit: &Edit<'_>, places: &[Place], how: How) -> Result<Applied, EditError> {
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

/// The text with the new one at each of the places, which are in order.
pub(super) fn splice(text: &str, places: &[Place]) -> Result<String, EditError> {
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

/// Where `needle` occurs, each search starting `advance` after the last place.
fn occurrences(hay: &str, needle: &str, advance: usize) -> impl Iterator<Item = usize> {
    let finder = Finder::new(needle).into_owned();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(hay.as_bytes().get(from..)?)?;
        from = at + advance;
        Some(at)
    })
}

/// How far to step and how many places to look for. To replace all, places may not overlap.
/// Otherwise overlapping ones count too, because two readings of one stretch are two places.
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
