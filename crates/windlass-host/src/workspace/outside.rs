//! Reads approved paths outside the workspace. The resolved path is opened component by component without following any
//! symlink, so that exactly the approved file is read. Nothing is written through this module.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use windlass_core::CancellationToken;
use windlass_core::workspace::{
    FileError, FileStat, Files, FindQuery, FoundPaths, GrepQuery, Grepped, Listing, Outside,
    Resolved,
};

use super::Root;
use super::beneath::{self, KernelLookup};
use super::error::from_errno;

/// Grants calls read access to approved paths outside the workspace.
#[derive(Debug, Default, Clone, Copy)]
pub struct OutsideReads;

impl Outside for OutsideReads {
    fn grant(&self, files: &Arc<dyn Files>, reads: Vec<String>) -> Arc<dyn Files> {
        Arc::new(GrantedFiles {
            inner: files.clone(),
            reads: reads.into_iter().map(PathBuf::from).collect(),
        })
    }
}

/// The files of a workspace, and some paths outside it that may be read.
struct GrantedFiles {
    inner: Arc<dyn Files>,
    /// Resolved paths that the gate approved.
    reads: Vec<PathBuf>,
}

/// A path outside the workspace: the handle of its directory, and its name there.
struct OutsideFile {
    parent: Root,
    name: String,
}

impl GrantedFiles {
    /// Opens the directory of a granted path outside the workspace; `None` if the path is inside or not granted.
    fn outside_file(&self, path: &str) -> Result<Option<OutsideFile>, FileError> {
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
            ..Root::from_handle(dir.to_owned(), opened)
        };
        Ok(Some(OutsideFile {
            parent,
            name: name.to_owned(),
        }))
    }
}

impl OutsideFile {
    /// Returns the absolute path of a path below the directory, for results.
    fn absolute(&self, path: &str) -> String {
        self.parent.path.join(path).to_string_lossy().into_owned()
    }
}

impl Files for GrantedFiles {
    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.inner.resolve(path)
    }

    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        match self.outside_file(path)? {
            Some(outside_file) => outside_file.parent.read(&outside_file.name, max),
            None => self.inner.read(path, max),
        }
    }

    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        match self.outside_file(path)? {
            Some(outside_file) => outside_file
                .parent
                .read_range(&outside_file.name, offset, len),
            None => self.inner.read_range(path, offset, len),
        }
    }

    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        match self.outside_file(path)? {
            Some(outside_file) => outside_file.parent.stat(&outside_file.name),
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
        match self.outside_file(path)? {
            Some(outside_file) => outside_file.parent.list(&outside_file.name, max),
            None => self.inner.list(path, max),
        }
    }

    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        let Some(outside_file) = self.outside_file(start_of(&query.under))? else {
            return self.inner.find(query, cancel);
        };
        let mut found = outside_file.parent.find(
            &FindQuery {
                under: outside_file.name.clone(),
                ..query.clone()
            },
            cancel,
        )?;
        found
            .paths
            .iter_mut()
            .for_each(|path| *path = outside_file.absolute(path));
        Ok(found)
    }

    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        let Some(outside_file) = self.outside_file(start_of(&query.under))? else {
            return self.inner.grep(query, cancel);
        };
        let mut found = outside_file.parent.grep(
            &GrepQuery {
                under: outside_file.name.clone(),
                ..query.clone()
            },
            cancel,
        )?;
        found
            .lines
            .iter_mut()
            .for_each(|line| line.path = outside_file.absolute(&line.path));
        Ok(found)
    }
}

/// Returns the path at which a search starts.
fn start_of(under: &str) -> &str {
    if under.is_empty() { "." } else { under }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use windlass_core::workspace::FileErrorKind;

    use super::*;

    struct OutsideFixture {
        dir: tempfile::TempDir,
        files: Arc<dyn Files>,
    }

    fn fixture() -> OutsideFixture {
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
        OutsideFixture { files, dir }
    }

    impl OutsideFixture {
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
    fn only_granted_paths_are_read() {
        let fixture = fixture();
        let granted = fixture.grant(&["out/a.txt"]);
        for path in [&fixture.out("out/a.txt"), "../out/a.txt", "link.txt"] {
            assert_eq!(granted.read(path, 99).unwrap(), b"alpha\nbeta\n", "{path}");
            assert_eq!(granted.read_range(path, 6, 4).unwrap(), b"beta");
            assert_eq!(granted.stat(path).unwrap().size, 11);
        }
        assert_eq!(granted.read("in.txt", 99).unwrap(), b"inside\n");
        let refused = |result: Result<Vec<u8>, FileError>| {
            assert_eq!(result.unwrap_err().kind, FileErrorKind::Outside)
        };
        refused(granted.read(&fixture.out("out/deep/b.txt"), 99));
        refused(granted.read(&fixture.out("secret/key"), 99));
        refused(fixture.files.read(&fixture.out("out/a.txt"), 99));
        for kind in [
            granted
                .write(&fixture.out("out/a.txt"), b"x")
                .unwrap_err()
                .kind,
            granted.remove(&fixture.out("out/a.txt")).unwrap_err().kind,
            granted
                .rename(&fixture.out("out/a.txt"), "x", true)
                .unwrap_err()
                .kind,
        ] {
            assert_eq!(kind, FileErrorKind::Outside);
        }
        assert_eq!(
            std::fs::read(fixture.out("out/a.txt")).unwrap(),
            b"alpha\nbeta\n"
        );
    }

    #[test]
    fn a_directory_is_granted_with_its_content_and_symlinks_are_not_followed() {
        let fixture = fixture();
        symlink(fixture.out("secret"), fixture.out("out/deep/more")).unwrap();
        symlink(fixture.out("secret/key"), fixture.out("out/key")).unwrap();
        let granted = fixture.grant(&["out"]);
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
            under: fixture.out("out"),
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
        let line = |path: &str, text: &str| (fixture.out(path), text.to_owned());
        assert_eq!(
            lines,
            [
                line("out/a.txt", "alpha"),
                line("out/a.txt", "beta"),
                line("out/deep/b.txt", "beta")
            ]
        );
        let query = FindQuery {
            under: fixture.out("out"),
            glob: "*.txt".into(),
            max: 9,
        };
        let found = granted.find(&query, &cancel).unwrap();
        assert_eq!(
            found.paths,
            [fixture.out("out/a.txt"), fixture.out("out/deep/b.txt")]
        );
        // Through the symlinks it would be another path, which was not granted.
        assert!(
            granted.read("../out/key", 99).is_err()
                && granted.read("../out/deep/more/key", 99).is_err()
        );
    }

    #[test]
    fn a_symlink_created_after_the_approval_is_refused() {
        let fixture = fixture();
        std::fs::create_dir(fixture.out("secret/deep")).unwrap();
        std::fs::write(fixture.out("secret/a.txt"), "hush\n").unwrap();
        let kernel = KernelLookup::without_links();
        let top = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let swapped = PathBuf::from(fixture.out("out"));
        std::fs::rename(&swapped, fixture.out("old")).unwrap();
        symlink(fixture.out("secret"), &swapped).unwrap();
        let below = swapped.strip_prefix("/").unwrap().join("a.txt");
        let read = OFlags::RDONLY;
        assert!(beneath::open(std::os::fd::AsFd::as_fd(&top), &below, read, &kernel).is_err());
        assert!(beneath::open_without_links(std::os::fd::AsFd::as_fd(&top), &below, read).is_err());
    }
}
