//! What commands see: a root in memory that shows the system, the workspace and the granted paths, and nothing else.
//! Sources are taken hold of before the old root goes, and attached without ever following a link on the way.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use super::sys;
use crate::spec::{Access, Spec};

/// Shown as they are, and not writable.
const SYSTEM: &[&str] = &[
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/opt",
    "/sbin",
    "/snap",
    "/usr",
    "/sys/devices/system",
    "/sys/fs/cgroup",
];
/// Devices that hold nothing.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Where the new root is built; any directory that exists will do, because it is covered only for this process.
const BUILDING_SITES: &[&str] = &["/tmp", "/mnt", "/usr"];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;

/// A file that cannot be opened and an empty directory, to stand in the place of others.
pub(crate) struct Blanks {
    pub(crate) file: OwnedFd,
    pub(crate) folder: OwnedFd,
}

/// A source that was taken hold of.
struct Held {
    at: PathBuf,
    what: What,
}

enum What {
    /// A copy of a mount tree, ready to be attached.
    Tree { mount: OwnedFd, folder: bool },
    /// A symbolic link.
    Link(PathBuf),
    /// A private layer over a directory.
    Layered { lower: Option<OwnedFd>, upper: Option<OwnedFd>, work: Option<OwnedFd> },
}

/// Builds the view and makes it the root of this process.
pub(crate) fn build(spec: &Spec) -> Result<Blanks, String> {
    let step = |what: &'static str| move |err: io::Error| format!("{what}: {err}");
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).map_err(|err| format!("the mounts cannot be made private: {err}"))?;
    let held = hold_all(spec).map_err(step("a part of the view cannot be had"))?;
    let root = empty_root().map_err(step("an empty root cannot be made"))?;
    let site = Site { root: root.as_fd() };
    let blanks = site.furnish(spec).map_err(step("the private directories cannot be made"))?;
    for one in held {
        let at = one.at.display().to_string();
        site.attach(one).map_err(|err| format!("`{at}` cannot be shown: {err}"))?;
    }
    for path in &spec.hide {
        site.hide(path, &blanks).map_err(|err| format!("`{}` cannot be hidden: {err}", path.display()))?;
    }
    site.close(spec).map_err(step("the home directory cannot be closed"))?;
    enter(root.as_fd()).map_err(step("the view cannot be entered"))?;
    Ok(blanks)
}

/// Everything that will be shown, parents before what lies in them.
fn hold_all(spec: &Spec) -> io::Result<Vec<Held>> {
    let mut held = Vec::new();
    for place in SYSTEM {
        held.extend(hold(Path::new(place), READ_ONLY | NO_SUID | NO_DEV)?);
    }
    // A view of processes must be there already for one of a command's own to be mounted over it.
    held.extend(hold(Path::new("/proc"), READ_ONLY | NO_SUID | NO_DEV)?);
    for device in DEVICES {
        held.extend(hold(&Path::new("/dev").join(device), NO_SUID)?);
    }
    for place in &spec.read {
        held.extend(hold(place, READ_ONLY | NO_SUID | NO_DEV)?);
    }
    for (number, place) in spec.caches.iter().enumerate() {
        held.push(hold_layered(place, spec.scratch.as_deref(), number)?);
    }
    for place in &spec.write {
        held.extend(hold(place, NO_SUID | NO_DEV)?);
    }
    let root_attr = if spec.access == Access::Write { 0 } else { READ_ONLY };
    let workspace = hold(&spec.root, root_attr | NO_SUID | NO_DEV)?;
    held.push(workspace.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?);
    held.sort_by_key(|one| one.at.components().count());
    Ok(held)
}

/// Takes hold of a path as it is now; nothing where there is nothing.
fn hold(path: &Path, attributes: u64) -> io::Result<Option<Held>> {
    let at = path.to_owned();
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(err) => return Err(err.into()),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        return Ok(Some(Held { at, what: What::Link(std::fs::read_link(path)?) }));
    }
    let mount = clone_tree(rustix::fs::CWD, path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?;
    if attributes != 0 {
        sys::mount_setattr(mount.as_fd(), attributes, true)?;
    }
    Ok(Some(Held { at, what: What::Tree { mount, folder: kind == FileType::Directory } }))
}

