//! The journal of a landing. It records the planned changes before the first of them is made, so that recovery can
//! finish the landing or roll it back after a crash. Nothing here touches the user's tree.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_core::image::Swap;

use super::contents::Durability;
use super::disk::{Disk, Sys};
use super::path_state::read_pieces;
use super::{LandError, LandMode, LandingCall, LandingUndo};
use windlass_host::workspace::from_errno;

const FILE: &str = "journal.json";
const DRAFT: &str = "journal.json.new";
/// Reserves disk space for the last state of the journal before the first path is swapped.
const END: &str = "journal.json.end";
/// Bytes by which the last state may be longer than the first one.
const END_SLACK: u64 = 64;
/// Bytes of the journal that are written at once. Small in tests, so that their journals have several pieces.
const PIECE: usize = if cfg!(test) { 512 } else { 1 << 16 };
const LOCK: &str = "lock";
/// Prefix of the names of records.
const RECORD: &str = "landed-";
/// Records that one call reads.
const MAX_RECORDS: usize = 10_000;
/// Far above the size of the journal of the largest landing.
const MAX_JOURNAL: usize = 256 << 20;

/// The progress of a landing. Recovery decides by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LandingState {
    /// New files are being staged; the tree is unchanged.
    Staging,
    /// Paths are being swapped; every new file is complete.
    Swapping,
    /// The tree is the new one; only cleaning up remains.
    Done,
    /// The tree is the old one again; only cleaning up remains.
    Undone,
}

/// A directory that the deletes of a landing leave empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EmptiedDir {
    pub(super) path: String,
    pub(super) mode: u32,
    /// Index in `Journal::stages` of the staging directory on the same file system.
    pub(super) stage: usize,
}

/// The content of the journal file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) state: LandingState,
    /// Path of the tree; not necessarily UTF-8.
    pub(super) root: OsString,
    /// The file name of every staging directory.
    pub(super) name: String,
    /// Directories that contain a staging directory. The first is the root; each further one is on another file system.
    pub(super) stages: Vec<String>,
    /// In the order of the work, each with its index in `stages`.
    pub(super) swaps: Vec<(Swap, usize)>,
    /// Directories to create, outermost first.
    pub(super) made: Vec<String>,
    /// Directories to remove when the deletes have emptied them, deepest first.
    pub(super) emptied: Vec<EmptiedDir>,
    /// The staging directories contain a file that has no other place, so they stay.
    pub(super) hold: bool,
    #[serde(default)]
    pub(super) mode: LandMode,
}

impl Journal {
    /// Whether the landing has so many files that one `syncfs` is cheaper than one sync for each file.
    pub(super) fn is_large(&self) -> bool {
        Durability::for_files(self.swaps.len()) == Durability::Deferred
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let swaps = self.swaps.iter();
        swaps.map(|(swap, _)| swap.path.clone()).collect()
    }

    /// The paths of its staging directories, relative to the root.
    pub(super) fn stage_paths(&self) -> impl Iterator<Item = String> {
        self.stages
            .iter()
            .map(|at| Path::new(at).join(&self.name).display().to_string())
    }
}

/// The directory of the journal, locked, so that no other process lands or recovers with it.
pub(super) struct JournalDir {
    dir: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl JournalDir {
    /// Locks the directory; `None` if another landing still holds the lock after `lock_timeout`.
    pub(super) fn lock(
        disk: &Disk,
        path: &Path,
        lock_timeout: Duration,
    ) -> Result<Option<Self>, LandError> {
        let fail = |errno| LandError::File(from_errno(path, errno));
        windlass_host::private::create_dir(path)?;
        let dir = disk.open_dir(path).map_err(fail)?;
        let lock = disk
            .lock(dir.as_fd(), OsStr::new(LOCK), lock_timeout)
            .map_err(fail)?;
        Ok(lock.map(|lock| Self {
            dir,
            path: path.to_owned(),
            _lock: lock,
        }))
    }

    /// Whether a journal exists. It does not take the lock, so that a command that only asks does not delay a landing.
    pub(super) fn has_journal(path: &Path) -> bool {
        path.join(FILE).exists()
    }

    /// Reads the journal, if one exists.
    pub(super) fn read(&self, disk: &Disk) -> Result<Option<Journal>, LandError> {
        let path = self.path.join(FILE);
        let file = match disk.open(self.dir.as_fd(), OsStr::new(FILE)) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(from_errno(&path, errno).into()),
        };
        let text = read(disk, &file).map_err(|errno| from_errno(&path, errno))?;
        if text.is_empty() {
            // Only a power cut leaves an empty journal, and only of the landing of a call, which is not synced.
            return Ok(None);
        }
        let unreadable = |err: serde_json::Error| {
            LandError::Journal(format!(
                "{} cannot be read ({err}), so an unfinished landing cannot be recovered; check for directories \
                 named `.windlass-landing-…` in the project, then remove the journal",
                path.display()
            ))
        };
        serde_json::from_slice(&text).map(Some).map_err(unreadable)
    }

