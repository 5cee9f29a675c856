//! Temporarily moves ignored directories out of a directory that becomes a file or a symlink, because a landing removes
//! only its own files. A record next to the journal says where they are, so that recovery can restore them if the
//! process dies.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::landing::lock_within;
use windlass_host::workspace::{Root, STAGING};

/// Prefix of the names of records.
const RECORD: &str = "aside-";
/// Maximum records that are read.
const MAX_RECORDS: usize = 1_000;
const MAX_READ: u64 = 16 << 20;

/// Directories that were moved out temporarily. The record is locked while its process lives.
#[derive(Debug)]
pub(super) struct MovedFolders {
    record: PathBuf,
    moved: MoveRecord,
    _lock: OwnedFd,
}

#[derive(Debug, Serialize, Deserialize)]
struct MoveRecord {
    root: OsString,
    /// Each original path, with its temporary name in the root.
    places: Vec<(OsString, OsString)>,
}

impl MovedFolders {
    /// Moves these paths out; `None` if there are none.
    pub(super) fn begin(root: &Root, journal: &Path, paths: &[&Path]) -> io::Result<Option<Self>> {
        if paths.is_empty() {
            return Ok(None);
        }
        let random = || format!("{:016x}", windlass_host::clock::random_u64());
        let place = |path: &&Path| {
            (
                path.as_os_str().to_owned(),
                format!("{STAGING}{}", random()).into(),
            )
        };
        let moved = MoveRecord {
            root: windlass_core::workspace::Files::root(root)
                .as_os_str()
                .to_owned(),
            places: paths.iter().map(place).collect(),
        };
        windlass_host::private::create_dir(journal).map_err(|err| io::Error::other(err.message))?;
        let draft = journal.join(format!("draft-{}", random()));
        let mut file = File::create(&draft)?;
        let lock = lock_within(file.try_clone()?.into(), std::time::Duration::ZERO)?;
        file.write_all(&serde_json::to_vec(&moved)?)?;
        let record = journal.join(format!("{RECORD}{}.json", random()));
        std::fs::rename(draft, &record)?;
        let folders = Self {
            record,
            moved,
            _lock: lock.ok_or(io::ErrorKind::WouldBlock)?,
        };
        for (path, place) in &folders.moved.places {
            let moved = parent_dir(root, path).and_then(|(parent, name)| {
                Ok(rustix::fs::renameat(&parent, name, root.handle(), place)?)
            });
            if let Err(err) = moved {
                folders.restore(root);
                return Err(err);
            }
        }
        Ok(Some(folders))
    }

    /// Restores the directories after a failed landing.
    pub(super) fn restore(self, root: &Root) {
        if self.moved.restore(root).is_empty() {
            let _ = std::fs::remove_file(&self.record);
        }
    }

    /// Deletes the directories after the landing.
    pub(super) fn remove(self) {
        let top = PathBuf::from(&self.moved.root);
        for (_, place) in &self.moved.places {
            let place = top.join(place);
            // An ignored directory that cannot be removed stays under its staging name, where it does no harm.
            let _ = match place.is_dir() && !place.is_symlink() {
                true => windlass_host::private::remove_tree(&place),
                false => std::fs::remove_file(&place),
            };
        }
        let _ = std::fs::remove_file(&self.record);
    }
}

impl MoveRecord {
    /// Moves the directories back. Returns the temporary names of those whose original path is not available any more.
    fn restore(&self, root: &Root) -> Vec<String> {
        let mut left = Vec::new();
        for (path, place) in &self.places {
            let there =
                rustix::fs::statat(root.handle(), place, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            if there.is_err() {
                continue;
            }
            let put = parent_dir(root, path).and_then(|(parent, name)| {
                let flags = RenameFlags::NOREPLACE;
                Ok(rustix::fs::renameat_with(
                    root.handle(),
                    place,
                    &parent,
                    name,
                    flags,
                )?)
            });
            if put.is_err() {
                left.push(place.to_string_lossy().into_owned());
            }
        }
        left
    }
}

/// The directories of one dead process that were restored.
pub(crate) struct RestoredFolders {
    pub(crate) root: PathBuf,
    pub(crate) paths: Vec<String>,
    /// Temporary names in the root of directories that could not be restored.
    pub(crate) left: Vec<String>,
}

/// Restores directories that dead processes moved out.
pub(crate) fn restore_moved_folders(journal: &Path) -> Vec<RestoredFolders> {
    let entries = windlass_host::private::entries(journal, usize::MAX);
    let is_record = |name: OsString| name.to_str().is_some_and(|name| name.starts_with(RECORD));
    let records = entries.filter(|entry| is_record(entry.file_name()));
    records
        .take(MAX_RECORDS)
        .filter_map(|entry| restore_record(&entry.path()))
        .collect()
}

fn restore_record(record: &Path) -> Option<RestoredFolders> {
    let lock = File::open(record).ok()?;
    // If the record is locked, its process is still running.
    let _lock = lock_within(lock.into(), std::time::Duration::ZERO).ok()??;
    let bytes = windlass_host::workspace::read_file(record, MAX_READ).ok()?;
    let moved: MoveRecord = serde_json::from_slice(&bytes).ok()?;
    let root = Root::open(Path::new(&moved.root)).ok()?;
    let left = moved.restore(&root);
    let _ = std::fs::remove_file(record);
    let paths = moved
        .places
        .iter()
        .map(|(path, _)| path.to_string_lossy().into_owned());
    Some(RestoredFolders {
        root: PathBuf::from(&moved.root),
        paths: paths.collect(),
        left,
    })
}

/// Opens the directory that contains a path, through no symlink; also returns the name in it.
fn parent_dir<'p>(root: &Root, path: &'p OsString) -> io::Result<(OwnedFd, &'p std::ffi::OsStr)> {
    let path = Path::new(path);
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = open_beneath(root.handle().as_fd(), above.unwrap_or(Path::new(".")))?;
    Ok((parent, name))
}

fn open_beneath(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(
        root,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_dead_process_moved_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (ws, journal) = (dir.path().join("ws"), dir.path().join("journal"));
        for name in ["d/out", "e/out"] {
            std::fs::create_dir_all(ws.join(name)).unwrap();
            std::fs::write(ws.join(name).join("x"), name).unwrap();
        }
        let root = Root::open(&ws).unwrap();
        let paths = [Path::new("d/out"), Path::new("e/out")];
        let folders = MovedFolders::begin(&root, &journal, &paths)
            .unwrap()
            .unwrap();
        assert!(!ws.join("d/out").exists() && !ws.join("e/out").exists());
        assert!(
            restore_moved_folders(&journal).is_empty(),
            "its process lives"
        );
        // One directory became a file: its content cannot be restored, and is reported.
        std::fs::remove_dir(ws.join("e")).unwrap();
        std::fs::write(ws.join("e"), "file").unwrap();
        drop(folders);
        let found = restore_moved_folders(&journal);
        assert_eq!((found.len(), found[0].left.len()), (1, 1));
        assert_eq!(
            std::fs::read_to_string(ws.join("d/out/x")).unwrap(),
            "d/out"
        );
        let kept = ws.join(&found[0].left[0]).join("x");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "e/out");
        assert!(restore_moved_folders(&journal).is_empty());
    }
}
