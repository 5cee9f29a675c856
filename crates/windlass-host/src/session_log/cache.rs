//! Caches facts about sessions, so that a list or a search need not read every log. An entry is valid only while the
//! log has the same inode, size and times as when it was read. The cache can be deleted at any time. A cache file that
//! is damaged or of another version is treated as empty and rewritten.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use windlass_core::id::SessionId;

use super::disk::LogDisk;
use crate::workspace::open_regular_itself;

/// The directory of the caches, inside the sessions directory. Session ids do not start with a dot.
const DIR: &str = ".cache";
/// The number of files. A change rewrites only the file that contains the session.
const SHARDS: usize = 64;
/// The first bytes of a file. They change with the format, and with the program version, which may extract other facts
/// from the same log.
pub(super) const MAGIC: &[u8] = concat!("wl-cache1 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();
const CHECKSUM: usize = 4;
/// The maximum size of a cache file in bytes.
const MAX_BYTES: u64 = 1 << 28;
/// Unsaved values are written once they exceed this many bytes.
const MAX_CHANGED_BYTES: usize = 8 << 20;
/// The timestamps of a file system may have a resolution this coarse: a log that changed more recently before it was
/// read could change again without a new timestamp. Tests do not wait.
const CLOCK_STEP: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 20 });

/// Identifies one state of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogStamp {
    inode: u64,
    size: u64,
    /// In nanoseconds since 1970, as is `changed`.
    pub(super) modified: i64,
    changed: i64,
}

impl LogStamp {
    pub(super) fn of(stat: &Stat) -> Self {
        let nanos = |seconds: i64, nanos: u64| {
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add_unsigned(nanos)
        };
        #[expect(
            clippy::useless_conversion,
            reason = "the fields differ between architectures"
        )]
        Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: nanos(
                stat.st_mtime,
                u64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
            ),
            changed: nanos(
                stat.st_ctime,
                u64::try_from(stat.st_ctime_nsec).unwrap_or_default(),
            ),
        }
    }

    /// Returns whether every later change results in another stamp.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let settled = now.saturating_sub(CLOCK_STEP).as_nanos();
        i128::from(self.changed) <= i128::try_from(settled).unwrap_or(i128::MAX)
    }

    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.inode.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.modified.to_le_bytes());
        bytes[24..].copy_from_slice(&self.changed.to_le_bytes());
        bytes
    }

    fn take(from: &mut CacheReader<'_>) -> Option<Self> {
        Some(Self {
            inode: from.u64()?,
            size: from.u64()?,
            modified: from.i64()?,
            changed: from.i64()?,
        })
    }
}

/// A new value of a session, or `None` to remove it.
type Change = Option<(LogStamp, Vec<u8>)>;

/// One cache: a value for each session.
pub(super) struct SessionCache {
    disk: LogDisk,
    dir: PathBuf,
    name: &'static str,
    shards: Vec<Option<Shard>>,
    /// Unsaved values, for each shard.
    changes: Vec<BTreeMap<String, Change>>,
    changed_bytes: usize,
}

impl SessionCache {
    pub(super) fn open(disk: &LogDisk, sessions: &Path, name: &'static str) -> Self {
        Self {
            disk: disk.clone(),
            dir: sessions.join(DIR),
            name,
            shards: (0..SHARDS).map(|_| None).collect(),
            changes: vec![BTreeMap::new(); SHARDS],
            changed_bytes: 0,
        }
    }

    /// Returns the value that was saved for this state of the log. The shard stays in memory, so this is for small
    /// values.
    pub(super) fn get(&mut self, id: &SessionId, stamp: &LogStamp) -> Option<&[u8]> {
        let index = shard_of(id);
        let path = self.path(index);
        let shard = self.shards[index].get_or_insert_with(|| Shard::load(&path));
        let at = shard.find(id)?;
        shard.seen[at] = true;
        shard.value(at, stamp)
    }

