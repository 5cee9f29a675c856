//! Search and replace blocks over one text: several of them, one after another, all or none.
//!
//! A block means whole lines, may leave lines out with `...`, and may name the line it is at. What it leaves open is
//! refused; it is never made at two places, and the same block is never made twice.

use super::matching::{self, Edit, EditError, Place, find_lines, splice};
use super::text::lines;

/// One block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Block {
    /// The text to find.
    pub search: String,
    /// The text to put in its place.
    pub replace: String,
    /// The line (from 1) it is said to be at, in the text before all blocks.
    pub line: Option<usize>,
    /// Any stretch of the text is meant, not whole lines.
    pub inline: bool,
    /// Every place is meant. Only for a stretch of text.
    pub all: bool,
    /// How many places there must be. Only for a stretch of text.
    pub times: Option<usize>,
}

/// The text after all blocks. The error says which block (from 0) was not made.
pub fn apply(content: &str, blocks: &[Block]) -> Result<String, (usize, EditError)> {
    let mut text = content.to_owned();
    // Where lines were won or lost, so that the line a later block names is still that line.
    let mut moved: Vec<(usize, isize)> = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        if let Some(first) = blocks[..index].iter().position(|other| other == block) {
            return Err((index, EditError::Repeated { first: first + 1 }));
        }
        let line = block.line.map(|line| {
            let by: isize = moved
                .iter()
                .filter(|(at, _)| *at < line)
                .map(|(_, by)| by)
                .sum();
            line.saturating_add_signed(by)
        });
        let (after, at) = one(&text, block, line).map_err(|err| (index, err))?;
        let grown = isize::try_from(lines(&after).len()).unwrap_or(0)
            - isize::try_from(lines(&text).len()).unwrap_or(0);
        moved.push((at, grown));
        text = after;
    }
    Ok(text)
}

/// The text after one block, and the line (from 1) it was made at.
fn one(text: &str, block: &Block, line: Option<usize>) -> Result<(String, usize), EditError> {
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

/// The stretches a block replaces: one, or one for each part between its `...` lines.
fn places(text: &str, block: &Block, line: Option<usize>) -> Result<Vec<Place>, EditError> {
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
    if let Some(parts) = elided(&block.search, &block.replace)? {
        return parts_in_order(&parts, |search, replace| find(search, replace, None));
    }
    if let Some((search, first)) = without_numbers(&block.search) {
        let replace =
            without_numbers(&block.replace).map_or_else(|| block.replace.clone(), |(text, _)| text);
        return Ok(vec![find(&search, &replace, line.or(Some(first)))?]);
    }
    // The space between a marker and the text is often taken for a line of the text.
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
    find: impl Fn(&str, &str) -> Result<Place, EditError>,
) -> Result<Vec<Place>, EditError> {
    let mut places: Vec<Place> = Vec::with_capacity(parts.len());
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

/// Both texts cut at their `...` lines, part by part, if the search text has such lines.
fn elided(search: &str, replace: &str) -> Result<Option<Vec<(String, String)>>, EditError> {
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

/// The text without the `12 | ` in front of each line, and the first number, if the numbers count the lines.
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
