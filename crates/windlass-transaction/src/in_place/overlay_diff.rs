//! Reads the upper directory of a command's overlay: the files that the command wrote, the names that it deleted, and
//! the directories that it replaced. Decides which changes land, which are moved, and which prevent the landing. It
//! changes nothing.

mod repositories;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{FileError, Files};

use super::command_overlay::{
    CommandOverlay, EntryStamp, FileTime, SyncedEntries, changed_at, is_whiteout,
};
use crate::landing::image_at;
use crate::path::text_of;
use crate::symlinks::{SymlinkVerdict, judge_symlink};
use crate::working_copy::parent_of;
use windlass_host::sandbox::names;
use windlass_host::search::IgnoreRules;
use windlass_host::workspace::is_staging;
use windlass_host::workspace::{Root, from_io, is_draft};

/// The changes of a command with more paths do not land.
const MAX_CHANGED: usize = 500_000;
/// The extended attribute with which the kernel marks a directory that hides the lower one.
const OPAQUE: &str = "user.overlay.opaque";

/// Everything that a command changed in the workspace.
#[derive(Debug, Default)]
pub(super) struct OverlayDiff {
    /// Files and symlinks, by content.
    pub(super) swaps: Vec<Swap>,
    /// Files with the same content and different times.
    pub(super) times: Vec<String>,
    /// Directories that are new or have another mode, parents first.
    pub(super) folders: Vec<(PathBuf, u32)>,
    /// Deleted directories, deepest first.
    pub(super) gone: Vec<PathBuf>,
    /// Entries that are moved without undo: ignored files, and files of git.
    pub(super) plain: Vec<PlainMove>,
    /// Paths that must not change, or that another program changed, with the reason. They prevent the landing of all
    /// changes.
    pub(super) refused: Vec<(String, String)>,
    /// Paths that never land, with the reason: pipes, sockets, devices, and settings that execute programs.
    pub(super) skipped: Vec<(String, String)>,
    /// Settings of new repositories, with the text that lands in place of the one in the overlay.
    pub(super) configs: Vec<(PathBuf, String)>,
    /// Paths that change without undo, with the reason.
    pub(super) lost: Vec<(String, String)>,
    /// The entries that land, with the stamps that they had when they were read.
    pub(super) stamps: Vec<(PathBuf, EntryStamp)>,
}

/// An entry that is moved or removed without undo.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlainMove {
    /// Move it from the overlay to the same path of the workspace.
    Put(PathBuf),
    /// Remove it with everything in it.
    Remove(PathBuf),
}

impl PlainMove {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Put(path) | Self::Remove(path) => path,
        }
    }
}

/// The kind of directory that contains an entry to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveOrigin<'a> {
    /// In an ignored directory.
    Output,
    /// In this repository of the workspace.
    Repository(&'a Path),
    /// In a repository that the command created.
    NewRepository,
}

/// Reasons why the changes do not land.
const PROTECTED: &str =
    "it is protected: commands do not change files that run programs or instruct agents";
const MEANWHILE: &str = "another program changed it while the command ran";
const SPECIAL: &str = "pipes, sockets and devices do not land";
/// The reason why there is no undo.
const OUTPUT: &str = "it is ignored, and ignored files are not stored";

/// Reads the overlay of a command that has ended.
pub(super) fn read(root: &Root, overlay: &CommandOverlay) -> Result<OverlayDiff, FileError> {
    let upper = Root::open(&overlay.upper)
        .map_err(|err| from_io(&overlay.upper, &std::io::Error::other(err)))?;
    // Names of git are judged by their place. Names that are protected only if they exist are not protected here
    // either.
    let protected = names::of_workspace(root.root(), &[])
        .into_iter()
        .map(|one| one.name);
    let there = |name: &PathBuf| std::fs::symlink_metadata(root.root().join(name)).is_ok();
    let protected = protected
        .filter(|name| !name.starts_with(".git") && there(name))
        .collect();
    let (began, gone, synced) = (overlay.began, &overlay.gone, &overlay.synced);
    let mut reader = OverlayReader {
        root,
        upper,
        began,
        gone,
        synced,
        protected,
        diff: OverlayDiff::default(),
        left: MAX_CHANGED,
    };
    reader.source(Path::new(""), &IgnoreRules::of(root), true)?;
    reader.refuse_git_dirs();
    // The order of git: referenced objects before the files that refer to them.
    reader.diff.plain.sort_by_cached_key(git_order);
    Ok(reader.diff)
}

