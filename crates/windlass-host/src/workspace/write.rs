//! Changing a workspace: whole files are written beside their target and renamed over it, so that a reader
//! sees the old bytes or the new ones and never a mixture. Only regular files are ever replaced, and only
//! regular files and links are removed.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use windlass_core::workspace::{FileError, FileErrorKind, FileKind};

use super::Root;
use super::beneath::{LastLink, Spot};
use super::error::{bad_path, from_errno, from_io, read_only, wrong_kind};

/// A fresh name is taken with overwhelming odds; a few tries are plenty.
const NAME_TRIES: u32 = 8;
/// The most bytes of one extended attribute, or of the names of all; longer ones are not kept.
const MAX_ATTRIBUTES: usize = 16 * 1024;
/// Names of one directory that are looked at for drafts that were left.
const MAX_SWEPT: usize = 20_000;
/// What the name of a draft begins with.
const DRAFT: &str = ".windlass-";

impl Root {
    /// Replaces or creates a file as a whole; missing directories are made. A link at the end is written
    /// through, to a target beneath the root.
    pub(super) fn write_file(&self, given: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.relative(given)?;
        let mut spot = self.locate(&path, LastLink::Follow)?;
        let old = self.replaceable(&spot, &path)?;
        let (folders, files) = if self.private {
            (0o700, 0o600)
        } else {
            (0o777, 0o666)
        };
        spot.create_missing(self.handle(), &path, folders)?;
        let Some(name) = spot.name.as_deref() else {
            return Err(wrong_kind(&path, FileKind::Directory, FileKind::File));
        };
        // While it is filled, nobody else sees what takes the place of a private file.
        let mode = if old.is_some() { 0o600 } else { files };
        self.swept.sweep(spot.parent(self.handle()));
        let draft = Draft::create(spot.parent(self.handle()), &path, mode)?;
        draft.fill(bytes, &path)?;
        if let Some(old) = old {
            draft.take_after(&old, name, &path)?;
        }
        draft.publish(name, &path)
    }

    /// The file that a write would replace, or none; an error when it must not be replaced.
    fn replaceable(&self, spot: &Spot, path: &Path) -> Result<Option<rustix::fs::Stat>, FileError> {
        let (Some(kind), Some(name)) = (spot.kind, &spot.name) else {
            return Ok(None);
        };
        if kind != FileKind::File {
            return Err(wrong_kind(path, kind, FileKind::File));
        }
        let parent = spot.parent(self.handle());
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| from_errno(path, errno))?;
        // Renaming over a file needs no right to write it, but a read-only file means "leave this alone".
        let writable = stat.st_mode & 0o222 != 0
            && rustix::fs::accessat(parent, name, Access::WRITE_OK, AtFlags::empty()).is_ok();
        if writable {
            Ok(Some(stat))
        } else {
            Err(read_only(path))
        }
    }

    /// Says whether a file may be replaced: a read-only file means "leave this alone".
    pub fn check_writable(&self, path: &Path) -> Result<(), FileError> {
        let spot = self.locate(path, LastLink::Follow)?;
        self.replaceable(&spot, path).map(drop)
    }

    /// Removes a file or a link (the link itself, not its target). Directories are refused.
    pub(super) fn remove_file(&self, given: &str) -> Result<(), FileError> {
        let path = self.relative(given)?;
        let spot = self.locate(&path, LastLink::Keep)?;
        match (spot.kind, &spot.name) {
            (Some(FileKind::File | FileKind::Link), Some(name)) => {
                rustix::fs::unlinkat(spot.parent(self.handle()), name, AtFlags::empty())
                    .map_err(|errno| from_errno(&path, errno))
            }
            (Some(kind), _) => Err(wrong_kind(&path, kind, FileKind::File)),
            (None, _) => Err(from_errno(&path, Errno::NOENT)),
        }
    }

    /// Moves a file, a link or a directory to another name, both beneath the root; missing directories of
    /// the new name are made.
    pub(super) fn rename_file(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        let (from_path, to_path) = (self.relative(from)?, self.relative(to)?);
        let source = self.locate(&from_path, LastLink::Keep)?;
        let mut target = self.locate(&to_path, LastLink::Keep)?;
        let named = |name: &Option<OsString>| {
            name.clone()
                .ok_or_else(|| bad_path("the workspace itself cannot be moved or replaced"))
        };
        let (source_name, target_name) = (named(&source.name)?, named(&target.name)?);
        match source.kind {
            Some(FileKind::Special) => {
                return Err(wrong_kind(&from_path, FileKind::Special, FileKind::File));
            }
            Some(_) => {}
            None => return Err(from_errno(&from_path, Errno::NOENT)),
        }
        match target.kind {
            Some(_) if !replace => return Err(exists(&to_path)),
            Some(kind) if kind != FileKind::File => {
                return Err(wrong_kind(&to_path, kind, FileKind::File));
            }
            _ => {}
        }
        target.create_missing(self.handle(), &to_path, 0o777)?;
        let source_dir = source.parent(self.handle());
        let target_dir = target.parent(self.handle());
        let renamed = if replace {
            rustix::fs::renameat(source_dir, &source_name, target_dir, &target_name)
        } else {
            rename_new(source_dir, &source_name, target_dir, &target_name)
        };
        renamed.map_err(|errno| {
            if errno == Errno::EXIST {
                exists(&to_path)
            } else {
                from_errno(&to_path, errno)
            }
        })
    }
}

