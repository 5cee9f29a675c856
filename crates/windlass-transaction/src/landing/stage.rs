//! Staging: writes all new files, with their modes, and syncs them before anything is swapped. A staging directory is
//! private to its owner, and its files are named by the index of their swap.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::FileError;

use super::check::clashes;
use super::contents::copy;
use super::disk::Disk;
use super::journal::Journal;
use super::path_state::{PathLocation, dir_at, find};
use super::{ByteSource, LandingFailure};
use crate::path::path_of;
use windlass_host::workspace::{from_errno, from_io};

/// The slot of the new file of a swap. After an exchange it holds the old file.
pub(super) fn new_name(at: usize) -> OsString {
    OsString::from(format!("{at}.new"))
}

/// The slot of an old file that was moved out of its path.
pub(super) fn old_name(at: usize) -> OsString {
    OsString::from(format!("{at}.old"))
}

/// The slot of an empty directory that a rollback restores.
pub(super) fn dir_name(at: usize) -> OsString {
    OsString::from(format!("{at}.dir"))
}

pub(super) fn make(disk: &Disk, root: BorrowedFd<'_>, journal: &Journal) -> Result<(), FileError> {
    for at in &journal.stages {
        let fail = |errno| from_errno(Path::new(if at.is_empty() { "." } else { at }), errno);
        let dir = dir_at(disk, root, at)?.ok_or_else(|| fail(Errno::NOENT))?;
        disk.make_dir(dir.as_fd(), OsStr::new(&journal.name), 0o700)
            .map_err(fail)?;
        disk.sync_dir(dir.as_fd()).map_err(fail)?;
    }
    Ok(())
}

/// Opens the staging directories, in order; `None` for one that does not exist.
pub(super) fn open(
    disk: &Disk,
    root: BorrowedFd<'_>,
    journal: &Journal,
) -> Result<Vec<Option<OwnedFd>>, FileError> {
    let opened = |at: &String| {
        let path = if at.is_empty() {
            journal.name.clone()
        } else {
            format!("{at}/{}", journal.name)
        };
        dir_at(disk, root, &path)
    };
    journal.stages.iter().map(opened).collect()
}

/// Writes every new file, and makes the directories that a rollback restores, so that a rollback needs no disk space.
pub(super) fn fill(
    disk: &Disk,
    root: BorrowedFd<'_>,
    journal: &Journal,
    source: &dyn ByteSource,
) -> Result<(), LandingFailure> {
    refuse_clashes(disk, root, journal)?;
    let stages = open(disk, root, journal)?;
    for (at, (swap, stage)) in journal.swaps.iter().enumerate() {
        let Some(Some(dir)) = stages.get(*stage) else {
            return Err(from_errno(Path::new(&swap.path), Errno::NOENT).into());
        };
        let file = stage_file(disk, root, dir.as_fd(), &new_name(at), swap, source)?;
        if let Some(file) = file.filter(|_| !journal.is_large()) {
            disk.sync(&file)
                .map_err(|errno| from_errno(Path::new(&swap.path), errno))?;
        }
    }
    for (at, dir) in journal.emptied.iter().enumerate() {
        if let Some(Some(stage)) = stages.get(dir.stage) {
            disk.make_dir(stage.as_fd(), &dir_name(at), 0o700)
                .map_err(|errno| from_errno(Path::new(&dir.path), errno))?;
        }
    }
    for dir in stages.iter().flatten() {
        let synced = if journal.is_large() {
            disk.sync_all(dir.as_fd())
        } else {
            disk.sync_dir(dir.as_fd())
        };
        synced.map_err(|errno| from_errno(Path::new(&journal.name), errno))?;
    }
    Ok(())
}

/// On a file system that ignores case, two paths may be the same name. This can be tested only with an existing entry
/// of known spelling: the staging directory itself.
fn refuse_clashes(
    disk: &Disk,
    root: BorrowedFd<'_>,
    journal: &Journal,
) -> Result<(), LandingFailure> {
    let other = journal.name.to_uppercase();
    let found = disk
        .stat(root, OsStr::new(&other))
        .map_err(|errno| from_errno(Path::new(&other), errno))?;
    let arriving = journal
        .swaps
        .iter()
        .filter(|(swap, _)| swap.after.is_there());
    match found.map(|_| clashes(arriving.map(|(swap, _)| swap.path.as_str()))) {
        Some(clashes) if !clashes.is_empty() => Err(LandingFailure::Conflict(clashes)),
        _ => Ok(()),
    }
}

