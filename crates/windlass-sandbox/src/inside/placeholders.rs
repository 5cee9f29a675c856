//! The list of placeholders in one workspace, kept on disk and shared by all sandboxes that work there. A placeholder
//! is an empty directory that stands for an absent protected name (see `covers.rs`).
//!
//! Every sandbox that runs a command holds a shared lock on the file. The last one to leave gets the exclusive lock and
//! removes the placeholders, so no sandbox removes the placeholders under another one's commands. If a sandbox was
//! killed, the next one removes what it left.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The most bytes read from the list, which is enough for thousands of paths.
const MAX_BYTES: u64 = 1 << 20;

/// The open list, and whether this sandbox holds its lock.
pub(crate) struct PlaceholderList {
    file: File,
    inside: bool,
}

impl PlaceholderList {
    /// Opens the list, and creates it if it does not exist.
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

    /// Takes the shared lock. If no other sandbox holds it, removes leftover placeholders first.
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

    /// Releases the lock. The last sandbox removes the placeholders; returns whether this was the last.
    pub(crate) fn leave(&mut self) -> bool {
        let last = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if last {
            self.clean();
        }
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        self.inside = false;
        last
    }

    /// Adds a placeholder to the list.
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

/// Removes placeholders, the last one first. Removes only empty directories: files that the user put there stay.
pub(crate) fn remove(placed: &[PathBuf]) {
    for path in placed.iter().rev() {
        let _ = rustix::fs::rmdir(path);
    }
}
