//! Reading outside the workspace what was judged: the resolved path is opened part by part without following any
//! link, so that what was approved is what is read. Nothing is ever written through here.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use windlass_core::CancellationToken;
use windlass_core::workspace::{
    FileError, FileStat, Files, FindQuery, Found, GrepQuery, Grepped, Listing, Outside, Resolved,
};

use super::Root;
use super::beneath::{self, KernelLookup};
use super::error::from_errno;

/// Reads of this machine's files, for calls that were allowed to.
#[derive(Debug, Default, Clone, Copy)]
pub struct OutsideReads;

impl Outside for OutsideReads {
    fn grant(&self, files: &Arc<dyn Files>, reads: Vec<String>) -> Arc<dyn Files> {
        Arc::new(Granted {
            inner: files.clone(),
            reads: reads.into_iter().map(PathBuf::from).collect(),
        })
    }
}

/// The files of a workspace, and some paths outside of it.
struct Granted {
    inner: Arc<dyn Files>,
    /// Resolved and judged.
    reads: Vec<PathBuf>,
}

/// A path outside: its directory, which is held, and its name there.
struct Beside {
    parent: Root,
    name: String,
}

impl Granted {
    /// Where to read a path that leads outside and was granted; none when it is the workspace's business.
    fn beside(&self, path: &str) -> Result<Option<Beside>, FileError> {
        let resolved = self.inner.resolve(path)?;
        let real = Path::new(&resolved.path);
        if resolved.inside || !self.reads.iter().any(|granted| real.starts_with(granted)) {
            return Ok(None);
        }
        let (dir, name) = match (real.parent(), real.file_name().and_then(OsStr::to_str)) {
            (Some(dir), Some(name)) => (dir, name),
            _ => (real, "."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top =
            rustix::fs::open("/", flags, Mode::empty()).map_err(|errno| from_errno(real, errno))?;
        let kernel = KernelLookup::without_links();
        let below = dir.strip_prefix("/").unwrap_or(dir);
        let below = if below.as_os_str().is_empty() {
            Path::new(".")
        } else {
            below
        };
        let opened = beneath::open(std::os::fd::AsFd::as_fd(&top), below, flags, &kernel)?;
        let parent = Root {
            kernel,
            ..Root::standing_for(dir.to_owned(), opened)
        };
        Ok(Some(Beside {
            parent,
            name: name.to_owned(),
        }))
    }
}

impl Beside {
    /// A path below the held directory, as it is told.
    fn told(&self, path: &str) -> String {
        self.parent.path.join(path).to_string_lossy().into_owned()
    }
}

impl Files for Granted {
    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.inner.resolve(path)
    }

    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        match self.beside(path)? {
            Some(beside) => beside.parent.read(&beside.name, max),
            None => self.inner.read(path, max),
        }
    }

    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        match self.beside(path)? {
            Some(beside) => beside.parent.read_range(&beside.name, offset, len),
            None => self.inner.read_range(path, offset, len),
        }
    }

    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        match self.beside(path)? {
            Some(beside) => beside.parent.stat(&beside.name),
            None => self.inner.stat(path),
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.inner.write(path, bytes)
    }

    fn replace(&self, path: &str, read: Option<&[u8]>, bytes: &[u8]) -> Result<(), FileError> {
        self.inner.replace(path, read, bytes)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        self.inner.rename(from, to, replace)
    }

    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        match self.beside(path)? {
            Some(beside) => beside.parent.list(&beside.name, max),
            None => self.inner.list(path, max),
        }
    }

    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<Found, FileError> {
        let Some(beside) = self.beside(start_of(&query.under))? else {
            return self.inner.find(query, cancel);
        };
        let mut found = beside.parent.find(
            &FindQuery {
                under: beside.name.clone(),
                ..query.clone()
            },
            cancel,
        )?;
        found
            .paths
            .iter_mut()
            .for_each(|path| *path = beside.told(path));
        Ok(found)
    }

    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        let Some(beside) = self.beside(start_of(&query.under))? else {
            return self.inner.grep(query, cancel);
        };
        let mut found = beside.parent.grep(
            &GrepQuery {
                under: beside.name.clone(),
                ..query.clone()
            },
            cancel,
        )?;
        found
            .lines
            .iter_mut()
            .for_each(|line| line.path = beside.told(&line.path));
        Ok(found)
    }
}

