//! Checks before a landing: every path must have its expected image, must be allowed to change, and must be reachable.
//! The result is the order of the work, or every path that cannot land, with its reason. Nothing is changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{FileError, FileKind};

use super::disk::Disk;
use super::journal::EmptiedDir;
use super::path_state::{PathState, dir_at, mode_of, parent, parents, parts, path_state};
use super::{LandError, RefusedPath};
use crate::path::{path_of, text_of};
use windlass_host::workspace::from_errno;
use windlass_host::workspace::is_staging;

/// Maximum entries that are visited in a directory that becomes a file.
const MAX_WALKED: usize = 100_000;

/// The fate of a directory that the deletes of a change leave empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmptiedFolders {
    /// Git does the same.
    Remove,
    /// It stays, unless a file of the change takes its path.
    Keep,
}

/// The work of a landing, in order.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) swaps: Vec<(Swap, usize)>,
    pub(super) stages: Vec<String>,
    pub(super) made: Vec<String>,
    pub(super) emptied: Vec<EmptiedDir>,
}

/// Checks every path and changes nothing.
pub(super) fn check(
    disk: &Disk,
    root: BorrowedFd<'_>,
    swaps: &[Swap],
    emptied: EmptiedFolders,
) -> Result<Layout, LandError> {
    let mut check = LandingCheck {
        disk,
        root,
        set: BTreeMap::new(),
        folders: HashMap::new(),
        stages: vec![String::new()],
    };
    let mut refused = Vec::new();
    for swap in swaps {
        if check.set.insert(&swap.path, swap).is_some() {
            refused.push(RefusedPath::new(
                &swap.path,
                "it is named twice in one change",
            ));
        }
    }
    let mut layout = Layout::default();
    let mut walked = BTreeSet::new();
    let by_path: Vec<&Swap> = check.set.values().copied().collect();
    for swap in by_path.into_iter().filter(|swap| swap.before != swap.after) {
        match check.path(swap, &mut walked) {
            Ok(stage) => layout.swaps.push((swap.clone(), stage)),
            Err(reason) => refused.push(RefusedPath::new(&swap.path, &reason)),
        }
    }
    if !refused.is_empty() {
        return Err(LandError::Conflict {
            refused,
            left: Vec::new(),
        });
    }
    layout
        .swaps
        .sort_by(|(a, _), (b, _)| swap_order(a).cmp(&swap_order(b)));
    layout.made = check.made();
    layout.emptied = check.emptied(walked, emptied)?;
    layout.stages = check.stages;
    Ok(layout)
}

/// Orders the swaps: deletes (deepest first), then replacements, then created paths.
fn swap_order(swap: &Swap) -> (u8, std::cmp::Reverse<usize>, &str) {
    let deletes = !swap.after.is_there();
    let depth = if deletes {
        swap.path.matches('/').count()
    } else {
        0
    };
    let group = if deletes {
        0
    } else {
        1 + u8::from(!swap.before.is_there())
    };
    (group, std::cmp::Reverse(depth), &swap.path)
}

/// The directory that will contain a path.
struct TargetFolder {
    stage: usize,
    missing: Vec<String>,
}

struct LandingCheck<'a> {
    disk: &'a Disk,
    root: BorrowedFd<'a>,
    set: BTreeMap<&'a str, &'a Swap>,
    folders: HashMap<String, Result<TargetFolder, String>>,
    stages: Vec<String>,
}

