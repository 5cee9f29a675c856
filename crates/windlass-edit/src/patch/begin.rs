//! Parses the `*** Begin Patch` format: add, update, move and delete sections with `@@` headers.
//!
//! Markers may have spaces around them where they cannot be mistaken for text.

use super::{FileOp, FilePatch, PatchBody, PatchError, PatchHunk, paths};

pub(super) const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";
const ADD: &str = "*** Add File:";
const UPDATE: &str = "*** Update File:";
const DELETE: &str = "*** Delete File:";
const MOVE: &str = "*** Move to:";
const ENVIRONMENT: &str = "*** Environment ID:";

/// Parses the patch that starts at line `start`. Returns also the line of its end marker.
pub(super) fn parse(lines: &[&str], start: usize) -> Result<(Vec<FilePatch>, usize), PatchError> {
    let end = end_of(lines, start)?;
    let mut reader = BeginPatchReader {
        lines: &lines[..end],
        at: start + 1,
    };
    let mut files = Vec::new();
    while let Some(line) = reader.peek() {
        let marker = line.trim();
        if marker.is_empty() || marker.starts_with(ENVIRONMENT) {
            reader.at += 1;
        } else if let Some(path) = marker.strip_prefix(ADD) {
            files.push(reader.add(path)?);
        } else if let Some(path) = marker.strip_prefix(UPDATE) {
            files.push(reader.update(path)?);
        } else if let Some(path) = marker.strip_prefix(DELETE) {
            reader.at += 1;
            files.push(FilePatch {
                op: FileOp::Delete {
                    path: path_of(path)?,
                },
                body: PatchBody::Hunks(Vec::new()),
            });
        } else {
            let message = format!(
                "{line:?} is not a section; expected `{ADD} path`, `{UPDATE} path` or `{DELETE} path`"
            );
            return Err(reader.error(message));
        }
    }
    Ok((files, end))
}

/// Whether the text is only the content of an update section: it starts with `@@` and contains no section header.
pub(super) fn is_bare(lines: &[&str]) -> bool {
    let first = lines.iter().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| line.starts_with("@@")) && !lines.iter().any(|line| section(line))
}

/// Parses the content of an update section without its header, as an update of `path`.
pub(super) fn parse_bare(lines: &[&str], path: &str) -> Result<FilePatch, PatchError> {
    let mut reader = BeginPatchReader { lines, at: 0 };
    let mut hunks = Vec::new();
    while let Some(line) = reader.peek() {
        if hunks.is_empty() && line.trim().is_empty() {
            reader.at += 1;
            continue;
        }
        hunks.push(reader.hunk()?);
    }
    let op = FileOp::Update {
        path: path_of(path)?,
        move_to: None,
    };
    Ok(FilePatch {
        op,
        body: PatchBody::Hunks(hunks),
    })
}

/// The line of the end marker: the first one without leading spaces, else the last one with them.
fn end_of(lines: &[&str], start: usize) -> Result<usize, PatchError> {
    let after = start + 1..lines.len();
    let plain = after.clone().find(|&at| lines[at].trim_end() == END);
    plain
        .or_else(|| after.rev().find(|&at| lines[at].trim() == END))
        .ok_or_else(|| PatchError::Syntax {
            line: lines.len(),
            message: format!("the patch has no `{END}`, so it may be cut off; send it whole"),
        })
}

fn path_of(text: &str) -> Result<String, PatchError> {
    paths::check(text.trim())
}

struct BeginPatchReader<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> BeginPatchReader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn error(&self, message: String) -> PatchError {
        PatchError::syntax(self.at, message)
    }

    fn add(&mut self, path: &str) -> Result<FilePatch, PatchError> {
        let path = path_of(path)?;
        self.at += 1;
        let mut hunk = PatchHunk::default();
        while let Some(line) = self.peek() {
            if let Some(text) = line.strip_prefix('+') {
                hunk.push(b'+', text);
            } else if line.trim().starts_with("*** ") || line.trim().is_empty() {
                break;
            } else {
                return Err(self.error(format!(
                    "every line of an added file starts with `+`, but this is {line:?}"
                )));
            }
            self.at += 1;
        }
        Ok(FilePatch {
            op: FileOp::Create { path },
            body: PatchBody::Hunks(vec![hunk]),
        })
    }

    fn update(&mut self, path: &str) -> Result<FilePatch, PatchError> {
        let path = path_of(path)?;
        self.at += 1;
        let mut move_to = None;
        if let Some(to) = self.peek().and_then(|line| line.trim().strip_prefix(MOVE)) {
            move_to = Some(path_of(to)?);
            self.at += 1;
        }
        let mut hunks = Vec::new();
        while let Some(line) = self.peek() {
            if section(line) {
                break;
            }
            if hunks.is_empty() && line.is_empty() {
                self.at += 1;
                continue;
            }
            hunks.push(self.hunk()?);
        }
        if hunks.is_empty() && move_to.is_none() {
            return Err(self.error(format!(
                "the update of {path} has no changes; add `@@` and lines that start with ` `, `-` or `+`"
            )));
        }
        Ok(FilePatch {
            op: FileOp::Update { path, move_to },
            body: PatchBody::Hunks(hunks),
        })
    }

    fn hunk(&mut self) -> Result<PatchHunk, PatchError> {
        let mut hunk = PatchHunk::default();
        while let Some(line) = self.peek().filter(|line| line.starts_with("@@")) {
            let header = line.trim_start_matches('@').trim_end_matches('@').trim();
            // Headers copied from a unified diff contain line numbers, which are not reliable here.
            let header = match header
                .strip_prefix('-')
                .and_then(|rest| rest.split_once(" @@"))
            {
                Some((_, section)) => section.trim(),
                None if looks_like_range(header) => "",
                None => header,
            };
            if !header.is_empty() {
                hunk.headers.push(header.to_owned());
            }
            self.at += 1;
        }
        let mut bare = 0;
        while let Some(line) = self.peek() {
            if line.trim_end() == END_OF_FILE {
                hunk.at_end = true;
                self.at += 1;
                break;
            }
            if section(line) || line.starts_with("@@") {
                break;
            }
            bare = if line.is_empty() { bare + 1 } else { 0 };
            match line.bytes().next() {
                Some(prefix @ (b' ' | b'-' | b'+')) => hunk.push(prefix, &line[1..]),
                // Editors and models strip the one space of a blank line.
                None => hunk.push(b' ', ""),
                Some(b'\\') => {}
                Some(_) => {
                    return Err(self.error(format!(
                        "lines of an update start with ` `, `-`, `+` or `@@`, but this is {line:?}"
                    )));
                }
            }
            self.at += 1;
        }
        if !hunk.at_end {
            // Blank lines between sections are not part of the text.
            hunk.lines.truncate(hunk.lines.len() - bare);
        }
        if !hunk.changes() {
            return Err(self.error("a hunk has no line that starts with `-` or `+`".into()));
        }
        Ok(hunk)
    }
}

fn looks_like_range(header: &str) -> bool {
    header.starts_with('-')
        && header.contains('+')
        && header.bytes().all(|byte| b"-+, 0123456789".contains(&byte))
}

/// Whether a section starts at this line. A marker with leading spaces does not start one: it may be a context line.
fn section(line: &str) -> bool {
    line.starts_with("*** ") && line.trim_end() != END_OF_FILE
}
