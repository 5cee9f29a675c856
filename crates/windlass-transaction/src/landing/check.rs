//! What is looked at before a landing touches anything: every path is as it was, may be changed, and can be reached.
//! The answer is the order of the work, or everything that speaks against it, each path with its reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{FileError, FileKind};

use super::disk::Disk;
use super::journal::Dir;
use super::look::{Seen, dir_at, mode_of, parent, parents, parts, see};
use super::{LandError, Refused};
use crate::path::{path_of, text_of};
use windlass_host::workspace::from_errno;
use windlass_host::workspace::is_staging;

/// A directory that becomes a file is walked at most so far.
const MAX_WALKED: usize = 100_000;

/// The fate of a directory that the deletes of a change leave empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmptiedFolders {
    /// It goes, as in git.
    Remove,
    /// It stays, unless something else comes to its path.
    Keep,
}

/// The work, in its order.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) swaps: Vec<(Swap, usize)>,
    pub(super) stages: Vec<String>,
    pub(super) made: Vec<String>,
    pub(super) emptied: Vec<Dir>,
}

/// Looks at every path; nothing is changed.
pub(super) fn check(
    disk: &Disk,
    root: BorrowedFd<'_>,
    swaps: &[Swap],
    emptied: EmptiedFolders,
) -> Result<Layout, LandError> {
    let mut check = Check {
        disk,
        root,
        set: BTreeMap::new(),
        folders: HashMap::new(),
        stages: vec![String::new()],
    };
    let mut refused = Vec::new();
    for swap in swaps {
        if check.set.insert(&swap.path, swap).is_some() {
            refused.push(Refused::new(&swap.path, "it is named twice in one change"));
        }
    }
    let mut layout = Layout::default();
    let mut walked = BTreeSet::new();
    for swap in check
        .set
        .clone()
        .into_values()
        .filter(|swap| swap.before != swap.after)
    {
        match check.path(swap, &mut walked) {
            Ok(stage) => layout.swaps.push((swap.clone(), stage)),
            Err(reason) => refused.push(Refused::new(&swap.path, &reason)),
        }
    }
    if !refused.is_empty() {
        return Err(LandError::Conflict {
            refused,
            left: Vec::new(),
        });
    }
    layout.swaps.sort_by_key(|(swap, _)| turn(swap));
    layout.made = check.made();
    layout.emptied = check.emptied(walked, emptied)?;
    layout.stages = check.stages;
    Ok(layout)
}

/// Deletes come first, the deepest of them before all, then what stays in its place, then what is new.
fn turn(swap: &Swap) -> (u8, std::cmp::Reverse<usize>, String) {
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
    (group, std::cmp::Reverse(depth), swap.path.clone())
}

/// The directory a path will be in.
struct Folder {
    stage: usize,
    missing: Vec<String>,
}

struct Check<'a> {
    disk: &'a Disk,
    root: BorrowedFd<'a>,
    set: BTreeMap<&'a str, &'a Swap>,
    folders: HashMap<String, Result<Folder, String>>,
    stages: Vec<String>,
}

