//! What a private layer says was changed: the upper directory of an overlay read as a list of swaps. Only what was
//! written is looked at, whatever the size of the tree below it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

use super::sources::{Sieve, is_source, never};
use super::survey::{Survey, parent};
use windlass_host::workspace::Root;

/// The most entries of a layer that are looked at, and of a directory that was removed.
const MAX_ENTRIES: usize = 2_000_000;

/// Paths that may differ, sorted into what they are.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Source files and links that were written or removed.
    pub(super) sources: BTreeSet<PathBuf>,
    /// Ignored files and directories with something new in them.
    pub(super) left: BTreeSet<PathBuf>,
    /// Pipes, sockets and devices.
    pub(super) special: BTreeSet<PathBuf>,
}

impl Touched {
    /// What differs in a copy from its records of before.
    pub(super) fn between(before: &Survey, copy: &Root) -> Self {
        let mut touched = Self::default();
        for path in before.differences(&Survey::of_everything(copy)) {
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

/// The two trees of a layer and what is shown of them.
pub(super) struct Layers<'a> {
    /// What took the writes.
    pub(super) upper: &'a Root,
    /// What is below.
    pub(super) lower: &'a Root,
    /// Both together.
    pub(super) merged: &'a Root,
}

impl Layers<'_> {
    /// Everything in the upper directory, and what it hides below it.
    pub(super) fn touched(&self) -> Result<Touched, String> {
        let mut touched = Touched::default();
        let mut open = vec![(PathBuf::new(), Sieve::at_top(self.merged), false)];
        let mut entries_left = MAX_ENTRIES;
        while let Some((dir, sieve, hides)) = open.pop() {
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
                        self.removed(&dir.join(name), kind, &sieve, &mut touched)?;
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
                        self.removed(&path, below, &sieve, &mut touched)?;
                    }
                    continue;
                }
                if sieve.drops(&name, &path, is_dir) {
                    touched.left.insert(path);
                    continue;
                }
                // Something of another kind was there: it is gone.
                if let Some(below) = below.filter(|below| (*below == FileType::Directory) != is_dir)
                {
                    self.removed(&path, below, &sieve, &mut touched)?;
                }
                match kind {
                    FileType::Directory => {
                        // What is in a directory that hides hides, too; the kernel marks only the topmost.
                        let hides = below == Some(FileType::Directory)
                            && (hides || is_opaque(self.upper, &path));
                        open.push((path.clone(), sieve.inside(self.merged, &path), hides));
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

    /// Something of the lower tree that is not shown any more, with what was in it.
    fn removed(
        &self,
        path: &Path,
        kind: FileType,
        sieve: &Sieve,
        touched: &mut Touched,
    ) -> Result<(), String> {
        let mut open = vec![(path.to_owned(), kind, sieve.clone())];
        let mut seen = 0;
        while let Some((path, kind, sieve)) = open.pop() {
            let name = path.file_name().unwrap_or_default();
            let is_dir = kind == FileType::Directory;
            seen += 1;
            if never(name, is_dir) {
                continue;
            }
            if seen > MAX_ENTRIES {
                return Err("the run removed too many files to be listed".to_owned());
            }
            if sieve.drops(name, &path, is_dir) {
                touched.left.insert(path);
            } else if is_dir {
                let inner = sieve.inside(self.lower, &path);
                // What cannot be listed below could not be removed by the run either.
                let entries = self.listed_below(&path).into_iter();
                open.extend(entries.map(|(name, kind)| (path.join(name), kind, inner.clone())));
            } else if matches!(kind, FileType::RegularFile | FileType::Symlink) {
                touched.sources.insert(path);
            }
        }
        Ok(())
    }
}

/// Whether a directory of the layer hides everything below it.
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
        "`{}` of the run's copy cannot be read ({why}); its mode was taken away by a command",
        String::from_utf8_lossy(path.as_os_str().as_bytes())
    )
}
