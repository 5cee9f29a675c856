//! Where a hunk goes: every place its old lines fit is found, and one is chosen only when the patch itself says which.
//!
//! The comparison is by whole lines: exactly, then without trailing spaces, apart from indentation, apart from how
//! quotes and dashes are written; never by likeness.

use std::borrow::Cow;

use super::{Hunk, HunkLine, HunkProblem};
use crate::matching::NEAR;
use crate::nearest::nearest;
use crate::punctuation::fold;
use crate::reindent::reindent;
use crate::text::{Key, Line, texts, windows};

/// Places looked for; more cannot be told apart anyway.
const MAX_PLACES: usize = 200;

/// The lines of the file (from 0) that the hunk's old lines stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub first: usize,
    pub count: usize,
    /// The lines were found apart from their indentation, so new ones are moved to it.
    pub indented: bool,
}

/// Finds the place of a hunk at or after line `from`. `drift` is how far hunks before it were off.
pub(super) fn locate(
    lines: &[Line<'_>],
    hunk: &Hunk,
    from: usize,
    drift: isize,
) -> Result<Spot, HunkProblem> {
    let wanted: Vec<&str> = old_lines(hunk);
    if wanted.is_empty() {
        return insertion(lines, hunk, from);
    }
    let (spots, indented) = fits(lines, &wanted);
    // A blank line at the end of a hunk is often the end of the file seen as a line.
    let (spots, indented, count) = match wanted.split_last() {
        Some((last, rest))
            if spots.is_empty() && last.is_empty() && !rest.is_empty() && ends_kept(hunk) =>
        {
            let (spots, indented) = fits(lines, rest);
            (spots, indented, rest.len())
        }
        _ => (spots, indented, wanted.len()),
    };
    let after: Vec<usize> = spots
        .iter()
        .copied()
        .filter(|&first| first >= from)
        .collect();
    let chosen = match after[..] {
        [] => return Err(missing(lines, &wanted, &spots)),
        [only] => {
            // The old lines decide alone, but a header that is nowhere means another file was in mind.
            header_lines(lines, &hunk.under, from)?;
            only
        }
        _ => choose(lines, hunk, &after, count, from, drift)?,
    };
    Ok(Spot {
        first: chosen,
        count,
        indented,
    })
}

/// The lines a hunk expects to find.
pub(super) fn old_lines(hunk: &Hunk) -> Vec<&str> {
    hunk.lines
        .iter()
        .filter_map(|line| match line {
            HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text.as_str()),
            HunkLine::Add(_) => None,
        })
        .collect()
}

fn ends_kept(hunk: &Hunk) -> bool {
    matches!(hunk.lines.last(), Some(HunkLine::Keep(_)))
}

fn missing(lines: &[Line<'_>], wanted: &[&str], before: &[usize]) -> HunkProblem {
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
    lines: &[Line<'_>],
    hunk: &Hunk,
    after: &[usize],
    count: usize,
    from: usize,
    drift: isize,
) -> Result<usize, HunkProblem> {
    let mut places = after.to_vec();
    if hunk.at_end || hunk.old_open {
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
    if !hunk.under.is_empty() {
        places = under_header(lines, &hunk.under, &places, from)?;
    } else if let Some(section) = hunk.section.as_ref().filter(|_| places.len() > 1) {
        // A section that is nowhere was never meant as a place.
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

/// The places that are below the hunk's `@@` lines: in the block the last of them opens, if any is there.
fn under_header(
    lines: &[Line<'_>],
    under: &[String],
    places: &[usize],
    from: usize,
) -> Result<Vec<usize>, HunkProblem> {
    let headers = header_lines(lines, under, from)?;
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
        // Where nothing is indented, the line right below the only header is still the one below it.
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

/// The lines that may be the innermost `@@` line of a hunk.
fn header_lines(
    lines: &[Line<'_>],
    under: &[String],
    from: usize,
) -> Result<Vec<usize>, HunkProblem> {
    let mut found: Vec<usize> = Vec::new();
    for (depth, header) in under.iter().enumerate() {
        // The block that holds the last hunk may hold this one too, so the first header is looked for everywhere.
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

/// The end of the block a line opens: the next line that is indented no deeper.
fn block_end(lines: &[Line<'_>], header: usize) -> usize {
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

/// A brace or parenthesis on a line of its own opens the block instead of ending it.
fn is_opening(text: &str) -> bool {
    matches!(text.trim(), "{" | "(" | "[")
}

/// A hunk that only adds: below its `@@` line, else at the end of the file where the format allows that.
fn insertion(lines: &[Line<'_>], hunk: &Hunk, from: usize) -> Result<Spot, HunkProblem> {
    let first = if hunk.under.is_empty() {
        match hunk.old_start {
            Some(_) if !lines.is_empty() => return Err(HunkProblem::NoContext),
            _ => lines.len(),
        }
    } else {
        match header_lines(lines, &hunk.under, from)?[..] {
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
    Ok(Spot {
        first,
        count: 0,
        indented: false,
    })
}

/// Where the wanted lines stand, compared more and more loosely until they stand somewhere, and whether that was apart
/// from their indentation.
fn fits(lines: &[Line<'_>], wanted: &[&str]) -> (Vec<usize>, bool) {
    for key in [(|text| Cow::Borrowed(text)) as Key, |text| {
        Cow::Borrowed(text.trim_end())
    }] {
        let found = windows(lines, wanted, key);
        if !found.is_empty() {
            return (found, false);
        }
    }
    // Blank lines are alike everywhere, so alone they say nothing about the place.
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
