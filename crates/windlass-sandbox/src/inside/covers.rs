//! The names in the workspace that commands do not change. What is there is bound onto itself, not writable; what is
//! absent gets a placeholder with an empty directory over it, which goes again when nothing runs. Before each command
//! every cover is looked at, because what a person does outside can take one away.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};

use super::journal::Journal;
use super::layer::detach;
use super::view::{Blanks, cover_with, freeze};
use crate::spec::{Protected, Protection, Spec};

/// All covers of a session.
pub(crate) struct Covers {
    /// The directories that names are below, held for the length of the session.
    bases: Vec<(PathBuf, OwnedFd)>,
    /// The workspace.
    root: PathBuf,
    /// Parents before what lies in them.
    entries: Vec<Entry>,
    /// Names below the workspace that are masked.
    hidden: Vec<Entry>,
    /// Names that must not come to be.
    banned: Vec<Entry>,
    blanks: Blanks,
    /// Placeholders that this session made, deepest last.
    placed: Vec<PathBuf>,
    journal: Option<Journal>,
}

/// One name to be covered.
#[derive(Clone, PartialEq, Eq)]
struct Entry {
    /// Which of the bases.
    base: usize,
    name: PathBuf,
    /// It stays writable inside; only its own name is held.
    pinned: bool,
    /// It is made where it is absent.
    make: bool,
}

impl Covers {
    pub(crate) fn new(spec: &Spec, blanks: Blanks, journal: Option<Journal>) -> io::Result<Self> {
        let mut bases: Vec<(PathBuf, OwnedFd)> = Vec::new();
        for path in spec.protect.iter().map(|one| &one.base).chain([&spec.root]) {
            if bases.iter().all(|(known, _)| known != path) {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                bases.push((path.clone(), rustix::fs::open(path, flags, Mode::empty())?));
            }
        }
        let number = |path: &Path| {
            bases
                .iter()
                .position(|(known, _)| known == path)
                .unwrap_or_default()
        };
        let plain = |base: usize, name: &Path| Entry {
            base,
            name: name.to_owned(),
            pinned: false,
            make: false,
        };
        let below = spec
            .hide
            .iter()
            .filter_map(|path| path.strip_prefix(&spec.root).ok());
        let hidden = below.map(|name| plain(number(&spec.root), name)).collect();
        let banned = spec
            .protect
            .iter()
            .filter(|one| one.how == Protection::Banned);
        let banned = banned.map(|one| plain(number(&one.base), &one.name));
        // One that is there already was put there by somebody else, and stays.
        let banned = banned
            .filter(|one| matches!(look(&bases[one.base].1, &one.name), Ok(None)))
            .collect();
        let entries = entries(&spec.protect, number);
        let root = spec.root.clone();
        Ok(Self {
            bases,
            root,
            entries,
            hidden,
            banned,
            blanks,
            placed: Vec::new(),
            journal,
        })
    }

    /// Puts every cover in its place that is not there; says whether there was one. For a command over a layer that is
    /// only what lies outside of the workspace: what it does inside is looked at when it is merged.
    pub(crate) fn arm(&mut self, layered: bool) -> io::Result<bool> {
        let mut changed = false;
        let needed =
            |bases: &[(PathBuf, OwnedFd)], one: &Entry| !layered || bases[one.base].0 != self.root;
        let needed: Vec<Entry> = self
            .entries
            .iter()
            .filter(|one| needed(&self.bases, one))
            .cloned()
            .collect();
        if layered && needed.is_empty() {
            return Ok(false);
        }
        if let Some(journal) = &mut self.journal {
            journal.enter()?;
        }
        for one in needed {
            changed |= self.cover(&one).map_err(|err| {
                let path = self.bases[one.base].0.join(&one.name);
                io::Error::new(
                    err.kind(),
                    format!("`{}` cannot be protected: {err}", path.display()),
                )
            })?;
        }
        for one in self.hidden.iter().filter(|_| !layered) {
            // What came to be there since the start is masked from the next command on.
            changed |= mask(&self.bases[one.base].1, &one.name, &self.blanks)?;
        }
        Ok(changed)
    }

    /// Removes what must not come to be; called when a command has ended.
    pub(crate) fn sweep(&self) {
        for one in &self.banned {
            // Never more than one file: a directory of that name does nothing.
            let _ = rustix::fs::unlinkat(&self.bases[one.base].1, &one.name, AtFlags::empty());
        }
    }

