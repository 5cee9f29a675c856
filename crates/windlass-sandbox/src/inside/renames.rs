//! Renames directories in an overlay. Overlayfs refuses to rename a directory that exists in its lower layer (`EXDEV`),
//! and few programs then move its entries one by one, as `mv` does. So renames are suspended (see `notify.rs`), and
//! those of directories are performed here: a new directory is created and gets the entries one by one.
//!
//! A forked process does this with the capabilities and the Landlock rules of the command, so that it can move nothing
//! that the command could not move itself. All other renames are answered with "continue". That is safe, because
//! nothing was judged: whatever the command does to its memory meanwhile, the kernel checks the call as usual.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::command::keep_capabilities;
use super::notify::{self, CallListener, SuspendedCall};
use super::sys;

/// The most calls that are answered before the first process handles other events.
const MAX_AT_ONCE: usize = 64;
/// The deepest directory tree, and the most entries, that are moved.
const MAX_DEPTH: usize = 200;
const MAX_ENTRIES: usize = 1_000_000;

/// Answers the suspended renames of one command.
pub(crate) struct Renames {
    listener: CallListener,
    capabilities: CapabilitySet,
    ruleset: Option<OwnedFd>,
}

/// A path argument of the command.
struct RenamePath {
    base: OwnedFd,
    path: CString,
}

/// The arguments of a rename call.
struct Rename {
    from: RenamePath,
    to: RenamePath,
    flags: RenameFlags,
}

