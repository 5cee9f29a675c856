//! The way back: what must become of each path so that what was done to it is taken back and what people wrote since
//! stays. Only plans; [`super::land`] with the content store as its source does it. Only the named paths are looked at.
//!
//! Redo is taking back the undo: the caller plans with the swaps of the plan that was landed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{Change, FileChange, FileError};
use windlass_edit::diff::unified;

use super::check::{EmptiedFolders, check, why};
use super::contents::{Contents, ContentsError};
use super::disk::Disk;
use super::look::{Seen, Spot, find, see};
use super::merge::three_way;
use super::{LandError, Refused};
use windlass_host::workspace::{Root, from_errno};

/// Larger files are not merged.
const MAX_MERGED: u64 = 16 * 1024 * 1024;
/// Larger files are named in a preview and not compared.
const MAX_COMPARED: u64 = 1024 * 1024;
/// The longest diff of one file in a preview.
const MAX_DIFF: usize = 64 * 1024;

/// What taking back would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// From what is there now to what it becomes, ready to land.
    pub swaps: Vec<Swap>,
    /// Paths of `swaps` where what was done is taken out of what people wrote since.
    pub merged: Vec<String>,
    /// Paths that are as they were already.
    pub unchanged: Vec<String>,
    /// Paths that cannot be taken back, each with its reason. They are not in `swaps`.
    pub conflicts: Vec<(String, String)>,
}

/// Plans taking back what was done, given in the order in which it was done.
pub fn plan(root: &Root, done: &[Swap], contents: &Contents) -> Result<Plan, LandError> {
    let mut stretches = Stretches::default();
    done.iter().for_each(|swap| stretches.add(swap));
    let planner = Planner {
        disk: Disk::default(),
        root,
        contents,
        paths: stretches.0.keys().map(String::as_str).collect(),
    };
    let mut plan = Plan::default();
    for (path, stretches) in &stretches.0 {
        match planner.path(path, stretches) {
            Ok(Way { now, then, .. }) if now == then => plan.unchanged.push(path.clone()),
            Ok(Way { now, then, merged }) => {
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
    planner.leave_out_refused(&mut plan)?;
    Ok(plan)
}

/// What a plan would change, with unified diffs of what is text and not too long.
pub fn preview(root: &Root, plan: &Plan, contents: &Contents) -> Vec<FileChange> {
    with_diffs(root, &plan.swaps, contents)
}

/// What swaps changed together, with such diffs.
pub fn changed_files(root: &Root, swaps: &[Swap], contents: &Contents) -> Vec<FileChange> {
    let mut stretches = Stretches::default();
    swaps.iter().for_each(|swap| stretches.add(swap));
    let changed: Vec<Swap> = stretches.changed().cloned().collect();
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
            rendered(swap, text(&swap.before).zip(text(&swap.after)))
        })
        .collect()
}

/// The swaps of each path. Within one stretch each swap began where the one before it ended, so that only the first and
/// the last image matter. Between two stretches another program changed the path.
#[derive(Default)]
pub(crate) struct Stretches(pub(crate) BTreeMap<String, Vec<Swap>>);

impl Stretches {
    pub(crate) fn add(&mut self, swap: &Swap) {
        let stretches = self.0.entry(swap.path.clone()).or_default();
        match stretches.last_mut() {
            Some(last) if last.after == swap.before => last.after = swap.after.clone(),
            _ => stretches.push(swap.clone()),
        }
    }

    /// The stretches that changed something, by path.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &Swap> {
        self.0
            .values()
            .flatten()
            .filter(|swap| swap.before != swap.after)
    }
}

/// One path from what is there to what it becomes.
struct Way {
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
    fn path(&self, path: &str, stretches: &[Swap]) -> Result<Way, String> {
        let now = self.now(path, stretches)?;
        let (mut then, mut merged) = (now.clone(), false);
        for done in stretches
            .iter()
            .rev()
            .filter(|done| done.before != done.after)
        {
            if then == done.after {
                then = done.before.clone();
            } else if then != done.before {
                then = self.merge(path, &now, &then, done)?;
                merged = true;
            }
        }
        if now != then {
            self.must_have(path, &now, &then)?;
        }
        Ok(Way { now, then, merged })
    }

