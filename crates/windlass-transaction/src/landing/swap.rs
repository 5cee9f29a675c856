//! Swaps each path of a landing. A displaced file is checked after the rename that displaced it, not before: a check
//! before the rename would race with other programs. If the displaced file is not the expected one, another program
//! wrote it; then the landing stops and [`super::rollback`] restores the file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::FileError;

use super::LandingFailure;
use super::check::conflict_reason;
use super::contents::{Contents, ContentsError, Durability};
use super::disk::Disk;
use super::journal::Journal;
use super::path_state::{PathLocation, PathState, dir_at, entry_state, find, parent, path_state};
use super::stage::{self, new_name, old_name};
use windlass_host::workspace::from_errno;

/// A landing in progress, with its staging directories open.
pub(super) struct ActiveLanding<'a> {
    pub(super) disk: &'a Disk,
    pub(super) root: BorrowedFd<'a>,
    pub(super) journal: &'a Journal,
    pub(super) contents: &'a Contents,
    stages: Vec<OwnedFd>,
}

/// The progress of one path, derived from the images at the path and in its two slots of the staging directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SwapProgress {
    NotStarted,
    /// The old file was moved to its slot, and the new file is not at the path yet.
    HalfDone,
    /// The path was swapped. It holds the new file, or whatever another program made of it since.
    Done,
    /// The displaced file is not the expected one: another program wrote it, and it must return to the path.
    WrongDisplaced,
    /// The path holds neither the old nor the new file.
    ForeignFile,
    /// The path was not swapped, and cannot be, because the new file is gone.
    Lost,
}

/// The images at one path and in its two slots of the staging directory.
pub(super) struct SwapSlots {
    pub(super) target: PathState,
    pub(super) new: PathState,
    pub(super) old: PathState,
    /// Whether the path and the new slot are hard links to one file.
    one_file: bool,
}

impl SwapSlots {
    /// Whether an exchange moved something from the path into the new slot.
    pub(super) fn displaced_in_new(&self, swap: &Swap) -> bool {
        !self.new.is(&Image::Absent) && !self.new.is(&swap.after)
    }

    pub(super) fn displaced_in_old(&self) -> bool {
        !self.old.is(&Image::Absent)
    }

    pub(super) fn progress(&self, swap: &Swap) -> SwapProgress {
        let staged = swap.after.is_there() && self.new.is(&swap.after);
        let displaced = match (self.displaced_in_old(), self.displaced_in_new(swap)) {
            // Both slots are used: the new slot can only hold something that an exchange took from the path.
            (true, true) => return SwapProgress::WrongDisplaced,
            (true, false) => Some(&self.old),
            (false, true) => Some(&self.new),
            (false, false) => None,
        };
        match displaced {
            Some(displaced) if !displaced.is(&swap.before) => SwapProgress::WrongDisplaced,
            Some(_) if staged && self.one_file => SwapProgress::Done,
            Some(_) if staged && self.target.is(&Image::Absent) => SwapProgress::HalfDone,
            Some(_) if staged => SwapProgress::ForeignFile,
            Some(_) => SwapProgress::Done,
            None if staged && self.one_file => SwapProgress::Done,
            None if staged && self.target.is(&swap.before) => SwapProgress::NotStarted,
            None if staged => SwapProgress::ForeignFile,
            // A delete: nothing was moved to the old slot.
            None if !swap.after.is_there() && self.target.is(&swap.before) => {
                SwapProgress::NotStarted
            }
            None if !swap.after.is_there() && self.target.is(&swap.after) => SwapProgress::Done,
            None if !swap.after.is_there() => SwapProgress::ForeignFile,
            // The new file has left its slot, and a created path displaces nothing.
            None if !swap.before.is_there() || self.target.is(&swap.after) => SwapProgress::Done,
            None if self.target.is(&swap.before) => SwapProgress::Lost,
            None => SwapProgress::ForeignFile,
        }
    }
}

impl<'a> ActiveLanding<'a> {
    /// Opens the staging directories; returns `None` if one of them is missing.
    pub(super) fn open(
        disk: &'a Disk,
        root: BorrowedFd<'a>,
        journal: &'a Journal,
        contents: &'a Contents,
    ) -> Result<Option<Self>, FileError> {
        let stages: Option<Vec<OwnedFd>> = stage::open(disk, root, journal)?.into_iter().collect();
        Ok(stages.map(|stages| Self {
            disk,
            root,
            journal,
            contents,
            stages,
        }))
    }

