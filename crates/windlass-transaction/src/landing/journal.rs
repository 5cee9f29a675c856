//! What a landing is about to do, written down before it does it, so that whoever comes after a crash can finish it
//! or take it back. Nothing here touches the user's tree.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_core::image::Swap;

use super::contents::Lasting;
use super::disk::{Disk, Sys};
use super::look::read_pieces;
use super::{LandError, LandMode, LandingCall, LandingUndo};
use windlass_host::workspace::from_errno;

const FILE: &str = "journal.json";
const DRAFT: &str = "journal.json.new";
/// Room for the last state of the journal, taken before the first path is swapped.
const END: &str = "journal.json.end";
/// The last state is at most so much longer than the first one.
const END_SLACK: usize = 64;
const LOCK: &str = "lock";
/// The name of a record begins with this.
const RECORD: &str = "landed-";
/// Records that are looked at.
const MAX_RECORDS: usize = 10_000;
/// A journal of the largest change that anyone lands is far below this.
const MAX_JOURNAL: usize = 256 << 20;

/// How far a landing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// New files are being written aside; the tree is untouched.
    Staging,
    /// Paths are being swapped; every new file is complete.
    Swapping,
    /// The tree is the new one; what is left is to clean up.
    Done,
    /// The tree is the old one again; what is left is to clean up.
    Undone,
}

/// A directory that was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dir {
    pub(super) path: String,
    /// Its permission bits.
    pub(super) mode: u32,
    /// The place in `stages` of what is on its file system.
    pub(super) stage: usize,
}

/// One landing, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) state: State,
    /// The path of the tree, which need not be UTF-8.
    pub(super) root: OsString,
    /// The name of every staging directory.
    pub(super) name: String,
    /// The directories that hold one; the first is the root, and more are only for other file systems.
    pub(super) stages: Vec<String>,
    /// In the order in which they are done, each with its place in `stages`.
    pub(super) swaps: Vec<(Swap, usize)>,
    /// Directories that are made, outermost first.
    pub(super) made: Vec<String>,
    /// Directories that go when the deletes have emptied them, deepest first.
    pub(super) emptied: Vec<Dir>,
    /// The staging directories hold something that has no other place, so they stay.
    pub(super) hold: bool,
    /// The kind of the landing, with the call it belongs to.
    #[serde(default)]
    pub(super) mode: LandMode,
}

impl Journal {
    /// Whether there are so many files that the file system is made to last as a whole, and not each of them.
    pub(super) fn is_large(&self) -> bool {
        Lasting::of(self.swaps.len()) == Lasting::Later
    }

    /// The paths that it changes.
    pub(super) fn paths(&self) -> Vec<String> {
        let swaps = self.swaps.iter();
        swaps.map(|(swap, _)| swap.path.clone()).collect()
    }

    /// Where its staging directories are.
    pub(super) fn stage_paths(&self) -> impl Iterator<Item = String> {
        self.stages
            .iter()
            .map(|at| Path::new(at).join(&self.name).display().to_string())
    }
}

/// The directory of the journal, held so that nobody else lands or recovers with it meanwhile.
pub(super) struct Desk {
    dir: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Desk {
    /// Takes the lock of the directory; `None` if another landing still holds it after `patience`.
    pub(super) fn take(
        disk: &Disk,
        path: &Path,
        patience: Duration,
    ) -> Result<Option<Self>, LandError> {
        let fail = |errno| LandError::File(from_errno(path, errno));
        windlass_host::private::create_dir(path)?;
        let dir = disk.open_dir(path).map_err(fail)?;
        let lock = disk
            .lock(dir.as_fd(), OsStr::new(LOCK), patience)
            .map_err(fail)?;
        Ok(lock.map(|lock| Self {
            dir,
            path: path.to_owned(),
            _lock: lock,
        }))
    }

    /// Whether a journal lies there, seen without the lock: a command that only looks keeps no landing waiting.
    pub(super) fn has_journal(path: &Path) -> bool {
        path.join(FILE).exists()
    }

    /// The journal that lies there.
    pub(super) fn read(&self, disk: &Disk) -> Result<Option<Journal>, LandError> {
        let path = self.path.join(FILE);
        let file = match disk.open(self.dir.as_fd(), OsStr::new(FILE)) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(from_errno(&path, errno).into()),
        };
        let text = read(disk, &file).map_err(|errno| from_errno(&path, errno))?;
        if text.is_empty() {
            // Only a power cut leaves this, of a journal that was not synced: the landing of a call.
            return Ok(None);
        }
        let unreadable = |err: serde_json::Error| {
            LandError::Journal(format!(
                "{} cannot be read ({err}), so an unfinished landing cannot be recovered; look for directories \
                 named `.windlass-landing-…` in the project, then remove the journal",
                path.display()
            ))
        };
        serde_json::from_slice(&text).map(Some).map_err(unreadable)
    }

