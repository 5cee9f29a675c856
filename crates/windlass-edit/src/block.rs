//! Applies several search/replace blocks to one text, in order; either all are applied or none.
//!
//! A block matches whole lines, may skip lines with `...`, and may name the line where it applies. An ambiguous block
//! is refused: a block is never applied at two places, and the same block is never applied twice.

use super::matching::{self, Edit, EditError, Replacement, find_lines, splice};
use super::text::lines;

/// One search/replace block of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EditBlock {
    /// The text to find.
    pub search: String,
    /// The text to put in its place.
    pub replace: String,
    /// The line (from 1) where the block claims to apply, counted in the text before any block is applied.
    pub line: Option<usize>,
    /// `search` may match anywhere in the text, not only whole lines.
    pub inline: bool,
    /// Replace every occurrence. Requires `inline`.
    pub all: bool,
    /// The required number of occurrences. Requires `inline`.
    pub times: Option<usize>,
}

/// Applies all blocks and returns the new text. The error contains the index (from 0) of the block that failed.
pub fn apply(content: &str, blocks: &[EditBlock]) -> Result<String, (usize, EditError)> {
    let mut text = content.to_owned();
    // The lines that each applied block added or removed, with its position: a later block names its line by its number
    // in the original text.
    let mut shifts: Vec<(usize, isize)> = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        if let Some(first) = blocks[..index].iter().position(|other| other == block) {
            return Err((index, EditError::Repeated { first: first + 1 }));
        }
        let line = block.line.map(|line| {
            let by: isize = shifts
                .iter()
                .filter(|(at, _)| *at < line)
                .map(|(_, by)| by)
                .sum();
            line.saturating_add_signed(by)
        });
        let (after, at) = apply_block(&text, block, line).map_err(|err| (index, err))?;
        let grown = isize::try_from(lines(&after).len()).unwrap_or(0)
            - isize::try_from(lines(&text).len()).unwrap_or(0);
        shifts.push((at, grown));
        text = after;
    }
    Ok(text)
}

/// Returns the text after one block, and the line (from 1) at which the block was applied.
fn apply_block(
    text: &str,
    block: &EditBlock,
    line: Option<usize>,
) -> Result<(String, usize), EditError> {
    if block.inline {
        let all = block.all || block.times.is_some_and(|times| times > 1);
        let applied = matching::apply(
            text,
            &Edit {
                old: &block.search,
                new: &block.replace,
                replace_all: all,
            },
        )?;
        if let Some(times) = block.times.filter(|times| *times != applied.count) {
            return Err(EditError::Count {
                found: applied.count,
                times,
            });
        }
        return Ok((applied.content, applied.lines.first().copied().unwrap_or(1)));
    }
    if block.search == block.replace {
        return Err(EditError::SameText);
    }
    let places = places(text, block, line)?;
    let after = splice(text, &places)?;
    let first = places.first().map_or(0, |place| place.start);
    Ok((after, text[..first].matches('\n').count() + 1))
}

/// The replacements of a block: one, or one for each part between its `...` lines.
fn places(
    text: &str,
    block: &EditBlock,
    line: Option<usize>,
) -> Result<Vec<Replacement>, EditError> {
    let find = |search: &str, replace: &str, line: Option<usize>| {
        find_lines(
            text,
            &Edit {
                old: search,
                new: replace,
                replace_all: false,
            },
            line,
        )
    };
    let missing = match find(&block.search, &block.replace, line) {
        Ok(place) => return Ok(vec![place]),
        Err(err @ EditError::Missing { .. }) => err,
        Err(err) => return Err(err),
    };
    if let Some(parts) = split_at_ellipses(&block.search, &block.replace)? {
        return parts_in_order(&parts, |search, replace| find(search, replace, None));
    }
    if let Some((search, first)) = without_numbers(&block.search) {
        let replace =
            without_numbers(&block.replace).map_or_else(|| block.replace.clone(), |(text, _)| text);
        return Ok(vec![find(&search, &replace, line.or(Some(first)))?]);
    }
    // Models often leave a blank line between the marker and the text that is not part of the text.
    match block
        .search
        .strip_prefix('\n')
        .filter(|rest| !rest.trim().is_empty())
    {
        Some(search) => {
            let replace = block.replace.strip_prefix('\n').unwrap_or(&block.replace);
            find(search, replace, line)
                .map(|place| vec![place])
                .map_err(|_| missing)
        }
        None => Err(missing),
    }
}

fn parts_in_order(
    parts: &[(String, String)],
    find: impl Fn(&str, &str) -> Result<Replacement, EditError>,
) -> Result<Vec<Replacement>, EditError> {
    let mut places: Vec<Replacement> = Vec::with_capacity(parts.len());
    for (search, replace) in parts
        .iter()
        .filter(|(search, replace)| !(search.is_empty() && replace.is_empty()))
    {
        if search.is_empty() {
            return Err(EditError::Elided);
        }
        let place = find(search, replace)?;
        if places.last().is_some_and(|last| place.start < last.end) {
            return Err(EditError::Elided);
        }
        places.push(place);
    }
    Ok(places)
}

/// Splits both texts at their `...` lines and pairs the parts. Returns `None` if the search text has no such line.
fn split_at_ellipses(
    search: &str,
    replace: &str,
) -> Result<Option<Vec<(String, String)>>, EditError> {
    let cut = |text: &str| -> Vec<String> {
        let mut parts = vec![String::new()];
        for line in text.split_inclusive('\n') {
            if line.trim() == "..." {
                parts.push(String::new());
            } else if let Some(last) = parts.last_mut() {
                last.push_str(line);
            }
        }
        parts
    };
    let (search, replace) = (cut(search), cut(replace));
    if search.len() == 1 {
        return Ok(None);
    }
    if search.len() != replace.len() {
        return Err(EditError::Elided);
    }
    Ok(Some(search.into_iter().zip(replace).collect()))
}

/// Removes `12 | ` from the start of each line and returns the first number too. Returns `None` if a line has no such
/// number or the numbers are not consecutive.
fn without_numbers(text: &str) -> Option<(String, usize)> {
    let mut out = String::with_capacity(text.len());
    let mut first = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (number, rest) = line.split_once('|')?;
        let number: usize = number.trim().parse().ok()?;
        if first.get_or_insert(number).checked_add(index) != Some(number) {
            return None;
        }
        out.push_str(rest.strip_prefix(' ').unwrap_or(rest));
    }
    Some((out, first?))
}
