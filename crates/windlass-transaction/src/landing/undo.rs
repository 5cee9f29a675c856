//! Planning an undo: computes the new image of each path, so that the given changes are undone and later edits stay.
//! This module only plans and reads only the given paths; [`super::land_undo`] carries out the plan.
//!
//! A redo is the undo of an undo: the caller plans with the swaps of the undo that landed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{Change, FileChange, FileError};
use windlass_edit::diff::unified;

use super::check::{EmptiedFolders, check, conflict_reason};
use super::contents::{Contents, ContentsError};
use super::disk::Disk;
use super::merge::three_way;
use super::path_state::{PathLocation, PathState, find, path_state};
use super::{LandError, RefusedPath};
use windlass_host::workspace::{Root, from_errno};

const MAX_MERGED: u64 = 16 * 1024 * 1024;
/// Larger files appear in a preview without a diff.
const MAX_COMPARED: u64 = 1024 * 1024;
const MAX_DIFF: usize = 64 * 1024;

/// The result of planning an undo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoPlan {
    /// From the current image to the image after the undo, ready to land.
    pub swaps: Vec<Swap>,
    /// Paths of `swaps` where the undo was merged with later edits.
    pub merged: Vec<String>,
    /// Paths that already have their old image.
    pub unchanged: Vec<String>,
    /// Paths that cannot be undone, with the reason. They are not in `swaps`.
    pub conflicts: Vec<(String, String)>,
}

/// Plans the undo of `done`, which is in the order of the changes.
pub fn plan(root: &Root, done: &[Swap], contents: &Contents) -> Result<UndoPlan, LandError> {
    let mut chains = SwapChains::default();
    done.iter().for_each(|swap| chains.add(swap));
    let planner = Planner {
        disk: Disk::default(),
        root,
        contents,
        paths: chains.0.keys().map(String::as_str).collect(),
    };
    let mut plan = UndoPlan::default();
    for (path, chains) in &chains.0 {
        match planner.path(path, chains) {
            Ok(PathUndo { now, then, .. }) if now == then => plan.unchanged.push(path.clone()),
            Ok(PathUndo { now, then, merged }) => {
                if merged {
                    plan.merged.push(path.clone());
                }
                plan.swaps.push(Swap {
                    path: path.clone(),
                    before: now,
                    after: then,
                });
            }
            Err(reason) => plan.conflicts.push((path.clone(), reason)),
        }
    }
    planner.move_refused_to_conflicts(&mut plan)?;
    Ok(plan)
}

/// The files that a plan would change, with unified diffs of text files that are not too long.
pub fn preview(root: &Root, plan: &UndoPlan, contents: &Contents) -> Vec<FileChange> {
    with_diffs(root, &plan.swaps, contents)
}

/// The files that `swaps` changed together, with the same kind of diffs.
pub fn changed_files(root: &Root, swaps: &[Swap], contents: &Contents) -> Vec<FileChange> {
    let mut chains = SwapChains::default();
    swaps.iter().for_each(|swap| chains.add(swap));
    let changed: Vec<Swap> = chains.changed().cloned().collect();
    with_diffs(root, &changed, contents)
}

fn with_diffs(root: &Root, swaps: &[Swap], contents: &Contents) -> Vec<FileChange> {
    let planner = Planner {
        disk: Disk::default(),
        root,
        contents,
        paths: BTreeSet::new(),
    };
    swaps
        .iter()
        .map(|swap| {
            let text = |image| planner.text(swap, image);
            render(swap, text(&swap.before).zip(text(&swap.after)))
        })
        .collect()
}

/// The swaps of each path, joined into chains. Within a chain each swap began where the previous one ended, so that
/// only the first and the last image matter. Between two chains another program changed the path.
#[derive(Default)]
pub(crate) struct SwapChains(pub(crate) BTreeMap<String, Vec<Swap>>);

impl SwapChains {
    pub(crate) fn add(&mut self, swap: &Swap) {
        let chains = self.0.entry(swap.path.clone()).or_default();
        match chains.last_mut() {
            Some(last) if last.after == swap.before => last.after = swap.after.clone(),
            _ => chains.push(swap.clone()),
        }
    }

    /// The chains that changed something, by path.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &Swap> {
        self.0
            .values()
            .flatten()
            .filter(|swap| swap.before != swap.after)
    }
}

/// The undo of one path, from the current image to the new one.
struct PathUndo {
    now: Image,
    then: Image,
    merged: bool,
}

struct Planner<'a> {
    disk: Disk,
    root: &'a Root,
    contents: &'a Contents,
    paths: BTreeSet<&'a str>,
}