    /// Calls `visit` with the values of these sessions and their positions in the list, with one shard in memory at a
    /// time. Removes the values of all other sessions: the list must be complete.
    pub(super) fn visit(
        &mut self,
        sessions: &[(&SessionId, &LogStamp)],
        mut visit: impl FnMut(usize, &[u8]),
    ) {
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); SHARDS];
        for (place, (id, _)) in sessions.iter().enumerate() {
            places[shard_of(id)].push(place);
        }
        for (index, places) in places.into_iter().enumerate() {
            let mut shard = Shard::load(&self.path(index));
            for place in places {
                let (id, stamp) = sessions[place];
                if let Some(at) = shard.find(id) {
                    shard.seen[at] = true;
                    if let Some(value) = shard.value(at, stamp) {
                        visit(place, value);
                    }
                }
            }
            self.remove_unseen(index, &shard);
        }
    }

    /// Sets the value for a state of the log, unless the log may change without a new stamp.
    pub(super) fn set(&mut self, id: &SessionId, stamp: LogStamp, value: Vec<u8>) {
        if !stamp.is_settled() {
            return;
        }
        self.changed_bytes += value.len();
        self.changes[shard_of(id)].insert(id.as_str().to_owned(), Some((stamp, value)));
        if self.changed_bytes > MAX_CHANGED_BYTES {
            self.save();
        }
    }

    /// Removes the value of a session.
    pub(super) fn remove(&mut self, id: &SessionId) {
        let index = shard_of(id);
        if Shard::load(&self.path(index)).find(id).is_some() {
            self.changes[index].insert(id.as_str().to_owned(), None);
        }
    }

    /// Removes the values of all sessions for which `get` was not called.
    pub(super) fn remove_others(&mut self) {
        // A few sessions fill a few of the files: listing the directory is cheaper than trying to open each of them.
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let Some(index) = self.shard_in(&entry.file_name()) else {
                continue;
            };
            let shard = self.shards[index].take();
            let shard = shard.unwrap_or_else(|| Shard::load(&self.path(index)));
            self.remove_unseen(index, &shard);
        }
    }

    /// Returns the number of the shard in a file with this name.
    fn shard_in(&self, file: &OsStr) -> Option<usize> {
        let index = file.to_str()?.strip_prefix(self.name)?.strip_prefix('-')?;
        index.parse().ok().filter(|index| *index < SHARDS)
    }

    fn remove_unseen(&mut self, index: usize, shard: &Shard) {
        for (entry, seen) in shard.entries.iter().zip(&shard.seen) {
            if !seen && let Ok(id) = std::str::from_utf8(shard.id(entry)) {
                self.changes[index].entry(id.to_owned()).or_default();
            }
        }
    }

    /// Merges the changes into the current files. A failure is not reported: it only makes the next list slower.
    pub(super) fn save(&mut self) {
        self.changed_bytes = 0;
        for index in 0..SHARDS {
            let changes = std::mem::take(&mut self.changes[index]);
            if !changes.is_empty() {
                let path = self.path(index);
                let bytes = Shard::load(&path).with(&changes);
                let _ = replace(&self.disk, &path, &bytes);
            }
        }
    }

    fn path(&self, index: usize) -> PathBuf {
        self.dir.join(format!("{}-{index:02}", self.name))
    }
}

impl Drop for SessionCache {
    fn drop(&mut self) {
        self.save();
    }
}

fn shard_of(id: &SessionId) -> usize {
    crc32fast::hash(id.as_str().as_bytes()) as usize % SHARDS
}

/// One file of a cache.
#[derive(Default)]
struct Shard {
    bytes: Vec<u8>,
    /// Sorted by id, for a binary search.
    entries: Vec<CacheEntry>,
    /// Whether the entry was requested, by position.
    seen: Vec<bool>,
}

#[derive(Clone, Copy)]
struct CacheEntry {
    id: (usize, usize),
    stamp: LogStamp,
    value: (usize, usize),
}