/// Writes a file outside any workspace (a settings file) as a whole: beside its target, then renamed over it.
/// `mode` is for a new file; one that is there keeps its own.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let Some(name) = path.file_name() else {
        return Err(bad_path("it names no file"));
    };
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent =
        rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| from_errno(path, errno))?;
    let draft = Draft::create(parent.as_fd(), path, mode)?;
    draft.fill(bytes, path)?;
    if let Ok(old) = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        draft.take_after(&old, name, path)?;
    }
    draft.publish(name, path)
}

/// The prefix of the names of a landing's staging directories.
pub const STAGING: &str = ".windlass-landing-";

/// Whether a name is that of a staging directory, which is no part of any project.
#[must_use]
pub fn is_staging(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(STAGING));
    random.is_some_and(|random| {
        random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Whether a name is one that a draft has: a killed process may leave one behind, and it is nobody's file.
#[must_use]
pub fn is_draft(name: &OsStr) -> bool {
    let random = name
        .to_str()
        .and_then(|name| name.strip_prefix(DRAFT)?.strip_suffix(".tmp"));
    random.is_some_and(|random| {
        random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The process that made a draft: the first half of what is drawn is its number.
fn maker(name: &OsStr) -> Option<u32> {
    let name = name.to_str().filter(|name| is_draft(OsStr::new(name)))?;
    u32::from_str_radix(name.strip_prefix(DRAFT)?.get(..8)?, 16).ok()
}

/// In doubt it lives.
fn is_alive(process: u32) -> bool {
    let pid = i32::try_from(process)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// The directories in which drafts of dead processes were looked for, each once. Such a draft was left between its
/// naming and the rename, so the write did not happen; whoever does it again comes to the same directory.
#[derive(Debug, Default)]
pub(super) struct Swept(Mutex<BTreeSet<(u64, u64)>>);

impl Swept {
    fn sweep(&self, dir: BorrowedFd<'_>) {
        let Ok(stat) = rustix::fs::fstat(dir) else {
            return;
        };
        let first = self.0.lock().insert((stat.st_dev, stat.st_ino));
        // The handle may be one that only names the directory.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open =
            || rustix::fs::openat(dir, ".", flags, Mode::empty()).and_then(rustix::fs::Dir::new);
        let Some(Ok(entries)) = first.then(open) else {
            return;
        };
        for entry in entries.take(MAX_SWEPT).flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_left = maker(name).is_some_and(|maker| !is_alive(maker));
            if is_left {
                // It is in nobody's way: every list passes over it.
                let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
            }
        }
    }
}

/// A file that nobody sees until it is published. Where the system can, it has no name until then, so that a
/// process that is killed leaves nothing behind; elsewhere it has one that nobody knows.
struct Draft<'a> {
    parent: BorrowedFd<'a>,
    name: Option<String>,
    file: File,
    published: bool,
}

impl<'a> Draft<'a> {
    fn create(parent: BorrowedFd<'a>, path: &Path, mode: u32) -> Result<Self, FileError> {
        let mode = Mode::from_raw_mode(mode & 0o777);
        if let Some(file) = nameless(parent, mode) {
            return Ok(Self {
                parent,
                name: None,
                file,
                published: false,
            });
        }
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let (name, fd) = fresh_name(|name| rustix::fs::openat(parent, name, flags, mode))
            .map_err(|errno| from_errno(path, errno))?;
        Ok(Self {
            parent,
            name: Some(name),
            file: File::from(fd),
            published: false,
        })
    }

    fn fill(&self, bytes: &[u8], path: &Path) -> Result<(), FileError> {
        (&self.file)
            .write_all(bytes)
            .map_err(|err| from_io(path, &err))
    }

    /// Gives the draft the owner, the mode and the attributes of the file it will replace.
    fn take_after(
        &self,
        old: &rustix::fs::Stat,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), FileError> {
        let fresh = rustix::fs::fstat(&self.file).map_err(|errno| from_errno(path, errno))?;
        if (fresh.st_uid, fresh.st_gid) != (old.st_uid, old.st_gid) {
            // Only root may give a file away. Where it is refused the file is simply ours, as a new file would be.
            let owner = rustix::fs::Uid::from_raw(old.st_uid);
            let group = rustix::fs::Gid::from_raw(old.st_gid);
            let _ = rustix::fs::fchown(&self.file, Some(owner), Some(group));
        }
        // As writing in place would, this drops set-user-id and its kin.
        let wanted = old.st_mode & 0o777;
        if fresh.st_mode & 0o777 != wanted {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(wanted))
                .map_err(|errno| from_errno(path, errno))?;
        }
        copy_attributes(self.parent, name, &self.file);
        Ok(())
    }

    fn publish(mut self, name: &OsStr, path: &Path) -> Result<(), FileError> {
        let fail = |errno| from_errno(path, errno);
        let named = match self.name.take() {
            Some(named) => named,
            None => {
                fresh_name(|fresh| give_name(&self.file, self.parent, fresh))
                    .map_err(fail)?
                    .0
            }
        };
        let named = self.name.insert(named);
        rustix::fs::renameat(self.parent, named.as_str(), self.parent, name).map_err(fail)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let (false, Some(name)) = (self.published, &self.name) {
            let _ = rustix::fs::unlinkat(self.parent, name.as_str(), AtFlags::empty());
        }
    }
}

/// Tries names until one is free.
fn fresh_name<T>(mut take: impl FnMut(&str) -> Result<T, Errno>) -> Result<(String, T), Errno> {
    for _ in 0..NAME_TRIES {
        let drawn = crate::clock::random_u64() >> 32;
        let name = format!("{DRAFT}{:08x}{drawn:08x}.tmp", std::process::id());
        match take(&name) {
            Ok(taken) => return Ok((name, taken)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// A file without a name, where the file system has such.
fn nameless(parent: BorrowedFd<'_>, mode: Mode) -> Option<File> {
    // Naming it later goes by its place in /proc.
    rustix::fs::access("/proc/self/fd", Access::EXISTS).ok()?;
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(parent, ".", flags, mode)
        .ok()
        .map(File::from)
}

fn give_name(file: &File, parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(
        rustix::fs::CWD,
        place,
        parent,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )
}

/// Copies access lists, labels and the user's own attributes from one file to another, as far as the system lets us.
pub fn copy_attributes(parent: BorrowedFd<'_>, name: &OsStr, to: &File) {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if let Ok(from) = rustix::fs::openat(parent, name, flags, Mode::empty()) {
        copy_attributes_of(&File::from(from), to);
    }
}

/// The same from a file that is open. Marks that the kernel puts on files of an overlay are left out.
pub fn copy_attributes_of(from: &File, to: &File) {
    // An empty list is the usual answer, and then this is all there is to do.
    let mut names = vec![0; MAX_ATTRIBUTES];
    let Ok(len) = rustix::fs::flistxattr(from, &mut names) else {
        return;
    };
    for name in names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let wanted = (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
            || matches!(name, b"system.posix_acl_access" | b"security.selinux");
        let mut value = vec![0; MAX_ATTRIBUTES];
        let name = OsStr::from_bytes(name);
        if wanted && let Ok(len) = rustix::fs::fgetxattr(from, name, &mut value) {
            let _ = rustix::fs::fsetxattr(to, name, &value[..len], rustix::fs::XattrFlags::empty());
        }
    }
}

/// Renames without ever replacing anything.
fn rename_new(
    from_dir: BorrowedFd<'_>,
    from: &OsStr,
    to_dir: BorrowedFd<'_>,
    to: &OsStr,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        // Not every file system can refuse to replace. A hard link can, for everything but directories.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let linked = rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty());
            linked.map_err(|errno| {
                if errno == Errno::PERM {
                    Errno::INVAL
                } else {
                    errno
                }
            })?;
            rustix::fs::unlinkat(from_dir, from, AtFlags::empty())
        }
        other => other,
    }
}

fn exists(path: &Path) -> FileError {
    FileError {
        kind: FileErrorKind::Exists,
        message: format!(
            "{} already exists; ask to replace it, or choose another name",
            path.display()
        ),
    }
}
