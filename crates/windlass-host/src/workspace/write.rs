//! Changes files of a workspace. A file is written next to its target and renamed over it, so that a reader sees either
//! the old or the new content. Only regular files are replaced, and only regular files and symlinks are removed.

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
use super::beneath::{LastLink, LocatedPath};
use super::error::{bad_path, from_errno, from_io, read_only, wrong_kind};

/// A random name is free with overwhelming probability; a few attempts are enough.
const MAX_NAME_ATTEMPTS: u32 = 8;
/// The maximum size in bytes of one extended attribute, and of the list of names; larger ones are not copied.
const MAX_ATTRIBUTES: usize = 16 * 1024;
/// The maximum number of names in a directory that are searched for abandoned drafts.
const MAX_SWEPT: usize = 20_000;
/// The prefix of a draft's name.
const DRAFT: &str = ".windlass-";

impl Root {
    /// Creates or replaces a complete file, and creates missing directories. If the last component is a symlink, its
    /// target beneath the root is written.
    pub(super) fn write_file(&self, given: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.relative(given)?;
        let mut located = self.locate(&path, LastLink::Follow)?;
        let old = self.replaceable(&located, &path)?;
        let (folders, files) = if self.private {
            (0o700, 0o600)
        } else {
            (0o777, 0o666)
        };
        located.create_missing(self.handle(), &path, folders)?;
        let Some(name) = located.name.as_deref() else {
            return Err(wrong_kind(&path, FileKind::Directory, FileKind::File));
        };
        // Until it is complete, only the owner may read the replacement of a file that may be private.
        let mode = if old.is_some() { 0o600 } else { files };
        self.swept.sweep(located.parent(self.handle()));
        let draft = Draft::create(located.parent(self.handle()), &path, mode)?;
        draft.fill(bytes, &path)?;
        if let Some(old) = old {
            draft.copy_metadata(&old, name, &path)?;
        }
        draft.publish(name, &path)
    }

    /// Returns the file that a write would replace, if any, or an error if it must not be replaced.
    fn replaceable(
        &self,
        located: &LocatedPath,
        path: &Path,
    ) -> Result<Option<rustix::fs::Stat>, FileError> {
        let (Some(kind), Some(name)) = (located.kind, &located.name) else {
            return Ok(None);
        };
        if kind != FileKind::File {
            return Err(wrong_kind(path, kind, FileKind::File));
        }
        let parent = located.parent(self.handle());
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| from_errno(path, errno))?;
        // A rename needs no write permission on the file, but a read-only file must not be changed.
        let writable = stat.st_mode & 0o222 != 0
            && rustix::fs::accessat(parent, name, Access::WRITE_OK, AtFlags::empty()).is_ok();
        if writable {
            Ok(Some(stat))
        } else {
            Err(read_only(path))
        }
    }

    /// Checks that a file may be replaced. A read-only file must not be changed.
    pub fn check_writable(&self, path: &Path) -> Result<(), FileError> {
        let located = self.locate(path, LastLink::Follow)?;
        self.replaceable(&located, path).map(drop)
    }

    /// Removes a file or a symlink (not its target). Refuses directories.
    pub(super) fn remove_file(&self, given: &str) -> Result<(), FileError> {
        let path = self.relative(given)?;
        let located = self.locate(&path, LastLink::Keep)?;
        match (located.kind, &located.name) {
            (Some(FileKind::File | FileKind::Link), Some(name)) => {
                rustix::fs::unlinkat(located.parent(self.handle()), name, AtFlags::empty())
                    .map_err(|errno| from_errno(&path, errno))
            }
            (Some(kind), _) => Err(wrong_kind(&path, kind, FileKind::File)),
            (None, _) => Err(from_errno(&path, Errno::NOENT)),
        }
    }

    /// Moves a file, a symlink or a directory to another name, both beneath the root, and creates missing directories
    /// of the new name.
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

/// Replaces a complete file outside any workspace (a settings file): writes it next to its target and renames it.
/// `mode` is for a new file; an existing one keeps its mode.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let Some(name) = path.file_name() else {
        return Err(bad_path("it does not name a file"));
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
        draft.copy_metadata(&old, name, path)?;
    }
    draft.publish(name, path)
}

