//! The view of one background job: an overlay that stays mounted while the job runs. Later changes of the workspace are
//! copied into the view, so that the job and programs that watch files see them. The overlay is not mounted again,
//! because the job's working directory and open files must stay valid.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, Stat};
use windlass_core::gate::is_credential;
use windlass_core::id::CallId;
use windlass_core::workspace::{Files, JobId};

use super::command_overlay::{CommandOverlay, EntryStamp};
use super::tree_watch::TreeChanges;
use crate::working_copy::{FileRecord, parent_of, put, remove};
use windlass_host::search::IgnoreRules;
use windlass_host::workspace::{Root, STAGING, is_draft, is_staging};

/// Maximum entries of the workspace that are compared with a view.
const MAX_COMPARED: usize = 400_000;

pub(super) struct JobView {
    pub(super) job: JobId,
    /// The call that started the job; the changes of the job belong to it.
    pub(super) call: Option<CallId>,
    pub(super) overlay: CommandOverlay,
    /// Paths that did not land, and were reported.
    pub(super) reported: HashSet<String>,
    /// The workspace as the job sees it.
    tree: Root,
    workspace: Arc<Root>,
}

/// The number of entries that may still be compared.
struct Comparison {
    left: usize,
}

impl JobView {
    pub(super) fn new(
        job: JobId,
        call: Option<CallId>,
        overlay: CommandOverlay,
        tree: OwnedFd,
        workspace: Arc<Root>,
    ) -> Self {
        Self {
            job,
            call,
            overlay,
            reported: HashSet::new(),
            tree: Root::from_handle(workspace.root().to_owned(), tree),
            workspace,
        }
    }

    /// Unmounts the view after the job has ended.
    pub(super) fn close(self) -> CommandOverlay {
        self.overlay
    }

    /// Copies later changes of the workspace into the view. Paths that the job changed stay as they are. A path that
    /// cannot be copied now is copied with its next change.
    pub(super) fn refresh(&mut self, changes: &TreeChanges) {
        let Ok(drafts) = self.make_drafts() else {
            return;
        };
        for (path, replaced) in &changes.paths {
            if !self.is_left_out(path) && !self.has_unlanded(path) {
                let _ = self.follow(&drafts, path, *replaced);
            }
        }
        if changes.unknown {
            let mut comparison = Comparison { left: MAX_COMPARED };
            let rules = IgnoreRules::of(&self.workspace);
            self.compare(&drafts, Path::new(""), &rules, &mut comparison);
        }
        let _ = rustix::fs::unlinkat(self.tree.handle(), &drafts.name, AtFlags::REMOVEDIR);
    }

    /// Resets paths of the view to the workspace, discarding the changes of the job.
    pub(super) fn revert(&mut self, paths: &[PathBuf]) {
        if let Ok(drafts) = self.make_drafts() {
            for path in paths {
                let _ = self.copy(&drafts, path, true);
            }
            let _ = rustix::fs::unlinkat(self.tree.handle(), &drafts.name, AtFlags::REMOVEDIR);
        }
    }

    /// A directory of the view in which files are completed before they get their names.
    fn make_drafts(&self) -> io::Result<Drafts> {
        let name = format!("{STAGING}{:016x}", windlass_host::clock::random_u64());
        rustix::fs::mkdirat(self.tree.handle(), &name, Mode::RWXU)?;
        let folder = parent_of(&self.tree, &Path::new(&name).join("draft"))?.0;
        Ok(Drafts { name, folder })
    }

    /// Paths that are never copied: drafts of landings, and credentials, which the view hides.
    fn is_left_out(&self, path: &Path) -> bool {
        path.iter().any(|name| is_draft(name) || is_staging(name))
            || is_credential(&path.to_string_lossy())
    }

