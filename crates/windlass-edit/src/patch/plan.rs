//! Computes the new content of every file from a patch and the current files.
//!
//! Everything is computed before anything is returned, so a caller gets either the whole plan or an error.

use std::collections::HashMap;

use super::locate::{HunkPlace, locate, old_lines};
use super::{FileOp, HunkLine, HunkProblem, Patch, PatchBody, PatchError, PatchHunk};
use crate::block;
use crate::reindent::reindent;
use crate::text::{
    DecodedText, Encoding, LineEnding, TextError, TextLine, ending_for, lines, push_lines, texts,
    with_endings,
};

/// The current state of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchedPath {
    /// A file with these bytes.
    File(Vec<u8>),
    /// The path does not exist.
    Absent,
    /// The path cannot be patched, with the reason.
    Unusable(String),
}

/// The result of a patch over all its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchPlan {
    /// One entry per file that changes, in the order of the patch.
    pub changes: Vec<PatchChange>,
    /// Mistakes in the patch that the parser tolerated, to be shown to the author of the patch.
    pub notes: Vec<String>,
}

/// The change of one file, with its bytes before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchChange {
    /// A new file is created.
    Create {
        /// The path of the new file.
        path: String,
        /// The content of the new file.
        after: Vec<u8>,
    },
    /// The content of an existing file changes.
    Modify {
        /// The path of the file.
        path: String,
        /// The content before the change.
        before: Vec<u8>,
        /// The content after the change.
        after: Vec<u8>,
    },
    /// The file is deleted.
    Delete {
        /// The path of the file.
        path: String,
        /// The content before the deletion.
        before: Vec<u8>,
    },
    /// The file is renamed, and its content may change too.
    Move {
        /// The path before the change.
        from: String,
        /// The path after the change.
        to: String,
        /// The content before the change.
        before: Vec<u8>,
        /// The content after the change.
        after: Vec<u8>,
    },
}

pub(super) fn plan(
    patch: &Patch,
    read: impl FnMut(&str) -> PatchedPath,
) -> Result<PatchPlan, PatchError> {
    let mut tree = PatchedTree {
        read,
        order: Vec::new(),
        files: HashMap::new(),
    };
    for file in &patch.files {
        match &file.op {
            FileOp::Create { path } => tree.create(path, &file.body)?,
            FileOp::Write { path } => tree.write(path, &file.body)?,
            FileOp::Delete { path } => tree.delete(path, &file.body)?,
            FileOp::Update { path, move_to } => {
                tree.update(path, move_to.as_deref(), &file.body)?
            }
        }
    }
    let changes = tree.changes();
    if changes.is_empty() {
        return Err(PatchError::Nothing);
    }
    Ok(PatchPlan {
        changes,
        notes: patch.notes.clone(),
    })
}

/// The files named by the patch: as they were at the start, and as they are after the sections applied so far.
struct PatchedTree<R> {
    read: R,
    order: Vec<String>,
    files: HashMap<String, FileState>,
}

struct FileState {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// The original path of `after`, if the file was moved here.
    from: Option<String>,
}

impl<R: FnMut(&str) -> PatchedPath> PatchedTree<R> {
    fn state(&mut self, path: &str) -> Result<&mut FileState, PatchError> {
        if !self.files.contains_key(path) {
            let before = match (self.read)(path) {
                PatchedPath::File(bytes) => Some(bytes),
                PatchedPath::Absent => None,
                PatchedPath::Unusable(message) => {
                    return Err(PatchError::Unusable {
                        path: path.to_owned(),
                        message,
                    });
                }
            };
            self.order.push(path.to_owned());
            self.files.insert(
                path.to_owned(),
                FileState {
                    after: before.clone(),
                    before,
                    from: None,
                },
            );
        }
        self.files.get_mut(path).ok_or_else(|| not_found(path))
    }

    fn existing(&mut self, path: &str) -> Result<Vec<u8>, PatchError> {
        let after = self.state(path)?.after.clone();
        after.ok_or_else(|| not_found(path))
    }

