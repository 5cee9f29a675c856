//! The stat walk: the system's records of every source file at one moment, so that a later walk can say what a person
//! has changed meanwhile. Nothing is read but directories and ignore files; memory is a few bytes a file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType};
use windlass_core::CancellationToken;

use super::sources::{Sieve, has_say, never};
use windlass_host::workspace::Root;

/// A tree with more source files cannot be watched.
pub(super) const MAX_FILES: usize = 2_000_000;
/// Paths that are named one by one.
const MAX_NAMED: usize = 20;
/// How a survey that is written down begins, and the most that is read of one.
const MAGIC: &[u8] = b"windlass survey 1\n";
const MAX_WRITTEN: u64 = 1 << 30;

/// The records of a tree.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// By directory, relative to the root.
    dirs: BTreeMap<PathBuf, Dir>,
    pub(super) files: usize,
    /// There are more files than are looked at.
    pub(crate) cut: bool,
    /// Files of another owner, which a layer cannot take writes for; the first of them.
    pub(super) foreign: Vec<PathBuf>,
    /// Directories that cannot be read.
    pub(super) closed: Vec<PathBuf>,
    /// The moment it is about, where that is not the one of the walk.
    moment: Option<Moment>,
    fingerprint: OnceLock<String>,
}

/// A moment by the clock that file systems take their times from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i64, i64);

impl Moment {
    pub(super) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }

    /// Whether a file was changed then or later.
    fn is_before(self, stat: &rustix::fs::Stat) -> bool {
        self <= Self(stat.st_ctime, stat.st_ctime_nsec.cast_signed())
    }
}

/// The sorted names of one directory one after the other, and where each ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dir {
    names: Vec<u8>,
    files: Vec<(u32, Print)>,
}

/// What changes whenever a file does: the change time cannot be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Print {
    /// Of inode, size and both times; see [`Print::key_of`].
    pub(super) key: u64,
    pub(super) mode: u32,
}

impl Print {
    /// The record of no file.
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

    /// As git records it, so that both can be compared: it keeps the lower half of inodes and sizes.
    pub(super) fn key_of(inode: u64, size: u64, changed: i64, written: i64) -> u64 {
        let parts = [
            inode & 0xffff_ffff,
            size & 0xffff_ffff,
            changed.cast_unsigned(),
            written.cast_unsigned(),
        ];
        // At once: this is done for every file, and a hasher that takes parts costs several times as much.
        let hash = blake3::hash(parts.map(u64::to_le_bytes).as_flattened());
        let mut key = [0; 8];
        key.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(key)
    }
}

impl Dir {
    fn iter(&self) -> impl Iterator<Item = (&OsStr, Print)> {
        let starts = std::iter::once(0).chain(self.files.iter().map(|(end, _)| *end as usize));
        starts.zip(&self.files).map(|(start, (end, print))| {
            (OsStr::from_bytes(&self.names[start..*end as usize]), *print)
        })
    }

    fn get(&self, name: &OsStr) -> Option<Print> {
        self.find(name).map(|at| self.files[at].1)
    }

    /// Names are sorted, because a directory may have a hundred thousand of them.
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

impl Survey {
    /// Walks the source files below a root. A walk that is told to stop is cut.
    pub(super) fn of(root: &Root, cancel: &CancellationToken) -> Self {
        Self::default().walk(root, cancel, Some(Sieve::at_top(root)), MAX_FILES)
    }

    /// The same up to so many files; then it is cut.
    pub(crate) fn at_most(files: usize, root: &Root) -> Self {
        let never = CancellationToken::new();
        Self::default().walk(root, &never, Some(Sieve::at_top(root)), files)
    }

    /// The same for the tree as it was at a moment that has passed: a file that was changed since then is recorded as
    /// nothing that it could ever be.
    pub(super) fn as_of(moment: Moment, root: &Root, cancel: &CancellationToken) -> Self {
        let survey = Self {
            moment: Some(moment),
            ..Self::default()
        };
        survey.walk(root, cancel, Some(Sieve::at_top(root)), MAX_FILES)
    }

    /// Walks all files below a root but git's own.
    pub(super) fn of_everything(root: &Root) -> Self {
        Self::default().walk(root, &CancellationToken::new(), None, MAX_FILES)
    }

    fn walk(
        self,
        root: &Root,
        cancel: &CancellationToken,
        sieve: Option<Sieve>,
        most: usize,
    ) -> Self {
        let mut survey = self;
        let mut open = vec![(PathBuf::new(), sieve)];
        while let Some((path, sieve)) = open.pop() {
            if cancel.is_cancelled() || survey.files >= most {
                survey.cut = true;
                break;
            }
            survey.enter(root, path, sieve.as_ref(), &mut open);
        }
        survey
    }

