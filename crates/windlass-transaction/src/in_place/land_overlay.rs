//! Lands the overlay of a command: the files of the source set with one atomic landing, then ignored files and files of
//! git by moving them. Every path is opened below the root and through no symlink.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use windlass_core::id::CallId;
use windlass_core::image::Swap;

use super::call_landings::CallLandings;
use super::command_overlay::{CommandOverlay, EntryStamp, changed_at};
use super::moved_folders::MovedFolders;
use super::overlay_diff::{self, OverlayDiff, PlainMove};
use crate::isolated::copy_tree::times_of;
use crate::landing::ByteSource;
use crate::path::path_of;

/// Extended attributes that the kernel sets in an overlay, and that mean nothing outside of it.
const MARKS: [&str; 5] = [
    "user.overlay.opaque",
    "user.overlay.impure",
    "user.overlay.origin",
    "user.overlay.nlink",
    "user.overlay.uuid",
];
/// Paths that are named in a message.
const MAX_NAMED: usize = 20;

/// Reads the bytes, attributes and times of new files from the upper directory.
struct Upper<'a>(&'a Path);

impl ByteSource for Upper<'_> {
    fn open(&self, swap: &Swap) -> io::Result<File> {
        File::open(self.0.join(path_of(&swap.path)))
    }

    fn has_attributes(&self) -> bool {
        true
    }
}

/// Lands the overlay of a command that has ended. Returns a remark about paths that never land. An error names the
/// changes that did not land; the caller must then keep the overlay. `call` made the changes; `None` means the open
/// call.
pub(super) fn land_overlay(
    landings: &CallLandings,
    overlay: &CommandOverlay,
    call: Option<&CallId>,
) -> Result<Option<String>, String> {
    let diff =
        overlay_diff::read(&landings.root, overlay).map_err(|err| not_landed(&err.message))?;
    if !diff.refused.is_empty() {
        return Err(not_landed(&listed(&diff.refused)));
    }
    let lander = OverlayLander {
        landings,
        upper: &overlay.upper,
        last: RefCell::default(),
        linked: None,
    };
    lander.land(&diff, call)?;
    Ok((!diff.skipped.is_empty())
        .then(|| format!("these changes did not land: {}", listed(&diff.skipped))))
}

/// Lands the changes of a job that is still running. Nothing is moved out of its overlay: files of the source set are
/// copied, ignored files are hard-linked. Returns the paths that cannot land, with the reason; in this case nothing
/// landed.
pub(super) fn land_running(
    landings: &CallLandings,
    overlay: &mut CommandOverlay,
    call: Option<&CallId>,
) -> Result<Vec<(String, String)>, String> {
    let mut diff =
        overlay_diff::read(&landings.root, overlay).map_err(|err| not_landed(&err.message))?;
    if !diff.refused.is_empty() {
        return Ok(diff.refused);
    }
    let lander = OverlayLander {
        landings,
        upper: &overlay.upper,
        last: RefCell::default(),
        linked: Some(RefCell::default()),
    };
    lander.land(&diff, call)?;
    let linked = lander.linked.map(RefCell::into_inner).unwrap_or_default();
    diff.stamps.extend(linked);
    for (path, stamp) in diff.stamps {
        let now = std::fs::symlink_metadata(landings.root_path().join(&path));
        let base = now.as_ref().map_or((0, 0), changed_at);
        overlay.synced.add(&path, stamp, base);
    }
    Ok(Vec::new())
}

fn not_landed(why: &str) -> String {
    format!("none of the command's changes landed: {why}")
}

fn listed(paths: &[(String, String)]) -> String {
    let mut lines: Vec<String> = paths
        .iter()
        .take(MAX_NAMED)
        .map(|(path, why)| format!("{path}: {why}"))
        .collect();
    if paths.len() > MAX_NAMED {
        lines.push(format!("and {} more", paths.len() - MAX_NAMED));
    }
    lines.join("; ")
}