    /// What is at a path. Where files became directories or the other way round, what is in the way may be a part of
    /// what is taken back.
    fn now(&self, path: &str, stretches: &[Swap]) -> Result<Image, String> {
        let seen = see(&self.disk, self.root.handle(), path).map_err(|err| err.message)?;
        let beneath = || {
            let first = format!("{path}/");
            self.paths
                .range(first.as_str()..)
                .next()
                .is_some_and(|other| other.starts_with(&first))
        };
        match seen {
            Seen::Image(image) => Ok(image),
            Seen::Directory if beneath() => Ok(Image::Absent),
            Seen::Blocked(at, _) if self.paths.contains(at.as_str()) => Ok(Image::Absent),
            seen => Err(why(
                stretches.last().map_or(&Image::Absent, |done| &done.after),
                &seen,
            )),
        }
    }

    /// What is there changed since it was done: what was done is taken out of it.
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
            return Err(no_merge(ours, done));
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

    /// The bytes that a path will get must be in the store, because that is where they are taken from.
    fn must_have(&self, path: &str, now: &Image, then: &Image) -> Result<(), String> {
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
            Err(ContentsError::Missing(_)) => Err("its old bytes are not kept any more".to_owned()),
            Err(err) => Err(err.to_string()),
        }
    }

    /// The bytes of an image: from the store, or from the tree when they are what is there.
    fn bytes(&self, path: &str, now: &Image, image: &Image, max: u64) -> Result<Vec<u8>, String> {
        let Image::File { hash, size, .. } = image else {
            return Ok(Vec::new());
        };
        if *size > max {
            return Err("it was changed since, and it is too large to merge".to_owned());
        }
        let file = match self.contents.read(hash) {
            Ok(file) => file,
            Err(_) if matches!(now, Image::File { hash: here, .. } if here == hash) => {
                self.open(path).map_err(|err| err.message)?
            }
            Err(_) => {
                return Err(
                    "it was changed since, and the bytes to merge with are not kept any more"
                        .to_owned(),
                );
            }
        };
        let mut bytes = Vec::new();
        file.take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(|err| err.to_string())?;
        if blake3::hash(&bytes).to_hex().as_str() != hash {
            return Err("it is being changed right now; try again".to_owned());
        }
        Ok(bytes)
    }

    fn open(&self, path: &str) -> Result<std::fs::File, FileError> {
        let fail = |errno| from_errno(Path::new(path), errno);
        match find(&self.disk, self.root.handle(), path)? {
            Spot::There(dir, name) => self.disk.open(dir.as_fd(), &name).map_err(fail),
            Spot::NoParent | Spot::Blocked(..) => Err(fail(rustix::io::Errno::NOENT)),
        }
    }

    /// What landing would refuse, it refuses now and by name, with what cannot go without it.
    fn leave_out_refused(&self, plan: &mut Plan) -> Result<(), LandError> {
        // Each round leaves out at least one path.
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
            for Refused { path, reason } in refused {
                plan.swaps.retain(|swap| swap.path != path);
                plan.merged.retain(|merged| *merged != path);
                plan.conflicts.push((path, reason));
            }
        }
        plan.conflicts.sort_unstable();
        Ok(())
    }

    /// The text of an image, from the store or the tree, where it is text and not too long.
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

/// A change as people see it, with both sides from the content store.
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
    rendered(swap, text(&swap.before).zip(text(&swap.after)))
}

pub(crate) fn change_of(before: &Image, after: &Image) -> Change {
    match (before.is_there(), after.is_there()) {
        (false, _) => Change::Created,
        (true, true) => Change::Modified,
        (true, false) => Change::Deleted,
    }
}

/// Counts lines and makes a diff, where both sides are text.
pub(crate) fn rendered(swap: &Swap, texts: Option<(String, String)>) -> FileChange {
    let change = change_of(&swap.before, &swap.after);
    let path = swap.path.clone();
    // A NUL byte is no text, although it is UTF-8.
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

fn no_merge(now: &Image, done: &Swap) -> String {
    match (now, &done.before, &done.after) {
        (Image::Absent, _, _) => {
            "it was deleted since; there is nothing to take it out of".to_owned()
        }
        (_, Image::Absent, _) => {
            "it was changed since it was made, and removing it would lose that".to_owned()
        }
        (_, _, Image::Absent) => "something else was put in its place since".to_owned(),
        (Image::Link { .. }, _, _) => "it is a symbolic link now".to_owned(),
        _ => "it was changed since, and only text files can be merged".to_owned(),
    }
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
