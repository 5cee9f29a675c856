//! What is at a path now, by content. Nothing on the way is followed: not the last name and not a parent, so that
//! a path means exactly one place beneath the root. Nothing is changed here.

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

/// As many bytes of a file are in memory at once.
pub(super) const CHUNK: usize = 256 * 1024;
/// A read of fewer bytes uses a buffer on the stack: clearing a large buffer costs more than reading a small file.
const SMALL: usize = 16 * 1024;
/// How often something that changes while it is looked at is looked at again.
const MAX_LOOKS: u32 = 8;
/// Longer paths are refused before the system sees them.
const MAX_PATH: usize = 4096;

/// What is at a path: what can be swapped, or what is in the way of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// A file, a link or nothing.
    Image(Image),
    /// A directory.
    Directory,
    /// A pipe, a socket or a device.
    Special,
    /// A parent is not a directory: its path and what it is.
    Blocked(String, FileKind),
}

impl Seen {
    /// Whether it is exactly this.
    pub(super) fn is(&self, image: &Image) -> bool {
        matches!(self, Self::Image(seen) if seen == image)
    }
}

/// The image of what is at a path of the tree now. The last link is not followed, and no parent may be one.
pub fn look(root: &Root, path: &str) -> Result<Image, FileError> {
    let no_file = |kind| wrong_kind(Path::new(path), kind, FileKind::File);
    match see(&Disk::default(), root.handle(), path)? {
        Seen::Image(image) => Ok(image),
        Seen::Directory => Err(no_file(FileKind::Directory)),
        Seen::Special => Err(no_file(FileKind::Special)),
        Seen::Blocked(at, kind) => Err(wrong_kind(Path::new(&at), kind, FileKind::Directory)),
    }
}

/// What is at a path of the tree.
pub(super) fn see(disk: &Disk, root: BorrowedFd<'_>, path: &str) -> Result<Seen, FileError> {
    let fail = |errno| from_errno(Path::new(path), errno);
    match find(disk, root, path)? {
        Spot::There(dir, name) => see_at(disk, dir.as_fd(), &name, path),
        Spot::NoParent => Ok(Seen::Image(Image::Absent)),
        Spot::Blocked(at, dir, name) => {
            let stat = disk.stat(dir.as_fd(), &name).map_err(fail)?;
            let kind = stat.map_or(FileKind::Special, |stat| {
                kind_of(FileType::from_raw_mode(stat.st_mode))
            });
            Ok(Seen::Blocked(at, kind))
        }
    }
}

/// What is at a name of a directory; `path` is for messages.
pub(super) fn see_at(
    disk: &Disk,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    path: &str,
) -> Result<Seen, FileError> {
    for _ in 0..MAX_LOOKS {
        match see_once(disk, dir, name) {
            // It became something else, or nothing, between two calls.
            Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => {}
            other => return other.map_err(|errno| from_errno(Path::new(path), errno)),
        }
    }
    Err(from_errno(Path::new(path), Errno::BUSY))
}

fn see_once(disk: &Disk, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<Seen> {
    let Some(stat) = disk.stat(dir, name)? else {
        return Ok(Seen::Image(Image::Absent));
    };
    match kind_of(FileType::from_raw_mode(stat.st_mode)) {
        FileKind::Directory => Ok(Seen::Directory),
        FileKind::Special => Ok(Seen::Special),
        FileKind::Link => {
            let target = to_text(&disk.read_link(dir, name)?);
            Ok(Seen::Image(Image::Link { target }))
        }
        FileKind::File => {
            let file = disk.open(dir, name)?;
            let stat = disk.stat_of(&file)?;
            match kind_of(FileType::from_raw_mode(stat.st_mode)) {
                FileKind::File => {}
                FileKind::Directory => return Ok(Seen::Directory),
                FileKind::Link | FileKind::Special => return Ok(Seen::Special),
            }
            let (hash, size) = hash(disk, &file)?;
            Ok(Seen::Image(Image::File {
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

/// The hash and the length of what is left of a file, piece by piece.
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

/// Where a path leads.
pub(super) enum Spot {
    /// The directory it is in, and its name there.
    There(OwnedFd, OsString),
    /// A parent does not exist.
    NoParent,
    /// A parent is no directory: its path, the directory it is in, and its name there.
    Blocked(String, OwnedFd, OsString),
}

/// Walks to the directory that a path is in, from handle to handle.
pub(super) fn find(disk: &Disk, root: BorrowedFd<'_>, path: &str) -> Result<Spot, FileError> {
    let fail = |errno| from_errno(Path::new(path), errno);
    let parts = parts(path)?;
    // One call for the whole way. Only the walk below says which parent is no directory.
    if let (Some((above, _)), Some(name)) = (path.rsplit_once('/'), parts.last()) {
        match disk.walk_beneath(root, &path_of(above)) {
            Ok(dir) => {
                return Ok(Spot::There(
                    dir,
                    path_of(name).into_owned().into_os_string(),
                ));
            }
            Err(Errno::NOENT) => return Ok(Spot::NoParent),
            Err(_) => {}
        }
    }
    let mut dir = disk.walk(root, OsStr::new(".")).map_err(fail)?;
    for (at, part) in parts.iter().enumerate() {
        let name = path_of(part).into_owned().into_os_string();
        if at + 1 == parts.len() {
            return Ok(Spot::There(dir, name));
        }
        match disk.walk(dir.as_fd(), &name) {
            Ok(next) => dir = next,
            Err(Errno::NOENT) => return Ok(Spot::NoParent),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Ok(Spot::Blocked(parts[..=at].join("/"), dir, name));
            }
            Err(errno) => return Err(fail(errno)),
        }
    }
    Err(bad_path("it is empty"))
}

/// A handle on a directory of the tree, or none when it is not there; the root is the empty path.
pub(super) fn dir_at(
    disk: &Disk,
    root: BorrowedFd<'_>,
    path: &str,
) -> Result<Option<OwnedFd>, FileError> {
    let fail = |errno| from_errno(Path::new(path), errno);
    if path.is_empty() {
        return disk.walk(root, OsStr::new(".")).map(Some).map_err(fail);
    }
    let Spot::There(dir, name) = find(disk, root, path)? else {
        return Ok(None);
    };
    match disk.walk(dir.as_fd(), &name) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(fail(errno)),
    }
}

/// The names of a path that is written in the one way a swap may write it: relative, and nothing but names.
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
        return Err(bad_path("it must be written plainly, as `folder/file`"));
    }
    Ok(parts)
}

/// The directory a path is in; the root is the empty path.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The directories above a path without the root, outermost first.
pub(super) fn parents(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
