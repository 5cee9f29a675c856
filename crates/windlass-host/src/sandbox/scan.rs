//! Scans a tree before the first command for credentials and sockets that commands must not see, and for repositories
//! whose settings they must not change. The scan is limited in entries and depth, and reads no file.

use std::collections::VecDeque;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use windlass_core::gate::{glob_match, is_credential};

/// The limits of a scan.
pub(super) struct TreeScan {
    max_entries: usize,
    max_depth: usize,
    /// Whether certificates (`.pem`) count as secrets. Those of tools are public, and many tools need them.
    certificates: bool,
}

/// The paths that a scan found.
#[derive(Default)]
pub(super) struct ScanResult {
    /// Absolute paths, to be hidden.
    pub(super) secrets: Vec<PathBuf>,
    /// Git directories below the top, relative to it.
    pub(super) repositories: Vec<PathBuf>,
}

impl TreeScan {
    /// The limits for the workspace.
    pub(super) const WORKSPACE: Self = Self {
        max_entries: 5_000,
        max_depth: 8,
        certificates: true,
    };
    /// The limits for visible parts of a home, and for tools.
    pub(super) const TOOLS: Self = Self {
        max_entries: 500,
        max_depth: 2,
        certificates: false,
    };

    pub(super) fn run(&self, root: &Path, hidden: &[String]) -> ScanResult {
        let (mut found, mut sockets) = (ScanResult::default(), None);
        let mut folders = VecDeque::from([(root.to_owned(), 0)]);
        let mut left = self.max_entries;
        while let Some((folder, depth)) = folders.pop_front() {
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return found;
                }
                let path = entry.path();
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let relative = path.strip_prefix(root).unwrap_or(&path);
                let shown = relative.to_string_lossy();
                let forbidden = hidden
                    .iter()
                    .any(|pattern| glob_match(pattern.trim_end_matches('/'), &shown));
                // A service outside the sandbox that listens at this socket would serve requests of a command.
                let mut service =
                    || kind.is_socket() && sockets.get_or_insert_with(BoundSockets::now).at(&path);
                if forbidden || self.is_secret(&name, kind.is_dir()) || service() {
                    found.secrets.push(path);
                } else if name == ".git" && depth > 0 {
                    found.repositories.push(relative.to_owned());
                } else if kind.is_dir() && depth < self.max_depth && !SKIPPED_DIRS.contains(&&*name)
                {
                    folders.push_back((path, depth + 1));
                }
            }
        }
        found
    }

    fn is_secret(&self, name: &str, folder: bool) -> bool {
        // Directories named `secrets` or `credentials` often contain source code.
        let plain = folder && matches!(name, "secrets" | "credentials");
        is_credential(name) && !plain && (self.certificates || !name.ends_with(".pem"))
    }
}

/// Returns the file or directory that a pattern names without wildcards, as in `private/` or `private/**`.
pub(super) fn named(root: &Path, pattern: &str) -> Option<PathBuf> {
    let name = pattern.trim_end_matches("/**").trim_end_matches('/');
    let plain = !name.is_empty()
        && !name.contains(['*', '?', '['])
        && !name.split('/').any(|part| part == "..");
    let path = root.join(name);
    (plain && path.starts_with(root) && path.symlink_metadata().is_ok()).then_some(path)
}

/// The names of the Unix sockets that are bound on this machine.
struct BoundSockets(Vec<String>);

impl BoundSockets {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let name = |line: &str| {
            line.split_whitespace()
                .nth(7)
                .filter(|name| !name.starts_with('@'))
                .map(str::to_owned)
        };
        Self(text.lines().skip(1).filter_map(name).collect())
    }

    /// Returns whether one of the sockets may be this path. A relative name may have been bound from any directory.
    fn at(&self, path: &Path) -> bool {
        self.0
            .iter()
            .any(|name| Path::new(name) == path || (!name.starts_with('/') && path.ends_with(name)))
    }
}

/// Build output, dependencies and git's own files: large, and unlikely to contain the user's keys.
const SKIPPED_DIRS: &[&str] = &[
    ".git",
    "node_modules",
    "target",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".mypy_cache",
];
