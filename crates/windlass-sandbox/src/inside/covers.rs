//! The names in the workspace that commands do not change. What is there is bound onto itself, not writable; what is
//! absent gets a placeholder with an empty directory over it, which goes again when nothing runs. Before each command
//! every cover is looked at, because what a person does outside can take one away.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::mount::UnmountFlags;

use super::journal::Journal;
use super::view::{Blanks, cover_with, freeze};
use crate::spec::{Protected, Protection, Spec};

/// All covers of a session.
pub(crate) struct Covers {
    names: Vec<Protected>,
    hidden: Vec<PathBuf>,
    blanks: Blanks,
    /// Placeholders that this session made, deepest last.
    placed: Vec<PathBuf>,
    journal: Option<Journal>,
}

impl Covers {
    pub(crate) fn new(spec: &Spec, blanks: Blanks, journal: Option<Journal>) -> Self {
        let hidden = spec.hide.iter().filter(|path| path.starts_with(&spec.root)).cloned().collect();
        let mut names = spec.protect.clone();
        names.sort_by_key(|one| one.name.components().count());
        Self { names, hidden, blanks, placed: Vec::new(), journal }
    }

    /// Puts every cover in its place that is not there.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.enter()?;
        }
        for index in 0..self.names.len() {
            let one = self.names[index].clone();
            self.cover(&one).map_err(|err| {
                let path = one.base.join(&one.name);
                io::Error::new(err.kind(), format!("`{}` cannot be protected: {err}", path.display()))
            })?;
        }
        for path in &self.hidden {
            // What came to be there since the start is masked from the next command on.
            if let Some(target) = look(Path::new("/"), path)?
                && !is_covered(&target)?
            {
                cover_with(&self.blanks, target.as_fd())?;
            }
        }
        Ok(())
    }

    /// Takes the placeholders away, unless another sandbox works in the same place: then the last one does.
    pub(crate) fn disarm(&mut self) {
        for path in self.placed.iter().rev() {
            // A parent that was made for a placeholder has no cover of its own.
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        match &mut self.journal {
            Some(journal) => journal.leave(),
            None => super::journal::remove(&self.placed),
        }
        self.placed.clear();
    }

    fn cover(&mut self, one: &Protected) -> io::Result<()> {
        if let Some(target) = look(&one.base, &one.name)? {
            if is_covered(&target)? {
                return Ok(());
            }
            return match kind_of(&target)? {
                FileType::Directory | FileType::RegularFile => freeze(target.as_fd(), one.how == Protection::Pinned),
                // A link could be put in the place of what it leads to, so it is itself covered.
                _ => cover_with(&self.blanks, target.as_fd()),
            };
        }
        if one.how != Protection::Frozen {
            return Ok(());
        }
        let Some(target) = self.place(one)? else { return Ok(()) };
        cover_with(&self.blanks, target.as_fd())
    }

    /// Makes a placeholder for an absent name, with its parents. Nothing where the name cannot be made: then no
    /// command can make it either.
    fn place(&mut self, one: &Protected) -> io::Result<Option<OwnedFd>> {
        let mut at = PathBuf::new();
        let mut parent = open_folder(&one.base, Path::new("."))?;
        for part in one.name.components() {
            at.push(part);
            let full = one.base.join(&at);
            match rustix::fs::mkdirat(&parent, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    if let Some(journal) = &mut self.journal {
                        journal.note(&full)?;
                    }
                    self.placed.push(full);
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(_) => return Ok(None),
            }
            match open_folder(&one.base, &at) {
                Ok(next) => parent = next,
                // A file where a directory would have to be: nothing can be made below it.
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(parent))
    }
}

fn look(base: &Path, name: &Path) -> io::Result<Option<OwnedFd>> {
    let base = rustix::fs::open(base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let name = name.strip_prefix("/").unwrap_or(name);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&base, name, flags, Mode::empty(), resolve) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::XDEV | rustix::io::Errno::LOOP) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

fn open_folder(base: &Path, name: &Path) -> io::Result<OwnedFd> {
    let base = rustix::fs::open(base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(&base, name, flags, Mode::empty(), resolve)?)
}

fn is_covered(target: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::statx(target, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn kind_of(target: &OwnedFd) -> io::Result<FileType> {
    let stat = rustix::fs::statat(target, "", AtFlags::EMPTY_PATH)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