fn git_order(one: &PlainMove) -> u8 {
    let mut parts = one
        .path()
        .components()
        .map(|part| part.as_os_str())
        .skip_while(|part| *part != ".git")
        .skip(1);
    match (parts.next(), one) {
        (None, _) => 0,
        (Some(first), PlainMove::Put(_)) if first == "objects" => 1,
        (Some(first), _) if first == "refs" || first == "packed-refs" || first == "logs" => 3,
        (Some(first), _) if first == "HEAD" || first == "index" => 4,
        (Some(first), PlainMove::Remove(_)) if first == "objects" => 5,
        _ => 2,
    }
}

struct OverlayReader<'a> {
    root: &'a Root,
    upper: Root,
    began: FileTime,
    /// Deleted names, in addition to those that the overlay marks.
    gone: &'a BTreeSet<PathBuf>,
    synced: &'a SyncedEntries,
    /// Names that the settings of the workspace protect.
    protected: BTreeSet<PathBuf>,
    diff: OverlayDiff,
    left: usize,
}

/// An entry of the overlay.
struct OverlayEntry {
    path: PathBuf,
    about: Metadata,
    /// The entry at the same path of the workspace.
    lower: Option<Metadata>,
    /// It is not in the overlay, and represents a deleted name.
    removed: bool,
}

impl OverlayEntry {
    /// Whether it represents a deleted name.
    fn is_gone(&self) -> bool {
        self.removed || is_whiteout(&self.about)
    }

    fn is_special(&self) -> bool {
        let kind = self.about.file_type();
        !(kind.is_file() || kind.is_dir() || kind.is_symlink())
    }

    fn covers_folder(&self) -> bool {
        self.lower.as_ref().is_some_and(Metadata::is_dir)
    }
}

