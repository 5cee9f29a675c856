//! A workspace that is held by a directory handle. Each file operation starts at the handle and stays beneath it; this
//! is enforced by the open itself and not by an earlier check. Absolute paths under the root are treated as relative
//! ones. This module does not decide whether a file may be touched; it only ensures that the file belongs to this
//! workspace.

mod beneath;
mod discover;
mod error;
mod outside;
mod write;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use windlass_core::CancellationToken;
use windlass_core::workspace::{
    FileError, FileErrorKind, FileKind, FileStat, Files, FindQuery, FoundPaths, GrepQuery, Grepped,
    Listing, Resolved,
};

pub use self::discover::{OpenError, discover};
pub use self::error::{bad_path, from_errno, from_io, kind_of, outside, too_large, wrong_kind};
pub use self::outside::OutsideReads;
pub(crate) use self::write::write_whole;
pub use self::write::{STAGING, copy_attributes, copy_attributes_of, is_draft, is_staging};

use self::beneath::{KernelLookup, LastLink, LocatedPath, WalkLimit, locate};
use self::error::kind_of_stat;

/// Longer paths are refused before a system call.
const MAX_PATH: usize = 4096;
/// The maximum number of names that are read of one directory; more than a person or a model can use.
const MAX_LISTED: usize = 20_000;

/// Opens a file for reading without waiting for a pipe or terminal.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The directory that a session works in, opened once.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// A second path that callers may use for the root: the workspace that a copy was made of.
    alias: Option<PathBuf>,
    kernel: KernelLookup,
    swept: write::SweptDirs,
    /// New files and directories are accessible to their owner only.
    private: bool,
}

impl Root {
    /// Opens a directory without a check whether it is suitable as a workspace; [`Root::open_workspace`] has that
    /// check.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        discover::open_dir(path).map(|(dir, path)| Self::from_handle(path, dir))
    }

    /// Uses an open directory as the tree at this path. Other processes may see another directory at the path.
    pub fn from_handle(path: PathBuf, dir: OwnedFd) -> Self {
        let (kernel, swept) = (KernelLookup::default(), write::SweptDirs::default());
        Self {
            dir,
            path,
            alias: None,
            kernel,
            swept,
            private: false,
        }
    }

    /// Treats paths below `alias` as paths below the root.
    #[must_use]
    pub fn with_alias(self, alias: PathBuf) -> Self {
        Self {
            alias: Some(alias),
            ..self
        }
    }

    /// Opens a directory that an untrusted program writes to: no symlink in it is followed, and new files in it are
    /// accessible to their owner only.
    pub fn open_private(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            kernel: KernelLookup::without_links(),
            private: true,
            ..Self::open(path)?
        })
    }

    /// Opens a directory as a workspace. Refuses `/` and the `unfit` directories, which contain far more than a
    /// project, such as the home directory.
    pub fn open_workspace(path: &Path, unfit: &[PathBuf]) -> Result<Self, OpenError> {
        let root = Self::open(path)?;
        discover::refuse_unfit(&root.path, unfit)?;
        Ok(root)
    }

    /// Returns the handle of the root directory.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Returns whether the directory was deleted after it was opened.
    pub fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.dir).map_or(true, |stat| stat.st_nlink == 0)
    }

    /// Opens a directory of the workspace, to list it or to start a program in it.
    pub fn open_directory(&self, given: &str) -> Result<OwnedFd, FileError> {
        self.open_dir(&self.relative(given)?)
    }

    /// Opens a regular file for reading. Refuses anything else without waiting: a named pipe without a writer must not
    /// block the caller.
    pub fn open_file(&self, path: &Path) -> Result<(File, FileStat), FileError> {
        let opened = beneath::open(self.handle(), path, READ, &self.kernel)?;
        regular(opened, path)
    }

    /// Converts a path to one relative to the root, by its text only. The result may still lead out through a symlink
    /// or `..`; opening it fails then.
    pub fn relative(&self, given: &str) -> Result<PathBuf, FileError> {
        let path = usable(given)?;
        if !path.is_absolute() {
            return Ok(path.to_owned());
        }
        let alias = self
            .alias
            .as_ref()
            .and_then(|alias| path.strip_prefix(alias).ok());
        match path.strip_prefix(&self.path).ok().or(alias) {
            Some(inside) if inside.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(inside) => Ok(inside.to_owned()),
            None => Err(outside(path)),
        }
    }

    /// Opens a directory beneath the root.
    pub fn open_dir(&self, path: &Path) -> Result<OwnedFd, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        beneath::open(self.handle(), path, flags, &self.kernel)
    }

    /// Returns the names in a directory with their kinds, sorted, and the handle of the directory. The empty path is
    /// the root.
    pub fn entries(&self, path: &Path) -> Result<(OwnedFd, Vec<(OsString, FileType)>), FileError> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let fail = |errno| from_errno(path, errno);
        let dir = self.open_dir(path)?;
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    }),
                known => known,
            };
            entries.push((name.to_owned(), kind));
        }
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok((dir, entries))
    }

    fn locate(&self, path: &Path, last: LastLink) -> Result<LocatedPath, FileError> {
        // A path whose text already climbs above the root need not be walked.
        if path.components().next() == Some(Component::ParentDir) {
            return Err(outside(path));
        }
        let last = if self.kernel.no_links() {
            LastLink::Keep
        } else {
            last
        };
        locate(self.handle(), path, last, WalkLimit::Beneath)
    }

    /// Returns the target of a path that leaves the root, so that the gate can judge it; nothing is opened.
    fn resolve_outside(&self, given: &str) -> Result<Resolved, FileError> {
        let path = self.path.join(usable(given)?);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open("/", flags, Mode::empty())
            .map_err(|errno| from_errno(&path, errno))?;
        let located = locate(top.as_fd(), &path, LastLink::Follow, WalkLimit::Anywhere)?;
        let real = Path::new("/").join(located.real_path());
        let (path, inside) = match real.strip_prefix(&self.path) {
            Ok(inside) if inside.as_os_str().is_empty() => (Path::new("."), true),
            Ok(inside) => (inside, true),
            Err(_) => (real.as_path(), false),
        };
        Ok(Resolved {
            path: path.to_string_lossy().into_owned(),
            inside,
            kind: located.kind,
        })
    }
}

