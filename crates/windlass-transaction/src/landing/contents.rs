//! Bytes under their hash, in a directory for their owner alone: what undo puts back. Older bytes go when a change needs
//! room under the cap; the bytes that the change itself replaces are always stored, or it does not land.
//! Nothing here knows what the bytes were of. A file is never read into memory as a whole, and what is read for use
//! is held against its name first.

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

use super::Source;
use super::disk::{Disk, Sys};
use super::look::{hash, read_pieces};
use windlass_host::workspace::{from_errno, from_io};

/// What the name of a file begins with while it is being filled.
const DRAFT: &str = "draft-";
/// A draft that nobody has touched for so long was left by a process that is gone.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// A disk with fewer free bytes is full.
const MIN_FREE: u64 = 64 << 10;
/// The same for free files: a landing makes a few.
const MIN_FREE_FILES: u64 = 16;

/// The largest file whose new bytes are kept, so that undo can merge with later edits.
const MAX_AFTER: u64 = 16 << 20;

/// A content store.
#[derive(Debug)]
pub struct Contents {
    path: PathBuf,
    dir: OwnedFd,
    cap: u64,
    /// As counted when it is first asked for, and kept by what is done here; another process's share is seen at the
    /// next count.
    used: Mutex<Option<u64>>,
}

/// When bytes are safe from a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// When they are put in.
    Now,
    /// When the file system is synced; until then a crash may leave a name with other bytes, which reading finds out.
    Later,
}

/// So many files are made to last one by one, which does not wait for what others write to the same disk. The tests
/// have changes of both sizes.
const FEW: usize = if cfg!(test) { 8 } else { 64 };

impl Lasting {
    /// When the bytes of a change of so many files last.
    pub(crate) fn of(files: usize) -> Self {
        if files > FEW { Self::Later } else { Self::Now }
    }
}

/// Why bytes cannot be kept or had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// They are not there.
    #[error("the bytes {0} are not kept; they were removed to make room, or never stored")]
    Missing(String),
    /// What is there is not what it was.
    #[error(
        "the kept bytes {0} are damaged, so they are not used; restore them from a backup if they are needed"
    )]
    Damaged(String),
    /// The system refuses.
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

/// A store that holds more than its cap, because one change needs more.
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
            "the replaced files need {} MB for undo, more than the {} MB that are kept: undo works until another run \
             changes a file of any project",
            megabytes(self.used),
            megabytes(self.cap)
        )
    }
}

impl Contents {
    /// The store in `dir`, which is made when it is missing. It holds `cap` bytes, and more only where one change needs
    /// more.
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

    /// Keeps the bytes of a file, all of them. Gives their hash and how many they are.
    pub fn put(&self, file: &File) -> Result<(String, u64), ContentsError> {
        self.put_through(&Disk::default(), file, Lasting::Now)
    }

    /// The same without waiting for the disk: after a power cut it may be gone or damaged, which is seen when it is
    /// read.
    pub(crate) fn put_soon(&self, file: &File) -> Result<(String, u64), ContentsError> {
        self.put_through(&Disk::default(), file, Lasting::Later)
    }

    /// Keeps these bytes.
    pub fn put_bytes(&self, bytes: &[u8]) -> Result<(String, u64), ContentsError> {
        self.put_bytes_through(bytes, Lasting::Now)
    }

    /// The same without waiting for the disk.
    pub(crate) fn put_bytes_soon(&self, bytes: &[u8]) -> Result<(String, u64), ContentsError> {
        self.put_bytes_through(bytes, Lasting::Later)
    }

    /// Whether its disk has no room for another journal.
    pub(crate) fn is_disk_full(&self) -> bool {
        rustix::fs::fstatvfs(&self.dir).is_ok_and(|disk| {
            let bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            // Some file systems do not count files.
            let no_files = disk.f_files > 0 && disk.f_favail < MIN_FREE_FILES;
            bytes < MIN_FREE || no_files
        })
    }

    /// Whether so many bytes more are under the cap.
    pub(crate) fn has_room(&self, needed: u64) -> bool {
        self.fits(needed).unwrap_or(false)
    }

