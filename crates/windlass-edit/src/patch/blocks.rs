//! Parses search/replace blocks: a path, `<<<<<<< SEARCH`, the old lines, `=======`, the new lines, `>>>>>>> REPLACE`.
//! A path applies to all blocks up to the next path.
//!
//! If a marker could as well be a line of text, the block is refused, and the message explains the escape.

use super::names::{self, FoundName};
use super::{FileOp, FilePatch, PatchBody, PatchError, push_block};
use crate::block::EditBlock;

/// Whether a block opens on this line.
pub(super) fn opens(line: &str) -> bool {
    opening(line).is_some()
}

/// The two styles of markers: `<<<<<<< SEARCH` … `>>>>>>> REPLACE` and `------- SEARCH` … `+++++++ REPLACE`. In the style
/// with dashes, the divider must not have spaces around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkerStyle {
    Conflict,
    Dashes,
}

pub(super) fn parse(
    lines: &[&str],
    known: &[&str],
    notes: &mut Vec<String>,
) -> Result<Vec<FilePatch>, PatchError> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut current: Option<String> = None;
    let (mut at, mut before) = (0, 0);
    while at < lines.len() {
        let Some(style) = opening(lines[at]) else {
            if closes(lines[at], MarkerStyle::Conflict) || closes(lines[at], MarkerStyle::Dashes) {
                return Err(PatchError::syntax(
                    at,
                    "a block ends here that has not begun; each block starts with `<<<<<<< SEARCH`",
                ));
            }
            at += 1;
            continue;
        };
        let name = name_above(&lines[before..at], current.as_deref(), known).ok_or_else(|| {
            PatchError::syntax(
                at,
                "no file name before this block; put the path on the line above it",
            )
        })?;
        let (block, end) = body(lines, at, style)?;
        let path = if block.search.trim().is_empty() {
            super::paths::check(&name)?
        } else {
            names::resolve(&name, known)?
        };
        if block.search == block.replace && !block.search.trim().is_empty() {
            notes.push(format!(
                "the block for {path} at line {} of the patch has the same old and new text; it was skipped",
                at + 1
            ));
        } else {
            push(&mut files, path, block);
        }
        current = Some(name);
        at = end + 1;
        before = at;
    }
    if files.is_empty() && !notes.is_empty() {
        let why = "the old and the new text of every block are the same; nothing would change";
        return Err(PatchError::syntax(0, why));
    }
    if files.is_empty() {
        return Err(PatchError::syntax(
            0,
            "no block found; each starts with a path and `<<<<<<< SEARCH`",
        ));
    }
    Ok(files)
}

fn push(files: &mut Vec<FilePatch>, path: String, block: EditBlock) {
    if block.search.trim().is_empty() {
        files.push(FilePatch {
            op: FileOp::Create { path },
            body: PatchBody::Whole(block.replace),
        });
    } else {
        push_block(files, path, block);
    }
}

/// The file name for a block. `between` are the lines since the previous block, whose name is `current`. The name is on
/// the last line that is not a fence, or after a fence; otherwise the block is for the same file as the previous one.
fn name_above(between: &[&str], current: Option<&str>, known: &[&str]) -> Option<String> {
    let mut maybe = None;
    for line in between.iter().rev() {
        if line.trim().is_empty() {
            continue;
        }
        if let Some(name) = names::fence(line).and_then(|(_, _, info)| names::on_fence(info, known))
        {
            return Some(name);
        }
        if names::is_delimiter(line) {
            continue;
        }
        match names::on_line(line, known) {
            Some(FoundName::Sure(name)) => return Some(name),
            Some(FoundName::Maybe(name)) => maybe = Some(name),
            None => {}
        }
        break;
    }
    let other = names::mentioned(between, known)
        .into_iter()
        .any(|name| Some(name) != current);
    match current {
        // If the prose mentions another file, it is unclear which one the block is for.
        Some(current) if !other => Some(current.to_owned()),
        Some(_) => None,
        None if maybe.is_some() => maybe,
        None => {
            let bare = between
                .iter()
                .all(|line| line.trim().is_empty() || names::is_delimiter(line));
            match known {
                [only] if bare => Some((*only).to_owned()),
                _ => None,
            }
        }
    }
}