struct OverlayLander<'a> {
    landings: &'a CallLandings,
    upper: &'a Path,
    /// The directory that was opened last, because often many files are in one.
    last: RefCell<Option<(PathBuf, OwnedFd)>>,
    /// Files that were linked instead of moved, because a job still uses the overlay.
    linked: Option<RefCell<Vec<(PathBuf, EntryStamp)>>>,
}

impl OverlayLander<'_> {
    fn land(&self, diff: &OverlayDiff, call: Option<&CallId>) -> Result<(), String> {
        let landings = self.landings;
        for (path, text) in &diff.configs {
            std::fs::write(self.upper.join(path), text)
                .map_err(|err| not_landed(&err.to_string()))?;
        }
        let folders = self
            .move_folders_out(diff)
            .map_err(|err| not_landed(&err.to_string()))?;
        if let Err(err) = landings.land_for(call, &diff.swaps, &Upper(self.upper)) {
            if let Some(folders) = folders {
                folders.restore(&landings.root);
            }
            return Err(not_landed(&err.message));
        }
        if let Some(folders) = folders {
            folders.remove();
        }
        let mut not_moved = Vec::new();
        for one in &diff.plain {
            if let Err(err) = self.plain(one) {
                not_moved.push((one.path().to_string_lossy().into_owned(), err.to_string()));
            }
        }
        self.folders(diff);
        for path in &diff.times {
            // A wrong time costs at most a rebuild.
            let _ = self.give_time(&path_of(path));
        }
        for (path, why) in &diff.lost {
            landings.lose(path, why.as_str());
        }
        if !not_moved.is_empty() {
            return Err(format!(
                "some of the command's changes did not land: {}",
                listed(&not_moved)
            ));
        }
        Ok(())
    }

    /// Moves ignored directories out of directories that become files or symlinks, because a landing removes only its
    /// own files.
    fn move_folders_out(&self, diff: &OverlayDiff) -> io::Result<Option<MovedFolders>> {
        let arriving = diff.swaps.iter().filter(|swap| swap.after.is_there());
        let arriving: BTreeSet<Cow<'_, Path>> = arriving.map(|swap| path_of(&swap.path)).collect();
        let is_below = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.any(|above| arriving.contains(above))
        };
        let removed = diff.plain.iter().filter_map(|one| match one {
            PlainMove::Remove(path) => Some(path.as_path()),
            PlainMove::Put(_) => None,
        });
        let paths: Vec<&Path> = removed.filter(|path| is_below(path)).collect();
        MovedFolders::begin(&self.landings.root, self.landings.journal(), &paths)
    }

    fn plain(&self, one: &PlainMove) -> io::Result<()> {
        let (parent, name) = match one {
            PlainMove::Put(path) => (self.parent(path, true)?, path.file_name()),
            PlainMove::Remove(path) => match self.parent(path, false) {
                Ok(parent) => (parent, path.file_name()),
                // Its directory is gone, and the path with it.
                Err(err) if is_gone(&err) => return Ok(()),
                Err(err) => return Err(err),
            },
        };
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        let place = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd())).join(name);
        match one {
            PlainMove::Remove(_) => remove(&place),
            PlainMove::Put(path) => {
                let from = self.upper.join(path);
                if let Some(linked) = &self.linked {
                    return link(&from, &place, path, &mut linked.borrow_mut());
                }
                remove_marks(&from);
                let is_folder = std::fs::symlink_metadata(&from)?.is_dir();
                let flags = if is_folder {
                    RenameFlags::NOREPLACE
                } else {
                    RenameFlags::empty()
                };
                match rustix::fs::renameat_with(rustix::fs::CWD, &from, &parent, name, flags) {
                    Err(rustix::io::Errno::XDEV) => copy(&from, &place),
                    other => Ok(other?),
                }
            }
        }
    }

    fn folders(&self, diff: &OverlayDiff) {
        for path in &diff.gone {
            // A directory that is not empty stays.
            if let (Ok(parent), Some(name)) = (self.parent(path, false), path.file_name()) {
                let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
            }
        }
        for (path, mode) in &diff.folders {
            let (Ok(parent), Some(name)) = (self.parent(path, true), path.file_name()) else {
                continue;
            };
            let _ = rustix::fs::mkdirat(&parent, name, Mode::RWXU);
            if let Ok(folder) = open_folder(parent.as_fd(), Path::new(name)) {
                let _ = File::from(folder).set_permissions(std::fs::Permissions::from_mode(*mode));
            }
        }
    }

    fn give_time(&self, path: &Path) -> io::Result<()> {
        let times = times_of(&rustix::fs::lstat(self.upper.join(path))?);
        let parent = self.parent(path, false)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let itself = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&parent, name, &times, itself)?)
    }

    /// Opens the directory that contains a path of the workspace; creates it if it is missing and `make` is set.
    fn parent(&self, path: &Path, make: bool) -> io::Result<OwnedFd> {
        let above = path.parent().unwrap_or(Path::new(""));
        let mut last = self.last.borrow_mut();
        if let Some((_, folder)) = last.as_ref().filter(|(known, _)| known == above) {
            return folder.try_clone();
        }
        let mut folder = self.landings.root.handle().try_clone_to_owned()?;
        for part in above.components() {
            let name = Path::new(part.as_os_str());
            folder = match open_folder(folder.as_fd(), name) {
                Err(rustix::io::Errno::NOENT) if make => {
                    rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                    open_folder(folder.as_fd(), name)?
                }
                other => other?,
            };
        }
        *last = Some((above.to_owned(), folder.try_clone()?));
        Ok(folder)
    }
}

