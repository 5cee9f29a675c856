//! The exclusive right to write a session: a lock that the kernel releases when its process ends. The text in the lock
//! file tells other processes the holder, and tells the next writer whether the machine was restarted since.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use windlass_core::id::SessionId;
use windlass_core::store::{StoreError, StoreErrorKind};

use super::disk::LogDisk;
use super::failed;

pub(super) const LOCK: &str = "writer.lock";
/// A process id and a boot id are shorter.
const MAX_WORDS: usize = 128;
/// The number of attempts to lock, and the pause between two of them.
const LOCK_ATTEMPTS: u32 = 4;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The right to write a session, until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    /// The open file holds the lock.
    lock: File,
    /// The machine was restarted since the last writer, or this is unknown.
    pub(super) after_power_cut: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread starts has a copy of it until it executes its
        // program.
        let _ = rustix::fs::flock(&self.lock, rustix::fs::FlockOperation::Unlock);
    }
}

/// Becomes the only writer, or returns an error that names the current one.
pub(super) fn acquire(
    disk: &LogDisk,
    home: &Path,
    session: &SessionId,
) -> Result<Lease, StoreError> {
    let path = home.join(LOCK);
    let mut attempts = 0;
    let (lock, ours) = loop {
        let locked = disk
            .lock(&path)
            .map_err(|err| failed("lock", &path, &err))?;
        // A reader that tests the lock holds it for a moment.
        attempts += 1;
        if locked.1 || attempts == LOCK_ATTEMPTS {
            break locked;
        }
        std::thread::sleep(LOCK_PAUSE);
    };
    let before = holder_text(&lock);
    let mut before = before.split_whitespace();
    let pid = before.next().and_then(|pid| pid.parse::<u32>().ok());
    if !ours {
        let holder = pid.map_or_else(
            || "another process".to_owned(),
            |pid| format!("process {pid}"),
        );
        let message = format!(
            "session {session} is in use by {holder}; end that process first, or start a new session"
        );
        return Err(StoreError::new(StoreErrorKind::Locked, message));
    }
    let boot = boot_id();
    let after_power_cut = boot.is_none() || before.next() != boot.as_deref();
    // The text is optional: the lock works without it, and the next writer then assumes a power cut.
    let holder_text = format!(
        "{} {}\n",
        std::process::id(),
        boot.as_deref().unwrap_or("-")
    );
    let _ = disk
        .truncate(&lock, 0)
        .and_then(|()| disk.write(&lock, holder_text.as_bytes()));
    Ok(Lease {
        lock,
        after_power_cut,
    })
}

fn holder_text(lock: &File) -> String {
    let mut holder_text = [0; MAX_WORDS];
    let len = rustix::io::pread(lock, &mut holder_text, 0).unwrap_or(0);
    String::from_utf8_lossy(&holder_text[..len]).into_owned()
}

/// Returns the id of the current boot of the machine, if the system has one.
fn boot_id() -> Option<String> {
    let read =
        || -> io::Result<String> { std::fs::read_to_string("/proc/sys/kernel/random/boot_id") };
    let id = read().ok()?.trim().to_owned();
    (!id.is_empty() && id.len() < MAX_WORDS / 2 && !id.contains(char::is_whitespace)).then_some(id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lease_is_free_although_a_new_process_has_the_file() {
        let home = tempfile::tempdir().unwrap();
        let session: SessionId = "s".parse().unwrap();
        let disk = LogDisk::default();
        let lease = acquire(&disk, home.path(), &session).unwrap();
        let inherited = lease.lock.try_clone().unwrap();
        assert!(acquire(&disk, home.path(), &session).is_err());
        drop(lease);
        drop(acquire(&disk, home.path(), &session).unwrap());
        drop(inherited);
    }
}
