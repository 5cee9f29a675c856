//! The private directories of a session without namespaces: temporary files, a home, and a home for cargo that shows
//! what the user's own holds. In a session with namespaces these are mounts at the usual paths; here they have paths of
//! their own, which commands get by their environment.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::spec::{Net, PRIVATE, Spec};

/// How far cargo's home is made of directories of the session's own; deeper it is shown by symlinks. Cargo keeps each
/// registry at the first depth, and what it fetches from one at the second. Without a network nothing is fetched from
/// registries that are there, and hundreds of symlinks take their time.
const REGISTRIES: usize = 2;
const PACKAGES: usize = 3;
/// Entries of a cache that are shown.
const MOST_ENTRIES: usize = 20_000;
const CARGO: &str = ".cargo";
/// Directories of the home that can be written: caches of tools. The home itself cannot, as in a session with
/// namespaces.
const CACHES: &[&str] = &[
    ".cache",
    CARGO,
    ".npm",
    ".local/share/pnpm",
    ".pnpm-store",
    ".yarn",
    ".bun",
    ".deno",
    "go",
    ".m2",
    ".gradle",
    ".ivy2",
    ".sbt",
    ".nuget",
    ".gem",
    ".bundle",
    ".mix",
    ".hex",
    ".stack",
    ".cabal",
    ".ccache",
];
/// Semaphores of the C library are files in this directory, which programs share.
const SHARED_MEMORY: &str = "/dev/shm";

/// The private directories.
pub(crate) struct Private {
    at: PathBuf,
    writable: Vec<PathBuf>,
    home: PathBuf,
}

impl Private {
    /// Makes them in a directory that is the session's own.
    pub(crate) fn make(at: &Path, spec: &Spec) -> io::Result<Self> {
        let home = at.join("home");
        let mut writable = vec![at.join("tmp")];
        writable.extend(CACHES.iter().map(|cache| home.join(cache)));
        writable.iter().try_for_each(|dir| make_dir(dir))?;
        if let Some(cargo) = spec
            .caches
            .iter()
            .find(|cache| cache.join("registry").is_dir())
        {
            let mut left = MOST_ENTRIES;
            let depth = if matches!(spec.net, Net::Proxy | Net::Open) {
                PACKAGES
            } else {
                REGISTRIES
            };
            let to = home.join(CARGO);
            show(
                cargo,
                &to,
                depth,
                &|path| is_lock(cargo, path) || spec.hide.contains(path),
                &mut left,
            )?;
        }
        for path in spec.read.iter().chain(&spec.write) {
            link_from_home(path, spec.home.as_deref(), &home)?;
        }
        if shares_memory() {
            writable.push(SHARED_MEMORY.into());
        }
        Ok(Self {
            at: at.to_owned(),
            writable,
            home,
        })
    }

    /// The home, which can be read.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Where commands put temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.at.join("tmp")
    }

    pub(crate) fn writable(&self) -> &[PathBuf] {
        &self.writable
    }

    /// A variable whose value names a private directory, with the path that it has in this session.
    pub(crate) fn resolve(&self, variable: &[u8]) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let at = variable
            .windows(PRIVATE.len())
            .position(|part| part == PRIVATE.as_bytes())?;
        let (before, after) = (&variable[..at], &variable[at + PRIVATE.len()..]);
        Some([before, self.at.as_os_str().as_bytes(), after].concat())
    }
}

/// Whether commands without namespaces may use the directory for shared memory: only where no other program has something
/// there that this user can reach. What a program puts there later, commands can change.
#[must_use]
pub fn shares_memory() -> bool {
    let unused = |mut entries: std::fs::ReadDir| {
        entries.all(|one| one.is_ok_and(|one| is_out_of_reach(&one)))
    };
    std::fs::read_dir(SHARED_MEMORY).is_ok_and(unused)
}

/// Whether the mode of an entry keeps this user from it anyway.
fn is_out_of_reach(entry: &std::fs::DirEntry) -> bool {
    let own = rustix::process::geteuid();
    let closed = |about: std::fs::Metadata| {
        about.uid() != own.as_raw() && !own.is_root() && about.mode() & 0o077 == 0
    };
    entry.metadata().is_ok_and(closed)
}

/// Leads from the private home to a path below the user's own home that commands may use, so that `~/NAME` works.
fn link_from_home(path: &Path, own: Option<&Path>, home: &Path) -> io::Result<()> {
    let Some(below) = own
        .and_then(|own| path.strip_prefix(own).ok())
        .filter(|below| below.parent().is_some())
    else {
        return Ok(());
    };
    let link = home.join(below);
    make_dir(link.parent().unwrap_or(home))?;
    // A path within another one that is linked already, or a cache.
    match symlink(path, &link) {
        Err(err)
            if err.kind() != io::ErrorKind::AlreadyExists
                && err.kind() != io::ErrorKind::PermissionDenied =>
        {
            Err(err)
        }
        _ => Ok(()),
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Whether a path is a lock or a database of cargo's, which it makes anew: a name with a dot at the top.
fn is_lock(cargo: &Path, path: &Path) -> bool {
    path.parent() == Some(cargo)
        && path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Shows a directory in another one: directories are made anew down to a depth, what lies deeper is linked to.
fn show(
    from: &Path,
    to: &Path,
    depth: usize,
    hides: &dyn Fn(&PathBuf) -> bool,
    left: &mut usize,
) -> io::Result<()> {
    make_dir(to)?;
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if hides(&path) || *left == 0 {
            continue;
        }
        *left -= 1;
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match folder && depth > 0 && name != "bin" {
            true => show(&path, &to.join(name), depth - 1, hides, left)?,
            false => symlink(&path, to.join(name))?,
        }
    }
    Ok(())
}