/// The path that a search starts at.
fn start_of(under: &str) -> &str {
    if under.is_empty() { "." } else { under }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use windlass_core::workspace::FileErrorKind;

    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        files: Arc<dyn Files>,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "out/deep", "secret"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("out/a.txt"), "alpha\nbeta\n").unwrap();
        std::fs::write(dir.path().join("out/deep/b.txt"), "beta\n").unwrap();
        std::fs::write(dir.path().join("secret/key"), "hush\n").unwrap();
        std::fs::write(dir.path().join("work/in.txt"), "inside\n").unwrap();
        symlink("../out/a.txt", dir.path().join("work/link.txt")).unwrap();
        let files: Arc<dyn Files> = Arc::new(Root::open(&dir.path().join("work")).unwrap());
        Place { files, dir }
    }

    impl Place {
        fn out(&self, name: &str) -> String {
            self.dir
                .path()
                .canonicalize()
                .unwrap()
                .join(name)
                .display()
                .to_string()
        }

        fn grant(&self, reads: &[&str]) -> Arc<dyn Files> {
            OutsideReads.grant(
                &self.files,
                reads.iter().map(|name| self.out(name)).collect(),
            )
        }
    }

    #[test]
    fn what_was_granted_is_read_and_nothing_beside_it() {
        let place = place();
        let granted = place.grant(&["out/a.txt"]);
        for path in [&place.out("out/a.txt"), "../out/a.txt", "link.txt"] {
            assert_eq!(granted.read(path, 99).unwrap(), b"alpha\nbeta\n", "{path}");
            assert_eq!(granted.read_range(path, 6, 4).unwrap(), b"beta");
            assert_eq!(granted.stat(path).unwrap().size, 11);
        }
        assert_eq!(granted.read("in.txt", 99).unwrap(), b"inside\n");
        let refused = |result: Result<Vec<u8>, FileError>| {
            assert_eq!(result.unwrap_err().kind, FileErrorKind::Outside)
        };
        refused(granted.read(&place.out("out/deep/b.txt"), 99));
        refused(granted.read(&place.out("secret/key"), 99));
        refused(place.files.read(&place.out("out/a.txt"), 99));
        for kind in [
            granted
                .write(&place.out("out/a.txt"), b"x")
                .unwrap_err()
                .kind,
            granted.remove(&place.out("out/a.txt")).unwrap_err().kind,
            granted
                .rename(&place.out("out/a.txt"), "x", true)
                .unwrap_err()
                .kind,
        ] {
            assert_eq!(kind, FileErrorKind::Outside);
        }
        assert_eq!(
            std::fs::read(place.out("out/a.txt")).unwrap(),
            b"alpha\nbeta\n"
        );
    }

    #[test]
    fn a_directory_is_granted_with_what_is_below_it_and_no_link_leads_on() {
        let place = place();
        symlink(place.out("secret"), place.out("out/deep/more")).unwrap();
        symlink(place.out("secret/key"), place.out("out/key")).unwrap();
        let granted = place.grant(&["out"]);
        let names: Vec<_> = granted
            .list("../out", 9)
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| entry.0)
            .collect();
        assert_eq!(names, ["a.txt", "deep", "key"]);
        let cancel = CancellationToken::new();
        let query = GrepQuery {
            under: place.out("out"),
            pattern: ".".into(),
            max: 99,
            ..GrepQuery::default()
        };
        let found = granted.grep(&query, &cancel).unwrap();
        let lines: Vec<_> = found
            .lines
            .iter()
            .map(|line| (line.path.clone(), line.text.clone()))
            .collect();
        let line = |path: &str, text: &str| (place.out(path), text.to_owned());
        assert_eq!(
            lines,
            [
                line("out/a.txt", "alpha"),
                line("out/a.txt", "beta"),
                line("out/deep/b.txt", "beta")
            ]
        );
        let query = FindQuery {
            under: place.out("out"),
            glob: "*.txt".into(),
            max: 9,
        };
        let found = granted.find(&query, &cancel).unwrap();
        assert_eq!(
            found.paths,
            [place.out("out/a.txt"), place.out("out/deep/b.txt")]
        );
        // Through the links it would be another path, which nobody granted.
        assert!(
            granted.read("../out/key", 99).is_err()
                && granted.read("../out/deep/more/key", 99).is_err()
        );
    }

    #[test]
    fn a_link_put_in_the_way_after_the_judgement_is_refused() {
        let place = place();
        std::fs::create_dir(place.out("secret/deep")).unwrap();
        std::fs::write(place.out("secret/a.txt"), "hush\n").unwrap();
        let kernel = KernelLookup::without_links();
        let top = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let swapped = PathBuf::from(place.out("out"));
        std::fs::rename(&swapped, place.out("old")).unwrap();
        symlink(place.out("secret"), &swapped).unwrap();
        let below = swapped.strip_prefix("/").unwrap().join("a.txt");
        let read = OFlags::RDONLY;
        assert!(beneath::open(std::os::fd::AsFd::as_fd(&top), &below, read, &kernel).is_err());
        assert!(beneath::open_without_links(std::os::fd::AsFd::as_fd(&top), &below, read).is_err());
    }
}
