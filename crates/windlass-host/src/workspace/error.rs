//! The error messages for paths and files, in one place so that they stay consistent. Messages contain the path as it
//! was given, and never file content.

use std::io;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;
use windlass_core::workspace::{FileError, FileErrorKind, FileKind};

/// Converts a file type to the type of the ports.
#[must_use]
pub fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Special,
    }
}

pub(crate) fn kind_of_stat(stat: &rustix::fs::Stat) -> FileKind {
    kind_of(FileType::from_raw_mode(stat.st_mode))
}

/// Converts a system error to the error of a path.
#[must_use]
pub fn from_errno(path: &Path, errno: Errno) -> FileError {
    let path = path.display();
    let (kind, message) = match errno {
        Errno::NOENT => (
            FileErrorKind::NotFound,
            format!("{path}: no such file or directory"),
        ),
        Errno::EXIST | Errno::NOTEMPTY => (FileErrorKind::Exists, format!("{path} already exists")),
        Errno::NOTDIR => (
            FileErrorKind::WrongKind,
            format!("{path}: a part of this path is not a directory"),
        ),
        Errno::NXIO => (
            FileErrorKind::WrongKind,
            format!("{path} is a pipe, socket or device; this needs a regular file"),
        ),
        Errno::LOOP => (
            FileErrorKind::BadInput,
            format!("{path}: its symbolic links lead in a circle"),
        ),
        Errno::NAMETOOLONG => (
            FileErrorKind::BadInput,
            "not a usable path: a part of it is too long".to_owned(),
        ),
        Errno::ACCESS | Errno::PERM => (
            FileErrorKind::Permission,
            format!(
                "{path}: permission denied; check its owner and mode, and those of its directory"
            ),
        ),
        Errno::ROFS => (
            FileErrorKind::Permission,
            format!("{path}: the file system is read-only"),
        ),
        Errno::NOSPC | Errno::DQUOT => (
            FileErrorKind::Full,
            format!("{path}: no space is left on the disk; free some and try again"),
        ),
        other => (
            FileErrorKind::Io,
            format!("{path}: {}", io::Error::from(other)),
        ),
    };
    FileError { kind, message }
}

/// Converts an error of the standard library to the error of a path.
#[must_use]
pub fn from_io(path: &Path, err: &io::Error) -> FileError {
    match err.raw_os_error() {
        Some(code) => from_errno(path, Errno::from_raw_os_error(code)),
        None => FileError {
            kind: FileErrorKind::Io,
            message: format!("{}: {err}", path.display()),
        },
    }
}

/// Returns the error for a path that leads out of the workspace.
#[must_use]
pub fn outside(path: &Path) -> FileError {
    FileError {
        kind: FileErrorKind::Outside,
        message: format!(
            "{} leads out of the workspace; use a path inside it (symlinks with absolute targets are not followed)",
            path.display()
        ),
    }
}

/// Returns the error for an unusable path, with the reason.
#[must_use]
pub fn bad_path(why: &str) -> FileError {
    FileError {
        kind: FileErrorKind::BadInput,
        message: format!("not a usable path: {why}"),
    }
}

/// Returns the error for a path with a file of the wrong kind.
#[must_use]
pub fn wrong_kind(path: &Path, found: FileKind, needed: FileKind) -> FileError {
    let name = |kind| match kind {
        FileKind::File => "a regular file",
        FileKind::Directory => "a directory",
        FileKind::Link => "a symbolic link",
        FileKind::Special => "a pipe, socket or device",
    };
    FileError {
        kind: FileErrorKind::WrongKind,
        message: format!(
            "{} is {}; this needs {}",
            path.display(),
            name(found),
            name(needed)
        ),
    }
}

/// Returns the error for a file over a limit, in bytes.
#[must_use]
pub fn too_large(path: &Path, size: u64, limit: u64) -> FileError {
    FileError {
        kind: FileErrorKind::TooLarge,
        message: format!(
            "{} has {size} bytes, more than the limit of {limit}; read a range of it instead",
            path.display()
        ),
    }
}

pub(crate) fn read_only(path: &Path) -> FileError {
    FileError {
        kind: FileErrorKind::Permission,
        message: format!(
            "{} is read-only; change its mode first if it should be written",
            path.display()
        ),
    }
}
