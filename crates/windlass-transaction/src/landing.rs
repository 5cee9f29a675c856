//! Landing: transfers a set of changes into the user's tree. A landing is atomic: either all changes are in the tree
//! afterwards or none, also after an error, a kill or a power cut. It never overwrites bytes that another program wrote
//! meanwhile.
//!
//! The steps of a landing, each in its module:
//!
//! 1. `check` compares every path with its expected image and returns the order of the swaps.
//! 2. `journal` records the planned changes, so that recovery can finish or roll back the landing.
//! 3. `stage` writes the new files into a staging directory in the tree.
//! 4. `swap` moves each new file to its path with one rename, and then checks the file that the rename displaced. A
//!    check after the rename cannot race with another writer.
//! 5. `rollback` restores the old tree if a displaced file is not the expected one.
//!
//! Displaced files go to the content store (`contents`), from which undo restores them. [`undo`] plans an undo and
//! merges it with later edits. `recover` finishes or rolls back a landing after a crash. All system calls go through
//! `disk`, so that a test can make each of them fail. All functions block.

mod check;
mod contents;
mod disk;
mod journal;
pub mod merge;
mod path_state;
mod recover;
mod rollback;
mod stage;
mod swap;
mod tree_hash;
pub mod undo;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{FileError, Files};

pub(crate) use self::contents::Durability;
pub use self::contents::{Contents, ContentsError};
pub(crate) use self::disk::lock_within;
pub use self::journal::{UnloggedLanding, UnloggedUndo, unlogged_landings, unlogged_undos};
pub use self::path_state::image_at;
pub use self::recover::{Recovered, recover};
pub use self::tree_hash::tree_hash;

use self::check::EmptiedFolders;
use self::disk::Disk;
use self::journal::{Journal, JournalDir, LandingState};
use self::rollback::RollbackReport;
use self::swap::{ActiveLanding, SwapProgress};
use windlass_host::workspace::{Root, STAGING};

/// Time that a landing waits for other landings into the same project.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

const MAX_SWAPS: usize = 250_000;

/// A source of the bytes of new files: a transaction's overlay, or the content store.
pub trait ByteSource {
    /// Opens the bytes of `swap.after`, positioned at the start. Called for files only.
    fn open(&self, swap: &Swap) -> io::Result<File>;
    /// Whether the opened files also have the extended attributes and times for the new files. Otherwise a new file
    /// gets the extended attributes of the file that it replaces.
    fn has_attributes(&self) -> bool {
        false
    }
}

impl ByteSource for Contents {
    fn open(&self, swap: &Swap) -> io::Result<File> {
        let Image::File { hash, .. } = &swap.after else {
            return Err(io::Error::other("only the bytes of files are kept"));
        };
        self.read(hash).map_err(io::Error::other)
    }
}

/// The call of an in-place run that a landing belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingCall {
    pub session: SessionId,
    pub run: RunId,
    pub call: CallId,
}

/// Identifies a landing as an undo or a redo, with the fields that the log needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingUndo {
    pub session: SessionId,
    pub redo: bool,
    /// The event that is undone (the first, if there are several), or for a redo the event of the undo.
    pub of: u64,
    /// The other events that are undone.
    pub also: Vec<u64>,
}

/// The kind of a landing decides about syncs, empty directories and the record for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LandMode {
    /// A whole run. Every step is synced, so that the landing survives a power cut. Directories that become empty are
    /// removed.
    #[default]
    Run,
    /// An undo or a redo; otherwise like `Run`.
    Undo(LandingUndo),
    /// One call of an in-place run, or a command between calls. Nothing is synced: the landing survives a killed
    /// process and not a power cut. Directories that become empty stay.
    Call(Option<LandingCall>),
}

impl LandMode {
    /// Whether the journal becomes a record that stays until the log has the change.
    fn leaves_record(&self) -> bool {
        matches!(self, Self::Call(Some(_)) | Self::Undo(_))
    }

    fn emptied(&self) -> EmptiedFolders {
        match self {
            Self::Run | Self::Undo(_) => EmptiedFolders::Remove,
            Self::Call(_) => EmptiedFolders::Keep,
        }
    }
}

