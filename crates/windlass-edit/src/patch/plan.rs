//! Works out, from a patch and the files as they are, what every file would be afterwards.
//!
//! Everything is computed before anything is returned, so a caller either gets the whole plan or an error.

use std::collections::HashMap;

use super::locate::{Spot, locate, old_lines};
use super::{Body, Hunk, HunkLine, HunkProblem, Op, Patch, PatchError};
use crate::block;
use crate::reindent::reindent;
use crate::text::{
    Encoding, Ending, Line, Text, TextError, ending_for, lines, push_lines, texts, with_endings,
};

/// What is at a path now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A file with these bytes.
    File(Vec<u8>),
    /// Nothing.
    Absent,
    /// Something that cannot be patched, and why.
    Unusable(String),
}

/// The result of a patch over all its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One entry per file that changes, in the order of the patch.
    pub changes: Vec<Change>,
    /// What was tolerated, for whoever wrote the patch.
    pub notes: Vec<String>,
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new file.
    Create {
        /// Where.
        path: String,
        /// Its bytes.
        after: Vec<u8>,
    },
    /// New bytes in a file.
    Modify {
        /// Where.
        path: String,
        /// The bytes now.
        before: Vec<u8>,
        /// The bytes afterwards.
        after: Vec<u8>,
    },
    /// A file goes away.
    Delete {
        /// Where.
        path: String,
        /// The bytes now.
        before: Vec<u8>,
    },
    /// A file gets another name, and perhaps other bytes.
    Move {
        /// Where it is.
        from: String,
        /// Where it goes.
        to: String,
        /// The bytes now.
        before: Vec<u8>,
        /// The bytes afterwards.
        after: Vec<u8>,
    },
}

pub(super) fn plan(patch: &Patch, read: impl FnMut(&str) -> Found) -> Result<Plan, PatchError> {
    let mut tree = Tree {
        read,
        order: Vec::new(),
        files: HashMap::new(),
    };
    for file in &patch.files {
        match &file.op {
            Op::Create { path } => tree.create(path, &file.body)?,
            Op::Write { path } => tree.write(path, &file.body)?,
            Op::Delete { path } => tree.delete(path, &file.body)?,
            Op::Update { path, move_to } => tree.update(path, move_to.as_deref(), &file.body)?,
        }
    }
    let changes = tree.changes();
    if changes.is_empty() {
        return Err(PatchError::Nothing);
    }
    Ok(Plan {
        changes,
        notes: patch.notes.clone(),
    })
}

/// The files the patch names, as they were and as they are after the sections read so far.
struct Tree<R> {
    read: R,
    order: Vec<String>,
    files: HashMap<String, State>,
}

struct State {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// Where the bytes came from, for a move.
    from: Option<String>,
}

