//! Which files are sources: not what ignore files name, not what tools make. Where there is no repository a list of
//! usual names stands for its ignore files.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::rc::Rc;

use windlass_host::search::Rules;
use windlass_host::workspace::is_staging;
use windlass_host::workspace::{Root, is_draft};

/// The file through which new commits come out of a copy.
pub(super) const COMMITS: &str = ".windlass-commits.pack";

/// Made by tools and never written by people, in a repository or not.
const CACHES: &[&str] = &[
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".tox",
    ".nox",
    "node_modules",
    ".gradle",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".parcel-cache",
    ".turbo",
    ".DS_Store",
];
/// What ignore files usually name, where there are none.
const OUTPUTS: &[&str] = &["target", ".venv", "venv", "dist", "build", "coverage"];

/// What one directory and those above it say about the names in them.
#[derive(Clone)]
pub(super) struct Sieve {
    rules: Rc<Rules>,
    repository: bool,
}

impl Sieve {
    /// At the top of a tree.
    pub(super) fn at_top(root: &Root) -> Self {
        let repository =
            root.open_dir(Path::new(".git")).is_ok() || root.open_file(Path::new(".git")).is_ok();
        Self {
            rules: Rules::of(root),
            repository,
        }
    }

    /// In a directory, when its names that matter are not known.
    pub(super) fn inside(&self, root: &Root, dir: &Path) -> Self {
        self.with(root, dir, &Rules::names())
    }

    /// In a directory that has these of the names that matter.
    pub(super) fn with(&self, root: &Root, dir: &Path, names: &[OsString]) -> Self {
        if names.is_empty() {
            return self.clone();
        }
        let rules = Rules::below(Some(Rc::clone(&self.rules)), root, dir, names);
        Self {
            rules: Rc::new(rules),
            repository: self.repository,
        }
    }

    /// Whether a name in the directory is no source, nor anything below it.
    pub(super) fn drops(&self, name: &OsStr, path: &Path, is_dir: bool) -> bool {
        let named = |list: &[&str]| list.iter().any(|one| name == *one);
        never(name, is_dir)
            || named(CACHES)
            || (!self.repository && is_dir && named(OUTPUTS))
            || self.rules.ignores(path, is_dir)
    }
}

/// What is not even told of: git's own folders, and files of ours.
pub(super) fn never(name: &OsStr, is_dir: bool) -> bool {
    name == ".git" || name == COMMITS || is_staging(name) || (!is_dir && is_draft(name))
}

/// The names that have a say.
pub(super) fn has_say(name: &OsStr) -> bool {
    name == ".ignore" || name == ".gitignore" || name == ".git"
}

/// Whether a path is a source file of a tree, by the rules of every directory on the way.
pub(super) fn is_source(root: &Root, path: &Path) -> bool {
    let mut sieve = Sieve::at_top(root);
    let mut at = std::path::PathBuf::new();
    let parts: Vec<_> = path.iter().collect();
    for (index, name) in parts.iter().enumerate() {
        at.push(name);
        let is_dir = index + 1 < parts.len();
        if sieve.drops(name, &at, is_dir) {
            return false;
        }
        if is_dir {
            sieve = sieve.inside(root, &at);
        }
    }
    true
}