fn is_gone(err: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(err),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
    )
}

fn open_folder(parent: std::os::fd::BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}

/// Removes the overlay attributes of a file; few files have any.
fn remove_marks(path: &Path) {
    if rustix::fs::llistxattr(path, &mut [] as &mut [u8]).is_ok_and(|len| len > 0) {
        for mark in MARKS {
            let _ = rustix::fs::lremovexattr(path, mark);
        }
    }
}

/// Removes an entry without following symlinks; a missing entry is no error.
fn remove(place: &Path) -> io::Result<()> {
    let gone = match std::fs::symlink_metadata(place) {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(place),
        Ok(_) => std::fs::remove_file(place),
        Err(err) => Err(err),
    };
    match gone {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Creates hard links in the workspace to files of the overlay, so that a running job keeps its files. Files on another
/// disk are copied.
fn link(
    from: &Path,
    to: &Path,
    path: &Path,
    linked: &mut Vec<(PathBuf, EntryStamp)>,
) -> io::Result<()> {
    let about = std::fs::symlink_metadata(from)?;
    if about.is_dir() {
        match std::fs::create_dir(to) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => std::fs::set_permissions(to, about.permissions())?,
        }
        for entry in std::fs::read_dir(from)?.flatten() {
            let name = entry.file_name();
            link(&entry.path(), &to.join(&name), &path.join(&name), linked)?;
        }
        return Ok(());
    }
    remove(to)?;
    // Copy files of git: they were judged in their current state, and a hard link would let the job change them later.
    let of_git = path.iter().any(|part| part == ".git");
    if of_git || std::fs::hard_link(from, to).is_err() {
        copy(from, to)?;
    }
    linked.push((
        path.to_owned(),
        EntryStamp::of(&std::fs::symlink_metadata(from)?),
    ));
    Ok(())
}

/// Copies an entry that is on another disk and cannot be moved, with modes and times.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let about = std::fs::symlink_metadata(from)?;
    if about.is_symlink() {
        remove(to)?;
        return std::os::unix::fs::symlink(std::fs::read_link(from)?, to);
    }
    if about.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)?.flatten() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return std::fs::set_permissions(to, about.permissions());
    }
    if !about.is_file() {
        return Ok(());
    }
    // The file gets its name when it is complete.
    let draft = to.with_file_name(format!(
        ".windlass-merge-{:016x}",
        windlass_host::clock::random_u64()
    ));
    let copied = std::fs::copy(from, &draft).and_then(|_| {
        let (times, itself) = (
            times_of(&rustix::fs::lstat(from)?),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        rustix::fs::utimensat(rustix::fs::CWD, &draft, &times, itself)?;
        std::fs::rename(&draft, to)
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    copied
}