impl LandingCheck<'_> {
    /// Returns the index of the staging directory for a path, or the reason why the path cannot land.
    fn path(&mut self, swap: &Swap, walked: &mut BTreeSet<String>) -> Result<usize, String> {
        let path = swap.path.as_str();
        let parts = parts(path).map_err(|err| err.message)?;
        if parts.iter().any(|part| is_staging(OsStr::new(part))) {
            return Err(
                "it is in a directory of a landing, which is not part of the project".to_owned(),
            );
        }
        check_image(swap)?;
        let seen = path_state(self.disk, self.root, path).map_err(|err| err.message)?;
        match &seen {
            seen if seen.is(&swap.before) => {}
            PathState::Blocked(at, FileKind::File | FileKind::Link)
                if !swap.before.is_there() && self.deletes(at) => {}
            PathState::Directory if !swap.before.is_there() && self.deletes_beneath(path) => {
                self.walk(path, walked)?;
            }
            seen => return Err(self.hint(swap, conflict_reason(&swap.before, seen))),
        }
        let folder = parent(path);
        if !self.folders.contains_key(folder) {
            let checked = self.folder(folder);
            self.folders.insert(folder.to_owned(), checked);
        }
        match self.folders.get(folder) {
            Some(Ok(folder)) => Ok(folder.stage),
            Some(Err(reason)) => Err(reason.clone()),
            None => Ok(0),
        }
    }

    fn deletes(&self, path: &str) -> bool {
        self.set
            .get(path)
            .is_some_and(|swap| swap.before.is_there() && !swap.after.is_there())
    }

    fn deletes_beneath(&self, path: &str) -> bool {
        let first = format!("{path}/");
        let mut beneath = self
            .set
            .range(first.as_str()..)
            .take_while(|(other, _)| other.starts_with(&first));
        beneath.any(|(other, _)| self.deletes(other))
    }

    /// Checks that a change deletes everything in a directory, so that a file can replace it.
    fn walk(&self, top: &str, walked: &mut BTreeSet<String>) -> Result<(), String> {
        let mut todo = vec![top.to_owned()];
        let mut count = 0;
        while let Some(path) = todo.pop() {
            let dir = dir_at(self.disk, self.root, &path).map_err(|err| err.message)?;
            let Some(dir) = dir else {
                return Err(format!("{path} changed while it was read"));
            };
            let names = self
                .disk
                .names(dir.as_fd())
                .map_err(|errno| from_errno(Path::new(&path), errno).message)?;
            for name in names {
                count += 1;
                if count > MAX_WALKED {
                    return Err(
                        "it is a directory with more entries than this change removes".to_owned(),
                    );
                }
                let inner = format!("{path}/{}", text_of(Path::new(&name)));
                if self.deletes(&inner) {
                    continue;
                }
                let stat = self
                    .disk
                    .stat(dir.as_fd(), &name)
                    .map_err(|errno| errno.to_string())?;
                let kind = stat.map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
                if kind != Some(rustix::fs::FileType::Directory) {
                    return Err(format!(
                        "it is a directory that still contains {inner}; move that file first"
                    ));
                }
                todo.push(inner);
            }
            walked.insert(path);
        }
        Ok(())
    }

    /// Checks that the directory is writable, and finds the place of its staging directory: the topmost directory of
    /// the same mount below the root, because a rename cannot cross mounts.
    fn folder(&mut self, folder: &str) -> Result<TargetFolder, String> {
        let message = |errno| from_errno(Path::new(folder), errno).message;
        let mut dir = self
            .disk
            .walk(self.root, OsStr::new("."))
            .map_err(message)?;
        let mut mount = self.disk.mount(dir.as_fd()).map_err(message)?;
        let (mut top, mut missing) = ("", Vec::new());
        let path = format!("{folder}/");
        for at in parents(&path).filter(|at| !at.is_empty()) {
            let name = at.rsplit('/').next().unwrap_or(at);
            match self.disk.walk(dir.as_fd(), path_of(name).as_os_str()) {
                Ok(next) => dir = next,
                // The same change deletes the file that is in the way; otherwise the path was refused before.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    missing = parents(&path)
                        .filter(|under| under.len() >= at.len())
                        .map(str::to_owned)
                        .collect();
                    break;
                }
                Err(errno) => return Err(message(errno)),
            }
            let here = self.disk.mount(dir.as_fd()).map_err(message)?;
            if here != mount {
                (mount, top) = (here, at);
            }
        }
        self.disk
            .may_change(dir.as_fd())
            .map_err(|errno| match errno {
                Errno::ACCESS | Errno::PERM => {
                    format!("no permission to write to its directory `{folder}`; check its mode")
                }
                errno => message(errno),
            })?;
        let stage = self
            .stages
            .iter()
            .position(|stage| stage == top)
            .unwrap_or_else(|| {
                self.stages.push(top.to_owned());
                self.stages.len() - 1
            });
        Ok(TargetFolder { stage, missing })
    }

    /// Directories that are missing and have to be created.
    fn made(&self) -> Vec<String> {
        let arriving = self.set.values().filter(|swap| swap.after.is_there());
        let arriving: BTreeSet<&str> = arriving.map(|swap| parent(&swap.path)).collect();
        let folders = self
            .folders
            .iter()
            .filter(|(folder, _)| arriving.contains(folder.as_str()));
        let made: BTreeSet<&String> = folders
            .filter_map(|(_, it)| it.as_ref().ok())
            .flat_map(|it| &it.missing)
            .collect();
        made.into_iter().cloned().collect()
    }

    /// Directories that the deletes may leave empty, deepest first. Directories in which a file stays or arrives are
    /// left out.
    fn emptied(
        &self,
        walked: BTreeSet<String>,
        which: EmptiedFolders,
    ) -> Result<Vec<EmptiedDir>, FileError> {
        let (mut emptied, mut needed) = (walked, BTreeSet::new());
        for swap in self.set.values() {
            let above = parents(&swap.path).map(str::to_owned);
            if swap.after.is_there() {
                needed.extend(above)
            } else if swap.before.is_there() && which == EmptiedFolders::Remove {
                emptied.extend(above)
            }
        }
        let mut dirs = Vec::new();
        for path in emptied
            .into_iter()
            .filter(|path| !needed.contains(path) && !self.stages.contains(path))
        {
            let Some(dir) = dir_at(self.disk, self.root, &path)? else {
                continue;
            };
            let stat = self
                .disk
                .stat_of(&dir)
                .map_err(|errno| from_errno(Path::new(&path), errno))?;
            let above = self
                .stages
                .iter()
                .enumerate()
                .filter(|(_, stage)| Path::new(&path).starts_with(stage));
            let stage = above
                .max_by_key(|(_, stage)| stage.len())
                .map_or(0, |(at, _)| at);
            dirs.push(EmptiedDir {
                mode: mode_of(&stat),
                stage,
                path,
            });
        }
        dirs.sort_by_key(|dir| std::cmp::Reverse(dir.path.matches('/').count()));
        Ok(dirs)
    }

    /// Extends the reason if the directory has the same name in another case.
    fn hint(&self, swap: &Swap, reason: String) -> String {
        let name = swap.path.rsplit('/').next().unwrap_or_default();
        let names = dir_at(self.disk, self.root, parent(&swap.path))
            .ok()
            .flatten();
        let names = names
            .and_then(|dir| self.disk.names(dir.as_fd()).ok())
            .unwrap_or_default();
        let other = names
            .iter()
            .filter_map(|other| other.to_str())
            .find(|other| differ_only_in_case(other, name));
        match other {
            Some(other) if !names.iter().any(|exact| exact == name) => {
                format!(
                    "{reason} (it is spelled `{other}` there, and this file system treats both as one name)"
                )
            }
            _ => reason,
        }
    }
}

