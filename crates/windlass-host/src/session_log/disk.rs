//! The one door between the log and the system: every call that changes something on disk goes through here. In
//! production it only calls; a test learns of each call and lets one fail, or all from one on, as when a process dies.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW);
const OLD: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::NOFOLLOW);
const LOCK: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::NOFOLLOW);

/// What a test does before a call: it learns the call's name, and may refuse it.
#[cfg(test)]
pub(super) type Before = std::sync::Arc<dyn Fn(&'static str) -> io::Result<()> + Send + Sync>;

/// The system, as the log sees it.
#[derive(Clone, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    before: Option<Before>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    /// The system with something in the way.
    #[cfg(test)]
    pub(super) fn watched(before: Before) -> Self {
        Self {
            before: Some(before),
        }
    }

    #[cfg(test)]
    fn step(&self, what: &'static str) -> io::Result<()> {
        self.before.as_ref().map_or(Ok(()), |before| before(what))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test counts here")]
    #[expect(clippy::unnecessary_wraps, reason = "a test refuses here")]
    fn step(&self, _: &'static str) -> io::Result<()> {
        Ok(())
    }

    /// A directory of its owner alone that was not there before.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.step("make_dir")?;
        Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(0o700))?)
    }

    /// A file of its owner alone that was not there before, to be appended to.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        self.step("create")?;
        Ok(File::from(rustix::fs::open(
            path,
            NEW | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )?))
    }

    /// A file that is there, to be appended to; never what a link points to.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        self.step("open")?;
        Ok(File::from(rustix::fs::open(
            path,
            OLD | OFlags::CLOEXEC,
            Mode::empty(),
        )?))
    }

    /// The lock file, and whether the lock on it is ours now.
    pub(super) fn lock(&self, path: &Path) -> io::Result<(File, bool)> {
        self.step("lock")?;
        let fd = rustix::fs::open(path, LOCK | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok((File::from(fd), true)),
            Err(Errno::WOULDBLOCK) => Ok((File::from(fd), false)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes a line and its end, in one call unless the system takes less.
    pub(super) fn write_line(&self, log: &File, line: &[u8]) -> io::Result<()> {
        self.write_all(log, line, b"\n")
    }

    pub(super) fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.write_all(file, bytes, b"")
    }

    /// Overwrites the beginning of a file that is there.
    pub(super) fn write_at(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step("write_at")?;
        let file = rustix::fs::open(
            path,
            OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        std::os::unix::fs::FileExt::write_all_at(&File::from(file), bytes, 0)
    }

    fn write_all(&self, mut file: &File, first: &[u8], then: &[u8]) -> io::Result<()> {
        if let Err(err) = self.step("write") {
            // A disk that fills up takes a part before it refuses.
            file.write_all(&first[..first.len() / 2])?;
            return Err(err);
        }
        let total = first.len() + then.len();
        let mut written = 0;
        while written < total {
            let result = if written < first.len() {
                file.write_vectored(&[IoSlice::new(&first[written..]), IoSlice::new(then)])
            } else {
                file.write(&then[written - first.len()..])
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }

    pub(super) fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        self.step("truncate")?;
        file.set_len(len)
    }

    /// Gives a file a new time of change, and nothing else.
    pub(super) fn touch(&self, file: &File) -> io::Result<()> {
        self.step("touch")?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
        Ok(rustix::fs::fchmod(file, mode)?)
    }

    /// Makes what was written last.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.step("sync")?;
        file.sync_data()
    }

    /// Makes the names in a directory last.
    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step("sync_dir")?;
        File::open(dir)?.sync_all()
    }

    /// Replaces what is at the new name.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename")?;
        Ok(rustix::fs::rename(from, to)?)
    }

    /// Gives a file a second name that was free.
    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("link")?;
        Ok(rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?)
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove")?;
        Ok(rustix::fs::unlink(path)?)
    }
}
