//! The stat records of every source file from before the first command that wrote to the tree directly. Without a kernel
//! layer nothing else tells what such commands changed.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use windlass_core::workspace::{Change, FileChange, Files};

use windlass_host::search::source_files;
use windlass_host::workspace::Root;

/// In a larger tree only what landed is known.
const MAX_FILES: usize = 100_000;

/// The records, once they were taken; none in a tree that is too large.
pub(super) struct StatBaseline {
    root: Arc<Root>,
    records: OnceLock<Option<BTreeMap<PathBuf, StatRecord>>>,
}

/// A file whose record is the same was not written: the change time cannot be set back.
#[derive(PartialEq, Eq)]
struct StatRecord {
    inode: u64,
    size: u64,
    mode: u32,
    changed: (i64, i64),
}

impl StatBaseline {
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self {
            root,
            records: OnceLock::new(),
        }
    }

    /// Records every file as it is now, the first time it is called.
    pub(super) fn take(&self) {
        self.records.get_or_init(|| stat_walk(&self.root));
    }

    /// Whether a command wrote to the tree directly.
    pub(super) fn is_taken(&self) -> bool {
        self.records.get().is_some()
    }

    /// Every file that differs from its record, without counts.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        let Some(Some(before)) = self.records.get() else {
            return Vec::new();
        };
        let now = stat_walk(&self.root).unwrap_or_default();
        let created = now
            .keys()
            .filter(|path| !before.contains_key(*path))
            .map(|path| (path, Change::Created));
        let deleted = before
            .keys()
            .filter(|path| !now.contains_key(*path))
            .map(|path| (path, Change::Deleted));
        let modified = now
            .iter()
            .filter(|(path, record)| before.get(*path).is_some_and(|old| old != *record))
            .map(|(path, _)| (path, Change::Modified));
        let all = created.chain(deleted).chain(modified);
        all.map(|(path, change)| FileChange {
            path: path.to_string_lossy().into_owned(),
            change,
            added: 0,
            removed: 0,
            diff: None,
        })
        .collect()
    }
}

fn stat_walk(root: &Root) -> Option<BTreeMap<PathBuf, StatRecord>> {
    let record = |path: &Path| {
        let about = std::fs::symlink_metadata(root.root().join(path)).ok()?;
        Some(StatRecord {
            inode: about.ino(),
            size: about.size(),
            mode: about.mode(),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    };
    let files = source_files(root, MAX_FILES)?;
    Some(
        files
            .into_iter()
            .filter_map(|path| record(&path).map(|record| (path, record)))
            .collect(),
    )
}
