//! What commands see: a root in memory that shows the system, the workspace and the granted paths, and nothing else.
//! Sources are taken hold of before the old root goes, and attached without ever following a link on the way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::covers::look;
use super::layer::{Parts, handle_path, open_folder};
use super::{Refusal, sys};
use crate::spec::{AGENT_HOME, Access, AgentHome, Spec, Tree};

/// Shown as they are, and not writable.
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
/// Devices that hold nothing.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Where the new root is built; any directory that exists will do, because it is covered only for this process.
const BUILDING_SITES: &[&str] = &["/tmp", "/mnt", "/usr"];

/// The other place for temporary files: the same as the first, unless something of the person's is below it.
pub(crate) const VAR_TMP: &str = "/var/tmp";

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;

/// Where the layers of single commands are in the view; each command takes it away before its program starts.
pub(crate) const COMMAND_LAYERS: &str = "/.windlass/layers";
const BLANK_FILE: &str = "/.windlass/blank";
const BLANK_FOLDER: &str = "/.windlass/nothing";

/// A file that cannot be opened and an empty directory, to stand in the place of others. They are in the view, because
/// not every kernel copies a mount that is nowhere.
pub(crate) struct Blanks {
    file: OwnedFd,
    folder: OwnedFd,
}

impl Blanks {
    /// Those of the view that this process is in.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &str| rustix::fs::open(path, flags, Mode::empty());
        Ok(Self {
            file: open(BLANK_FILE)?,
            folder: open(BLANK_FOLDER)?,
        })
    }
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
    /// The home directory, empty.
    Home,
    /// A private layer over a directory, or nothing.
    Layered(Parts),
    /// A cache: a private layer over it as well as it goes.
    Cache {
        lower: Option<OwnedFd>,
        upper: Option<OwnedFd>,
        work: Option<OwnedFd>,
    },
}

/// What was built.
pub(crate) struct Built {
    pub(crate) blanks: Blanks,
    /// The tree at the workspace's path, where it is not the workspace itself; without anything that lies over it.
    pub(crate) tree: Option<OwnedFd>,
}

/// Builds the view and makes it the root of this process.
pub(crate) fn build(spec: &Spec) -> Result<Built, Refusal> {
    let step = |what: &'static str| move |err: io::Error| format!("{what}: {err}");
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)
        .map_err(|err| format!("the mounts cannot be made private: {err}"))?;
    let held = hold_all(spec)?;
    let root = empty_root().map_err(step("an empty root cannot be made"))?;
    let site = Site { root: root.as_fd() };
    let blanks = site
        .furnish(spec)
        .map_err(step("the private directories cannot be made"))?;
    let mut tree = None;
    for one in held {
        let (at, workspace) = (
            format!("`{}` cannot be shown", one.at.display()),
            one.at == spec.root,
        );
        site.attach(one).map_err(|why| why.about(&at))?;
        if workspace {
            tree = site
                .finish_tree(spec)
                .map_err(step("the tree cannot be handed out"))?;
        }
    }
    for path in &spec.hide {
        site.hide(path, &blanks)
            .map_err(|err| format!("`{}` cannot be hidden: {err}", path.display()))?;
    }
    site.close(spec)
        .map_err(step("the home directory cannot be closed"))?;
    enter(root.as_fd()).map_err(step("the view cannot be entered"))?;
    Ok(Built { blanks, tree })
}

/// Everything that will be shown, parents before what lies in them.
fn hold_all(spec: &Spec) -> Result<Vec<Held>, Refusal> {
    let mut held =
        hold_granted(spec).map_err(|err| format!("a part of the view cannot be had: {err}"))?;
    // A home below a directory of the system, such as /opt, comes after that directory.
    if let Some(home) = home_of(spec).filter(|home| is_in_system(home)) {
        let (at, what) = (home.to_owned(), What::Home);
        held.insert(0, Held { at, what });
    }
    if let Some(home) = &spec.agent {
        held.extend(hold_home(home)?);
    }
    for one in &spec.layers {
        let what = What::Layered(Parts::hold(&one.at, &one.upper, &one.work)?);
        held.push(Held {
            at: one.at.clone(),
            what,
        });
    }
    let workspace = |from: &Path| -> Result<What, Refusal> {
        let why = |err| format!("the workspace cannot be had: `{}`: {err}", from.display());
        Ok(hold_needed(from, NO_SUID | NO_DEV, why)?.what)
    };
    let what = match &spec.tree {
        Tree::Itself => workspace(&spec.root)?,
        Tree::Copy { from } => workspace(from)?,
        Tree::Layered {
            upper,
            work,
            between,
        } => What::Layered(Parts::hold(&spec.root, upper, work)?.over(between.as_deref())?),
    };
    held.push(Held {
        at: spec.root.clone(),
        what,
    });
    held.sort_by_key(|one| one.at.components().count());
    Ok(held)
}