    /// Whether the job changed something at or below a path that has not landed yet.
    fn has_unlanded(&self, path: &Path) -> bool {
        let Some(about) = self.upper(path) else {
            return false;
        };
        if !about.is_dir() {
            return !self.overlay.synced.contains(path, &about);
        }
        let is_directory = |dir: &BorrowedFd<'_>, name: &OsStr| {
            stat(*dir, name).is_some_and(|at| at.kind == FileType::Directory)
        };
        if parent_of(&self.workspace, path)
            .is_ok_and(|(dir, name)| is_directory(&dir.as_fd(), name))
        {
            // Its entries are checked one by one.
            return false;
        }
        let Ok(entries) = std::fs::read_dir(self.overlay.upper.join(path)) else {
            return false;
        };
        entries
            .flatten()
            .any(|entry| self.has_unlanded(&path.join(entry.file_name())))
    }

    fn upper(&self, path: &Path) -> Option<Metadata> {
        std::fs::symlink_metadata(self.overlay.upper.join(path)).ok()
    }

    /// Copies a path that changed. A file that is not in the upper directory is copied even if the view already shows
    /// its bytes: programs that watch the view are only notified of changes in the upper directory.
    fn follow(&mut self, drafts: &Drafts, path: &Path, replaced: bool) -> io::Result<()> {
        let workspace = record(&self.workspace, path);
        let seen = record(&self.tree, path);
        let is_same = match (&workspace, &seen) {
            (None, None) => true,
            (Some(workspace), Some(seen)) => !replaced && seen.is_copy_of(workspace),
            _ => false,
        };
        let in_layer = self.upper(path).is_some();
        let is_directory = workspace.is_some_and(|one| one.kind == FileType::Directory);
        if is_same && (in_layer || is_directory || workspace.is_none()) {
            return Ok(());
        }
        self.copy(drafts, path, replaced)
    }

    /// Copies one path of the workspace to the view, with everything below a directory that is new.
    fn copy(&mut self, drafts: &Drafts, path: &Path, replaced: bool) -> io::Result<()> {
        let (to, name) = parent_of(&self.tree, path)?;
        let from = parent_of(&self.workspace, path).ok();
        let wanted = from
            .as_ref()
            .and_then(|(dir, name)| stat(dir.as_fd(), name));
        let seen = stat(to.as_fd(), name);
        let (Some((from, _)), Some(wanted)) = (from, wanted) else {
            remove(to.as_fd(), name)?;
            self.mark_synced(path, (0, 0));
            return Ok(());
        };
        let is_directory = wanted.kind == FileType::Directory;
        let was_directory = seen.is_some_and(|seen| seen.kind == FileType::Directory);
        if seen.is_some() && (is_directory != was_directory || (is_directory && replaced)) {
            remove(to.as_fd(), name)?;
        }
        match wanted.kind {
            FileType::Directory => {
                put(from.as_fd(), to.as_fd(), name, &wanted)?;
                self.mark_synced(path, wanted.changed);
                if !was_directory || replaced {
                    for (name, _) in self.workspace.entries(path).map_err(io::Error::other)?.1 {
                        let below = path.join(name);
                        if !self.is_left_out(&below) {
                            self.copy(drafts, &below, false)?;
                        }
                    }
                }
            }
            FileType::RegularFile | FileType::Symlink => {
                // Remove a draft that an earlier failure left.
                let _ = rustix::fs::unlinkat(&drafts.folder, name, AtFlags::empty());
                put(from.as_fd(), drafts.folder.as_fd(), name, &wanted)?;
                rustix::fs::renameat(&drafts.folder, name, &to, name)?;
                self.mark_synced(path, wanted.changed);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records that the entry of the overlay equals the one of the workspace.
    fn mark_synced(&mut self, path: &Path, base: (i64, i64)) {
        match self.upper(path) {
            Some(about) => self.overlay.synced.add(path, EntryStamp::of(&about), base),
            None => self.overlay.synced.remove(path),
        }
    }

    /// Compares a directory of the source set with the view, name by name.
    fn compare(
        &mut self,
        drafts: &Drafts,
        directory: &Path,
        rules: &Rc<IgnoreRules>,
        comparison: &mut Comparison,
    ) {
        let names = |root: &Root| {
            root.entries(directory)
                .map_or(Vec::new(), |(_, names)| names)
        };
        let all = [names(&self.workspace), names(&self.tree)].concat();
        let all: BTreeSet<_> = all.into_iter().map(|(name, _)| name).collect();
        for name in all {
            let path = directory.join(&name);
            let workspace = record(&self.workspace, &path);
            let is_directory = workspace.is_some_and(|one| one.kind == FileType::Directory);
            comparison.left = comparison.left.saturating_sub(1);
            if comparison.left == 0 {
                return;
            }
            if name == ".git" || self.is_left_out(&path) || rules.ignores(&path, is_directory) {
                continue;
            }
            let is_same = match (&workspace, &record(&self.tree, &path)) {
                (Some(workspace), Some(seen)) => {
                    seen.is_copy_of(workspace)
                        || link_target(&self.workspace, &path)
                            .is_some_and(|target| link_target(&self.tree, &path) == Some(target))
                }
                (workspace, seen) => workspace.is_none() == seen.is_none(),
            };
            if !is_same && !self.has_unlanded(&path) {
                let _ = self.copy(drafts, &path, false);
            } else if is_directory {
                let inside = rules.inside(&self.workspace, &path);
                self.compare(drafts, &path, &inside, comparison);
            }
        }
    }
}

struct Drafts {
    name: String,
    folder: OwnedFd,
}

fn record(root: &Root, path: &Path) -> Option<FileRecord> {
    let (dir, name) = parent_of(root, path).ok()?;
    stat(dir.as_fd(), name)
}

fn link_target(root: &Root, path: &Path) -> Option<CString> {
    let (dir, name) = parent_of(root, path).ok()?;
    rustix::fs::readlinkat(&dir, name, Vec::new()).ok()
}

fn stat(dir: BorrowedFd<'_>, name: &OsStr) -> Option<FileRecord> {
    let stat: Stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileRecord::of(&stat))
}
