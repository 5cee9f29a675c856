//! The private directories of a session without namespaces: one for temporary files, a home, and a cargo home that
//! shows the user's own. With namespaces these are mounts at the usual paths; here they have other paths, which
//! commands learn from environment variables.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::spec::{Net, PRIVATE, Spec};

/// The depth to which the private cargo home consists of real directories; below it there are symlinks to the user's.
/// Cargo has one directory per registry at depth 1, and writes downloads at depth 2. Without a network nothing is
/// downloaded, and creating hundreds of symlinks takes time, so the lower depth is enough.
const REGISTRIES: usize = 2;
const PACKAGES: usize = 3;
/// The most entries of a cargo home that are shown.
const MAX_ENTRIES: usize = 20_000;
const CARGO: &str = ".cargo";
/// Directories of the home that commands can write: caches of tools. The home itself is read-only, as it is with
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
/// The C library keeps semaphores in this directory, which all programs share.
const SHARED_MEMORY: &str = "/dev/shm";

/// The private directories of a session.
pub(crate) struct PrivateDirs {
    at: PathBuf,
    writable: Vec<PathBuf>,
    home: PathBuf,
}

impl PrivateDirs {
    /// Creates them in `at`, a directory that belongs to the session.
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
            let mut left = MAX_ENTRIES;
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

    /// Returns the home directory, which is readable.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the directory for temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.at.join("tmp")
    }

    pub(crate) fn writable(&self) -> &[PathBuf] {
        &self.writable
    }

    /// Replaces [`PRIVATE`] in an environment variable by the real path; `None` if the variable does not contain it.
    pub(crate) fn resolve(&self, variable: &[u8]) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let at = variable
            .windows(PRIVATE.len())
            .position(|part| part == PRIVATE.as_bytes())?;
        let (before, after) = (&variable[..at], &variable[at + PRIVATE.len()..]);
        Some([before, self.at.as_os_str().as_bytes(), after].concat())
    }
}

/// Returns whether commands without namespaces may use `/dev/shm`: only if no other program has a file there that this
/// user can access. Files that a program puts there later are not protected from commands.
#[must_use]
pub fn shares_memory() -> bool {
    let unused = |mut entries: std::fs::ReadDir| {
        entries.all(|one| one.is_ok_and(|one| is_out_of_reach(&one)))
    };
    std::fs::read_dir(SHARED_MEMORY).is_ok_and(unused)
}

/// Returns whether the mode of a file keeps this user from it.
fn is_out_of_reach(entry: &std::fs::DirEntry) -> bool {
    let own = rustix::process::geteuid();
    let closed = |about: std::fs::Metadata| {
        about.uid() != own.as_raw() && !own.is_root() && about.mode() & 0o077 == 0
    };
    entry.metadata().is_ok_and(closed)
}

/// Links a granted path below the user's home into the private home, so that `~/NAME` works.
fn link_from_home(path: &Path, own: Option<&Path>, home: &Path) -> io::Result<()> {
    let Some(below) = own
        .and_then(|own| path.strip_prefix(own).ok())
        .filter(|below| below.parent().is_some())
    else {
        return Ok(());
    };
    let link = home.join(below);
    make_dir(link.parent().unwrap_or(home))?;
    // These errors mean that the path is a cache, or lies below a path that is linked already.
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

/// Returns whether a path is a lock file or a database of cargo, which cargo creates again: a dot file at the top.
fn is_lock(cargo: &Path, path: &Path) -> bool {
    path.parent() == Some(cargo)
        && path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Shows a directory at another path: creates directories down to `depth` and symlinks below.
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