/// The result of a successful landing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletedLanding {
    /// The record of the landing of a call or an undo. The caller removes it when the log has the change.
    pub record: Option<PathBuf>,
    /// The changed paths, in the order of the swaps.
    pub paths: Vec<String>,
}

/// A path that cannot land, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPath {
    /// Relative to the root of the tree.
    pub path: String,
    /// The reason, and what to do if the user can do something.
    pub reason: String,
}

impl RefusedPath {
    fn new(path: &str, reason: &str) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The reason why a change is not in the tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LandError {
    /// The tree differs from the expected one. None of the changes are in it.
    #[error("nothing was landed: {}", list(refused, left))]
    Conflict {
        /// Every path that cannot land.
        refused: Vec<RefusedPath>,
        /// Paths that were swapped and could not be swapped back, because another program wrote to them meanwhile. They
        /// keep what that program wrote.
        left: Vec<String>,
    },
    /// Another landing holds the lock.
    #[error("another landing into this project is in progress; wait until it ends")]
    Busy,
    /// An earlier landing, or this one, needs recovery.
    #[error(
        "a landing was not finished ({0}); the next `windlass` command finishes it or rolls it back"
    )]
    Unfinished(String),
    /// The journal is not readable or not writable.
    #[error("{0}")]
    Journal(String),
    /// The old bytes cannot be stored for undo. None of the changes are in the tree.
    #[error("nothing was landed: {0}")]
    NotStored(FileError),
    /// A system call failed. None of the changes are in the tree.
    #[error("nothing was landed: {0}")]
    File(#[from] FileError),
}

fn list(refused: &[RefusedPath], left: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut lines: Vec<String> = refused
        .iter()
        .take(SHOWN)
        .map(|it| format!("{}: {}", it.path, it.reason))
        .collect();
    if refused.len() > SHOWN {
        lines.push(format!("and {} more", refused.len() - SHOWN));
    }
    if !left.is_empty() {
        lines.push(format!(
            "not restored, because another program changed them meanwhile: {}",
            left.join(", ")
        ));
    }
    lines.join("; ")
}

/// The reason why a landing stops before its end.
enum LandingFailure {
    Conflict(Vec<RefusedPath>),
    NotStored(FileError),
    File(FileError),
}

impl From<FileError> for LandingFailure {
    fn from(err: FileError) -> Self {
        Self::File(err)
    }
}

impl LandingFailure {
    fn conflict(path: &str, reason: &str) -> Self {
        Self::Conflict(vec![RefusedPath::new(path, reason)])
    }

    fn into_error(self, mut left: Vec<String>) -> LandError {
        match self {
            Self::Conflict(refused) => {
                left.sort_unstable();
                left.dedup();
                left.retain(|path| refused.iter().all(|it| it.path != *path));
                LandError::Conflict { refused, left }
            }
            Self::NotStored(err) if left.is_empty() => LandError::NotStored(err),
            Self::File(err) if left.is_empty() => LandError::File(err),
            Self::NotStored(err) | Self::File(err) => LandError::Conflict {
                refused: vec![RefusedPath::new("the landing stopped", &err.message)],
                left,
            },
        }
    }
}

/// The result of swapping all paths of a landing.
enum SwapResult {
    AllSwapped,
    /// No path was swapped.
    NotStarted(LandError),
    /// A path could not be swapped, and the paths before it were rolled back.
    RolledBack(LandingFailure, RollbackReport),
    /// The rollback failed; recovery finishes it.
    Unfinished(LandError),
}

/// Lands all `swaps`, or none of them. It also lands none if the old bytes cannot be stored for undo. `journal_dir` is
/// a private directory outside the tree; only one landing at a time uses it.
///
/// `ended` is called with whether the change landed, after the journal says so and before the journal is deleted. If the
/// process dies in between, recovery calls its own `ended`; so a caller that records the result there misses none.
pub fn land(
    root: &Root,
    swaps: &[Swap],
    source: &dyn ByteSource,
    contents: &Contents,
    journal_dir: &Path,
    ended: &dyn Fn(bool),
) -> Result<CompletedLanding, LandError> {
    let disk = Disk::default();
    let landing = LandingContext {
        ended,
        ..LandingContext::new(&disk, root, contents, journal_dir)
    };
    landing.store_and_land(swaps, source, LandMode::Run)
}

