//! The files of an in-place run: reads go directly to the tree, and every write is a landing of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::image::{Image, Swap};
use windlass_core::validator::BaseTree;
use windlass_core::workspace::{
    FileError, FileErrorKind, FileKind, FileStat, Files, FindQuery, FoundPaths, GrepQuery, Grepped,
    Listing, Resolved,
};

use super::call_landings::CallLandings;
use crate::git_dirs::GitDirs;
use crate::landing::{ByteSource, image_at};
use crate::path::path_of;
use windlass_host::workspace::{Root, bad_path, outside};

/// The mode of a new file if the umask is unknown.
const USUAL_MODE: u32 = 0o644;

pub(super) struct InPlaceFiles {
    landings: Arc<CallLandings>,
    /// The permission bits of a new file.
    new_mode: u32,
}

/// A file that is being moved: its bytes, attributes and times are at its old path.
struct MovedFile<'a> {
    root: &'a Root,
    from: &'a str,
}

impl ByteSource for MovedFile<'_> {
    fn open(&self, _: &Swap) -> io::Result<std::fs::File> {
        let opened = self.root.open_file(&path_of(self.from));
        opened
            .map(|(file, _)| file)
            .map_err(|err| io::Error::other(err.message))
    }

    fn has_attributes(&self) -> bool {
        true
    }
}

impl InPlaceFiles {
    pub(super) fn new(landings: Arc<CallLandings>) -> Self {
        Self {
            landings,
            new_mode: umask().map_or(USUAL_MODE, |mask| 0o666 & !mask),
        }
    }

    fn tree(&self) -> &Root {
        &self.landings.root
    }

    /// Lands new bytes at a path, if `is_expected` accepts the current image.
    fn put(
        &self,
        given: &str,
        bytes: &[u8],
        is_expected: impl FnOnce(&Image) -> bool,
    ) -> Result<(), FileError> {
        let path = self.target(given)?;
        let before = image_at(self.tree(), &path)?;
        if !is_expected(&before) {
            return Err(FileError::changed(given));
        }
        self.refuse_git_dir(&path)?;
        let mode = match &before {
            Image::File { mode, .. } => {
                self.tree().check_writable(Path::new(&path))?;
                // Like a write in place, this drops the set-user-id and set-group-id bits.
                mode & 0o777
            }
            Image::Absent | Image::Link { .. } => self.new_mode,
        };
        let stored = self.landings.contents().put_bytes_unsynced(bytes);
        let (hash, size) = stored.map_err(|err| {
            let err = err.into_file();
            if err.kind == FileErrorKind::Full {
                self.landings.end_run(&err.message);
            }
            err
        })?;
        let after = Image::File { hash, size, mode };
        let swap = Swap {
            path,
            before,
            after,
        };
        if swap.before == swap.after {
            return Ok(());
        }
        self.landings.land(&[swap], self.landings.contents())
    }

    /// Refuses a path in a directory that git would treat as a repository, or that would become one.
    fn refuse_git_dir(&self, path: &str) -> Result<(), FileError> {
        let new = Path::new(path);
        let has = |path: &Path| {
            new.starts_with(path) || self.tree().stat(&path.to_string_lossy()).is_ok()
        };
        match GitDirs::new(has).refusal(new) {
            Some(why) => Err(bad_path(&why)),
            None => Ok(()),
        }
    }

    /// The path that a write resolves to, following symlinks.
    fn target(&self, given: &str) -> Result<String, FileError> {
        let found = self.tree().resolve(given)?;
        if !found.inside {
            return Err(outside(Path::new(given)));
        }
        utf8(given, found.path)
    }

    /// The path without following a symlink at its last name.
    fn name(&self, given: &str) -> Result<String, FileError> {
        let path = self.tree().relative(given)?;
        let plain = |path: Option<&Path>| path.and_then(Path::to_str).map(str::to_owned);
        let (Some(name), Some(above)) =
            (plain(path.file_name().map(Path::new)), plain(path.parent()))
        else {
            return Err(bad_path("the workspace itself cannot be moved or removed"));
        };
        let above = self
            .tree()
            .resolve(if above.is_empty() { "." } else { &above })?;
        if !above.inside {
            return Err(outside(&path));
        }
        let above = PathBuf::from(above.path);
        let joined = if above == Path::new(".") {
            PathBuf::from(name)
        } else {
            above.join(name)
        };
        utf8(given, joined.to_string_lossy().into_owned())
    }