    /// Writes it down so that it outlives a crash, as a whole or not at all.
    pub(super) fn write(&self, disk: &Disk, journal: &Journal) -> Result<(), LandError> {
        let (text, draft) = (encode(journal)?, OsStr::new(DRAFT));
        self.fill(disk, draft, &text)
            .and_then(|()| self.name_journal(disk, draft))
            .map_err(|errno| from_errno(&self.path.join(FILE), errno).into())
    }

    /// Takes the room that [`Self::write_end`] needs, so that a full disk cannot keep the end from being written down.
    pub(super) fn reserve_end(&self, disk: &Disk, journal: &Journal) -> Result<(), LandError> {
        let room = vec![0; encode(journal)?.len() + END_SLACK];
        self.fill(disk, OsStr::new(END), &room)
            .map_err(|errno| from_errno(&self.path.join(END), errno).into())
    }

    /// Writes the last state down, in the room that was reserved for it if there is some.
    pub(super) fn write_end(&self, disk: &Disk, journal: &Journal) -> Result<(), LandError> {
        let (dir, end) = (self.dir.as_fd(), OsStr::new(END));
        let fail = |errno| LandError::File(from_errno(&self.path.join(FILE), errno));
        let file = match disk.open_reserved(dir, end) {
            Ok(file) => file,
            Err(Errno::NOENT) => return self.write(disk, journal),
            Err(errno) => return Err(fail(errno)),
        };
        let text = encode(journal)?;
        disk.overwrite(&file, &text)
            .and_then(|()| disk.sync(&file))
            .and_then(|()| self.name_journal(disk, end))
            .map_err(fail)
    }

    /// Makes a file anew, with these bytes.
    fn fill(&self, disk: &Disk, name: &OsStr, bytes: &[u8]) -> Sys<()> {
        match disk.remove(self.dir.as_fd(), name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let file = disk.create(self.dir.as_fd(), name, 0o600)?;
        disk.write(&file, bytes)?;
        disk.sync(&file)
    }

    fn name_journal(&self, disk: &Disk, draft: &OsStr) -> Sys<()> {
        let dir = self.dir.as_fd();
        disk.rename(dir, draft, dir, FILE)?;
        disk.sync_dir(dir)
    }

    /// The landing of a call or an undo is done: the journal becomes the record of changes that are not in the log yet. Gives its path.
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

    /// The landing is over.
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

fn encode(journal: &Journal) -> Result<Vec<u8>, LandError> {
    serde_json::to_vec(journal)
        .map_err(|err| LandError::Journal(format!("the landing cannot be written down: {err}")))
}

fn record_name(journal: &Journal) -> String {
    let random = journal.name.rsplit('-').next().unwrap_or_default();
    format!("{RECORD}{random}.json")
}

/// A landing of a call that is in the tree and perhaps not in the log of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnloggedLanding {
    /// The file that holds it; to be removed when the log has it.
    pub record: PathBuf,
    /// The tree.
    pub root: PathBuf,
    /// The call.
    pub call: LandingCall,
    /// The changes of the call.
    pub swaps: Vec<Swap>,
}

/// An undo or a redo that is in the tree and perhaps not in the log of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnloggedUndo {
    /// The file that holds it; to be removed when the log has it.
    pub record: PathBuf,
    /// The tree.
    pub root: PathBuf,
    /// The event that the log needs.
    pub undo: LandingUndo,
    /// Its changes.
    pub swaps: Vec<Swap>,
}

/// The landings of calls that are perhaps not in the log yet, oldest first. Those of a live session are among them.
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

/// The same for undos and redos.
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
