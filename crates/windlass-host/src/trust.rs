//! What a person trusts of a project: exactly these bytes of this file in this directory. One changed byte, another
//! directory or a link in the way is not trusted. The answers are kept in the data directory, never in the project,
//! and a store that others could have written says nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_core::workspace::{FileError, FileErrorKind};

use crate::workspace::{Root, from_errno, from_io, open_regular_itself, read_whole, write_whole};

/// The files of a project that would be interpreted, strongest last.
pub const PROJECT_FILES: [&str; 2] = [".windlass/config.toml", ".windlass/config.local.toml"];
/// A settings file is read by people; a larger one is a mistake.
const MAX_FILE: u64 = 1 << 20;
/// The answers for one directory are a few lines.
const MAX_RECORD: u64 = 256 << 10;
/// Directories that are listed.
const MAX_LISTED: usize = 10_000;

/// A file of a project, as it was read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// From the root of the project.
    pub name: &'static str,
    /// Its very bytes: what is hashed is what is interpreted.
    pub bytes: Vec<u8>,
}

impl ProjectFile {
    /// What a person's answer is bound to.
    #[must_use]
    pub fn hash(&self) -> String {
        blake3::hash(&self.bytes).to_hex().to_string()
    }
}

/// Reads the files of a project that would be interpreted. A directory or a file that is a link is not read: it would
/// be the content of another place. Such names come back second.
pub fn project_files(root: &Path) -> Result<(Vec<ProjectFile>, Vec<&'static str>), FileError> {
    use FileErrorKind::{BadInput, NotFound, WrongKind};
    let (mut files, mut links) = (Vec::new(), Vec::new());
    let top = Root::open_private(root)
        .map_err(|err| from_io(root, &std::io::Error::other(err.to_string())))?;
    match top.open_dir(Path::new(".windlass")) {
        Ok(_) => {}
        Err(err) if err.kind == NotFound => return Ok((files, links)),
        Err(err) if matches!(err.kind, BadInput | WrongKind) => {
            return Ok((files, vec![".windlass"]));
        }
        Err(err) => return Err(err),
    }
    for name in PROJECT_FILES {
        match top.open_file(Path::new(name)) {
            Ok((file, stat)) => files.push(ProjectFile {
                name,
                bytes: read_whole(file, stat.size, MAX_FILE, &root.join(name))?,
            }),
            Err(err) if err.kind == NotFound => {}
            Err(err) if matches!(err.kind, BadInput | WrongKind) => links.push(name),
            Err(err) => return Err(err),
        }
    }
    Ok((files, links))
}

/// What a person said about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// These bytes may count.
    Trusted,
    /// These bytes do not count, and nobody is asked again about them.
    Refused,
}

/// The answers about one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The directory, without any link in its path.
    pub root: PathBuf,
    /// By name and hash.
    pub files: BTreeMap<String, BTreeMap<String, Said>>,
}

/// The answers of a person, one file for each directory.
#[derive(Debug, Clone)]
pub struct TrustStore {
    dir: PathBuf,
}

impl TrustStore {
    /// The answers below the data directory.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// What was said about exactly this file of exactly this directory.
    pub fn said(&self, root: &Path, file: &ProjectFile) -> Result<Option<Said>, FileError> {
        let root = real(root)?;
        let record = self.read(&self.path(&root))?;
        let record = record.filter(|record| record.root == root);
        Ok(record.and_then(|record| record.files.get(file.name)?.get(&file.hash()).copied()))
    }

    /// Keeps an answer. It takes the place of earlier ones about the same file: one content is trusted at a time.
    pub fn keep(&self, root: &Path, file: &ProjectFile, said: Said) -> Result<(), FileError> {
        let root = real(root)?;
        let path = self.path(&root);
        let known = self.read(&path)?.filter(|record| record.root == root);
        let mut record = known.unwrap_or_else(|| Record {
            root,
            files: BTreeMap::new(),
        });
        record
            .files
            .insert(file.name.to_owned(), BTreeMap::from([(file.hash(), said)]));
        crate::private::create_dir(&self.dir)?;
        let text = serde_json::to_string_pretty(&record)
            .map_err(|err| damaged(&path, &err.to_string()))?;
        write_whole(&path, text.as_bytes(), 0o600)
    }

    /// Forgets everything about a directory, also one that is gone; says whether there was anything.
    pub fn forget(&self, root: &Path) -> Result<bool, FileError> {
        let root = real(root).unwrap_or_else(|_| root.to_owned());
        let path = self.path(&root);
        match rustix::fs::unlink(&path) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(from_errno(&path, errno)),
        }
    }

    /// All answers, by directory.
    pub fn list(&self) -> Result<Vec<Record>, FileError> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(from_io(&self.dir, &err)),
        };
        let mut records = Vec::new();
        for entry in entries.take(MAX_LISTED).flatten() {
            let path = entry.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                records.extend(
                    self.read(&path)?
                        .filter(|record| self.path(&record.root) == path),
                );
            }
        }
        records.sort_unstable_by(|a, b| a.root.cmp(&b.root));
        Ok(records)
    }

    /// Whether the store itself lies in this directory: a project must not bring its own answers.
    #[must_use]
    pub fn lies_in(&self, root: &Path) -> bool {
        let Ok(root) = real(root) else { return true };
        let above = self.dir.ancestors().find_map(|dir| dir.canonicalize().ok());
        above.is_none_or(|dir| dir.starts_with(&root))
    }

    fn path(&self, root: &Path) -> PathBuf {
        let name = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        self.dir.join(format!("{}.json", &name[..32]))
    }

    fn read(&self, path: &Path) -> Result<Option<Record>, FileError> {
        let (file, stat) = match open_regular_itself(path) {
            Ok(opened) => opened,
            Err(err) if err.kind == FileErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        };
        if stat.mode & 0o022 != 0 {
            return Err(damaged(path, "others may write it"));
        }
        let bytes = read_whole(file, stat.size, MAX_RECORD, path)?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|err| damaged(path, &err.to_string()))
    }
}

