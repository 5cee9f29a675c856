//! Who may write a session: the holder of a lock that the kernel ends with its process, however that ends.
//! The words in the lock file only tell others who it is, and the next writer whether the machine ran on since.

use std::fs::File;
use std::io;
use std::path::Path;

use windlass_core::id::SessionId;
use windlass_core::store::{StoreError, StoreErrorKind};

use super::disk::Disk;
use super::failed;

pub(super) const LOCK: &str = "writer.lock";
/// A process number and a boot id are shorter.
const MAX_WORDS: usize = 128;

/// The right to write a session, until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    /// Held for the lock on it.
    _lock: File,
    /// The machine was started anew since the last holder, or nobody knows.
    pub(super) after_power_cut: bool,
}

/// Becomes the one writer, or says who is.
pub(super) fn take(disk: &Disk, home: &Path, session: &SessionId) -> Result<Lease, StoreError> {
    let path = home.join(LOCK);
    let (lock, ours) = disk
        .lock(&path)
        .map_err(|err| failed("lock", &path, &err))?;
    let before = words(&lock);
    let mut before = before.split_whitespace();
    let pid = before.next().and_then(|pid| pid.parse::<u32>().ok());
    if !ours {
        let holder = pid.map_or_else(
            || "another process".to_owned(),
            |pid| format!("process {pid}"),
        );
        let message = format!(
            "session {session} is being written by {holder}; end that one first, or start a new session"
        );
        return Err(StoreError::new(StoreErrorKind::Locked, message));
    }
    let boot = boot_id();
    let after_power_cut = boot.is_none() || before.next() != boot.as_deref();
    // Who holds it is a courtesy; the lock holds without it. Without the words the next writer expects the worst.
    let words = format!(
        "{} {}\n",
        std::process::id(),
        boot.as_deref().unwrap_or("-")
    );
    let _ = disk
        .truncate(&lock, 0)
        .and_then(|()| disk.write(&lock, words.as_bytes()));
    Ok(Lease {
        _lock: lock,
        after_power_cut,
    })
}

fn words(lock: &File) -> String {
    let mut words = [0; MAX_WORDS];
    let len = rustix::io::pread(lock, &mut words, 0).unwrap_or(0);
    String::from_utf8_lossy(&words[..len]).into_owned()
}

/// What tells one start of the machine from the next, where the system says.
fn boot_id() -> Option<String> {
    let read =
        || -> io::Result<String> { std::fs::read_to_string("/proc/sys/kernel/random/boot_id") };
    let id = read().ok()?.trim().to_owned();
    (!id.is_empty() && id.len() < MAX_WORDS / 2 && !id.contains(char::is_whitespace)).then_some(id)
}