impl Shard {
    fn load(path: &Path) -> Self {
        Self::read(path).unwrap_or_default()
    }

    fn read(path: &Path) -> Option<Self> {
        let (file, stat) = open_regular_itself(path).ok()?;
        if stat.size > MAX_BYTES {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(stat.size).ok()?);
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        let entries = parse(&bytes)?;
        Some(Self {
            seen: vec![false; entries.len()],
            bytes,
            entries,
        })
    }

    fn id(&self, entry: &CacheEntry) -> &[u8] {
        &self.bytes[entry.id.0..entry.id.1]
    }

    fn find(&self, id: &SessionId) -> Option<usize> {
        self.entries
            .binary_search_by(|entry| self.id(entry).cmp(id.as_str().as_bytes()))
            .ok()
    }

    fn value(&self, at: usize, stamp: &LogStamp) -> Option<&[u8]> {
        let entry = &self.entries[at];
        (entry.stamp == *stamp).then(|| &self.bytes[entry.value.0..entry.value.1])
    }

    /// Returns the bytes of the file with the changes applied.
    fn with(&self, changes: &BTreeMap<String, Change>) -> Vec<u8> {
        let old = self.entries.iter().map(|entry| {
            let value = &self.bytes[entry.value.0..entry.value.1];
            (self.id(entry), Some((&entry.stamp, value)))
        });
        let new = changes.iter().map(|(id, value)| {
            let value = value.as_ref().map(|(stamp, value)| (stamp, &value[..]));
            (id.as_bytes(), value)
        });
        // If a session has two values, the later one wins.
        let entries: BTreeMap<_, _> = old.chain(new).collect();
        let mut bytes = MAGIC.to_vec();
        for (id, value) in entries {
            if let Some((stamp, value)) = value {
                put_bytes(&mut bytes, id);
                bytes.extend_from_slice(&stamp.bytes());
                put_bytes(&mut bytes, value);
            }
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}

fn parse(bytes: &[u8]) -> Option<Vec<CacheEntry>> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
    if !body.starts_with(MAGIC) || crc32fast::hash(body).to_le_bytes() != sum {
        return None;
    }
    let mut from = CacheReader {
        bytes: body,
        at: MAGIC.len(),
    };
    let mut entries: Vec<CacheEntry> = Vec::new();
    while from.at < body.len() {
        let id = from.range()?;
        let entry = CacheEntry {
            id,
            stamp: LogStamp::take(&mut from)?,
            value: from.range()?,
        };
        let after = |last: &CacheEntry| body[last.id.0..last.id.1] < body[id.0..id.1];
        if !entries.last().is_none_or(after) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// Replaces a file atomically, by a rename, so that a reader always finds a complete file.
fn replace(disk: &LogDisk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        crate::private::create_dir(dir).map_err(io::Error::other)?;
    }
    // Two processes may write at the same time, so each uses its own name.
    let random = crate::clock::random_u64() & 0xffff_ffff;
    let new = path.with_extension(format!("new-{random:08x}"));
    let written = disk.create(&new).and_then(|file| {
        disk.write(&file, bytes)?;
        disk.rename(&new, path)
    });
    if written.is_err() {
        let _ = disk.remove(&new);
    }
    written
}

/// Appends bytes with their length in front.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    // No entry comes close to the limit of four bytes.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&len.to_le_bytes());
    to.extend_from_slice(&bytes[..len as usize]);
}

/// Reads values that were written with [`put_bytes`], and never past the end.
pub(super) struct CacheReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> CacheReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*array)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn range(&mut self) -> Option<(usize, usize)> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let end = self.at.checked_add(len)?;
        self.bytes.get(self.at..end)?;
        Some((std::mem::replace(&mut self.at, end), end))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let (from, to) = self.range()?;
        std::str::from_utf8(&self.bytes[from..to]).ok()
    }
}