/// Parses the block that opens at `start`. Returns also the line of its end marker.
fn body(
    lines: &[&str],
    start: usize,
    style: MarkerStyle,
) -> Result<(EditBlock, usize), PatchError> {
    let inside = start + 1..lines.len();
    let end = inside
        .clone()
        .find(|&at| closes(lines[at], style))
        .ok_or_else(|| {
            PatchError::syntax(
                start,
                "the block has no `>>>>>>> REPLACE`, so it may be cut off; send it whole",
            )
        })?;
    if let Some(second) = (start + 1..end).find(|&at| opens(lines[at])) {
        return Err(PatchError::syntax(
            second,
            "a block begins inside another; if this line is text, put `\\` before it",
        ));
    }
    let divider = divider(lines, start, end, style)?;
    let (line, text) = position(lines, start + 1, divider);
    let names_line = |at: &usize| {
        [":start_line:", ":end_line:"]
            .iter()
            .any(|label| number(lines[*at], label).is_some())
    };
    if let Some(at) = (divider + 1..end).find(names_line) {
        return Err(PatchError::syntax(
            at,
            "the line number of a block belongs above its old text; if this line is text, put `\\` before it",
        ));
    }
    let joined = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| format!("{}\n", unescaped(line)))
            .collect::<String>()
    };
    let (search, replace) = (
        joined(&lines[text..divider]),
        joined(&lines[divider + 1..end]),
    );
    Ok((
        EditBlock {
            search,
            replace,
            line,
            ..EditBlock::default()
        },
        end,
    ))
}

/// The line between old and new text. A line of five to nine `=` is accepted only if there is no exact marker.
fn divider(
    lines: &[&str],
    start: usize,
    end: usize,
    style: MarkerStyle,
) -> Result<usize, PatchError> {
    let looks = |at: &usize, exact: bool| {
        let line = match style {
            MarkerStyle::Conflict => lines[*at].trim(),
            MarkerStyle::Dashes => lines[*at],
        };
        let long = if exact {
            line.len() == 7
        } else {
            (5..=9).contains(&line.len())
        };
        long && line.bytes().all(|byte| byte == b'=')
    };
    let with =
        |exact: bool| -> Vec<usize> { (start + 1..end).filter(|at| looks(at, exact)).collect() };
    let mut found = with(true);
    if found.is_empty() && style == MarkerStyle::Conflict {
        found = with(false);
    }
    match found[..] {
        [only] => Ok(only),
        [] => Err(PatchError::syntax(
            end,
            "the block has no `=======` between the old and the new text",
        )),
        [_, second, ..] => Err(PatchError::syntax(
            second,
            "the block has a second `=======`; if one of them is text, write it as `\\=======`",
        )),
    }
}

/// Parses `:start_line:12`, optionally `:end_line:14` and `-------`. Returns the line number and the first line of text.
fn position(lines: &[&str], start: usize, divider: usize) -> (Option<usize>, usize) {
    let mut at = start;
    let mut line = None;
    if at < divider
        && let Some(found) = number(lines[at], ":start_line:")
    {
        line = Some(found).filter(|found| *found > 0);
        at += 1;
        if at < divider && number(lines[at], ":end_line:").is_some() {
            at += 1;
        }
        if at < divider && lines[at].trim() == "-------" {
            at += 1;
        }
    }
    (line, at)
}

fn number(line: &str, label: &str) -> Option<usize> {
    line.trim()
        .strip_prefix(label)?
        .trim()
        .trim_matches(['[', ']'])
        .trim()
        .parse()
        .ok()
}

/// Removes the `\` before a line of text that looks like a marker.
fn unescaped(line: &str) -> &str {
    let marks = [
        "<<<<<<<",
        "=======",
        ">>>>>>>",
        "-------",
        "+++++++",
        ":start_line:",
        ":end_line:",
    ];
    line.strip_prefix('\\')
        .filter(|rest| marks.iter().any(|mark| rest.starts_with(mark)))
        .unwrap_or(line)
}

fn opening(line: &str) -> Option<MarkerStyle> {
    let line = line.trim();
    for (mark, style) in [(b'<', MarkerStyle::Conflict), (b'-', MarkerStyle::Dashes)] {
        let count = line.bytes().take_while(|byte| *byte == mark).count();
        let word = line[count..].strip_suffix('>').unwrap_or(&line[count..]);
        if (5..=9).contains(&count) && matches!(word, " SEARCH" | " ORIGINAL") {
            return Some(style);
        }
    }
    None
}

fn closes(line: &str, style: MarkerStyle) -> bool {
    let mark = if style == MarkerStyle::Conflict {
        b'>'
    } else {
        b'+'
    };
    let line = line.trim();
    let count = line.bytes().take_while(|byte| *byte == mark).count();
    (5..=9).contains(&count) && matches!(&line[count..], " REPLACE" | " UPDATED")
}
