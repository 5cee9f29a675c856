//! Brings what a command's layer took into the workspace: files of the source set as a landing does, all of them or
//! none but those that somebody else changed meanwhile; outputs and what git keeps by moving them. Every place is
//! opened beneath the root and through no link.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps};
use windlass_core::image::Swap;
use windlass_core::workspace::FileError;

use super::layer::CommandLayer;
use super::taken::{self, Plain, Taken};
use super::undo::Undo;
use crate::landing::{LandError, Source, land};

/// A landing that meets what somebody else wrote is tried again without it, so often.
const TRIES: usize = 3;
/// How long is waited for another landing to end, and how often.
const BUSY: (usize, Duration) = (100, Duration::from_millis(20));
/// What the kernel notes on the files of a layer, and is of no use outside.
const NOTES: [&str; 5] = [
    "user.overlay.opaque",
    "user.overlay.impure",
    "user.overlay.origin",
    "user.overlay.nlink",
    "user.overlay.uuid",
];
/// A longer list is cut, for those who read it.
const MAX_TOLD: usize = 20;

/// The bytes of new files are in the layer.
struct Upper<'a>(&'a Path);

impl Source for Upper<'_> {
    fn open(&self, swap: &Swap) -> io::Result<File> {
        File::open(self.0.join(&swap.path))
    }
}

/// Merges a layer whose command has ended, and notes what is needed to take it back. Gives what is to be told of it.
pub(super) fn merge(undo: &Undo, layer: &CommandLayer) -> Result<Option<String>, FileError> {
    let mut taken = taken::read(&undo.root, layer)?;
    let merge = Merge {
        undo,
        upper: &layer.upper,
        last: RefCell::default(),
    };
    merge.land(&mut taken);
    for one in std::mem::take(&mut taken.plain) {
        if let Err(err) = merge.plain(&one) {
            taken
                .kept_out
                .push((one.path().to_string_lossy().into_owned(), err.to_string()));
        }
    }
    merge.folders(&taken);
    for path in &taken.times {
        // A time that cannot be set costs a build, and nothing else.
        let _ = merge.give_time(Path::new(path));
    }
    for (path, why) in taken.lost {
        undo.lose(&path, why);
    }
    Ok(told(&taken.kept_out))
}

/// What is said of paths that stayed as they are.
fn told(kept_out: &[(String, String)]) -> Option<String> {
    if kept_out.is_empty() {
        return None;
    }
    let mut lines: Vec<String> = kept_out
        .iter()
        .take(MAX_TOLD)
        .map(|(path, why)| format!("{path}: {why}"))
        .collect();
    if kept_out.len() > MAX_TOLD {
        lines.push(format!("and {} more", kept_out.len() - MAX_TOLD));
    }
    Some(format!(
        "not changed in the workspace: {}",
        lines.join("; ")
    ))
}

struct Merge<'a> {
    undo: &'a Undo,
    upper: &'a Path,
    /// The folder that was opened last: many files come to one.
    last: RefCell<Option<(PathBuf, OwnedFd)>>,
}

