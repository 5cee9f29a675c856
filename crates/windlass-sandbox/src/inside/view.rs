//! Builds the file system that commands see: a new root in memory (tmpfs) with the system directories, the workspace
//! and the granted paths mounted in it, and nothing else.
//!
//! The order matters. All sources are opened as detached mounts while the old root is still there ([`open_sources`]).
//! Then the new root is built, the sources are attached, hidden paths are masked, and `pivot_root` makes it the root of
//! this process ([`enter`]). Paths are resolved component by component without following symlinks, so that no symlink
//! in the workspace can redirect a mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::covers::open_if_present;
use super::overlay::{OverlayDirs, handle_path, open_folder};
use super::{Refusal, sys};
use crate::spec::{AGENT_HOME, Access, AgentHome, Spec, Tree};

/// Directories that commands see read-only.
pub(crate) const SYSTEM: &[&str] = &[
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
/// Device files that give no access to hardware.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Directories over which the new root can be mounted while it is built. Any existing one works, because only this
/// process sees the mount.
const ROOT_MOUNT_POINTS: &[&str] = &["/tmp", "/mnt", "/usr"];

/// The second directory for temporary files. It is a symlink to `/tmp`, unless a granted path lies below it.
pub(crate) const VAR_TMP: &str = "/var/tmp";

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;

/// The path of the overlays of single commands in the view. Each first process unmounts it before its program starts.
pub(crate) const COMMAND_LAYERS: &str = "/.windlass/layers";
const BLANK_FILE: &str = "/.windlass/blank";
const BLANK_FOLDER: &str = "/.windlass/nothing";

/// A file that cannot be opened and an empty directory, which are mounted over paths to hide them. They lie in the
/// view, because not every kernel can clone a detached mount.
pub(crate) struct Blanks {
    file: OwnedFd,
    folder: OwnedFd,
}

impl Blanks {
    /// Opens those of the view that this process is in.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &str| rustix::fs::open(path, flags, Mode::empty());
        Ok(Self {
            file: open(BLANK_FILE)?,
            folder: open(BLANK_FOLDER)?,
        })
    }
}

/// A source that was opened before the old root goes away.
struct ViewSource {
    at: PathBuf,
    what: SourceKind,
}

enum SourceKind {
    /// A clone of a mount tree, ready to be attached.
    Tree { mount: OwnedFd, folder: bool },
    /// A symlink with its target.
    Link(PathBuf),
    /// An empty home directory.
    Home,
    /// A private overlay; building the view fails if it cannot be mounted.
    Layered(OverlayDirs),
    /// A cache directory with a private overlay, if that can be mounted.
    Cache {
        lower: Option<OwnedFd>,
        upper: Option<OwnedFd>,
        work: Option<OwnedFd>,
    },
}

/// A view that was built and entered.
pub(crate) struct BuiltView {
    pub(crate) blanks: Blanks,
    /// The directory at the workspace's path, if it is not the workspace itself, without the mounts over parts of it.
    pub(crate) tree: Option<OwnedFd>,
}

/// Builds the view and makes it the root of this process.
pub(crate) fn build(spec: &Spec) -> Result<BuiltView, Refusal> {
    let step = |what: &'static str| move |err: io::Error| format!("{what}: {err}");
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)
        .map_err(|err| format!("cannot make the mounts private: {err}"))?;
    let held = open_sources(spec)?;
    let root = empty_root().map_err(step("cannot mount an empty root"))?;
    let builder = RootBuilder { root: root.as_fd() };
    let blanks = builder
        .add_private_dirs(spec)
        .map_err(step("cannot create the private directories"))?;
    let mut tree = None;
    for one in held {
        let (at, workspace) = (
            format!("cannot mount `{}`", one.at.display()),
            one.at == spec.root,
        );
        builder.attach(one).map_err(|why| why.about(&at))?;
        if workspace {
            tree = builder
                .finish_workspace(spec)
                .map_err(step("cannot clone the workspace's mount"))?;
        }
    }
    for path in &spec.hide {
        builder
            .hide(path, &blanks)
            .map_err(|err| format!("cannot hide `{}`: {err}", path.display()))?;
    }
    builder
        .make_home_read_only(spec)
        .map_err(step("cannot make the home directory read-only"))?;
    enter(root.as_fd()).map_err(step("cannot enter the view"))?;
    Ok(BuiltView { blanks, tree })
}

