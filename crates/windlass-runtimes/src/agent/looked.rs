//! Files that a call is about to write, looked at before and after: a foreign agent says that it changed something, this
//! says what.

use windlass_core::tool::ObservedChange;
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files};
use windlass_edit::diff::unified;

/// The largest file that is compared.
const MAX_FILE: u64 = 1 << 20;
/// Files of one call that are.
const MAX_FILES: usize = 16;
/// Bytes of one diff.
const MAX_DIFF: usize = 16 << 10;

/// A file as it was.
pub(super) struct Before {
    path: String,
    /// Its text; nothing where it was not there.
    text: Option<String>,
}

impl Before {
    /// Files of a call as they are.
    pub(super) fn of_all(files: &dyn Files, paths: &[String]) -> Vec<Self> {
        let paths = paths.iter().take(MAX_FILES).cloned();
        paths.filter_map(|path| Self::of(files, path)).collect()
    }

    /// A file as it is; what is no text, or too large, is not compared.
    fn of(files: &dyn Files, path: String) -> Option<Self> {
        let text = read(files, &path)?;
        Some(Self { path, text })
    }

    /// What became of it.
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

/// A text, or that nothing is there; `None` where it cannot be compared.
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
        let place = dir.path().join("a.txt");
        let put = |text: Option<&str>| match text {
            Some(text) => std::fs::write(&place, text).unwrap(),
            None => drop(std::fs::remove_file(&place)),
        };
        put(before);
        let root = Root::open(dir.path()).unwrap();
        let looked = Before::of_all(&root, &["a.txt".to_owned()]).pop().unwrap();
        put(after);
        let seen = looked.compare(&root).unwrap();
        assert_eq!(
            seen.change.map(|change| (
                change.change,
                change.added.unwrap(),
                change.removed.unwrap()
            )),
            expect
        );
    }

    #[test]
    fn what_became_of_a_file_is_seen() {
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