    fn create(&mut self, path: &str, body: &PatchBody) -> Result<(), PatchError> {
        let state = self.state(path)?;
        // A patch that shows old lines of an existing file changes that file, even if its header says "create".
        if let (PatchBody::Hunks(hunks), Some(before)) = (body, &state.after)
            && !hunks.is_empty()
            && hunks.iter().all(|hunk| !old_lines(hunk).is_empty())
        {
            state.after = Some(patched(path, before, hunks)?);
            return Ok(());
        }
        // An empty file may be overwritten: no content is lost.
        if state.after.as_ref().is_some_and(|bytes| !bytes.is_empty()) {
            return Err(PatchError::Exists {
                path: path.to_owned(),
            });
        }
        state.after = Some(new_text(path, body)?.into_bytes());
        Ok(())
    }

    fn write(&mut self, path: &str, body: &PatchBody) -> Result<(), PatchError> {
        let state = self.state(path)?;
        let text = new_text(path, body)?;
        let after = match &state.after {
            Some(before) => rewritten(path, before, &text)?,
            None => text.into_bytes(),
        };
        state.after = Some(after);
        Ok(())
    }

    fn delete(&mut self, path: &str, body: &PatchBody) -> Result<(), PatchError> {
        let before = self.existing(path)?;
        if let PatchBody::Hunks(hunks) = body
            && !hunks.is_empty()
        {
            // The hunks of a deletion contain the whole file. Applying them checks that it is the file the author saw.
            let left = patched(path, &before, hunks)?;
            if !DecodedText::decode(&left).is_ok_and(|text| text.content.is_empty()) {
                return Err(PatchError::hunk(
                    path,
                    hunks.len(),
                    HunkProblem::LeavesLines,
                ));
            }
        }
        let state = self.state(path)?;
        state.after = None;
        state.from = None;
        Ok(())
    }

    fn update(
        &mut self,
        path: &str,
        move_to: Option<&str>,
        body: &PatchBody,
    ) -> Result<(), PatchError> {
        // A diff that was not written by git marks a new file with `@@ -0,0` alone.
        if let PatchBody::Hunks(hunks) = body
            && move_to.is_none()
            && !hunks.is_empty()
            && hunks
                .iter()
                .all(|hunk| hunk.old_start == Some(0) && old_lines(hunk).is_empty())
            && self.state(path)?.after.is_none()
        {
            return self.create(path, body);
        }
        let after = updated(path, self.existing(path)?, body)?;
        let Some(to) = move_to.filter(|to| *to != path) else {
            self.state(path)?.after = Some(after);
            return Ok(());
        };
        if self.state(to)?.after.is_some() {
            return Err(PatchError::Exists {
                path: to.to_owned(),
            });
        }
        let source = self.state(path)?;
        source.after = None;
        let origin = source.from.take().unwrap_or_else(|| path.to_owned());
        let target = self.state(to)?;
        target.after = Some(after);
        target.from = Some(origin);
        Ok(())
    }

    /// The change of each file. A move is reported as one change only if its source does not exist afterwards.
    fn changes(self) -> Vec<PatchChange> {
        let moved_from: Vec<(String, String)> = self
            .order
            .iter()
            .filter_map(|to| {
                let state = self.files.get(to)?;
                let from = state.from.clone()?;
                let source = self.files.get(&from)?;
                let whole = state.before.is_none()
                    && state.after.is_some()
                    && source.before.is_some()
                    && source.after.is_none();
                whole.then(|| (from, to.clone()))
            })
            .collect();
        let mut files = self.files;
        let mut changes = Vec::new();
        for path in &self.order {
            if moved_from.iter().any(|(from, _)| from == path) {
                continue;
            }
            let source = moved_from
                .iter()
                .find(|(_, to)| to == path)
                .map(|(from, _)| from.clone());
            let moved = source.and_then(|from| {
                files
                    .remove(&from)
                    .and_then(|state| Some((from, state.before?)))
            });
            let Some(state) = files.remove(path) else {
                continue;
            };
            let path = path.clone();
            match (state.before, state.after, moved) {
                (None, Some(after), Some((from, before))) => changes.push(PatchChange::Move {
                    from,
                    to: path,
                    before,
                    after,
                }),
                (None, Some(after), None) => changes.push(PatchChange::Create { path, after }),
                (Some(before), Some(after), _) if before != after => {
                    changes.push(PatchChange::Modify {
                        path,
                        before,
                        after,
                    })
                }
                (Some(before), None, _) => changes.push(PatchChange::Delete { path, before }),
                _ => {}
            }
        }
        changes
    }
}

