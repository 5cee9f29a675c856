//! The commands that install a project's dependencies, by the lock file they read.
//!
//! ```
//! use windlass_core::setup::install_command;
//! use windlass_core::workspace::Changes;
//!
//! assert_eq!(install_command(&Changes::default()), None, "no lock file was changed");
//! ```

use crate::workspace::{Change, Changes};

/// Each row has a lock file, the directory that its command fills, and the command.
const INSTALLS: &[(&str, &str, &str)] = &[
    ("package-lock.json", "node_modules", "npm ci"),
    (
        "pnpm-lock.yaml",
        "node_modules",
        "pnpm install --frozen-lockfile",
    ),
    (
        "yarn.lock",
        "node_modules",
        "yarn install --frozen-lockfile",
    ),
    ("bun.lock", "node_modules", "bun install --frozen-lockfile"),
    ("uv.lock", ".venv", "uv sync --frozen"),
    ("poetry.lock", ".venv", "poetry install"),
    ("Pipfile.lock", ".venv", "pipenv sync"),
    ("Gemfile.lock", "vendor", "bundle install"),
    ("composer.lock", "vendor", "composer install"),
    ("go.sum", "vendor", "go mod vendor"),
    ("mix.lock", "deps", "mix deps.get"),
];

/// The install command for a changed lock file, or for an ignored directory such as `node_modules` that the run
/// changed.
#[must_use]
pub fn install_command(changes: &Changes) -> Option<&'static str> {
    let locked = |file: &str| {
        changes.files.iter().any(|change| {
            change.change != Change::Deleted && change.path.rsplit('/').next() == Some(file)
        })
    };
    let fills = |folder: &str| {
        let holds = |path: &String| path.split('/').any(|name| name == folder);
        changes.left.iter().any(holds)
    };
    let by_lock = INSTALLS.iter().find(|(file, ..)| locked(file));
    let found = by_lock.or_else(|| INSTALLS.iter().find(|(_, folder, _)| fills(folder)));
    found.map(|(_, _, line)| *line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::FileChange;

    #[track_caller]
    fn check(files: &[&str], left: &[&str], expect: Option<&str>) {
        let change = |path: &&str| FileChange {
            path: (*path).to_owned(),
            change: Change::Modified,
            added: Some(1),
            removed: Some(0),
            diff: None,
        };
        let changes = Changes {
            files: files.iter().map(change).collect(),
            left: left.iter().map(|path| (*path).to_owned()).collect(),
            ..Changes::default()
        };
        assert_eq!(install_command(&changes), expect, "{files:?} {left:?}");
    }

    #[test]
    fn a_lock_file_names_its_command() {
        check(
            &["web/pnpm-lock.yaml"],
            &["web/node_modules"],
            Some("pnpm install --frozen-lockfile"),
        );
        check(&["src/a.js"], &["node_modules/x"], Some("npm ci"));
        check(&["src/a.py"], &["build/x"], None);
    }
}