impl Merge<'_> {
    fn land(&self, taken: &mut Taken) {
        let mut busy = BUSY.0;
        let mut tries = TRIES;
        while !taken.swaps.is_empty() {
            let (undo, source) = (self.undo, Upper(self.upper));
            match land(
                &undo.root,
                &taken.swaps,
                &source,
                &undo.contents,
                &undo.journal,
            ) {
                Ok(done) => {
                    for not_kept in done.not_kept {
                        undo.lose(&not_kept.path, not_kept.reason);
                    }
                    for swap in taken.swaps.drain(..) {
                        undo.note(&swap.path, swap.before);
                    }
                }
                Err(LandError::Conflict { refused, .. }) if tries > 0 => {
                    tries -= 1;
                    let before = taken.swaps.len();
                    taken
                        .swaps
                        .retain(|swap| refused.iter().all(|one| one.path != swap.path));
                    if taken.swaps.len() == before {
                        tries = 0;
                    }
                    taken
                        .kept_out
                        .extend(refused.into_iter().map(|one| (one.path, one.reason)));
                }
                Err(LandError::Busy) if busy > 0 => {
                    busy -= 1;
                    std::thread::sleep(BUSY.1);
                }
                Err(err) => {
                    let why = err.to_string();
                    taken
                        .kept_out
                        .extend(taken.swaps.drain(..).map(|swap| (swap.path, why.clone())));
                }
            }
        }
        let kept_out: Vec<&String> = taken.kept_out.iter().map(|(path, _)| path).collect();
        taken.times.retain(|path| !kept_out.contains(&path));
    }

    fn plain(&self, one: &Plain) -> io::Result<()> {
        let (parent, name) = match one {
            Plain::Put(path) => (self.parent(path, true)?, path.file_name()),
            Plain::Remove(path) => (self.parent(path, false)?, path.file_name()),
        };
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        let place = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd())).join(name);
        match one {
            Plain::Remove(_) => remove(&place),
            Plain::Put(path) => {
                let from = self.upper.join(path);
                forget_notes(&from);
                let is_folder = std::fs::symlink_metadata(&from)?.is_dir();
                let flags = if is_folder {
                    RenameFlags::NOREPLACE
                } else {
                    RenameFlags::empty()
                };
                match rustix::fs::renameat_with(rustix::fs::CWD, &from, &parent, name, flags) {
                    Err(rustix::io::Errno::XDEV) => copy(&from, &place),
                    other => Ok(other?),
                }
            }
        }
    }

    fn folders(&self, taken: &Taken) {
        for path in &taken.gone {
            // One in which something was left stays.
            if let (Ok(parent), Some(name)) = (self.parent(path, false), path.file_name()) {
                let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
            }
        }
        for (path, mode) in &taken.folders {
            let (Ok(parent), Some(name)) = (self.parent(path, true), path.file_name()) else {
                continue;
            };
            let _ = rustix::fs::mkdirat(&parent, name, Mode::RWXU);
            if let Ok(folder) = open_folder(parent.as_fd(), Path::new(name)) {
                let _ = File::from(folder).set_permissions(std::fs::Permissions::from_mode(*mode));
            }
        }
    }

    fn give_time(&self, path: &Path) -> io::Result<()> {
        let about = std::fs::symlink_metadata(self.upper.join(path))?;
        let parent = self.parent(path, false)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::fs::utimensat(
            &parent,
            name,
            &times_of(&about),
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// The folder that a path of the workspace is in, made where it is missing and wanted.
    fn parent(&self, path: &Path, make: bool) -> io::Result<OwnedFd> {
        let above = path.parent().unwrap_or(Path::new(""));
        let mut last = self.last.borrow_mut();
        if let Some((_, folder)) = last.as_ref().filter(|(known, _)| known == above) {
            return folder.try_clone();
        }
        let mut folder = self.undo.root.handle().try_clone_to_owned()?;
        for part in above.components() {
            let name = Path::new(part.as_os_str());
            folder = match open_folder(folder.as_fd(), name) {
                Err(rustix::io::Errno::NOENT) if make => {
                    rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                    open_folder(folder.as_fd(), name)?
                }
                other => other?,
            };
        }
        *last = Some((above.to_owned(), folder.try_clone()?));
        Ok(folder)
    }
}

fn open_folder(parent: std::os::fd::BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}

fn times_of(about: &std::fs::Metadata) -> Timestamps {
    let time = |seconds: i64, nanos: i64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    Timestamps {
        last_access: time(about.atime(), about.atime_nsec()),
        last_modification: time(about.mtime(), about.mtime_nsec()),
    }
}

/// Takes the kernel's notes off a file; few have any.
fn forget_notes(path: &Path) {
    if rustix::fs::llistxattr(path, &mut [] as &mut [u8]).is_ok_and(|len| len > 0) {
        for note in NOTES {
            let _ = rustix::fs::lremovexattr(path, note);
        }
    }
}

/// Removes what is at a path, itself; what is gone already is fine.
fn remove(place: &Path) -> io::Result<()> {
    let gone = match std::fs::symlink_metadata(place) {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(place),
        Ok(_) => std::fs::remove_file(place),
        Err(err) => Err(err),
    };
    match gone {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Copies what cannot be moved because it lies on another disk, with modes and times.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let about = std::fs::symlink_metadata(from)?;
    if about.is_symlink() {
        remove(to)?;
        return std::os::unix::fs::symlink(std::fs::read_link(from)?, to);
    }
    if about.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)?.flatten() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return std::fs::set_permissions(to, about.permissions());
    }
    if !about.is_file() {
        return Ok(());
    }
    // Whole or not at all: it is given its name when it is complete.
    let draft = to.with_file_name(format!(
        ".windlass-merge-{:016x}",
        windlass_host::clock::random_u64()
    ));
    let copied = std::fs::copy(from, &draft).and_then(|_| {
        rustix::fs::utimensat(
            rustix::fs::CWD,
            &draft,
            &times_of(&about),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        std::fs::rename(&draft, to)
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    copied
}
