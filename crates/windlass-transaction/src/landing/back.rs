//! Taking a landing back, however far it came: every path is looked at anew, and only what is exactly what the
//! landing put there is taken away again. What somebody wrote meanwhile stays, and is named.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::FileError;

use super::contents::Lasting;
use super::disk::Sys;
use super::look::{Spot, dir_at, find, see_at};
use super::stage::{dir_name, new_name, old_name};
use super::swap::{Places, Standing, Work};
use windlass_host::workspace::from_errno;

/// How taking back ended.
#[derive(Debug, Default)]
pub(super) struct Back {
    /// Paths that are not as they were, because somebody wrote there.
    pub(super) left: Vec<String>,
    /// A staging directory holds something that has no other place, so it must stay.
    pub(super) hold: bool,
}

impl Work<'_> {
    /// Takes back whatever was done, the last first.
    pub(super) fn back(&self) -> Result<Back, FileError> {
        let mut back = Back::default();
        let (deletes, replaced, new) = self.groups();
        for at in new.into_iter().rev() {
            self.back_one(at, &mut back)?;
        }
        self.remove_dirs(self.journal.made.iter().rev().map(String::as_str))?;
        for at in replaced.into_iter().rev() {
            self.back_one(at, &mut back)?;
        }
        self.restore_emptied()?;
        for at in deletes.into_iter().rev() {
            self.back_one(at, &mut back)?;
        }
        // The old tree must last before anything says that it does.
        self.sync()?;
        Ok(back)
    }

    fn back_one(&self, at: usize, back: &mut Back) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        let places = self.places(at)?;
        match places.standing(swap) {
            Standing::NotYet | Standing::Lost => Ok(()),
            Standing::Theirs => {
                back.left.push(swap.path.clone());
                if places.displaced_in_old() {
                    self.rescue(at, &old_name(at), back)
                } else {
                    Ok(())
                }
            }
            Standing::Held => self.give_back(at, &places, back),
            Standing::Between => self.put(at, &old_name(at), back).map(|_| ()),
            Standing::Done if !swap.before.is_there() => self.back_new(at, &places, back),
            Standing::Done if places.displaced_in_new(swap) => {
                self.back_exchanged(at, &places, back)
            }
            Standing::Done => self.back_moved(at, &places, back),
        }
    }

    /// Something of somebody's is in our hands.
    fn give_back(&self, at: usize, places: &Places, back: &mut Back) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        back.left.push(swap.path.clone());
        if !places.displaced_in_new(swap) {
            return self.put(at, &old_name(at), back).map(|_| ());
        }
        let ours = places.target.is(&swap.after) || places.target.is(&swap.before);
        if !ours || places.target.is(&Image::Absent) || !self.exchange_back(at, back)? {
            self.put(at, &new_name(at), back)?;
        }
        if places.displaced_in_old() {
            self.rescue(at, &old_name(at), back)
        } else {
            Ok(())
        }
    }

    /// Exchanges somebody's file for ours at its path. Says whether there was something to exchange with.
    fn exchange_back(&self, at: usize, back: &mut Back) -> Result<bool, FileError> {
        let (swap, stage) = self.at(at)?;
        let new = new_name(at);
        let Some((dir, name)) = self.spot(swap)? else {
            return Ok(false);
        };
        let exchange = || {
            there(self.disk.exchange(stage, &new, dir.as_fd(), &name))
                .map_err(|errno| failed(swap, errno))
        };
        if !exchange()? {
            return Ok(false);
        }
        let out = see_at(self.disk, stage, &new, &swap.path)?;
        if out.is(&swap.after) {
            return Ok(true);
        }
        // What came out is what was there before, or what somebody wrote in this very moment, which is the newer.
        if !out.is(&swap.before) {
            exchange()?;
        }
        self.rescue(at, &new, back)?;
        Ok(true)
    }

    /// A path that was not there: what we put there goes, and nothing else does.
    fn back_new(&self, at: usize, places: &Places, back: &mut Back) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        if places.target.is(&swap.after) {
            self.take_out(at, back)?;
        } else if !places.target.is(&Image::Absent) {
            back.left.push(swap.path.clone());
        }
        Ok(())
    }

    fn back_exchanged(&self, at: usize, places: &Places, back: &mut Back) -> Result<(), FileError> {
        let (swap, stage) = self.at(at)?;
        let spot = if places.target.is(&swap.after) {
            self.spot(swap)?
        } else {
            None
        };
        let new = new_name(at);
        if let Some((dir, name)) = spot {
            // Says whether there was something to exchange with: somebody may delete it in this very moment.
            let exchange = || {
                there(self.disk.exchange(stage, &new, dir.as_fd(), &name))
                    .map_err(|errno| failed(swap, errno))
            };
            if exchange()? {
                if see_at(self.disk, stage, &new, &swap.path)?.is(&swap.after) {
                    return Ok(());
                }
                // Or write to it.
                exchange()?;
            }
        }
        back.left.push(swap.path.clone());
        self.rescue(at, &new, back)
    }

    /// A path whose old file was moved aside: a delete, or a file system that cannot exchange.
    fn back_moved(&self, at: usize, places: &Places, back: &mut Back) -> Result<(), FileError> {
        let (swap, _) = self.at(at)?;
        let old = old_name(at);
        if !places.displaced_in_old() {
            // There is nothing to put back: the path was emptied by somebody else, or the old file is lost.
            back.left.push(swap.path.clone());
            return Ok(());
        }
        // What was put in its place goes first. When somebody wrote to that or deleted it, it stays as they left it.
        if swap.after.is_there() && !(places.target.is(&swap.after) && self.take_out(at, back)?) {
            back.left.push(swap.path.clone());
            return self.rescue(at, &old, back);
        }
        self.put(at, &old, back).map(|_| ())
    }

    /// Takes what is at a path aside, if it is still what we put there. Says whether it was.
    fn take_out(&self, at: usize, back: &mut Back) -> Result<bool, FileError> {
        let (swap, stage) = self.at(at)?;
        let new = new_name(at);
        let Some((dir, name)) = self.spot(swap)? else {
            return Ok(false);
        };
        // A second name of the same file would make the rename do nothing.
        there(self.disk.remove(stage, &new)).map_err(|errno| failed(swap, errno))?;
        if !there(self.disk.rename(dir.as_fd(), &name, stage, &new))
            .map_err(|errno| failed(swap, errno))?
        {
            return Ok(false);
        }
        if see_at(self.disk, stage, &new, &swap.path)?.is(&swap.after) {
            return Ok(true);
        }
        if self.put(at, &new, back)? {
            back.left.push(swap.path.clone());
        }
        Ok(false)
    }

    /// Moves what is aside to its path. When something is there, that is the newer: it stays, and what is aside is
    /// kept elsewhere. Says whether it was moved.
    fn put(&self, at: usize, slot: &OsStr, back: &mut Back) -> Result<bool, FileError> {
        let (swap, stage) = self.at(at)?;
        let spot = self.spot(swap)?;
        let moved = match &spot {
            Some((dir, name)) => self.disk.rename_new(stage, slot, dir.as_fd(), name),
            None => Err(Errno::EXIST),
        };
        match moved {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                back.left.push(swap.path.clone());
                self.rescue(at, slot, back)?;
                Ok(false)
            }
            Err(errno) => Err(failed(swap, errno)),
        }
    }

    /// What has no place in the tree any more is kept: the expected bytes in the content store, anything else, or
    /// what the store does not take, in the staging directory.
    fn rescue(&self, at: usize, slot: &OsStr, back: &mut Back) -> Result<(), FileError> {
        let (swap, stage) = self.at(at)?;
        let seen = see_at(self.disk, stage, slot, &swap.path)?;
        let kept = match &swap.before {
            before if !seen.is(before) => false,
            Image::File { .. } => {
                let file = self
                    .disk
                    .open(stage, slot)
                    .map_err(|errno| failed(swap, errno))?;
                self.contents
                    .put_through(self.disk, &file, Lasting::Now)
                    .is_ok()
            }
            Image::Link { .. } | Image::Absent => true,
        };
        back.hold |= !kept;
        Ok(())
    }

    /// Directories that were removed come back with their modes, each by one rename.
    fn restore_emptied(&self) -> Result<(), FileError> {
        for (at, dir) in self.journal.emptied.iter().enumerate().rev() {
            let fail = |errno| from_errno(Path::new(&dir.path), errno);
            let Spot::There(above, name) = find(self.disk, self.root, &dir.path)? else {
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
            // It was made with the new files.
            let Some(made) = dir_at(self.disk, stage, &slot.to_string_lossy())? else {
                continue;
            };
            self.disk
                .set_dir_mode(made.as_fd(), dir.mode)
                .map_err(fail)?;
            match self.disk.rename(stage, &slot, above.as_fd(), &name) {
                // Somebody made something there meanwhile; what is to go into it finds out whether it can.
                Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        Ok(())
    }

    fn spot(&self, swap: &Swap) -> Result<Option<(OwnedFd, OsString)>, FileError> {
        match find(self.disk, self.root, &swap.path)? {
            Spot::There(dir, name) => Ok(Some((dir, name))),
            Spot::NoParent | Spot::Blocked(..) => Ok(None),
        }
    }
}

fn failed(swap: &Swap, errno: Errno) -> FileError {
    from_errno(Path::new(&swap.path), errno)
}

/// Whether a call found what it was for; what is gone is no failure.
fn there(result: Sys<()>) -> Sys<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