fn not_found(path: &str) -> PatchError {
    PatchError::NotFound {
        path: path.to_owned(),
    }
}

/// The content of a file after its update.
fn updated(path: &str, before: Vec<u8>, body: &PatchBody) -> Result<Vec<u8>, PatchError> {
    match body {
        PatchBody::Hunks(hunks) if hunks.is_empty() => Ok(before),
        PatchBody::Hunks(hunks) => patched(path, &before, hunks),
        PatchBody::Whole(text) => rewritten(path, &before, text),
        PatchBody::Blocks(blocks) => {
            let text = decoded(path, &before)?;
            let refuse = |(index, problem)| PatchError::Block {
                path: path.to_owned(),
                block: index + 1,
                problem,
            };
            encoded(
                path,
                &text,
                &block::apply(&text.content, blocks).map_err(refuse)?,
            )
        }
    }
}

/// The text of a file that is written as a whole.
fn new_text(path: &str, body: &PatchBody) -> Result<String, PatchError> {
    let refuse = |hunk| Err(PatchError::hunk(path, hunk, HunkProblem::OldLinesInNewFile));
    let hunks = match body {
        PatchBody::Whole(text) => return Ok(text.clone()),
        PatchBody::Blocks(_) => return refuse(1),
        PatchBody::Hunks(hunks) => hunks,
    };
    let mut text = String::new();
    for (index, hunk) in hunks.iter().enumerate() {
        for line in &hunk.lines {
            let HunkLine::Add(line) = line else {
                return refuse(index + 1);
            };
            text.push_str(line);
            text.push('\n');
        }
        if hunk.new_lacks_newline {
            text.pop();
        }
    }
    Ok(text)
}

/// The content of a file after its whole text is replaced. It keeps its encoding, and its line endings unless the new
/// text contains `\r`.
fn rewritten(path: &str, before: &[u8], text: &str) -> Result<Vec<u8>, PatchError> {
    let Ok(old) = DecodedText::decode(before) else {
        return Ok(text.as_bytes().to_vec());
    };
    let ending = ending_for(&[], &lines(&old.content));
    let text = if text.contains('\r') {
        text.to_owned()
    } else {
        with_endings(text, ending, true)
    };
    match old.encoding {
        // The file is written as UTF-8: a character that Latin-1 lacks may be the reason for the rewrite.
        Encoding::SingleByte => Ok(text.into_bytes()),
        _ => encoded(path, &old, &text),
    }
}

fn decoded(path: &str, bytes: &[u8]) -> Result<DecodedText, PatchError> {
    DecodedText::decode(bytes).map_err(|err| unusable(path, &err))
}

fn encoded(path: &str, text: &DecodedText, content: &str) -> Result<Vec<u8>, PatchError> {
    text.encode(content).map_err(|err| unusable(path, &err))
}

fn unusable(path: &str, err: &TextError) -> PatchError {
    PatchError::Unusable {
        path: path.to_owned(),
        message: err.to_string(),
    }
}

