//! A snapshot of the metadata (`stat`) of every source file of a tree. The difference between two snapshots is the set
//! of files that were changed in between. The walk reads only directories and ignore files, and uses a few bytes of
//! memory per file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType};
use windlass_core::CancellationToken;

use super::sources::{SourceFilter, is_filter_file, never};
use windlass_host::workspace::Root;

/// A tree with more source files is not watched completely.
pub(super) const MAX_FILES: usize = 2_000_000;
/// Paths that are named one by one.
const MAX_NAMED: usize = 20;
/// First bytes of a stored snapshot.
const MAGIC: &[u8] = b"windlass survey 1\n";
const MAX_STORED: u64 = 1 << 30;

/// The metadata records of a tree.
#[derive(Debug, Default)]
pub(crate) struct StatSnapshot {
    /// By directory, relative to the root.
    dirs: BTreeMap<PathBuf, DirStats>,
    pub(super) files: usize,
    /// The walk stopped early, because of too many files or a cancellation.
    pub(crate) cut: bool,
    /// The first files of another owner; an overlay cannot copy them up.
    pub(super) foreign: Vec<PathBuf>,
    /// Directories that cannot be read.
    pub(super) closed: Vec<PathBuf>,
    /// The time of the snapshot, if it is earlier than the walk.
    moment: Option<FsTime>,
    fingerprint: OnceLock<String>,
}

/// A time of the clock that file systems use for timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FsTime(i64, i64);

impl FsTime {
    pub(super) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }

    /// Whether a file was changed at this time or later.
    fn is_before(self, stat: &rustix::fs::Stat) -> bool {
        self <= Self(stat.st_ctime, stat.st_ctime_nsec.cast_signed())
    }
}

/// The sorted names of one directory, concatenated, and for each file the end of its name and its record.
#[derive(Debug, Default, PartialEq, Eq)]
struct DirStats {
    names: Vec<u8>,
    files: Vec<(u32, StatRecord)>,
}

/// A value that changes whenever a file changes. It includes the change time, which no program can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatRecord {
    /// A hash of inode, size and both times; see [`StatRecord::key_of`].
    pub(super) key: u64,
    pub(super) mode: u32,
}

impl StatRecord {
    /// Differs from the record of every file.
    const NEVER: Self = Self { key: 0, mode: 0 };

    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        let nanos = |sec: i64, nsec: u64| {
            sec.wrapping_mul(1_000_000_000)
                .wrapping_add(nsec.cast_signed())
        };
        let (changed, written) = (
            nanos(stat.st_ctime, stat.st_ctime_nsec),
            nanos(stat.st_mtime, stat.st_mtime_nsec),
        );
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self {
            key: Self::key_of(stat.st_ino, size, changed, written),
            mode: stat.st_mode,
        }
    }

    /// Uses the same fields as git's index, so that both can be compared. Git stores the lower 32 bits of inode and
    /// size.
    pub(super) fn key_of(inode: u64, size: u64, changed: i64, written: i64) -> u64 {
        let parts = [
            inode & 0xffff_ffff,
            size & 0xffff_ffff,
            changed.cast_unsigned(),
            written.cast_unsigned(),
        ];
        // One call to the hash function: an incremental hasher is several times slower, and this runs for every file.
        let hash = blake3::hash(parts.map(u64::to_le_bytes).as_flattened());
        let mut key = [0; 8];
        key.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(key)
    }
}

impl DirStats {
    fn iter(&self) -> impl Iterator<Item = (&OsStr, StatRecord)> {
        let starts = std::iter::once(0).chain(self.files.iter().map(|(end, _)| *end as usize));
        starts.zip(&self.files).map(|(start, (end, print))| {
            (OsStr::from_bytes(&self.names[start..*end as usize]), *print)
        })
    }

    fn get(&self, name: &OsStr) -> Option<StatRecord> {
        self.find(name).map(|at| self.files[at].1)
    }

    /// A binary search, because a directory may contain a hundred thousand names.
    fn find(&self, name: &OsStr) -> Option<usize> {
        let (mut from, mut to) = (0, self.files.len());
        while from < to {
            let middle = from.midpoint(to);
            let start = middle
                .checked_sub(1)
                .map_or(0, |before| self.files[before].0 as usize);
            let (end, _) = self.files[middle];
            match self.names[start..end as usize].cmp(name.as_bytes()) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }
}

impl StatSnapshot {
    /// Walks the source files below a root. A cancelled walk is marked as `cut`.
    pub(super) fn of(root: &Root, cancel: &CancellationToken) -> Self {
        Self::default().walk(root, cancel, Some(SourceFilter::at_top(root)), MAX_FILES)
    }

    /// Like [`Self::of`], with a limit on the number of files; beyond it the walk is `cut`.
    pub(crate) fn at_most(files: usize, root: &Root) -> Self {
        let never = CancellationToken::new();
        Self::default().walk(root, &never, Some(SourceFilter::at_top(root)), files)
    }