/// Opens everything that commands will see, parents before their children.
fn open_sources(spec: &Spec) -> Result<Vec<ViewSource>, Refusal> {
    let mut held =
        open_granted(spec).map_err(|err| format!("cannot open a part of the view: {err}"))?;
    // A home below a system directory, such as /opt, must be mounted after that directory.
    if let Some(home) = home_of(spec).filter(|home| is_in_system(home)) {
        let (at, what) = (home.to_owned(), SourceKind::Home);
        held.insert(0, ViewSource { at, what });
    }
    if let Some(home) = &spec.agent {
        held.extend(open_agent_home(home)?);
    }
    for one in &spec.layers {
        let what = SourceKind::Layered(OverlayDirs::open(&one.at, &one.upper, &one.work)?);
        held.push(ViewSource {
            at: one.at.clone(),
            what,
        });
    }
    let workspace = |from: &Path| -> Result<SourceKind, Refusal> {
        let why = |err| format!("cannot open the workspace `{}`: {err}", from.display());
        Ok(open_required(from, NO_SUID | NO_DEV, why)?.what)
    };
    let what = match &spec.tree {
        Tree::Itself => workspace(&spec.root)?,
        Tree::Copy { from } => workspace(from)?,
        Tree::Layered {
            upper,
            work,
            between,
        } => SourceKind::Layered(
            OverlayDirs::open(&spec.root, upper, work)?.over(between.as_deref())?,
        ),
    };
    held.push(ViewSource {
        at: spec.root.clone(),
        what,
    });
    held.sort_by_key(|one| one.at.components().count());
    Ok(held)
}

/// Opens the system directories and the granted paths. Leaves out granted paths in a copy or an overlay: they exist
/// there already, and the original must not be visible.
fn open_granted(spec: &Spec) -> io::Result<Vec<ViewSource>> {
    let own = spec
        .layers
        .iter()
        .map(|one| &one.at)
        .chain((spec.tree != Tree::Itself).then_some(&spec.root));
    let own: Vec<&PathBuf> = own.collect();
    let granted = |path: &&PathBuf| !own.iter().any(|own| path.starts_with(own));
    let mut held = Vec::new();
    for place in SYSTEM {
        held.extend(open_source(Path::new(place), READ_ONLY | NO_SUID | NO_DEV)?);
    }
    // The kernel mounts a command's own `/proc` only if another one is already visible.
    held.extend(open_source(
        Path::new("/proc"),
        READ_ONLY | NO_SUID | NO_DEV,
    )?);
    for device in DEVICES {
        held.extend(open_source(&Path::new("/dev").join(device), NO_SUID)?);
    }
    for place in spec.read.iter().filter(granted) {
        held.extend(open_source(place, READ_ONLY | NO_SUID | NO_DEV)?);
    }
    for (number, place) in spec.caches.iter().filter(granted).enumerate() {
        held.push(open_cache(place, spec.scratch.as_deref(), number)?);
    }
    for place in spec.write.iter().filter(granted) {
        held.extend(open_source(place, NO_SUID | NO_DEV)?);
    }
    if let Some(place) = &spec.command_layers {
        let found = open_source(place, NO_SUID | NO_DEV)?;
        held.extend(found.map(|one| ViewSource {
            at: COMMAND_LAYERS.into(),
            ..one
        }));
    }
    Ok(held)
}