    /// Writes and syncs the journal atomically. Returns its length in bytes.
    pub(super) fn write(&self, disk: &Disk, journal: &Journal) -> Result<u64, LandError> {
        let draft = OsStr::new(DRAFT);
        let encode_into = |file: &File| encode(journal, |piece, _| disk.write(file, piece));
        self.fill(disk, draft, encode_into)
            .and_then(|length| self.name_journal(disk, draft).map(|()| length))
            .map_err(|errno| from_errno(&self.path.join(FILE), errno).into())
    }

    /// Reserves the disk space for [`Self::write_end`], so that a full disk cannot prevent the last state from being
    /// recorded. `length` is that of the journal in its first state.
    pub(super) fn reserve_end(&self, disk: &Disk, length: u64) -> Result<(), LandError> {
        let zeros = [0; PIECE];
        let reserve = |file: &File| {
            let mut left = length + END_SLACK;
            while left > 0 {
                let piece = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
                disk.write(file, &zeros[..piece])?;
                left -= piece as u64;
            }
            Ok(())
        };
        self.fill(disk, OsStr::new(END), reserve)
            .map_err(|errno| from_errno(&self.path.join(END), errno).into())
    }

    /// Writes the last state, into the reserved space if it exists.
    pub(super) fn write_end(&self, disk: &Disk, journal: &Journal) -> Result<(), LandError> {
        let (dir, end) = (self.dir.as_fd(), OsStr::new(END));
        let fail = |errno| LandError::File(from_errno(&self.path.join(FILE), errno));
        let file = match disk.open_reserved(dir, end) {
            Ok(file) => file,
            Err(Errno::NOENT) => return self.write(disk, journal).map(drop),
            Err(errno) => return Err(fail(errno)),
        };
        encode(journal, |piece, at| disk.overwrite(&file, piece, at))
            .and_then(|length| disk.truncate(&file, length))
            .and_then(|()| disk.sync(&file))
            .and_then(|()| self.name_journal(disk, end))
            .map_err(fail)
    }

    /// Creates a file, replacing an older one, and syncs it when `write` has written its bytes.
    fn fill<T>(&self, disk: &Disk, name: &OsStr, write: impl FnOnce(&File) -> Sys<T>) -> Sys<T> {
        match disk.remove(self.dir.as_fd(), name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let file = disk.create(self.dir.as_fd(), name, 0o600)?;
        let written = write(&file)?;
        disk.sync(&file)?;
        Ok(written)
    }

    fn name_journal(&self, disk: &Disk, draft: &OsStr) -> Sys<()> {
        let dir = self.dir.as_fd();
        disk.rename(dir, draft, dir, FILE)?;
        disk.sync_dir(dir)
    }

    /// Turns the journal of the landing of a call or an undo into a record of changes that are not in the log yet.
    /// Returns its path.
    pub(super) fn become_record(
        &self,
        disk: &Disk,
        journal: &Journal,
    ) -> Result<PathBuf, LandError> {
        let path = self.path.join(record_name(journal));
        let dir = self.dir.as_fd();
        disk.rename(
            dir,
            OsStr::new(FILE),
            dir,
            OsStr::new(&record_name(journal)),
        )
        .and_then(|()| disk.sync_dir(dir))
        .map_err(|errno| from_errno(&path, errno))?;
        Ok(path)
    }

    /// Removes the journal at the end of a landing.
    pub(super) fn remove(&self, disk: &Disk) -> Result<(), LandError> {
        let fail = |errno| from_errno(&self.path.join(FILE), errno);
        for name in [DRAFT, END, FILE] {
            match disk.remove(self.dir.as_fd(), OsStr::new(name)) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(fail(errno).into()),
            }
        }
        Ok(disk.sync_dir(self.dir.as_fd()).map_err(fail)?)
    }
}

