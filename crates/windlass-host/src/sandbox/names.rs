//! The names that commands cannot change: files that later run on the user's machine or steer agents, and the parts of
//! a git directory that execute programs or point elsewhere. This module only reads.

use std::path::{Component, Path, PathBuf};

use windlass_core::gate::steering_names;
use windlass_sandbox::{Protected, Protection};

/// The maximum number of repositories below the workspace, and of worktrees of one repository, that are protected by
/// name.
const MAX_REPOSITORIES: usize = 50;
/// The maximum size of a git settings file in bytes.
const MAX_CONFIG: u64 = 64 << 10;

/// Returns the protected names of a workspace (spec 5.1), and those of the repositories found below it.
#[must_use]
pub fn of_workspace(root: &Path, repositories: &[PathBuf]) -> Vec<Protected> {
    let one = |name: &Path, how| protected(root, name.to_owned(), how);
    let mut names: Vec<Protected> = protected_names()
        .map(|(name, how)| one(name.as_ref(), how))
        .collect();
    // The workspace's own repository may not exist yet: then it is protected from the command after the one that
    // creates it.
    let own = PathBuf::from(".git");
    for git in repositories.iter().take(MAX_REPOSITORIES).chain([&own]) {
        match std::fs::symlink_metadata(root.join(git)) {
            Ok(about) if !about.is_dir() => names.push(one(git, Protection::FrozenIfPresent)),
            _ => names.extend(of_git(root, git)),
        }
    }
    let led = names
        .iter()
        .filter_map(|name| target_inside(root, &name.name));
    let led: Vec<Protected> = led
        .map(|target| one(&target, Protection::FrozenIfPresent))
        .collect();
    names.extend(led);
    names
}

/// Returns whether a command's change to a path is discarded, at any depth; `there` says whether the path exists
/// without the change. Changes below such a path are discarded as well.
#[must_use]
pub fn is_discarded(path: &Path, there: bool) -> bool {
    let hidden = |name: &str| name.starts_with('.') && !SHELL_FILES.contains(&name);
    protected_names().any(|(name, _)| path.ends_with(name) && (there || hidden(name)))
}

/// Returns the protected names at the top of a workspace. Hidden names are also covered while they do not exist, by an
/// empty directory. Other names are not: a directory called `x.md` would disturb the user, and programs that expect a
/// file there would fail.
fn protected_names() -> impl Iterator<Item = (&'static str, Protection)> {
    let steering = steering_names().map(|name| {
        let how = if name.starts_with('.') && !READ_AT_START.contains(&name) {
            Protection::Frozen
        } else {
            Protection::FrozenIfPresent
        };
        (name, how)
    });
    let shells = SHELL_FILES
        .iter()
        .map(|name| (*name, Protection::FrozenIfPresent));
    steering
        .chain(shells)
        .chain([(".cargo", Protection::Frozen)])
}

/// Returns whether a name in a git directory executes programs or points git elsewhere. A `new` repository may have its
/// own settings, and samples of hooks.
#[must_use]
pub fn is_discarded_in_git(name: &Path, new: bool) -> bool {
    let mut parts = name.components().map(|part| part.as_os_str());
    let first = parts.next();
    if first.is_some_and(|first| {
        ["objects", "refs", "logs"]
            .iter()
            .any(|plain| first == *plain)
    }) {
        return false;
    }
    let sample = name
        .extension()
        .is_some_and(|extension| extension == "sample");
    let hook = name.components().any(|part| part.as_os_str() == "hooks");
    let pointer = ["commondir", "gitdir", "config.worktree"]
        .iter()
        .any(|pointer| name.ends_with(pointer));
    match new {
        true => pointer || (hook && !sample && !name.ends_with("hooks")),
        false => pointer || hook || name.ends_with("config"),
    }
}

