//! The user's trust in a project's settings: exactly these bytes of this file in this directory. One changed byte,
//! another directory or a symlink on the way is not trusted. The decisions are stored in the data directory, never in
//! the project. A store that others can write is not used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use windlass_core::workspace::{FileError, FileErrorKind};

use crate::workspace::{Root, from_errno, from_io, open_regular_itself, read_whole, write_whole};

/// The settings files of a project, in ascending precedence.
pub const PROJECT_FILES: [&str; 2] = [".windlass/config.toml", ".windlass/config.local.toml"];
/// People write settings files by hand; a larger file is a mistake.
const MAX_FILE: u64 = 1 << 20;
/// The decisions for one directory take a few lines.
const MAX_RECORD: u64 = 256 << 10;
/// The maximum number of directories that are listed.
const MAX_LISTED: usize = 10_000;

/// A settings file of a project, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// The path relative to the root of the project.
    pub name: &'static str,
    /// The exact bytes: the hashed bytes are the ones that are interpreted.
    pub bytes: Vec<u8>,
}

impl ProjectFile {
    /// Returns the hash that a decision is bound to.
    #[must_use]
    pub fn hash(&self) -> String {
        blake3::hash(&self.bytes).to_hex().to_string()
    }
}

/// Reads the settings files of a project. A directory or file that is a symlink is not read, because its content would
/// be from elsewhere. Such names are returned second.
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

/// The user's decision about a settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustDecision {
    Trusted,
    /// The bytes are not used, and the user is not asked about them again.
    Refused,
}

/// The decisions for one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRecord {
    /// An absolute path without symlinks.
    pub root: PathBuf,
    /// By name and hash.
    pub files: BTreeMap<String, BTreeMap<String, TrustDecision>>,
}

/// The decisions of the user, one file for each directory.
#[derive(Debug, Clone)]
pub struct TrustStore {
    dir: PathBuf,
}

impl TrustStore {
    /// Uses the decisions in this directory.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the decision about exactly this file of exactly this directory.
    pub fn decision(
        &self,
        root: &Path,
        file: &ProjectFile,
    ) -> Result<Option<TrustDecision>, FileError> {
        let root = real(root)?;
        let record = self.read(&self.path(&root))?;
        let record = record.filter(|record| record.root == root);
        Ok(record.and_then(|record| record.files.get(file.name)?.get(&file.hash()).copied()))
    }

    /// Stores a decision. It replaces earlier ones about the same file: only one content is trusted at a time.
    pub fn keep(
        &self,
        root: &Path,
        file: &ProjectFile,
        decision: TrustDecision,
    ) -> Result<(), FileError> {
        let root = real(root)?;
        let path = self.path(&root);
        let known = self.read(&path)?.filter(|record| record.root == root);
        let mut record = known.unwrap_or_else(|| TrustRecord {
            root,
            files: BTreeMap::new(),
        });
        record.files.insert(
            file.name.to_owned(),
            BTreeMap::from([(file.hash(), decision)]),
        );
        crate::private::create_dir(&self.dir)?;
        let text = serde_json::to_string_pretty(&record)
            .map_err(|err| damaged(&path, &err.to_string()))?;
        write_whole(&path, text.as_bytes(), 0o600)
    }

    /// Deletes all decisions for a directory, which may no longer exist. Returns whether there were any.
    pub fn forget(&self, root: &Path) -> Result<bool, FileError> {
        let root = real(root).unwrap_or_else(|_| root.to_owned());
        let path = self.path(&root);
        match rustix::fs::unlink(&path) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(from_errno(&path, errno)),
        }
    }

    /// Returns all decisions, ordered by directory.
    pub fn list(&self) -> Result<Vec<TrustRecord>, FileError> {
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

    /// Returns whether the store lies in this directory: a project must not bring its own decisions.
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

    fn read(&self, path: &Path) -> Result<Option<TrustRecord>, FileError> {
        let (file, stat) = match open_regular_itself(path) {
            Ok(opened) => opened,
            Err(err) if err.kind == FileErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        };
        if stat.mode & 0o022 != 0 {
            return Err(damaged(path, "other users can write it"));
        }
        let bytes = read_whole(file, stat.size, MAX_RECORD, path)?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|err| damaged(path, &err.to_string()))
    }
}

