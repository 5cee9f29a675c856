//! Bringing a set of changes into the user's tree: all of it or nothing, whatever fails or is killed on the way, and
//! never over a byte that somebody wrote meanwhile.
//!
//! A walk of one landing. `check` looks whether every path is as it was. `journal` writes down what will be
//! done, `stage` writes the new files aside, `swap` brings them in by one rename each and looks at what came
//! out, `back` takes everything back when that is not what was expected. What was displaced goes to `contents`,
//! which is the undo; [`undo`] plans the way back and merges with later edits. `recover` does the rest after a
//! crash. All system calls go through `disk`, so that a test can let each of them fail. Everything blocks.

mod back;
mod check;
mod contents;
mod disk;
mod journal;
mod look;
pub mod merge;
mod recover;
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

pub(crate) use self::contents::Lasting;
pub use self::contents::{Contents, ContentsError};
pub(crate) use self::disk::lock_within;
pub use self::journal::{UnloggedLanding, UnloggedUndo, unlogged_landings, unlogged_undos};
pub use self::look::look;
pub use self::recover::{Recovered, recover};
pub use self::tree_hash::tree_hash;

use self::back::Back;
use self::check::EmptiedFolders;
use self::disk::Disk;
use self::journal::{Desk, Journal, State};
use self::swap::{Standing, Work};
use windlass_host::workspace::{Root, STAGING};

/// A landing waits this long for those of others.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most files that one landing changes.
const MAX_SWAPS: usize = 250_000;

/// Where the bytes of new files come from: a transaction's own layer, or the content store.
pub trait Source {
    /// The bytes of what a change puts there, from their beginning. Only asked for files.
    fn open(&self, swap: &Swap) -> io::Result<File>;
    /// Whether the opened files also have the attributes and times that the new ones get. Otherwise a new file gets
    /// the attributes of the one that it replaces.
    fn has_attributes(&self) -> bool {
        false
    }
}

impl Source for Contents {
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
    /// Its session.
    pub session: SessionId,
    /// Its run.
    pub run: RunId,
    /// The call itself.
    pub call: CallId,
}

/// The undo or redo that a landing is, as the log will tell of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingUndo {
    /// The session whose changes it is about.
    pub session: SessionId,
    /// Whether it is a redo.
    pub redo: bool,
    /// The event it is about: the first change, or for a redo the undo.
    pub of: u64,
    /// The further changes.
    pub also: Vec<u64>,
}

/// The kind of a landing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LandMode {
    /// Those of a whole run. Every step is safe from a power cut; directories that become empty go.
    #[default]
    Run,
    /// Those of an undo or a redo. The same.
    Undo(LandingUndo),
    /// Those of one call in place, or of a command between calls. Nothing waits for the disk; directories that become
    /// empty stay.
    Call(Option<LandingCall>),
}

impl LandMode {
    /// Whether its journal becomes a record for the log.
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

/// A landing that happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// The record of the landing of a call or an undo; to be removed when the log has it.
    pub record: Option<PathBuf>,
    /// What was changed, in order.
    pub paths: Vec<String>,
}

/// A path with what is in the way of its landing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Relative to the root.
    pub path: String,
    /// The reason and, where there is something, what to do.
    pub reason: String,
}

impl Refused {
    fn new(path: &str, reason: &str) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// Why a change is not in the tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LandError {
    /// The tree is not as it was. Nothing of the change is in it.
    #[error("nothing was landed: {}", list(refused, left))]
    Conflict {
        /// Every path that speaks against it.
        refused: Vec<Refused>,
        /// Paths that were swapped and that somebody wrote to before they could be swapped back: they are as that
        /// somebody left them.
        left: Vec<String>,
    },
    /// Another landing is at work.
    #[error("another landing into this project is at work; wait for its end")]
    Busy,
    /// An earlier landing, or this one, waits for recovery.
    #[error(
        "a landing was not finished ({0}); it is finished or taken back at the next start of any command"
    )]
    Unfinished(String),
    /// The journal cannot be used.
    #[error("{0}")]
    Journal(String),
    /// Old bytes cannot be stored for undo. Nothing of the change is in the tree.
    #[error("nothing was landed: {0}")]
    NotStored(FileError),
    /// The system refuses. Nothing of the change is in the tree.
    #[error("nothing was landed: {0}")]
    File(#[from] FileError),
}