    /// The image at a path that is to be moved or removed; an error if it does not exist.
    fn there(&self, given: &str, path: &str) -> Result<Image, FileError> {
        match image_at(self.tree(), path)? {
            Image::Absent => Err(FileError {
                kind: FileErrorKind::NotFound,
                message: format!("{given}: no such file or directory"),
            }),
            image => Ok(image),
        }
    }
}

/// Refuses a path through names that are not UTF-8: its text would be a different path.
fn utf8(given: &str, real: String) -> Result<String, FileError> {
    let lossy = |path: &str| path.contains(char::REPLACEMENT_CHARACTER);
    if lossy(&real) && !lossy(given) {
        return Err(bad_path("it resolves to a name that is not UTF-8"));
    }
    Ok(real)
}

/// The umask of the process, read without changing it.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

impl Files for InPlaceFiles {
    fn root(&self) -> &Path {
        self.tree().root()
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.tree().resolve(path)
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.tree().read(path, max)
    }
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        self.tree().read_range(path, offset, len)
    }
    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        self.tree().stat(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.put(path, bytes, |_| true)
    }
    fn replace(&self, path: &str, read: Option<&[u8]>, bytes: &[u8]) -> Result<(), FileError> {
        let expected = read.map(|read| blake3::hash(read).to_hex());
        self.put(path, bytes, |before| match (before, expected) {
            (Image::File { hash, .. }, Some(expected)) => *hash == *expected,
            (Image::Absent, None) => true,
            _ => false,
        })
    }
    fn remove(&self, path: &str) -> Result<(), FileError> {
        let name = self.name(path)?;
        let before = self.there(path, &name)?;
        let swap = Swap {
            path: name,
            before,
            after: Image::Absent,
        };
        self.landings.land(&[swap], self.landings.contents())
    }
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        let (old, new) = (self.name(from)?, self.name(to)?);
        let (moved, displaced) = (self.there(from, &old)?, image_at(self.tree(), &new)?);
        if displaced.is_there() && !replace {
            return Err(FileError {
                kind: FileErrorKind::Exists,
                message: format!(
                    "{to} already exists; replace it explicitly, or choose another name"
                ),
            });
        }
        if matches!(displaced, Image::Link { .. }) {
            return Err(windlass_host::workspace::wrong_kind(
                Path::new(to),
                FileKind::Link,
                FileKind::File,
            ));
        }
        if old == new {
            return Ok(());
        }
        self.refuse_git_dir(&new)?;
        let swaps = [
            Swap {
                path: new,
                before: displaced,
                after: moved.clone(),
            },
            Swap {
                path: old.clone(),
                before: moved,
                after: Image::Absent,
            },
        ];
        let source = MovedFile {
            root: self.tree(),
            from: &old,
        };
        self.landings.land(&swaps, &source)
    }
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        self.tree().list(path, max)
    }
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        self.tree().find(query, cancel)
    }
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        self.tree().grep(query, cancel)
    }
}

impl BaseTree for InPlaceFiles {
    fn read(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>, FileError> {
        use std::io::Read;
        let real = self.tree().resolve(path)?.path;
        let hash = match self.landings.before(&real) {
            Some(Image::File { hash, .. }) => hash,
            Some(Image::Absent | Image::Link { .. }) => return Ok(None),
            None => {
                return match self.tree().read(path, max) {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(err) if err.kind == FileErrorKind::NotFound => Ok(None),
                    Err(err) => Err(err),
                };
            }
        };
        let unknown = |why: String| FileError {
            kind: FileErrorKind::Io,
            message: format!("the original bytes of `{path}` are unknown: {why}"),
        };
        let stored = self.landings.contents().read(&hash);
        let stored = stored.map_err(|err| unknown(err.to_string()))?;
        let mut bytes = Vec::new();
        stored
            .take(max.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|err| unknown(err.to_string()))?;
        if bytes.len() as u64 > max {
            return Err(unknown(format!("it had more than {max} bytes")));
        }
        Ok(Some(bytes))
    }
}
