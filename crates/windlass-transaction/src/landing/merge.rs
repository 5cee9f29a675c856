//! A three-way merge of text, line by line. Lines keep their own endings, so that CRLF and a missing last newline stay
//! as they were. The merge never guesses: changes that do not fit together are a conflict.

use std::ops::Range;
use std::time::Duration;

use windlass_edit::sequence::{DiffTag, diff};

const MAX_LINES: usize = 200_000;
/// The diff stops refining after this time. Its result is still correct, only coarser.
const DIFF_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason why two changes cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeConflict {
    #[error("both sides changed it, and it is not text")]
    Binary,
    #[error("both sides changed it, and it is too long to merge")]
    TooLong,
    /// Both sides changed the same lines or adjacent lines; the line number is in the base.
    #[error("both sides changed it around line {0}")]
    Lines(usize),
}

/// Applies both changes to `base`. Overlapping or adjacent changes conflict, unless they are equal.
pub fn three_way(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<u8>, MergeConflict> {
    if ours == base || ours == theirs {
        return Ok(theirs.to_vec());
    }
    if theirs == base {
        return Ok(ours.to_vec());
    }
    if [base, ours, theirs]
        .iter()
        .any(|text| memchr::memchr(0, text).is_some())
    {
        return Err(MergeConflict::Binary);
    }
    let sides = [lines(ours), lines(theirs)];
    let base = lines(base);
    if base.len().max(sides[0].len()).max(sides[1].len()) > MAX_LINES {
        return Err(MergeConflict::TooLong);
    }
    let merged = merge(
        &base,
        &sides,
        [&hunks(&base, &sides[0]), &hunks(&base, &sides[1])],
    )?;
    // A line without a newline is only possible at the end.
    let open = merged
        .iter()
        .rev()
        .skip(1)
        .any(|line| !line.ends_with(b"\n"));
    if open {
        Err(MergeConflict::Lines(base.len()))
    } else {
        Ok(merged.concat())
    }
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Lines of the base that one side replaced, and the lines that replace them.
#[derive(Debug, Clone)]
struct Hunk {
    base: Range<usize>,
    side: Range<usize>,
}

fn hunks(base: &[&[u8]], side: &[&[u8]]) -> Vec<Hunk> {
    let ops = diff(base, side, Some(DIFF_TIMEOUT));
    let mut hunks: Vec<Hunk> = Vec::new();
    for op in ops.iter().filter(|op| op.tag() != DiffTag::Equal) {
        match hunks.last_mut() {
            Some(last)
                if last.base.end == op.old_range().start
                    && last.side.end == op.new_range().start =>
            {
                (last.base.end, last.side.end) = (op.old_range().end, op.new_range().end);
            }
            _ => hunks.push(Hunk {
                base: op.old_range(),
                side: op.new_range(),
            }),
        }
    }
    hunks
}

fn merge<'a>(
    base: &[&'a [u8]],
    sides: &[Vec<&'a [u8]>; 2],
    hunks: [&[Hunk]; 2],
) -> Result<Vec<&'a [u8]>, MergeConflict> {
    let mut merged: Vec<&[u8]> = Vec::new();
    let mut rest = hunks;
    let mut at = 0;
    while let Some(start) = rest
        .iter()
        .filter_map(|hunks| hunks.first())
        .map(|hunk| hunk.base.start)
        .min()
    {
        let (end, taken) = overlapping_region(start, rest);
        merged.extend(base.get(at..start).unwrap_or_default());
        let mut changed = [0, 1].map(|side| {
            let (mine, _) = rest[side].split_at(taken[side]);
            replaced(mine, start..end).map(|range| sides[side].get(range).unwrap_or_default())
        });
        match changed {
            [Some(ours), Some(theirs)] if ours != theirs => {
                return Err(MergeConflict::Lines(start + 1));
            }
            _ => merged.extend(
                changed
                    .iter_mut()
                    .find_map(Option::take)
                    .unwrap_or_default(),
            ),
        }
        rest = [0, 1].map(|side| rest[side].split_at(taken[side]).1);
        at = end;
    }
    merged.extend(base.get(at..).unwrap_or_default());
    Ok(merged)
}

/// The end of the region that begins at `start` and includes every hunk that touches it, and the number of hunks of
/// each side in it.
fn overlapping_region(start: usize, rest: [&[Hunk]; 2]) -> (usize, [usize; 2]) {
    let (mut end, mut taken) = (start, [0, 0]);
    loop {
        let before = taken;
        for side in [0, 1] {
            while let Some(hunk) = rest[side]
                .get(taken[side])
                .filter(|hunk| hunk.base.start <= end)
            {
                end = end.max(hunk.base.end);
                taken[side] += 1;
            }
        }
        if taken == before {
            return (end, taken);
        }
    }
}

/// The lines of a side that replace a region of the base; `None` if the side did not change it.
fn replaced(hunks: &[Hunk], region: Range<usize>) -> Option<Range<usize>> {
    let (first, last) = (hunks.first()?, hunks.last()?);
    let start = first
        .side
        .start
        .checked_sub(first.base.start.checked_sub(region.start)?)?;
    Some(start..last.side.end + region.end.checked_sub(last.base.end)?)
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