fn list(refused: &[Refused], left: &[String]) -> String {
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
            "left as somebody wrote them meanwhile: {}",
            left.join(", ")
        ));
    }
    lines.join("; ")
}

/// Why the work stops before its end.
enum Halt {
    Conflict(Vec<Refused>),
    /// Old bytes cannot be stored.
    NotStored(FileError),
    File(FileError),
}

impl From<FileError> for Halt {
    fn from(err: FileError) -> Self {
        Self::File(err)
    }
}

impl Halt {
    fn conflict(path: &str, reason: &str) -> Self {
        Self::Conflict(vec![Refused::new(path, reason)])
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
                refused: vec![Refused::new("the landing stopped", &err.message)],
                left,
            },
        }
    }
}

/// How far the swaps of a landing came.
enum Swapped {
    All,
    /// Nothing was swapped.
    None(LandError),
    /// What was swapped is swapped back.
    RolledBack(Halt, Back),
    /// Recovery has to finish it.
    Between(LandError),
}

/// Brings all of these into the tree, or nothing; nothing also where old bytes cannot be stored. `journal_dir` is a private
/// directory for one landing at a time, outside the tree.
pub fn land(
    root: &Root,
    swaps: &[Swap],
    source: &dyn Source,
    contents: &Contents,
    journal_dir: &Path,
) -> Result<Done, LandError> {
    land_synced(root, swaps, source, contents, journal_dir, LandMode::Run)
}

/// The same for an undo or a redo.
pub fn land_undo(
    root: &Root,
    swaps: &[Swap],
    contents: &Contents,
    journal_dir: &Path,
    undo: LandingUndo,
) -> Result<Done, LandError> {
    let mode = LandMode::Undo(undo);
    land_synced(root, swaps, contents, contents, journal_dir, mode)
}

fn land_synced(
    root: &Root,
    swaps: &[Swap],
    source: &dyn Source,
    contents: &Contents,
    journal_dir: &Path,
    mode: LandMode,
) -> Result<Done, LandError> {
    let landing = Landing {
        disk: &Disk::default(),
        root,
        contents,
        journal_dir,
        patience: PATIENCE,
    };
    // Where the new bytes cannot be stored, undoing the change under later edits is a conflict.
    let _ = contents.store_after(swaps, source, Lasting::of(swaps.len()), &|_| false);
    landing.land(swaps, source, mode)
}

/// The same for one call of an in-place run. Waits for landings of others, and not for the disk.
pub fn land_call(
    root: &Root,
    swaps: &[Swap],
    source: &dyn Source,
    contents: &Contents,
    journal_dir: &Path,
    call: Option<LandingCall>,
) -> Result<Done, LandError> {
    let landing = Landing {
        disk: &Disk::unsynced(),
        root,
        contents,
        journal_dir,
        patience: PATIENCE,
    };
    landing.land(swaps, source, LandMode::Call(call))
}

struct Landing<'a> {
    disk: &'a Disk,
    root: &'a Root,
    contents: &'a Contents,
    journal_dir: &'a Path,
    /// The time that another landing is waited for.
    patience: Duration,
}

