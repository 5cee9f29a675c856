//! Git repositories in the overlay of a command. Files of git are moved, and nothing lands that makes git execute a
//! program.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType};
use windlass_core::workspace::{FileError, Files};

use super::super::git_config::{NewConfig, differs_plainly, new_config};
use super::{MoveOrigin, OverlayEntry, OverlayReader, PROTECTED, PlainMove, with_reason};
use crate::git_dirs::{GitDirs, is_git_dir};
use crate::path::path_of;
use crate::working_copy::parent_of;
use windlass_host::sandbox::names;
use windlass_host::workspace::from_io;

/// Maximum bytes of a settings file of a repository.
const MAX_CONFIG: u64 = 64 << 10;
/// Maximum names in a new ignored directory that are read.
const MAX_WALKED: usize = 10_000_000;
/// The reason why there is no undo.
const GIT: &str = "git keeps its own history; see `git reflog`";
const RUNS_PROGRAMS: &str =
    "these settings do not land, because they make git run programs or read further settings";

impl OverlayReader<'_> {
    /// Handles an entry with the name `.git`.
    pub(super) fn repository(&mut self, entry: OverlayEntry) -> Result<(), FileError> {
        let path = entry.path.clone();
        let is_folder = entry.about.is_dir() && !entry.is_gone();
        match &entry.lower {
            // A repository must not be removed or replaced.
            Some(lower) if !lower.is_dir() || !is_folder || self.is_opaque(&path) => {
                self.refuse(&path, PROTECTED);
                Ok(())
            }
            Some(_) => {
                let before = self.diff.plain.len();
                self.plain(entry, MoveOrigin::Repository(&path))?;
                let only_index = |one: &PlainMove| one.path() == path.join("index");
                if !self.diff.plain[before..].iter().all(only_index) {
                    self.lose(&path, GIT);
                }
                Ok(())
            }
            None if is_folder => {
                self.lose(&path, GIT);
                self.new_repository(&path, &path)
            }
            None if entry.is_gone() => Ok(()),
            // A file or a symlink refers git to a repository elsewhere.
            None => {
                self.refuse(&path, PROTECTED);
                Ok(())
            }
        }
    }

    /// Handles a repository that the command created: settings that execute programs are left out.
    fn new_repository(&mut self, git: &Path, folder: &Path) -> Result<(), FileError> {
        for entry in self.entries(folder, false)? {
            let name = entry
                .path
                .strip_prefix(git)
                .unwrap_or(&entry.path)
                .to_owned();
            let plain = ["objects", "refs", "logs"]
                .iter()
                .any(|plain| name == Path::new(plain));
            if names::is_discarded_in_git(&name, true) {
                self.refuse(&entry.path, PROTECTED);
            } else if name.ends_with("config") && !entry.about.is_dir() {
                self.new_config(entry)?;
            } else if entry.about.is_dir() && !plain {
                let path = entry.path.clone();
                self.diff
                    .folders
                    .push((path.clone(), entry.about.mode() & 0o7777));
                self.new_repository(git, &path)?;
            } else {
                self.plain(entry, MoveOrigin::NewRepository)?;
            }
        }
        Ok(())
    }

    /// Handles the settings of a repository that the command created.
    fn new_config(&mut self, entry: OverlayEntry) -> Result<(), FileError> {
        let text = read_config(&self.upper.root().join(&entry.path));
        match text.and_then(|text| new_config(&text)) {
            None => {
                self.refuse(&entry.path, PROTECTED);
                return Ok(());
            }
            Some(NewConfig::Plain) => {}
            Some(NewConfig::Stripped { text, dropped }) => {
                let why = format!("{}: {RUNS_PROGRAMS}", dropped.join(", "));
                self.diff.skipped.push(with_reason(&entry.path, &why));
                self.diff.configs.push((entry.path.clone(), text));
            }
        }
        self.plain(entry, MoveOrigin::NewRepository)
    }

    pub(super) fn is_protected(&self, path: &Path, place: MoveOrigin<'_>) -> bool {
        let MoveOrigin::Repository(git) = place else {
            return false;
        };
        let Ok(name) = path.strip_prefix(git) else {
            return false;
        };
        if name != Path::new("config") {
            return names::is_discarded_in_git(name, false);
        }
        let old = read_config(&self.root.root().join(path));
        let new = read_config(&self.upper.root().join(path));
        !matches!((old, new), (Some(old), Some(new)) if differs_plainly(&old, &new))
    }

    /// Whether a new directory contains a repository, at any depth. It may contain far more files than a command may
    /// change, so only names are read.
    pub(super) fn holds_git(&self, folder: &Path) -> Result<bool, FileError> {
        let (mut open, mut left) = (vec![self.upper.root().join(folder)], MAX_WALKED);
        while let Some(folder) = open.pop() {
            let failed = |err: std::io::Error| from_io(&folder, &err);
            let mut names = BTreeSet::new();
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if entry.file_type().map_err(failed)?.is_dir() {
                    open.push(entry.path());
                }
                let many = || failed(std::io::Error::other("it contains too many files to check"));
                left = left.checked_sub(1).ok_or_else(many)?;
                names.insert(entry.file_name());
            }
            let has = |name: &str| names.contains(OsStr::new(name));
            if has(".git") || is_git_dir(has) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses files in a directory that git would treat as a repository.
    pub(super) fn refuse_git_dirs(&mut self) {
        let mut dirs = GitDirs::new(|path: &Path| self.will_have(path));
        let swaps = self.diff.swaps.iter().filter(|swap| swap.after.is_there());
        let swaps = swaps.map(|swap| path_of(&swap.path));
        let put = self.diff.plain.iter().filter_map(|one| match one {
            PlainMove::Put(path) => Some(Cow::Borrowed(path.as_path())),
            PlainMove::Remove(_) => None,
        });
        let refused = swaps
            .chain(put)
            .filter_map(|path| Some(with_reason(&path, &dirs.refusal(&path)?)));
        let refused: Vec<_> = refused.collect();
        self.diff.refused.extend(refused);
    }

    /// Whether an entry exists at a path after the landing.
    fn will_have(&self, path: &Path) -> bool {
        let about = parent_of(&self.upper, path)
            .ok()
            .and_then(|(parent, name)| {
                rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()
            });
        match about {
            Some(about) => {
                let kind = FileType::from_raw_mode(about.st_mode);
                kind != FileType::CharacterDevice
            }
            None => {
                let hidden = path.parent().is_some_and(|above| self.is_opaque(above));
                !hidden && !self.gone.contains(path) && self.lower(path).is_some()
            }
        }
    }
}

/// The text of a settings file, if it is a regular file.
fn read_config(path: &Path) -> Option<String> {
    let about = std::fs::symlink_metadata(path).ok()?;
    let bytes = about
        .is_file()
        .then(|| windlass_host::workspace::read_file(path, MAX_CONFIG).ok())?;
    String::from_utf8(bytes?).ok()
}