    /// By how much the store is over its cap: the bytes of one change are more than it holds otherwise.
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
        lasting: Lasting,
    ) -> Result<(String, u64), ContentsError> {
        let hash = blake3::hash(bytes).to_hex().to_string();
        let size = bytes.len() as u64;
        let disk = Disk::default();
        self.draft(&disk, lasting, |draft| {
            disk.write(draft, bytes)?;
            Ok((hash, size))
        })
    }

    /// The bytes of this name, proven to be them, from their beginning.
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

    /// Whether something of this name is kept.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.size_of(&Disk::default(), name)
            .is_ok_and(|size| size.is_some())
    }

    /// How many bytes are kept.
    pub fn used(&self) -> Result<u64, ContentsError> {
        let known = *self.used.lock();
        match known {
            Some(used) => Ok(used),
            None => self
                .count(&Disk::default())
                .map(|entries| entries.iter().map(|entry| entry.size).sum()),
        }
    }

    /// Removes the oldest of what `keep` does not name until `needed` bytes more are under the cap, or nothing is left to
    /// remove. Gives how many bytes went.
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
                self.changed(|used| used.saturating_sub(entry.size));
                freed += entry.size;
            }
        }
        Ok(freed)
    }

    /// Makes room for both sides of a change and stores the new bytes, which a three-way undo merges with. New bytes that
    /// are not under the cap beside the old ones are not stored: the landing does not need them. `keep` names
    /// bytes that must not go.
    pub(crate) fn store_after(
        &self,
        swaps: &[Swap],
        source: &dyn Source,
        lasting: Lasting,
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
            self.put_through(&Disk::default(), &file, lasting)
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
        lasting: Lasting,
    ) -> Result<(String, u64), ContentsError> {
        let fail = |errno| self.failed(errno);
        disk.rewind(file).map_err(fail)?;
        self.draft(disk, lasting, |draft| copy(disk, file, draft))
    }

    /// A handle on its file system, by which everything in it is made to last.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Fills a file that nobody sees, then gives it the name of its bytes. What had the name before had the same
    /// bytes, or damaged ones.
    fn draft(
        &self,
        disk: &Disk,
        lasting: Lasting,
        fill: impl FnOnce(&File) -> Sys<(String, u64)>,
    ) -> Result<(String, u64), ContentsError> {
        let fail = |errno| self.failed(errno);
        let draft = OsString::from(format!(
            "{DRAFT}{:016x}",
            windlass_host::clock::random_u64()
        ));
        let file = disk.create(self.dir.as_fd(), &draft, 0o600).map_err(fail)?;
        let now = lasting == Lasting::Now;
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
            let folder = self.folder(disk, folder, lasting).map_err(fail)?;
            let new = disk.stat(folder.as_fd(), rest).map_err(fail)?.is_none();
            disk.rename(self.dir.as_fd(), &draft, folder.as_fd(), rest)
                .map_err(fail)?;
            if new {
                self.changed(|used| used.saturating_add(size));
            }
            if now {
                disk.sync_dir(folder.as_fd()).map_err(fail)?;
            }
            Ok((name, size))
        });
        if named.is_err() {
            // After a rename there is nothing of that name any more.
            let _ = disk.remove(self.dir.as_fd(), &draft);
        }
        named
    }

    /// A folder of the store, which is made when it is missing.
    fn folder(&self, disk: &Disk, name: &OsStr, lasting: Lasting) -> Sys<OwnedFd> {
        match disk.walk(self.dir.as_fd(), name) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        match disk.make_dir(self.dir.as_fd(), name, 0o700) {
            Ok(()) if lasting == Lasting::Now => disk.sync_dir(self.dir.as_fd())?,
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

    /// Everything that is kept, counted anew; what killed processes left half-written goes.
    fn count(&self, disk: &Disk) -> Result<Vec<Entry>, ContentsError> {
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
            && now.saturating_sub(seconds(&stat)) > ABANDONED.as_secs().cast_signed()
        {
            // The next count tries again.
            let _ = disk.remove(self.dir.as_fd(), draft);
        }
    }

    fn fits(&self, needed: u64) -> Result<bool, ContentsError> {
        Ok(self.used()?.saturating_add(needed) <= self.cap)
    }

    /// What is not counted yet is counted as it is then.
    fn changed(&self, how: impl FnOnce(u64) -> u64) {
        let mut used = self.used.lock();
        *used = used.map(how);
    }

    fn failed(&self, errno: Errno) -> ContentsError {
        ContentsError::File(from_errno(&self.path, errno))
    }
}

struct Entry {
    name: String,
    size: u64,
    touched: (i64, i64),
}

fn list(disk: &Disk, dir: BorrowedFd<'_>, folder: &OsStr, entries: &mut Vec<Entry>) -> Sys<()> {
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
            entries.push(Entry {
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

/// The folder of a hash and its name there; nothing for what is not the hash of anything.
fn split(name: &str) -> Option<(&OsStr, &OsStr)> {
    let hash = name.len() == 64
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (folder, rest) = name.split_at_checked(2).filter(|_| hash)?;
    Some((OsStr::new(folder), OsStr::new(rest)))
}

/// Fills a new file with the bytes of another that stands at its beginning, and gives the hash and the length of
/// what came over.
pub(super) fn copy(disk: &Disk, from: &File, to: &File) -> Sys<(String, u64)> {
    // A clone costs nothing and stands still while it is hashed.
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
