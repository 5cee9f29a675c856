//! Mounts a private overlay (the kernel's overlayfs) over a directory: writes go to another directory, and the original
//! stays unchanged. Everything is mounted through file descriptors, and all options are explicit, because their
//! defaults differ between kernels.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use super::Refusal;

/// The mount options. Without redirects, overlayfs refuses to rename a directory of the lower layer, and `renames.rs`
/// moves its entries instead. Without `metacopy` a changed file is copied whole. So the upper directory can be read
/// without mounting it, and be mounted again later.
///
/// `volatile` leaves syncing to the caller. Without it the kernel would sync the whole file system at every unmount,
/// including other programs' writes.
const OPTIONS: &str = "userxattr,redirect_dir=nofollow,metacopy=off,index=off,xino=off,volatile";
/// The kernel creates this marker in a `volatile` overlay and then refuses to mount it again, because the machine might
/// have crashed in between. Callers that keep an overlay sync it themselves, so the marker is removed.
const VOLATILE_MARKER: &str = "work/incompat/volatile";
/// An extended attribute that tests whether the file system supports them. Without them overlayfs cannot mark a
/// directory that was deleted and created again as opaque, and it would show the old entries.
const PROBE_ATTRIBUTE: &str = "user.windlass.probe";

/// The open directories of an overlay.
pub(crate) struct OverlayDirs {
    /// The original directory, which is never written to.
    pub(crate) lower: OwnedFd,
    /// The directory that receives the writes.
    pub(crate) upper: OwnedFd,
    /// The kernel's work directory.
    pub(crate) work: OwnedFd,
    /// The upper directory of another overlay, between `upper` and `lower`.
    pub(crate) between: Option<OwnedFd>,
}

impl OverlayDirs {
    /// Opens the directories. All must exist, and `lower` must be canonical.
    pub(crate) fn open(lower: &Path, upper: &Path, work: &Path) -> Result<Self, Refusal> {
        let open = |path: &Path| {
            open_folder(path)
                .map_err(|err| Refusal::Unavailable(format!("`{}`: {err}", path.display())))
        };
        // The kernel allows an upper directory inside the lower one; commands would then see it, and everything written
        // to it.
        let within = |one: &Path| {
            one.canonicalize()
                .is_ok_and(|one| one.starts_with(lower) || lower.starts_with(one))
        };
        if within(upper) || within(work) {
            let (upper, lower) = (upper.display(), lower.display());
            return Err(Refusal::Invalid(format!(
                "the overlay directory `{upper}` must lie outside of `{lower}`"
            )));
        }
        Ok(Self {
            lower: open(lower)?,
            upper: open(upper)?,
            work: open(work)?,
            between: None,
        })
    }

    /// Adds another overlay between `upper` and `lower`.
    pub(crate) fn over(self, between: Option<&Path>) -> Result<Self, Refusal> {
        let open = |path: &Path| {
            open_folder(path)
                .map_err(|err| Refusal::Unavailable(format!("`{}`: {err}", path.display())))
        };
        Ok(Self {
            between: between.map(open).transpose()?,
            ..self
        })
    }

    /// Mounts the overlay over the directory that `open` opens, and returns the mounted root. The refusal tells whether
    /// overlays cannot work here at all.
    pub(crate) fn mount(&self, open: impl Fn() -> io::Result<OwnedFd>) -> Result<OwnedFd, Refusal> {
        self.attempt(open).map_err(|err| match err.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
                Refusal::Unavailable(format!("cannot mount an overlay over the directory: {err}"))
            }
            _ => Refusal::NoLayers(format!("overlays do not work on this directory: {err}")),
        })
    }

    fn attempt(&self, open: impl Fn() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
        let [lower, upper, work] =
            [&self.lower, &self.upper, &self.work].map(|handle| handle_path(handle.as_fd()));
        rustix::fs::setxattr(upper.as_str(), PROBE_ATTRIBUTE, b"", XattrFlags::empty())?;
        rustix::fs::removexattr(upper.as_str(), PROBE_ATTRIBUTE)?;
        match std::fs::remove_dir_all(format!("{work}/{VOLATILE_MARKER}")) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let between = self.between.as_ref().map_or(String::new(), |handle| {
            format!("{}:", handle_path(handle.as_fd()))
        });
        let data = CString::new(format!(
            "lowerdir={between}{lower},upperdir={upper},workdir={work},{OPTIONS}"
        ))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(
            "overlay",
            handle_path(open()?.as_fd()),
            "overlay",
            flags,
            data.as_c_str(),
        )?;
        // If the kernel cannot write to the upper directory, it mounts the overlay read-only without an error.
        let mounted = open()?;
        match rustix::fs::fstatvfs(&mounted)?
            .f_flag
            .contains(StatVfsMountFlags::RDONLY)
        {
            true => Err(io::Error::from_raw_os_error(libc::EROFS)),
            false => Ok(mounted),
        }
    }
}

/// Unmounts a path; the kernel does so as soon as no process uses the mount.
pub(crate) fn detach(path: &Path) -> rustix::io::Result<()> {
    rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Opens a directory without following a symlink at its path.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Returns a path that leads to an open file, for system calls that take only paths.
pub(crate) fn handle_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}