impl Planner<'_> {
    fn path(&self, path: &str, chains: &[Swap]) -> Result<PathUndo, String> {
        let now = self.now(path, chains)?;
        let (mut then, mut merged) = (now.clone(), false);
        for done in chains.iter().rev().filter(|done| done.before != done.after) {
            if then == done.after {
                then = done.before.clone();
            } else if then != done.before {
                then = self.merge(path, &now, &then, done)?;
                merged = true;
            }
        }
        if now != then {
            self.ensure_stored(path, &now, &then)?;
        }
        Ok(PathUndo { now, then, merged })
    }

    /// The current image at a path. Where a file became a directory or the other way round, the entry in the way may be
    /// a part of the same undo; then the path counts as absent.
    fn now(&self, path: &str, chains: &[Swap]) -> Result<Image, String> {
        let seen = path_state(&self.disk, self.root.handle(), path).map_err(|err| err.message)?;
        let beneath = || {
            let first = format!("{path}/");
            self.paths
                .range(first.as_str()..)
                .next()
                .is_some_and(|other| other.starts_with(&first))
        };
        match seen {
            PathState::Image(image) => Ok(image),
            PathState::Directory if beneath() => Ok(Image::Absent),
            PathState::Blocked(at, _) if self.paths.contains(at.as_str()) => Ok(Image::Absent),
            seen => Err(conflict_reason(
                chains.last().map_or(&Image::Absent, |done| &done.after),
                &seen,
            )),
        }
    }

    /// Removes a change from a file that was edited since, with a three-way merge.
    fn merge(&self, path: &str, now: &Image, ours: &Image, done: &Swap) -> Result<Image, String> {
        let (
            Image::File {
                hash: our_hash,
                size: our_size,
                mode: our_mode,
            },
            Image::File {
                hash: base_hash,
                mode: base_mode,
                ..
            },
            Image::File {
                hash: old_hash,
                size: old_size,
                mode: old_mode,
            },
        ) = (ours, &done.after, &done.before)
        else {
            return Err(no_merge_reason(ours, done));
        };
        let mode = if our_mode == base_mode {
            old_mode
        } else if old_mode == base_mode || our_mode == old_mode {
            our_mode
        } else {
            return Err(format!(
                "its mode was changed since ({base_mode:o}, now {our_mode:o})"
            ));
        };
        if our_hash == base_hash {
            return Ok(Image::File {
                hash: old_hash.clone(),
                size: *old_size,
                mode: *mode,
            });
        }
        if old_hash == base_hash || our_hash == old_hash {
            return Ok(Image::File {
                hash: our_hash.clone(),
                size: *our_size,
                mode: *mode,
            });
        }
        let bytes = |image: &Image| self.bytes(path, now, image, MAX_MERGED);
        let merged = three_way(&bytes(&done.after)?, &bytes(ours)?, &bytes(&done.before)?);
        let merged = merged.map_err(|clash| format!("it was changed since: {clash}"))?;
        let (hash, size) = self
            .contents
            .put_bytes(&merged)
            .map_err(|err| err.to_string())?;
        Ok(Image::File {
            hash,
            size,
            mode: *mode,
        })
    }

    /// Checks that the bytes for a path are in the store, because the landing reads them from there.
    fn ensure_stored(&self, path: &str, now: &Image, then: &Image) -> Result<(), String> {
        let Image::File { hash, .. } = then else {
            return Ok(());
        };
        match self.contents.read(hash) {
            Ok(_) => Ok(()),
            Err(_) if matches!(now, Image::File { hash: here, .. } if here == hash) => {
                let file = self.open(path).map_err(|err| err.message)?;
                self.contents
                    .put(&file)
                    .map(|_| ())
                    .map_err(|err| err.to_string())
            }
            Err(ContentsError::Missing(_)) => Err("its old bytes are no longer stored".to_owned()),
            Err(err) => Err(err.to_string()),
        }
    }

    /// The bytes of an image, from the store, or from the tree if the image is the current one.
    fn bytes(&self, path: &str, now: &Image, image: &Image, max: u64) -> Result<Vec<u8>, String> {
        let Image::File { hash, size, .. } = image else {
            return Ok(Vec::new());
        };
        if *size > max {
            return Err("it was changed since and is too large to merge".to_owned());
        }
        let file = match self.contents.read(hash) {
            Ok(file) => file,
            Err(_) if matches!(now, Image::File { hash: here, .. } if here == hash) => {
                self.open(path).map_err(|err| err.message)?
            }
            Err(_) => {
                return Err(
                    "it was changed since, and the bytes for a merge are no longer stored"
                        .to_owned(),
                );
            }
        };
        let mut bytes = Vec::new();
        file.take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(|err| err.to_string())?;
        if blake3::hash(&bytes).to_hex().as_str() != hash {
            return Err("another program is writing to it; try again".to_owned());
        }
        Ok(bytes)
    }

    fn open(&self, path: &str) -> Result<std::fs::File, FileError> {
        let fail = |errno| from_errno(Path::new(path), errno);
        match find(&self.disk, self.root.handle(), path)? {
            PathLocation::Found(dir, name) => self.disk.open(dir.as_fd(), &name).map_err(fail),
            PathLocation::NoParent | PathLocation::Blocked(..) => {
                Err(fail(rustix::io::Errno::NOENT))
            }
        }
    }

    /// Moves paths that a landing would refuse from the swaps to the conflicts, together with paths that depend on
    /// them.
    fn move_refused_to_conflicts(&self, plan: &mut UndoPlan) -> Result<(), LandError> {
        // Each iteration removes at least one path.
        for _ in 0..=plan.swaps.len() {
            let refused = match check(
                &self.disk,
                self.root.handle(),
                &plan.swaps,
                EmptiedFolders::Remove,
            ) {
                Ok(_) => break,
                Err(LandError::Conflict { refused, .. }) => refused,
                Err(err) => return Err(err),
            };
            for RefusedPath { path, reason } in refused {
                plan.swaps.retain(|swap| swap.path != path);
                plan.merged.retain(|merged| *merged != path);
                plan.conflicts.push((path, reason));
            }
        }
        plan.conflicts.sort_unstable();
        Ok(())
    }

    /// The text of an image, from the store or the tree; `None` if it is not text or too long.
    fn text(&self, swap: &Swap, image: &Image) -> Option<String> {
        match image {
            Image::Link { .. } => None,
            image => {
                let bytes = self.bytes(&swap.path, &swap.before, image, MAX_COMPARED);
                String::from_utf8(bytes.ok()?).ok()
            }
        }
    }
}

