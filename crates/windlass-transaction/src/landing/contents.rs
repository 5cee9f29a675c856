//! Bytes under their hash, in a directory for their owner alone: what undo puts back, bounded by a cap.
//! Nothing here knows what the bytes were of. A file is never read into memory as a whole, and what is read for use
//! is held against its name first.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use windlass_core::clock::Clock;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::FileError;

use super::Source;
use super::disk::{Disk, Sys};
use super::look::{CHUNK, hash};
use windlass_host::workspace::{from_errno, from_io};

/// What the name of a file begins with while it is being filled.
const DRAFT: &str = "draft-";
/// A draft that nobody has touched for so long was left by a process that is gone.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

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
    /// After [`Contents::make_last`]; until then a crash may leave a name with other bytes, which reading finds out.
    Later,
}

/// Why bytes cannot be kept or had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// The cap would be passed.
    #[error(
        "the store of undo contents is full: {needed} bytes more than {used} would pass its cap of {cap}; raise the cap or let `windlass gc` make room"
    )]
    Full {
        /// How many bytes were to be added.
        needed: u64,
        /// How many are there.
        used: u64,
        /// How many may be.
        cap: u64,
    },
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

impl Contents {
    /// The store in `dir`, which is made when it is missing. It holds at most `cap` bytes.
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

    /// The free bytes of its disk, where they are known.
    pub(crate) fn free(&self) -> Option<u64> {
        let disk = rustix::fs::fstatvfs(&self.dir).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Removes old contents that `keep` does not name if `needed` bytes more do not fit. Removes nothing where even an
    /// empty store would be too small.
    pub(crate) fn ensure_room(
        &self,
        needed: u64,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<(), ContentsError> {
        if needed > self.cap || self.fits(needed)? {
            return Ok(());
        }
        self.make_room(needed, keep).map(|_| ())
    }

    fn put_bytes_through(
        &self,
        bytes: &[u8],
        lasting: Lasting,
    ) -> Result<(String, u64), ContentsError> {
        let hash = blake3::hash(bytes).to_hex().to_string();
        let size = bytes.len() as u64;
        self.room_for(&hash, size)?;
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

    /// Removes the oldest of what `keep` does not name until `needed` bytes more fit. Gives how many bytes went.
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
        if self.fits(needed)? {
            Ok(freed)
        } else {
            Err(self.full(needed)?)
        }
    }

    /// Makes room for both sides of a change and stores the new bytes, which a three-way undo merges with. Those that do
    /// not fit are not needed for the landing itself.
    pub(crate) fn store_after(
        &self,
        swaps: &[Swap],
        source: &dyn Source,
        lasting: Lasting,
    ) -> Result<(), FileError> {
        let sides = swaps.iter().flat_map(|swap| [&swap.before, &swap.after]);
        let files: BTreeMap<&str, u64> = sides
            .filter_map(|image| match image {
                Image::File { hash, size, .. } => Some((hash.as_str(), *size)),
                Image::Absent | Image::Link { .. } => None,
            })
            .collect();
        let missing = files.iter().filter(|(hash, _)| !self.has(hash));
        let needed = missing.map(|(_, size)| *size).fold(0, u64::saturating_add);
        // The landing itself says what does not fit.
        let _ = self.ensure_room(needed, &|hash| files.contains_key(hash));
        for swap in swaps {
            let Image::File { hash, size, .. } = &swap.after else {
                continue;
            };
            if *size > MAX_AFTER || self.has(hash) {
                continue;
            }
            let file = source
                .open(swap)
                .map_err(|err| from_io(Path::new(&swap.path), &err))?;
            if let Err(ContentsError::File(err)) =
                self.put_through(&Disk::default(), &file, lasting)
            {
                return Err(err);
            }
        }
        Ok(())
    }

    pub(super) fn put_through(
        &self,
        disk: &Disk,
        file: &File,
        lasting: Lasting,
    ) -> Result<(String, u64), ContentsError> {
        let fail = |errno| self.failed(errno);
        let size = u64::try_from(disk.stat_of(file).map_err(fail)?.st_size).unwrap_or(0);
        disk.rewind(file).map_err(fail)?;
        if !self.fits(size)? {
            // It may be here already, which is learned without writing anything.
            let (found, size) = hash(disk, file).map_err(fail)?;
            return self.room_for(&found, size).map(|()| (found, size));
        }
        self.draft(disk, lasting, |draft| copy(disk, file, draft))
    }

    /// Makes last what was put in to be made last later.
    pub(super) fn make_last(&self, disk: &Disk) -> Result<(), ContentsError> {
        disk.sync_all(self.dir.as_fd())
            .map_err(|errno| self.failed(errno))
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
            self.room_for(&name, size)?;
            let new = self.size_of(disk, &name).map_err(fail)?.is_none();
            let (folder, rest) =
                split(&name).ok_or_else(|| ContentsError::Missing(name.clone()))?;
            match disk.make_dir(self.dir.as_fd(), folder, 0o700) {
                Ok(()) if now => disk.sync_dir(self.dir.as_fd()).map_err(fail)?,
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
            let folder = disk.walk(self.dir.as_fd(), folder).map_err(fail)?;
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

    fn room_for(&self, name: &str, size: u64) -> Result<(), ContentsError> {
        if self.fits(size)? || self.has(name) {
            Ok(())
        } else {
            Err(self.full(size)?)
        }
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

    fn full(&self, needed: u64) -> Result<ContentsError, ContentsError> {
        Ok(ContentsError::Full {
            needed,
            used: self.used()?,
            cap: self.cap,
        })
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
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = disk.read(from, &mut buffer)?;
        let piece = buffer.get(..read).unwrap_or_default();
        if piece.is_empty() {
            return Ok((hasher.finalize().to_hex().to_string(), hasher.count()));
        }
        hasher.update(piece);
        disk.write(to, piece)?;
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
