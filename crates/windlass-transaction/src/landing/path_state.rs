//! Reads the image at a path. No symlink is followed, neither the last name nor a parent, so that a path always means
//! one place below the root. Nothing is changed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use windlass_core::image::Image;
use windlass_core::path_text::to_text;
use windlass_core::workspace::{FileError, FileKind};

use super::disk::{Disk, Sys};
use crate::path::path_of;
use windlass_host::workspace::{Root, bad_path, from_errno, kind_of, outside, wrong_kind};

/// Bytes of a file that are in memory at once.
pub(super) const CHUNK: usize = 256 * 1024;
/// A read of fewer bytes uses a buffer on the stack: clearing a large buffer costs more than reading a small file.
const SMALL: usize = 16 * 1024;
/// Attempts to read an entry that changes meanwhile.
const MAX_READS: u32 = 8;
/// Longer paths are refused before any system call.
const MAX_PATH: usize = 4096;

/// The state of a path: an image that can be swapped, or an obstacle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathState {
    /// A file, a symlink or nothing.
    Image(Image),
    Directory,
    /// A pipe, a socket or a device.
    Special,
    /// A parent is no directory: the path of the parent and its kind.
    Blocked(String, FileKind),
}

impl PathState {
    pub(super) fn is(&self, image: &Image) -> bool {
        matches!(self, Self::Image(seen) if seen == image)
    }
}

/// Reads the current image at a path of the tree. It does not follow a symlink at the path, and no parent may be one.
pub fn image_at(root: &Root, path: &str) -> Result<Image, FileError> {
    let no_file = |kind| wrong_kind(Path::new(path), kind, FileKind::File);
    match path_state(&Disk::default(), root.handle(), path)? {
        PathState::Image(image) => Ok(image),
        PathState::Directory => Err(no_file(FileKind::Directory)),
        PathState::Special => Err(no_file(FileKind::Special)),
        PathState::Blocked(at, kind) => Err(wrong_kind(Path::new(&at), kind, FileKind::Directory)),
    }
}

/// Reads the state of a path of the tree.
pub(super) fn path_state(
    disk: &Disk,
    root: BorrowedFd<'_>,
    path: &str,
) -> Result<PathState, FileError> {
    let fail = |errno| from_errno(Path::new(path), errno);
    match find(disk, root, path)? {
        PathLocation::Found(dir, name) => entry_state(disk, dir.as_fd(), &name, path),
        PathLocation::NoParent => Ok(PathState::Image(Image::Absent)),
        PathLocation::Blocked(at, dir, name) => {
            let stat = disk.stat(dir.as_fd(), &name).map_err(fail)?;
            let kind = stat.map_or(FileKind::Special, |stat| {
                kind_of(FileType::from_raw_mode(stat.st_mode))
            });
            Ok(PathState::Blocked(at, kind))
        }
    }
}

/// Reads the state of a name in a directory; `path` is for messages.
pub(super) fn entry_state(
    disk: &Disk,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    path: &str,
) -> Result<PathState, FileError> {
    for _ in 0..MAX_READS {
        match entry_state_once(disk, dir, name) {
            // The entry was replaced or deleted between two calls.
            Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => {}
            other => return other.map_err(|errno| from_errno(Path::new(path), errno)),
        }
    }
    Err(from_errno(Path::new(path), Errno::BUSY))
}