/// Opens the home of an agent and the single files that are mounted in it.
fn open_agent_home(home: &AgentHome) -> Result<Vec<ViewSource>, Refusal> {
    let show = |from: &Path, at: PathBuf, attributes: u64| -> Result<ViewSource, Refusal> {
        let why = |err| format!("cannot show `{}` to the agent: {err}", from.display());
        let found = open_required(from, attributes, why)?;
        Ok(ViewSource { at, ..found })
    };
    let mut held = vec![show(&home.from, AGENT_HOME.into(), NO_SUID | NO_DEV)?];
    for (from, name) in &home.files {
        let plain = name
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.file_name().is_none() {
            return Err(Refusal::Invalid(format!(
                "`{}` is not a relative path in the agent's home",
                name.display()
            )));
        }
        held.push(show(
            from,
            Path::new(AGENT_HOME).join(name),
            READ_ONLY | NO_SUID | NO_DEV,
        )?);
    }
    Ok(held)
}

/// Opens a path that must exist.
fn open_required(
    path: &Path,
    attributes: u64,
    why: impl FnOnce(io::Error) -> String,
) -> Result<ViewSource, Refusal> {
    open_source(path, attributes)
        .and_then(|one| one.ok_or(io::ErrorKind::NotFound.into()))
        .map_err(|err| Refusal::Invalid(why(err)))
}

/// Opens a path as a detached mount; returns `None` if it does not exist or is not accessible.
fn open_source(path: &Path, attributes: u64) -> io::Result<Option<ViewSource>> {
    let at = path.to_owned();
    let stat = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => {
            return Ok(None);
        }
        Err(err) => return Err(err.into()),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        return Ok(Some(ViewSource {
            at,
            what: SourceKind::Link(std::fs::read_link(path)?),
        }));
    }
    let mount = clone_tree(rustix::fs::CWD, path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?;
    if attributes != 0 {
        sys::mount_setattr(mount.as_fd(), attributes, true)?;
    }
    Ok(Some(ViewSource {
        at,
        what: SourceKind::Tree {
            mount,
            folder: kind == FileType::Directory,
        },
    }))
}

fn open_cache(path: &Path, scratch: Option<&Path>, number: usize) -> io::Result<ViewSource> {
    let lower = open_folder(path).ok();
    let layer = |kind: &str| scratch.map(|scratch| scratch.join(format!("{kind}-{number}")));
    // A cache that does not exist yet needs no overlay.
    let work = lower.as_ref().and_then(|_| layer("work"));
    let what = SourceKind::Cache {
        lower,
        upper: layer("upper").map(make_folder).transpose()?,
        work: work.map(make_folder).transpose()?,
    };
    Ok(ViewSource {
        at: path.to_owned(),
        what,
    })
}

fn make_folder(path: PathBuf) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(&path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => open_folder(&path),
        Err(err) => Err(err.into()),
    }
}

pub(crate) fn clone_tree(at: impl AsFd, path: &Path, extra: OpenTreeFlags) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_NO_AUTOMOUNT
        | extra;
    Ok(rustix::mount::open_tree(at, path, flags)?)
}

/// Clones one mount without the mounts below it.
fn clone_one(mount: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(mount, "", flags)?)
}

/// Attaches a mount exactly at the directory or file that is open as `target`.
pub(crate) fn attach_at(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", target, "", flags)?)
}

fn empty_root() -> io::Result<OwnedFd> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for builder in ROOT_MOUNT_POINTS {
        match rustix::mount::mount(
            "tmpfs",
            *builder,
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=0755,size=16m",
        ) {
            Ok(()) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                return Ok(rustix::fs::open(*builder, flags, Mode::empty())?);
            }
            Err(err) => last = err.into(),
        }
    }
    Err(last)
}

/// The new root while it is being built.
struct RootBuilder<'a> {
    root: BorrowedFd<'a>,
}

