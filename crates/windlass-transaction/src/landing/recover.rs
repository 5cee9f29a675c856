//! Recovery after a crash: finishes a landing whose process died, or rolls it back. Recovery itself can be killed at
//! any point and run again. It changes only paths that hold exactly the old or the new image.

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_core::workspace::Files;

use super::contents::Contents;
use super::disk::Disk;
use super::journal::{Journal, JournalDir, LandingState};
use super::path_state::path_state;
use super::swap::{ActiveLanding, SwapProgress};
use super::{LandError, LandingFailure, stage};
use windlass_host::workspace::Root;

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub root: PathBuf,
    /// Whether the change is in the tree now; otherwise the tree is the old one.
    pub landed: bool,
    pub paths: Vec<String>,
    /// Paths that were left alone because another program wrote to them meanwhile, and staging directories that still
    /// contain files.
    pub left: Vec<String>,
}

/// Finishes or rolls back the landing of a dead process, if there is one. A landing in progress is not disturbed. `ended`
/// is called with the tree and whether the change landed, before the journal is deleted; it may be called again if
/// recovery itself is killed.
pub fn recover(
    journal_dir: &Path,
    contents: &Contents,
    ended: &dyn Fn(&Root, bool),
) -> Result<Option<Recovered>, LandError> {
    recover_through(&Disk::default(), journal_dir, contents, ended).map_err(|err| match err {
        LandError::File(err) => LandError::Unfinished(err.message),
        other => other,
    })
}

pub(super) fn recover_through(
    disk: &Disk,
    journal_dir: &Path,
    contents: &Contents,
    ended: &dyn Fn(&Root, bool),
) -> Result<Option<Recovered>, LandError> {
    // In the common case there is no journal, and this costs one system call.
    if !JournalDir::has_journal(journal_dir) {
        return Ok(None);
    }
    let Some(dir) = JournalDir::lock(disk, journal_dir, Duration::ZERO)? else {
        return Ok(None);
    };
    let Some(mut journal) = dir.read(disk)? else {
        return Ok(None);
    };
    let root = Root::open(Path::new(&journal.root)).map_err(|err| {
        LandError::Journal(format!(
            "an unfinished landing cannot be recovered: {err}; make the directory reachable again, or remove {} to \
             give it up",
            journal_dir.display()
        ))
    })?;
    let mut done = Recovered {
        root: root.root().to_owned(),
        landed: journal.state == LandingState::Done,
        paths: journal.paths(),
        left: Vec::new(),
    };
    if journal.state == LandingState::Swapping {
        journal.hold = finish_or_roll_back(disk, &root, &journal, contents, &mut done)?;
        journal.state = if done.landed {
            LandingState::Done
        } else {
            LandingState::Undone
        };
        dir.write_end(disk, &journal)?;
    }
    ended(&root, done.landed);
    if journal.hold {
        done.left.extend(journal.stage_paths());
    } else {
        done.left
            .extend(stage::clean(disk, root.handle(), &journal)?);
    }
    if done.landed && journal.mode.leaves_record() {
        dir.become_record(disk, &journal)?;
    }
    dir.remove(disk)?;
    done.left.sort_unstable();
    done.left.dedup();
    Ok(Some(done))
}

/// Finishes the landing if every path allows it; otherwise rolls it back. Returns whether a staging directory must
/// stay.
fn finish_or_roll_back(
    disk: &Disk,
    root: &Root,
    journal: &Journal,
    contents: &Contents,
    done: &mut Recovered,
) -> Result<bool, LandError> {
    let Some(active) = ActiveLanding::open(disk, root.handle(), journal, contents)? else {
        report_only(disk, root, journal, done)?;
        return Ok(false);
    };
    tracing::info!(
        stage = journal.name,
        files = journal.swaps.len(),
        "landing: recover"
    );
    let progress = |at: usize| Ok(active.slots(at)?.progress(active.at(at)?.0));
    let mut can_continue = true;
    for at in 0..journal.swaps.len() {
        can_continue &= matches!(
            progress(at)?,
            SwapProgress::NotStarted | SwapProgress::HalfDone | SwapProgress::Done
        );
    }
    if can_continue {
        match active.forward(progress) {
            Ok(()) => {
                done.landed = true;
                return Ok(false);
            }
            Err(
                LandingFailure::Conflict(_)
                | LandingFailure::NotStored(_)
                | LandingFailure::File(_),
            ) => {}
        }
    }
    let report = active.rollback()?;
    done.left = report.left;
    Ok(report.hold)
}

/// Reports the state of the tree. Nothing else is possible, because the staging directories were deleted.
fn report_only(
    disk: &Disk,
    root: &Root,
    journal: &Journal,
    done: &mut Recovered,
) -> Result<(), LandError> {
    let (mut old, mut new) = (Vec::new(), 0);
    for (swap, _) in &journal.swaps {
        let seen = path_state(disk, root.handle(), &swap.path)?;
        if seen.is(&swap.after) {
            new += 1;
        } else if seen.is(&swap.before) {
            old.push(swap.path.clone());
        } else {
            done.left.push(swap.path.clone());
        }
    }
    done.landed = new > 0 && old.is_empty();
    if new > 0 {
        // Nothing can complete this landing: also report the paths that still have their old image.
        done.left.extend(old);
    }
    Ok(())
}
