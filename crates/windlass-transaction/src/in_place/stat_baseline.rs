//! A snapshot of the stat records of every source file, taken before the first command that writes to the tree
//! directly. Without a kernel overlay, only this snapshot shows what such commands changed.

use std::sync::{Arc, OnceLock};

use windlass_core::workspace::{Change, FileChange};

use crate::isolated::StatSnapshot;
use windlass_host::workspace::Root;

/// In a larger tree, only landed changes are known.
const MAX_FILES: usize = 100_000;

/// The snapshot, once it was taken.
pub(super) struct StatBaseline {
    root: Arc<Root>,
    records: OnceLock<StatSnapshot>,
}

impl StatBaseline {
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self {
            root,
            records: OnceLock::new(),
        }
    }

    /// Takes the snapshot, at the first call only.
    pub(super) fn take(&self) {
        self.records
            .get_or_init(|| StatSnapshot::at_most(MAX_FILES, &self.root));
    }

    /// Whether a command wrote to the tree directly.
    pub(super) fn is_taken(&self) -> bool {
        self.records.get().is_some()
    }

    /// Every file that differs from its record, without line counts.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        let Some(before) = self.records.get().filter(|before| !before.cut) else {
            return Vec::new();
        };
        let now = StatSnapshot::at_most(MAX_FILES, &self.root);
        let paths = before.differences(&now).into_iter();
        paths
            .map(|path| FileChange {
                change: match (before.get(&path), now.get(&path)) {
                    (None, _) => Change::Created,
                    (_, None) => Change::Deleted,
                    _ => Change::Modified,
                },
                path: path.to_string_lossy().into_owned(),
                added: None,
                removed: None,
                diff: None,
            })
            .collect()
    }
}