impl RootBuilder<'_> {
    /// Creates the private directories, the devices and the blanks.
    fn add_private_dirs(&self, spec: &Spec) -> io::Result<Blanks> {
        let folder = self.folder(Path::new(BLANK_FOLDER))?;
        let (parent, name) = split(Path::new(BLANK_FILE))?;
        // A socket without a listener: no process can open it, not even root, and git ignores it.
        rustix::fs::mknodat(
            self.folder(parent)?,
            name,
            FileType::Socket,
            Mode::empty(),
            0,
        )?;
        let file = self.file(Path::new(BLANK_FILE))?;
        let size = format!("mode=1777,size={}", spec.limits.temporary);
        self.mount_tmpfs(Path::new("/tmp"), &size)?;
        self.mount_tmpfs(Path::new("/dev/shm"), &size)?;
        let pts = "newinstance,ptmxmode=0666,mode=620";
        self.mount_private(
            Path::new("/dev/pts"),
            "devpts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            pts,
        )?;
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
        if spec.shows_below(Path::new(VAR_TMP)) {
            self.mount_tmpfs(Path::new(VAR_TMP), &size)?;
        } else {
            rustix::fs::symlinkat("/tmp", &var, "tmp")?;
        }
        rustix::fs::symlinkat("/run", &var, "run")?;
        if let Some(home) = home_of(spec).filter(|home| !is_in_system(home)) {
            self.mount_tmpfs(home, HOME)?;
        }
        Ok(Blanks { file, folder })
    }

    /// Makes the home directory read-only, now that everything is mounted in it.
    fn make_home_read_only(&self, spec: &Spec) -> io::Result<()> {
        let Some(home) = home_of(spec) else {
            return Ok(());
        };
        sys::mount_setattr(
            self.folder(home)?.as_fd(),
            READ_ONLY | NO_SUID | NO_DEV,
            false,
        )
    }

    /// Mounts a tmpfs at a path.
    fn mount_tmpfs(&self, at: &Path, options: &str) -> io::Result<()> {
        self.mount_private(at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)
    }

    fn mount_private(
        &self,
        at: &Path,
        kind: &str,
        flags: MountFlags,
        data: &str,
    ) -> io::Result<()> {
        let target = self.folder(at)?;
        let data = std::ffi::CString::new(data)?;
        Ok(rustix::mount::mount(
            kind,
            handle_path(target.as_fd()),
            kind,
            flags,
            data.as_c_str(),
        )?)
    }

    fn attach(&self, held: ViewSource) -> Result<(), Refusal> {
        let target = |folder: bool| {
            if folder {
                self.folder(&held.at)
            } else {
                self.file(&held.at)
            }
        };
        match held.what {
            SourceKind::Link(to) => {
                let (parent, name) = split(&held.at)?;
                match rustix::fs::symlinkat(to, self.folder(parent)?, name) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                    Err(err) => Err(err.into()),
                }
            }
            SourceKind::Home => Ok(self.mount_tmpfs(&held.at, HOME)?),
            SourceKind::Tree { mount, folder } => {
                Ok(attach_at(mount.as_fd(), target(folder)?.as_fd())?)
            }
            SourceKind::Layered(parts) => parts.mount(|| self.folder(&held.at)).map(drop),
            SourceKind::Cache {
                lower: None, upper, ..
            } => Ok(self.mount_new_cache(&held.at, upper)?),
            SourceKind::Cache {
                lower: Some(lower),
                upper,
                work,
            } => {
                let lower = match upper.zip(work) {
                    Some((upper, work)) => {
                        let parts = OverlayDirs {
                            lower,
                            upper,
                            work,
                            between: None,
                        };
                        if parts.mount(|| self.folder(&held.at)).is_ok() {
                            return Ok(());
                        }
                        parts.lower
                    }
                    None => lower,
                };
                // This file system cannot be under an overlay. Mount the cache itself, read-only.
                let mount = clone_tree(&lower, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
                sys::mount_setattr(mount.as_fd(), READ_ONLY | NO_SUID | NO_DEV, true)?;
                Ok(attach_at(mount.as_fd(), self.folder(&held.at)?.as_fd())?)
            }
        }
    }

    /// Finishes the directory at the workspace's path: clones it for the caller if it is not the workspace itself, and
    /// makes it read-only for a read-only session.
    fn finish_workspace(&self, spec: &Spec) -> io::Result<Option<OwnedFd>> {
        let shown = self.folder(&spec.root)?;
        let tree = match &spec.tree {
            Tree::Itself => None,
            Tree::Layered { .. } | Tree::Copy { .. } => Some(clone_one(&shown)?),
        };
        if spec.access == Access::ReadOnly {
            sys::mount_setattr(shown.as_fd(), READ_ONLY, true)?;
        }
        Ok(tree)
    }

    /// Mounts an empty private directory for a cache that does not exist yet.
    fn mount_new_cache(&self, at: &Path, upper: Option<OwnedFd>) -> io::Result<()> {
        let Some(upper) = upper else {
            return self.mount_tmpfs(at, "mode=0755");
        };
        let mount = clone_tree(&upper, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
        sys::mount_setattr(mount.as_fd(), NO_SUID | NO_DEV, false)?;
        attach_at(mount.as_fd(), self.folder(at)?.as_fd())
    }

    fn hide(&self, path: &Path, blanks: &Blanks) -> io::Result<()> {
        // Symlinks are not followed: their targets are hidden under their own paths.
        let inside = path.strip_prefix("/").unwrap_or(path);
        match open_if_present(self.root, inside)? {
            Some(target) => cover_with(blanks, target.as_fd()),
            None => Ok(()),
        }
    }

    /// Opens the directory at a path, and creates it if it is missing.
    fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut at = self.root.try_clone_to_owned()?;
        for part in path.components() {
            let Component::Normal(name) = part else {
                continue;
            };
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

    /// Opens the file at a path as a mount point, and creates it if it is missing.
    fn file(&self, path: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = split(path)?;
        let parent = self.folder(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(rustix::fs::openat(
                    &parent,
                    name,
                    make,
                    Mode::from_raw_mode(0o444),
                )?);
                Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
            }
            other => Ok(other?),
        }
    }
}