    /// The swap at an index of the journal, with its staging directory.
    pub(super) fn at(&self, at: usize) -> Result<(&'a Swap, BorrowedFd<'_>), FileError> {
        let (swap, stage) = self
            .journal
            .swaps
            .get(at)
            .ok_or_else(|| from_errno(Path::new("."), Errno::NOENT))?;
        Ok((swap, self.stage(*stage)?))
    }

    pub(super) fn stage(&self, at: usize) -> Result<BorrowedFd<'_>, FileError> {
        let stage = self
            .stages
            .get(at)
            .ok_or_else(|| from_errno(Path::new(&self.journal.name), Errno::NOENT))?;
        Ok(stage.as_fd())
    }

    /// The indices of deletes, of replacements, and of created paths.
    pub(super) fn groups(&self) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let of = |wanted: fn(&Swap) -> bool| {
            let all = self.journal.swaps.iter().enumerate();
            all.filter(|(_, (swap, _))| wanted(swap))
                .map(|(at, _)| at)
                .collect()
        };
        (
            of(|swap| !swap.after.is_there()),
            of(|swap| swap.after.is_there() && swap.before.is_there()),
            of(|swap| !swap.before.is_there()),
        )
    }

    pub(super) fn slots(&self, at: usize) -> Result<SwapSlots, FileError> {
        let (swap, stage) = self.at(at)?;
        let (new, old) = (new_name(at), old_name(at));
        Ok(SwapSlots {
            target: self.target(&swap.path)?,
            new: entry_state(self.disk, stage, &new, &swap.path)?,
            old: entry_state(self.disk, stage, &old, &swap.path)?,
            one_file: self.one_file(swap, stage, &new)?,
        })
    }

    /// The image at a path. A directory that the landing itself makes or removes may be at the path for a while, where
    /// a file becomes a directory or the other way round; this counts as absent.
    fn target(&self, path: &str) -> Result<PathState, FileError> {
        let ours = || {
            let mut emptied = self.journal.emptied.iter().map(|dir| &dir.path);
            emptied.any(|dir| dir == path) || self.journal.made.iter().any(|dir| dir == path)
        };
        Ok(match path_state(self.disk, self.root, path)? {
            PathState::Blocked(..) => PathState::Image(Image::Absent),
            PathState::Directory if ours() => PathState::Image(Image::Absent),
            seen => seen,
        })
    }

    fn one_file(&self, swap: &Swap, stage: BorrowedFd<'_>, new: &OsStr) -> Result<bool, FileError> {
        let fail = |errno| from_errno(Path::new(&swap.path), errno);
        let PathLocation::Found(dir, name) = find(self.disk, self.root, &swap.path)? else {
            return Ok(false);
        };
        let target = self.disk.stat(dir.as_fd(), &name).map_err(fail)?;
        let new = self.disk.stat(stage, new).map_err(fail)?;
        Ok(
            matches!((target, new), (Some(a), Some(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)),
        )
    }

    /// Swaps every path that `progress` reports as not swapped, stores the displaced files and syncs the tree.
    pub(super) fn forward(
        &self,
        progress: impl Fn(usize) -> Result<SwapProgress, FileError>,
    ) -> Result<(), LandingFailure> {
        let (deletes, replaced, new) = self.groups();
        let step = |at: usize| match progress(at)? {
            SwapProgress::NotStarted => self.swap_path(at),
            SwapProgress::HalfDone => self.move_in(at),
            SwapProgress::Done => Ok(()),
            SwapProgress::WrongDisplaced | SwapProgress::ForeignFile | SwapProgress::Lost => {
                Err(self.conflict_at(at)?)
            }
        };
        deletes.into_iter().try_for_each(step)?;
        self.remove_emptied()?;
        replaced.into_iter().try_for_each(step)?;
        self.make_dirs()?;
        new.into_iter().try_for_each(step)?;
        self.store_displaced()?;
        Ok(self.sync()?)
    }

    fn swap_path(&self, at: usize) -> Result<(), LandingFailure> {
        let (swap, stage) = self.at(at)?;
        if !swap.before.is_there() {
            return self.move_in(at);
        }
        let fail = |errno| from_errno(Path::new(&swap.path), errno);
        let (dir, name) = self.locate(swap)?;
        if swap.after.is_there() {
            match self.disk.exchange(stage, &new_name(at), dir.as_fd(), &name) {
                Ok(()) => return self.check_displaced(at, &new_name(at)),
                // Not every file system supports RENAME_EXCHANGE. Without it, the path is missing for a moment.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(Errno::NOENT) => return Err(self.conflict_at(at)?),
                Err(errno) => return Err(fail(errno).into()),
            }
        }
        match self.disk.rename(dir.as_fd(), &name, stage, old_name(at)) {
            Ok(()) => self.check_displaced(at, &old_name(at))?,
            Err(Errno::NOENT) => return Err(self.conflict_at(at)?),
            Err(errno) => return Err(fail(errno).into()),
        }
        if swap.after.is_there() {
            self.move_in(at)
        } else {
            Ok(())
        }
    }

    /// Moves the new file to its path, which must be free.
    fn move_in(&self, at: usize) -> Result<(), LandingFailure> {
        let (swap, stage) = self.at(at)?;
        let (dir, name) = self.locate(swap)?;
        match self
            .disk
            .rename_new(stage, &new_name(at), dir.as_fd(), &name)
        {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let seen = path_state(self.disk, self.root, &swap.path)?;
                Err(LandingFailure::conflict(
                    &swap.path,
                    &conflict_reason(&Image::Absent, &seen),
                ))
            }
            Err(errno) => Err(from_errno(Path::new(&swap.path), errno).into()),
        }
    }

    /// Checks that the displaced file is the expected one.
    fn check_displaced(&self, at: usize, slot: &OsStr) -> Result<(), LandingFailure> {
        let (swap, stage) = self.at(at)?;
        let displaced = entry_state(self.disk, stage, slot, &swap.path)?;
        if displaced.is(&swap.before) {
            return Ok(());
        }
        Err(LandingFailure::conflict(
            &swap.path,
            &conflict_reason(&swap.before, &displaced),
        ))
    }

    fn conflict_at(&self, at: usize) -> Result<LandingFailure, FileError> {
        let (swap, _) = self.at(at)?;
        let seen = path_state(self.disk, self.root, &swap.path)?;
        Ok(LandingFailure::conflict(
            &swap.path,
            &conflict_reason(&swap.before, &seen),
        ))
    }

    fn locate(&self, swap: &Swap) -> Result<(OwnedFd, OsString), LandingFailure> {
        match find(self.disk, self.root, &swap.path)? {
            PathLocation::Found(dir, name) => Ok((dir, name)),
            PathLocation::NoParent | PathLocation::Blocked(..) => {
                let reason = "its directory was moved or replaced meanwhile";
                Err(LandingFailure::conflict(&swap.path, reason))
            }
        }
    }

    fn make_dirs(&self) -> Result<(), LandingFailure> {
        for path in &self.journal.made {
            let PathLocation::Found(dir, name) = find(self.disk, self.root, path)? else {
                continue;
            };
            match self.disk.make_dir(dir.as_fd(), &name, 0o777) {
                // Another program may have made it. If it is no directory, the next rename into it fails.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(from_errno(Path::new(path), errno).into()),
            }
        }
        Ok(())
    }

    fn remove_emptied(&self) -> Result<(), FileError> {
        let paths = self.journal.emptied.iter().map(|dir| dir.path.as_str());
        self.remove_dirs(paths)
    }

    /// Removes those of the directories that are empty.
    pub(super) fn remove_dirs<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<(), FileError> {
        for path in paths {
            let PathLocation::Found(dir, name) = find(self.disk, self.root, path)? else {
                continue;
            };
            match self.disk.remove_dir(dir.as_fd(), &name) {
                // Keep directories that are not empty, mount points, and paths that are no directories any more.
                Ok(())
                | Err(
                    Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::BUSY,
                ) => {}
                Err(errno) => return Err(from_errno(Path::new(path), errno)),
            }
        }
        Ok(())
    }

    /// Stores the displaced files, which undo needs. The landing stops if bytes cannot be stored, or if a program wrote
    /// to a displaced file through a handle that it had open.
    fn store_displaced(&self) -> Result<(), LandingFailure> {
        let durability = Durability::for_files(self.journal.swaps.len());
        for at in 0..self.journal.swaps.len() {
            let (swap, stage) = self.at(at)?;
            let Image::File { hash, .. } = &swap.before else {
                continue;
            };
            let opened = match self.disk.open(stage, &old_name(at)) {
                Err(Errno::NOENT) if swap.after.is_there() => self.disk.open(stage, &new_name(at)),
                other => other,
            };
            let kept = match opened {
                Ok(file) => self.contents.put_through(self.disk, &file, durability),
                Err(errno) => Err(from_errno(Path::new(&swap.path), errno).into()),
            };
            match kept {
                Ok((found, _)) if found == *hash => {}
                Ok(_) => {
                    let reason = "it was written to while it was being replaced";
                    return Err(LandingFailure::conflict(&swap.path, reason));
                }
                Err(err) => return Err(not_stored(&swap.path, err)),
            }
        }
        Ok(())
    }

    /// Syncs the tree, and in a large landing also the stored old bytes.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        let journal = self.journal;
        if journal.is_large() {
            return self.sync_file_systems();
        }
        let changed = journal.swaps.iter().map(|(swap, _)| swap.path.as_str());
        let changed = changed.chain(journal.made.iter().map(String::as_str));
        let changed = changed.chain(journal.emptied.iter().map(|dir| dir.path.as_str()));
        let dirs: BTreeSet<&str> = changed.map(parent).collect();
        for path in dirs {
            if let Some(dir) = dir_at(self.disk, self.root, path)? {
                self.disk
                    .sync_dir(dir.as_fd())
                    .map_err(|errno| from_errno(Path::new(path), errno))?;
            }
        }
        Ok(())
    }
}