impl Files for Root {
    fn root(&self) -> &Path {
        &self.path
    }

    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        let beneath = self
            .relative(path)
            .and_then(|path| self.locate(&path, LastLink::Follow));
        match beneath {
            Ok(located) => {
                let path = located.real_path().to_string_lossy().into_owned();
                Ok(Resolved {
                    path,
                    inside: true,
                    kind: located.kind,
                })
            }
            Err(err) if err.kind == FileErrorKind::Outside => self.resolve_outside(path),
            Err(err) => Err(err),
        }
    }

    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        let path = self.relative(path)?;
        let (file, stat) = self.open_file(&path)?;
        read_whole(file, stat.size, max, &path)
    }

    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        let path = self.relative(path)?;
        let (file, stat) = self.open_file(&path)?;
        read_range(&file, stat.size, offset, len).map_err(|err| from_io(&path, &err))
    }

    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        let path = self.relative(path)?;
        let located = self.locate(&path, LastLink::Follow)?;
        if !located.missing.is_empty() {
            return Err(from_errno(&path, Errno::NOENT));
        }
        let stat = match &located.name {
            Some(name) => rustix::fs::statat(
                located.parent(self.handle()),
                name,
                AtFlags::SYMLINK_NOFOLLOW,
            ),
            None => rustix::fs::fstat(&self.dir),
        };
        stat.map(|stat| stat_of(&stat))
            .map_err(|errno| from_errno(&path, errno))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.write_file(path, bytes)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.remove_file(path)
    }

    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        self.rename_file(from, to, replace)
    }

    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        let path = self.relative(if path.is_empty() { "." } else { path })?;
        let fail = |errno| from_errno(&path, errno);
        let fd = self.open_dir(&path)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == MAX_LISTED {
                break;
            }
            names.push((name.to_owned(), entry.file_type()));
        }
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let more = names.len() > max || names.len() == MAX_LISTED;
        names.truncate(max);
        let entries = names.into_iter().map(|(name, file_type)| {
            // The directory may change meanwhile: a name that is gone keeps the kind that the directory reported.
            let stat = rustix::fs::statat(&fd, &name, AtFlags::SYMLINK_NOFOLLOW)
                .ok()
                .map(|stat| stat_of(&stat));
            let (kind, size) = stat.map_or((kind_of(file_type), 0), |stat| (stat.kind, stat.size));
            (name.to_string_lossy().into_owned(), kind, size)
        });
        Ok(Listing {
            entries: entries.collect(),
            more,
            kept_back: false,
        })
    }

    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        crate::search::find(self, query, cancel)
    }

    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        crate::search::grep(self, query, cancel)
    }
}

