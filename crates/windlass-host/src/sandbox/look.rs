//! A short look through a tree before the first command: credentials and services that commands must not see, and
//! repositories whose settings they must not change. Bounded in entries and depth; reads no file.

use std::collections::VecDeque;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use windlass_core::gate::{glob_match, is_credential};

/// How far is looked.
pub(super) struct Look {
    most: usize,
    deep: usize,
    /// Certificates are no secret among programs, and much there does not work without them.
    certificates: bool,
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    /// To be hidden.
    pub(super) secrets: Vec<PathBuf>,
    /// The git directories below the top, relative to it.
    pub(super) repositories: Vec<PathBuf>,
}

impl Look {
    /// Through the workspace.
    pub(super) const WORKSPACE: Self = Self {
        most: 5_000,
        deep: 8,
        certificates: true,
    };
    /// Through what is shown of a home or of a tool.
    pub(super) const TOOLS: Self = Self {
        most: 500,
        deep: 2,
        certificates: false,
    };

    pub(super) fn at(&self, root: &Path, hidden: &[String]) -> Found {
        let (mut found, mut listening) = (Found::default(), None);
        let mut folders = VecDeque::from([(root.to_owned(), 0)]);
        let mut left = self.most;
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
                // A service outside that listens here would do what a command asks of it.
                let mut service =
                    || kind.is_socket() && listening.get_or_insert_with(Listening::now).at(&path);
                if forbidden || self.is_secret(&name, kind.is_dir()) || service() {
                    found.secrets.push(path);
                } else if name == ".git" && depth > 0 {
                    found.repositories.push(relative.to_owned());
                } else if kind.is_dir() && depth < self.deep && !NOT_LOOKED_INTO.contains(&&*name) {
                    folders.push_back((path, depth + 1));
                }
            }
        }
        found
    }

    fn is_secret(&self, name: &str, folder: bool) -> bool {
        // `secrets` and `credentials` as folders hold source code as often as not.
        let plain = folder && matches!(name, "secrets" | "credentials");
        is_credential(name) && !plain && (self.certificates || !name.ends_with(".pem"))
    }
}

/// The file or folder that a pattern names outright, as in `private/` or `private/**`.
pub(super) fn named(root: &Path, pattern: &str) -> Option<PathBuf> {
    let name = pattern.trim_end_matches("/**").trim_end_matches('/');
    let plain = !name.is_empty()
        && !name.contains(['*', '?', '['])
        && !name.split('/').any(|part| part == "..");
    let path = root.join(name);
    (plain && path.starts_with(root) && path.symlink_metadata().is_ok()).then_some(path)
}

/// The sockets that somebody on this machine has bound, by the names they were given.
struct Listening(Vec<String>);

impl Listening {
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

    /// Whether one of them may be this: a name that is not absolute was bound from some directory or other.
    fn at(&self, path: &Path) -> bool {
        self.0
            .iter()
            .any(|name| Path::new(name) == path || (!name.starts_with('/') && path.ends_with(name)))
    }
}

/// Built, fetched or git's own: large, and not where people keep their keys.
const NOT_LOOKED_INTO: &[&str] = &[
    ".git",
    "node_modules",
    "target",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".mypy_cache",
];
