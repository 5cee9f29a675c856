//! The stat records of every source file from before the first command that wrote to the tree directly. Without a kernel
//! layer nothing else tells what such commands changed.

use std::sync::{Arc, OnceLock};

use windlass_core::workspace::{Change, FileChange};

use crate::isolated::Survey;
use windlass_host::workspace::Root;

/// In a larger tree only what landed is known.
const MAX_FILES: usize = 100_000;

/// The records, once they were taken.
pub(super) struct StatBaseline {
    root: Arc<Root>,
    records: OnceLock<Survey>,
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
        self.records
            .get_or_init(|| Survey::at_most(MAX_FILES, &self.root));
    }

    /// Whether a command wrote to the tree directly.
    pub(super) fn is_taken(&self) -> bool {
        self.records.get().is_some()
    }

    /// Every file that differs from its record, without counts.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        let Some(before) = self.records.get().filter(|before| !before.cut) else {
            return Vec::new();
        };
        let now = Survey::at_most(MAX_FILES, &self.root);
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