/// Returns the canonical directory: a symlink to a trusted directory is trusted, and a copy is not.
fn real(root: &Path) -> Result<PathBuf, FileError> {
    root.canonicalize().map_err(|err| from_io(root, &err))
}

fn damaged(path: &Path, why: &str) -> FileError {
    FileError {
        kind: FileErrorKind::Io,
        message: format!(
            "the decisions in {} cannot be used ({why}); remove the file and decide again",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct TrustFixture {
        dir: tempfile::TempDir,
        store: TrustStore,
    }

    impl TrustFixture {
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

        fn decision(&self, root: &Path) -> Option<TrustDecision> {
            let (files, _) = project_files(root).unwrap();
            self.store.decision(root, &files[0]).unwrap()
        }

        fn trust(&self, root: &Path) {
            let (files, _) = project_files(root).unwrap();
            self.store
                .keep(root, &files[0], TrustDecision::Trusted)
                .unwrap();
        }
    }

    #[test]
    fn only_these_bytes_in_this_directory_are_trusted() {
        let fixture = TrustFixture::new();
        let root = fixture.project("a", "model = \"x\"\n");
        assert_eq!(fixture.decision(&root), None);
        fixture.trust(&root);
        assert_eq!(fixture.decision(&root), Some(TrustDecision::Trusted));
        // One byte is added.
        std::fs::write(root.join(".windlass/config.toml"), "model = \"x\"\n ").unwrap();
        assert_eq!(fixture.decision(&root), None);
        fixture.trust(&root);
        // The first content again: only one content is trusted at a time.
        std::fs::write(root.join(".windlass/config.toml"), "model = \"x\"\n").unwrap();
        assert_eq!(fixture.decision(&root), None);
        fixture.trust(&root);
        // The same bytes in another directory, and in a repository below.
        assert_eq!(
            fixture.decision(&fixture.project("b", "model = \"x\"\n")),
            None
        );
        assert_eq!(
            fixture.decision(&fixture.project("a/vendor/dep", "model = \"x\"\n")),
            None
        );
        // A symlink to the trusted directory is trusted.
        symlink(&root, fixture.dir.path().join("link")).unwrap();
        assert_eq!(
            fixture.decision(&fixture.dir.path().join("link")),
            Some(TrustDecision::Trusted)
        );
        let listed = fixture.store.list().unwrap();
        assert_eq!(listed.len(), 1);
        assert!(fixture.store.forget(&root).unwrap() && !fixture.store.forget(&root).unwrap());
        assert_eq!(fixture.decision(&root), None);
    }

    #[test]
    fn a_symlink_to_trusted_settings_is_not_trusted() {
        let fixture = TrustFixture::new();
        let trusted = fixture.project("trusted", "model = \"x\"\n");
        fixture.trust(&trusted);
        let hostile = fixture.dir.path().join("hostile");
        std::fs::create_dir(&hostile).unwrap();
        symlink(trusted.join(".windlass"), hostile.join(".windlass")).unwrap();
        assert_eq!(
            project_files(&hostile).unwrap(),
            (vec![], vec![".windlass"])
        );
        let other = fixture.dir.path().join("other");
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
    fn decisions_that_others_can_write_are_not_used() {
        let fixture = TrustFixture::new();
        let root = fixture.project("a", "model = \"x\"\n");
        fixture.trust(&root);
        let file = std::fs::read_dir(fixture.dir.path().join("data/trust"))
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
        assert!(fixture.store.decision(&root, &files[0]).is_err());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        // The decisions for one directory under the file name of another.
        let other = fixture.project("b", "model = \"x\"\n");
        std::fs::copy(&file, fixture.store.path(&other.canonicalize().unwrap())).unwrap();
        assert_eq!(fixture.decision(&other), None);
        std::fs::write(&file, "{").unwrap();
        assert!(fixture.store.decision(&root, &files[0]).is_err());
        std::fs::remove_file(&file).unwrap();
        symlink(root.join(".windlass/config.toml"), &file).unwrap();
        assert!(fixture.store.decision(&root, &files[0]).is_err());
    }

    #[test]
    fn a_store_inside_a_project_is_detected() {
        let fixture = TrustFixture::new();
        let root = fixture.project("a", "");
        assert!(!fixture.store.lies_in(&root));
        assert!(TrustStore::new(root.join("data/trust")).lies_in(&root));
        assert!(TrustStore::new(root.join("not/there/yet")).lies_in(&root));
    }
}