impl<R: FnMut(&str) -> Found> Tree<R> {
    fn state(&mut self, path: &str) -> Result<&mut State, PatchError> {
        if !self.files.contains_key(path) {
            let before = match (self.read)(path) {
                Found::File(bytes) => Some(bytes),
                Found::Absent => None,
                Found::Unusable(message) => {
                    return Err(PatchError::Unusable {
                        path: path.to_owned(),
                        message,
                    });
                }
            };
            self.order.push(path.to_owned());
            self.files.insert(
                path.to_owned(),
                State {
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

    fn create(&mut self, path: &str, body: &Body) -> Result<(), PatchError> {
        let state = self.state(path)?;
        // Who shows the old lines of a file means the file that is there, whatever the header says.
        if let (Body::Hunks(hunks), Some(before)) = (body, &state.after)
            && !hunks.is_empty()
            && hunks.iter().all(|hunk| !old_lines(hunk).is_empty())
        {
            state.after = Some(patched(path, before, hunks)?);
            return Ok(());
        }
        // An empty file has nothing to lose.
        if state.after.as_ref().is_some_and(|bytes| !bytes.is_empty()) {
            return Err(PatchError::Exists {
                path: path.to_owned(),
            });
        }
        state.after = Some(new_text(path, body)?.into_bytes());
        Ok(())
    }

    fn write(&mut self, path: &str, body: &Body) -> Result<(), PatchError> {
        let state = self.state(path)?;
        let text = new_text(path, body)?;
        let after = match &state.after {
            Some(before) => rewritten(path, before, &text)?,
            None => text.into_bytes(),
        };
        state.after = Some(after);
        Ok(())
    }

    fn delete(&mut self, path: &str, body: &Body) -> Result<(), PatchError> {
        let before = self.existing(path)?;
        if let Body::Hunks(hunks) = body
            && !hunks.is_empty()
        {
            // The hunks of a deletion show the whole file, so they prove that it is the one meant.
            let left = patched(path, &before, hunks)?;
            if !Text::decode(&left).is_ok_and(|text| text.content.is_empty()) {
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

    fn update(&mut self, path: &str, move_to: Option<&str>, body: &Body) -> Result<(), PatchError> {
        // `@@ -0,0` is how a diff without git says that there was no file.
        if let Body::Hunks(hunks) = body
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

    /// Before and after, file by file. A move is one change when its source really goes away.
    fn changes(self) -> Vec<Change> {
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
                (None, Some(after), Some((from, before))) => changes.push(Change::Move {
                    from,
                    to: path,
                    before,
                    after,
                }),
                (None, Some(after), None) => changes.push(Change::Create { path, after }),
                (Some(before), Some(after), _) if before != after => changes.push(Change::Modify {
                    path,
                    before,
                    after,
                }),
                (Some(before), None, _) => changes.push(Change::Delete { path, before }),
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

/// The bytes of a file after its change.
fn updated(path: &str, before: Vec<u8>, body: &Body) -> Result<Vec<u8>, PatchError> {
    match body {
        Body::Hunks(hunks) if hunks.is_empty() => Ok(before),
        Body::Hunks(hunks) => patched(path, &before, hunks),
        Body::Whole(text) => rewritten(path, &before, text),
        Body::Blocks(blocks) => {
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
fn new_text(path: &str, body: &Body) -> Result<String, PatchError> {
    let refuse = |hunk| Err(PatchError::hunk(path, hunk, HunkProblem::OldLinesInNewFile));
    let hunks = match body {
        Body::Whole(text) => return Ok(text.clone()),
        Body::Blocks(_) => return refuse(1),
        Body::Hunks(hunks) => hunks,
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
        if hunk.new_open {
            text.pop();
        }
    }
    Ok(text)
}

/// The bytes of a file with a new text in it: its encoding stays, and its line endings unless the text says others.
fn rewritten(path: &str, before: &[u8], text: &str) -> Result<Vec<u8>, PatchError> {
    let Ok(old) = Text::decode(before) else {
        return Ok(text.as_bytes().to_vec());
    };
    let ending = ending_for(&[], &lines(&old.content));
    let text = if text.contains('\r') {
        text.to_owned()
    } else {
        with_endings(text, ending, true)
    };
    match old.encoding {
        // What the old bytes could not say may be why the file is written anew.
        Encoding::SingleByte => Ok(text.into_bytes()),
        _ => encoded(path, &old, &text),
    }
}

fn decoded(path: &str, bytes: &[u8]) -> Result<Text, PatchError> {
    Text::decode(bytes).map_err(|err| unusable(path, &err))
}

fn encoded(path: &str, text: &Text, content: &str) -> Result<Vec<u8>, PatchError> {
    text.encode(content).map_err(|err| unusable(path, &err))
}

fn unusable(path: &str, err: &TextError) -> PatchError {
    PatchError::Unusable {
        path: path.to_owned(),
        message: err.to_string(),
    }
}

/// The bytes of a file after all hunks.
fn patched(path: &str, bytes: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, PatchError> {
    let text = decoded(path, bytes)?;
    let all = lines(&text.content);
    let (mut from, mut drift) = (0, 0);
    let mut spots: Vec<(&Hunk, Spot)> = Vec::with_capacity(hunks.len());
    for (index, hunk) in hunks.iter().enumerate() {
        let spot = locate(&all, hunk, from, drift)
            .map_err(|problem| PatchError::hunk(path, index + 1, problem))?;
        if let Some(start) = hunk.old_start.filter(|_| spot.count > 0) {
            drift = isize::try_from(spot.first).unwrap_or(0)
                - isize::try_from(start.saturating_sub(1)).unwrap_or(0);
        }
        // Lines that are only added to the end say nothing about where the next hunk is.
        if spot.count > 0 || spot.first < all.len() {
            from = spot.first + spot.count;
        }
        spots.push((hunk, spot));
    }
    spots.sort_by_key(|(_, spot)| spot.first);
    let mut out = String::with_capacity(text.content.len());
    let mut done = 0;
    for (hunk, spot) in spots {
        push_lines(&mut out, &all[done..spot.first]);
        put(&mut out, hunk, spot, &all);
        done = spot.first + spot.count;
    }
    push_lines(&mut out, &all[done..]);
    encoded(path, &text, &out)
}

/// Writes one hunk's place: kept lines as the file has them, new lines with the ending of the place.
fn put(out: &mut String, hunk: &Hunk, spot: Spot, all: &[Line<'_>]) {
    let end = spot.first + spot.count;
    let around = if spot.count > 0 {
        &all[spot.first..end]
    } else {
        &all[spot.first.saturating_sub(1)..spot.first]
    };
    let ending = ending_for(around, all);
    let start = out.len();
    let mut added = added_lines(hunk, &all[spot.first..end], spot.indented).into_iter();
    if spot.first == all.len()
        && all.last().is_some_and(|line| line.ending == Ending::None)
        && !out.ends_with('\n')
    {
        out.push_str(ending.as_str());
    }
    let mut at = spot.first;
    let mut written = false;
    for line in &hunk.lines {
        match line {
            HunkLine::Keep(_) | HunkLine::Remove(_) if at >= end => {}
            HunkLine::Keep(_) => {
                out.push_str(all[at].text);
                // A line that is not the last any more needs an ending; the real end is settled below.
                let own = if all[at].ending == Ending::None {
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
                out.push_str(if hunk.says_endings {
                    "\n"
                } else {
                    ending.as_str()
                });
                written = true;
            }
        }
    }
    if end == all.len() && written {
        let was_open = all.last().is_some_and(|line| line.ending == Ending::None);
        let says = hunk.old_open || hunk.new_open;
        let open = if says { hunk.new_open } else { was_open };
        if open {
            trim_ending(out, start);
        }
    }
}

/// The new lines of a hunk, moved to the indentation of their place where they were found apart from it.
fn added_lines(hunk: &Hunk, found: &[Line<'_>], indented: bool) -> Vec<String> {
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
    for ending in [Ending::CrLf, Ending::Lf, Ending::Cr] {
        if out.len() >= start + ending.as_str().len() && out.ends_with(ending.as_str()) {
            out.truncate(out.len() - ending.as_str().len());
            return;
        }
    }
}