    /// A snapshot of the tree at an earlier time. A file that was changed since then gets a record that no file can
    /// have, so that it always counts as changed.
    pub(super) fn as_of(moment: FsTime, root: &Root, cancel: &CancellationToken) -> Self {
        let snapshot = Self {
            moment: Some(moment),
            ..Self::default()
        };
        snapshot.walk(root, cancel, Some(SourceFilter::at_top(root)), MAX_FILES)
    }

    /// Walks all files below a root, except those of git.
    pub(super) fn of_everything(root: &Root) -> Self {
        Self::default().walk(root, &CancellationToken::new(), None, MAX_FILES)
    }

    fn walk(
        self,
        root: &Root,
        cancel: &CancellationToken,
        filter: Option<SourceFilter>,
        most: usize,
    ) -> Self {
        let mut snapshot = self;
        let mut open = vec![(PathBuf::new(), filter)];
        while let Some((path, filter)) = open.pop() {
            if cancel.is_cancelled() || snapshot.files >= most {
                snapshot.cut = true;
                break;
            }
            snapshot.enter(root, path, filter.as_ref(), &mut open);
        }
        snapshot
    }

    fn enter(
        &mut self,
        root: &Root,
        path: PathBuf,
        filter: Option<&SourceFilter>,
        open: &mut Vec<(PathBuf, Option<SourceFilter>)>,
    ) {
        let Ok((handle, entries)) = root.entries(&path) else {
            if self.closed.len() < MAX_NAMED {
                self.closed.push(path);
            }
            return;
        };
        let filter_files: Vec<OsString> = entries
            .iter()
            .map(|(name, _)| name)
            .filter(|name| is_filter_file(name))
            .cloned()
            .collect();
        let filter = filter.map(|above| match path.as_os_str().is_empty() {
            true => above.clone(),
            false => above.with(root, &path, &filter_files),
        });
        let own = rustix::process::geteuid();
        let mut dir = DirStats::default();
        let mut full = path.join("-");
        for (name, kind) in entries {
            full.set_file_name(&name);
            let is_dir = kind == FileType::Directory;
            if filter.as_ref().map_or_else(
                || never(&name, is_dir),
                |filter| filter.drops(&name, &full, is_dir),
            ) {
                continue;
            }
            if is_dir {
                open.push((full.clone(), filter.clone()));
                continue;
            }
            if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&handle, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if stat.st_uid != own.as_raw() && !own.is_root() && self.foreign.len() < MAX_NAMED {
                self.foreign.push(full.clone());
            }
            dir.names.extend_from_slice(name.as_bytes());
            let end = u32::try_from(dir.names.len()).unwrap_or(u32::MAX);
            let changed_since = self.moment.is_some_and(|moment| moment.is_before(&stat));
            dir.files.push((
                end,
                if changed_since {
                    StatRecord::NEVER
                } else {
                    StatRecord::of(&stat)
                },
            ));
            self.files += 1;
        }
        if !dir.files.is_empty() {
            self.dirs.insert(path, dir);
        }
    }

    pub(crate) fn get(&self, path: &Path) -> Option<StatRecord> {
        self.dirs
            .get(path.parent().unwrap_or(Path::new("")))?
            .get(path.file_name()?)
    }

    /// Updates the records of these files. Only for files whose content is the same as in the snapshot.
    pub(super) fn refresh<'p>(&mut self, root: &Root, paths: impl Iterator<Item = Cow<'p, Path>>) {
        for path in paths {
            let dir = self.dirs.get_mut(path.parent().unwrap_or(Path::new("")));
            let Some((dir, name)) = dir.zip(path.file_name()) else {
                continue;
            };
            let stat = rustix::fs::statat(root.handle(), &*path, AtFlags::SYMLINK_NOFOLLOW);
            if let (Some(at), Ok(stat)) = (dir.find(name), stat) {
                dir.files[at].1 = StatRecord::of(&stat);
            }
        }
        self.fingerprint = OnceLock::new();
    }

