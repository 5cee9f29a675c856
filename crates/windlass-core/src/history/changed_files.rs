//! The files that the calls of one run changed, folded from its events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workspace::{Change, FileChange};

/// Maximum number of files in the list.
const MAX_FILES: usize = 10_000;

/// Changed files by path, without diffs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ChangedFiles(BTreeMap<String, FileChange>);

impl ChangedFiles {
    /// Merges a change with earlier changes of the same file.
    pub(super) fn add(&mut self, change: &FileChange) {
        let full = self.0.len() >= MAX_FILES;
        let Some(file) = self.0.get_mut(&change.path) else {
            if !full {
                let change = FileChange {
                    diff: None,
                    ..change.clone()
                };
                self.0.insert(change.path.clone(), change);
            }
            return;
        };
        match (&file.change, &change.change) {
            // The run created the file and deleted it again, so nothing is left to report.
            (Change::Created, Change::Deleted) => {
                self.0.remove(&change.path);
                return;
            }
            (Change::Created, _) => {}
            (Change::Deleted, Change::Created) => file.change = Change::Modified,
            (_, later) => file.change = later.clone(),
        }
        // If one count is unknown, the sum is unknown.
        let sum = |known: Option<u32>, more: Option<u32>| Some(known?.saturating_add(more?));
        file.added = sum(file.added, change.added);
        file.removed = sum(file.removed, change.removed);
    }

    pub(super) fn list(&self) -> Vec<FileChange> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(changes: &[Change], expect: Option<(Change, u32)>) {
        let mut files = ChangedFiles::default();
        for change in changes {
            files.add(&FileChange {
                path: "a".into(),
                change: change.clone(),
                added: Some(2),
                removed: Some(1),
                diff: Some("@@".into()),
            });
        }
        let found = files.list().pop().map(|file| {
            assert_eq!(file.diff, None);
            (file.change, file.added.unwrap_or_default())
        });
        assert_eq!(found, expect);
    }

    #[test]
    fn later_changes_of_a_file_add_up() {
        use Change::{Created, Deleted, Modified};
        check(&[Created], Some((Created, 2)));
        check(&[Created, Modified], Some((Created, 4)));
        check(&[Created, Deleted], None);
        check(&[Deleted, Created], Some((Modified, 4)));
        check(&[Modified, Deleted], Some((Deleted, 4)));
    }
}