impl Check<'_> {
    /// The stage of a path, or what speaks against landing it.
    fn path(&mut self, swap: &Swap, walked: &mut BTreeSet<String>) -> Result<usize, String> {
        let path = swap.path.as_str();
        let parts = parts(path).map_err(|err| err.message)?;
        if parts.iter().any(|part| is_staging(OsStr::new(part))) {
            return Err(
                "it is in a directory of a landing, which is not part of the project".to_owned(),
            );
        }
        sound(swap)?;
        let seen = see(self.disk, self.root, path).map_err(|err| err.message)?;
        match &seen {
            seen if seen.is(&swap.before) => {}
            Seen::Blocked(at, FileKind::File | FileKind::Link)
                if !swap.before.is_there() && self.deletes(at) => {}
            Seen::Directory if !swap.before.is_there() && self.deletes_beneath(path) => {
                self.walk(path, walked)?;
            }
            seen => return Err(self.hint(swap, why(&swap.before, seen))),
        }
        let folder = parent(path);
        if !self.folders.contains_key(folder) {
            let looked = self.folder(folder);
            self.folders.insert(folder.to_owned(), looked);
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

    /// A directory gives way to a file when everything in it goes by the same change.
    fn walk(&self, top: &str, walked: &mut BTreeSet<String>) -> Result<(), String> {
        let mut todo = vec![top.to_owned()];
        let mut count = 0;
        while let Some(path) = todo.pop() {
            let dir = dir_at(self.disk, self.root, &path).map_err(|err| err.message)?;
            let Some(dir) = dir else {
                return Err(format!("{path} changed while it was looked at"));
            };
            let names = self
                .disk
                .names(dir.as_fd())
                .map_err(|errno| from_errno(Path::new(&path), errno).message)?;
            for name in names {
                count += 1;
                if count > MAX_WALKED {
                    return Err(
                        "it is a directory that holds more than this change removes".to_owned()
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
                        "it is a directory that still holds {inner}; move that away first"
                    ));
                }
                todo.push(inner);
            }
            walked.insert(path);
        }
        Ok(())
    }

    /// Whether a directory can be worked in, and where its staging directory goes: at the top of its file system,
    /// as seen from the root, because names cannot be exchanged between two of them.
    fn folder(&mut self, folder: &str) -> Result<Folder, String> {
        let said = |errno| from_errno(Path::new(folder), errno).message;
        let mut dir = self.disk.walk(self.root, OsStr::new(".")).map_err(said)?;
        let mut mount = self.disk.mount(dir.as_fd()).map_err(said)?;
        let (mut top, mut missing) = ("", Vec::new());
        let path = format!("{folder}/");
        for at in parents(&path).filter(|at| !at.is_empty()) {
            let name = at.rsplit('/').next().unwrap_or(at);
            match self.disk.walk(dir.as_fd(), path_of(name).as_os_str()) {
                Ok(next) => dir = next,
                // What is in the way goes by the same change, or the path would have been refused.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    missing = parents(&path)
                        .filter(|under| under.len() >= at.len())
                        .map(str::to_owned)
                        .collect();
                    break;
                }
                Err(errno) => return Err(said(errno)),
            }
            let here = self.disk.mount(dir.as_fd()).map_err(said)?;
            if here != mount {
                (mount, top) = (here, at);
            }
        }
        self.disk
            .may_change(dir.as_fd())
            .map_err(|errno| match errno {
                Errno::ACCESS | Errno::PERM => {
                    format!("its directory `{folder}` may not be written; check its mode")
                }
                errno => said(errno),
            })?;
        let stage = self
            .stages
            .iter()
            .position(|stage| stage == top)
            .unwrap_or_else(|| {
                self.stages.push(top.to_owned());
                self.stages.len() - 1
            });
        Ok(Folder { stage, missing })
    }

    /// Directories that are not there and will be.
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

    /// Directories that the deletes may leave empty, deepest first. One that something stays in or comes to is not
    /// among them.
    fn emptied(
        &self,
        walked: BTreeSet<String>,
        which: EmptiedFolders,
    ) -> Result<Vec<Dir>, FileError> {
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
            dirs.push(Dir {
                mode: mode_of(&stat),
                stage,
                path,
            });
        }
        dirs.sort_by_key(|dir| std::cmp::Reverse(dir.path.matches('/').count()));
        Ok(dirs)
    }

    /// Says so when what is in the way has another spelling of the same name.
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
            .find(|other| same_but_case(other, name));
        match other {
            Some(other) if !names.iter().any(|exact| exact == name) => {
                format!(
                    "{reason} (it is spelled `{other}` there, and this file system takes both for one name)"
                )
            }
            _ => reason,
        }
    }
}

/// What must hold of a change itself.
fn sound(swap: &Swap) -> Result<(), String> {
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
            "it would run with the rights of its owner (set-user-id); take that bit off its mode"
                .to_owned(),
        );
    }
    if matches!(swap.after, Image::File { .. }) && after & 0o400 == 0 {
        return Err(
            "its owner could not read it; give it a mode with which its owner can".to_owned(),
        );
    }
    match &swap.after {
        Image::Link { target }
            if target.is_empty() || target.contains('\0') || target.len() > 4095 =>
        {
            Err("it is a link whose target no file system takes".to_owned())
        }
        _ => Ok(()),
    }
}

/// Paths of one change that are one name where case does not count.
pub(super) fn clashes<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<Refused> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let clash = |path: &'a str| {
        let other = seen.insert(path.to_lowercase(), path)?;
        Some(Refused::new(
            path,
            &format!("on this file system it is the same name as {other}; rename one of them"),
        ))
    };
    paths.filter_map(clash).collect()
}

fn same_but_case(a: &str, b: &str) -> bool {
    a != b && a.to_lowercase() == b.to_lowercase()
}

/// How what is there differs from what was.
pub(super) fn why(before: &Image, seen: &Seen) -> String {
    match (before, seen) {
        (_, Seen::Directory) => "a directory is in its place; move it away first".to_owned(),
        (_, Seen::Special) => {
            "a pipe, socket or device is in its place; move it away first".to_owned()
        }
        (_, Seen::Blocked(at, FileKind::Link)) => {
            format!("its parent {at} is a symbolic link, and nothing is landed through a link")
        }
        (_, Seen::Blocked(at, _)) => format!("its parent {at} is a file, not a directory"),
        (Image::Absent, _) => {
            "something is there that was not there before; move it away first".to_owned()
        }
        (_, Seen::Image(Image::Absent)) => "it was deleted meanwhile".to_owned(),
        (
            Image::File { hash, mode, .. },
            Seen::Image(Image::File {
                hash: now,
                mode: now_mode,
                ..
            }),
        ) if hash == now => {
            format!("its mode was changed meanwhile ({mode:o}, now {now_mode:o})")
        }
        (Image::Link { .. }, Seen::Image(Image::File { .. })) => {
            "it was a link and became a file meanwhile".to_owned()
        }
        (Image::File { .. }, Seen::Image(Image::Link { .. })) => {
            "it became a symbolic link meanwhile".to_owned()
        }
        _ => "it was changed meanwhile".to_owned(),
    }
}