fn hold_layered(path: &Path, scratch: Option<&Path>, number: usize) -> io::Result<Held> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lower = rustix::fs::open(path, flags, Mode::empty()).ok();
    let layer = |kind: &str| -> io::Result<Option<OwnedFd>> {
        let Some(scratch) = scratch else { return Ok(None) };
        let folder = scratch.join(format!("{kind}-{number}"));
        match rustix::fs::mkdir(&folder, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(err) => return Err(err.into()),
        }
        Ok(Some(rustix::fs::open(&folder, flags, Mode::empty())?))
    };
    let what = What::Layered { lower, upper: layer("upper")?, work: layer("work")? };
    Ok(Held { at: path.to_owned(), what })
}

pub(crate) fn clone_tree(at: impl AsFd, path: &Path, extra: OpenTreeFlags) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_NO_AUTOMOUNT
        | extra;
    Ok(rustix::mount::open_tree(at, path, flags)?)
}

/// Attaches a mount exactly where a handle is.
pub(crate) fn attach_at(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", target, "", flags)?)
}

fn empty_root() -> io::Result<OwnedFd> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for site in BUILDING_SITES {
        match rustix::mount::mount(
            "tmpfs",
            *site,
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=0755,size=16m",
        ) {
            Ok(()) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                return Ok(rustix::fs::open(*site, flags, Mode::empty())?);
            }
            Err(err) => last = err.into(),
        }
    }
    Err(last)
}

/// The root that is being built.
struct Site<'a> {
    root: BorrowedFd<'a>,
}

impl Site<'_> {
    /// The private directories, and the blanks.
    fn furnish(&self, spec: &Spec) -> io::Result<Blanks> {
        let nothing = self.folder(Path::new("/.windlass/nothing"))?;
        let parent = self.folder(Path::new("/.windlass"))?;
        // A socket that nobody listens at: nobody can open it, root neither, and git passes it over.
        rustix::fs::mknodat(&parent, "blank", FileType::Socket, Mode::empty(), 0)?;
        let file = clone_tree(&parent, Path::new("blank"), OpenTreeFlags::empty())?;
        let folder = clone_tree(&nothing, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
        for blank in [&file, &folder] {
            sys::mount_setattr(blank.as_fd(), READ_ONLY | NO_SUID | NO_DEV, false)?;
        }
        let size = format!("mode=1777,size={}", spec.limits.temporary);
        self.private(Path::new("/tmp"), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, &size)?;
        self.private(Path::new("/dev/shm"), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, &size)?;
        let pts = "newinstance,ptmxmode=0666,mode=620";
        self.private(Path::new("/dev/pts"), "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, pts)?;
        let dev = self.folder(Path::new("/dev"))?;
        for (name, to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            rustix::fs::symlinkat(to, &dev, name)?;
        }
        self.folder(Path::new("/run"))?;
        let var = self.folder(Path::new("/var"))?;
        rustix::fs::symlinkat("/tmp", &var, "tmp")?;
        rustix::fs::symlinkat("/run", &var, "run")?;
        if let Some(home) = home_of(spec) {
            self.private(home, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=0755,size=16m")?;
        }
        Ok(Blanks { file, folder })
    }

    /// What was only writable while it was furnished.
    fn close(&self, spec: &Spec) -> io::Result<()> {
        let Some(home) = home_of(spec) else { return Ok(()) };
        sys::mount_setattr(self.folder(home)?.as_fd(), READ_ONLY | NO_SUID | NO_DEV, false)
    }

    fn private(&self, at: &Path, kind: &str, flags: MountFlags, data: &str) -> io::Result<()> {
        let target = self.folder(at)?;
        let data = std::ffi::CString::new(data)?;
        Ok(rustix::mount::mount(kind, proc_path(&target), kind, flags, data.as_c_str())?)
    }

    fn attach(&self, held: Held) -> io::Result<()> {
        let target = |folder: bool| if folder { self.folder(&held.at) } else { self.file(&held.at) };
        match held.what {
            What::Link(to) => {
                let (parent, name) = split(&held.at)?;
                match rustix::fs::symlinkat(to, self.folder(parent)?, name) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                    Err(err) => Err(err.into()),
                }
            }
            What::Tree { mount, folder } => attach_at(mount.as_fd(), target(folder)?.as_fd()),
            What::Layered { lower, upper, work } => {
                let target = self.folder(&held.at)?;
                let Some(lower) = lower else { return self.own_folder(&target, upper) };
                if layer(&lower, upper.as_ref().zip(work.as_ref()), &target).is_err() {
                    // A file system that cannot be layered is shown as it is; then the cache cannot be written.
                    let mount = clone_tree(&lower, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
                    sys::mount_setattr(mount.as_fd(), READ_ONLY | NO_SUID | NO_DEV, true)?;
                    attach_at(mount.as_fd(), target.as_fd())?;
                }
                Ok(())
            }
        }
    }

    /// A cache that is not there yet: private from the start.
    fn own_folder(&self, target: &OwnedFd, upper: Option<OwnedFd>) -> io::Result<()> {
        match upper {
            Some(upper) => {
                let mount = clone_tree(&upper, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
                sys::mount_setattr(mount.as_fd(), NO_SUID | NO_DEV, false)?;
                attach_at(mount.as_fd(), target.as_fd())
            }
            None => {
                let flags = MountFlags::NOSUID | MountFlags::NODEV;
                Ok(rustix::mount::mount("tmpfs", proc_path(target), "tmpfs", flags, c"mode=0755")?)
            }
        }
    }

    fn hide(&self, path: &Path, blanks: &Blanks) -> io::Result<()> {
        let Some(target) = self.look(path)? else { return Ok(()) };
        cover_with(blanks, target.as_fd())
    }

    /// The directory at a path, made where it is missing.
    fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut at = self.root.try_clone_to_owned()?;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                    rustix::fs::openat(&at, name, flags, Mode::empty())?
                }
                other => other?,
            };
        }
        Ok(at)
    }

    /// The file at a path, made where it is missing, to be covered.
    fn file(&self, path: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = split(path)?;
        let parent = self.folder(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(rustix::fs::openat(&parent, name, make, Mode::from_raw_mode(0o444))?);
                Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
            }
            other => Ok(other?),
        }
    }

    /// What is at a path in the view, if anything; links lead nowhere new here, so they are not followed.
    fn look(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(self.root, inside, flags, Mode::empty(), resolve) {
            Ok(found) => Ok(Some(found)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => Ok(None),
            Err(err) => Err(err.into()),
        }
    }
}