/// Opens a regular file by its plain path, for reading. For settings files and other paths that come from the user and
/// not from a model.
pub(crate) fn open_regular(path: &Path) -> Result<(File, FileStat), FileError> {
    let fd = rustix::fs::open(path, READ, Mode::empty());
    regular(fd.map_err(|errno| from_errno(path, errno))?, path)
}

/// Like [`open_regular`], for our own files: does not follow a symlink.
pub(crate) fn open_regular_itself(path: &Path) -> Result<(File, FileStat), FileError> {
    match rustix::fs::open(path, READ | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(fd) => regular(fd, path),
        Err(Errno::LOOP) => Err(wrong_kind(path, FileKind::Link, FileKind::File)),
        Err(errno) => Err(from_errno(path, errno)),
    }
}

/// Reads a regular file that the user named, of at most `max` bytes.
pub fn read_file(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let (file, stat) = open_regular(path)?;
    read_whole(file, stat.size, max, path)
}

/// Opens a regular file that the user named, for reading.
pub fn open_file(path: &Path) -> Result<File, FileError> {
    open_regular(path).map(|(file, _)| file)
}

/// Creates a file that the user named, or truncates an existing one. A new file is accessible to its owner only.
pub fn create_file(path: &Path) -> Result<File, FileError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| from_errno(path, errno))?;
    Ok(File::from(fd))
}

/// Reads an open file of at most `max` bytes.
pub(crate) fn read_whole(
    file: File,
    size: u64,
    max: u64,
    path: &Path,
) -> Result<Vec<u8>, FileError> {
    if size > max {
        return Err(too_large(path, size, max));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    // The file may grow while it is read, and files in /proc report a size of zero.
    let read = file.take(max.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|err| from_io(path, &err))?;
    if bytes.len() as u64 > max {
        return Err(too_large(path, bytes.len() as u64, max));
    }
    Ok(bytes)
}

/// Reads up to `len` bytes at `offset`. The size of the file limits the buffer, even for a huge `len`.
pub(crate) fn read_range(
    file: &File,
    size: u64,
    offset: u64,
    len: u64,
) -> std::io::Result<Vec<u8>> {
    let len = len.min(size.saturating_sub(offset));
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn usable(given: &str) -> Result<&Path, FileError> {
    if given.is_empty() {
        return Err(bad_path("it is empty"));
    }
    if given.len() > MAX_PATH {
        return Err(bad_path("it is too long"));
    }
    if given.contains('\0') {
        return Err(bad_path("it contains a NUL byte"));
    }
    Ok(Path::new(given))
}

fn regular(fd: OwnedFd, path: &Path) -> Result<(File, FileStat), FileError> {
    let stat = rustix::fs::fstat(&fd).map_err(|errno| from_errno(path, errno))?;
    let stat = stat_of(&stat);
    if stat.kind != FileKind::File {
        return Err(wrong_kind(path, stat.kind, FileKind::File));
    }
    Ok((File::from(fd), stat))
}

fn stat_of(stat: &rustix::fs::Stat) -> FileStat {
    FileStat {
        kind: kind_of_stat(stat),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
    }
}

#[cfg(test)]
#[path = "workspace_tests.rs"]
mod tests;
