//! Bringing one path after the other into the tree. What is displaced is looked at after it was displaced, so that
//! nothing depends on a look before; what turns out to be somebody else's stops the landing, and [`super::back`]
//! gives it back.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::FileError;

use super::Halt;
use super::check::why;
use super::contents::{Contents, ContentsError, Lasting};
use super::disk::Disk;
use super::journal::Journal;
use super::look::{Seen, Spot, dir_at, find, parent, see, see_at};
use super::stage::{self, new_name, old_name};
use windlass_host::workspace::from_errno;

/// A landing at work.
pub(super) struct Work<'a> {
    pub(super) disk: &'a Disk,
    pub(super) root: BorrowedFd<'a>,
    pub(super) journal: &'a Journal,
    pub(super) contents: &'a Contents,
    stages: Vec<OwnedFd>,
}

/// How far one path is, as its own place and its places in the staging directory tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing was done.
    NotYet,
    /// What was there is aside, and what comes is not there yet.
    Between,
    /// It is swapped. What is at the path is ours, or what somebody made of it since.
    Done,
    /// What was displaced is not what was expected: it is somebody's, and belongs back.
    Held,
    /// What is at the path is neither what was there nor what comes.
    Theirs,
    /// It was not swapped and cannot be any more.
    Lost,
}

/// What is at the places of one path.
pub(super) struct Places {
    pub(super) target: Seen,
    pub(super) new: Seen,
    pub(super) old: Seen,
    /// Whether the path and the new place are one file under two names.
    one_file: bool,
}

impl Places {
    /// Whether something was exchanged into the new place.
    pub(super) fn displaced_in_new(&self, swap: &Swap) -> bool {
        !self.new.is(&Image::Absent) && !self.new.is(&swap.after)
    }

    pub(super) fn displaced_in_old(&self) -> bool {
        !self.old.is(&Image::Absent)
    }

    pub(super) fn standing(&self, swap: &Swap) -> Standing {
        let waits = swap.after.is_there() && self.new.is(&swap.after);
        let displaced = match (self.displaced_in_old(), self.displaced_in_new(swap)) {
            // Only something that was taken from the path can be beside what was moved aside.
            (true, true) => return Standing::Held,
            (true, false) => Some(&self.old),
            (false, true) => Some(&self.new),
            (false, false) => None,
        };
        match displaced {
            Some(displaced) if !displaced.is(&swap.before) => Standing::Held,
            Some(_) if waits && self.one_file => Standing::Done,
            Some(_) if waits && self.target.is(&Image::Absent) => Standing::Between,
            Some(_) if waits => Standing::Theirs,
            Some(_) => Standing::Done,
            None if waits && self.one_file => Standing::Done,
            None if waits && self.target.is(&swap.before) => Standing::NotYet,
            None if waits => Standing::Theirs,
            // A delete: nothing was taken aside.
            None if !swap.after.is_there() && self.target.is(&swap.before) => Standing::NotYet,
            None if !swap.after.is_there() && self.target.is(&swap.after) => Standing::Done,
            None if !swap.after.is_there() => Standing::Theirs,
            // What was to come has left its place, and a new path displaces nothing.
            None if !swap.before.is_there() || self.target.is(&swap.after) => Standing::Done,
            None if self.target.is(&swap.before) => Standing::Lost,
            None => Standing::Theirs,
        }
    }
}

impl<'a> Work<'a> {
    /// A landing whose staging directories are all there; nothing when one is missing.
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

    /// The path at a place of the order, with its staging directory.
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

    /// The places of the order that are deletes, then those that replace, then those that are new.
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

    pub(super) fn places(&self, at: usize) -> Result<Places, FileError> {
        let (swap, stage) = self.at(at)?;
        let (new, old) = (new_name(at), old_name(at));
        Ok(Places {
            target: self.target(&swap.path)?,
            new: see_at(self.disk, stage, &new, &swap.path)?,
            old: see_at(self.disk, stage, &old, &swap.path)?,
            one_file: self.one_file(swap, stage, &new)?,
        })
    }

    /// What is at a path. Where files become directories and the other way round, what stands in for a path for a
    /// while is the landing's own doing: it is nothing at that path.
    fn target(&self, path: &str) -> Result<Seen, FileError> {
        let ours = || {
            let mut emptied = self.journal.emptied.iter().map(|dir| &dir.path);
            emptied.any(|dir| dir == path) || self.journal.made.iter().any(|dir| dir == path)
        };
        Ok(match see(self.disk, self.root, path)? {
            Seen::Blocked(..) => Seen::Image(Image::Absent),
            Seen::Directory if ours() => Seen::Image(Image::Absent),
            seen => seen,
        })
    }

