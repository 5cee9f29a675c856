//! All system calls of the log that change the disk. In production they are plain calls; a test can observe each call
//! and let one fail, or all from one on, as if the process died.

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

/// A hook that a test runs before each call: it receives the name of the call, and may let it fail.
#[cfg(test)]
pub(super) type FaultHook = std::sync::Arc<dyn Fn(&'static str) -> io::Result<()> + Send + Sync>;

/// The file system, as the log uses it.
#[derive(Clone, Default)]
pub(super) struct LogDisk {
    #[cfg(test)]
    before: Option<FaultHook>,
}

impl fmt::Debug for LogDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogDisk")
    }
}

impl LogDisk {
    /// Returns a disk that calls the hook before each operation.
    #[cfg(test)]
    pub(super) fn watched(before: FaultHook) -> Self {
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

    /// Creates a directory that only its owner can access; fails if it exists.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.step("make_dir")?;
        Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(0o700))?)
    }

    /// Creates a file for appending that only its owner can access; fails if it exists.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        self.step("create")?;
        Ok(File::from(rustix::fs::open(
            path,
            NEW | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )?))
    }

    /// Opens an existing file for appending. Does not follow a symlink.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        self.step("open")?;
        Ok(File::from(rustix::fs::open(
            path,
            OLD | OFlags::CLOEXEC,
            Mode::empty(),
        )?))
    }

    /// Opens the lock file. Also returns whether the lock was acquired.
    pub(super) fn lock(&self, path: &Path) -> io::Result<(File, bool)> {
        self.step("lock")?;
        let fd = rustix::fs::open(path, LOCK | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok((File::from(fd), true)),
            Err(Errno::WOULDBLOCK) => Ok((File::from(fd), false)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes a line and its line end, in one system call unless the kernel accepts less.
    pub(super) fn write_line(&self, log: &File, line: &[u8]) -> io::Result<()> {
        self.write_all(log, line, b"\n")
    }

    pub(super) fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.write_all(file, bytes, b"")
    }

    /// Overwrites the first bytes of an existing file.
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
            // A disk that fills up accepts a part before it fails.
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

    /// Sets a new change time of a file, and nothing else.
    pub(super) fn touch(&self, file: &File) -> io::Result<()> {
        self.step("touch")?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
        Ok(rustix::fs::fchmod(file, mode)?)
    }

    /// Syncs the content of a file to disk.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.step("sync")?;
        file.sync_data()
    }

    /// Syncs the names in a directory to disk.
    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step("sync_dir")?;
        File::open(dir)?.sync_all()
    }

    /// Renames a file, and replaces the target.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename")?;
        Ok(rustix::fs::rename(from, to)?)
    }

    /// Creates a hard link; fails if the name exists.
    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("link")?;
        Ok(rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?)
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove")?;
        Ok(rustix::fs::unlink(path)?)
    }
}