/// Puts an empty file or directory over what a handle is.
pub(crate) fn cover_with(blanks: &Blanks, target: BorrowedFd<'_>) -> io::Result<()> {
    let stat = rustix::fs::statat(target, "", AtFlags::EMPTY_PATH)?;
    let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let blank = if folder { &blanks.folder } else { &blanks.file };
    let mount = clone_tree(blank, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
    attach_at(mount.as_fd(), target)
}

/// Puts a private layer over a directory; in memory when no place is given.
fn layer(lower: &OwnedFd, layers: Option<(&OwnedFd, &OwnedFd)>, target: &OwnedFd) -> io::Result<()> {
    let Some((upper, work)) = layers else { return Err(io::Error::from(io::ErrorKind::Unsupported)) };
    let [lower, upper, work] = [lower, upper, work].map(proc_path);
    let data = format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr");
    let data = std::ffi::CString::new(data)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("overlay", proc_path(target), "overlay", flags, data.as_c_str())?)
}

fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    sys::pivot_root_here()?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    let here = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    sys::mount_setattr(here.as_fd(), READ_ONLY | NO_SUID | NO_DEV, false)
}

/// A home that is shown empty: none where the workspace itself holds it.
fn home_of(spec: &Spec) -> Option<&Path> {
    spec.home.as_deref().filter(|home| home.parent().is_some() && !home.starts_with(&spec.root))
}

fn split(path: &Path) -> io::Result<(&Path, &std::ffi::OsStr)> {
    path.parent().zip(path.file_name()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A handle as a path, for calls that take only paths.
fn proc_path(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// Freezes what a handle is: a copy of itself over itself that cannot be written.
pub(crate) fn freeze(target: BorrowedFd<'_>, writable: bool) -> io::Result<()> {
    let mount = clone_tree(target, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
    if !writable {
        sys::mount_setattr(mount.as_fd(), READ_ONLY, true)?;
    }
    attach_at(mount.as_fd(), target)
}
