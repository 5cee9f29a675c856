//! After a crash: finishing a landing that its process could not finish, or taking it back. It can itself be
//! killed anywhere and run again. Only paths that hold exactly the old or the new are touched.

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_core::workspace::Files;

use super::contents::Contents;
use super::disk::Disk;
use super::journal::{Desk, Journal, State};
use super::look::see;
use super::swap::{Standing, Work};
use super::{Halt, LandError, stage};
use windlass_host::workspace::Root;

/// What recovery found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The tree.
    pub root: PathBuf,
    /// Whether the change is in the tree now; otherwise the tree is as it was before.
    pub landed: bool,
    /// The paths of the change.
    pub paths: Vec<String>,
    /// Paths that somebody wrote to meanwhile, left as they are, and staging directories that still hold something.
    pub left: Vec<String>,
}

/// Finishes or takes back what a dead process left, if there is something; a landing that is at work is not disturbed.
pub fn recover(journal_dir: &Path, contents: &Contents) -> Result<Option<Recovered>, LandError> {
    recover_through(&Disk::default(), journal_dir, contents).map_err(|err| match err {
        LandError::File(err) => LandError::Unfinished(err.message),
        other => other,
    })
}

pub(super) fn recover_through(
    disk: &Disk,
    journal_dir: &Path,
    contents: &Contents,
) -> Result<Option<Recovered>, LandError> {
    // The common case costs one look: no landing is at work, and none was left.
    if !Desk::has_journal(journal_dir) {
        return Ok(None);
    }
    let Some(desk) = Desk::take(disk, journal_dir, Duration::ZERO)? else {
        return Ok(None);
    };
    let Some(mut journal) = desk.read(disk)? else {
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
        landed: journal.state == State::Done,
        paths: journal.paths(),
        left: Vec::new(),
    };
    if journal.state == State::Swapping {
        journal.hold = settle(disk, &root, &journal, contents, &mut done)?;
        journal.state = if done.landed {
            State::Done
        } else {
            State::Undone
        };
        desk.write_end(disk, &journal)?;
    }
    if journal.hold {
        done.left.extend(journal.stage_paths());
    } else {
        done.left
            .extend(stage::clean(disk, root.handle(), &journal)?);
    }
    if done.landed && journal.mode.leaves_record() {
        desk.become_record(disk, &journal)?;
    }
    desk.remove(disk)?;
    done.left.sort_unstable();
    done.left.dedup();
    Ok(Some(done))
}

/// Goes on, or back. Says whether a staging directory must stay.
fn settle(
    disk: &Disk,
    root: &Root,
    journal: &Journal,
    contents: &Contents,
    done: &mut Recovered,
) -> Result<bool, LandError> {
    let Some(work) = Work::open(disk, root.handle(), journal, contents)? else {
        report_only(disk, root, journal, done)?;
        return Ok(false);
    };
    tracing::info!(
        stage = journal.name,
        files = journal.swaps.len(),
        "landing: recover"
    );
    let standing = |at: usize| Ok(work.places(at)?.standing(work.at(at)?.0));
    let mut can_go_on = true;
    for at in 0..journal.swaps.len() {
        can_go_on &= matches!(
            standing(at)?,
            Standing::NotYet | Standing::Between | Standing::Done
        );
    }
    if can_go_on {
        match work.forward(standing) {
            Ok(()) => {
                done.landed = true;
                return Ok(false);
            }
            Err(Halt::Conflict(_) | Halt::NotStored(_) | Halt::File(_)) => {}
        }
    }
    let back = work.back()?;
    done.left = back.left;
    Ok(back.hold)
}

/// The staging directories were removed by somebody: nothing can be done but to say how the tree is.
fn report_only(
    disk: &Disk,
    root: &Root,
    journal: &Journal,
    done: &mut Recovered,
) -> Result<(), LandError> {
    let (mut old, mut new) = (Vec::new(), 0);
    for (swap, _) in &journal.swaps {
        let seen = see(disk, root.handle(), &swap.path)?;
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
        // Half a landing that nobody can finish: what did not arrive is named too.
        done.left.extend(old);
    }
    Ok(())
}