/// Checks the mode and the symlink target of the new image.
fn check_image(swap: &Swap) -> Result<(), String> {
    let mode = |image: &Image| {
        if let Image::File { mode, .. } = image {
            *mode
        } else {
            0
        }
    };
    let (before, after) = (mode(&swap.before), mode(&swap.after));
    if after & 0o6000 & !before != 0 {
        return Err(
            "it would run with the rights of its owner (set-user-id or set-group-id); remove that bit from its mode"
                .to_owned(),
        );
    }
    if matches!(swap.after, Image::File { .. }) && after & 0o400 == 0 {
        return Err("its owner could not read it; give its owner read permission".to_owned());
    }
    match &swap.after {
        Image::Link { target }
            if target.is_empty() || target.contains('\0') || target.len() > 4095 =>
        {
            Err("it is a symlink with an invalid target".to_owned())
        }
        _ => Ok(()),
    }
}

/// Paths of one change that are the same name on a file system that ignores case.
pub(super) fn clashes<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<RefusedPath> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let clash = |path: &'a str| {
        let other = seen.insert(path.to_lowercase(), path)?;
        Some(RefusedPath::new(
            path,
            &format!("on this file system it has the same name as {other}; rename one of them"),
        ))
    };
    paths.filter_map(clash).collect()
}

fn differ_only_in_case(a: &str, b: &str) -> bool {
    a != b && a.to_lowercase() == b.to_lowercase()
}

/// Describes the difference between the expected image and the actual one.
pub(super) fn conflict_reason(before: &Image, seen: &PathState) -> String {
    match (before, seen) {
        (_, PathState::Directory) => "a directory is at this path; move it first".to_owned(),
        (_, PathState::Special) => {
            "a pipe, socket or device is at this path; move it first".to_owned()
        }
        (_, PathState::Blocked(at, FileKind::Link)) => {
            format!("its parent {at} is a symlink, and a landing does not follow symlinks")
        }
        (_, PathState::Blocked(at, _)) => format!("its parent {at} is a file, not a directory"),
        (Image::Absent, _) => {
            "another program created this file meanwhile; move it first".to_owned()
        }
        (_, PathState::Image(Image::Absent)) => "it was deleted meanwhile".to_owned(),
        (
            Image::File { hash, mode, .. },
            PathState::Image(Image::File {
                hash: now,
                mode: now_mode,
                ..
            }),
        ) if hash == now => {
            format!("its mode was changed meanwhile ({mode:o}, now {now_mode:o})")
        }
        (Image::Link { .. }, PathState::Image(Image::File { .. })) => {
            "it was a symlink and became a file meanwhile".to_owned()
        }
        (Image::File { .. }, PathState::Image(Image::Link { .. })) => {
            "it became a symlink meanwhile".to_owned()
        }
        _ => "it was changed meanwhile".to_owned(),
    }
}
