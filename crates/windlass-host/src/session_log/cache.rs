//! Facts about sessions, saved beside them so that a list or a search need not read every log. An entry counts only while
//! the log is the file that was read: same inode, size and times. The cache can be deleted at any time; a file of it that
//! is damaged or of another version is read as empty and written anew.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use windlass_core::id::SessionId;

use super::disk::Disk;
use crate::workspace::open_regular_itself;

/// The directory of the caches, in that of the sessions. No session id begins with a dot.
const DIR: &str = ".cache";
/// A change rewrites the one file that holds its session.
const SHARDS: usize = 64;
/// The first bytes of a file. Another format gets other ones; another version of the program may also read other facts
/// from the same log.
pub(super) const MAGIC: &[u8] = concat!("wl-cache1 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();
const CHECKSUM: usize = 4;
/// The longest file that is read.
const MAX_BYTES: u64 = 1 << 28;
/// New values are written when there are more bytes of them than this.
const MAX_CHANGED_BYTES: usize = 8 << 20;
/// The clock of a file system may stand still for this long: a log that changed later than this before it was read could
/// change again without a new time. Tests do not wait.
const CLOCK_STEP: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 20 });

/// The identity of one state of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    /// In nanoseconds since 1970, as the next one.
    pub(super) modified: i64,
    changed: i64,
}

impl Stamp {
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

    /// Whether any later change gives another stamp.
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

    fn take(from: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            inode: from.u64()?,
            size: from.u64()?,
            modified: from.i64()?,
            changed: from.i64()?,
        })
    }
}

/// A new value of a session, or that it has none any more.
type Change = Option<(Stamp, Vec<u8>)>;

/// One cache: a value for each session.
pub(super) struct Cache {
    disk: Disk,
    dir: PathBuf,
    name: &'static str,
    shards: Vec<Option<Shard>>,
    /// Values that are not written yet, for each shard.
    changes: Vec<BTreeMap<String, Change>>,
    changed_bytes: usize,
}

impl Cache {
    pub(super) fn open(disk: &Disk, sessions: &Path, name: &'static str) -> Self {
        Self {
            disk: disk.clone(),
            dir: sessions.join(DIR),
            name,
            shards: (0..SHARDS).map(|_| None).collect(),
            changes: vec![BTreeMap::new(); SHARDS],
            changed_bytes: 0,
        }
    }

    /// The value that was saved for this state of the log. The shard stays in memory: for small values.
    pub(super) fn get(&mut self, id: &SessionId, stamp: &Stamp) -> Option<&[u8]> {
        let index = shard_of(id);
        let path = self.path(index);
        let shard = self.shards[index].get_or_insert_with(|| Shard::load(&path));
        let at = shard.find(id)?;
        shard.seen[at] = true;
        shard.value(at, stamp)
    }

    /// Calls `visit` with the values of these sessions and their places in the list, with one shard in memory at a time.
    /// The values of other sessions are removed: these are all there are.
    pub(super) fn visit(
        &mut self,
        sessions: &[(&SessionId, &Stamp)],
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
    pub(super) fn set(&mut self, id: &SessionId, stamp: Stamp, value: Vec<u8>) {
        if !stamp.is_settled() {
            return;
        }
        self.changed_bytes += value.len();
        self.changes[shard_of(id)].insert(id.as_str().to_owned(), Some((stamp, value)));
        if self.changed_bytes > MAX_CHANGED_BYTES {
            self.save();
        }
    }

    /// Forgets a session.
    pub(super) fn remove(&mut self, id: &SessionId) {
        let index = shard_of(id);
        if Shard::load(&self.path(index)).find(id).is_some() {
            self.changes[index].insert(id.as_str().to_owned(), None);
        }
    }

    /// Removes the values of all sessions that `get` was not called for.
    pub(super) fn remove_others(&mut self) {
        for index in 0..SHARDS {
            let shard = self.shards[index].take();
            let shard = shard.unwrap_or_else(|| Shard::load(&self.path(index)));
            self.remove_unseen(index, &shard);
        }
    }

    fn remove_unseen(&mut self, index: usize, shard: &Shard) {
        for (entry, seen) in shard.entries.iter().zip(&shard.seen) {
            if !seen && let Ok(id) = std::str::from_utf8(shard.id(entry)) {
                self.changes[index].entry(id.to_owned()).or_default();
            }
        }
    }

    /// Writes what changed into the files as they are now. A failure is not reported: only the time of the next list
    /// depends on it.
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

impl Drop for Cache {
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
    /// Sorted by id.
    entries: Vec<Entry>,
    /// Which entries were asked for.
    seen: Vec<bool>,
}

#[derive(Clone, Copy)]
struct Entry {
    id: (usize, usize),
    stamp: Stamp,
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

    fn id(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.id.0..entry.id.1]
    }

    fn find(&self, id: &SessionId) -> Option<usize> {
        self.entries
            .binary_search_by(|entry| self.id(entry).cmp(id.as_str().as_bytes()))
            .ok()
    }

    fn value(&self, at: usize, stamp: &Stamp) -> Option<&[u8]> {
        let entry = &self.entries[at];
        (entry.stamp == *stamp).then(|| &self.bytes[entry.value.0..entry.value.1])
    }

    /// The bytes of the file with the changes.
    fn with(&self, changes: &BTreeMap<String, Change>) -> Vec<u8> {
        let old = self.entries.iter().map(|entry| {
            let value = &self.bytes[entry.value.0..entry.value.1];
            (self.id(entry), Some((&entry.stamp, value)))
        });
        let new = changes.iter().map(|(id, value)| {
            let value = value.as_ref().map(|(stamp, value)| (stamp, &value[..]));
            (id.as_bytes(), value)
        });
        // Of two values for one session the later one stays.
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

fn parse(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
    if !body.starts_with(MAGIC) || crc32fast::hash(body).to_le_bytes() != sum {
        return None;
    }
    let mut from = Bytes {
        bytes: body,
        at: MAGIC.len(),
    };
    let mut entries: Vec<Entry> = Vec::new();
    while from.at < body.len() {
        let id = from.range()?;
        let entry = Entry {
            id,
            stamp: Stamp::take(&mut from)?,
            value: from.range()?,
        };
        let after = |last: &Entry| body[last.id.0..last.id.1] < body[id.0..id.1];
        if !entries.last().is_none_or(after) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// Written under another name and renamed, so that a reader always finds a whole file.
fn replace(disk: &Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        crate::private::create_dir(dir).map_err(io::Error::other)?;
    }
    // Two processes may write at once; each has a name of its own.
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

/// Appends bytes with their length.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    // No entry comes near the limit of four bytes.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&len.to_le_bytes());
    to.extend_from_slice(&bytes[..len as usize]);
}

/// Reads what was put, and never more than there is.
pub(super) struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
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
