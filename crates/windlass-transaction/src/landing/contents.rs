//! The content store: files that are named by the hash of their bytes, in a private directory. Undo restores files from
//! it.
//!
//! The store has a cap. A change that needs space evicts older bytes. The bytes that the change itself replaces are
//! always stored, or the change does not land. The store does not know the paths of its bytes. It never reads a whole
//! file into memory, and it checks the hash of bytes before it returns them.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use windlass_core::clock::Clock;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{FileError, FileErrorKind};

use super::ByteSource;
use super::disk::{Disk, Sys};
use super::path_state::{hash, read_pieces};
use windlass_host::workspace::{from_errno, from_io};

/// Prefix of the name of a file that is being written.
const DRAFT: &str = "draft-";
/// Age at which a draft counts as abandoned by a dead process.
const DRAFT_MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// Free bytes below which a disk counts as full.
const MIN_FREE: u64 = 64 << 10;
/// Free inodes below which a disk counts as full; a landing creates a few files.
const MIN_FREE_FILES: u64 = 16;

/// Largest file whose new bytes are stored, so that undo can merge with later edits.
const MAX_AFTER: u64 = 16 << 20;

/// A content store in a private directory.
#[derive(Debug)]
pub struct Contents {
    path: PathBuf,
    dir: OwnedFd,
    cap: u64,
    /// Counted at first use and then updated by this process. Bytes that another process adds are noticed at the next
    /// count.
    used: Mutex<Option<u64>>,
}

/// The time at which stored bytes are synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// When they are stored.
    Synced,
    /// When the file system is synced. Until then, a power cut may leave a name with wrong bytes; the hash check finds
    /// that out.
    Deferred,
}

/// Up to this number of files are synced one by one, which does not wait for unrelated writes to the same disk. It is
/// small in tests, so that the tests cover both cases.
const MAX_SYNCED_FILES: usize = if cfg!(test) { 8 } else { 64 };

impl Durability {
    /// The timing for a change of this number of files.
    pub(crate) fn for_files(files: usize) -> Self {
        if files > MAX_SYNCED_FILES {
            Self::Deferred
        } else {
            Self::Synced
        }
    }
}

/// The reason why bytes cannot be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    #[error("the bytes {0} are not stored; they were removed to free space, or never stored")]
    Missing(String),
    /// The bytes do not match their hash.
    #[error(
        "the stored bytes {0} are damaged and cannot be used; restore the file from a backup if you need it"
    )]
    Damaged(String),
    #[error(transparent)]
    File(#[from] FileError),
}

impl ContentsError {
    pub(crate) fn into_file(self) -> FileError {
        match self {
            Self::File(err) => err,
            Self::Missing(_) | Self::Damaged(_) => FileError {
                kind: FileErrorKind::Io,
                message: self.to_string(),
            },
        }
    }
}

/// A store that exceeds its cap, because one change needs more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverCap {
    used: u64,
    cap: u64,
}

impl fmt::Display for OverCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
        write!(
            f,
            "undo needs {} MB for the replaced files, more than the limit of {} MB: undo works until another run \
             changes a file of any project",
            megabytes(self.used),
            megabytes(self.cap)
        )
    }
}

impl Contents {
    /// Opens the store in `dir`, and creates it if it is missing. It holds at most `cap` bytes, unless a single change
    /// needs more.
    pub fn open(dir: &Path, cap: u64) -> Result<Self, ContentsError> {
        windlass_host::private::create_dir(dir)?;
        let disk = Disk::default();
        let fd = disk.open_dir(dir).map_err(|errno| from_errno(dir, errno))?;
        disk.set_mode(&fd, 0o700)
            .map_err(|errno| from_errno(dir, errno))?;
        Ok(Self {
            path: dir.to_owned(),
            dir: fd,
            cap,
            used: Mutex::new(None),
        })
    }

    /// Stores all bytes of a file and syncs them. Returns their hash and length.
    pub fn put(&self, file: &File) -> Result<(String, u64), ContentsError> {
        self.put_through(&Disk::default(), file, Durability::Synced)
    }

    /// Like [`Self::put`], without a sync. After a power cut the bytes may be missing or damaged, which `read` reports.
    pub(crate) fn put_unsynced(&self, file: &File) -> Result<(String, u64), ContentsError> {
        self.put_through(&Disk::default(), file, Durability::Deferred)
    }