impl ActiveLanding<'_> {
    /// Calls `syncfs` once for each file system that the landing wrote to. Each of them has a staging directory, except
    /// for the one of the content store.
    fn sync_file_systems(&self) -> Result<(), FileError> {
        let stages = self.stages.iter().map(AsFd::as_fd);
        let mut synced = BTreeSet::new();
        for dir in stages.chain([self.contents.dir()]) {
            let fail = |errno| from_errno(Path::new(&self.journal.name), errno);
            let stat = self.disk.stat_of(dir).map_err(fail)?;
            if synced.insert(stat.st_dev) {
                self.disk.sync_all(dir).map_err(fail)?;
            }
        }
        Ok(())
    }
}

fn not_stored(path: &str, err: ContentsError) -> LandingFailure {
    let FileError { kind, message } = err.into_file();
    let message = format!("cannot store the old bytes of {path} for undo: {message}");
    LandingFailure::NotStored(FileError { kind, message })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{file, swap};
    use super::*;

    /// The images at the path, in the new slot and in the old slot: `o` the old file, `n` the new file, `t` the file of
    /// another program, `-` nothing. `=` means that the path and the new slot are one file.
    #[track_caller]
    fn check(kind: &str, slots: &str, expect: SwapProgress) {
        let (old, new) = (file("old", 0o644), file("new", 0o644));
        let (before, after) = match kind {
            "change" => (old.clone(), new.clone()),
            "delete" => (old.clone(), Image::Absent),
            _ => (Image::Absent, new.clone()),
        };
        let seen = |at: usize| match slots.as_bytes()[at] {
            b'o' => PathState::Image(old.clone()),
            b'n' => PathState::Image(new.clone()),
            b't' => PathState::Image(file("theirs", 0o644)),
            b'd' => PathState::Directory,
            _ => PathState::Image(Image::Absent),
        };
        let slots = SwapSlots {
            target: seen(0),
            new: seen(1),
            old: seen(2),
            one_file: slots.ends_with('='),
        };
        assert_eq!(slots.progress(&swap("x", before, after)), expect, "{kind}");
    }

    #[test]
    fn progress_of_a_change() {
        check("change", "on-", SwapProgress::NotStarted);
        check("change", "tn-", SwapProgress::ForeignFile);
        check("change", "-n-", SwapProgress::ForeignFile);
        check("change", "no-", SwapProgress::Done);
        check("change", "to-", SwapProgress::Done);
        check("change", "nt-", SwapProgress::WrongDisplaced);
        check("change", "nd-", SwapProgress::WrongDisplaced);
        check("change", "o--", SwapProgress::Lost);
        check("change", "n--", SwapProgress::Done);
        check("change", "t--", SwapProgress::ForeignFile);
    }

    #[test]
    fn progress_of_a_change_by_two_renames() {
        check("change", "-no", SwapProgress::HalfDone);
        check("change", "tno", SwapProgress::ForeignFile);
        check("change", "nno=", SwapProgress::Done);
        check("change", "n-o", SwapProgress::Done);
        check("change", "-nt", SwapProgress::WrongDisplaced);
        check("change", "-to", SwapProgress::WrongDisplaced);
    }

    #[test]
    fn progress_of_a_delete() {
        check("delete", "o--", SwapProgress::NotStarted);
        check("delete", "t--", SwapProgress::ForeignFile);
        check("delete", "---", SwapProgress::Done);
        check("delete", "--o", SwapProgress::Done);
        check("delete", "t-o", SwapProgress::Done);
        check("delete", "--t", SwapProgress::WrongDisplaced);
    }

    #[test]
    fn progress_of_a_new_path() {
        check("create", "-n-", SwapProgress::NotStarted);
        check("create", "tn-", SwapProgress::ForeignFile);
        check("create", "nn-", SwapProgress::ForeignFile);
        check("create", "nn-=", SwapProgress::Done);
        check("create", "n--", SwapProgress::Done);
        check("create", "t--", SwapProgress::Done);
        check("create", "---", SwapProgress::Done);
        check("create", "-t-", SwapProgress::WrongDisplaced);
    }
}