/// The content of a file after all hunks.
fn patched(path: &str, bytes: &[u8], hunks: &[PatchHunk]) -> Result<Vec<u8>, PatchError> {
    let text = decoded(path, bytes)?;
    let all = lines(&text.content);
    let (mut from, mut drift) = (0, 0);
    let mut places: Vec<(&PatchHunk, HunkPlace)> = Vec::with_capacity(hunks.len());
    for (index, hunk) in hunks.iter().enumerate() {
        let place = locate(&all, hunk, from, drift)
            .map_err(|problem| PatchError::hunk(path, index + 1, problem))?;
        if let Some(start) = hunk.old_start.filter(|_| place.count > 0) {
            drift = isize::try_from(place.first).unwrap_or(0)
                - isize::try_from(start.saturating_sub(1)).unwrap_or(0);
        }
        // A hunk that only appends to the end of the file does not restrict the place of the next hunk.
        if place.count > 0 || place.first < all.len() {
            from = place.first + place.count;
        }
        places.push((hunk, place));
    }
    places.sort_by_key(|(_, place)| place.first);
    let mut out = String::with_capacity(text.content.len());
    let mut done = 0;
    for (hunk, place) in places {
        push_lines(&mut out, &all[done..place.first]);
        put(&mut out, hunk, place, &all);
        done = place.first + place.count;
    }
    push_lines(&mut out, &all[done..]);
    encoded(path, &text, &out)
}

/// Writes the lines of one hunk: unchanged lines exactly as in the file, added lines with the line ending used around
/// them.
fn put(out: &mut String, hunk: &PatchHunk, place: HunkPlace, all: &[TextLine<'_>]) {
    let end = place.first + place.count;
    let around = if place.count > 0 {
        &all[place.first..end]
    } else {
        &all[place.first.saturating_sub(1)..place.first]
    };
    let ending = ending_for(around, all);
    let start = out.len();
    let mut added = added_lines(hunk, &all[place.first..end], place.indented).into_iter();
    if place.first == all.len()
        && all
            .last()
            .is_some_and(|line| line.ending == LineEnding::None)
        && !out.ends_with('\n')
    {
        out.push_str(ending.as_str());
    }
    let mut at = place.first;
    let mut written = false;
    for line in &hunk.lines {
        match line {
            HunkLine::Keep(_) | HunkLine::Remove(_) if at >= end => {}
            HunkLine::Keep(_) => {
                out.push_str(all[at].text);
                // The last line of the file may not be the last one any more, so it gets an ending, which is removed
                // below if it is.
                let own = if all[at].ending == LineEnding::None {
                    ending
                } else {
                    all[at].ending
                };
                out.push_str(own.as_str());
                at += 1;
                written = true;
            }
            HunkLine::Remove(_) => at += 1,
            HunkLine::Add(text) => {
                out.push_str(&added.next().unwrap_or_else(|| text.clone()));
                out.push_str(if hunk.explicit_endings {
                    "\n"
                } else {
                    ending.as_str()
                });
                written = true;
            }
        }
    }
    if end == all.len() && written {
        let was_open = all
            .last()
            .is_some_and(|line| line.ending == LineEnding::None);
        let says = hunk.old_lacks_newline || hunk.new_lacks_newline;
        let open = if says {
            hunk.new_lacks_newline
        } else {
            was_open
        };
        if open {
            trim_ending(out, start);
        }
    }
}

/// The added lines of a hunk, re-indented if the old lines were found with another indentation.
fn added_lines(hunk: &PatchHunk, found: &[TextLine<'_>], indented: bool) -> Vec<String> {
    let added = hunk.lines.iter().filter_map(|line| match line {
        HunkLine::Add(text) => Some(text.as_str()),
        _ => None,
    });
    if !indented {
        return added.map(str::to_owned).collect();
    }
    let wanted = old_lines(hunk);
    let found = texts(found);
    added
        .map(|text| reindent(&wanted, &found, text).unwrap_or_else(|| text.to_owned()))
        .collect()
}

fn trim_ending(out: &mut String, start: usize) {
    for ending in [LineEnding::CrLf, LineEnding::Lf, LineEnding::Cr] {
        if out.len() >= start + ending.as_str().len() && out.ends_with(ending.as_str()) {
            out.truncate(out.len() - ending.as_str().len());
            return;
        }
    }
}
