//! The directories of the overlay of one command. They are created before the command starts, removed after its changes
//! landed, and kept if they could not land. The first overlay of a process removes the remains of dead processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use windlass_core::workspace::FileError;

use windlass_host::workspace::from_io;

/// A time of the clock that file systems use for timestamps: seconds and nanoseconds.
pub(super) type FileTime = (i64, i64);

/// Prefix of the name of a kept overlay. It is not the name of a process, so that nothing removes it.
const KEPT: &str = "kept-";
/// Maximum number of kept overlays; the oldest is removed first.
const MAX_KEPT: usize = 20;

/// The directories of one command's overlay.
pub(super) struct CommandOverlay {
    folder: PathBuf,
    pub(super) name: String,
    pub(super) upper: PathBuf,
    /// The start of the command. Files of the tree that changed later were changed by another program.
    pub(super) began: FileTime,
    /// Paths that the command deleted, if the overlay itself cannot represent them.
    pub(super) gone: BTreeSet<PathBuf>,
    /// Entries of the overlay of a background job that equal the workspace.
    pub(super) synced: SyncedEntries,
}

/// Entries of a mounted overlay that equal the workspace, because they landed or were copied into the view of the job.
#[derive(Debug, Default)]
pub(super) struct SyncedEntries(BTreeMap<PathBuf, (EntryStamp, FileTime)>);

/// The identity of an overlay entry. It differs as soon as a process changes the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryStamp {
    /// A deleted name. The kernel uses one inode for all of them.
    Whiteout,
    /// A directory, by inode: its times change with every entry.
    Directory(u64),
    /// A file or a symlink, by inode, change time and size.
    File(u64, FileTime, u64),
}

impl EntryStamp {
    pub(super) fn of(about: &Metadata) -> Self {
        if is_whiteout(about) {
            Self::Whiteout
        } else if about.is_dir() {
            Self::Directory(about.ino())
        } else {
            Self::File(about.ino(), changed_at(about), about.size())
        }
    }
}

/// The change time of a file. No program can set it.
pub(super) fn changed_at(about: &Metadata) -> FileTime {
    (about.ctime(), about.ctime_nsec())
}

/// Whether an overlay entry represents a deleted name.
pub(super) fn is_whiteout(about: &Metadata) -> bool {
    about.file_type().is_char_device() && about.rdev() == 0
}

impl SyncedEntries {
    /// Records that an entry equals the workspace. `base` is the change time of the file in the workspace.
    pub(super) fn add(&mut self, path: &Path, stamp: EntryStamp, base: FileTime) {
        self.0.insert(path.to_owned(), (stamp, base));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.0.remove(path);
    }

    pub(super) fn contains(&self, path: &Path, about: &Metadata) -> bool {
        let known = self.0.get(path);
        known.is_some_and(|(stamp, _)| *stamp == EntryStamp::of(about))
    }

    /// The change time of the workspace file that the job saw last.
    pub(super) fn base(&self, path: &Path) -> Option<FileTime> {
        self.0.get(path).map(|(_, base)| *base)
    }
}

impl CommandOverlay {
    /// Creates the directories in `parent`, for a workspace at `root`.
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
            // A directory of the same name was left by a dead process.
            remove(&folder);
            std::fs::create_dir_all(folder.join("work"))?;
            std::fs::create_dir(&upper)?;
            // The mount shows this directory as the root of the workspace.
            std::fs::set_permissions(&upper, std::fs::metadata(root)?.permissions())?;
            let about = std::fs::symlink_metadata(&upper)?;
            Ok(changed_at(&about))
        };
        let began = make().map_err(|err| from_io(&folder, &err))?;
        Ok(Self {
            folder,
            name,
            upper,
            began,
            gone: BTreeSet::new(),
            synced: SyncedEntries::default(),
        })
    }
}

impl CommandOverlay {
    /// Keeps the changes under another name, so that they outlive the process. Returns the directory that contains
    /// them.
    pub(super) fn keep(mut self) -> PathBuf {
        let parent = self.folder.parent().unwrap_or(Path::new(""));
        let kept = parent.join(format!("{KEPT}{}", self.name));
        remove(&kept);
        remove_oldest_kept(parent);
        if std::fs::rename(&self.folder, &kept).is_ok() {
            self.upper = kept.join("upper");
        }
        // Prevents the removal on drop. If the rename failed, the directory stays where it is.
        self.folder = PathBuf::new();
        std::mem::take(&mut self.upper)
    }

    /// Whether the command wrote nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty()
            && std::fs::read_dir(&self.upper).is_ok_and(|mut names| names.next().is_none())
    }
}

/// Makes space for one more kept overlay.
fn remove_oldest_kept(parent: &Path) {
    let entries = windlass_host::private::entries(parent, usize::MAX);
    let kept = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(KEPT))
    });
    let mut kept: Vec<_> = kept
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    kept.sort_unstable();
    let surplus = (kept.len() + 1).saturating_sub(MAX_KEPT);
    kept.iter().take(surplus).for_each(|(_, path)| remove(path));
}

impl Drop for CommandOverlay {
    fn drop(&mut self) {
        if !self.folder.as_os_str().is_empty() {
            remove(&self.folder);
        }
    }
}

fn remove(folder: &Path) {
    // If this fails, the first overlay of the next process removes it.
    let _ = windlass_host::private::remove_tree(folder);
}
