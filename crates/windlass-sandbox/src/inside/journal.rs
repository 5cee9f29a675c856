//! The placeholders of one workspace on disk, shared by all sandboxes that work in it. Whoever works there holds the
//! lock together with the others; only the last one to leave removes the placeholders, so that nobody takes away
//! what covers somebody else's command. What a killed sandbox left is removed by the next one.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The most that is read back: a few hundred paths.
const MAX_BYTES: u64 = 1 << 20;

/// The list, and our place among those who use it.
pub(crate) struct Journal {
    file: File,
    inside: bool,
}

impl Journal {
    /// Opens the list; it is made where there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        Ok(Self {
            file,
            inside: false,
        })
    }

    /// Joins those who work here. What nobody cleaned up is cleaned up first.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        if !self.inside {
            if rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                self.clean();
            }
            rustix::fs::flock(&self.file, FlockOperation::LockShared)?;
            self.inside = true;
        }
        Ok(())
    }

    /// Leaves; the last one cleans up, and hears so.
    pub(crate) fn leave(&mut self) -> bool {
        let last = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if last {
            self.clean();
        }
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        self.inside = false;
        last
    }

    /// Notes a placeholder.
    pub(crate) fn note(&mut self, path: &Path) -> io::Result<()> {
        let mut line = path.as_os_str().as_bytes().to_vec();
        line.push(0);
        self.file.write_all(&line)
    }

    fn clean(&mut self) {
        let mut bytes = Vec::new();
        let read = self
            .file
            .rewind()
            .and_then(|()| (&self.file).take(MAX_BYTES).read_to_end(&mut bytes));
        if read.is_err() || bytes.is_empty() {
            return;
        }
        let names = bytes
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        remove(
            &names
                .map(|name| PathBuf::from(std::ffi::OsString::from_vec(name.to_vec())))
                .collect::<Vec<_>>(),
        );
        let _ = self.file.set_len(0);
    }
}

/// Removes placeholders, the last one first. Only ever empty directories: what a person put there meanwhile stays.
pub(crate) fn remove(placed: &[PathBuf]) {
    for path in placed.iter().rev() {
        let _ = rustix::fs::rmdir(path);
    }
}
