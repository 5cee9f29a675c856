//! The directories of a layer for one command: made before it starts, gone when what it took is merged. Those that a
//! killed process left go when the next one makes its first.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use windlass_core::workspace::FileError;

use windlass_host::workspace::from_io;

/// A moment, by the clock that the system gives files their times by.
pub(super) type Moment = (i64, i64);

/// The directories of one command's layer.
pub(super) struct CommandLayer {
    folder: PathBuf,
    pub(super) name: String,
    /// What takes the writes.
    pub(super) upper: PathBuf,
    /// What was written in the tree later than this was not written before the command.
    pub(super) began: Moment,
    /// Paths that the command removed, where the layer itself cannot say so.
    pub(super) gone: BTreeSet<PathBuf>,
}

impl CommandLayer {
    /// Makes one in `parent`, for a workspace at `root`.
    pub(super) fn make(parent: &Path, root: &Path) -> Result<Self, FileError> {
        static CLEANED: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(1);
        CLEANED.call_once(|| windlass_host::private::remove_abandoned(parent, remove));
        let name = format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = parent.join(&name);
        let upper = folder.join("upper");
        let make = || {
            // One of the same name is left from a process that is long gone.
            remove(&folder);
            std::fs::create_dir_all(folder.join("work"))?;
            std::fs::create_dir(&upper)?;
            // What is seen at the root of the workspace then is this directory.
            std::fs::set_permissions(&upper, std::fs::metadata(root)?.permissions())?;
            let about = std::fs::symlink_metadata(&upper)?;
            Ok((about.ctime(), about.ctime_nsec()))
        };
        let began = make().map_err(|err| from_io(&folder, &err))?;
        Ok(Self {
            folder,
            name,
            upper,
            began,
            gone: BTreeSet::new(),
        })
    }
}

impl Drop for CommandLayer {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    // The kernel keeps its own directories closed, also to their owner, and a command may have done so with others.
    if std::fs::remove_dir_all(folder).is_err() {
        open_all(folder);
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn open_all(top: &Path) {
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|one| one.path()),
        );
    }
}
