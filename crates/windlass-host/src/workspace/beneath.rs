//! Opening names beneath a directory handle so that nothing, however it is linked or swapped, leads out.
//! There is no check followed by an open: the kernel (`openat2`) or a walk that holds a handle on every
//! directory it passed decides while opening.

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

/// As the kernel's own limit on the links followed in one lookup.
const MAX_LINKS: u32 = 40;
/// A path of more parts than this is not a path anyone meant; it bounds the walk together with `MAX_LINKS`.
const MAX_PARTS: usize = 1024;
/// `openat2` asks to be called again when a rename elsewhere disturbed it.
const MAX_RETRIES: u32 = 16;

const DIR_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What happens when the last part of a path is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    /// Go where it points, still beneath the root.
    Follow,
    /// Stay at the link itself.
    Keep,
}

/// How far a walk may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Never above the directory it starts at.
    Beneath,
    /// Anywhere; the walk starts at `/`. Only for learning where a path leads, never for opening it.
    Anywhere,
}

/// Where a path really leads: a handle on the parent that exists, and the names below it.
#[derive(Debug)]
pub(crate) struct Spot {
    /// The directories passed below the root, outermost first, each with its own name.
    dirs: Vec<(OwnedFd, OsString)>,
    /// Directories between the last existing one and the name, which do not exist yet.
    pub(crate) missing: Vec<OsString>,
    /// The last name, or none when the path is the root itself.
    pub(crate) name: Option<OsString>,
    /// What is there now, or none when nothing is.
    pub(crate) kind: Option<FileKind>,
}

impl Spot {
    /// The deepest existing directory above the name.
    pub(crate) fn parent<'a>(&'a self, root: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.dirs.last().map_or(root, |(fd, _)| fd.as_fd())
    }

    /// The path without any link or `..` in it, relative to the root; `.` for the root itself.
    pub(crate) fn real_path(&self) -> PathBuf {
        let parts = self.dirs.iter().map(|(_, name)| name);
        let path: PathBuf = parts.chain(&self.missing).chain(&self.name).collect();
        if path.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            path
        }
    }

    /// Creates the missing directories with a mode, and steps into them.
    pub(crate) fn create_missing(
        &mut self,
        root: BorrowedFd<'_>,
        given: &Path,
        mode: u32,
    ) -> Result<(), FileError> {
        for name in std::mem::take(&mut self.missing) {
            let parent = self.parent(root);
            match rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(mode)) {
                // Somebody else may have made it meanwhile; opening it decides whether it is a directory.
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

/// Follows `path` part by part from `root`, holding every directory by its handle. `..` steps back to a
/// handle that is already held, so that moving directories about during the walk cannot lead out of the root.
pub(crate) fn locate(
    root: BorrowedFd<'_>,
    path: &Path,
    last: LastLink,
    reach: Reach,
) -> Result<Spot, FileError> {
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
            match (above, reach) {
                (true, Reach::Beneath) => return Err(outside(path)),
                // Nothing is above `/`, and a link with an absolute target starts there again.
                (true, Reach::Anywhere) => dirs.clear(),
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
            return Ok(Spot {
                dirs,
                missing: Vec::new(),
                name: Some(part),
                kind,
            });
        }
        match rustix::fs::openat(parent, &part, DIR_FLAGS, Mode::empty()) {
            Ok(fd) => dirs.push((fd, part)),
            Err(Errno::NOENT) => return not_there(dirs, part, parts, path),
            // A link in the way gives one or the other, by system; anything else is not a directory.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                follow(parent, &part, &mut parts, &mut links, path)?;
            }
            Err(errno) => return Err(from_errno(path, errno)),
        }
    }
    let name = dirs.pop().map(|(_, name)| name);
    Ok(Spot {
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
) -> Result<Spot, FileError> {
    if rest.iter().any(|part| part == "..") {
        // Stepping back out of a directory that does not exist has no meaning that could be judged.
        return Err(from_errno(path, Errno::NOENT));
    }
    let mut missing = Vec::with_capacity(rest.len() + 1);
    missing.push(first);
    missing.extend(rest);
    let name = missing.pop();
    Ok(Spot {
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

/// Opens a path beneath the root, following links that stay inside.
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

/// Part by part, each of them as it is.
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

/// The walk in place of `openat2`, for kernels and systems that lack it.
fn open_by_walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, FileError> {
    for _ in 0..MAX_RETRIES {
        let spot = locate(root, path, LastLink::Follow, Reach::Beneath)?;
        if !spot.missing.is_empty() {
            return Err(from_errno(path, Errno::NOENT));
        }
        let name = spot.name.as_deref().unwrap_or(OsStr::new("."));
        let opened = rustix::fs::openat(
            spot.parent(root),
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        match opened {
            // It became a link after the walk looked: walk again, through the link.
            Err(Errno::LOOP) => {}
            other => return other.map_err(|errno| from_errno(path, errno)),
        }
    }
    Err(from_errno(path, Errno::LOOP))
}

/// Whether the kernel does the lookup; learned on first use and kept per workspace.
#[derive(Debug, Default)]
pub(crate) struct KernelLookup {
    absent: AtomicBool,
    /// No link is followed at all, wherever it points.
    no_links: bool,
}

impl KernelLookup {
    /// A lookup that follows no link.
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

    /// None when the kernel has no such call or cannot give a steady answer, so that the walk must do it.
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
                // Some container profiles answer "not permitted" to calls they do not know.
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

/// A name opened with `NOFOLLOW` that turned out to be a link or a file.
fn not_followed(path: &Path, errno: Errno) -> FileError {
    match errno {
        Errno::NOTDIR | Errno::LOOP => wrong_kind(path, FileKind::Special, FileKind::Directory),
        other => from_errno(path, other),
    }
}