fn entry_state_once(disk: &Disk, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<PathState> {
    let Some(stat) = disk.stat(dir, name)? else {
        return Ok(PathState::Image(Image::Absent));
    };
    match kind_of(FileType::from_raw_mode(stat.st_mode)) {
        FileKind::Directory => Ok(PathState::Directory),
        FileKind::Special => Ok(PathState::Special),
        FileKind::Link => {
            let target = to_text(&disk.read_link(dir, name)?);
            Ok(PathState::Image(Image::Link { target }))
        }
        FileKind::File => {
            let file = disk.open(dir, name)?;
            let stat = disk.stat_of(&file)?;
            match kind_of(FileType::from_raw_mode(stat.st_mode)) {
                FileKind::File => {}
                FileKind::Directory => return Ok(PathState::Directory),
                FileKind::Link | FileKind::Special => return Ok(PathState::Special),
            }
            let (hash, size) = hash(disk, &file)?;
            Ok(PathState::Image(Image::File {
                hash,
                size,
                mode: mode_of(&stat),
            }))
        }
    }
}

pub(super) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// The hash and length of the rest of a file, read in chunks.
pub(super) fn hash(disk: &Disk, file: &File) -> Sys<(String, u64)> {
    let mut hasher = blake3::Hasher::new();
    read_pieces(disk, file, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    Ok((hasher.finalize().to_hex().to_string(), hasher.count()))
}

/// Reads the rest of a file and passes it on piece by piece.
pub(super) fn read_pieces(
    disk: &Disk,
    file: &File,
    mut each: impl FnMut(&[u8]) -> Sys<()>,
) -> Sys<()> {
    let (mut small, mut large) = ([0; SMALL], Vec::new());
    loop {
        let buffer = if large.is_empty() {
            &mut small[..]
        } else {
            &mut large[..]
        };
        let read = disk.read(file, buffer)?;
        if read == 0 {
            return Ok(());
        }
        each(buffer.get(..read).unwrap_or_default())?;
        if read == SMALL && large.is_empty() {
            large = vec![0; CHUNK];
        }
    }
}

/// The result of a lookup without following symlinks.
pub(super) enum PathLocation {
    /// The directory of the path, and the name in it.
    Found(OwnedFd, OsString),
    NoParent,
    /// A parent is no directory: the path of the parent, its directory, and its name there.
    Blocked(String, OwnedFd, OsString),
}

/// Opens each directory on a path in turn, and returns the directory that contains the last name.
pub(super) fn find(
    disk: &Disk,
    root: BorrowedFd<'_>,
    path: &str,
) -> Result<PathLocation, FileError> {
    let fail = |errno| from_errno(Path::new(path), errno);
    let parts = parts(path)?;
    // One system call opens the parent. If it fails, the loop below finds out which directory is the obstacle.
    if let (Some((above, _)), Some(name)) = (path.rsplit_once('/'), parts.last()) {
        match disk.walk_beneath(root, &path_of(above)) {
            Ok(dir) => {
                return Ok(PathLocation::Found(
                    dir,
                    path_of(name).into_owned().into_os_string(),
                ));
            }
            Err(Errno::NOENT) => return Ok(PathLocation::NoParent),
            Err(_) => {}
        }
    }
    let mut dir = disk.walk(root, OsStr::new(".")).map_err(fail)?;
    for (at, part) in parts.iter().enumerate() {
        let name = path_of(part).into_owned().into_os_string();
        if at + 1 == parts.len() {
            return Ok(PathLocation::Found(dir, name));
        }
        match disk.walk(dir.as_fd(), &name) {
            Ok(next) => dir = next,
            Err(Errno::NOENT) => return Ok(PathLocation::NoParent),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Ok(PathLocation::Blocked(parts[..=at].join("/"), dir, name));
            }
            Err(errno) => return Err(fail(errno)),
        }
    }
    Err(bad_path("it is empty"))
}

/// Opens a directory of the tree; `None` if it does not exist. The empty path is the root.
pub(super) fn dir_at(
    disk: &Disk,
    root: BorrowedFd<'_>,
    path: &str,
) -> Result<Option<OwnedFd>, FileError> {
    let fail = |errno| from_errno(Path::new(path), errno);
    if path.is_empty() {
        return disk.walk(root, OsStr::new(".")).map(Some).map_err(fail);
    }
    let PathLocation::Found(dir, name) = find(disk, root, path)? else {
        return Ok(None);
    };
    match disk.walk(dir.as_fd(), &name) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(fail(errno)),
    }
}

/// Splits a path into its names. The path must be relative and normalized: only names, separated by single slashes.
pub(super) fn parts(path: &str) -> Result<Vec<&str>, FileError> {
    if path.is_empty() {
        return Err(bad_path("it is empty"));
    }
    let real = path_of(path);
    if real.as_os_str().len() > MAX_PATH || real.as_os_str().as_bytes().contains(&0) {
        return Err(bad_path("it is too long or contains a NUL byte"));
    }
    let components = real.components();
    if components
        .clone()
        .any(|part| !matches!(part, Component::Normal(_)))
    {
        return Err(outside(Path::new(path)));
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() != components.count() {
        return Err(bad_path("it must be normalized, as in `folder/file`"));
    }
    Ok(parts)
}

/// The path of the directory that contains a path; the root is the empty path.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The directories above a path, without the root, outermost first.
pub(super) fn parents(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
