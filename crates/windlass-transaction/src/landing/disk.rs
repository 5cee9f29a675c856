//! All system calls of landing, recovery and the content store. In production the functions only call the kernel. A
//! test counts the calls, and makes one of them fail or ends the process at it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    Access, AtFlags, FlockOperation, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat,
    StatxFlags, Uid,
};
use rustix::io::Errno;

use crate::isolated::copy_tree::times_of;

pub(crate) type Sys<T> = Result<T, Errno>;

/// Maximum entries of one directory that are read.
const MAX_NAMES: usize = 1_000_000;

const WALK: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const NEW: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW);

/// Runs hook each call in a test: it receives the number and the name of the call, and may return an error instead.
#[cfg(test)]
pub(super) type CallHook = Box<dyn Fn(u64, &'static str) -> Sys<()>>;

/// Access to the file system.
#[derive(Default)]
pub(super) struct Disk {
    /// Skips every sync: the writes survive a killed process and not a power cut.
    pub(super) unsynced: bool,
    #[cfg(test)]
    calls: std::cell::Cell<u64>,
    #[cfg(test)]
    hook: Option<CallHook>,
}

impl Disk {
    pub(super) fn unsynced() -> Self {
        Self {
            unsynced: true,
            #[cfg(test)]
            calls: std::cell::Cell::default(),
            #[cfg(test)]
            hook: None,
        }
    }

    #[cfg(test)]
    pub(super) fn with_hook(hook: CallHook) -> Self {
        Self {
            hook: Some(hook),
            ..Self::default()
        }
    }

    #[cfg(test)]
    pub(super) fn calls(&self) -> u64 {
        self.calls.get()
    }

    #[cfg(test)]
    fn step(&self, what: &'static str) -> Sys<()> {
        self.calls.set(self.calls.get() + 1);
        self.hook
            .as_ref()
            .map_or(Ok(()), |hook| hook(self.calls.get(), what))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test counts here")]
    #[expect(clippy::unnecessary_wraps, reason = "a test refuses here")]
    fn step(&self, _: &'static str) -> Sys<()> {
        Ok(())
    }

    /// Opens a directory for further lookups; does not follow a symlink.
    pub(super) fn walk(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<OwnedFd> {
        self.step("walk")?;
        rustix::fs::openat(dir, name, WALK, Mode::empty())
    }

    /// Opens a directory below another one by a path of many names. The kernel follows no symlink on it.
    pub(super) fn walk_beneath(&self, dir: BorrowedFd<'_>, path: &Path) -> Sys<OwnedFd> {
        self.step("walk")?;
        rustix::fs::openat2(dir, path, WALK, Mode::empty(), NO_LINKS)
    }

    /// Opens one of our own directories by its path.
    pub(super) fn open_dir(&self, path: &Path) -> Sys<OwnedFd> {
        self.step("open_dir")?;
        rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    /// Opens a file for reading; does not wait for the writer of a pipe.
    pub(super) fn open(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<File> {
        self.step("open")?;
        rustix::fs::openat(dir, name, READ | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    }

    /// Creates a file that must not exist.
    pub(super) fn create(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Sys<File> {
        self.step("create")?;
        rustix::fs::openat(dir, name, NEW | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
            .map(File::from)
    }

    /// The metadata of a name, without following a symlink; `None` if it does not exist.
    pub(super) fn stat(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<Option<Stat>> {
        self.step("stat")?;
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn stat_of(&self, fd: impl AsFd) -> Sys<Stat> {
        self.step("stat_of")?;
        rustix::fs::fstat(fd)
    }

    /// The mount that a directory is in: its device and mount id. A rename works only within one mount.
    pub(super) fn mount(&self, dir: BorrowedFd<'_>) -> Sys<(u64, u64)> {
        let stat = self.stat_of(dir)?;
        let flags = StatxFlags::MNT_ID;
        // Older kernels do not report the mount id; then the device has to do.
        match rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, flags) {
            Ok(more) if more.stx_mask & flags.bits() != 0 => Ok((stat.st_dev, more.stx_mnt_id)),
            _ => Ok((stat.st_dev, 0)),
        }
    }

    pub(super) fn read_link(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<Vec<u8>> {
        self.step("read_link")?;
        rustix::fs::readlinkat(dir, name, Vec::new()).map(std::ffi::CString::into_bytes)
    }

    pub(super) fn make_link(&self, target: &OsStr, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<()> {
        self.step("make_link")?;
        rustix::fs::symlinkat(target, dir, name)
    }

    pub(super) fn make_dir(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Sys<()> {
        self.step("make_dir")?;
        rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode))
    }

    pub(super) fn remove(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<()> {
        self.step("remove")?;
        rustix::fs::unlinkat(dir, name, AtFlags::empty())
    }

    pub(super) fn remove_dir(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<()> {
        self.step("remove_dir")?;
        rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
    }

    /// Replaces the file at the new name. Only for names in directories of our own.
    pub(super) fn rename(
        &self,
        from: BorrowedFd<'_>,
        old: &OsStr,
        to: BorrowedFd<'_>,
        new: impl AsRef<OsStr>,
    ) -> Sys<()> {
        self.step("rename")?;
        rustix::fs::renameat(from, old, to, new.as_ref())
    }

    /// Fails with `EEXIST` if the new name exists.
    pub(super) fn rename_new(
        &self,
        from: BorrowedFd<'_>,
        old: &OsStr,
        to: BorrowedFd<'_>,
        new: &OsStr,
    ) -> Sys<()> {
        let renamed = self
            .step("rename_new")
            .and_then(|()| rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE));
        match renamed {
            // Not every file system supports RENAME_NOREPLACE. A hard link also fails if the name exists, and works for
            // everything except directories.
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.step("link")?;
                rustix::fs::linkat(from, old, to, new, AtFlags::empty())?;
                self.remove(from, old)
            }
            other => other,
        }
    }

    /// Exchanges two names atomically; both exist hook and after.
    pub(super) fn exchange(
        &self,
        a: BorrowedFd<'_>,
        old: &OsStr,
        b: BorrowedFd<'_>,
        new: &OsStr,
    ) -> Sys<()> {
        self.step("exchange")?;
        rustix::fs::renameat_with(a, old, b, new, RenameFlags::EXCHANGE)
    }

    pub(super) fn set_mode(&self, fd: impl AsFd, mode: u32) -> Sys<()> {
        self.step("set_mode")?;
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
    }

    /// Like [`Self::set_mode`], for a handle that was opened with `O_PATH`.
    pub(super) fn set_dir_mode(&self, dir: BorrowedFd<'_>, mode: u32) -> Sys<()> {
        self.step("set_mode")?;
        rustix::fs::chmodat(dir, ".", Mode::from_raw_mode(mode), AtFlags::empty())
    }

    pub(super) fn set_owner(&self, file: &File, owner: Option<u32>, group: Option<u32>) -> Sys<()> {
        self.step("set_owner")?;
        rustix::fs::fchown(file, owner.map(Uid::from_raw), group.map(Gid::from_raw))
    }

    /// Copies access lists, labels and other extended attributes, as far as the kernel allows it.
    pub(super) fn copy_attributes(&self, dir: BorrowedFd<'_>, name: &OsStr, to: &File) -> Sys<()> {
        self.step("copy_attributes")?;
        windlass_host::workspace::copy_attributes(dir, name, to);
        Ok(())
    }

    /// Copies access lists, labels and times from an open file.
    pub(super) fn copy_attributes_and_times(&self, from: &File, to: &File) -> Sys<()> {
        self.step("copy_attributes_and_times")?;
        windlass_host::workspace::copy_attributes_of(from, to);
        let stat = rustix::fs::fstat(from)?;
        rustix::fs::futimens(to, &times_of(&stat))
    }

    pub(super) fn read(&self, file: &File, buffer: &mut [u8]) -> Sys<usize> {
        self.step("read")?;
        retry_interrupted(|| rustix::io::read(file, &mut *buffer))
    }

    pub(super) fn write(&self, file: &File, mut bytes: &[u8]) -> Sys<()> {
        while !bytes.is_empty() {
            self.step("write")?;
            let written = retry_interrupted(|| rustix::io::write(file, bytes))?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Opens a file whose disk space is reserved already, for [`Self::overwrite`].
    pub(super) fn open_reserved(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<File> {
        self.step("open_reserved")?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::empty()).map(File::from)
    }

    /// Overwrites a part of a file.
    pub(super) fn overwrite(&self, file: &File, bytes: &[u8], at: u64) -> Sys<()> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            self.step("overwrite")?;
            written += retry_interrupted(|| rustix::io::pwrite(file, rest, at + written as u64))?;
        }
        Ok(())
    }

    pub(super) fn truncate(&self, file: &File, length: u64) -> Sys<()> {
        self.step("truncate")?;
        rustix::fs::ftruncate(file, length)
    }

    /// Makes a new file share the bytes of another (reflink), if the file system supports it.
    pub(super) fn clone_bytes(&self, from: &File, to: &File) -> Sys<()> {
        self.step("clone_bytes")?;
        rustix::fs::ioctl_ficlone(to, from)
    }

    pub(super) fn rewind(&self, file: &File) -> Sys<()> {
        self.step("rewind")?;
        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0)).map(|_| ())
    }

    pub(super) fn sync(&self, fd: impl AsFd) -> Sys<()> {
        if self.unsynced {
            return Ok(());
        }
        self.step("sync")?;
        rustix::fs::fsync(fd)
    }

    /// Syncs the whole file system of a directory. For many files this is far cheaper than one sync for each.
    pub(super) fn sync_all(&self, dir: BorrowedFd<'_>) -> Sys<()> {
        if self.unsynced {
            return Ok(());
        }
        self.step("sync_all")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
    }

    /// Syncs the names in a directory. A directory without read permission cannot be synced, and a deleted one need not
    /// be.
    pub(super) fn sync_dir(&self, dir: BorrowedFd<'_>) -> Sys<()> {
        if self.unsynced {
            return Ok(());
        }
        self.step("open_dir")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, ".", flags, Mode::empty()) {
            Ok(fd) => self.sync(fd),
            Err(Errno::ACCESS | Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Checks that entries can be created in and removed from a directory.
    pub(super) fn may_change(&self, dir: BorrowedFd<'_>) -> Sys<()> {
        self.step("may_change")?;
        rustix::fs::accessat(
            dir,
            ".",
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&self, dir: BorrowedFd<'_>) -> Sys<Vec<OsString>> {
        self.step("names")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsString::from_vec(name.to_vec()));
            }
            if names.len() > MAX_NAMES {
                return Err(Errno::TOOBIG);
            }
        }
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Ok(names)
    }

    /// Takes an exclusive lock on a lock file; `None` if another process still holds it after `timeout`.
    pub(super) fn lock(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        timeout: Duration,
    ) -> Sys<Option<OwnedFd>> {
        self.step("lock")?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
        lock_within(fd, timeout)
    }
}

/// Takes an exclusive lock on an open file; `None` if another process still holds it after `timeout`.
pub(crate) fn lock_within(fd: OwnedFd, timeout: Duration) -> Sys<Option<OwnedFd>> {
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(Errno::WOULDBLOCK) if timeout.is_zero() => Ok(None),
        Err(Errno::WOULDBLOCK) => wait_for_lock(fd, timeout),
        Err(errno) => Err(errno),
    }
}

/// Waits in the kernel's queue, which is first come, first served. The wait is in a thread, because `flock` has no
/// timeout. If the thread gets the lock too late, it releases it at once.
fn wait_for_lock(fd: OwnedFd, timeout: Duration) -> Sys<Option<OwnedFd>> {
    let (got, lock) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("landing lock".to_owned())
        .spawn(move || {
            let locked =
                retry_interrupted(|| rustix::fs::flock(&fd, FlockOperation::LockExclusive));
            drop(got.send(locked.map(|()| fd)));
        })
        .map_err(|_| Errno::AGAIN)?;
    match lock.recv_timeout(timeout) {
        Ok(locked) => locked.map(Some),
        Err(_) => Ok(None),
    }
}

fn retry_interrupted<T>(mut call: impl FnMut() -> Sys<T>) -> Sys<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
