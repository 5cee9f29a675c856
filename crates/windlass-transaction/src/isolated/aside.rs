//! What the checks are not to see: changed judges, in whose place the versions of before are put, and what only the
//! run's own rules ignore. It is written down before it is moved, so that it comes back also after a crash. The checks
//! are code of strangers: nothing here follows a link that they may have left.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_core::image::Image;
use windlass_core::workspace::{FileErrorKind, Files, WorkspaceError};

use super::sources::ASIDE;
use super::work::Work;
use crate::landing::look;
use windlass_host::workspace::Root;

impl Work {
    /// Puts the versions of before in the place of changed files. The run's own are written down first.
    pub(super) fn set_aside(&self, paths: &[String]) -> Result<(), WorkspaceError> {
        let failed = |path: &str, why: String| {
            WorkspaceError::other(format!("`{path}` cannot be set aside: {why}"))
        };
        let tree = self.tree()?;
        let dir = self.dir.join("aside");
        windlass_host::private::create_dir(&dir)
            .map_err(|err| WorkspaceError::other(err.message))?;
        let mut list = Vec::new();
        for (number, path) in paths.iter().enumerate() {
            if self
                .base
                .stat(path)
                .is_err_and(|err| err.kind == FileErrorKind::NotFound)
            {
                list.push((path.clone(), Aside::Moved));
                continue;
            }
            let image = look(&tree, path).map_err(|err| failed(path, err.message))?;
            if let Image::File { size, .. } = &image {
                let bytes = tree
                    .read(path, *size)
                    .map_err(|err| failed(path, err.message))?;
                std::fs::write(dir.join(number.to_string()), bytes)
                    .map_err(|err| failed(path, err.to_string()))?;
            }
            list.push((path.clone(), Aside::Stored(image)));
        }
        let text =
            serde_json::to_vec(&list).map_err(|err| WorkspaceError::other(err.to_string()))?;
        std::fs::write(dir.join("list.json"), text)
            .map_err(|err| WorkspaceError::other(err.to_string()))?;
        for (number, (path, aside)) in list.iter().enumerate() {
            if matches!(aside, Aside::Moved) {
                move_to(
                    &tree,
                    Path::new(path),
                    &Path::new(ASIDE).join(number.to_string()),
                )
                .map_err(|err| failed(path, err.to_string()))?;
                continue;
            }
            let image = look(&self.base, path).map_err(|err| failed(path, err.message))?;
            let bytes = match &image {
                Image::File { size, .. } => self
                    .base
                    .read(path, *size)
                    .map_err(|err| failed(path, err.message))?,
                _ => Vec::new(),
            };
            put(&tree, path, &image, &bytes).map_err(|why| failed(path, why))?;
        }
        Ok(())
    }

    /// Puts the run's own versions back, also those that a dead process had set aside.
    pub(super) fn put_back(&self) -> Result<(), WorkspaceError> {
        let dir = self.dir.join("aside");
        let Ok(text) = std::fs::read(dir.join("list.json")) else {
            return Ok(());
        };
        let list: Vec<(String, Aside)> = serde_json::from_slice(&text)
            .map_err(|err| WorkspaceError::other(format!("what was set aside: {err}")))?;
        let tree = self.tree()?;
        for (number, (path, aside)) in list.iter().enumerate() {
            let failed =
                |why: String| WorkspaceError::other(format!("`{path}` cannot be put back: {why}"));
            let image = match aside {
                Aside::Stored(image) => image,
                Aside::Moved => {
                    let from = Path::new(ASIDE).join(number.to_string());
                    // What the checks made in its place gives way to what the run made.
                    move_to(&tree, &from, Path::new(path))
                        .map_err(|err| failed(err.to_string()))?;
                    continue;
                }
            };
            let bytes = match image {
                // What cannot be read must not become an empty file: it is the only one of its kind.
                Image::File { .. } => std::fs::read(dir.join(number.to_string()))
                    .map_err(|err| failed(err.to_string()))?,
                _ => Vec::new(),
            };
            put(&tree, path, image, &bytes).map_err(failed)?;
        }
        // What cannot be removed is told of nowhere and lands nowhere. A link in its place goes by itself.
        let _ = std::fs::remove_dir_all(format!(
            "/proc/self/fd/{}/{ASIDE}",
            tree.handle().as_raw_fd()
        ));
        std::fs::remove_dir_all(&dir).map_err(|err| WorkspaceError::other(err.to_string()))
    }
}

/// What was set aside, and how.
#[derive(Debug, Serialize, Deserialize)]
enum Aside {
    /// Its bytes are with the copy.
    Stored(Image),
    /// It was moved within the tree, because there was nothing before; a folder as a whole.
    Moved,
}

/// Moves a file or a folder within a tree; what is in its place goes among the things set aside. No link is followed on
/// the way, whatever the checks have put there. What is not there any more need not be moved.
fn move_to(tree: &Root, from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| {
        path.file_name()
            .map(OsStr::to_owned)
            .ok_or(io::ErrorKind::InvalidInput)
    };
    let (old, new) = (name(from)?, name(to)?);
    let source = match folder(tree, from.parent(), false) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if rustix::fs::statat(&source, &old, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(());
    }
    let target = folder(tree, to.parent(), true)?;
    if rustix::fs::statat(&target, &new, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        let aside = folder(tree, Some(Path::new(ASIDE)), true)?;
        rustix::fs::renameat(
            &target,
            &new,
            &aside,
            format!("in-the-way-{:016x}", windlass_host::clock::random_u64()),
        )?;
    }
    Ok(rustix::fs::renameat(&source, &old, &target, &new)?)
}

/// A folder of a tree, opened step by step as it is. Where it is to be made, what is no folder gives way.
fn folder(tree: &Root, path: Option<&Path>, make: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = tree.handle().try_clone_to_owned()?;
    for name in path.into_iter().flat_map(Path::iter) {
        at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) if make => {
                if errno != Errno::NOENT {
                    rustix::fs::unlinkat(&at, name, AtFlags::empty())?;
                }
                rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                rustix::fs::openat(&at, name, flags, Mode::empty())?
            }
            // A link in the way is nothing that was set aside.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(io::ErrorKind::NotFound.into()),
            other => other?,
        };
    }
    Ok(at)
}

/// Makes a path what an image says.
fn put(tree: &Root, path: &str, image: &Image, bytes: &[u8]) -> Result<(), String> {
    let say = |err: windlass_core::workspace::FileError| err.message;
    if image.is_there() {
        clear_way(tree, path).map_err(say)?;
    }
    match image {
        Image::File { mode, .. } => {
            tree.write(path, bytes).map_err(say)?;
            let mode = rustix::fs::Mode::from_raw_mode(*mode);
            rustix::fs::chmodat(tree.handle(), path, mode, AtFlags::empty())
                .map_err(|err| err.to_string())
        }
        Image::Absent | Image::Link { .. } => {
            match tree.remove(path) {
                Err(err) if err.kind != FileErrorKind::NotFound => return Err(err.message),
                _ => {}
            }
            let Image::Link { target } = image else {
                return Ok(());
            };
            rustix::fs::symlinkat(target.as_str(), tree.handle(), path)
                .map_err(|err| err.to_string())
        }
    }
}

/// Takes away what a command put in the place of a folder that a path is in, so that nothing is written through a link.
fn clear_way(tree: &Root, path: &str) -> Result<(), windlass_core::workspace::FileError> {
    for (at, _) in path.match_indices('/') {
        let above = &path[..at];
        let Ok(stat) = rustix::fs::statat(tree.handle(), above, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(());
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return tree.remove(above);
        }
    }
    Ok(())
}