/// The prefix of the names of a landing's staging directories.
pub const STAGING: &str = ".windlass-landing-";

/// Returns whether a name is that of a staging directory, which is not part of any project.
#[must_use]
pub fn is_staging(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(STAGING));
    random.is_some_and(|random| {
        random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Returns whether a name is that of a draft, which a killed process may have left.
#[must_use]
pub fn is_draft(name: &OsStr) -> bool {
    let random = name
        .to_str()
        .and_then(|name| name.strip_prefix(DRAFT)?.strip_suffix(".tmp"));
    random.is_some_and(|random| {
        random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Returns the process that created a draft: the first half of its number is the process id.
fn creator(name: &OsStr) -> Option<u32> {
    let name = name.to_str().filter(|name| is_draft(OsStr::new(name)))?;
    u32::from_str_radix(name.strip_prefix(DRAFT)?.get(..8)?, 16).ok()
}

/// Returns true in case of doubt.
fn is_alive(process: u32) -> bool {
    let pid = i32::try_from(process)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// The directories that were searched for drafts of dead processes, each once. Such a draft was left between its naming
/// and the rename, so the write did not happen; a retry of the write visits the same directory.
#[derive(Debug, Default)]
pub(super) struct SweptDirs(Mutex<BTreeSet<(u64, u64)>>);

impl SweptDirs {
    fn sweep(&self, dir: BorrowedFd<'_>) {
        let Ok(stat) = rustix::fs::fstat(dir) else {
            return;
        };
        let first = self.0.lock().insert((stat.st_dev, stat.st_ino));
        // The handle may be `O_PATH`, which cannot be read.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open =
            || rustix::fs::openat(dir, ".", flags, Mode::empty()).and_then(rustix::fs::Dir::new);
        let Some(Ok(entries)) = first.then(open) else {
            return;
        };
        for entry in entries.take(MAX_SWEPT).flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_left = creator(name).is_some_and(|creator| !is_alive(creator));
            if is_left {
                // An error does no harm: all lists skip drafts.
                let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
            }
        }
    }
}

/// A file that stays invisible until it is published. If the file system supports it, the file has no name until then,
/// so that a killed process leaves nothing behind; otherwise it has a random name.
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

    /// Copies the owner, the mode and the attributes of the file that will be replaced.
    fn copy_metadata(
        &self,
        old: &rustix::fs::Stat,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), FileError> {
        let fresh = rustix::fs::fstat(&self.file).map_err(|errno| from_errno(path, errno))?;
        if (fresh.st_uid, fresh.st_gid) != (old.st_uid, old.st_gid) {
            // Only root may change the owner. Otherwise the file belongs to us, like a new file.
            let owner = rustix::fs::Uid::from_raw(old.st_uid);
            let group = rustix::fs::Gid::from_raw(old.st_gid);
            let _ = rustix::fs::fchown(&self.file, Some(owner), Some(group));
        }
        // This drops the set-user-id bits, as writing in place would.
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

/// Tries random names until one is free.
fn fresh_name<T>(mut take: impl FnMut(&str) -> Result<T, Errno>) -> Result<(String, T), Errno> {
    for _ in 0..MAX_NAME_ATTEMPTS {
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

/// Creates a file without a name, if the file system supports it.
fn nameless(parent: BorrowedFd<'_>, mode: Mode) -> Option<File> {
    // Naming it later needs its path in /proc.
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

/// Copies access lists, security labels and user attributes from one file to another, as far as the system permits.
pub fn copy_attributes(parent: BorrowedFd<'_>, name: &OsStr, to: &File) {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if let Ok(from) = rustix::fs::openat(parent, name, flags, Mode::empty()) {
        copy_attributes_of(&File::from(from), to);
    }
}

/// Like [`copy_attributes`], from an open file. Skips the attributes that overlayfs sets.
pub fn copy_attributes_of(from: &File, to: &File) {
    // The list is usually empty.
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

/// Renames without replacing an existing file.
fn rename_new(
    from_dir: BorrowedFd<'_>,
    from: &OsStr,
    to_dir: BorrowedFd<'_>,
    to: &OsStr,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot refuse to replace. A hard link can, except for directories.
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
