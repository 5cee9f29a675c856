//! The one door between landing and the system: every call that landing, recovery and the content store make goes
//! through here. In production it only calls; a test counts the calls and lets one fail, or ends the process at one.

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

use crate::isolated::copied::times_of;

/// What a call of the system gives.
pub(crate) type Sys<T> = Result<T, Errno>;

/// How many names of one directory are looked at.
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

/// What a test does before a call: it learns the call's number and name, and may refuse it.
#[cfg(test)]
pub(super) type Before = Box<dyn Fn(u64, &'static str) -> Sys<()>>;

/// The system, as landing sees it.
#[derive(Default)]
pub(super) struct Disk {
    /// Skips every sync: what was written survives a killed process and not a power cut.
    pub(super) unsynced: bool,
    #[cfg(test)]
    calls: std::cell::Cell<u64>,
    #[cfg(test)]
    before: Option<Before>,
}

impl Disk {
    /// The system without waiting for the disk.
    pub(super) fn unsynced() -> Self {
        Self {
            unsynced: true,
            #[cfg(test)]
            calls: std::cell::Cell::default(),
            #[cfg(test)]
            before: None,
        }
    }

    /// The system with something in the way.
    #[cfg(test)]
    pub(super) fn watched(before: Before) -> Self {
        Self {
            before: Some(before),
            ..Self::default()
        }
    }

    /// How many calls there were.
    #[cfg(test)]
    pub(super) fn calls(&self) -> u64 {
        self.calls.get()
    }

    #[cfg(test)]
    fn step(&self, what: &'static str) -> Sys<()> {
        self.calls.set(self.calls.get() + 1);
        self.before
            .as_ref()
            .map_or(Ok(()), |before| before(self.calls.get(), what))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test counts here")]
    #[expect(clippy::unnecessary_wraps, reason = "a test refuses here")]
    fn step(&self, _: &'static str) -> Sys<()> {
        Ok(())
    }

    /// A handle to go on from; a link in its place is not followed.
    pub(super) fn walk(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<OwnedFd> {
        self.step("walk")?;
        rustix::fs::openat(dir, name, WALK, Mode::empty())
    }

    /// The same for a path of many names below a directory. The kernel follows no link on the way.
    pub(super) fn walk_beneath(&self, dir: BorrowedFd<'_>, path: &Path) -> Sys<OwnedFd> {
        self.step("walk")?;
        rustix::fs::openat2(dir, path, WALK, Mode::empty(), NO_LINKS)
    }

    /// A handle to go on from, by a plain path of our own.
    pub(super) fn open_dir(&self, path: &Path) -> Sys<OwnedFd> {
        self.step("open_dir")?;
        rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    /// A file for reading, whatever it is; nothing here waits for a pipe.
    pub(super) fn open(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<File> {
        self.step("open")?;
        rustix::fs::openat(dir, name, READ | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    }

    /// A file that was not there before.
    pub(super) fn create(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Sys<File> {
        self.step("create")?;
        rustix::fs::openat(dir, name, NEW | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
            .map(File::from)
    }

    /// What is at a name, itself and not what it points to; nothing when nothing is there.
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

    /// Which mounted tree a directory is in. Two names in one can be renamed to each other.
    pub(super) fn mount(&self, dir: BorrowedFd<'_>) -> Sys<(u64, u64)> {
        let stat = self.stat_of(dir)?;
        let flags = StatxFlags::MNT_ID;
        // Older kernels do not tell, and then the device alone must do.
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

    /// Replaces what is at the new name. Only for names that are ours.
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

    /// Never replaces anything.
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
            // Not every file system can refuse to replace. A hard link can, for everything but directories.
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.step("link")?;
                rustix::fs::linkat(from, old, to, new, AtFlags::empty())?;
                self.remove(from, old)
            }
            other => other,
        }
    }

    /// Both names are there before and after, each with what the other had.
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

    /// The same by a handle that can only be gone on from.
    pub(super) fn set_dir_mode(&self, dir: BorrowedFd<'_>, mode: u32) -> Sys<()> {
        self.step("set_mode")?;
        rustix::fs::chmodat(dir, ".", Mode::from_raw_mode(mode), AtFlags::empty())
    }

    pub(super) fn set_owner(&self, file: &File, owner: Option<u32>, group: Option<u32>) -> Sys<()> {
        self.step("set_owner")?;
        rustix::fs::fchown(file, owner.map(Uid::from_raw), group.map(Gid::from_raw))
    }

    /// Gives a file the access lists, labels and the like of another, as far as the system lets us.
    pub(super) fn copy_attributes(&self, dir: BorrowedFd<'_>, name: &OsStr, to: &File) -> Sys<()> {
        self.step("copy_attributes")?;
        windlass_host::workspace::copy_attributes(dir, name, to);
        Ok(())
    }

    /// Gives a file the access lists, labels and times of another that is open.
    pub(super) fn copy_attributes_and_times(&self, from: &File, to: &File) -> Sys<()> {
        self.step("copy_attributes_and_times")?;
        windlass_host::workspace::copy_attributes_of(from, to);
        let stat = rustix::fs::fstat(from)?;
        rustix::fs::futimens(to, &times_of(&stat))
    }

    pub(super) fn read(&self, file: &File, buffer: &mut [u8]) -> Sys<usize> {
        self.step("read")?;
        again(|| rustix::io::read(file, &mut *buffer))
    }

    pub(super) fn write(&self, file: &File, mut bytes: &[u8]) -> Sys<()> {
        while !bytes.is_empty() {
            self.step("write")?;
            let written = again(|| rustix::io::write(file, bytes))?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// A file of ours whose room on the disk is taken already, to be written over from its beginning.
    pub(super) fn open_reserved(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Sys<File> {
        self.step("open_reserved")?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::empty()).map(File::from)
    }

    /// Writes over the beginning of a file and cuts off the rest.
    pub(super) fn overwrite(&self, file: &File, bytes: &[u8]) -> Sys<()> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            self.step("overwrite")?;
            written += again(|| rustix::io::pwrite(file, rest, written as u64))?;
        }
        rustix::fs::ftruncate(file, bytes.len() as u64)
    }

    /// Lets a new file share the bytes of another, where the file system can.
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

    /// Makes everything last that was written to the file system of a directory: for many files far less work than each
    /// alone.
    pub(super) fn sync_all(&self, dir: BorrowedFd<'_>) -> Sys<()> {
        if self.unsynced {
            return Ok(());
        }
        self.step("sync_all")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
    }

    /// Makes the names of a directory last. One that may not be read cannot be synced, and one that is gone need not.
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

    /// Whether names can be added to and taken from a directory.
    pub(super) fn may_change(&self, dir: BorrowedFd<'_>) -> Sys<()> {
        self.step("may_change")?;
        rustix::fs::accessat(
            dir,
            ".",
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
    }

    /// The names in a directory, in order.
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

    /// Becomes the only holder of a lock file, or says that another still is after `patience`.
    pub(super) fn lock(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        patience: Duration,
    ) -> Sys<Option<OwnedFd>> {
        self.step("lock")?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
        lock_within(fd, patience)
    }
}

/// Locks an open file, or says that another still holds it after `patience`.
pub(crate) fn lock_within(fd: OwnedFd, patience: Duration) -> Sys<Option<OwnedFd>> {
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(Errno::WOULDBLOCK) if patience.is_zero() => Ok(None),
        Err(Errno::WOULDBLOCK) => wait_for_lock(fd, patience),
        Err(errno) => Err(errno),
    }
}

/// Waits in the kernel's queue, where the first to ask comes first. A thread waits, because a wait for a lock has no
/// timeout; if it gets the lock too late, it lets go at once.
fn wait_for_lock(fd: OwnedFd, patience: Duration) -> Sys<Option<OwnedFd>> {
    let (got, lock) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("landing lock".to_owned())
        .spawn(move || {
            let locked = again(|| rustix::fs::flock(&fd, FlockOperation::LockExclusive));
            drop(got.send(locked.map(|()| fd)));
        })
        .map_err(|_| Errno::AGAIN)?;
    match lock.recv_timeout(patience) {
        Ok(locked) => locked.map(Some),
        Err(_) => Ok(None),
    }
}

fn again<T>(mut call: impl FnMut() -> Sys<T>) -> Sys<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
