//! A private layer over a directory: what is written goes to another directory, and the first one stays as it is. All
//! is mounted by handles, and with options that are the same on every kernel, whatever its defaults are.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use super::Refusal;

/// How the kernel is to layer. A directory is never renamed by a note in the layer (`renames.rs` moves what is in it instead), a file is copied whole, and numbers of files are as they come: so a layer can be read without the
/// kernel, and be put on again. What is written out to the disk, and when, is the caller's: without the last word the
/// kernel would write out everything on the disk whenever a layer goes, whoever wrote it.
const OPTIONS: &str = "userxattr,redirect_dir=nofollow,metacopy=off,index=off,xino=off,volatile";
/// The kernel's mark of such a layer, by which it refuses it a second time: it cannot know whether the machine went
/// down in between. Whoever keeps a layer writes it out, so that it may be put on again.
const MARK: &str = "work/incompat/volatile";
/// A note that says nothing, to see whether the file system keeps notes: without them a directory that was made anew
/// would show what the old one held.
const NOTE: &str = "user.windlass.probe";

/// The directories of a layer, taken hold of.
pub(crate) struct Parts {
    /// What is under it.
    pub(crate) lower: OwnedFd,
    /// What takes the writes.
    pub(crate) upper: OwnedFd,
    /// Where the kernel prepares them.
    pub(crate) work: OwnedFd,
    /// Another layer between the two.
    pub(crate) between: Option<OwnedFd>,
}

impl Parts {
    /// Takes hold of them by their paths. All must be there, and `lower` must be canonical.
    pub(crate) fn hold(lower: &Path, upper: &Path, work: &Path) -> Result<Self, Refusal> {
        let open = |path: &Path| {
            open_folder(path)
                .map_err(|err| Refusal::Unavailable(format!("`{}`: {err}", path.display())))
        };
        // The kernel lets a layer lie in what is under it; then it would be seen there, and what is written with it.
        let within = |one: &Path| {
            one.canonicalize()
                .is_ok_and(|one| one.starts_with(lower) || lower.starts_with(one))
        };
        if within(upper) || within(work) {
            let (upper, lower) = (upper.display(), lower.display());
            return Err(Refusal::Invalid(format!(
                "the layer `{upper}` must lie outside of `{lower}`"
            )));
        }
        Ok(Self {
            lower: open(lower)?,
            upper: open(upper)?,
            work: open(work)?,
            between: None,
        })
    }

    /// The same with another layer between the two.
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

    /// Puts the layer over a directory that is opened by `open`, and gives what is seen there then. Where that cannot
    /// be done here at all, the refusal says so.
    pub(crate) fn mount(&self, open: impl Fn() -> io::Result<OwnedFd>) -> Result<OwnedFd, Refusal> {
        self.attempt(open).map_err(|err| match err.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
                Refusal::Unavailable(format!("no layer can be put over the directory: {err}"))
            }
            _ => Refusal::NoLayers(format!(
                "no layer can be put over the directory here: {err}"
            )),
        })
    }

    fn attempt(&self, open: impl Fn() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
        let [lower, upper, work] =
            [&self.lower, &self.upper, &self.work].map(|handle| handle_path(handle.as_fd()));
        rustix::fs::setxattr(upper.as_str(), NOTE, b"", XattrFlags::empty())?;
        rustix::fs::removexattr(upper.as_str(), NOTE)?;
        match std::fs::remove_dir_all(format!("{work}/{MARK}")) {
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
        // One that the kernel cannot write to is mounted all the same.
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

/// Takes away what is mounted at a path, once nobody uses it any more.
pub(crate) fn detach(path: &Path) -> rustix::io::Result<()> {
    rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// A directory as it is at its path, not what a link there leads to.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A handle as a path, for calls that take only paths.
pub(crate) fn handle_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}
