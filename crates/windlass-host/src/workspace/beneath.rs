//! Opens names beneath a directory handle so that no symlink or rename leads out. There is no check before the open:
//! either the kernel (`openat2`) decides during the open, or a walk that holds a handle of each directory on the way.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use windlass_core::workspace::{FileError, FileKind};

use super::error::{bad_path, from_errno, kind_of_stat, outside, wrong_kind};

/// The kernel has the same limit on the symlinks in one lookup.
const MAX_LINKS: u32 = 40;
/// The maximum number of components of a path; it limits the walk together with `MAX_LINKS`.
const MAX_PARTS: usize = 1024;
/// `openat2` must be repeated if a concurrent rename disturbed it.
const MAX_RETRIES: u32 = 16;

const DIR_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The treatment of a symlink in the last component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    /// Follow the symlink, if it stays beneath the root.
    Follow,
    /// Use the symlink itself.
    Keep,
}

/// The limit of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkLimit {
    /// Never above the directory that it starts at.
    Beneath,
    /// Anywhere; the walk starts at `/`. Only for resolving a path, never for opening it.
    Anywhere,
}

/// The location of a path: handles of the existing directories, and the names below them.
#[derive(Debug)]
pub(crate) struct LocatedPath {
    /// The directories below the root, outermost first, each with its own name.
    dirs: Vec<(OwnedFd, OsString)>,
    /// Directories between the last existing one and the name, which do not exist yet.
    pub(crate) missing: Vec<OsString>,
    /// The last name; `None` for the root itself.
    pub(crate) name: Option<OsString>,
    /// The current kind of file at the path; `None` if nothing is there.
    pub(crate) kind: Option<FileKind>,
}

impl LocatedPath {
    /// Returns the deepest existing directory above the name.
    pub(crate) fn parent<'a>(&'a self, root: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.dirs.last().map_or(root, |(fd, _)| fd.as_fd())
    }

    /// Returns the path without symlinks and `..`, relative to the root; `.` for the root itself.
    pub(crate) fn real_path(&self) -> PathBuf {
        let parts = self.dirs.iter().map(|(_, name)| name);
        let path: PathBuf = parts.chain(&self.missing).chain(&self.name).collect();
        if path.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            path
        }
    }

    /// Creates the missing directories with a mode, and descends into them.
    pub(crate) fn create_missing(
        &mut self,
        root: BorrowedFd<'_>,
        given: &Path,
        mode: u32,
    ) -> Result<(), FileError> {
        for name in std::mem::take(&mut self.missing) {
            let parent = self.parent(root);
            match rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(mode)) {
                // Another process may have created it meanwhile; opening it decides whether it is a directory.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(from_errno(given, errno)),
            }
            let fd = rustix::fs::openat(parent, &name, DIR_FLAGS, Mode::empty())
                .map_err(|errno| not_followed(given, errno))?;
            self.dirs.push((fd, name));
        }
        Ok(())
    }
}

/// Walks `path` from `root`, component by component, and holds each directory by its handle. `..` returns to a handle
/// that is already held, so that moving directories during the walk cannot lead out of the root.
pub(crate) fn locate(
    root: BorrowedFd<'_>,
    path: &Path,
    last: LastLink,
    limit: WalkLimit,
) -> Result<LocatedPath, FileError> {
    let mut parts = VecDeque::new();
    push_front(&mut parts, path, path)?;
    let mut dirs: Vec<(OwnedFd, OsString)> = Vec::new();
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        if part == "/" || part == ".." {
            let above = if part == "/" {
                true
            } else {
                dirs.pop().is_none()
            };
            match (above, limit) {
                (true, WalkLimit::Beneath) => return Err(outside(path)),
                // Nothing is above `/`, and a symlink with an absolute target starts there again.
                (true, WalkLimit::Anywhere) => dirs.clear(),
                (false, _) => {}
            }
            continue;
        }
        let parent = dirs.last().map_or(root, |(fd, _)| fd.as_fd());
        if parts.is_empty() {
            let kind = match rustix::fs::statat(parent, &part, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(kind_of_stat(&stat)),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(from_errno(path, errno)),
            };
            if kind == Some(FileKind::Link) && last == LastLink::Follow {
                follow(parent, &part, &mut parts, &mut links, path)?;
                continue;
            }
            return Ok(LocatedPath {
                dirs,
                missing: Vec::new(),
                name: Some(part),
                kind,
            });
        }
        match rustix::fs::openat(parent, &part, DIR_FLAGS, Mode::empty()) {
            Ok(fd) => dirs.push((fd, part)),
            Err(Errno::NOENT) => return not_there(dirs, part, parts, path),
            // A symlink in the middle gives one of these errors, depending on the system; another file is not a
            // directory.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                follow(parent, &part, &mut parts, &mut links, path)?;
            }
            Err(errno) => return Err(from_errno(path, errno)),
        }
    }
    let name = dirs.pop().map(|(_, name)| name);
    Ok(LocatedPath {
        dirs,
        missing: Vec::new(),
        name,
        kind: Some(FileKind::Directory),
    })
}

fn not_there(
    dirs: Vec<(OwnedFd, OsString)>,
    first: OsString,
    rest: VecDeque<OsString>,
    path: &Path,
) -> Result<LocatedPath, FileError> {
    if rest.iter().any(|part| part == "..") {
        // `..` after a missing directory has no defined meaning that could be judged.
        return Err(from_errno(path, Errno::NOENT));
    }
    let mut missing = Vec::with_capacity(rest.len() + 1);
    missing.push(first);
    missing.extend(rest);
    let name = missing.pop();
    Ok(LocatedPath {
        dirs,
        missing,
        name,
        kind: None,
    })
}

