//! Directories that only their owner can access: sessions, artifacts, settings.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use windlass_core::workspace::FileError;

use crate::workspace::from_io;

/// Creates a directory and its missing parents, accessible to their owner only. An existing directory stays the same.
pub fn create_dir(path: &Path) -> Result<(), FileError> {
    // The common case, an existing directory, costs one system call.
    if rustix::fs::access(path, rustix::fs::Access::EXISTS).is_ok() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|err| from_io(path, &err))
}

/// Returns at most `most` entries of a directory; none if it cannot be read.
pub fn entries(dir: &Path, most: usize) -> impl Iterator<Item = std::fs::DirEntry> + use<> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.flatten().take(most)
}

/// The maximum number of directories that are checked.
const MAX_LOOKED: usize = 1_000;

/// Removes the directories in `parent` whose process is gone. Their names start with the process id and a dash.
pub fn remove_abandoned(parent: &Path, remove: impl Fn(&Path)) {
    for entry in entries(parent, MAX_LOOKED) {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            remove(&entry.path());
        }
    }
}

/// The maximum number of directories whose mode is changed.
const MAX_OPENED: usize = 1_000_000;

/// Removes a tree, even if commands or the kernel removed permissions in it.
pub fn remove_tree(dir: &Path) -> std::io::Result<()> {
    let denied = match std::fs::remove_dir_all(dir) {
        Err(err) if err.kind() == std::io::ErrorKind::PermissionDenied => err,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => return other,
    };
    let mut open = vec![dir.to_owned()];
    for _ in 0..MAX_OPENED {
        let Some(dir) = open.pop() else {
            return std::fs::remove_dir_all(dir);
        };
        let _ = std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700));
        let folders = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        open.extend(
            folders
                .filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|one| one.path()),
        );
    }
    Err(denied)
}
