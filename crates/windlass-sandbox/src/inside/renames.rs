//! Renames of directories. A layer refuses to rename a directory that is in what is under it (`EXDEV`), and few programs
//! move such a directory piece by piece, as `mv` does. So renames are suspended, and those of directories are done here:
//! a new directory gets the entries one by one.
//!
//! A process of the first process' own does it, bound to the capabilities and the Landlock rules of the command, so
//! that nothing is moved that the command could not move itself. All other renames are let through to the kernel. That
//! decides nothing: whatever the command makes of its memory meanwhile, the kernel judges the call as any other.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::command::keep_capabilities;
use super::notify::{self, Call, Listener};
use super::sys;

/// Calls that are answered before the first process looks at anything else again.
const MOST_AT_ONCE: usize = 64;
/// Directories in each other, and entries of one renamed directory.
const MAX_DEPTH: usize = 200;
const MAX_ENTRIES: usize = 1_000_000;

/// Answers the suspended renames of one command.
pub(crate) struct Renames {
    listener: Listener,
    capabilities: CapabilitySet,
    fence: Option<OwnedFd>,
}

/// A path of the command, as it gave it.
struct Given {
    base: OwnedFd,
    path: CString,
}

/// One rename.
struct Rename {
    from: Given,
    to: Given,
    flags: RenameFlags,
}

impl Renames {
    pub(crate) fn new(
        listener: OwnedFd,
        capabilities: CapabilitySet,
        fence: Option<OwnedFd>,
    ) -> Self {
        Self {
            listener: Listener::new(listener),
            capabilities,
            fence,
        }
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers the calls that wait.
    pub(crate) fn serve(&self) {
        for _ in 0..MOST_AT_ONCE {
            let Ok(Some(call)) = self.listener.receive() else {
                return;
            };
            match self.of_directory(&call) {
                Ok(Some(rename)) => self.perform(&call, &rename),
                Ok(None) | Err(_) => self.listener.let_through(call.id),
            }
        }
    }

    /// The rename, if it is one of a directory.
    fn of_directory(&self, call: &Call) -> Result<Option<Rename>, notify::Errno> {
        let [a, b, c, d, e, _] = call.args;
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let (old_base, old, new_base, new, flags) = match call.number {
            libc::SYS_renameat2 => (a, b, c, d, e),
            libc::SYS_renameat => (a, b, c, d, 0),
            _ => (here, a, here, b, 0),
        };
        let from = self.given(call, old_base, old)?;
        let stat = rustix::fs::statat(&from.base, &from.path, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(&stat) != FileType::Directory {
            return Ok(None);
        }
        let to = self.given(call, new_base, new)?;
        let flags = RenameFlags::from_bits_retain(flags as u32);
        Ok(Some(Rename { from, to, flags }))
    }

    fn given(&self, call: &Call, base: u64, path: u64) -> Result<Given, notify::Errno> {
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
        Ok(Given { base, path })
    }

    /// Has a process of the command's own rights do it.
    fn perform(&self, call: &Call, rename: &Rename) {
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
        match &self.fence {
            Some(fence) => sys::landlock_restrict(fence.as_fd()),
            None => Ok(()),
        }
    }
}

impl Rename {
    fn perform(&self, id: u64) -> Result<(), Errno> {
        let (from, to) = (&self.from, &self.to);
        match rustix::fs::renameat_with(&from.base, &from.path, &to.base, &to.path, self.flags) {
            Err(Errno::XDEV) if self.flags.difference(RenameFlags::NOREPLACE).is_empty() => {
                self.by_entries(id)
            }
            done => done,
        }
    }

    /// Gives a new directory the entries of the old one, and the new one the name that was asked for.
    fn by_entries(&self, id: u64) -> Result<(), Errno> {
        let (old_parent, old_name) = self.from.split()?;
        let (new_parent, new_name) = self.to.split()?;
        let old = open_directory(old_parent.as_fd(), &old_name)?;
        let (stat, parent) = (rustix::fs::fstat(&old)?, rustix::fs::fstat(&new_parent)?);
        // Two file systems are two for this process, too.
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
            // As it was; what cannot be put back stays where the new directory is.
            let mut left = MAX_ENTRIES;
            let _ = move_entries(new.as_fd(), old.as_fd(), 0, &mut left);
            let _ = remove_empty(new_parent.as_fd(), &between, 0);
            return Err(err);
        }
        take_attributes(new.as_fd(), &stat);
        rustix::fs::renameat(&new_parent, &between, &new_parent, &new_name).inspect_err(|_| {
            let _ = rustix::fs::renameat(&new_parent, &between, &old_parent, &old_name);
        })
    }
}

impl Given {
    /// The directory that holds the last name, and that name.
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

/// Moves every entry. A directory that cannot be renamed is made anew, and its entries are moved; the old one stays.
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
        take_attributes(new.as_fd(), &stat);
    }
    Ok(())
}

/// Removes a directory that holds nothing but such directories.
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

/// Mode, owner and times of the directory that it stands for.
fn take_attributes(dir: BorrowedFd<'_>, stat: &Stat) {
    use rustix::fs::{Gid, Uid};
    let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    // Only root may give files away, and a mode that cannot be set is no reason to undo a rename.
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

/// The names in a directory; more than so many are an error.
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

    fn given(dir: &Path, path: &str) -> Given {
        let base = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap();
        let path = CString::new(path).unwrap();
        Given { base, path }
    }

    /// Renames by entries, as where the kernel refuses.
    fn rename(dir: &Path, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (given(dir, from), given(dir, to));
        let flags = RenameFlags::empty();
        Rename { from, to, flags }.by_entries(7)
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
    fn what_is_refused_changes_nothing() {
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
