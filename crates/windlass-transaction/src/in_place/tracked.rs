//! Files that remember what was there before: the bytes of what they changed themselves, and the system's
//! records of every file from before the first command. Memory for both is bounded.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windlass_core::CancellationToken;
use windlass_core::workspace::{
    Change, FileChange, FileError, FileErrorKind, FileKind, FileStat, Files, FindQuery, Found,
    GrepQuery, Grepped, Listing, Resolved,
};
use windlass_edit::diff::unified;

use super::undo::Undo;
use windlass_host::search::source_files;
use windlass_host::workspace::Root;

/// The most that is remembered of one file, and of all together.
const MAX_BEFORE: u64 = 1024 * 1024;
const MAX_BEFORE_ALL: usize = 16 * 1024 * 1024;
/// In a larger tree only what went through the files is known.
const MAX_FILES: usize = 100_000;
/// The longest diff that is made.
const MAX_DIFF: usize = 64 * 1024;

pub(super) struct Tracked {
    root: Arc<Root>,
    /// Where what was there before goes, so that a call can be taken back.
    undo: Option<Arc<Undo>>,
    before: Mutex<Remembered>,
    baseline: OnceLock<Baseline>,
}

#[derive(Default)]
struct Remembered {
    /// By real path.
    files: BTreeMap<String, Before>,
    bytes: usize,
}

enum Before {
    Absent,
    Bytes(Vec<u8>),
    /// It was there; it is too large to be remembered.
    There,
}

/// The records of every file, or none in a tree that is too large.
type Baseline = Option<BTreeMap<PathBuf, Print>>;

/// A file whose record is the same was not written: the change time cannot be set back.
#[derive(PartialEq, Eq)]
pub(super) struct Print {
    inode: u64,
    pub(super) size: u64,
    mode: u32,
    changed: (i64, i64),
}

impl Tracked {
    pub(super) fn new(root: Arc<Root>, undo: Option<Arc<Undo>>) -> Self {
        Self {
            root,
            undo,
            before: Mutex::default(),
            baseline: OnceLock::new(),
        }
    }

    /// Whether nothing can have changed: nothing was written and no command was run.
    pub(super) fn is_untouched(&self) -> bool {
        !self.has_baseline() && self.lock().files.is_empty()
    }

    pub(super) fn has_baseline(&self) -> bool {
        self.baseline.get().is_some()
    }

    /// Records every file as it is now, the first time it is called.
    pub(super) fn take_baseline(&self) {
        self.baseline.get_or_init(|| prints(&self.root));
    }

