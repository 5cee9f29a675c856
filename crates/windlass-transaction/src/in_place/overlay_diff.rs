//! Reads the layer of a command without the kernel: which files it wrote, which names it deleted, which folders it put in
//! the place of others. Decides what lands, what is moved and what speaks against it; changes nothing.

mod repositories;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{FileError, Files};

use super::layer::{CommandLayer, Moment, Settled, Stamp, changed_at, is_whiteout};
use crate::landing::look;
use crate::links::{Leads, leads};
use crate::path::text_of;
use crate::working_copy::parent_of;
use windlass_host::sandbox::names;
use windlass_host::search::Rules;
use windlass_host::workspace::is_staging;
use windlass_host::workspace::{Root, from_io, is_draft};

/// A command that changed more than this is not merged.
const MAX_CHANGED: usize = 500_000;
/// How the kernel marks a directory in a layer that shows nothing of what is under it.
const OPAQUE: &str = "user.overlay.opaque";

/// Everything a command changed in the workspace.
#[derive(Debug, Default)]
pub(super) struct LayerDiff {
    /// Files and links, by content.
    pub(super) swaps: Vec<Swap>,
    /// Files that have other times and the same content.
    pub(super) times: Vec<String>,
    /// Folders that are new or have another mode, parents first.
    pub(super) folders: Vec<(PathBuf, u32)>,
    /// Folders that are gone, what lies in them first.
    pub(super) gone: Vec<PathBuf>,
    /// What is moved as it is: outputs, and what git keeps.
    pub(super) plain: Vec<Plain>,
    /// Paths that must not change, or that another program changed, with the reason: the layer does not land.
    pub(super) refused: Vec<(String, String)>,
    /// Paths that never land, with the reason: pipes, sockets and devices, and settings that run programs.
    pub(super) skipped: Vec<(String, String)>,
    /// Settings of new repositories, with the text that lands instead of the one in the layer.
    pub(super) configs: Vec<(PathBuf, String)>,
    /// Paths that are changed without undo, with the reason.
    pub(super) lost: Vec<(String, String)>,
    /// Entries that land, as they were when they were read.
    pub(super) stamps: Vec<(PathBuf, Stamp)>,
}

/// Something that is moved or removed as it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// From the layer to the same path of the workspace.
    Put(PathBuf),
    /// Away, with everything in it.
    Remove(PathBuf),
}

impl Plain {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Put(path) | Self::Remove(path) => path,
        }
    }
}

/// Where something that is moved as it is lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    /// In an ignored folder.
    Output,
    /// In this repository of the workspace.
    Repository(&'a Path),
    /// In one that the command made.
    NewRepository,
}

/// Why a layer does not land.
const PROTECTED: &str =
    "it is protected: commands do not change files that run programs or instruct agents";
const MEANWHILE: &str = "another program changed it while the command ran";
const SPECIAL: &str = "pipes, sockets and devices do not land";
/// Why there is no undo.
const OUTPUT: &str = "it is ignored, and ignored files are not stored";

/// Reads a layer whose command has ended.
pub(super) fn read(root: &Root, layer: &CommandLayer) -> Result<LayerDiff, FileError> {
    let upper = Root::open(&layer.upper)
        .map_err(|err| from_io(&layer.upper, &std::io::Error::other(err)))?;
    // Those of git are known by where they are; those that are free while they are absent are so here, too.
    let protected = names::of_workspace(root.root(), &[])
        .into_iter()
        .map(|one| one.name);
    let there = |name: &PathBuf| std::fs::symlink_metadata(root.root().join(name)).is_ok();
    let protected = protected
        .filter(|name| !name.starts_with(".git") && there(name))
        .collect();
    let (began, gone, settled) = (layer.began, &layer.gone, &layer.settled);
    let mut reader = Reader {
        root,
        upper,
        began,
        gone,
        settled,
        protected,
        diff: LayerDiff::default(),
        left: MAX_CHANGED,
    };
    reader.source(Path::new(""), &Rules::of(root), true)?;
    reader.refuse_git_dirs();
    // Git's own order: what is pointed to before what points.
    reader.diff.plain.sort_by_cached_key(turn);
    Ok(reader.diff)
}

fn turn(one: &Plain) -> u8 {
    let mut parts = one
        .path()
        .components()
        .map(|part| part.as_os_str())
        .skip_while(|part| *part != ".git")
        .skip(1);
    match (parts.next(), one) {
        (None, _) => 0,
        (Some(first), Plain::Put(_)) if first == "objects" => 1,
        (Some(first), _) if first == "refs" || first == "packed-refs" || first == "logs" => 3,
        (Some(first), _) if first == "HEAD" || first == "index" => 4,
        (Some(first), Plain::Remove(_)) if first == "objects" => 5,
        _ => 2,
    }
}