fn follow(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    parts: &mut VecDeque<OsString>,
    links: &mut u32,
    path: &Path,
) -> Result<(), FileError> {
    let target = match rustix::fs::readlinkat(parent, name, Vec::new()) {
        Ok(target) => target,
        Err(Errno::INVAL) => {
            return Err(from_errno(path, Errno::NOTDIR));
        }
        Err(errno) => return Err(from_errno(path, errno)),
    };
    *links += 1;
    if *links > MAX_LINKS {
        return Err(from_errno(path, Errno::LOOP));
    }
    push_front(parts, Path::new(OsStr::from_bytes(target.to_bytes())), path)
}

fn push_front(parts: &mut VecDeque<OsString>, path: &Path, given: &Path) -> Result<(), FileError> {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => parts.push_front(name.to_owned()),
            Component::ParentDir => parts.push_front("..".into()),
            Component::CurDir => {}
            Component::RootDir => parts.push_front("/".into()),
            Component::Prefix(_) => return Err(outside(given)),
        }
    }
    if parts.len() > MAX_PARTS {
        return Err(bad_path("it has too many parts"));
    }
    Ok(())
}

/// Opens a path beneath the root, following symlinks that stay inside.
pub(crate) fn open(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    kernel: &KernelLookup,
) -> Result<OwnedFd, FileError> {
    if let Some(answer) = kernel.open(root, path, flags) {
        return answer.map_err(|errno| {
            if errno == Errno::XDEV {
                outside(path)
            } else {
                from_errno(path, errno)
            }
        });
    }
    if kernel.no_links {
        open_without_links(root, path, flags)
    } else {
        open_by_walk(root, path, flags)
    }
}

/// Opens a path component by component without following any symlink.
pub(super) fn open_without_links(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
) -> Result<OwnedFd, FileError> {
    let mut parts = VecDeque::new();
    push_front(&mut parts, path, path)?;
    let last = parts.pop_back().unwrap_or_else(|| ".".into());
    let mut dir: Option<OwnedFd> = None;
    for part in &parts {
        let parent = dir.as_ref().map_or(root, AsFd::as_fd);
        if part == ".." || part == "/" {
            return Err(outside(path));
        }
        let next = rustix::fs::openat(parent, part, DIR_FLAGS, Mode::empty());
        dir = Some(next.map_err(|errno| not_followed(path, errno))?);
    }
    let parent = dir.as_ref().map_or(root, AsFd::as_fd);
    let opened = rustix::fs::openat(
        parent,
        &last,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    );
    opened.map_err(|errno| from_errno(path, errno))
}

/// Replaces `openat2` on systems that lack it.
fn open_by_walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, FileError> {
    for _ in 0..MAX_RETRIES {
        let located = locate(root, path, LastLink::Follow, WalkLimit::Beneath)?;
        if !located.missing.is_empty() {
            return Err(from_errno(path, Errno::NOENT));
        }
        let name = located.name.as_deref().unwrap_or(OsStr::new("."));
        let opened = rustix::fs::openat(
            located.parent(root),
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        match opened {
            // It became a symlink after the walk: walk again, through the symlink.
            Err(Errno::LOOP) => {}
            other => return other.map_err(|errno| from_errno(path, errno)),
        }
    }
    Err(from_errno(path, Errno::LOOP))
}

/// Whether the kernel does the lookup; detected at first use, per workspace.
#[derive(Debug, Default)]
pub(crate) struct KernelLookup {
    absent: AtomicBool,
    /// Follow no symlink at all, wherever it points.
    no_links: bool,
}

impl KernelLookup {
    /// Returns a lookup that follows no symlink.
    pub(crate) fn without_links() -> Self {
        Self {
            no_links: true,
            ..Self::default()
        }
    }

    pub(crate) fn no_links(&self) -> bool {
        self.no_links
    }

    #[cfg(test)]
    pub(crate) fn absent() -> Self {
        Self {
            absent: AtomicBool::new(true),
            no_links: false,
        }
    }

    /// Returns `None` if the kernel lacks the call or gives no stable answer, so that the walk must be used.
    fn open(
        &self,
        root: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
    ) -> Option<Result<OwnedFd, Errno>> {
        use rustix::fs::ResolveFlags;
        if self.absent.load(Ordering::Relaxed) {
            return None;
        }
        let links = if self.no_links {
            ResolveFlags::NO_SYMLINKS
        } else {
            ResolveFlags::NO_MAGICLINKS
        };
        let resolve = ResolveFlags::BENEATH | links;
        for _ in 0..MAX_RETRIES {
            let flags = flags | OFlags::CLOEXEC;
            match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Some container profiles return "not permitted" for unknown system calls.
                Err(Errno::NOSYS | Errno::PERM) => {
                    self.absent.store(true, Ordering::Relaxed);
                    return None;
                }
                answer => return Some(answer),
            }
        }
        None
    }
}

/// Returns the error for a name that was opened with `NOFOLLOW` and is a symlink or a file.
fn not_followed(path: &Path, errno: Errno) -> FileError {
    match errno {
        Errno::NOTDIR | Errno::LOOP => wrong_kind(path, FileKind::Special, FileKind::Directory),
        other => from_errno(path, other),
    }
}