impl OverlayReader<'_> {
    /// Reads a directory of the source set; `under` says whether the workspace also has a directory there.
    fn source(
        &mut self,
        folder: &Path,
        rules: &Rc<IgnoreRules>,
        under: bool,
    ) -> Result<(), FileError> {
        for entry in self.entries(folder, under)? {
            let path = entry.path.clone();
            let is_folder = if entry.is_gone() {
                entry.covers_folder()
            } else {
                entry.about.is_dir()
            };
            let name = path.file_name().unwrap_or_default();
            if is_draft(name) || is_staging(name) {
                continue;
            }
            if names::is_discarded(&path, entry.lower.is_some()) || self.protected.contains(&path) {
                if !self.is_synced(&path, &entry.about) {
                    self.refuse(&path, PROTECTED);
                }
            } else if name == ".git" {
                self.repository(entry)?;
            } else if is_folder && rules.ignores(&path, true) {
                self.lose(&path, OUTPUT);
                self.output(entry)?;
            } else if entry.is_gone() {
                self.delete(&path, entry.lower.as_ref(), rules)?;
            } else if is_folder {
                self.folder(&entry, rules)?;
            } else if entry.is_special() {
                self.skip(&path);
            } else {
                self.file(&entry, rules)?;
            }
        }
        Ok(())
    }

    fn folder(&mut self, entry: &OverlayEntry, rules: &Rc<IgnoreRules>) -> Result<(), FileError> {
        let mode = entry.about.mode() & 0o7777;
        match &entry.lower {
            Some(lower) if lower.is_dir() => {
                if self.is_opaque(&entry.path) && !self.synced.contains(&entry.path, &entry.about) {
                    self.delete_hidden(&entry.path, &rules.inside(self.root, &entry.path))?;
                }
                if lower.mode() & 0o7777 != mode {
                    self.diff.folders.push((entry.path.clone(), mode));
                }
            }
            lower => {
                self.delete(&entry.path, lower.as_ref(), rules)?;
                self.diff.folders.push((entry.path.clone(), mode));
            }
        }
        match entry.covers_folder() {
            true => self.source(&entry.path, &rules.inside(self.root, &entry.path), true),
            // Its ignore files are new and do not apply yet.
            false => self.source(&entry.path, rules, false),
        }
    }

    fn file(&mut self, entry: &OverlayEntry, rules: &Rc<IgnoreRules>) -> Result<(), FileError> {
        let path = text_of(&entry.path);
        let path = path.as_str();
        let before = match &entry.lower {
            Some(lower) if lower.is_dir() => {
                self.delete(&entry.path, Some(lower), rules)?;
                Image::Absent
            }
            Some(lower) if self.is_newer(&entry.path, lower) => {
                self.refuse(&entry.path, MEANWHILE);
                return Ok(());
            }
            Some(lower) => match self.image_as_seen(&entry.path, lower) {
                Ok(image) => image,
                Err(why) => {
                    self.refuse(&entry.path, &why);
                    return Ok(());
                }
            },
            None => Image::Absent,
        };
        let after = image_at(&self.upper, path)?;
        if let Image::Link { target } = &after
            && before != after
            && let SymlinkVerdict::Ask(why) | SymlinkVerdict::Never(why) =
                self.judge_symlink(path, target)
        {
            self.refuse(
                &entry.path,
                &format!("{why}; create it yourself if you want it"),
            );
            return Ok(());
        }
        if before != after {
            self.diff.swaps.push(Swap {
                path: path.to_owned(),
                before,
                after,
            });
        } else if entry.about.is_file() {
            self.diff.times.push(path.to_owned());
        }
        Ok(())
    }

    /// Judges the target of a new symlink, through symlinks of the overlay and the workspace.
    fn judge_symlink(&self, path: &str, target: &str) -> SymlinkVerdict {
        let link = |path: &Path| {
            let upper = std::fs::read_link(self.upper.root().join(path));
            let found = upper.or_else(|_| std::fs::read_link(self.root.root().join(path)));
            found.ok()
        };
        judge_symlink(self.root.root(), path, target, &link)
    }

    /// Deletes a path of the workspace with everything below it.
    fn delete(
        &mut self,
        path: &Path,
        lower: Option<&Metadata>,
        rules: &Rc<IgnoreRules>,
    ) -> Result<(), FileError> {
        let Some(lower) = lower else { return Ok(()) };
        self.count(path)?;
        if lower.is_dir() {
            self.delete_hidden(path, &rules.inside(self.root, path))?;
            self.diff.gone.push(path.to_owned());
            return Ok(());
        }
        if self.is_newer(path, lower) {
            self.refuse(path, MEANWHILE);
        } else if lower.is_file() || lower.is_symlink() {
            match self.image_as_seen(path, lower) {
                Ok(before) => self.diff.swaps.push(Swap {
                    path: text_of(path),
                    before,
                    after: Image::Absent,
                }),
                Err(why) => self.refuse(path, &why),
            }
        } else {
            self.diff.plain.push(PlainMove::Remove(path.to_owned()));
        }
        Ok(())
    }

    /// Deletes everything in a directory of the workspace that the overlay hides.
    fn delete_hidden(&mut self, folder: &Path, rules: &Rc<IgnoreRules>) -> Result<(), FileError> {
        for path in self.names_below(folder)? {
            if self.upper_has(&path) {
                continue;
            }
            let lower = self.lower(&path);
            let is_folder = lower.as_ref().is_some_and(Metadata::is_dir);
            if names::is_discarded(&path, true)
                || self.protected.contains(&path)
                || path.ends_with(".git")
            {
                self.refuse(&path, PROTECTED);
            } else if is_folder && rules.ignores(&path, true) {
                self.lose(&path, OUTPUT);
                self.diff.plain.push(PlainMove::Remove(path));
            } else {
                self.delete(&path, lower.as_ref(), rules)?;
            }
        }
        Ok(())
    }

    /// Handles an entry of an ignored directory. It is moved without undo; repositories in it are judged like any
    /// others.
    fn output(&mut self, entry: OverlayEntry) -> Result<(), FileError> {
        self.plain(entry, MoveOrigin::Output)
    }

    /// Handles an entry that is moved without undo.
    fn plain(&mut self, entry: OverlayEntry, place: MoveOrigin<'_>) -> Result<(), FileError> {
        let path = entry.path.clone();
        if place == MoveOrigin::Output && path.ends_with(".git") {
            return self.repository(entry);
        }
        if self.is_protected(&path, place) {
            self.refuse(&path, PROTECTED);
        } else if entry.is_gone() {
            if entry.lower.is_some() {
                self.diff.plain.push(PlainMove::Remove(path));
            }
        } else if entry.is_special() {
            self.skip(&path);
        } else if entry.about.is_dir() && entry.covers_folder() {
            if self.is_opaque(&path) {
                let hidden = self
                    .names_below(&path)?
                    .into_iter()
                    .filter(|path| !self.upper_has(path) && !self.is_protected(path, place));
                let hidden: Vec<PlainMove> = hidden.map(PlainMove::Remove).collect();
                self.diff.plain.extend(hidden);
            }
            for inner in self.entries(&path, true)? {
                self.plain(inner, place)?;
            }
        } else if entry
            .lower
            .as_ref()
            .is_some_and(|lower| !lower.is_dir() && self.is_newer(&path, lower))
        {
            self.refuse(&path, MEANWHILE);
        } else {
            if entry.lower.is_some() && (entry.about.is_dir() || entry.covers_folder()) {
                self.diff.plain.push(PlainMove::Remove(path.clone()));
            }
            if place == MoveOrigin::Output && entry.about.is_dir() && self.holds_git(&path)? {
                let mode = entry.about.mode() & 0o7777;
                self.diff.folders.push((path.clone(), mode));
                for inner in self.entries(&path, false)? {
                    self.plain(inner, place)?;
                }
                return Ok(());
            }
            self.diff.plain.push(PlainMove::Put(path));
        }
        Ok(())
    }

    fn entries(&mut self, folder: &Path, under: bool) -> Result<Vec<OverlayEntry>, FileError> {
        let mut entries = Vec::new();
        for name in self.names(self.upper.root(), folder)? {
            let path = folder.join(name);
            self.count(&path)?;
            let full = self.upper.root().join(&path);
            let about = std::fs::symlink_metadata(&full).map_err(|err| from_io(&full, &err))?;
            // If the workspace has no directory here, its path may lead through a symlink to an unrelated place.
            let lower = if under { self.lower(&path) } else { None };
            if self.is_in_workspace(&path, &about, lower.as_ref()) {
                continue;
            }
            if !about.is_dir() {
                self.diff
                    .stamps
                    .push((path.clone(), EntryStamp::of(&about)));
            }
            entries.push(OverlayEntry {
                path,
                about,
                lower,
                removed: false,
            });
        }
        let inside = |path: &&PathBuf| path.parent() == Some(folder);
        for path in self.gone.iter().filter(inside).filter(|_| under) {
            self.count(path)?;
            if let Some(about) = self.lower(path) {
                entries.push(OverlayEntry {
                    path: path.clone(),
                    about: about.clone(),
                    lower: Some(about),
                    removed: true,
                });
            }
        }
        Ok(entries)
    }

    fn names_below(&mut self, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
        let names = self.names(self.root.root(), folder)?;
        Ok(names.into_iter().map(|name| folder.join(name)).collect())
    }

    fn names(&self, top: &Path, folder: &Path) -> Result<Vec<OsString>, FileError> {
        let full = top.join(folder);
        let entries = std::fs::read_dir(&full).map_err(|err| from_io(&full, &err))?;
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn lower(&self, path: &Path) -> Option<Metadata> {
        std::fs::symlink_metadata(self.root.root().join(path)).ok()
    }

    /// Whether the overlay has an entry at a path. A path through a symlink that the command created does not count.
    fn upper_has(&self, path: &Path) -> bool {
        parent_of(&self.upper, path).is_ok_and(|(parent, name)| {
            rustix::fs::statat(&parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
        })
    }

    /// Whether a directory hides the lower one. The kernel marks only the topmost.
    fn is_opaque(&self, path: &Path) -> bool {
        path.ancestors().any(|above| {
            let mut value = [0; 1];
            rustix::fs::lgetxattr(self.upper.root().join(above), OPAQUE, &mut value)
                .is_ok_and(|len| len == 1 && value == *b"y")
        })
    }

    /// Whether the workspace already has this entry: because it landed, or because it was copied into the view of the
    /// job. Ignored files of a running job are hard links.
    fn is_in_workspace(&self, path: &Path, about: &Metadata, lower: Option<&Metadata>) -> bool {
        let is_linked = |lower: &Metadata| (lower.dev(), lower.ino()) == (about.dev(), about.ino());
        !about.is_dir() && (self.synced.contains(path, about) || lower.is_some_and(is_linked))
    }

    /// Whether an entry and everything below it equals the workspace.
    fn is_synced(&self, path: &Path, about: &Metadata) -> bool {
        let below = || std::fs::read_dir(self.upper.root().join(path)).map(Iterator::flatten);
        let entry_is_synced = |entry: std::fs::DirEntry| {
            let about = std::fs::symlink_metadata(entry.path());
            about.is_ok_and(|about| self.is_synced(&path.join(entry.file_name()), &about))
        };
        self.synced.contains(path, about)
            && (!about.is_dir() || below().is_ok_and(|mut below| below.all(entry_is_synced)))
    }

    /// The content of a file of the workspace whose metadata was read before. If another program replaced or changed the file
    /// since then, its content is not the one that the command saw: landing over it would lose that change.
    fn image_as_seen(&self, path: &Path, seen: &Metadata) -> Result<Image, String> {
        let image = image_at(self.root, &text_of(path)).map_err(|err| err.message)?;
        let identity =
            |about: &Metadata| (about.dev(), about.ino(), about.size(), changed_at(about));
        match self.lower(path) {
            Some(now) if identity(&now) == identity(seen) => Ok(image),
            _ => Err(MEANWHILE.to_owned()),
        }
    }

    /// Whether another program changed the file since the command began, or since a job last saw it.
    fn is_newer(&self, path: &Path, lower: &Metadata) -> bool {
        changed_at(lower) > self.synced.base(path).unwrap_or(self.began)
    }

    fn count(&mut self, path: &Path) -> Result<(), FileError> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let many = format!("the command changed more than {MAX_CHANGED} paths");
                Err(from_io(path, &std::io::Error::other(many)))
            }
        }
    }

    fn refuse(&mut self, path: &Path, why: &str) {
        self.diff.refused.push(with_reason(path, why));
    }

    fn skip(&mut self, path: &Path) {
        self.diff.skipped.push(with_reason(path, SPECIAL));
    }

    fn lose(&mut self, path: &Path, why: &str) {
        self.diff.lost.push(with_reason(path, why));
    }
}

fn with_reason(path: &Path, why: &str) -> (String, String) {
    (text_of(path), why.to_owned())
}