    /// Whether placeholders are noted, so that others can take them away.
    pub(crate) fn listed(&self) -> bool {
        self.journal.is_some()
    }

    /// Takes the placeholders away, unless another sandbox works in the same place: then the last one does.
    pub(crate) fn disarm(&mut self) {
        for path in self.placed.iter().rev() {
            let _ = detach(path);
        }
        match &mut self.journal {
            Some(journal) => drop(journal.leave()),
            None => super::journal::remove(&self.placed),
        }
        self.placed.clear();
    }

    fn cover(&mut self, one: &Entry) -> io::Result<bool> {
        if let Some(target) = look(&self.bases[one.base].1, &one.name)? {
            if is_covered(&target)? {
                return Ok(false);
            }
            match kind_of(&target)? {
                FileType::Directory | FileType::RegularFile => freeze(target.as_fd(), one.pinned)?,
                // A link could be put in the place of what it leads to, so it is itself covered.
                _ => cover_with(&self.blanks, target.as_fd())?,
            }
            return Ok(true);
        }
        if !one.make {
            return Ok(false);
        }
        match self.place(one)? {
            Some(target) if one.pinned => freeze(target.as_fd(), true)?,
            Some(target) => cover_with(&self.blanks, target.as_fd())?,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Makes a placeholder for an absent name. Nothing where it cannot be made: then no command can make it either.
    fn place(&mut self, one: &Entry) -> io::Result<Option<OwnedFd>> {
        let (path, base) = &self.bases[one.base];
        let above = one
            .name
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let (Ok(parent), Some(name)) = (open_folder(base, above), one.name.file_name()) else {
            return Ok(None);
        };
        let full = path.join(&one.name);
        // Noted before it is made, so that it is never forgotten.
        if let Some(journal) = &mut self.journal {
            journal.note(&full)?;
        }
        if rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).is_err() {
            return Ok(None);
        }
        self.placed.push(full);
        Ok(open_folder(&parent, Path::new(name)).ok())
    }
}

/// Masks a name that is there and not masked; says whether it was.
pub(crate) fn mask(base: &OwnedFd, name: &Path, blanks: &Blanks) -> io::Result<bool> {
    match look(base, name)? {
        Some(target) if !is_covered(&target)? => cover_with(blanks, target.as_fd()).map(|()| true),
        _ => Ok(false),
    }
}

/// What is protected, with the folders on the way: one that can be moved away takes what lies in it along.
fn entries(names: &[Protected], number: impl Fn(&Path) -> usize) -> Vec<Entry> {
    let names: Vec<&Protected> = names
        .iter()
        .filter(|one| one.how != Protection::Banned)
        .collect();
    let listed =
        |base: &Path, name: &Path| names.iter().any(|one| one.base == base && one.name == name);
    let mut entries: Vec<Entry> = Vec::new();
    for one in &names {
        let (base, make) = (number(&one.base), one.how == Protection::Frozen);
        entries.push(Entry {
            base,
            name: one.name.clone(),
            pinned: one.how == Protection::Pinned,
            make,
        });
        let above = one
            .name
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty());
        for above in above.filter(|above| !listed(&one.base, above)) {
            entries.push(Entry {
                base,
                name: above.to_owned(),
                pinned: true,
                make,
            });
        }
    }
    entries.sort_by_key(|one| (one.name.components().count(), !one.make));
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for one in entries {
        if !kept
            .iter()
            .any(|known| known.base == one.base && known.name == one.name)
        {
            kept.push(one);
        }
    }
    kept
}

/// What is at a name beneath a directory, if anything.
pub(crate) fn look(base: impl AsFd, name: &Path) -> io::Result<Option<OwnedFd>> {
    match open_beneath(
        base,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
    ) {
        Ok(found) => Ok(Some(found)),
        Err(
            rustix::io::Errno::NOENT
            | rustix::io::Errno::NOTDIR
            | rustix::io::Errno::XDEV
            | rustix::io::Errno::LOOP,
        ) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

fn open_folder(base: &OwnedFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    open_beneath(
        base,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
    )
}

/// No link is followed on the way: what runs inside could put one there.
fn open_beneath(base: impl AsFd, name: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(
        base,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}

fn is_covered(target: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::statx(target, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn kind_of(target: &OwnedFd) -> io::Result<FileType> {
    let stat = rustix::fs::statat(target, "", AtFlags::EMPTY_PATH)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
