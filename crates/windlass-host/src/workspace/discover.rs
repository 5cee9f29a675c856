//! Finds and opens the directory of a workspace. The home directory is an argument: this module reads no environment
//! variable.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;

/// The reason why a directory cannot be a workspace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}: no such directory; give the path of an existing project directory")]
    Missing(PathBuf),
    #[error("{0} is not a directory; give the directory that holds the project")]
    NotADirectory(PathBuf),
    #[error("{0} cannot be read: permission denied; check its mode and owner")]
    Unreadable(PathBuf),
    /// The directory contains far more than one project.
    #[error(
        "{0} is refused as a workspace because it holds more than one project; change to a project directory"
    )]
    Unfit(PathBuf),
    #[error("{path} cannot be opened: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl OpenError {
    fn of(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOENT => Self::Missing(path),
            Errno::NOTDIR => Self::NotADirectory(path),
            Errno::ACCESS | Errno::PERM => Self::Unreadable(path),
            other => Self::Io {
                path,
                source: other.into(),
            },
        }
    }
}

/// Returns the git top level above `start`, or `start` itself if there is none. `unfit` directories and `/` are not
/// accepted as a top level, so that a home directory under git does not become the workspace of each project in it.
pub fn discover(start: &Path, unfit: &[PathBuf]) -> Result<PathBuf, OpenError> {
    let (_, start) = open_dir(start)?;
    let top = start
        .ancestors()
        .take_while(|dir| refuse_unfit(dir, unfit).is_ok())
        // `.git` is a directory in a clone and a file in a worktree or a submodule.
        .find(|dir| rustix::fs::stat(dir.join(".git")).is_ok());
    Ok(top.unwrap_or(&start).to_owned())
}

pub(super) fn open_dir(path: &Path) -> Result<(OwnedFd, PathBuf), OpenError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| OpenError::of(path, errno))?;
    // Opening needs only read permission; working in the directory needs execute permission.
    rustix::fs::accessat(&fd, ".", Access::EXEC_OK, rustix::fs::AtFlags::empty())
        .map_err(|errno| OpenError::of(path, errno))?;
    let real = std::fs::canonicalize(path).map_err(|source| OpenError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok((fd, real))
}

pub(super) fn refuse_unfit(real: &Path, unfit: &[PathBuf]) -> Result<(), OpenError> {
    let same = |dir: &PathBuf| {
        // A home directory is often a symlink; compare its target.
        dir == real || std::fs::canonicalize(dir).is_ok_and(|dir| dir == real)
    };
    if real.parent().is_none() || unfit.iter().any(same) {
        return Err(OpenError::Unfit(real.to_owned()));
    }
    Ok(())
}