/// The system, and what is granted. What lies in a tree of its own is there already, and must not be shown as it is
/// outside.
fn hold_granted(spec: &Spec) -> io::Result<Vec<Held>> {
    let own = spec
        .layers
        .iter()
        .map(|one| &one.at)
        .chain((spec.tree != Tree::Itself).then_some(&spec.root));
    let own: Vec<&PathBuf> = own.collect();
    let granted = |path: &&PathBuf| !own.iter().any(|own| path.starts_with(own));
    let mut held = Vec::new();
    for place in SYSTEM {
        held.extend(hold(Path::new(place), READ_ONLY | NO_SUID | NO_DEV)?);
    }
    // A view of processes must be there already for one of a command's own to be mounted over it.
    held.extend(hold(Path::new("/proc"), READ_ONLY | NO_SUID | NO_DEV)?);
    for device in DEVICES {
        held.extend(hold(&Path::new("/dev").join(device), NO_SUID)?);
    }
    for place in spec.read.iter().filter(granted) {
        held.extend(hold(place, READ_ONLY | NO_SUID | NO_DEV)?);
    }
    for (number, place) in spec.caches.iter().filter(granted).enumerate() {
        held.push(hold_cache(place, spec.scratch.as_deref(), number)?);
    }
    for place in spec.write.iter().filter(granted) {
        held.extend(hold(place, NO_SUID | NO_DEV)?);
    }
    if let Some(place) = &spec.command_layers {
        let found = hold(place, NO_SUID | NO_DEV)?;
        held.extend(found.map(|one| Held {
            at: COMMAND_LAYERS.into(),
            ..one
        }));
    }
    Ok(held)
}