/// Writes a new file, or creates a symlink.
fn stage_file(
    disk: &Disk,
    root: BorrowedFd<'_>,
    stage: BorrowedFd<'_>,
    name: &OsStr,
    swap: &Swap,
    source: &dyn ByteSource,
) -> Result<Option<File>, LandingFailure> {
    let path = Path::new(&swap.path);
    let fail = |errno| from_errno(path, errno);
    match &swap.after {
        Image::Absent => Ok(None),
        Image::Link { target } => {
            let target = path_of(target);
            disk.make_link(target.as_os_str(), stage, name)
                .map_err(fail)?;
            Ok(None)
        }
        Image::File { hash, size, mode } => {
            let from = source.open(swap).map_err(|err| from_io(path, &err))?;
            let file = disk.create(stage, name, 0o600).map_err(fail)?;
            if copy(disk, &from, &file).map_err(fail)? != (hash.clone(), *size) {
                let reason = "its bytes changed after they were checked; run again, and let nothing write to \
                              the copy meanwhile";
                return Err(LandingFailure::conflict(&swap.path, reason));
            }
            let own_attributes = source.has_attributes();
            if matches!(swap.before, Image::File { .. }) {
                copy_owner(disk, root, &file, swap, !own_attributes)?;
            }
            if own_attributes {
                disk.copy_attributes_and_times(&from, &file).map_err(fail)?;
            }
            disk.set_mode(&file, *mode).map_err(fail)?;
            Ok(Some(file))
        }
    }
}

/// Gives a new file the owner of the file that it replaces, and its extended attributes if `attributes` is set.
fn copy_owner(
    disk: &Disk,
    root: BorrowedFd<'_>,
    file: &File,
    swap: &Swap,
    attributes: bool,
) -> Result<(), LandingFailure> {
    let path = Path::new(&swap.path);
    let fail = |errno| from_errno(path, errno);
    let PathLocation::Found(dir, name) = find(disk, root, &swap.path)? else {
        return Ok(());
    };
    let Some(old) = disk.stat(dir.as_fd(), &name).map_err(fail)? else {
        return Ok(());
    };
    let fresh = disk.stat_of(file).map_err(fail)?;
    if fresh.st_uid != old.st_uid {
        match disk.set_owner(file, Some(old.st_uid), Some(old.st_gid)) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::INVAL) => {
                let reason = format!(
                    "it belongs to another user (uid {}); change its owner first, or leave it out",
                    old.st_uid
                );
                return Err(LandingFailure::conflict(&swap.path, &reason));
            }
            Err(errno) => return Err(fail(errno).into()),
        }
    } else if fresh.st_gid != old.st_gid {
        // We cannot set a group that we are not a member of. The file then has our group, as a newly created file
        // would.
        let _ = disk.set_owner(file, None, Some(old.st_gid));
    }
    if attributes {
        disk.copy_attributes(dir.as_fd(), &name, file)
            .map_err(fail)?;
    }
    Ok(())
}

/// Removes the staging directories with their content. A directory in one of them that is not empty was not made by the
/// landing: it stays, and the path of its staging directory is returned.
pub(super) fn clean(
    disk: &Disk,
    root: BorrowedFd<'_>,
    journal: &Journal,
) -> Result<Vec<String>, FileError> {
    let mut left = Vec::new();
    for (at, dir) in journal.stages.iter().zip(open(disk, root, journal)?) {
        let Some(dir) = dir else { continue };
        let fail = |errno| from_errno(Path::new(&journal.name), errno);
        for name in disk.names(dir.as_fd()).map_err(fail)? {
            match disk.remove(dir.as_fd(), &name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => match disk.remove_dir(dir.as_fd(), &name) {
                    Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                    Err(errno) => return Err(fail(errno)),
                },
                Err(errno) => return Err(fail(errno)),
            }
        }
        let Some(above) = dir_at(disk, root, at)? else {
            continue;
        };
        match disk.remove_dir(above.as_fd(), OsStr::new(&journal.name)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                left.push(Path::new(at).join(&journal.name).display().to_string())
            }
            Err(errno) => return Err(fail(errno)),
        }
    }
    Ok(left)
}