/// Lands an undo or a redo; otherwise like [`land`].
pub fn land_undo(
    root: &Root,
    swaps: &[Swap],
    contents: &Contents,
    journal_dir: &Path,
    undo: LandingUndo,
) -> Result<CompletedLanding, LandError> {
    let disk = Disk::default();
    let landing = LandingContext::new(&disk, root, contents, journal_dir);
    landing.store_and_land(swaps, contents, LandMode::Undo(undo))
}

/// Lands the changes of one call of an in-place run. It waits for other landings and syncs nothing.
pub fn land_call(
    root: &Root,
    swaps: &[Swap],
    source: &dyn ByteSource,
    contents: &Contents,
    journal_dir: &Path,
    call: Option<LandingCall>,
) -> Result<CompletedLanding, LandError> {
    let disk = Disk::unsynced();
    let landing = LandingContext::new(&disk, root, contents, journal_dir);
    landing.land(swaps, source, LandMode::Call(call))
}

struct LandingContext<'a> {
    disk: &'a Disk,
    root: &'a Root,
    contents: &'a Contents,
    journal_dir: &'a Path,
    lock_timeout: Duration,
    /// See [`land`].
    ended: &'a dyn Fn(bool),
}

impl<'a> LandingContext<'a> {
    fn new(disk: &'a Disk, root: &'a Root, contents: &'a Contents, journal_dir: &'a Path) -> Self {
        Self {
            disk,
            root,
            contents,
            journal_dir,
            lock_timeout: LOCK_TIMEOUT,
            ended: &|_| {},
        }
    }

    /// Stores the new bytes, which an undo merges with later edits, and lands.
    fn store_and_land(
        &self,
        swaps: &[Swap],
        source: &dyn ByteSource,
        mode: LandMode,
    ) -> Result<CompletedLanding, LandError> {
        // A failure here is no error. Without the new bytes in the store, an undo cannot merge with later edits and
        // reports a conflict.
        let durability = Durability::for_files(swaps.len());
        let _ = self
            .contents
            .store_after(swaps, source, durability, &|_| false);
        self.land(swaps, source, mode)
    }

    fn land(
        &self,
        swaps: &[Swap],
        source: &dyn ByteSource,
        mode: LandMode,
    ) -> Result<CompletedLanding, LandError> {
        let (disk, root) = (self.disk, self.root);
        let Some(dir) = JournalDir::lock(disk, self.journal_dir, self.lock_timeout)? else {
            return Err(LandError::Busy);
        };
        if dir.read(disk)?.is_some() {
            return Err(LandError::Unfinished("its journal still exists".to_owned()));
        }
        if swaps.len() > MAX_SWAPS {
            return Err(LandError::Journal(format!(
                "nothing was landed: {} files are too many for one change; land at most {MAX_SWAPS} at once",
                swaps.len()
            )));
        }
        tracing::debug!(root = %root.root().display(), files = swaps.len(), "landing: check");
        let layout = check::check(disk, root.handle(), swaps, mode.emptied())?;
        if layout.swaps.is_empty() {
            return Ok(CompletedLanding::default());
        }
        let mut journal = Journal {
            state: LandingState::Staging,
            root: root.root().as_os_str().to_owned(),
            name: format!("{STAGING}{:016x}", windlass_host::clock::random_u64()),
            stages: layout.stages,
            swaps: layout.swaps,
            made: layout.made,
            emptied: layout.emptied,
            hold: false,
            mode,
        };
        tracing::debug!(
            stage = journal.name,
            files = journal.swaps.len(),
            "landing: stage"
        );
        let length = match dir.write(disk, &journal) {
            Ok(length) => length,
            Err(err) => {
                // The journal may exist despite the error. Remove it: there is no work yet that it describes.
                let _ = dir.remove(disk);
                return Err(err);
            }
        };
        let staged = stage::make(disk, root.handle(), &journal).map_err(LandingFailure::from);
        if let Err(halt) = staged.and_then(|()| stage::fill(disk, root.handle(), &journal, source))
        {
            self.finish(&dir, &journal);
            return Err(halt.into_error(Vec::new()));
        }
        if let Err(err) = dir.reserve_end(disk, length) {
            self.finish(&dir, &journal);
            return Err(err);
        }
        tracing::debug!(stage = journal.name, "landing: swap");
        journal.state = LandingState::Swapping;
        if let Err(err) = dir.write(disk, &journal) {
            return Err(self.rolled_back(&dir, &mut journal, err));
        }
        self.swap(&dir, &mut journal)
    }