/// The home of an agent, and the files in it that are not its own.
fn hold_home(home: &AgentHome) -> Result<Vec<Held>, Refusal> {
    let show = |from: &Path, at: PathBuf, attributes: u64| -> Result<Held, Refusal> {
        let why = |err| format!("`{}` cannot be shown to the agent: {err}", from.display());
        let found = hold_needed(from, attributes, why)?;
        Ok(Held { at, ..found })
    };
    let mut held = vec![show(&home.from, AGENT_HOME.into(), NO_SUID | NO_DEV)?];
    for (from, name) in &home.files {
        let plain = name
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.file_name().is_none() {
            return Err(Refusal::Invalid(format!(
                "`{}` is no name in a home",
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

/// Takes hold of a path that must be there.
fn hold_needed(
    path: &Path,
    attributes: u64,
    why: impl FnOnce(io::Error) -> String,
) -> Result<Held, Refusal> {
    hold(path, attributes)
        .and_then(|one| one.ok_or(io::ErrorKind::NotFound.into()))
        .map_err(|err| Refusal::Invalid(why(err)))
}

/// Takes hold of a path as it is now; nothing where there is nothing.
fn hold(path: &Path, attributes: u64) -> io::Result<Option<Held>> {
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
        return Ok(Some(Held {
            at,
            what: What::Link(std::fs::read_link(path)?),
        }));
    }
    let mount = clone_tree(rustix::fs::CWD, path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?;
    if attributes != 0 {
        sys::mount_setattr(mount.as_fd(), attributes, true)?;
    }
    Ok(Some(Held {
        at,
        what: What::Tree {
            mount,
            folder: kind == FileType::Directory,
        },
    }))
}

fn hold_cache(path: &Path, scratch: Option<&Path>, number: usize) -> io::Result<Held> {
    let lower = open_folder(path).ok();
    let layer = |kind: &str| scratch.map(|scratch| scratch.join(format!("{kind}-{number}")));
    let what = What::Cache {
        lower,
        upper: layer("upper").map(make_folder).transpose()?,
        work: layer("work").map(make_folder).transpose()?,
    };
    Ok(Held {
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

/// A copy of one mount, without what is mounted in it.
fn clone_one(mount: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(mount, "", flags)?)
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
        let folder = self.folder(Path::new(BLANK_FOLDER))?;
        let (parent, name) = split(Path::new(BLANK_FILE))?;
        // A socket that nobody listens at: nobody can open it, root neither, and git passes it over.
        rustix::fs::mknodat(
            self.folder(parent)?,
            name,
            FileType::Socket,
            Mode::empty(),
            0,
        )?;
        let file = self.file(Path::new(BLANK_FILE))?;
        let size = format!("mode=1777,size={}", spec.limits.temporary);
        self.memory(Path::new("/tmp"), &size)?;
        self.memory(Path::new("/dev/shm"), &size)?;
        let pts = "newinstance,ptmxmode=0666,mode=620";
        self.private(
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
            self.memory(Path::new(VAR_TMP), &size)?;
        } else {
            rustix::fs::symlinkat("/tmp", &var, "tmp")?;
        }
        rustix::fs::symlinkat("/run", &var, "run")?;
        if let Some(home) = home_of(spec).filter(|home| !is_in_system(home)) {
            self.memory(home, HOME)?;
        }
        Ok(Blanks { file, folder })
    }

    /// What was only writable while it was furnished.
    fn close(&self, spec: &Spec) -> io::Result<()> {
        let Some(home) = home_of(spec) else {
            return Ok(());
        };
        sys::mount_setattr(
            self.folder(home)?.as_fd(),
            READ_ONLY | NO_SUID | NO_DEV,
            false,
        )
    }

    /// A file system in memory at a path.
    fn memory(&self, at: &Path, options: &str) -> io::Result<()> {
        self.private(at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)
    }

    fn private(&self, at: &Path, kind: &str, flags: MountFlags, data: &str) -> io::Result<()> {
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

    fn attach(&self, held: Held) -> Result<(), Refusal> {
        let target = |folder: bool| {
            if folder {
                self.folder(&held.at)
            } else {
                self.file(&held.at)
            }
        };
        match held.what {
            What::Link(to) => {
                let (parent, name) = split(&held.at)?;
                match rustix::fs::symlinkat(to, self.folder(parent)?, name) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                    Err(err) => Err(err.into()),
                }
            }
            What::Home => Ok(self.memory(&held.at, HOME)?),
            What::Tree { mount, folder } => Ok(attach_at(mount.as_fd(), target(folder)?.as_fd())?),
            What::Layered(parts) => parts.mount(|| self.folder(&held.at)).map(drop),
            What::Cache {
                lower: None, upper, ..
            } => Ok(self.own_folder(&held.at, upper)?),
            What::Cache {
                lower: Some(lower),
                upper,
                work,
            } => {
                let lower = match upper.zip(work) {
                    Some((upper, work)) => {
                        let parts = Parts {
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
                // A file system that cannot be layered is shown as it is; then the cache cannot be written.
                let mount = clone_tree(&lower, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
                sys::mount_setattr(mount.as_fd(), READ_ONLY | NO_SUID | NO_DEV, true)?;
                Ok(attach_at(mount.as_fd(), self.folder(&held.at)?.as_fd())?)
            }
        }
    }

    /// What is left to do once the workspace's path shows what it is to show: the tree is handed out if it is not the
    /// workspace itself, and is not writable where nothing is to be.
    fn finish_tree(&self, spec: &Spec) -> io::Result<Option<OwnedFd>> {
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

    /// A cache that is not there yet: private from the start.
    fn own_folder(&self, at: &Path, upper: Option<OwnedFd>) -> io::Result<()> {
        let Some(upper) = upper else {
            return self.memory(at, "mode=0755");
        };
        let mount = clone_tree(&upper, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
        sys::mount_setattr(mount.as_fd(), NO_SUID | NO_DEV, false)?;
        attach_at(mount.as_fd(), self.folder(at)?.as_fd())
    }

    fn hide(&self, path: &Path, blanks: &Blanks) -> io::Result<()> {
        // Links lead nowhere new here, so they are not followed.
        let inside = path.strip_prefix("/").unwrap_or(path);
        match look(self.root, inside)? {
            Some(target) => cover_with(blanks, target.as_fd()),
            None => Ok(()),
        }
    }

    /// The directory at a path, made where it is missing.
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

    /// The file at a path, made where it is missing, to be covered.
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

/// Puts an empty file or directory over what a handle is.
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

/// A home that is shown empty: none where the workspace itself holds it.
fn home_of(spec: &Spec) -> Option<&Path> {
    spec.home
        .as_deref()
        .filter(|home| home.parent().is_some() && !home.starts_with(&spec.root))
}

/// Options of the file system that is the home.
const HOME: &str = "mode=0755,size=16m";

/// Whether a path lies in a directory of the system that is shown as it is.
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

/// Freezes what a handle is: a copy of itself over itself that cannot be written.
pub(crate) fn freeze(target: BorrowedFd<'_>, writable: bool) -> io::Result<()> {
    let mount = clone_tree(target, Path::new(""), OpenTreeFlags::AT_EMPTY_PATH)?;
    if !writable {
        sys::mount_setattr(mount.as_fd(), READ_ONLY, true)?;
    }
    attach_at(mount.as_fd(), target)
}