    /// Stores bytes from memory and syncs them. Returns their hash and length.
    pub fn put_bytes(&self, bytes: &[u8]) -> Result<(String, u64), ContentsError> {
        self.put_bytes_through(bytes, Durability::Synced)
    }

    /// Like [`Self::put_bytes`], without a sync.
    pub(crate) fn put_bytes_unsynced(&self, bytes: &[u8]) -> Result<(String, u64), ContentsError> {
        self.put_bytes_through(bytes, Durability::Deferred)
    }

    /// Whether the disk of the store has no space for another journal.
    pub(crate) fn is_disk_full(&self) -> bool {
        rustix::fs::fstatvfs(&self.dir).is_ok_and(|disk| {
            let bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            // Some file systems do not count inodes.
            let no_files = disk.f_files > 0 && disk.f_favail < MIN_FREE_FILES;
            bytes < MIN_FREE || no_files
        })
    }

    /// Whether this number of additional bytes fits under the cap.
    pub(crate) fn has_room(&self, needed: u64) -> bool {
        self.fits(needed).unwrap_or(false)
    }

    /// Reports whether the store exceeds its cap.
    pub(crate) fn over_cap(&self) -> Option<OverCap> {
        let used = self.used().ok().filter(|used| *used > self.cap)?;
        Some(OverCap {
            used,
            cap: self.cap,
        })
    }

    fn put_bytes_through(
        &self,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<(String, u64), ContentsError> {
        let hash = blake3::hash(bytes).to_hex().to_string();
        let size = bytes.len() as u64;
        let disk = Disk::default();
        self.draft(&disk, durability, |draft| {
            disk.write(draft, bytes)?;
            Ok((hash, size))
        })
    }

    /// Opens the bytes with this hash, after checking them, positioned at the start.
    pub fn read(&self, name: &str) -> Result<File, ContentsError> {
        let disk = Disk::default();
        let Some((folder, rest)) = split(name) else {
            return Err(ContentsError::Missing(name.to_owned()));
        };
        let opened = disk
            .walk(self.dir.as_fd(), folder)
            .and_then(|dir| disk.open(dir.as_fd(), rest));
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(ContentsError::Missing(name.to_owned())),
            Err(errno) => return Err(self.failed(errno)),
        };
        let (found, _) = hash(&disk, &file).map_err(|errno| self.failed(errno))?;
        if found != name {
            return Err(ContentsError::Damaged(name.to_owned()));
        }
        disk.rewind(&file).map_err(|errno| self.failed(errno))?;
        Ok(file)
    }