impl Renames {
    pub(crate) fn new(
        listener: OwnedFd,
        capabilities: CapabilitySet,
        ruleset: Option<OwnedFd>,
    ) -> Self {
        Self {
            listener: CallListener::new(listener),
            capabilities,
            ruleset,
        }
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers the pending calls.
    pub(crate) fn serve(&self) {
        for _ in 0..MAX_AT_ONCE {
            let Ok(Some(call)) = self.listener.receive() else {
                return;
            };
            match self.directory_rename(&call) {
                Ok(Some(rename)) => self.perform(&call, &rename),
                Ok(None) | Err(_) => self.listener.let_through(call.id),
            }
        }
    }

    /// Returns the arguments if the call renames a directory.
    fn directory_rename(&self, call: &SuspendedCall) -> Result<Option<Rename>, notify::Errno> {
        let [a, b, c, d, e, _] = call.args;
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let (old_base, old, new_base, new, flags) = match call.number {
            libc::SYS_renameat2 => (a, b, c, d, e),
            libc::SYS_renameat => (a, b, c, d, 0),
            _ => (here, a, here, b, 0),
        };
        let from = self.read_argument(call, old_base, old)?;
        let stat = rustix::fs::statat(&from.base, &from.path, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(&stat) != FileType::Directory {
            return Ok(None);
        }
        let to = self.read_argument(call, new_base, new)?;
        let flags = RenameFlags::from_bits_retain(flags as u32);
        Ok(Some(Rename { from, to, flags }))
    }

    fn read_argument(
        &self,
        call: &SuspendedCall,
        base: u64,
        path: u64,
    ) -> Result<RenamePath, notify::Errno> {
        let path = self.listener.read_path(call, path)?;
        let base = match (path.first(), base as i32) {
            (Some(b'/'), _) => "/".to_owned(),
            (_, libc::AT_FDCWD) => format!("/proc/{}/cwd", call.pid),
            (_, number) => format!("/proc/{}/fd/{number}", call.pid),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(base, flags, Mode::empty())?;
        self.listener.check_waiting(call)?;
        let path = CString::new(path).map_err(|_| notify::Errno(libc::EINVAL))?;
        Ok(RenamePath { base, path })
    }

    /// Performs the rename in a child process with the rights of the command.
    fn perform(&self, call: &SuspendedCall, rename: &Rename) {
        match sys::fork() {
            Ok(Some(_)) => {}
            Err(_) => self.listener.let_through(call.id),
            Ok(None) => {
                let done = match self.bind() {
                    Ok(()) => rename.perform(call.id),
                    Err(_) => Err(Errno::XDEV),
                };
                let done = done.map(|()| 0);
                self.listener.answer(call.id, done.map_err(Into::into));
                sys::exit_now(0)
            }
        }
    }

    fn bind(&self) -> io::Result<()> {
        keep_capabilities(self.capabilities)?;
        rustix::thread::set_no_new_privs(true)?;
        match &self.ruleset {
            Some(ruleset) => sys::landlock_restrict(ruleset.as_fd()),
            None => Ok(()),
        }
    }
}

impl Rename {
    fn perform(&self, id: u64) -> Result<(), Errno> {
        let (from, to) = (&self.from, &self.to);
        match rustix::fs::renameat_with(&from.base, &from.path, &to.base, &to.path, self.flags) {
            Err(Errno::XDEV) if self.flags.difference(RenameFlags::NOREPLACE).is_empty() => {
                self.move_by_entries(id)
            }
            done => done,
        }
    }

    /// Creates a temporary directory, moves the entries into it, and gives it the new name.
    fn move_by_entries(&self, id: u64) -> Result<(), Errno> {
        let (old_parent, old_name) = self.from.split()?;
        let (new_parent, new_name) = self.to.split()?;
        let old = open_directory(old_parent.as_fd(), &old_name)?;
        let (stat, parent) = (rustix::fs::fstat(&old)?, rustix::fs::fstat(&new_parent)?);
        // Between two file systems a rename fails for every process.
        if stat.st_dev != parent.st_dev {
            return Err(Errno::XDEV);
        }
        match rustix::fs::statat(&new_parent, &new_name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(err) => return Err(err),
            Ok(_) if self.flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
            Ok(there) if kind(&there) != FileType::Directory => return Err(Errno::NOTDIR),
            Ok(_) => {
                let there = open_directory(new_parent.as_fd(), &new_name)?;
                if !is_empty(there.as_fd())? {
                    return Err(Errno::NOTEMPTY);
                }
            }
        }
        let between = CString::new(format!(".windlass-rename-{id:x}")).map_err(|_| Errno::INVAL)?;
        rustix::fs::mkdirat(&new_parent, &between, Mode::RWXU)?;
        let new = open_directory(new_parent.as_fd(), &between)?;
        let mut left = MAX_ENTRIES;
        let moved = move_entries(old.as_fd(), new.as_fd(), 0, &mut left)
            .and_then(|()| remove_empty(old_parent.as_fd(), &old_name, 0));
        if let Err(err) = moved {
            // Undo. Entries that cannot be moved back stay in the new directory.
            let mut left = MAX_ENTRIES;
            let _ = move_entries(new.as_fd(), old.as_fd(), 0, &mut left);
            let _ = remove_empty(new_parent.as_fd(), &between, 0);
            return Err(err);
        }
        copy_attributes(new.as_fd(), &stat);
        rustix::fs::renameat(&new_parent, &between, &new_parent, &new_name).inspect_err(|_| {
            let _ = rustix::fs::renameat(&new_parent, &between, &old_parent, &old_name);
        })
    }
}

impl RenamePath {
    /// Opens the parent directory; returns it with the last component of the path.
    fn split(&self) -> Result<(OwnedFd, CString), Errno> {
        let bytes = self.path.as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/');
        let bytes = &bytes[..=end.ok_or(Errno::BUSY)?];
        let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&bytes[..=at], &bytes[at + 1..]),
            None => (&b"."[..], bytes),
        };
        if matches!(name, b"." | b"..") {
            return Err(Errno::BUSY);
        }
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(&self.base, text(parent)?, flags, Mode::empty())?;
        Ok((parent, text(name)?))
    }
}

/// Moves every entry. If a directory cannot be renamed, a new one is created and its entries are moved; the old one
/// stays, empty.
fn move_entries(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    depth: usize,
    left: &mut usize,
) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::LOOP);
    }
    let names = entries(from, *left)?;
    *left = left.checked_sub(names.len()).ok_or(Errno::XDEV)?;
    for name in names {
        match rustix::fs::renameat(from, &name, to, &name) {
            Ok(()) => continue,
            Err(Errno::XDEV | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(err) => return Err(err),
        }
        let old = open_directory(from, &name)?;
        let stat = rustix::fs::fstat(&old)?;
        match rustix::fs::mkdirat(to, &name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(err) => return Err(err),
        }
        let new = open_directory(to, &name)?;
        move_entries(old.as_fd(), new.as_fd(), depth + 1, left)?;
        copy_attributes(new.as_fd(), &stat);
    }
    Ok(())
}

