//! Works out, from a patch and the files as they are, what every file would be afterwards.
//!
//! Everything is computed before anything is returned, so a caller either gets the whole plan or an error.

use std::collections::HashMap;

use super::super::text::{Ending, Line, Text, ending_for, lines};
use super::locate::{Spot, locate};
use super::{Hunk, HunkLine, HunkProblem, Op, Patch, PatchError};

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
    let mut tree = Tree { read, order: Vec::new(), files: HashMap::new() };
    for file in &patch.files {
        match &file.op {
            Op::Create { path } => tree.create(path, &file.hunks)?,
            Op::Delete { path } => tree.delete(path, &file.hunks)?,
            Op::Update { path, move_to } => tree.update(path, move_to.as_deref(), &file.hunks)?,
        }
    }
    let changes = tree.changes();
    if changes.is_empty() {
        return Err(PatchError::Nothing);
    }
    Ok(Plan { changes, notes: patch.notes.clone() })
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
                Found::Unusable(message) => return Err(PatchError::Unusable { path: path.to_owned(), message }),
            };
            self.order.push(path.to_owned());
            self.files.insert(path.to_owned(), State { after: before.clone(), before, from: None });
        }
        self.files.get_mut(path).ok_or_else(|| PatchError::NotFound { path: path.to_owned() })
    }

    fn existing(&mut self, path: &str) -> Result<Vec<u8>, PatchError> {
        self.state(path)?.after.clone().ok_or_else(|| PatchError::NotFound { path: path.to_owned() })
    }

    fn create(&mut self, path: &str, hunks: &[Hunk]) -> Result<(), PatchError> {
        let state = self.state(path)?;
        if state.after.is_some() {
            return Err(PatchError::Exists { path: path.to_owned() });
        }
        let mut text = String::new();
        for (index, hunk) in hunks.iter().enumerate() {
            for line in &hunk.lines {
                let HunkLine::Add(line) = line else {
                    return Err(PatchError::Hunk {
                        path: path.to_owned(),
                        hunk: index + 1,
                        problem: Box::new(HunkProblem::OldLinesInNewFile),
                    });
                };
                text.push_str(line);
                text.push('\n');
            }
            if hunk.new_open {
                text.pop();
            }
        }
        state.after = Some(text.into_bytes());
        Ok(())
    }

    fn delete(&mut self, path: &str, hunks: &[Hunk]) -> Result<(), PatchError> {
        let before = self.existing(path)?;
        if !hunks.is_empty() {
            // The hunks of a deletion show the whole file, so they prove that it is the one meant.
            let left = patched(path, &before, hunks)?;
            if !Text::decode(&left).is_ok_and(|text| text.content.is_empty()) {
                return Err(PatchError::Hunk {
                    path: path.to_owned(),
                    hunk: hunks.len(),
                    problem: Box::new(HunkProblem::LeavesLines),
                });
            }
        }
        let state = self.state(path)?;
        state.after = None;
        state.from = None;
        Ok(())
    }

    fn update(&mut self, path: &str, move_to: Option<&str>, hunks: &[Hunk]) -> Result<(), PatchError> {
        let before = self.existing(path)?;
        let after = if hunks.is_empty() { before } else { patched(path, &before, hunks)? };
        let Some(to) = move_to.filter(|to| *to != path) else {
            self.state(path)?.after = Some(after);
            return Ok(());
        };
        if self.state(to)?.after.is_some() {
            return Err(PatchError::Exists { path: to.to_owned() });
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
            let source = moved_from.iter().find(|(_, to)| to == path).map(|(from, _)| from.clone());
            let moved = source.and_then(|from| files.remove(&from).and_then(|state| Some((from, state.before?))));
            let Some(state) = files.remove(path) else { continue };
            let path = path.clone();
            match (state.before, state.after, moved) {
                (None, Some(after), Some((from, before))) => {
                    changes.push(Change::Move { from, to: path, before, after })
                }
                (None, Some(after), None) => changes.push(Change::Create { path, after }),
                (Some(before), Some(after), _) if before != after => {
                    changes.push(Change::Modify { path, before, after })
                }
                (Some(before), None, _) => changes.push(Change::Delete { path, before }),
                _ => {}
            }
        }
        changes
    }
}

/// The bytes of a file after all hunks.
fn patched(path: &str, bytes: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, PatchError> {
    let unusable = |message: String| PatchError::Unusable { path: path.to_owned(), message };
    let text = Text::decode(bytes).map_err(|err| unusable(err.to_string()))?;
    let all = lines(&text.content);
    let mut out = String::with_capacity(text.content.len());
    let (mut done, mut drift) = (0, 0);
    for (index, hunk) in hunks.iter().enumerate() {
        let spot = locate(&all, hunk, done, drift).map_err(|problem| PatchError::Hunk {
            path: path.to_owned(),
            hunk: index + 1,
            problem: Box::new(problem),
        })?;
        if let Some(start) = hunk.old_start.filter(|_| spot.count > 0) {
            drift = isize::try_from(spot.first).unwrap_or(0) - isize::try_from(start.saturating_sub(1)).unwrap_or(0);
        }
        push(&mut out, &all[done..spot.first]);
        put(&mut out, hunk, spot, &all);
        done = spot.first + spot.count;
    }
    push(&mut out, &all[done..]);
    text.encode(&out).map_err(|err| unusable(err.to_string()))
}

fn push(out: &mut String, lines: &[Line<'_>]) {
    for line in lines {
        out.push_str(line.text);
        out.push_str(line.ending.as_str());
    }
}

/// Writes one hunk's place: kept lines as the file has them, new lines with the ending of the place.
fn put(out: &mut String, hunk: &Hunk, spot: Spot, all: &[Line<'_>]) {
    let end = spot.first + spot.count;
    let around = if spot.count > 0 { &all[spot.first..end] } else { &all[spot.first.saturating_sub(1)..spot.first] };
    let ending = ending_for(around, all);
    let start = out.len();
    if spot.first == all.len() && all.last().is_some_and(|line| line.ending == Ending::None) {
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
                let own = if all[at].ending == Ending::None { ending } else { all[at].ending };
                out.push_str(own.as_str());
                at += 1;
                written = true;
            }
            HunkLine::Remove(_) => at += 1,
            HunkLine::Add(text) => {
                out.push_str(text);
                out.push_str(if hunk.says_endings { "\n" } else { ending.as_str() });
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

fn trim_ending(out: &mut String, start: usize) {
    for ending in [Ending::CrLf, Ending::Lf, Ending::Cr] {
        if out.len() >= start + ending.as_str().len() && out.ends_with(ending.as_str()) {
            out.truncate(out.len() - ending.as_str().len());
            return;
        }
    }
}