/// Mounts an empty directory, or a file that cannot be opened, over `target`.
pub(crate) fn cover_with(blanks: &Blanks, target: BorrowedFd<'_>) -> io::Result<()> {
    let stat = rustix::fs::statat(target, "", AtFlags::EMPTY_PATH)?;
    let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let blank = if folder { &blanks.folder } else { &blanks.file };
    let mount = clone_tree(blank, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
    sys::mount_setattr(mount.as_fd(), READ_ONLY | NO_SUID | NO_DEV, false)?;
    attach_at(mount.as_fd(), target)
}

fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    let here = open_folder(Path::new("/"))?;
    sys::mount_setattr(here.as_fd(), READ_ONLY | NO_SUID | NO_DEV, false)
}

/// Returns the home directory that is shown empty; `None` if it lies in the workspace.
fn home_of(spec: &Spec) -> Option<&Path> {
    spec.home
        .as_deref()
        .filter(|home| home.parent().is_some() && !home.starts_with(&spec.root))
}

/// Mount options of the empty home directory.
const HOME: &str = "mode=0755,size=16m";

/// Returns whether a path lies below one of the system directories.
fn is_in_system(path: &Path) -> bool {
    SYSTEM
        .iter()
        .any(|place| path.starts_with(place) && path != Path::new(place))
}

fn split(path: &Path) -> io::Result<(&Path, &std::ffi::OsStr)> {
    path.parent()
        .zip(path.file_name())
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Mounts `target` over itself, so that it cannot be renamed or removed; read-only unless `writable`.
pub(crate) fn freeze(target: BorrowedFd<'_>, writable: bool) -> io::Result<()> {
    let mount = clone_tree(target, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
    if !writable {
        sys::mount_setattr(mount.as_fd(), READ_ONLY, true)?;
    }
    attach_at(mount.as_fd(), target)
}
