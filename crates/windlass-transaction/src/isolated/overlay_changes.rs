//! The changed paths of an overlay, read from its upper directory. The cost depends on the number of written files, not
//! on the size of the tree.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

use super::sources::{SourceFilter, is_source, never};
use super::stat_snapshot::{StatSnapshot, parent};
use windlass_host::workspace::Root;

/// Maximum entries of an overlay, and of a removed directory, that are read.
const MAX_ENTRIES: usize = 2_000_000;

/// Paths that may differ, by kind.
#[derive(Debug, Default)]
pub(super) struct TouchedPaths {
    /// Source files and symlinks that were written or removed.
    pub(super) sources: BTreeSet<PathBuf>,
    /// Ignored files and directories with new content.
    pub(super) left: BTreeSet<PathBuf>,
    /// Pipes, sockets and devices.
    pub(super) special: BTreeSet<PathBuf>,
}

impl TouchedPaths {
    /// The differences between a copy and its initial snapshot.
    pub(super) fn between(before: &StatSnapshot, copy: &Root) -> Self {
        let mut touched = Self::default();
        for path in before.differences(&StatSnapshot::of_everything(copy)) {
            let list = if is_source(copy, &path) {
                &mut touched.sources
            } else {
                &mut touched.left
            };
            list.insert(path);
        }
        touched
    }
}

/// The directories of an overlay.
pub(super) struct OverlayTrees<'a> {
    pub(super) upper: &'a Root,
    pub(super) lower: &'a Root,
    /// The mounted view of both.
    pub(super) merged: &'a Root,
}

impl OverlayTrees<'_> {
    /// Lists everything in the upper directory, and the lower files that it hides.
    pub(super) fn touched(&self) -> Result<TouchedPaths, String> {
        let mut touched = TouchedPaths::default();
        let mut open = vec![(PathBuf::new(), SourceFilter::at_top(self.merged), false)];
        let mut entries_left = MAX_ENTRIES;
        while let Some((dir, filter, hides)) = open.pop() {
            let (handle, entries) = self
                .upper
                .entries(&dir)
                .map_err(|err| unreadable(&dir, &err.message))?;
            entries_left = entries_left
                .checked_sub(entries.len())
                .ok_or("the run wrote too many files to be listed")?;
            if hides {
                let known: BTreeSet<_> = entries.iter().map(|(name, _)| name.as_os_str()).collect();
                for (name, kind) in self.listed_below(&dir) {
                    if !known.contains(name.as_os_str()) {
                        self.removed(&dir.join(name), kind, &filter, &mut touched)?;
                    }
                }
            }
            for (name, kind) in entries {
                let path = dir.join(&name);
                let is_dir = kind == FileType::Directory;
                if never(&name, is_dir) {
                    continue;
                }
                let whiteout = kind == FileType::CharacterDevice
                    && rustix::fs::statat(&handle, &name, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|stat| stat.st_rdev == 0);
                let below = self.below(&path);
                if whiteout {
                    if let Some(below) = below {
                        self.removed(&path, below, &filter, &mut touched)?;
                    }
                    continue;
                }
                if filter.drops(&name, &path, is_dir) {
                    touched.left.insert(path);
                    continue;
                }
                // The lower entry was of another kind: it is gone.
                if let Some(below) = below.filter(|below| (*below == FileType::Directory) != is_dir)
                {
                    self.removed(&path, below, &filter, &mut touched)?;
                }
                match kind {
                    FileType::Directory => {
                        // Directories in an opaque directory are opaque, too; the kernel marks only the topmost.
                        let hides = below == Some(FileType::Directory)
                            && (hides || is_opaque(self.upper, &path));
                        open.push((path.clone(), filter.inside(self.merged, &path), hides));
                    }
                    FileType::RegularFile | FileType::Symlink => {
                        touched.sources.insert(path);
                    }
                    _ => {
                        // The file that was there is gone all the same.
                        if matches!(below, Some(FileType::RegularFile | FileType::Symlink)) {
                            touched.sources.insert(path.clone());
                        }
                        touched.special.insert(path);
                    }
                }
            }
        }
        Ok(touched)
    }

    fn listed_below(&self, dir: &Path) -> Vec<(OsString, FileType)> {
        self.lower
            .entries(dir)
            .map_or_else(|_| Vec::new(), |(_, entries)| entries)
    }

    fn below(&self, path: &Path) -> Option<FileType> {
        let handle = self.lower.open_dir(parent(path)).ok()?;
        let stat = rustix::fs::statat(handle, path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Adds an entry of the lower tree that is hidden now, with everything in it.
    fn removed(
        &self,
        path: &Path,
        kind: FileType,
        filter: &SourceFilter,
        touched: &mut TouchedPaths,
    ) -> Result<(), String> {
        let mut open = vec![(path.to_owned(), kind, filter.clone())];
        let mut seen = 0;
        while let Some((path, kind, filter)) = open.pop() {
            let name = path.file_name().unwrap_or_default();
            let is_dir = kind == FileType::Directory;
            seen += 1;
            if never(name, is_dir) {
                continue;
            }
            if seen > MAX_ENTRIES {
                return Err("the run removed too many files to be listed".to_owned());
            }
            if filter.drops(name, &path, is_dir) {
                touched.left.insert(path);
            } else if is_dir {
                let inner = filter.inside(self.lower, &path);
                // If a lower directory cannot be listed, the run could not remove it either.
                let entries = self.listed_below(&path).into_iter();
                open.extend(entries.map(|(name, kind)| (path.join(name), kind, inner.clone())));
            } else if matches!(kind, FileType::RegularFile | FileType::Symlink) {
                touched.sources.insert(path);
            }
        }
        Ok(())
    }
}

/// Whether a directory hides the lower directory of the same path.
fn is_opaque(upper: &Root, path: &Path) -> bool {
    let Ok(handle) = upper.open_dir(path) else {
        return false;
    };
    let mut value = [0_u8; 8];
    let length = rustix::fs::fgetxattr(&handle, c"user.overlay.opaque", &mut value[..]);
    matches!(length, Ok(length) if &value[..length] == b"y")
}

fn unreadable(path: &Path, why: &str) -> String {
    format!(
        "cannot read `{}` in the run's copy ({why}); a command removed its permissions",
        String::from_utf8_lossy(path.as_os_str().as_bytes())
    )
}