/// Encodes the journal and passes it to `write` in pieces, each with its offset: the journal of a large landing is too
/// long to be held in memory. Returns the length in bytes.
fn encode(journal: &Journal, write: impl FnMut(&[u8], u64) -> Sys<()>) -> Sys<u64> {
    let pieces = PieceWriter {
        write,
        length: 0,
        failed: None,
    };
    let mut buffered = BufWriter::with_capacity(PIECE, pieces);
    let encoded = serde_json::to_writer(&mut buffered, journal).map_err(io::Error::from);
    let encoded = encoded.and_then(|()| buffered.flush());
    // After an error, dropping the `BufWriter` would write the rest.
    let (pieces, _) = buffered.into_parts();
    match (encoded, pieces.failed) {
        (Ok(()), _) => Ok(pieces.length),
        // Only a write can fail: every journal has a JSON form.
        (Err(_), failed) => Err(failed.unwrap_or(Errno::INVAL)),
    }
}

/// Passes bytes on with their offset, and keeps the error of the system call.
struct PieceWriter<W> {
    write: W,
    length: u64,
    failed: Option<Errno>,
}

impl<W: FnMut(&[u8], u64) -> Sys<()>> Write for PieceWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.write)(bytes, self.length).map_err(|errno| *self.failed.insert(errno))?;
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn record_name(journal: &Journal) -> String {
    let random = journal.name.rsplit('-').next().unwrap_or_default();
    format!("{RECORD}{random}.json")
}

/// A landing of a call that is in the tree, and that may be missing in the log of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnloggedLanding {
    /// The file of the record. The caller removes it when the log has the change.
    pub record: PathBuf,
    pub root: PathBuf,
    pub call: LandingCall,
    pub swaps: Vec<Swap>,
}

/// An undo or a redo that is in the tree, and that may be missing in the log of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnloggedUndo {
    /// The file of the record. The caller removes it when the log has the undo.
    pub record: PathBuf,
    pub root: PathBuf,
    pub undo: LandingUndo,
    pub swaps: Vec<Swap>,
}

/// The landings of calls that may be missing in the log, oldest first. They include landings of live sessions.
#[must_use]
pub fn unlogged_landings(journal_dir: &Path) -> Vec<UnloggedLanding> {
    let call = |(record, journal): (PathBuf, Journal)| match journal.mode {
        LandMode::Call(Some(call)) => Some(UnloggedLanding {
            record,
            root: PathBuf::from(journal.root),
            call,
            swaps: journal.swaps.into_iter().map(|(swap, _)| swap).collect(),
        }),
        _ => None,
    };
    records(journal_dir).filter_map(call).collect()
}

/// The landings of undos and redos that may be missing in the log, oldest first.
#[must_use]
pub fn unlogged_undos(journal_dir: &Path) -> Vec<UnloggedUndo> {
    let undo = |(record, journal): (PathBuf, Journal)| match journal.mode {
        LandMode::Undo(undo) => Some(UnloggedUndo {
            record,
            root: PathBuf::from(journal.root),
            undo,
            swaps: journal.swaps.into_iter().map(|(swap, _)| swap).collect(),
        }),
        _ => None,
    };
    records(journal_dir).filter_map(undo).collect()
}

fn records(journal_dir: &Path) -> impl Iterator<Item = (PathBuf, Journal)> {
    let entries = windlass_host::private::entries(journal_dir, usize::MAX);
    let is_record = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(RECORD));
    let records = entries
        .filter(|entry| is_record(&entry.file_name()))
        .take(MAX_RECORDS);
    let mut records: Vec<_> = records
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    records.sort_unstable();
    let read = |record: PathBuf| {
        let bytes = windlass_host::workspace::read_file(&record, MAX_JOURNAL as u64).ok()?;
        Some((record, serde_json::from_slice(&bytes).ok()?))
    };
    records
        .into_iter()
        .filter_map(move |(_, record)| read(record))
}

fn read(disk: &Disk, file: &File) -> Sys<Vec<u8>> {
    let mut text = Vec::new();
    read_pieces(disk, file, |piece| {
        text.extend_from_slice(piece);
        if text.len() > MAX_JOURNAL {
            return Err(Errno::FBIG);
        }
        Ok(())
    })?;
    Ok(text)
}
