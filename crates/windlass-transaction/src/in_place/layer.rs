//! The directories of a layer for one command: made before it starts, gone when it has landed, kept when it could not
//! land. Those that a killed process left go when the next one makes its first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use windlass_core::workspace::FileError;

use windlass_host::workspace::from_io;

/// A moment, by the clock that the system gives files their times by.
pub(super) type Moment = (i64, i64);

/// The name of a kept layer begins with this; it is not that of a process, so that nothing cleans it up.
const KEPT: &str = "kept-";
/// Layers that are kept; the oldest goes first.
const MAX_KEPT: usize = 20;

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
    /// Entries of the layer that equal the workspace, in the layer of a background job.
    pub(super) settled: Settled,
}

/// Entries of a mounted layer that equal the workspace: they landed, or were copied into the view of the job.
#[derive(Debug, Default)]
pub(super) struct Settled(BTreeMap<PathBuf, (Stamp, Moment)>);

/// The identity of an entry of a layer. It differs as soon as a process changes the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// A name that is gone. The kernel shares one file among all of them.
    Whiteout,
    /// A directory, by its inode: its times change with every entry.
    Directory(u64),
    /// A file or a symlink, by inode, change time and size.
    File(u64, Moment, u64),
}

impl Stamp {
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

/// When the system last changed what is known of a file. It cannot be set back.
pub(super) fn changed_at(about: &Metadata) -> Moment {
    (about.ctime(), about.ctime_nsec())
}

/// Whether an entry of a layer stands for a name that is gone.
pub(super) fn is_whiteout(about: &Metadata) -> bool {
    about.file_type().is_char_device() && about.rdev() == 0
}

impl Settled {
    /// Notes that an entry equals the workspace, whose file there was last changed at `base`.
    pub(super) fn add(&mut self, path: &Path, stamp: Stamp, base: Moment) {
        self.0.insert(path.to_owned(), (stamp, base));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.0.remove(path);
    }

    pub(super) fn contains(&self, path: &Path, about: &Metadata) -> bool {
        let known = self.0.get(path);
        known.is_some_and(|(stamp, _)| *stamp == Stamp::of(about))
    }

    /// When the file of the workspace was changed that the job saw last.
    pub(super) fn base(&self, path: &Path) -> Option<Moment> {
        self.0.get(path).map(|(_, base)| *base)
    }
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
            Ok(changed_at(&about))
        };
        let began = make().map_err(|err| from_io(&folder, &err))?;
        Ok(Self {
            folder,
            name,
            upper,
            began,
            gone: BTreeSet::new(),
            settled: Settled::default(),
        })
    }
}

impl CommandLayer {
    /// Keeps the layer under another name, so that it outlives the process. Gives the directory that holds the changes.
    pub(super) fn keep(mut self) -> PathBuf {
        let parent = self.folder.parent().unwrap_or(Path::new(""));
        let kept = parent.join(format!("{KEPT}{}", self.name));
        remove(&kept);
        remove_oldest_kept(parent);
        if std::fs::rename(&self.folder, &kept).is_ok() {
            self.upper = kept.join("upper");
        }
        // Nothing is left at its path for the drop to remove; where the rename failed, it stays where it is.
        self.folder = PathBuf::new();
        std::mem::take(&mut self.upper)
    }

    /// Whether the command wrote nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty()
            && std::fs::read_dir(&self.upper).is_ok_and(|mut names| names.next().is_none())
    }
}

/// Leaves room for one more kept layer.
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

impl Drop for CommandLayer {
    fn drop(&mut self) {
        if !self.folder.as_os_str().is_empty() {
            remove(&self.folder);
        }
    }
}

fn remove(folder: &Path) {
    // Whatever cannot be removed now is removed when the next process makes its first layer.
    let _ = windlass_host::private::remove_tree(folder);
}
