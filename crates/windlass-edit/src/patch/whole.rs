//! Parses whole files: a path and a fenced block with the new text, any number of times, or a JSON object of paths and
//! texts.
//!
//! A block without a path is taken for an example, unless the text above it names exactly one known file. A block that
//! is not closed is refused, because the rest of the file is missing.

use serde_json::Value;

use super::names::{self, FoundName};
use super::{FileOp, FilePatch, PatchBody, PatchError, patch_lines};

pub(super) fn parse(text: &str, known: &[&str]) -> Result<Vec<FilePatch>, PatchError> {
    let found = match serde_json::from_str::<Value>(text.trim()) {
        Ok(Value::Object(files)) => files
            .into_iter()
            .map(|(path, text)| match text {
                Value::String(text) => Ok((path, text)),
                _ => Err(PatchError::syntax(
                    0,
                    format!("the new text of {path} is not a string"),
                )),
            })
            .collect::<Result<Vec<_>, _>>()?,
        _ => fenced(&patch_lines(text), known)?,
    };
    let mut files: Vec<FilePatch> = Vec::with_capacity(found.len());
    for (name, text) in found {
        let path = names::resolve(&name, known)?;
        if files
            .iter()
            .any(|file| file.op == FileOp::Write { path: path.clone() })
        {
            let message = "the file is written twice; give its text once".to_owned();
            return Err(PatchError::Forbidden { path, message });
        }
        files.push(FilePatch {
            op: FileOp::Write { path },
            body: PatchBody::Whole(text),
        });
    }
    Ok(files)
}

fn fenced(lines: &[&str], known: &[&str]) -> Result<Vec<(String, String)>, PatchError> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut unnamed: Vec<String> = Vec::new();
    let mut unsure = None;
    let (mut at, mut before) = (0, 0);
    while at < lines.len() {
        let Some(fence) = Fence::opening(lines[at]) else {
            at += 1;
            continue;
        };
        let end = fence.end(lines, at).ok_or_else(|| {
            PatchError::syntax(
                at,
                "this block is not closed, so the file may be cut off; send it whole",
            )
        })?;
        let text: String = lines[at + 1..end]
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        match name_of(&lines[before..at], lines[at], known) {
            Some(FoundName::Sure(name)) => found.push((name, text)),
            Some(FoundName::Maybe(name)) => found.push((name, text)),
            None if names::mentioned(&lines[before..at], known).len() > 1 => unsure = Some(at),
            None => unnamed.push(text),
        }
        at = end + 1;
        before = at;
    }
    if let Some(at) = unsure {
        return Err(PatchError::syntax(
            at,
            "the text before this block names several files; put its path on the line above",
        ));
    }
    // A single block without any text before it is the new text of the only known file.
    let bare = lines
        .iter()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| Fence::opening(line).is_some());
    match (&found[..], known) {
        ([], [only]) if unnamed.len() == 1 && bare => {
            Ok(vec![((*only).to_owned(), unnamed.remove(0))])
        }
        ([], _) => Err(PatchError::syntax(
            0,
            "no file found; put each path on a line and the whole text in a fenced block below it",
        )),
        _ => Ok(found),
    }
}

/// The path of a block: on its fence, on the line above it (blank lines are skipped), else the only known file that the
/// prose mentions.
fn name_of(between: &[&str], opening: &str, known: &[&str]) -> Option<FoundName> {
    if let Some((_, _, info)) = names::fence(opening)
        && let Some(name) = names::on_fence(info, known)
    {
        return Some(FoundName::Sure(name));
    }
    let above = between.iter().rev().find(|line| !line.trim().is_empty());
    if let Some(FoundName::Sure(name)) = above.and_then(|line| names::on_line(line, known)) {
        return Some(FoundName::Sure(name));
    }
    // A single word is a path only directly above its block.
    if let Some(name @ FoundName::Maybe(_)) = between
        .last()
        .filter(|line| !line.ends_with(':'))
        .and_then(|line| names::on_line(line, known))
    {
        return Some(name);
    }
    match names::mentioned(between, known)[..] {
        [only] => Some(FoundName::Sure(only.to_owned())),
        _ => None,
    }
}

/// The delimiter of a block: backticks or tildes, or a tag on its own line.
enum Fence {
    Marks { mark: char, count: usize },
    Tag(&'static str),
}

impl Fence {
    fn opening(line: &str) -> Option<Self> {
        if let Some((_, closing)) = names::TAGS
            .iter()
            .find(|(opening, _)| line.trim() == *opening)
        {
            return Some(Self::Tag(closing));
        }
        names::fence(line).map(|(mark, count, _)| Self::Marks { mark, count })
    }

    /// The line that closes the block. A fence with a language inside the block opens a nested one, as in a Markdown file.
    fn end(&self, lines: &[&str], start: usize) -> Option<usize> {
        let mut depth = 1;
        for (at, line) in lines.iter().enumerate().skip(start + 1) {
            match self {
                Self::Tag(closing) if line.trim() == *closing => return Some(at),
                Self::Tag(_) => {}
                Self::Marks { mark, count } => match names::fence(line) {
                    Some((found, long, info))
                        if found == *mark && long == *count && !info.is_empty() =>
                    {
                        depth += 1
                    }
                    Some((found, long, "")) if found == *mark && long >= *count => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => {}
                },
            }
        }
        None
    }
}