    /// Swaps every path. If one fails, rolls back the paths that were swapped.
    fn swap(&self, dir: &JournalDir, journal: &mut Journal) -> Result<CompletedLanding, LandError> {
        match self.swap_all(journal) {
            SwapResult::AllSwapped => {
                // From here on the change has landed, whatever fails: recovery finds every path swapped.
                let record = self.end(dir, journal, LandingState::Done).ok().flatten();
                let swaps = std::mem::take(&mut journal.swaps).into_iter();
                Ok(CompletedLanding {
                    record,
                    paths: swaps.map(|(swap, _)| swap.path).collect(),
                })
            }
            SwapResult::NotStarted(why) => Err(self.rolled_back(dir, journal, why)),
            SwapResult::RolledBack(halt, report) => {
                let mut left = report.left;
                if report.hold {
                    left.extend(journal.stage_paths());
                }
                journal.hold = report.hold;
                Err(self.rolled_back(dir, journal, halt.into_error(left)))
            }
            SwapResult::Unfinished(why) => Err(why),
        }
    }

    fn swap_all(&self, journal: &Journal) -> SwapResult {
        let opened = ActiveLanding::open(self.disk, self.root.handle(), journal, self.contents);
        let gone = || windlass_host::workspace::from_errno(Path::new(&journal.name), Errno::NOENT);
        let active = match opened.and_then(|active| active.ok_or_else(gone)) {
            Ok(active) => active,
            Err(err) => return SwapResult::NotStarted(err.into()),
        };
        let Err(halt) = active.forward(|_| Ok(SwapProgress::NotStarted)) else {
            return SwapResult::AllSwapped;
        };
        tracing::warn!(stage = journal.name, "landing: rollback");
        match active.rollback() {
            Ok(report) => SwapResult::RolledBack(halt, report),
            Err(err) => SwapResult::Unfinished(LandError::Unfinished(err.message)),
        }
    }

    /// Records that the tree is the old one again. If this fails, the result is `Unfinished`, because recovery would
    /// land the change.
    fn rolled_back(&self, dir: &JournalDir, journal: &mut Journal, why: LandError) -> LandError {
        match self.end(dir, journal, LandingState::Undone) {
            Ok(_) => why,
            Err(end) => LandError::Unfinished(format!("{why}; {end}")),
        }
    }

    /// Records the last state and cleans up; recovery cleans up whatever remains. Returns the record of a call's
    /// landing.
    fn end(
        &self,
        dir: &JournalDir,
        journal: &mut Journal,
        state: LandingState,
    ) -> Result<Option<PathBuf>, LandError> {
        journal.state = state;
        tracing::debug!(stage = journal.name, ?state, "landing: end");
        dir.write_end(self.disk, journal)?;
        Ok(self.finish(dir, journal))
    }

    fn finish(&self, dir: &JournalDir, journal: &Journal) -> Option<PathBuf> {
        (self.ended)(journal.state == LandingState::Done);
        if !journal.hold && stage::clean(self.disk, self.root.handle(), journal).is_err() {
            return None;
        }
        let record = (journal.state == LandingState::Done && journal.mode.leaves_record())
            .then(|| dir.become_record(self.disk, journal).ok())
            .flatten();
        let _ = dir.remove(self.disk);
        record
    }
}

#[cfg(test)]
#[path = "landing/fault_tests.rs"]
mod fault_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
#[path = "landing/landing_tests.rs"]
mod tests;
