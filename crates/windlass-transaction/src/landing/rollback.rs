//! Rollback of a landing at any point of its progress. It reads every path again, and removes from the tree only files
//! that are exactly the ones that the landing put there. Files that another program wrote meanwhile stay, and are
//! reported.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::FileError;

use super::contents::Durability;
use super::disk::Sys;
use super::path_state::{PathLocation, dir_at, entry_state, find};
use super::stage::{dir_name, new_name, old_name};
use super::swap::{ActiveLanding, SwapProgress, SwapSlots};
use windlass_host::workspace::from_errno;

/// The result of a rollback.
#[derive(Debug, Default)]
pub(super) struct RollbackReport {
    /// Paths that do not have their old image, because another program wrote to them.
    pub(super) left: Vec<String>,
    /// A staging directory contains a file that has no other place, so it must stay.
    pub(super) hold: bool,
}

impl ActiveLanding<'_> {
    /// Undoes all swaps, the last one first.
    pub(super) fn rollback(&self) -> Result<RollbackReport, FileError> {
        let mut report = RollbackReport::default();
        let (deletes, replaced, new) = self.groups();
        for at in new.into_iter().rev() {
            self.rollback_path(at, &mut report)?;
        }
        self.remove_dirs(self.journal.made.iter().rev().map(String::as_str))?;
        for at in replaced.into_iter().rev() {
            self.rollback_path(at, &mut report)?;
        }
        self.restore_emptied()?;
        for at in deletes.into_iter().rev() {
            self.rollback_path(at, &mut report)?;
        }
        // Sync the old tree before the journal records that it is restored.
        self.sync()?;
        Ok(report)
    }

    fn rollback_path(&self, at: usize, report: &mut RollbackReport) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        let slots = self.slots(at)?;
        match slots.progress(swap) {
            SwapProgress::NotStarted | SwapProgress::Lost => Ok(()),
            SwapProgress::ForeignFile => {
                report.left.push(swap.path.clone());
                if slots.displaced_in_old() {
                    self.preserve(at, &old_name(at), report)
                } else {
                    Ok(())
                }
            }
            SwapProgress::WrongDisplaced => self.return_foreign(at, &slots, report),
            SwapProgress::HalfDone => self.restore(at, &old_name(at), report).map(|_| ()),
            SwapProgress::Done if !swap.before.is_there() => {
                self.rollback_created(at, &slots, report)
            }
            SwapProgress::Done if slots.displaced_in_new(swap) => {
                self.rollback_exchanged(at, &slots, report)
            }
            SwapProgress::Done => self.rollback_moved(at, &slots, report),
        }
    }

    /// Returns a file of another program, which a swap displaced, to its path.
    fn return_foreign(
        &self,
        at: usize,
        slots: &SwapSlots,
        report: &mut RollbackReport,
    ) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        report.left.push(swap.path.clone());
        if !slots.displaced_in_new(swap) {
            return self.restore(at, &old_name(at), report).map(|_| ());
        }
        let ours = slots.target.is(&swap.after) || slots.target.is(&swap.before);
        if !ours || slots.target.is(&Image::Absent) || !self.exchange_back(at, report)? {
            self.restore(at, &new_name(at), report)?;
        }
        if slots.displaced_in_old() {
            self.preserve(at, &old_name(at), report)
        } else {
            Ok(())
        }
    }

    /// Exchanges the file of another program with the new file at its path. Returns whether there was a file to
    /// exchange with.
    fn exchange_back(&self, at: usize, report: &mut RollbackReport) -> Result<bool, FileError> {
        let (swap, stage) = self.at(at)?;
        let new = new_name(at);
        let Some((dir, name)) = self.spot(swap)? else {
            return Ok(false);
        };
        let exchange = || {
            found(self.disk.exchange(stage, &new, dir.as_fd(), &name))
                .map_err(|errno| failed(swap, errno))
        };
        if !exchange()? {
            return Ok(false);
        }
        let out = entry_state(self.disk, stage, &new, &swap.path)?;
        if out.is(&swap.after) {
            return Ok(true);
        }
        // The exchange returned the old file, or a file that another program wrote at this moment. The latter is newer,
        // so it goes back to its path.
        if !out.is(&swap.before) {
            exchange()?;
        }
        self.preserve(at, &new, report)?;
        Ok(true)
    }

    /// Rolls back a created path: removes the new file, and nothing else.
    fn rollback_created(
        &self,
        at: usize,
        slots: &SwapSlots,
        report: &mut RollbackReport,
    ) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        if slots.target.is(&swap.after) {
            self.remove_landed(at, report)?;
        } else if !slots.target.is(&Image::Absent) {
            report.left.push(swap.path.clone());
        }
        Ok(())
    }

    fn rollback_exchanged(
        &self,
        at: usize,
        slots: &SwapSlots,
        report: &mut RollbackReport,
    ) -> Result<(), FileError> {
        let (swap, stage) = self.at(at)?;
        let spot = if slots.target.is(&swap.after) {
            self.spot(swap)?
        } else {
            None
        };
        let new = new_name(at);
        if let Some((dir, name)) = spot {
            // Returns whether there was a file to exchange with: another program may delete it at this moment.
            let exchange = || {
                found(self.disk.exchange(stage, &new, dir.as_fd(), &name))
                    .map_err(|errno| failed(swap, errno))
            };
            if exchange()? {
                if entry_state(self.disk, stage, &new, &swap.path)?.is(&swap.after) {
                    return Ok(());
                }
                // Another program wrote to it at this moment. Exchange again.
                exchange()?;
            }
        }
        report.left.push(swap.path.clone());
        self.preserve(at, &new, report)
    }

    /// Rolls back a path whose old file was moved to the old slot: by a delete, or on a file system without
    /// RENAME_EXCHANGE.
    fn rollback_moved(
        &self,
        at: usize,
        slots: &SwapSlots,
        report: &mut RollbackReport,
    ) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        let old = old_name(at);
        if !slots.displaced_in_old() {
            // There is nothing to restore: another program deleted the file, or the old file is lost.
            report.left.push(swap.path.clone());
            return Ok(());
        }
        // Remove the new file first. If another program changed or deleted it, leave the path as that program left it.
        if swap.after.is_there()
            && !(slots.target.is(&swap.after) && self.remove_landed(at, report)?)
        {
            report.left.push(swap.path.clone());
            return self.preserve(at, &old, report);
        }
        self.restore(at, &old, report).map(|_| ())
    }

    /// Moves the file at a path to the new slot, if it is still the one that the landing put there. Returns whether it
    /// was.
    fn remove_landed(&self, at: usize, report: &mut RollbackReport) -> Result<bool, FileError> {
        let (swap, stage) = self.at(at)?;
        let new = new_name(at);
        let Some((dir, name)) = self.spot(swap)? else {
            return Ok(false);
        };
        // If both names are hard links to one file, the rename would do nothing.
        found(self.disk.remove(stage, &new)).map_err(|errno| failed(swap, errno))?;
        if !found(self.disk.rename(dir.as_fd(), &name, stage, &new))
            .map_err(|errno| failed(swap, errno))?
        {
            return Ok(false);
        }
        if entry_state(self.disk, stage, &new, &swap.path)?.is(&swap.after) {
            return Ok(true);
        }
        if self.restore(at, &new, report)? {
            report.left.push(swap.path.clone());
        }
        Ok(false)
    }

    /// Moves the file in a slot to its path. If the path is not free, the file at the path is newer: it stays, and the
    /// file in the slot is preserved elsewhere. Returns whether it was moved.
    fn restore(
        &self,
        at: usize,
        slot: &OsStr,
        report: &mut RollbackReport,
    ) -> Result<bool, FileError> {
        let (swap, stage) = self.at(at)?;
        let spot = self.spot(swap)?;
        let moved = match &spot {
            Some((dir, name)) => self.disk.rename_new(stage, slot, dir.as_fd(), name),
            None => Err(Errno::EXIST),
        };
        match moved {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                report.left.push(swap.path.clone());
                self.preserve(at, slot, report)?;
                Ok(false)
            }
            Err(errno) => Err(failed(swap, errno)),
        }
    }

    /// Preserves a file that has no place in the tree any more: the expected bytes in the content store, other bytes
    /// (and bytes that the store does not accept) in the staging directory.
    fn preserve(
        &self,
        at: usize,
        slot: &OsStr,
        report: &mut RollbackReport,
    ) -> Result<(), FileError> {
        let (swap, stage) = self.at(at)?;
        let seen = entry_state(self.disk, stage, slot, &swap.path)?;
        let kept = match &swap.before {
            before if !seen.is(before) => false,
            Image::File { .. } => {
                let file = self
                    .disk
                    .open(stage, slot)
                    .map_err(|errno| failed(swap, errno))?;
                self.contents
                    .put_through(self.disk, &file, Durability::Synced)
                    .is_ok()
            }
            Image::Link { .. } | Image::Absent => true,
        };
        report.hold |= !kept;
        Ok(())
    }

    /// Restores removed directories with their modes, each with one rename.
    fn restore_emptied(&self) -> Result<(), FileError> {
        for (at, dir) in self.journal.emptied.iter().enumerate().rev() {
            let fail = |errno| from_errno(Path::new(&dir.path), errno);
            let PathLocation::Found(above, name) = find(self.disk, self.root, &dir.path)? else {
                continue;
            };
            if self
                .disk
                .stat(above.as_fd(), &name)
                .map_err(fail)?
                .is_some()
            {
                continue;
            }
            let (stage, slot) = (self.stage(dir.stage)?, dir_name(at));
            // `stage::fill` made it.
            let Some(made) = dir_at(self.disk, stage, &slot.to_string_lossy())? else {
                continue;
            };
            self.disk
                .set_dir_mode(made.as_fd(), dir.mode)
                .map_err(fail)?;
            match self.disk.rename(stage, &slot, above.as_fd(), &name) {
                // Another program created something there meanwhile. If it is no directory, the next rename into it
                // fails.
                Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        Ok(())
    }

    fn spot(&self, swap: &Swap) -> Result<Option<(OwnedFd, OsString)>, FileError> {
        match find(self.disk, self.root, &swap.path)? {
            PathLocation::Found(dir, name) => Ok(Some((dir, name))),
            PathLocation::NoParent | PathLocation::Blocked(..) => Ok(None),
        }
    }
}

fn failed(swap: &Swap, errno: Errno) -> FileError {
    from_errno(Path::new(&swap.path), errno)
}

/// Whether a call found its file; a missing file is not an error.
fn found(result: Sys<()>) -> Sys<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
