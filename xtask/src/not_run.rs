//! Tests that cannot run on this machine append their names and reasons to a file, and the command that started them
//! prints the count. The file stays, with every name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cargo;

/// The environment variable with the path of the file; `windlass-needs` uses the same name.
pub(crate) const VARIABLE: &str = "WINDLASS_NOT_RUN";

/// The list of one test run.
pub(crate) struct NotRun {
    path: PathBuf,
}

impl NotRun {
    /// Creates an empty list in the target directory.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        Self::at(cargo::target_directory(root)?.join("not-run.txt"))
    }

    /// Creates an empty list in this file.
    pub(crate) fn at(path: PathBuf) -> Result<Self> {
        std::fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the sentence about the list; `None` if every test ran. Sorts the list, so that two runs can be compared.
    pub(crate) fn finish(&self) -> Result<Option<String>> {
        let text = std::fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        let sorted: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        std::fs::write(&self.path, sorted)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(sentence(&lines))
    }
}

/// Formats "12 tests not run: 10 need user namespaces (…), 2 need Landlock (…)", the most frequent reason first.
fn sentence(lines: &[&str]) -> Option<String> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        let reason = line
            .split_once('\t')
            .map_or("no reason was given", |(_, reason)| reason);
        *reasons.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(reason, count)| (usize::MAX - count, *reason));
    let total: usize = reasons.iter().map(|(_, count)| count).sum();
    let tests = if total == 1 { "test" } else { "tests" };
    let each = reasons.iter().map(
        |(reason, count)| match (reason.strip_prefix("needs "), count) {
            (Some(reason), 1) => format!("1 needs {reason}"),
            (Some(reason), _) => format!("{count} need {reason}"),
            (None, _) => format!("{count}: {reason}"),
        },
    );
    (total > 0).then(|| {
        format!(
            "{total} {tests} not run: {}",
            each.collect::<Vec<_>>().join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], expect: Option<&str>) {
        assert_eq!(sentence(lines).as_deref(), expect);
    }

    #[test]
    fn reasons_are_counted() {
        check(&[], None);
        check(&["a\tneeds x (no)"], Some("1 test not run: 1 needs x (no)"));
        check(
            &["a\tneeds b", "c\tneeds d", "e\tneeds d", "f"],
            Some("4 tests not run: 2 need d, 1 needs b, 1: no reason was given"),
        );
    }

    #[test]
    fn the_file_is_sorted_and_has_each_test_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let list = NotRun::at(folder.path().join("list"))?;
        std::fs::write(list.path(), "b\tneeds x\na\tneeds x\nb\tneeds x\n")?;
        assert_eq!(list.finish()?.as_deref(), Some("2 tests not run: 2 need x"));
        assert_eq!(
            std::fs::read_to_string(list.path())?,
            "a\tneeds x\nb\tneeds x\n"
        );
        Ok(())
    }
}
