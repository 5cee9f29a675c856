//! Finds the git directory of a workspace whose `.git` is a file that points elsewhere. The pointer is trusted only if
//! its target points back: otherwise any file could give access to any directory.

use std::path::{Path, PathBuf};

/// Returns the git directory outside the workspace that commands need to commit: the common directory of all worktrees.
pub(super) fn outside(root: &Path) -> Option<PathBuf> {
    let pointer = root.join(".git");
    let named = crate::git::pointer(&pointer)?;
    let git = root
        .join(named.strip_prefix("gitdir:")?.trim())
        .canonicalize()
        .ok()?;
    let back = crate::git::pointer(&git.join("gitdir"))
        .and_then(|back| PathBuf::from(back).canonicalize().ok());
    let common = if back == pointer.canonicalize().ok() {
        git.join(crate::git::pointer(&git.join("commondir"))?)
            .canonicalize()
            .ok()?
    } else if points_back(&git, root) {
        git.clone()
    } else {
        return None;
    };
    let looks_right = ["HEAD", "objects", "refs"]
        .iter()
        .all(|name| common.join(name).exists());
    // The git directory of a worktree lies in its own repository; anything else may be an attack.
    (looks_right && git.starts_with(&common) && !common.starts_with(root)).then_some(common)
}

/// Returns whether the git directory of a submodule names `root` as its work tree.
fn points_back(git: &Path, root: &Path) -> bool {
    let text = crate::workspace::read_file(&git.join("config"), 64 << 10).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut named = text.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("worktree")?
            .trim()
            .strip_prefix('=')
    });
    named
        .next_back()
        .and_then(|named| git.join(named.trim()).canonicalize().ok())
        .is_some_and(|named| named == root)
}