/// Describes a change for people, with both sides read from the content store.
#[must_use]
pub fn describe(swap: &Swap, contents: &Contents) -> FileChange {
    let text = |image: &Image| match image {
        Image::Absent => Some(String::new()),
        Image::File { hash, size, .. } if *size <= MAX_COMPARED => {
            let mut text = String::new();
            contents.read(hash).ok()?.read_to_string(&mut text).ok()?;
            Some(text)
        }
        Image::File { .. } | Image::Link { .. } => None,
    };
    render(swap, text(&swap.before).zip(text(&swap.after)))
}

pub(crate) fn change_of(before: &Image, after: &Image) -> Change {
    match (before.is_there(), after.is_there()) {
        (false, _) => Change::Created,
        (true, true) => Change::Modified,
        (true, false) => Change::Deleted,
    }
}

/// Counts lines and creates a diff, if both sides are text.
pub(crate) fn render(swap: &Swap, texts: Option<(String, String)>) -> FileChange {
    let change = change_of(&swap.before, &swap.after);
    let path = swap.path.clone();
    // A NUL byte is valid UTF-8, but such a file is not text.
    let texts = texts.filter(|(old, new)| !old.contains('\0') && !new.contains('\0'));
    let Some((old, new)) = texts else {
        return FileChange {
            path,
            change,
            added: None,
            removed: None,
            diff: None,
        };
    };
    let name = |side: &str, image: &Image| {
        if image.is_there() {
            format!("{side}/{path}")
        } else {
            "/dev/null".into()
        }
    };
    let diff = unified(
        &name("a", &swap.before),
        &name("b", &swap.after),
        &old,
        &new,
        MAX_DIFF,
    );
    let count = |count: usize| u32::try_from(count).ok();
    let (added, removed) = (count(diff.added), count(diff.removed));
    FileChange {
        path,
        change,
        added,
        removed,
        diff: (!diff.cut && !diff.text.is_empty()).then_some(diff.text),
    }
}

fn no_merge_reason(now: &Image, done: &Swap) -> String {
    match (now, &done.before, &done.after) {
        (Image::Absent, _, _) => "it was deleted since".to_owned(),
        (_, Image::Absent, _) => {
            "it was changed since it was created, and deleting it would lose those changes"
                .to_owned()
        }
        (_, _, Image::Absent) => "another file was created at this path since".to_owned(),
        (Image::Link { .. }, _, _) => "it is a symlink now".to_owned(),
        _ => "it was changed since, and only text files can be merged".to_owned(),
    }
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