/// Removes a directory that contains only empty directories.
fn remove_empty(parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::LOOP);
    }
    let dir = open_directory(parent, name)?;
    for inner in entries(dir.as_fd(), MAX_ENTRIES)? {
        remove_empty(dir.as_fd(), &inner, depth + 1)?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Copies the mode, owner and times of the old directory.
fn copy_attributes(dir: BorrowedFd<'_>, stat: &Stat) {
    use rustix::fs::{Gid, Uid};
    let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    // Ignore errors: only root may change an owner, and an attribute is no reason to undo the rename.
    let _ = rustix::fs::fchown(dir, Some(owner.0), Some(owner.1));
    let _ = rustix::fs::fchmod(dir, Mode::from_raw_mode(stat.st_mode));
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    let _ = rustix::fs::futimens(dir, &times);
}

fn time(seconds: i64, nanoseconds: impl TryInto<i64>) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.try_into().unwrap_or_default(),
    }
}

/// Lists the names in a directory; fails if there are more than `most`.
fn entries(dir: BorrowedFd<'_>, most: usize) -> Result<Vec<CString>, Errno> {
    let mut all = Vec::new();
    for name in names(dir)? {
        if all.len() >= most {
            return Err(Errno::XDEV);
        }
        all.push(name?);
    }
    Ok(all)
}

fn is_empty(dir: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(names(dir)?.next().transpose()?.is_none())
}

fn names(dir: BorrowedFd<'_>) -> Result<impl Iterator<Item = Result<CString, Errno>>, Errno> {
    let names = Dir::read_from(dir)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    Ok(names.filter(|name| {
        !name
            .as_ref()
            .is_ok_and(|name| matches!(name.as_bytes(), b"." | b".."))
    }))
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rename_path(dir: &Path, path: &str) -> RenamePath {
        let base = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap();
        let path = CString::new(path).unwrap();
        RenamePath { base, path }
    }

    /// Renames by moving entries, as if the kernel had refused the rename.
    fn rename(dir: &Path, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (rename_path(dir, from), rename_path(dir, to));
        let flags = RenameFlags::empty();
        Rename { from, to, flags }.move_by_entries(7)
    }

    #[test]
    fn a_directory_arrives_with_all_that_is_in_it() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/deep/er")).unwrap();
        std::fs::create_dir(at("place")).unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        std::fs::write(at("a/deep/er/file"), "x").unwrap();
        symlink("nowhere", at("a/link")).unwrap();
        std::fs::set_permissions(at("a"), PermissionsExt::from_mode(0o750)).unwrap();
        rename(dir.path(), "a/", "place/b").unwrap();
        assert!(!at("a").exists());
        assert_eq!(std::fs::read(at("place/b/deep/er/file")).unwrap(), b"x");
        assert_eq!(
            std::fs::read_link(at("place/b/link")).unwrap(),
            Path::new("nowhere")
        );
        assert_eq!(
            std::fs::metadata(at("place/b")).unwrap().mode() & 0o7777,
            0o750
        );
        rename(dir.path(), "place/b", "empty").unwrap();
        assert_eq!(std::fs::read(at("empty/deep/er/file")).unwrap(), b"x");
        assert_eq!(
            std::fs::read_dir(at("place")).unwrap().count(),
            0,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_refused_rename_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "full"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("file"), name).unwrap();
        }
        std::fs::write(at("plain"), "").unwrap();
        assert_eq!(rename(dir.path(), "a", "full"), Err(Errno::NOTEMPTY));
        assert_eq!(rename(dir.path(), "a", "plain"), Err(Errno::NOTDIR));
        assert_eq!(rename(dir.path(), "a", "none/b"), Err(Errno::NOENT));
        assert_eq!(rename(dir.path(), "none", "b"), Err(Errno::NOENT));
        assert_eq!(rename(dir.path(), "a/.", "b"), Err(Errno::BUSY));
        assert_eq!(std::fs::read(at("a/file")).unwrap(), b"a");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
