//! The source set: files that are neither ignored nor created by tools. Outside a repository, a list of common names
//! replaces the ignore files.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::rc::Rc;

use windlass_host::search::IgnoreRules;
use windlass_host::workspace::is_staging;
use windlass_host::workspace::{Root, is_draft};

/// The file through which new commits leave a copy.
pub(super) const COMMITS: &str = ".windlass-commits.pack";

/// Created by tools and never written by people, inside and outside of repositories.
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
/// Directories that ignore files usually list; used where there are none.
const OUTPUTS: &[&str] = &["target", ".venv", "venv", "dist", "build", "coverage"];

/// The ignore rules of one directory and its ancestors.
#[derive(Clone)]
pub(super) struct SourceFilter {
    rules: Rc<IgnoreRules>,
    repository: bool,
}

impl SourceFilter {
    /// The filter for the top directory of a tree.
    pub(super) fn at_top(root: &Root) -> Self {
        let repository =
            root.open_dir(Path::new(".git")).is_ok() || root.open_file(Path::new(".git")).is_ok();
        Self {
            rules: IgnoreRules::of(root),
            repository,
        }
    }

    /// The filter for a subdirectory, if its ignore files are not known yet.
    pub(super) fn inside(&self, root: &Root, dir: &Path) -> Self {
        self.with(root, dir, &IgnoreRules::names())
    }

    /// The filter for a subdirectory that contains these ignore files.
    pub(super) fn with(&self, root: &Root, dir: &Path, names: &[OsString]) -> Self {
        if names.is_empty() {
            return self.clone();
        }
        let rules = IgnoreRules::below(Some(Rc::clone(&self.rules)), root, dir, names);
        Self {
            rules: Rc::new(rules),
            repository: self.repository,
        }
    }

    /// Whether a name in the directory, with everything below it, is not in the source set.
    pub(super) fn drops(&self, name: &OsStr, path: &Path, is_dir: bool) -> bool {
        let named = |list: &[&str]| list.iter().any(|one| name == *one);
        never(name, is_dir)
            || named(CACHES)
            || (!self.repository && is_dir && named(OUTPUTS))
            || self.rules.ignores(path, is_dir)
    }
}

/// Names that are not even reported: git's directories, and our own files.
pub(super) fn never(name: &OsStr, is_dir: bool) -> bool {
    name == ".git" || name == COMMITS || is_staging(name) || (!is_dir && is_draft(name))
}

/// Whether a file of this name influences the filter.
pub(super) fn is_filter_file(name: &OsStr) -> bool {
    name == ".ignore" || name == ".gitignore" || name == ".git"
}

/// Whether a path is a source file, by the rules of every directory above it.
pub(super) fn is_source(root: &Root, path: &Path) -> bool {
    let mut filter = SourceFilter::at_top(root);
    let mut at = std::path::PathBuf::new();
    let parts: Vec<_> = path.iter().collect();
    for (index, name) in parts.iter().enumerate() {
        at.push(name);
        let is_dir = index + 1 < parts.len();
        if filter.drops(name, &at, is_dir) {
            return false;
        }
        if is_dir {
            filter = filter.inside(root, &at);
        }
    }
    true
}