    /// Whether bytes with this hash are stored. Their content is not checked.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.size_of(&Disk::default(), name)
            .is_ok_and(|size| size.is_some())
    }

    /// Number of stored bytes.
    pub fn used(&self) -> Result<u64, ContentsError> {
        let known = *self.used.lock();
        match known {
            Some(used) => Ok(used),
            None => self
                .count(&Disk::default())
                .map(|entries| entries.iter().map(|entry| entry.size).sum()),
        }
    }

    /// Evicts the oldest bytes, except those that `keep` accepts, until `needed` more bytes fit under the cap or
    /// nothing is left to evict. Returns the number of evicted bytes.
    pub fn make_room(
        &self,
        needed: u64,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<u64, ContentsError> {
        let disk = Disk::default();
        let mut kept = self.count(&disk)?;
        kept.sort_unstable_by_key(|entry| entry.touched);
        let mut freed = 0;
        for entry in kept {
            if self.fits(needed)? {
                break;
            }
            if !keep(&entry.name)
                && self
                    .remove(&disk, &entry.name)
                    .map_err(|errno| self.failed(errno))?
            {
                self.update_used(|used| used.saturating_sub(entry.size));
                freed += entry.size;
            }
        }
        Ok(freed)
    }

    /// Removes the bytes with these hashes. Returns the number of removed bytes.
    pub fn remove_all<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<u64, ContentsError> {
        let disk = Disk::default();
        let mut freed = 0;
        for name in names {
            let size = self.size_of(&disk, name);
            let Some(size) = size.map_err(|errno| self.failed(errno))? else {
                continue;
            };
            if self
                .remove(&disk, name)
                .map_err(|errno| self.failed(errno))?
            {
                self.update_used(|used| used.saturating_sub(size));
                freed += size;
            }
        }
        Ok(freed)
    }

    /// Evicts bytes so that both sides of a change fit, and stores the new bytes, which a three-way undo needs as its
    /// base. New bytes that do not fit together with the old ones are not stored: the landing does not need them. Bytes
    /// that `keep` accepts are not evicted.
    pub(crate) fn store_after(
        &self,
        swaps: &[Swap],
        source: &dyn ByteSource,
        durability: Durability,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<(), FileError> {
        let (mut old, mut new) = (HashMap::new(), HashMap::new());
        for swap in swaps {
            if let Image::File { hash, size, .. } = &swap.before {
                old.insert(hash.as_str(), *size);
            }
            if let Image::File { hash, size, .. } = &swap.after {
                new.insert(hash.as_str(), *size);
            }
        }
        let mut to_store = self.missing(&new, MAX_AFTER);
        let total =
            |files: &HashMap<&str, u64>| files.values().copied().fold(0, u64::saturating_add);
        let old_bytes = total(&self.missing(&old, u64::MAX));
        let new_bytes = total(&to_store);
        let needed = old_bytes.saturating_add(new_bytes);
        let needed = if needed > self.cap { old_bytes } else { needed };
        let fits = |needed| self.fits(needed).map_err(ContentsError::into_file);
        if !fits(needed)? {
            let keep = |hash: &str| old.contains_key(hash) || new.contains_key(hash) || keep(hash);
            self.make_room(needed, &keep)
                .map_err(ContentsError::into_file)?;
        }
        for swap in swaps {
            let Image::File { hash, size, .. } = &swap.after else {
                continue;
            };
            let is_missing = to_store.remove(hash.as_str()).is_some();
            if !is_missing || !fits(old_bytes.saturating_add(*size))? {
                continue;
            }
            let file = source
                .open(swap)
                .map_err(|err| from_io(Path::new(&swap.path), &err))?;
            self.put_through(&Disk::default(), &file, durability)
                .map_err(ContentsError::into_file)?;
        }
        Ok(())
    }

    /// Those of the files, by their hash and size, that have at most `most` bytes and are not stored.
    fn missing<'a>(&self, files: &HashMap<&'a str, u64>, most: u64) -> HashMap<&'a str, u64> {
        let missing = files.iter().filter(|(_, size)| **size <= most);
        missing
            .filter(|(hash, _)| !self.has(hash))
            .map(|(hash, size)| (*hash, *size))
            .collect()
    }

    pub(super) fn put_through(
        &self,
        disk: &Disk,
        file: &File,
        durability: Durability,
    ) -> Result<(String, u64), ContentsError> {
        let fail = |errno| self.failed(errno);
        disk.rewind(file).map_err(fail)?;
        self.draft(disk, durability, |draft| copy(disk, file, draft))
    }

    /// A handle on the directory, for `syncfs`.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Writes a draft, then renames it to the hash of its bytes. A file that had this name before has the same bytes,
    /// or damaged ones.
    fn draft(
        &self,
        disk: &Disk,
        durability: Durability,
        fill: impl FnOnce(&File) -> Sys<(String, u64)>,
    ) -> Result<(String, u64), ContentsError> {
        let fail = |errno| self.failed(errno);
        let draft = OsString::from(format!(
            "{DRAFT}{:016x}",
            windlass_host::clock::random_u64()
        ));
        let file = disk.create(self.dir.as_fd(), &draft, 0o600).map_err(fail)?;
        let now = durability == Durability::Synced;
        let safe = |filled| {
            if now {
                disk.sync(&file).map(|()| filled)
            } else {
                Ok(filled)
            }
        };
        let filled = fill(&file).and_then(safe).map_err(fail);
        let named = filled.and_then(|(name, size)| {
            let (folder, rest) =
                split(&name).ok_or_else(|| ContentsError::Missing(name.clone()))?;
            let folder = self.folder(disk, folder, durability).map_err(fail)?;
            let new = disk.stat(folder.as_fd(), rest).map_err(fail)?.is_none();
            disk.rename(self.dir.as_fd(), &draft, folder.as_fd(), rest)
                .map_err(fail)?;
            if new {
                self.update_used(|used| used.saturating_add(size));
            }
            if now {
                disk.sync_dir(folder.as_fd()).map_err(fail)?;
            }
            Ok((name, size))
        });
        if named.is_err() {
            // If the rename succeeded, the draft does not exist any more.
            let _ = disk.remove(self.dir.as_fd(), &draft);
        }
        named
    }

    /// A folder of the store, which is made when it is missing.
    fn folder(&self, disk: &Disk, name: &OsStr, durability: Durability) -> Sys<OwnedFd> {
        match disk.walk(self.dir.as_fd(), name) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        match disk.make_dir(self.dir.as_fd(), name, 0o700) {
            Ok(()) if durability == Durability::Synced => disk.sync_dir(self.dir.as_fd())?,
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        disk.walk(self.dir.as_fd(), name)
    }

    fn size_of(&self, disk: &Disk, name: &str) -> Sys<Option<u64>> {
        let Some((folder, rest)) = split(name) else {
            return Ok(None);
        };
        match disk.walk(self.dir.as_fd(), folder) {
            Ok(dir) => Ok(disk
                .stat(dir.as_fd(), rest)?
                .map(|stat| u64::try_from(stat.st_size).unwrap_or(0))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn remove(&self, disk: &Disk, name: &str) -> Sys<bool> {
        let Some((folder, rest)) = split(name) else {
            return Ok(false);
        };
        let dir = disk.walk(self.dir.as_fd(), folder)?;
        match disk.remove(dir.as_fd(), rest) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Counts all stored bytes again, and removes the drafts of dead processes.
    fn count(&self, disk: &Disk) -> Result<Vec<StoredEntry>, ContentsError> {
        let fail = |errno| self.failed(errno);
        let now = windlass_host::clock::SystemClock::new().now().as_millis() / 1000;
        let mut entries = Vec::new();
        for folder in disk.names(self.dir.as_fd()).map_err(fail)? {
            if folder.to_str().is_some_and(|name| name.starts_with(DRAFT)) {
                self.drop_abandoned(disk, &folder, now);
                continue;
            }
            let Ok(dir) = disk.walk(self.dir.as_fd(), &folder) else {
                continue;
            };
            list(disk, dir.as_fd(), &folder, &mut entries).map_err(fail)?;
        }
        let used = entries.iter().map(|entry| entry.size).sum();
        *self.used.lock() = Some(used);
        Ok(entries)
    }

    fn drop_abandoned(&self, disk: &Disk, draft: &OsStr, now: i64) {
        if let Ok(Some(stat)) = disk.stat(self.dir.as_fd(), draft)
            && now.saturating_sub(seconds(&stat)) > DRAFT_MAX_AGE.as_secs().cast_signed()
        {
            // If this fails, the next count tries again.
            let _ = disk.remove(self.dir.as_fd(), draft);
        }
    }

    fn fits(&self, needed: u64) -> Result<bool, ContentsError> {
        Ok(self.used()?.saturating_add(needed) <= self.cap)
    }

    /// Updates the number of used bytes, if they were counted already.
    fn update_used(&self, update: impl FnOnce(u64) -> u64) {
        let mut used = self.used.lock();
        *used = used.map(update);
    }

    fn failed(&self, errno: Errno) -> ContentsError {
        ContentsError::File(from_errno(&self.path, errno))
    }
}

struct StoredEntry {
    name: String,
    size: u64,
    touched: (i64, i64),
}

fn list(
    disk: &Disk,
    dir: BorrowedFd<'_>,
    folder: &OsStr,
    entries: &mut Vec<StoredEntry>,
) -> Sys<()> {
    for rest in disk.names(dir)? {
        let (Some(first), Some(second)) = (folder.to_str(), rest.to_str()) else {
            continue;
        };
        let name = format!("{first}{second}");
        if split(&name).is_some()
            && let Some(stat) = disk.stat(dir, &rest)?
        {
            let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            entries.push(StoredEntry {
                name,
                size,
                touched: (seconds(&stat), nanos),
            });
        }
    }
    Ok(())
}

fn seconds(stat: &rustix::fs::Stat) -> i64 {
    stat.st_mtime
}

/// Splits a hash into its directory and its name there; `None` if it is not a hash.
fn split(name: &str) -> Option<(&OsStr, &OsStr)> {
    let hash = name.len() == 64
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (folder, rest) = name.split_at_checked(2).filter(|_| hash)?;
    Some((OsStr::new(folder), OsStr::new(rest)))
}

/// Copies the bytes of `from`, which must be at its start, into the new file `to`. Returns the hash and length of the
/// copied bytes.
pub(super) fn copy(disk: &Disk, from: &File, to: &File) -> Sys<(String, u64)> {
    // A reflink is cheap, and it does not change while it is hashed.
    if disk.clone_bytes(from, to).is_ok() {
        return hash(disk, to);
    }
    let mut hasher = blake3::Hasher::new();
    read_pieces(disk, from, |piece| {
        hasher.update(piece);
        disk.write(to, piece)
    })?;
    Ok((hasher.finalize().to_hex().to_string(), hasher.count()))
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