    /// Everything that differs from before.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        let mut changes = BTreeMap::new();
        if let Some(Some(baseline)) = self.baseline.get() {
            let now = prints(&self.root).unwrap_or_default();
            let created = now
                .keys()
                .filter(|path| !baseline.contains_key(*path))
                .map(|path| (path, Change::Created));
            let gone = baseline
                .keys()
                .filter(|path| !now.contains_key(*path))
                .map(|path| (path, Change::Deleted));
            let changed = now
                .iter()
                .filter(|(path, print)| baseline.get(*path).is_some_and(|old| old != *print));
            let modified = changed.map(|(path, _)| (path, Change::Modified));
            for (path, change) in created.chain(gone).chain(modified) {
                let path = path.to_string_lossy().into_owned();
                changes.insert(
                    path.clone(),
                    FileChange {
                        path,
                        change,
                        added: 0,
                        removed: 0,
                        diff: None,
                    },
                );
            }
        }
        for (path, before) in &self.lock().files {
            // What is known by content replaces what is only known by record.
            changes.remove(path);
            changes.extend(
                self.change_since(path, before)
                    .map(|change| (path.clone(), change)),
            );
        }
        changes.into_values().collect()
    }

    fn change_since(&self, path: &str, before: &Before) -> Option<FileChange> {
        let now = self.root.read(path, MAX_BEFORE);
        let gone = now
            .as_ref()
            .is_err_and(|err| err.kind == FileErrorKind::NotFound);
        let (change, old, new) = match (before, now) {
            (Before::Absent, _) if gone => return None,
            // A directory came to be there; the records tell of the files in it.
            (Before::Absent, Err(err)) if err.kind == FileErrorKind::WrongKind => return None,
            (Before::Absent, now) => (Change::Created, Some(Vec::new()), now.ok()),
            (Before::Bytes(old), _) if gone => {
                (Change::Deleted, Some(old.clone()), Some(Vec::new()))
            }
            (Before::There, _) if gone => (Change::Deleted, None, None),
            (Before::Bytes(old), Ok(new)) if *old == new => return None,
            (Before::Bytes(old), now) => (Change::Modified, Some(old.clone()), now.ok()),
            (Before::There, _) => (Change::Modified, None, None),
        };
        let (added, removed, diff) = old
            .zip(new)
            .map_or((0, 0, None), |(old, new)| compare(path, &old, &new));
        Some(FileChange {
            path: path.to_owned(),
            change,
            added,
            removed,
            diff,
        })
    }

    /// A path whose last name is not followed when it is a link, as the undo knows it.
    fn name_of(&self, path: &str) -> Option<String> {
        let path = self.root.relative(path).ok()?;
        let (name, above) = (path.file_name()?.to_str()?, path.parent()?.to_str()?);
        let above = self
            .root
            .resolve(if above.is_empty() { "." } else { above })
            .ok()
            .filter(|above| above.inside)?;
        Some(if above.path == "." || above.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", above.path)
        })
    }

    /// Remembers what is at a path whose name itself is about to go away or to be taken.
    fn remember_name(&self, path: &str) {
        // Of a link or a directory there are no bytes to remember; the records of the tree show what became of it.
        let plain = matches!(self.root.resolve(path), Ok(found) if found.path == path && found.kind != Some(FileKind::Directory));
        if !plain {
            self.take_baseline();
        }
        self.remember(path);
    }

    /// Remembers the bytes that a path leads to, the first time they are about to change.
    fn remember(&self, path: &str) {
        // A path that cannot be resolved cannot be changed either; the operation itself says why.
        let Ok(Resolved {
            path,
            inside: true,
            kind,
        }) = self.root.resolve(path)
        else {
            return;
        };
        if kind == Some(FileKind::Directory) {
            return;
        }
        let mut remembered = self.lock();
        if remembered.files.contains_key(&path) {
            return;
        }
        let before = match self.root.read(&path, MAX_BEFORE) {
            Ok(bytes) if remembered.bytes + bytes.len() <= MAX_BEFORE_ALL => Before::Bytes(bytes),
            Err(err) if err.kind == FileErrorKind::NotFound => Before::Absent,
            _ => Before::There,
        };
        if let Before::Bytes(bytes) = &before {
            remembered.bytes += bytes.len();
        }
        remembered.files.insert(path, before);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for Tracked {
    fn root(&self) -> &Path {
        self.root.root()
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.root.resolve(path)
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.root.read(path, max)
    }
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        self.root.read_range(path, offset, len)
    }
    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        self.root.stat(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.remember(path);
        if let (
            Some(undo),
            Ok(Resolved {
                path, inside: true, ..
            }),
        ) = (&self.undo, self.root.resolve(path))
        {
            undo.keep(&path);
        }
        self.root.write(path, bytes)
    }
    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.remember_name(path);
        if let (Some(undo), Some(path)) = (&self.undo, self.name_of(path)) {
            undo.keep(&path);
        }
        self.root.remove(path)
    }
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        self.remember_name(from);
        self.remember_name(to);
        if let (Some(undo), Some(from), Some(to)) =
            (&self.undo, self.name_of(from), self.name_of(to))
        {
            undo.keep_move(&from, &to);
        }
        self.root.rename(from, to, replace)
    }
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        self.root.list(path, max)
    }
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<Found, FileError> {
        self.root.find(query, cancel)
    }
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        self.root.grep(query, cancel)
    }
}

impl windlass_core::validator::Before for Tracked {
    fn read(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>, FileError> {
        let unknown = |message: String| {
            Err(FileError {
                kind: FileErrorKind::Io,
                message,
            })
        };
        let real = self.root.resolve(path)?.path;
        match self.lock().files.get(&real) {
            Some(Before::Absent) => return Ok(None),
            Some(Before::Bytes(bytes)) => return Ok(Some(bytes.clone())),
            Some(Before::There) => {
                return unknown(format!(
                    "what `{path}` held before was too large to be kept"
                ));
            }
            None => {}
        }
        match self.baseline.get() {
            Some(Some(baseline))
                if baseline.get(Path::new(&real))
                    != print(&self.root, Path::new(&real)).as_ref() =>
            {
                unknown(format!(
                    "what `{path}` held before is not known: a command changed it"
                ))
            }
            _ => match self.root.read(path, max) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(err) if err.kind == FileErrorKind::NotFound => Ok(None),
                Err(err) => Err(err),
            },
        }
    }
}

pub(super) fn prints(root: &Root) -> Baseline {
    let files = source_files(root, MAX_FILES)?;
    Some(
        files
            .into_iter()
            .filter_map(|path| print(root, &path).map(|print| (path, print)))
            .collect(),
    )
}

fn print(root: &Root, path: &Path) -> Option<Print> {
    let about = std::fs::symlink_metadata(root.root().join(path)).ok()?;
    let changed = (about.ctime(), about.ctime_nsec());
    Some(Print {
        inode: about.ino(),
        size: about.size(),
        mode: about.mode(),
        changed,
    })
}

/// Lines added and removed, and a unified diff unless it is long or the file is not text.
fn compare(path: &str, old: &[u8], new: &[u8]) -> (u32, u32, Option<String>) {
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return (0, 0, None);
    };
    let diff = unified(
        &format!("a/{path}"),
        &format!("b/{path}"),
        old,
        new,
        MAX_DIFF,
    );
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (
        count(diff.added),
        count(diff.removed),
        (!diff.cut).then_some(diff.text),
    )
}
