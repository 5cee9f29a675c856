//! Directories that git treats as a repository although they are not called `.git`. Git executes programs from their
//! settings for every user who enters them, so changes of an agent never land there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Finds such directories above paths; each directory is checked once.
pub(crate) struct GitDirs<F> {
    /// Whether a path will exist after the change.
    has: F,
    known: HashMap<PathBuf, bool>,
}

impl<F: FnMut(&Path) -> bool> GitDirs<F> {
    pub(crate) fn new(has: F) -> Self {
        Self {
            has,
            known: HashMap::new(),
        }
    }

    /// The reason why a path must not be written: a directory above it is a repository. Directories called `.git` are
    /// judged elsewhere.
    pub(crate) fn refusal(&mut self, path: &Path) -> Option<String> {
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        let mut above = above.into_iter().rev();
        let dir = above
            .by_ref()
            .take_while(|dir| !dir.ends_with(".git"))
            .find(|dir| self.is_git_dir(dir))?;
        Some(format!(
            "`{}` would be a git repository (it contains HEAD, objects and refs), and git runs the programs that its settings \
             name; use other names, or create the repository yourself",
            if dir.as_os_str().is_empty() {
                Path::new(".")
            } else {
                dir
            }
            .display()
        ))
    }

    fn is_git_dir(&mut self, dir: &Path) -> bool {
        if let Some(known) = self.known.get(dir) {
            return *known;
        }
        let mut has = |name: &str| (self.has)(&dir.join(name));
        // Git looks for `.git` first, so a workspace with a `.git` may contain these names at its top.
        let shadowed = dir.as_os_str().is_empty() && has(".git");
        let found = !shadowed && is_git_dir(has);
        self.known.insert(dir.to_owned(), found);
        found
    }
}

/// Whether these names make a directory a repository. If it has a `commondir`, its objects are elsewhere.
pub(crate) fn is_git_dir(mut has: impl FnMut(&str) -> bool) -> bool {
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(there: &[&str], path: &str, refused: bool) {
        let mut dirs =
            GitDirs::new(|path: &Path| there.iter().any(|one| Path::new(one).starts_with(path)));
        assert_eq!(dirs.refusal(Path::new(path)).is_some(), refused, "{path}");
    }

    #[test]
    fn a_directory_with_the_names_of_a_repository_is_one() {
        let bare = ["x/HEAD", "x/objects/1", "x/refs/heads", "x/config"];
        check(&bare, "x/config", true);
        check(&bare, "x/sub/deep", true);
        check(&bare, "y/config", false);
        check(&bare[..2], "x/config", false);
        check(&["x/HEAD", "x/commondir"], "x/config", true);
        check(&["HEAD", "objects", "refs"], "a", true);
        check(&["HEAD", "objects", "refs", ".git"], "a", false);
        check(
            &["sub/.git/HEAD", "sub/.git/objects", "sub/.git/refs"],
            "sub/.git/config",
            false,
        );
    }
}
