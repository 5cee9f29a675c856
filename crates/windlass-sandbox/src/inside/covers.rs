//! Protects names in the workspace with mounts ("covers"). An existing file or directory is mounted over itself,
//! read-only. For an absent name an empty directory is created as a placeholder and covered, so that commands cannot
//! create the name; it is removed when no command runs. All covers are checked before each command, because a user
//! outside can make the kernel drop one, for example by deleting the file.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};

use super::overlay::detach;
use super::placeholders::PlaceholderList;
use super::view::{Blanks, cover_with, freeze};
use crate::spec::{Protected, Protection, Spec};

/// All covers of a session.
pub(crate) struct Covers {
    /// The directories that contain the names, open for the whole session.
    bases: Vec<(PathBuf, OwnedFd)>,
    root: PathBuf,
    /// Names to cover, parents before their children.
    entries: Vec<CoveredName>,
    /// Names in the workspace that are masked.
    hidden: Vec<CoveredName>,
    /// Names that commands must not create.
    banned: Vec<CoveredName>,
    blanks: Blanks,
    /// Placeholders that this session created, the deepest last.
    placed: Vec<PathBuf>,
    journal: Option<PlaceholderList>,
}

/// A name to cover.
#[derive(Clone, PartialEq, Eq)]
struct CoveredName {
    /// The index of its directory in [`Covers::bases`].
    base: usize,
    name: PathBuf,
    /// Commands may write inside; only the name itself is protected.
    pinned: bool,
    /// Create a placeholder if the name is absent.
    make: bool,
}

impl Covers {
    pub(crate) fn new(
        spec: &Spec,
        blanks: Blanks,
        journal: Option<PlaceholderList>,
    ) -> io::Result<Self> {
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
        let plain = |base: usize, name: &Path| CoveredName {
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
        // A banned name that exists already was not created by a command, so it stays.
        let banned = banned
            .filter(|one| matches!(open_if_present(&bases[one.base].1, &one.name), Ok(None)))
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

    /// Mounts every cover that is missing; returns whether there was one. For a command with an overlay, covers only
    /// names outside the workspace: its changes inside are judged when they are merged.
    pub(crate) fn cover_all(&mut self, layered: bool) -> io::Result<bool> {
        let mut changed = false;
        let needed = |bases: &[(PathBuf, OwnedFd)], one: &CoveredName| {
            !layered || bases[one.base].0 != self.root
        };
        let needed: Vec<CoveredName> = self
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
                    format!("cannot protect `{}`: {err}", path.display()),
                )
            })?;
        }
        for one in self.hidden.iter().filter(|_| !layered) {
            // A hidden file that appeared after the session was opened is masked from the next command on.
            changed |= mask(&self.bases[one.base].1, &one.name, &self.blanks)?;
        }
        Ok(changed)
    }

    /// Removes banned names that a command created; called when a command has ended.
    pub(crate) fn remove_banned(&self) {
        for one in &self.banned {
            // This removes a file, never a directory: a directory of that name has no effect.
            let _ = rustix::fs::unlinkat(&self.bases[one.base].1, &one.name, AtFlags::empty());
        }
    }

    /// Returns whether placeholders are listed on disk, so that another process can remove them.
    pub(crate) fn has_list(&self) -> bool {
        self.journal.is_some()
    }

    /// Removes the placeholders. If another sandbox works in the same workspace, the last one removes them.
    pub(crate) fn uncover(&mut self) {
        for path in self.placed.iter().rev() {
            let _ = detach(path);
        }
        match &mut self.journal {
            Some(journal) => drop(journal.leave()),
            None => super::placeholders::remove(&self.placed),
        }
        self.placed.clear();
    }

    fn cover(&mut self, one: &CoveredName) -> io::Result<bool> {
        if let Some(target) = open_if_present(&self.bases[one.base].1, &one.name)? {
            if is_covered(&target)? {
                return Ok(false);
            }
            match kind_of(&target)? {
                FileType::Directory | FileType::RegularFile => freeze(target.as_fd(), one.pinned)?,
                // A symlink cannot be mounted over itself, so it is covered with a blank.
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

    /// Creates a placeholder for an absent name. Returns `None` if that fails: then a command cannot create it either.
    fn place(&mut self, one: &CoveredName) -> io::Result<Option<OwnedFd>> {
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
        // List it before it is created, so that it is removed even after a crash in between.
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

/// Masks a name if it exists and is not masked yet; returns whether it did.
pub(crate) fn mask(base: &OwnedFd, name: &Path, blanks: &Blanks) -> io::Result<bool> {
    match open_if_present(base, name)? {
        Some(target) if !is_covered(&target)? => cover_with(blanks, target.as_fd()).map(|()| true),
        _ => Ok(false),
    }
}

/// Lists the protected names with their parent folders. A parent must be pinned, because renaming it would move the
/// protected name away.
fn entries(names: &[Protected], number: impl Fn(&Path) -> usize) -> Vec<CoveredName> {
    let names: Vec<&Protected> = names
        .iter()
        .filter(|one| one.how != Protection::Banned)
        .collect();
    let listed =
        |base: &Path, name: &Path| names.iter().any(|one| one.base == base && one.name == name);
    let mut entries: Vec<CoveredName> = Vec::new();
    for one in &names {
        let (base, make) = (number(&one.base), one.how == Protection::Frozen);
        entries.push(CoveredName {
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
            entries.push(CoveredName {
                base,
                name: above.to_owned(),
                pinned: true,
                make,
            });
        }
    }
    entries.sort_by_key(|one| (one.name.components().count(), !one.make));
    let mut kept: Vec<CoveredName> = Vec::with_capacity(entries.len());
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

/// Opens the file at a name beneath a directory, if it exists.
pub(crate) fn open_if_present(base: impl AsFd, name: &Path) -> io::Result<Option<OwnedFd>> {
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

/// Follows no symlink: a command could put one there.
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
