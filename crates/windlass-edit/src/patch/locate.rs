//! Finds the place of a hunk: all places where its old lines fit are found, and one of several is chosen only if the
//! patch itself decides between them.
//!
//! Whole lines are compared: exactly, then ignoring trailing spaces, then ignoring indentation, then ignoring
//! typographic quotes and dashes. Lines that are merely similar never match.

use std::borrow::Cow;

use super::{HunkLine, HunkProblem, PatchHunk};
use crate::matching::NEAR;
use crate::nearest::nearest;
use crate::punctuation::fold;
use crate::reindent::reindent;
use crate::text::{LineKey, TextLine, texts, windows};

/// At most this many lines are considered for an `@@` header.
const MAX_PLACES: usize = 200;

/// The lines of the file (from 0) that match the old lines of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HunkPlace {
    pub first: usize,
    pub count: usize,
    /// The lines match only if indentation is ignored, so added lines must be re-indented.
    pub indented: bool,
}

/// Finds the place of a hunk at or after line `from`. `drift` is the difference between the actual and the stated line
/// of the previous hunk.
pub(super) fn locate(
    lines: &[TextLine<'_>],
    hunk: &PatchHunk,
    from: usize,
    drift: isize,
) -> Result<HunkPlace, HunkProblem> {
    let wanted: Vec<&str> = old_lines(hunk);
    if wanted.is_empty() {
        return insertion(lines, hunk, from);
    }
    let (places, indented) = find_places(lines, &wanted);
    // Models often end a hunk with a blank line that stands for the end of the file.
    let (places, indented, count) = match wanted.split_last() {
        Some((last, rest))
            if places.is_empty() && last.is_empty() && !rest.is_empty() && ends_kept(hunk) =>
        {
            let (places, indented) = find_places(lines, rest);
            (places, indented, rest.len())
        }
        _ => (places, indented, wanted.len()),
    };
    let after: Vec<usize> = places
        .iter()
        .copied()
        .filter(|&first| first >= from)
        .collect();
    let chosen = match after[..] {
        [] => return Err(missing(lines, &wanted, &places)),
        [only] => {
            // The place is unambiguous without the headers. But if the file has no such header line, the author had
            // another file in mind, so the hunk is refused.
            header_lines(lines, &hunk.headers, from)?;
            only
        }
        _ => choose(lines, hunk, &after, count, from, drift)?,
    };
    Ok(HunkPlace {
        first: chosen,
        count,
        indented,
    })
}

/// The lines that the file must contain for the hunk to apply.
pub(super) fn old_lines(hunk: &PatchHunk) -> Vec<&str> {
    hunk.lines
        .iter()
        .filter_map(|line| match line {
            HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text.as_str()),
            HunkLine::Add(_) => None,
        })
        .collect()
}

fn ends_kept(hunk: &PatchHunk) -> bool {
    matches!(hunk.lines.last(), Some(HunkLine::Keep(_)))
}