    /// Paths that differ between two snapshots, sorted.
    pub(crate) fn differences(&self, now: &Self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for (path, dir) in &self.dirs {
            match now.dirs.get(path) {
                Some(other) if other == dir => {}
                other => {
                    for (name, print) in dir.iter() {
                        if other.and_then(|other| other.get(name)) != Some(print) {
                            paths.push(path.join(name));
                        }
                    }
                }
            }
        }
        for (path, dir) in &now.dirs {
            let before = self.dirs.get(path);
            if before == Some(dir) {
                continue;
            }
            paths.extend(
                dir.iter()
                    .filter(|(name, _)| before.is_none_or(|before| before.get(name).is_none()))
                    .map(|(name, _)| path.join(name)),
            );
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Stores the snapshot for [`StatSnapshot::read`].
    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(self.files * 32);
        let number =
            |bytes: &mut Vec<u8>, n: usize| bytes.extend_from_slice(&(n as u64).to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        number(&mut bytes, self.dirs.len());
        for (path, dir) in &self.dirs {
            for part in [path.as_os_str().as_bytes(), &dir.names] {
                number(&mut bytes, part.len());
                bytes.extend_from_slice(part);
            }
            number(&mut bytes, dir.files.len());
            for (end, print) in &dir.files {
                bytes.extend_from_slice(&end.to_le_bytes());
                bytes.extend_from_slice(&print.key.to_le_bytes());
                bytes.extend_from_slice(&print.mode.to_le_bytes());
            }
        }
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        let draft = path.with_extension("new");
        std::fs::write(&draft, &bytes)?;
        std::fs::rename(draft, path)
    }

    /// Reads a stored snapshot; `None` if it is damaged.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let bytes = windlass_host::workspace::read_file(path, MAX_STORED).ok()?;
        let (bytes, hash) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(bytes) != *hash {
            return None;
        }
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut snapshot = Self::default();
        for _ in 0..number(&mut rest)? {
            let path = PathBuf::from(OsStr::from_bytes(part(&mut rest)?));
            let names = part(&mut rest)?.to_vec();
            let mut files: Vec<(u32, StatRecord)> = Vec::new();
            for _ in 0..number(&mut rest)? {
                let (end, key, mode) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
                let end = u32::from_le_bytes(end);
                let start = files.last().map_or(0, |(end, _)| *end);
                if end < start || end as usize > names.len() {
                    return None;
                }
                files.push((
                    end,
                    StatRecord {
                        key: u64::from_le_bytes(key),
                        mode: u32::from_le_bytes(mode),
                    },
                ));
            }
            snapshot.files += files.len();
            snapshot.dirs.insert(path, DirStats { names, files });
        }
        Some(snapshot)
    }

    /// A hash of the whole snapshot: the fingerprint of the tree that changes are relative to.
    pub(super) fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| {
            let mut hasher = blake3::Hasher::new();
            let mut record = Vec::new();
            for (path, dir) in &self.dirs {
                for (name, print) in dir.iter() {
                    let full = path.join(name);
                    record.clear();
                    record.extend_from_slice(&(full.as_os_str().len() as u64).to_le_bytes());
                    record.extend_from_slice(full.as_os_str().as_bytes());
                    record.extend_from_slice(&print.key.to_le_bytes());
                    record.extend_from_slice(&print.mode.to_le_bytes());
                    hasher.update(&record);
                }
            }
            hasher.finalize().to_hex().to_string()
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*first)
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(take(rest)?)).ok()
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)?;
    let (first, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(first)
}

/// The directory of a path, to be opened below a root.
pub(crate) fn parent(path: &Path) -> &Path {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    above.unwrap_or(Path::new("."))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_ignored_files_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for path in [
            "a.txt",
            "sub/b.txt",
            "sub/deep/c.txt",
            "out/x.o",
            "node_modules/m/i.js",
            ".git/HEAD",
            "kept/d",
        ] {
            write(path, path);
        }
        write(".gitignore", "*.o\n");
        let root = Root::open(dir.path()).unwrap();
        let never = CancellationToken::new();
        let before = StatSnapshot::of(&root, &never);
        assert_eq!(before.files, 5, "{before:?}");
        assert_eq!(
            before.differences(&StatSnapshot::of(&root, &never)),
            [] as [PathBuf; 0]
        );
        // Same size and modification time, but the record differs.
        let about = std::fs::metadata(dir.path().join("a.txt")).unwrap();
        write("a.txt", "A.TXT");
        let file = std::fs::File::options()
            .write(true)
            .open(dir.path().join("a.txt"))
            .unwrap();
        file.set_modified(about.modified().unwrap()).unwrap();
        write("sub/new.txt", "n");
        write("out/y.o", "y");
        std::fs::remove_file(dir.path().join("sub/deep/c.txt")).unwrap();
        let now = StatSnapshot::of(&root, &never);
        assert_eq!(
            before.differences(&now),
            ["a.txt", "sub/deep/c.txt", "sub/new.txt"].map(PathBuf::from)
        );
        assert_ne!(before.fingerprint(), now.fingerprint());
        for (path, there) in [
            ("a.txt", true),
            ("sub/b.txt", true),
            ("sub/new.txt", true),
            ("sub/a", false),
            ("z", false),
        ] {
            assert_eq!(now.get(Path::new(path)).is_some(), there, "{path}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let file = elsewhere.path().join("survey");
        now.write(&file).unwrap();
        assert_eq!(
            now.differences(&StatSnapshot::read(&file).unwrap()),
            [] as [PathBuf; 0]
        );
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.truncate(bytes.len() - 1);
        std::fs::write(&file, bytes).unwrap();
        assert!(
            StatSnapshot::read(&file).is_none(),
            "a truncated file is not read"
        );
        // Every name is found, at any position in its directory.
        for n in 0..100 {
            write(&format!("many/{}", n * 7 % 100), "m");
        }
        let many = StatSnapshot::of(&root, &never);
        assert!((0..100).all(|n| many.get(&Path::new("many").join(n.to_string())).is_some()));
        assert!(
            many.get(Path::new("many/100")).is_none() && many.get(Path::new("many/")).is_none()
        );
        assert!(
            now.get(Path::new("sub/b.txt")).is_some() && now.get(Path::new("out/x.o")).is_none()
        );
    }
}