/// The directory itself: a link to a trusted place is that place, and a place under another name is not it.
fn real(root: &Path) -> Result<PathBuf, FileError> {
    root.canonicalize().map_err(|err| from_io(root, &err))
}

fn damaged(path: &Path, why: &str) -> FileError {
    FileError {
        kind: FileErrorKind::Io,
        message: format!(
            "the answers in {} cannot be used ({why}); remove the file and answer again",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        store: TrustStore,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = TrustStore::new(dir.path().join("data/trust"));
            Self { dir, store }
        }

        fn project(&self, name: &str, text: &str) -> PathBuf {
            let root = self.dir.path().join(name);
            std::fs::create_dir_all(root.join(".windlass")).unwrap();
            std::fs::write(root.join(".windlass/config.toml"), text).unwrap();
            root
        }

        fn said(&self, root: &Path) -> Option<Said> {
            let (files, _) = project_files(root).unwrap();
            self.store.said(root, &files[0]).unwrap()
        }

        fn trust(&self, root: &Path) {
            let (files, _) = project_files(root).unwrap();
            self.store.keep(root, &files[0], Said::Trusted).unwrap();
        }
    }

    #[test]
    fn only_these_bytes_in_this_place_are_trusted() {
        let place = Place::new();
        let root = place.project("a", "model = \"x\"\n");
        assert_eq!(place.said(&root), None);
        place.trust(&root);
        assert_eq!(place.said(&root), Some(Said::Trusted));
        // One byte more.
        std::fs::write(root.join(".windlass/config.toml"), "model = \"x\"\n ").unwrap();
        assert_eq!(place.said(&root), None);
        place.trust(&root);
        // Back to the first content: trust is about one content at a time.
        std::fs::write(root.join(".windlass/config.toml"), "model = \"x\"\n").unwrap();
        assert_eq!(place.said(&root), None);
        place.trust(&root);
        // The same bytes elsewhere, and in a repository below.
        assert_eq!(place.said(&place.project("b", "model = \"x\"\n")), None);
        assert_eq!(
            place.said(&place.project("a/vendor/dep", "model = \"x\"\n")),
            None
        );
        // A link to the trusted place is that place.
        symlink(&root, place.dir.path().join("link")).unwrap();
        assert_eq!(
            place.said(&place.dir.path().join("link")),
            Some(Said::Trusted)
        );
        let listed = place.store.list().unwrap();
        assert_eq!(listed.len(), 1);
        assert!(place.store.forget(&root).unwrap() && !place.store.forget(&root).unwrap());
        assert_eq!(place.said(&root), None);
    }

    #[test]
    fn a_link_borrows_nothing() {
        let place = Place::new();
        let trusted = place.project("trusted", "model = \"x\"\n");
        place.trust(&trusted);
        let hostile = place.dir.path().join("hostile");
        std::fs::create_dir(&hostile).unwrap();
        symlink(trusted.join(".windlass"), hostile.join(".windlass")).unwrap();
        assert_eq!(
            project_files(&hostile).unwrap(),
            (vec![], vec![".windlass"])
        );
        let other = place.dir.path().join("other");
        std::fs::create_dir_all(other.join(".windlass")).unwrap();
        symlink(
            trusted.join(".windlass/config.toml"),
            other.join(".windlass/config.toml"),
        )
        .unwrap();
        std::fs::create_dir(other.join(".windlass/config.local.toml")).unwrap();
        let (files, links) = project_files(&other).unwrap();
        assert_eq!((files, links), (vec![], PROJECT_FILES.to_vec()));
    }

    #[test]
    fn answers_that_others_could_have_written_are_not_used() {
        let place = Place::new();
        let root = place.project("a", "model = \"x\"\n");
        place.trust(&root);
        let file = std::fs::read_dir(place.dir.path().join("data/trust"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            file.parent()
                .unwrap()
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
        let (files, _) = project_files(&root).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(place.store.said(&root, &files[0]).is_err());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        // The answers of one directory under the name of another.
        let other = place.project("b", "model = \"x\"\n");
        std::fs::copy(&file, place.store.path(&other.canonicalize().unwrap())).unwrap();
        assert_eq!(place.said(&other), None);
        std::fs::write(&file, "{").unwrap();
        assert!(place.store.said(&root, &files[0]).is_err());
        std::fs::remove_file(&file).unwrap();
        symlink(root.join(".windlass/config.toml"), &file).unwrap();
        assert!(place.store.said(&root, &files[0]).is_err());
    }

    #[test]
    fn a_project_brings_no_answers_of_its_own() {
        let place = Place::new();
        let root = place.project("a", "");
        assert!(!place.store.lies_in(&root));
        assert!(TrustStore::new(root.join("data/trust")).lies_in(&root));
        assert!(TrustStore::new(root.join("not/there/yet")).lies_in(&root));
    }
}
