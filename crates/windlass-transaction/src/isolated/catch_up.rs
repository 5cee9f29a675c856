//! Merges the user's changes into the copy of a run. A second snapshot of the user's tree shows the files that the user
//! changed while the run worked. They are merged before anything is judged or landed. A file that both sides changed is
//! merged only if its common base is known; otherwise it is a conflict. The merge never guesses.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{Files, WorkspaceError, WorkspaceErrorKind};

use super::check_tree::copy_path;
use super::mounted_copy::MAX_REMEMBERED;
use super::run_copy::{Baseline, RunCopy};
use super::stat_snapshot::{StatRecord, StatSnapshot};
use super::user_git::UserGit;
use super::{blocking, copy_tree};
use crate::landing::merge::three_way;
use crate::path::{path_of, text_of};

/// Conflicts that are named.
const MAX_NAMED: usize = 20;

impl RunCopy {
    /// Paths that the user changed since the copy was opened or last caught up.
    pub(super) async fn moved(self: &Arc<Self>) -> Result<Vec<PathBuf>, WorkspaceError> {
        let work = Arc::clone(self);
        let moved = blocking(move || {
            let known = work.survey();
            Ok(known.map(|before| {
                before.differences(&StatSnapshot::of(&work.base, &CancellationToken::new()))
            }))
        });
        match moved.await? {
            Some(moved) => Ok(moved),
            // Without a baseline, the user may have changed any of these files as well.
            None => Ok(self
                .changed()
                .await?
                .swaps
                .into_iter()
                .map(|swap| path_of(&swap.path).into_owned())
                .collect()),
        }
    }

    /// Merges the user's changes into the copy.
    pub(super) async fn catch_up(self: &Arc<Self>) -> Result<(), WorkspaceError> {
        let work = Arc::clone(self);
        let now =
            blocking(move || Ok(StatSnapshot::of(&work.base, &CancellationToken::new()))).await?;
        let swaps = self.changed().await?.swaps;
        let moved: BTreeSet<PathBuf> = match self.survey() {
            Some(before) => before.differences(&now).into_iter().collect(),
            // Without a baseline, the user may have changed any of these files as well.
            None => swaps
                .iter()
                .map(|swap| path_of(&swap.path).into_owned())
                .collect(),
        };
        let (mut merged, mut conflicts) = (Vec::new(), Vec::new());
        for swap in swaps
            .iter()
            .filter(|swap| moved.contains(&*path_of(&swap.path)))
        {
            match self.merged(swap).await {
                Ok(bytes) => merged.push((swap.path.clone(), bytes)),
                Err(why) => conflicts.push(format!("{}: {why}", swap.path)),
            }
        }
        if !conflicts.is_empty() {
            let more = conflicts.len().saturating_sub(MAX_NAMED);
            conflicts.truncate(MAX_NAMED);
            if more > 0 {
                conflicts.push(format!("and {more} more"));
            }
            return Err(conflict(&format!(
                "you and the run changed the same files:\n- {}\nThe run's version is kept; `windlass diff` shows it",
                conflicts.join("\n- ")
            )));
        }
        let changed: BTreeSet<PathBuf> = swaps
            .iter()
            .map(|swap| path_of(&swap.path).into_owned())
            .collect();
        let others: Vec<PathBuf> = moved.difference(&changed).cloned().collect();
        let work = Arc::clone(self);
        blocking(move || work.take_in(&merged, &others, now)).await
    }

    /// Merges the changes of both sides to one file.
    async fn merged(&self, swap: &Swap) -> Result<Vec<u8>, &'static str> {
        let (Image::File { .. }, Image::File { .. }) = (&swap.before, &swap.after) else {
            return Err(match (swap.before.is_there(), swap.after.is_there()) {
                (false, _) => "you removed it, and the run changed it",
                (_, false) => "you changed it, and the run removed it",
                _ => "both changed it, and it is not a regular file",
            });
        };
        let too_large = |_| "both changed it, and it is too large to merge";
        let own = self
            .base
            .read(&swap.path, MAX_REMEMBERED)
            .map_err(too_large)?;
        let tree = self.tree().map_err(|_| "the copy of the run is closed")?;
        let theirs = tree.read(&swap.path, MAX_REMEMBERED).map_err(too_large)?;
        let base = self
            .base_of(&swap.path)
            .await
            .ok_or("both changed it, and its original content is unknown")?;
        three_way(&base, &own, &theirs).map_err(|_| "both changed the same lines")
    }

    /// The common base of both sides: the bytes that the file tools saved before the first change, or the blob in git's
    /// index, if git saw the file unchanged when the copy was opened.
    async fn base_of(&self, path: &str) -> Option<Vec<u8>> {
        if let Some(bytes) = self.live.remembered(path) {
            return Some(bytes);
        }
        let before = self.survey()?.get(&path_of(path))?;
        let git = UserGit::of(self.base.root(), &self.context.env)?;
        let index_entry = git.index_entry(path).await?;
        let key = StatRecord::key_of(
            index_entry.inode,
            index_entry.size,
            index_entry.changed,
            index_entry.written,
        );
        if key != before.key {
            return None;
        }
        git.blob(&index_entry.blob).await.ok()
    }

    fn take_in(
        &self,
        merged: &[(String, Vec<u8>)],
        others: &[PathBuf],
        now: StatSnapshot,
    ) -> Result<(), WorkspaceError> {
        let tree = self.tree()?;
        for (path, bytes) in merged {
            tree.write(path, bytes)
                .map_err(|err| WorkspaceError::other(err.message))?;
            self.live.forget(path);
        }
        if self.is_layer() {
            // Close all handles on the old mount before mounting again.
            drop(tree);
            self.remount()?;
        } else {
            for path in others
                .iter()
                .filter(|path| !copy_tree::is_hidden(&self.hidden, path))
            {
                copy_path(&self.base, &tree, path).map_err(|why| {
                    WorkspaceError::other(format!("cannot copy `{}` again: {why}", text_of(path)))
                })?;
            }
        }
        // Without the file, a later landing treats every changed file as a conflict. Nothing is guessed.
        let _ = now.write(&self.dir.join("survey"));
        *self.baseline() = Baseline::Known(Arc::new(now));
        Ok(())
    }
}

pub(super) fn conflict(message: &str) -> WorkspaceError {
    WorkspaceError {
        kind: WorkspaceErrorKind::Conflict,
        message: message.to_owned(),
    }
}
