//! Compares the files that a call writes before and after it, because a foreign agent only reports that it changed
//! something.

use windlass_core::tool::ObservedChange;
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files};
use windlass_edit::diff::unified;

/// Bytes of the largest file that is compared.
const MAX_FILE: u64 = 1 << 20;
/// Files of one call that are compared.
const MAX_FILES: usize = 16;
/// Bytes of one diff.
const MAX_DIFF: usize = 16 << 10;

/// A file before a call.
pub(super) struct FileBeforeCall {
    path: String,
    /// The content; `None` if the file did not exist.
    text: Option<String>,
}

impl FileBeforeCall {
    /// Reads the files of a call.
    pub(super) fn of_all(files: &dyn Files, paths: &[String]) -> Vec<Self> {
        let paths = paths.iter().take(MAX_FILES).cloned();
        paths.filter_map(|path| Self::of(files, path)).collect()
    }

    /// Reads a file. `None` if it is not text or too large to compare.
    fn of(files: &dyn Files, path: String) -> Option<Self> {
        let text = read(files, &path)?;
        Some(Self { path, text })
    }

    /// Compares the file with its content now.
    pub(super) fn compare(self, files: &dyn Files) -> Option<ObservedChange> {
        let after = read(files, &self.path)?;
        let Self { path, text: before } = self;
        let change = match (&before, &after) {
            (None, None) => None,
            (None, Some(_)) => Some(Change::Created),
            (Some(_), None) => Some(Change::Deleted),
            (Some(before), Some(after)) => (before != after).then_some(Change::Modified),
        };
        let name = |side: &str, there: bool| {
            if there {
                format!("{side}/{path}")
            } else {
                "/dev/null".to_owned()
            }
        };
        let change = change.map(|change| {
            let (old, new) = (name("a", before.is_some()), name("b", after.is_some()));
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            let diff = unified(&old, &new, &before, &after, MAX_DIFF);
            let count = |lines: usize| u32::try_from(lines).ok();
            let (added, removed) = (count(diff.added), count(diff.removed));
            FileChange {
                path: path.clone(),
                change,
                added,
                removed,
                diff: Some(diff.text),
            }
        });
        Some(ObservedChange { path, change })
    }
}

/// The content, or `Some(None)` if the file does not exist; `None` if it cannot be compared.
fn read(files: &dyn Files, path: &str) -> Option<Option<String>> {
    match files.read(path, MAX_FILE) {
        Ok(bytes) => String::from_utf8(bytes).ok().map(Some),
        Err(err) if err.kind == FileErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use windlass_host::workspace::Root;

    use super::*;

    #[track_caller]
    fn check(before: Option<&str>, after: Option<&str>, expect: Option<(Change, u32, u32)>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let put = |text: Option<&str>| match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => drop(std::fs::remove_file(&path)),
        };
        put(before);
        let root = Root::open(dir.path()).unwrap();
        let file = FileBeforeCall::of_all(&root, &["a.txt".to_owned()])
            .pop()
            .unwrap();
        put(after);
        let comparison = file.compare(&root).unwrap();
        assert_eq!(
            comparison.change.map(|change| (
                change.change,
                change.added.unwrap(),
                change.removed.unwrap()
            )),
            expect
        );
    }

    #[test]
    fn a_change_of_a_file_is_detected() {
        check(
            Some("a\nb\n"),
            Some("a\nc\n"),
            Some((Change::Modified, 1, 1)),
        );
        check(None, Some("x\n"), Some((Change::Created, 1, 0)));
        check(Some("x\n"), None, Some((Change::Deleted, 0, 1)));
        check(Some("x\n"), Some("x\n"), None);
        check(None, None, None);
    }
}