    fn one_file(&self, swap: &Swap, stage: BorrowedFd<'_>, new: &OsStr) -> Result<bool, FileError> {
        let fail = |errno| from_errno(Path::new(&swap.path), errno);
        let Spot::There(dir, name) = find(self.disk, self.root, &swap.path)? else {
            return Ok(false);
        };
        let target = self.disk.stat(dir.as_fd(), &name).map_err(fail)?;
        let new = self.disk.stat(stage, new).map_err(fail)?;
        Ok(
            matches!((target, new), (Some(a), Some(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)),
        )
    }

    /// Swaps every path that is not swapped yet, as `standing` tells, keeps what was displaced and makes it all last.
    pub(super) fn forward(
        &self,
        standing: impl Fn(usize) -> Result<Standing, FileError>,
    ) -> Result<(), Halt> {
        let (deletes, replaced, new) = self.groups();
        let step = |at: usize| match standing(at)? {
            Standing::NotYet => self.apply(at),
            Standing::Between => self.arrive(at),
            Standing::Done => Ok(()),
            Standing::Held | Standing::Theirs | Standing::Lost => Err(self.changed(at)?),
        };
        deletes.into_iter().try_for_each(step)?;
        self.remove_emptied()?;
        replaced.into_iter().try_for_each(step)?;
        self.make_dirs()?;
        new.into_iter().try_for_each(step)?;
        self.keep_displaced()?;
        Ok(self.sync()?)
    }

    fn apply(&self, at: usize) -> Result<(), Halt> {
        let (swap, stage) = self.at(at)?;
        if !swap.before.is_there() {
            return self.arrive(at);
        }
        let fail = |errno| from_errno(Path::new(&swap.path), errno);
        let (dir, name) = self.place(swap)?;
        if swap.after.is_there() {
            match self.disk.exchange(stage, &new_name(at), dir.as_fd(), &name) {
                Ok(()) => return self.expect(at, &new_name(at)),
                // Not every file system can exchange; there the path is missing for a moment.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(Errno::NOENT) => return Err(self.changed(at)?),
                Err(errno) => return Err(fail(errno).into()),
            }
        }
        match self.disk.rename(dir.as_fd(), &name, stage, old_name(at)) {
            Ok(()) => self.expect(at, &old_name(at))?,
            Err(Errno::NOENT) => return Err(self.changed(at)?),
            Err(errno) => return Err(fail(errno).into()),
        }
        if swap.after.is_there() {
            self.arrive(at)
        } else {
            Ok(())
        }
    }

    /// What waits aside goes to its path, where nothing may be.
    fn arrive(&self, at: usize) -> Result<(), Halt> {
        let (swap, stage) = self.at(at)?;
        let (dir, name) = self.place(swap)?;
        match self
            .disk
            .rename_new(stage, &new_name(at), dir.as_fd(), &name)
        {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let seen = see(self.disk, self.root, &swap.path)?;
                Err(Halt::conflict(&swap.path, &why(&Image::Absent, &seen)))
            }
            Err(errno) => Err(from_errno(Path::new(&swap.path), errno).into()),
        }
    }

    /// What was displaced must be what was expected.
    fn expect(&self, at: usize, slot: &OsStr) -> Result<(), Halt> {
        let (swap, stage) = self.at(at)?;
        let displaced = see_at(self.disk, stage, slot, &swap.path)?;
        if displaced.is(&swap.before) {
            return Ok(());
        }
        Err(Halt::conflict(&swap.path, &why(&swap.before, &displaced)))
    }

    fn changed(&self, at: usize) -> Result<Halt, FileError> {
        let (swap, _) = self.at(at)?;
        let seen = see(self.disk, self.root, &swap.path)?;
        Ok(Halt::conflict(&swap.path, &why(&swap.before, &seen)))
    }

    fn place(&self, swap: &Swap) -> Result<(OwnedFd, OsString), Halt> {
        match find(self.disk, self.root, &swap.path)? {
            Spot::There(dir, name) => Ok((dir, name)),
            Spot::NoParent | Spot::Blocked(..) => {
                let reason = "its directory was moved or replaced meanwhile";
                Err(Halt::conflict(&swap.path, reason))
            }
        }
    }

