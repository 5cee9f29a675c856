//! A view of the files without those that a deny rule hides: no tool can read, list, find or search them, whatever
//! directory it starts from. The gate judges writes, so they pass through.

use std::path::Path;
use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::gate::keeps_back;
use windlass_core::workspace::{
    FileError, FileErrorKind, FileStat, Files, FindQuery, FoundPaths, GrepQuery, Grepped, Listing,
    Resolved,
};

/// Files beneath a root, without those that match a hidden pattern.
pub(crate) struct FilteredFiles {
    files: Arc<dyn Files>,
    hidden: Vec<String>,
}

impl FilteredFiles {
    /// Wraps `files`. Without hidden patterns, returns `files` itself.
    pub(crate) fn wrap(files: Arc<dyn Files>, hidden: Vec<String>) -> Arc<dyn Files> {
        if hidden.is_empty() {
            files
        } else {
            Arc::new(Self { files, hidden })
        }
    }

    fn is_hidden(&self, path: &str) -> bool {
        self.hidden.iter().any(|pattern| keeps_back(pattern, path))
    }

    /// Fails if the path is hidden, or if it is a symlink to a hidden file.
    fn check(&self, path: &str) -> Result<(), FileError> {
        let target = self
            .files
            .resolve(path)
            .map_or_else(|_| path.to_owned(), |resolved| resolved.path);
        if !self.is_hidden(path) && !self.is_hidden(&target) {
            return Ok(());
        }
        let message = format!("a rule hides {path}; work without it");
        Err(FileError {
            kind: FileErrorKind::Permission,
            message,
        })
    }
}

impl Files for FilteredFiles {
    fn root(&self) -> &Path {
        self.files.root()
    }

    fn hidden(&self) -> &[String] {
        &self.hidden
    }

    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.files.resolve(path)
    }

    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.check(path)?;
        self.files.read(path, max)
    }

    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        self.check(path)?;
        self.files.read_range(path, offset, len)
    }

    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        self.files.stat(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.files.write(path, bytes)
    }

    fn replace(&self, path: &str, read: Option<&[u8]>, bytes: &[u8]) -> Result<(), FileError> {
        self.files.replace(path, read, bytes)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.files.remove(path)
    }

    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        // Otherwise a moved file could be read under its new name.
        self.check(from)?;
        self.files.rename(from, to, replace)
    }

    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        self.check(path)?;
        let dir = self.files.resolve(path)?.path;
        let mut listing = self.files.list(path, max)?;
        let full = |name: &str| {
            if dir == "." {
                name.to_owned()
            } else {
                format!("{dir}/{name}")
            }
        };
        let all = listing.entries.len();
        listing
            .entries
            .retain(|(name, ..)| !self.is_hidden(&full(name)));
        listing.kept_back |= listing.entries.len() < all;
        Ok(listing)
    }

    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        let mut found = self.files.find(query, cancel)?;
        found.paths.retain(|path| !self.is_hidden(path));
        Ok(found)
    }

    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        let mut found = self.files.grep(query, cancel)?;
        found.lines.retain(|line| !self.is_hidden(&line.path));
        found.matches = found.lines.iter().filter(|line| line.hit).count();
        let mut paths: Vec<&str> = found
            .lines
            .iter()
            .filter(|line| line.hit)
            .map(|line| line.path.as_str())
            .collect();
        paths.dedup();
        found.files = paths.len();
        Ok(found)
    }
}