/// Returns the protected names of a git directory.
pub(super) fn of_git(base: &Path, git: &Path) -> Vec<Protected> {
    let one = |name: &Path, how| protected(base, git.join(name), how);
    let here = base.join(git);
    let mut names = vec![
        one(Path::new("config"), Protection::Frozen),
        one(Path::new("hooks"), Protection::Frozen),
    ];
    names.push(one(Path::new("modules"), Protection::FrozenIfPresent));
    // These files make git read its settings from elsewhere.
    for name in ["commondir", "config.worktree"] {
        let there = here.join(name).symlink_metadata().is_ok();
        let how = match there {
            true => Protection::FrozenIfPresent,
            false => Protection::Banned,
        };
        names.push(one(Path::new(name), how));
    }
    for worktree in crate::private::entries(&here.join("worktrees"), MAX_REPOSITORIES) {
        for name in ["commondir", "gitdir", "config.worktree"] {
            let name = Path::new("worktrees").join(worktree.file_name()).join(name);
            names.push(one(&name, Protection::FrozenIfPresent));
        }
    }
    if !git.as_os_str().is_empty() {
        names.push(protected(base, git.to_owned(), Protection::Pinned));
        let named = named_in_config(base, git).into_iter();
        names.extend(named.map(|name| protected(base, name, Protection::FrozenIfPresent)));
    }
    names
}

fn protected(base: &Path, name: PathBuf, how: Protection) -> Protected {
    Protected {
        base: base.to_owned(),
        name,
        how,
    }
}

/// Returns the directories of hooks and the included settings files that a repository's settings name, if they lie in
/// the workspace.
fn named_in_config(base: &Path, git: &Path) -> Vec<PathBuf> {
    let bytes =
        crate::workspace::read_file(&base.join(git).join("config"), MAX_CONFIG).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let settings = text.lines().filter_map(|line| line.split_once('='));
    let named = settings.filter_map(|(key, value)| {
        let value = value.trim().trim_matches('"');
        match key.trim().to_ascii_lowercase().as_str() {
            // Git resolves hook directories from the top of the tree, and included files from the directory of the
            // settings.
            "hookspath" => Some(git.parent().unwrap_or(git).join(value)),
            "path" => Some(git.join(value)),
            _ => None,
        }
    });
    named
        .filter_map(|path| tidy(&path))
        .take(MAX_REPOSITORIES)
        .collect()
}

/// Returns the target of a name that is a symlink, if the target lies inside the root.
fn target_inside(root: &Path, name: &Path) -> Option<PathBuf> {
    let path = root.join(name);
    if !path.symlink_metadata().ok()?.is_symlink() {
        return None;
    }
    let target = path.canonicalize().ok()?;
    let inside = target.strip_prefix(root).ok()?;
    (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
}

/// Normalizes a relative path. Returns `None` if it leaves the base or is the base itself.
fn tidy(path: &Path) -> Option<PathBuf> {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => tidy.push(name),
            Component::CurDir => {}
            Component::ParentDir if tidy.pop() => {}
            _ => return None,
        }
    }
    (!tidy.as_os_str().is_empty()).then_some(tidy)
}

/// Files that programs read when they start; a directory in their place would be an error.
const READ_AT_START: &[&str] = &[
    ".npmrc",
    ".mise.toml",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".aider.conf.yml",
    ".goosehints",
    ".cargo/config",
    ".cargo/config.toml",
];

const SHELL_FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_git_settings_point_to_are_protected() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        std::fs::create_dir_all(root.join("conf")).unwrap();
        let config = "[core]\n\thooksPath = .githooks/own\n[include]\n\tpath = ../shared.gitconfig\n\tpath = ../../out\n";
        std::fs::write(root.join(".git/config"), config).unwrap();
        std::os::unix::fs::symlink("conf", root.join(".vscode")).unwrap();
        let names = of_workspace(&root, &["sub/.git".into()]);
        let how = |name: &str| {
            names
                .iter()
                .filter(|one| one.name == Path::new(name))
                .map(|one| one.how)
                .collect::<Vec<_>>()
        };
        assert_eq!(how(".git"), [Protection::Pinned]);
        assert_eq!(how(".git/commondir"), [Protection::Banned]);
        assert_eq!(
            how(".git/worktrees/w/commondir"),
            [Protection::FrozenIfPresent]
        );
        assert_eq!(how(".githooks/own"), [Protection::FrozenIfPresent]);
        assert_eq!(how("shared.gitconfig"), [Protection::FrozenIfPresent]);
        assert_eq!(how("conf"), [Protection::FrozenIfPresent]);
        assert_eq!(how("sub/.git/config"), [Protection::Frozen]);
        assert!(how("out").is_empty() && names.iter().all(|one| !one.name.starts_with("..")));
    }
}