fn missing(lines: &[TextLine<'_>], wanted: &[&str], before: &[usize]) -> HunkProblem {
    if let Some(first) = before.last() {
        return HunkProblem::OutOfOrder { line: first + 1 };
    }
    let mut expected: Vec<String> = wanted
        .iter()
        .take(40)
        .map(|line| format!("  | {line}"))
        .collect();
    if wanted.len() > 40 {
        expected.push("  | …".into());
    }
    HunkProblem::Missing {
        expected: expected.join("\n"),
        nearest: nearest(lines, wanted),
    }
}

fn choose(
    lines: &[TextLine<'_>],
    hunk: &PatchHunk,
    after: &[usize],
    count: usize,
    from: usize,
    drift: isize,
) -> Result<usize, HunkProblem> {
    let mut places = after.to_vec();
    if hunk.at_end || hunk.old_lacks_newline {
        let at_end: Vec<usize> = places
            .iter()
            .copied()
            .filter(|first| first + count == lines.len())
            .collect();
        if let [only] = at_end[..] {
            return Ok(only);
        }
    }
    if let Some(start) = hunk.old_start {
        let expected = start.saturating_sub(1).saturating_add_signed(drift);
        if places.contains(&expected) {
            return Ok(expected);
        }
        places.retain(|first| first.abs_diff(expected) <= NEAR);
        if places.is_empty() && hunk.section.is_some() {
            places = after.to_vec();
        }
    }
    if !hunk.headers.is_empty() {
        places = under_header(lines, &hunk.headers, &places, from)?;
    } else if let Some(section) = hunk.section.as_ref().filter(|_| places.len() > 1) {
        // The section is optional information: if the file has no such line, it is ignored.
        places =
            under_header(lines, std::slice::from_ref(section), &places, from).unwrap_or(places);
    }
    match places[..] {
        [only] => Ok(only),
        [] => Err(HunkProblem::Ambiguous {
            lines: after.iter().map(|first| first + 1).collect(),
        }),
        _ => Err(HunkProblem::Ambiguous {
            lines: places.iter().map(|first| first + 1).collect(),
        }),
    }
}

/// The places below the `@@` headers of a hunk: inside the block that the innermost header opens, or, if there is none,
/// anywhere after the first match of the header.
fn under_header(
    lines: &[TextLine<'_>],
    wanted: &[String],
    places: &[usize],
    from: usize,
) -> Result<Vec<usize>, HunkProblem> {
    let headers = header_lines(lines, wanted, from)?;
    let blocks: Vec<_> = headers
        .iter()
        .map(|&header| header..block_end(lines, header))
        .collect();
    let inside: Vec<usize> = places
        .iter()
        .copied()
        .filter(|first| blocks.iter().any(|block| block.contains(first)))
        .collect();
    if inside.is_empty() {
        let first = headers.first().copied().unwrap_or_default();
        // Without indentation no block is recognised, but the line directly below the only header is still below it.
        if headers.len() == 1 && places.contains(&(first + 1)) {
            return Ok(vec![first + 1]);
        }
        return Ok(places
            .iter()
            .copied()
            .filter(|&place| place >= first)
            .collect());
    }
    Ok(inside)
}

/// The lines of the file that match the innermost `@@` header of a hunk.
fn header_lines(
    lines: &[TextLine<'_>],
    wanted: &[String],
    from: usize,
) -> Result<Vec<usize>, HunkProblem> {
    let mut found: Vec<usize> = Vec::new();
    for (depth, header) in wanted.iter().enumerate() {
        // The first header is searched in the whole file: the block that contains the previous hunk may contain this
        // one too.
        let start = if depth == 0 {
            0
        } else {
            found.first().map_or(from, |outer| outer + 1)
        };
        let outer: Vec<_> = found
            .iter()
            .map(|&at| at + 1..block_end(lines, at))
            .collect();
        let matching = |test: &dyn Fn(&str) -> bool| -> Vec<usize> {
            let all: Vec<usize> = (start..lines.len())
                .filter(|&at| test(lines[at].text))
                .take(MAX_PLACES)
                .collect();
            let inside: Vec<usize> = all
                .iter()
                .copied()
                .filter(|at| outer.iter().any(|block| block.contains(at)))
                .collect();
            if inside.is_empty() { all } else { inside }
        };
        found = matching(&|text| text.trim() == header.trim());
        if found.is_empty() {
            found = matching(&|text| text.trim_start().starts_with(header.trim()));
        }
        if found.is_empty() {
            return Err(HunkProblem::HeaderMissing {
                header: header.clone(),
                nearest: nearest(lines, &[header]),
            });
        }
    }
    Ok(found)
}

/// The end of the block that a line opens: the next line that is not indented deeper.
fn block_end(lines: &[TextLine<'_>], header: usize) -> usize {
    let depth = |text: &str| text.len() - text.trim_start().len();
    let own = depth(lines[header].text);
    (header + 1..lines.len())
        .find(|&at| {
            !lines[at].text.trim().is_empty()
                && depth(lines[at].text) <= own
                && !is_opening(lines[at].text)
        })
        .unwrap_or(lines.len())
}

/// Whether the line is an opening bracket alone, which opens the block of the line above instead of ending it.
fn is_opening(text: &str) -> bool {
    matches!(text.trim(), "{" | "(" | "[")
}

/// The place of a hunk that only adds lines: below its `@@` header, else at the end of the file if the format allows it.
fn insertion(
    lines: &[TextLine<'_>],
    hunk: &PatchHunk,
    from: usize,
) -> Result<HunkPlace, HunkProblem> {
    let first = if hunk.headers.is_empty() {
        match hunk.old_start {
            Some(_) if !lines.is_empty() => return Err(HunkProblem::NoContext),
            _ => lines.len(),
        }
    } else {
        match header_lines(lines, &hunk.headers, from)?[..] {
            [only] => only + 1,
            ref many => {
                return Err(HunkProblem::Ambiguous {
                    lines: many.iter().map(|at| at + 1).collect(),
                });
            }
        }
    };
    if first < from {
        return Err(HunkProblem::OutOfOrder { line: first + 1 });
    }
    Ok(HunkPlace {
        first,
        count: 0,
        indented: false,
    })
}

/// The places of the wanted lines. The comparison becomes looser until there is a match. The second value is true if
/// indentation had to be ignored.
fn find_places(lines: &[TextLine<'_>], wanted: &[&str]) -> (Vec<usize>, bool) {
    for key in [(|text| Cow::Borrowed(text)) as LineKey, |text| {
        Cow::Borrowed(text.trim_end())
    }] {
        let found = windows(lines, wanted, key);
        if !found.is_empty() {
            return (found, false);
        }
    }
    // Blank lines alone match everywhere, so they do not identify a place.
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return (Vec::new(), false);
    }
    let mut found = windows(lines, wanted, |text| Cow::Borrowed(text.trim()));
    found.retain(|&first| {
        let there = texts(&lines[first..first + wanted.len()]);
        reindent(wanted, &there, "").is_some()
    });
    if !found.is_empty() {
        return (found, true);
    }
    (
        windows(lines, wanted, |text| Cow::Owned(fold(text.trim_end()))),
        false,
    )
}