impl Landing<'_> {
    fn land(&self, swaps: &[Swap], source: &dyn Source, mode: LandMode) -> Result<Done, LandError> {
        let (disk, root) = (self.disk, self.root);
        let Some(desk) = Desk::take(disk, self.journal_dir, self.patience)? else {
            return Err(LandError::Busy);
        };
        if desk.read(disk)?.is_some() {
            return Err(LandError::Unfinished(
                "its journal is still there".to_owned(),
            ));
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
            return Ok(Done::default());
        }
        let mut journal = Journal {
            state: State::Staging,
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
        if let Err(err) = desk.write(disk, &journal) {
            // It may lie there all the same; there is nothing yet that it could lead to.
            let _ = desk.remove(disk);
            return Err(err);
        }
        let staged = stage::make(disk, root.handle(), &journal).map_err(Halt::from);
        if let Err(halt) = staged.and_then(|()| stage::fill(disk, root.handle(), &journal, source))
        {
            self.finish(&desk, &journal);
            return Err(halt.into_error(Vec::new()));
        }
        if let Err(err) = desk.reserve_end(disk, &journal) {
            self.finish(&desk, &journal);
            return Err(err);
        }
        tracing::debug!(stage = journal.name, "landing: swap");
        journal.state = State::Swapping;
        if let Err(err) = desk.write(disk, &journal) {
            return Err(self.rolled_back(&desk, &mut journal, err));
        }
        self.swap(&desk, &mut journal)
    }

    /// Swaps every path, or takes back what was swapped.
    fn swap(&self, desk: &Desk, journal: &mut Journal) -> Result<Done, LandError> {
        match self.swap_all(journal) {
            Swapped::All => {
                // From here on it is landed, whatever fails: recovery finds every path swapped.
                let record = self.end(desk, journal, State::Done).ok().flatten();
                Ok(Done {
                    record,
                    paths: journal.paths(),
                })
            }
            Swapped::None(why) => Err(self.rolled_back(desk, journal, why)),
            Swapped::RolledBack(halt, back) => {
                let mut left = back.left;
                if back.hold {
                    left.extend(journal.stage_paths());
                }
                journal.hold = back.hold;
                Err(self.rolled_back(desk, journal, halt.into_error(left)))
            }
            Swapped::Between(why) => Err(why),
        }
    }

    fn swap_all(&self, journal: &Journal) -> Swapped {
        let opened = Work::open(self.disk, self.root.handle(), journal, self.contents);
        let gone = || windlass_host::workspace::from_errno(Path::new(&journal.name), Errno::NOENT);
        let work = match opened.and_then(|work| work.ok_or_else(gone)) {
            Ok(work) => work,
            Err(err) => return Swapped::None(err.into()),
        };
        let Err(halt) = work.forward(|_| Ok(Standing::NotYet)) else {
            return Swapped::All;
        };
        tracing::warn!(stage = journal.name, "landing: take back");
        match work.back() {
            Ok(back) => Swapped::RolledBack(halt, back),
            Err(err) => Swapped::Between(LandError::Unfinished(err.message)),
        }
    }

    /// The tree is the old one. Recovery lands a change whose rollback is not written down, so then it is unfinished.
    fn rolled_back(&self, desk: &Desk, journal: &mut Journal, why: LandError) -> LandError {
        match self.end(desk, journal, State::Undone) {
            Ok(_) => why,
            Err(end) => LandError::Unfinished(format!("{why}; {end}")),
        }
    }

    /// Writes the end down and cleans up. Recovery cleans up the rest. Gives the record of a
    /// call's landing.
    fn end(
        &self,
        desk: &Desk,
        journal: &mut Journal,
        state: State,
    ) -> Result<Option<PathBuf>, LandError> {
        journal.state = state;
        tracing::debug!(stage = journal.name, ?state, "landing: end");
        desk.write_end(self.disk, journal)?;
        Ok(self.finish(desk, journal))
    }

    fn finish(&self, desk: &Desk, journal: &Journal) -> Option<PathBuf> {
        if !journal.hold && stage::clean(self.disk, self.root.handle(), journal).is_err() {
            return None;
        }
        let record = (journal.state == State::Done && journal.mode.leaves_record())
            .then(|| desk.become_record(self.disk, journal).ok())
            .flatten();
        let _ = desk.remove(self.disk);
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
