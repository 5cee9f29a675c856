//! Ignored folders that are moved out of a directory which becomes a file or a symlink, because a landing removes only its
//! own files. A record beside the journal says where they are, so that those of a dead process are put back.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::landing::lock_within;
use windlass_host::workspace::{Root, STAGING};

/// The name of a record begins with this.
const RECORD: &str = "aside-";
/// Records that are looked at, and the longest that is read.
const MAX_RECORDS: usize = 1_000;
const MAX_READ: u64 = 16 << 20;

/// Folders that are moved aside. The record is locked while its process lives.
#[derive(Debug)]
pub(super) struct SetAside {
    record: PathBuf,
    moved: Moved,
    _lock: OwnedFd,
}

#[derive(Debug, Serialize, Deserialize)]
struct Moved {
    root: OsString,
    /// Each path with the name in the root that it gets meanwhile.
    places: Vec<(OsString, OsString)>,
}

impl SetAside {
    /// Moves these paths aside; none when there are none.
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
        let moved = Moved {
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
        let aside = Self {
            record,
            moved,
            _lock: lock.ok_or(io::ErrorKind::WouldBlock)?,
        };
        for (path, place) in &aside.moved.places {
            let moved = spot(root, path).and_then(|(parent, name)| {
                Ok(rustix::fs::renameat(&parent, name, root.handle(), place)?)
            });
            if let Err(err) = moved {
                aside.put_back(root);
                return Err(err);
            }
        }
        Ok(Some(aside))
    }

    /// The directories stay what they are.
    pub(super) fn put_back(self, root: &Root) {
        if self.moved.put_back(root).is_empty() {
            let _ = std::fs::remove_file(&self.record);
        }
    }

    /// The directories are gone, and with them what was in them.
    pub(super) fn remove(self) {
        let top = PathBuf::from(&self.moved.root);
        for (_, place) in &self.moved.places {
            let place = top.join(place);
            // An ignored folder that cannot be removed stays under its staging name, where it does no harm.
            let _ = match place.is_dir() && !place.is_symlink() {
                true => windlass_host::private::remove_tree(&place),
                false => std::fs::remove_file(&place),
            };
        }
        let _ = std::fs::remove_file(&self.record);
    }
}

impl Moved {
    /// Puts back what is still aside. Gives the names of what has no place any more.
    fn put_back(&self, root: &Root) -> Vec<String> {
        let mut left = Vec::new();
        for (path, place) in &self.places {
            let there =
                rustix::fs::statat(root.handle(), place, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            if there.is_err() {
                continue;
            }
            let put = spot(root, path).and_then(|(parent, name)| {
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

/// The folders of one dead process that were put back.
pub(crate) struct PutBack {
    pub(crate) root: PathBuf,
    pub(crate) paths: Vec<String>,
    /// Names in the root that hold what has no place any more.
    pub(crate) left: Vec<String>,
}

/// Puts back what dead processes left aside.
pub(crate) fn recover_set_aside(journal: &Path) -> Vec<PutBack> {
    let entries = windlass_host::private::entries(journal, usize::MAX);
    let is_record = |name: OsString| name.to_str().is_some_and(|name| name.starts_with(RECORD));
    let records = entries.filter(|entry| is_record(entry.file_name()));
    records
        .take(MAX_RECORDS)
        .filter_map(|entry| recover_one(&entry.path()))
        .collect()
}

fn recover_one(record: &Path) -> Option<PutBack> {
    let lock = File::open(record).ok()?;
    // Its process is at work where it is locked.
    let _lock = lock_within(lock.into(), std::time::Duration::ZERO).ok()??;
    let bytes = windlass_host::workspace::read_file(record, MAX_READ).ok()?;
    let moved: Moved = serde_json::from_slice(&bytes).ok()?;
    let root = Root::open(Path::new(&moved.root)).ok()?;
    let left = moved.put_back(&root);
    let _ = std::fs::remove_file(record);
    let paths = moved
        .places
        .iter()
        .map(|(path, _)| path.to_string_lossy().into_owned());
    Some(PutBack {
        root: PathBuf::from(&moved.root),
        paths: paths.collect(),
        left,
    })
}

/// The folder of a path, through no link, and its name there.
fn spot<'p>(root: &Root, path: &'p OsString) -> io::Result<(OwnedFd, &'p std::ffi::OsStr)> {
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
    fn folders_that_a_dead_process_left_aside_are_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (ws, journal) = (dir.path().join("ws"), dir.path().join("journal"));
        for name in ["d/out", "e/out"] {
            std::fs::create_dir_all(ws.join(name)).unwrap();
            std::fs::write(ws.join(name).join("x"), name).unwrap();
        }
        let root = Root::open(&ws).unwrap();
        let paths = [Path::new("d/out"), Path::new("e/out")];
        let aside = SetAside::begin(&root, &journal, &paths).unwrap().unwrap();
        assert!(!ws.join("d/out").exists() && !ws.join("e/out").exists());
        assert!(recover_set_aside(&journal).is_empty(), "its process lives");
        // One directory became a file: what was in it has no place, and is named.
        std::fs::remove_dir(ws.join("e")).unwrap();
        std::fs::write(ws.join("e"), "file").unwrap();
        drop(aside);
        let found = recover_set_aside(&journal);
        assert_eq!((found.len(), found[0].left.len()), (1, 1));
        assert_eq!(
            std::fs::read_to_string(ws.join("d/out/x")).unwrap(),
            "d/out"
        );
        let kept = ws.join(&found[0].left[0]).join("x");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "e/out");
        assert!(recover_set_aside(&journal).is_empty());
    }
}