    fn make_dirs(&self) -> Result<(), Halt> {
        for path in &self.journal.made {
            let Spot::There(dir, name) = find(self.disk, self.root, path)? else {
                continue;
            };
            match self.disk.make_dir(dir.as_fd(), &name, 0o777) {
                // Somebody else may have made it; whether it is a directory is seen by what goes into it.
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

    /// Removes directories that are empty, and only those.
    pub(super) fn remove_dirs<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<(), FileError> {
        for path in paths {
            let Spot::There(dir, name) = find(self.disk, self.root, path)? else {
                continue;
            };
            match self.disk.remove_dir(dir.as_fd(), &name) {
                // What is not empty, is no directory any more or is mounted on stays.
                Ok(())
                | Err(
                    Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::BUSY,
                ) => {}
                Err(errno) => return Err(from_errno(Path::new(path), errno)),
            }
        }
        Ok(())
    }

    /// Keeps what was displaced, which is the undo. Bytes that cannot be kept stop the landing, and so does a write to a
    /// displaced file through a handle that was open.
    fn keep_displaced(&self) -> Result<(), Halt> {
        let lasting = Lasting::of(self.journal.swaps.len());
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
                Ok(file) => self.contents.put_through(self.disk, &file, lasting),
                Err(errno) => Err(from_errno(Path::new(&swap.path), errno).into()),
            };
            match kept {
                Ok((found, _)) if found == *hash => {}
                Ok(_) => {
                    let reason = "it was written to while it was being replaced";
                    return Err(Halt::conflict(&swap.path, reason));
                }
                Err(err) => return Err(not_stored(&swap.path, err)),
            }
        }
        Ok(())
    }

    /// Makes the tree and, in a large landing, the stored old bytes last.
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

impl Work<'_> {
    /// One sync for each file system that the landing wrote to. A staging directory is on each of them, and the store may be
    /// on another one.
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

fn not_stored(path: &str, err: ContentsError) -> Halt {
    let FileError { kind, message } = err.into_file();
    let message = format!("the old bytes of {path} cannot be stored for undo: {message}");
    Halt::NotStored(FileError { kind, message })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{file, swap};
    use super::*;

    /// What is at the path, in the new place and in the old: `o` what was there, `n` what comes, `t` somebody's, `-`
    /// nothing. A `=` says that the path and the new place are one file.
    #[track_caller]
    fn check(kind: &str, places: &str, expect: Standing) {
        let (old, new) = (file("old", 0o644), file("new", 0o644));
        let (before, after) = match kind {
            "change" => (old.clone(), new.clone()),
            "delete" => (old.clone(), Image::Absent),
            _ => (Image::Absent, new.clone()),
        };
        let seen = |at: usize| match places.as_bytes()[at] {
            b'o' => Seen::Image(old.clone()),
            b'n' => Seen::Image(new.clone()),
            b't' => Seen::Image(file("theirs", 0o644)),
            b'd' => Seen::Directory,
            _ => Seen::Image(Image::Absent),
        };
        let places = Places {
            target: seen(0),
            new: seen(1),
            old: seen(2),
            one_file: places.ends_with('='),
        };
        assert_eq!(places.standing(&swap("x", before, after)), expect, "{kind}");
    }

    #[test]
    fn a_change_is_known_by_its_places() {
        check("change", "on-", Standing::NotYet);
        check("change", "tn-", Standing::Theirs);
        check("change", "-n-", Standing::Theirs);
        check("change", "no-", Standing::Done);
        check("change", "to-", Standing::Done);
        check("change", "nt-", Standing::Held);
        check("change", "nd-", Standing::Held);
        check("change", "o--", Standing::Lost);
        check("change", "n--", Standing::Done);
        check("change", "t--", Standing::Theirs);
    }

    #[test]
    fn a_change_by_two_renames_is_known_by_its_places() {
        check("change", "-no", Standing::Between);
        check("change", "tno", Standing::Theirs);
        check("change", "nno=", Standing::Done);
        check("change", "n-o", Standing::Done);
        check("change", "-nt", Standing::Held);
        check("change", "-to", Standing::Held);
    }

    #[test]
    fn a_delete_is_known_by_its_places() {
        check("delete", "o--", Standing::NotYet);
        check("delete", "t--", Standing::Theirs);
        check("delete", "---", Standing::Done);
        check("delete", "--o", Standing::Done);
        check("delete", "t-o", Standing::Done);
        check("delete", "--t", Standing::Held);
    }

    #[test]
    fn a_new_path_is_known_by_its_places() {
        check("create", "-n-", Standing::NotYet);
        check("create", "tn-", Standing::Theirs);
        check("create", "nn-", Standing::Theirs);
        check("create", "nn-=", Standing::Done);
        check("create", "n--", Standing::Done);
        check("create", "t--", Standing::Done);
        check("create", "---", Standing::Done);
        check("create", "-t-", Standing::Held);
    }
}