struct Reader<'a> {
    root: &'a Root,
    upper: Root,
    began: Moment,
    /// Names that are gone, beside those that the layer marks.
    gone: &'a BTreeSet<PathBuf>,
    settled: &'a Settled,
    /// Names that the workspace's own settings protect.
    protected: BTreeSet<PathBuf>,
    diff: LayerDiff,
    left: usize,
}

/// An entry of the layer.
struct Entry {
    path: PathBuf,
    about: Metadata,
    /// What is at its path in the workspace.
    lower: Option<Metadata>,
    /// It is not in the layer, and stands for a name that is gone.
    removed: bool,
}

impl Entry {
    /// It stands for a name that is gone.
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

impl Reader<'_> {
    /// A folder of the source set; `under` says whether the workspace has a folder there too.
    fn source(&mut self, folder: &Path, rules: &Rc<Rules>, under: bool) -> Result<(), FileError> {
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
            if names::is_kept_out(&path, entry.lower.is_some()) || self.protected.contains(&path) {
                if !self.is_settled(&path, &entry.about) {
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

    fn folder(&mut self, entry: &Entry, rules: &Rc<Rules>) -> Result<(), FileError> {
        let mode = entry.about.mode() & 0o7777;
        match &entry.lower {
            Some(lower) if lower.is_dir() => {
                if self.is_opaque(&entry.path) && !self.settled.contains(&entry.path, &entry.about)
                {
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
            // Its ignore files are new, and say nothing yet.
            false => self.source(&entry.path, rules, false),
        }
    }

    fn file(&mut self, entry: &Entry, rules: &Rc<Rules>) -> Result<(), FileError> {
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
            Some(_) => match look(self.root, path) {
                Ok(image) => image,
                Err(err) => {
                    self.refuse(&entry.path, &err.message);
                    return Ok(());
                }
            },
            None => Image::Absent,
        };
        let after = look(&self.upper, path)?;
        if let Image::Link { target } = &after
            && before != after
            && let Leads::Ask(why) | Leads::Never(why) = self.leads(path, target)
        {
            self.refuse(
                &entry.path,
                &format!("{why}; make it yourself if you want it"),
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

    /// Where a new symlink leads, over those of the layer and the workspace.
    fn leads(&self, path: &str, target: &str) -> Leads {
        let link = |path: &Path| {
            let upper = std::fs::read_link(self.upper.root().join(path));
            let found = upper.or_else(|_| std::fs::read_link(self.root.root().join(path)));
            found.ok()
        };
        leads(self.root.root(), path, target, &link)
    }

    /// What is at a path of the workspace, and everything below it, is gone.
    fn delete(
        &mut self,
        path: &Path,
        lower: Option<&Metadata>,
        rules: &Rc<Rules>,
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
            let text = text_of(path);
            match look(self.root, &text) {
                Ok(before) => self.diff.swaps.push(Swap {
                    path: text,
                    before,
                    after: Image::Absent,
                }),
                Err(err) => self.refuse(path, &err.message),
            }
        } else {
            self.diff.plain.push(Plain::Remove(path.to_owned()));
        }
        Ok(())
    }

    /// Everything in a folder of the workspace that the layer does not show any more.
    fn delete_hidden(&mut self, folder: &Path, rules: &Rc<Rules>) -> Result<(), FileError> {
        for path in self.names_below(folder)? {
            if self.upper_has(&path) {
                continue;
            }
            let lower = self.lower(&path);
            let is_folder = lower.as_ref().is_some_and(Metadata::is_dir);
            if names::is_kept_out(&path, true)
                || self.protected.contains(&path)
                || path.ends_with(".git")
            {
                self.refuse(&path, PROTECTED);
            } else if is_folder && rules.ignores(&path, true) {
                self.lose(&path, OUTPUT);
                self.diff.plain.push(Plain::Remove(path));
            } else {
                self.delete(&path, lower.as_ref(), rules)?;
            }
        }
        Ok(())
    }

    /// Something in an ignored folder. It is moved as it is; repositories in it are judged as anywhere else.
    fn output(&mut self, entry: Entry) -> Result<(), FileError> {
        self.plain(entry, Place::Output)
    }

    /// Something that is moved as it is.
    fn plain(&mut self, entry: Entry, place: Place<'_>) -> Result<(), FileError> {
        let path = entry.path.clone();
        if place == Place::Output && path.ends_with(".git") {
            return self.repository(entry);
        }
        if self.is_protected(&path, place) {
            self.refuse(&path, PROTECTED);
        } else if entry.is_gone() {
            if entry.lower.is_some() {
                self.diff.plain.push(Plain::Remove(path));
            }
        } else if entry.is_special() {
            self.skip(&path);
        } else if entry.about.is_dir() && entry.covers_folder() {
            if self.is_opaque(&path) {
                let hidden = self
                    .names_below(&path)?
                    .into_iter()
                    .filter(|path| !self.upper_has(path) && !self.is_protected(path, place));
                let hidden: Vec<Plain> = hidden.map(Plain::Remove).collect();
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
                self.diff.plain.push(Plain::Remove(path.clone()));
            }
            if place == Place::Output && entry.about.is_dir() && self.holds_git(&path)? {
                let mode = entry.about.mode() & 0o7777;
                self.diff.folders.push((path.clone(), mode));
                for inner in self.entries(&path, false)? {
                    self.plain(inner, place)?;
                }
                return Ok(());
            }
            self.diff.plain.push(Plain::Put(path));
        }
        Ok(())
    }

    fn entries(&mut self, folder: &Path, under: bool) -> Result<Vec<Entry>, FileError> {
        let mut entries = Vec::new();
        for name in self.names(self.upper.root(), folder)? {
            let path = folder.join(name);
            self.count(&path)?;
            let full = self.upper.root().join(&path);
            let about = std::fs::symlink_metadata(&full).map_err(|err| from_io(&full, &err))?;
            // Where the workspace has no folder, a link there leads to what is none of this.
            let lower = if under { self.lower(&path) } else { None };
            if self.is_in_workspace(&path, &about, lower.as_ref()) {
                continue;
            }
            if !about.is_dir() {
                self.diff.stamps.push((path.clone(), Stamp::of(&about)));
            }
            entries.push(Entry {
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
                entries.push(Entry {
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

    /// Whether the layer has something at a path. A symlink that the command put in the place of a folder above it leads
    /// to another path.
    fn upper_has(&self, path: &Path) -> bool {
        parent_of(&self.upper, path).is_ok_and(|(parent, name)| {
            rustix::fs::statat(&parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
        })
    }

    /// Whether a folder shows nothing of what is under it. The kernel marks only the topmost of several.
    fn is_opaque(&self, path: &Path) -> bool {
        path.ancestors().any(|above| {
            let mut value = [0; 1];
            rustix::fs::lgetxattr(self.upper.root().join(above), OPAQUE, &mut value)
                .is_ok_and(|len| len == 1 && value == *b"y")
        })
    }

    /// Whether the workspace has this entry already: it landed, or the job has it from there. Ignored files of a job that
    /// still runs are hard links.
    fn is_in_workspace(&self, path: &Path, about: &Metadata, lower: Option<&Metadata>) -> bool {
        let is_linked = |lower: &Metadata| (lower.dev(), lower.ino()) == (about.dev(), about.ino());
        !about.is_dir() && (self.settled.contains(path, about) || lower.is_some_and(is_linked))
    }

    /// Whether an entry and everything below it is as in the workspace.
    fn is_settled(&self, path: &Path, about: &Metadata) -> bool {
        let below = || std::fs::read_dir(self.upper.root().join(path)).map(Iterator::flatten);
        let entry_is_settled = |entry: std::fs::DirEntry| {
            let about = std::fs::symlink_metadata(entry.path());
            about.is_ok_and(|about| self.is_settled(&path.join(entry.file_name()), &about))
        };
        self.settled.contains(path, about)
            && (!about.is_dir() || below().is_ok_and(|mut below| below.all(entry_is_settled)))
    }

    /// Whether another program changed it since the command began, or since a job last saw it.
    fn is_newer(&self, path: &Path, lower: &Metadata) -> bool {
        changed_at(lower) > self.settled.base(path).unwrap_or(self.began)
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
        self.diff.refused.push(told(path, why));
    }

    fn skip(&mut self, path: &Path) {
        self.diff.skipped.push(told(path, SPECIAL));
    }

    fn lose(&mut self, path: &Path, why: &str) {
        self.diff.lost.push(told(path, why));
    }
}

fn told(path: &Path, why: &str) -> (String, String) {
    (path.to_string_lossy().into_owned(), why.to_owned())
}