    fn enter(
        &mut self,
        root: &Root,
        path: PathBuf,
        sieve: Option<&Sieve>,
        open: &mut Vec<(PathBuf, Option<Sieve>)>,
    ) {
        let Ok((handle, entries)) = root.entries(&path) else {
            if self.closed.len() < MAX_NAMED {
                self.closed.push(path);
            }
            return;
        };
        let said: Vec<OsString> = entries
            .iter()
            .map(|(name, _)| name)
            .filter(|name| has_say(name))
            .cloned()
            .collect();
        let sieve = sieve.map(|above| match path.as_os_str().is_empty() {
            true => above.clone(),
            false => above.with(root, &path, &said),
        });
        let own = rustix::process::geteuid();
        let mut dir = Dir::default();
        let mut full = path.join("-");
        for (name, kind) in entries {
            full.set_file_name(&name);
            let is_dir = kind == FileType::Directory;
            if sieve.as_ref().map_or_else(
                || never(&name, is_dir),
                |sieve| sieve.drops(&name, &full, is_dir),
            ) {
                continue;
            }
            if is_dir {
                open.push((full.clone(), sieve.clone()));
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
            let young = self.moment.is_some_and(|moment| moment.is_before(&stat));
            dir.files.push((
                end,
                if young {
                    Print::NEVER
                } else {
                    Print::of(&stat)
                },
            ));
            self.files += 1;
        }
        if !dir.files.is_empty() {
            self.dirs.insert(path, dir);
        }
    }

    /// The record of one file.
    pub(crate) fn get(&self, path: &Path) -> Option<Print> {
        self.dirs
            .get(path.parent().unwrap_or(Path::new("")))?
            .get(path.file_name()?)
    }

    /// Takes the records of these files anew. Only for files that hold what they held when it was made.
    pub(super) fn refresh<'p>(&mut self, root: &Root, paths: impl Iterator<Item = Cow<'p, Path>>) {
        for path in paths {
            let dir = self.dirs.get_mut(path.parent().unwrap_or(Path::new("")));
            let Some((dir, name)) = dir.zip(path.file_name()) else {
                continue;
            };
            let stat = rustix::fs::statat(root.handle(), &*path, AtFlags::SYMLINK_NOFOLLOW);
            if let (Some(at), Ok(stat)) = (dir.find(name), stat) {
                dir.files[at].1 = Print::of(&stat);
            }
        }
        self.fingerprint = OnceLock::new();
    }

    /// Paths that differ between two walks, sorted.
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

    /// Writes it down, to be read by [`Survey::read`].
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

    /// Reads what was written down; nothing when it is not whole.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let bytes = windlass_host::workspace::read_file(path, MAX_WRITTEN).ok()?;
        let (bytes, hash) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(bytes) != *hash {
            return None;
        }
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut survey = Self::default();
        for _ in 0..number(&mut rest)? {
            let path = PathBuf::from(OsStr::from_bytes(part(&mut rest)?));
            let names = part(&mut rest)?.to_vec();
            let mut files: Vec<(u32, Print)> = Vec::new();
            for _ in 0..number(&mut rest)? {
                let (end, key, mode) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
                let end = u32::from_le_bytes(end);
                let start = files.last().map_or(0, |(end, _)| *end);
                if end < start || end as usize > names.len() {
                    return None;
                }
                files.push((
                    end,
                    Print {
                        key: u64::from_le_bytes(key),
                        mode: u32::from_le_bytes(mode),
                    },
                ));
            }
            survey.files += files.len();
            survey.dirs.insert(path, Dir { names, files });
        }
        Some(survey)
    }

    /// A hash over everything that was seen: the fingerprint of the tree that changes are relative to.
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

/// The directory that a path is in, to be opened beneath a root.
pub(crate) fn parent(path: &Path) -> &Path {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    above.unwrap_or(Path::new("."))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_tells_what_moved_and_passes_over_what_is_no_source() {
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
        let before = Survey::of(&root, &never);
        assert_eq!(before.files, 5, "{before:?}");
        assert_eq!(
            before.differences(&Survey::of(&root, &never)),
            [] as [PathBuf; 0]
        );
        // The same size and the same time, but not the same record.
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
        let now = Survey::of(&root, &never);
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
            now.differences(&Survey::read(&file).unwrap()),
            [] as [PathBuf; 0]
        );
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.truncate(bytes.len() - 1);
        std::fs::write(&file, bytes).unwrap();
        assert!(Survey::read(&file).is_none(), "half of it is nothing");
        // Every name is found, wherever it stands in its directory.
        for n in 0..100 {
            write(&format!("many/{}", n * 7 % 100), "m");
        }
        let many = Survey::of(&root, &never);
        assert!((0..100).all(|n| many.get(&Path::new("many").join(n.to_string())).is_some()));
        assert!(
            many.get(Path::new("many/100")).is_none() && many.get(Path::new("many/")).is_none()
        );
        assert!(
            now.get(Path::new("sub/b.txt")).is_some() && now.get(Path::new("out/x.o")).is_none()
        );
    }
}
