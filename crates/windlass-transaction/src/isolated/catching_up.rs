//! What a person does in their own tree while a run works on its copy: seen by a second walk, and taken in before
//! anything is judged or landed. Both sides' changes of one file are put together only where it is known what was
//! there before; anything else is a conflict and never a guess.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{Files, WorkspaceError, WorkspaceErrorKind};

use super::check_tree::copy_path;
use super::live::MAX_REMEMBERED;
use super::survey::{Print, Survey};
use super::user_git::UserGit;
use super::work::{Baseline, Work};
use super::{blocking, copied};
use crate::landing::merge::three_way;
use crate::path::{path_of, text_of};

/// Conflicts that are named.
const MAX_NAMED: usize = 20;

impl Work {
    /// Paths that the person changed since the copy was opened or last caught up with.
    pub(super) async fn moved(self: &Arc<Self>) -> Result<Vec<PathBuf>, WorkspaceError> {
        let work = Arc::clone(self);
        let moved = blocking(move || {
            let known = work.survey();
            Ok(known.map(|before| {
                before.differences(&Survey::of(&work.base, &CancellationToken::new()))
            }))
        });
        match moved.await? {
            Some(moved) => Ok(moved),
            // Nobody knows: any changed file may be theirs, too.
            None => Ok(self
                .changed()
                .await?
                .swaps
                .into_iter()
                .map(|swap| swap.path.into())
                .collect()),
        }
    }

    /// Takes in what the person changed.
    pub(super) async fn catch_up(self: &Arc<Self>) -> Result<(), WorkspaceError> {
        let work = Arc::clone(self);
        let now = blocking(move || Ok(Survey::of(&work.base, &CancellationToken::new()))).await?;
        let swaps = self.changed().await?.swaps;
        let moved: BTreeSet<PathBuf> = match self.survey() {
            Some(before) => before.differences(&now).into_iter().collect(),
            // Nobody knows: any changed file may be theirs, too.
            None => swaps.iter().map(|swap| PathBuf::from(&swap.path)).collect(),
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
        let changed: BTreeSet<PathBuf> = swaps.into_iter().map(|swap| swap.path.into()).collect();
        let others: Vec<PathBuf> = moved.difference(&changed).cloned().collect();
        let work = Arc::clone(self);
        blocking(move || work.take_in(&merged, &others, now)).await
    }

    /// Both sides' changes of one file.
    async fn merged(&self, swap: &Swap) -> Result<Vec<u8>, &'static str> {
        let (Image::File { .. }, Image::File { .. }) = (&swap.before, &swap.after) else {
            return Err(match (swap.before.is_there(), swap.after.is_there()) {
                (false, _) => "you removed it, and the run changed it",
                (_, false) => "you changed it, and the run removed it",
                _ => "both changed it, and it is no file",
            });
        };
        let too_large = |_| "both changed it, and it is too large to be put together";
        let own = self
            .base
            .read(&swap.path, MAX_REMEMBERED)
            .map_err(too_large)?;
        let tree = self.tree().map_err(|_| "the copy is closed")?;
        let theirs = tree.read(&swap.path, MAX_REMEMBERED).map_err(too_large)?;
        let base = self
            .base_of(&swap.path)
            .await
            .ok_or("both changed it, and what was there before is not known")?;
        three_way(&base, &own, &theirs).map_err(|_| "both changed the same lines")
    }

    /// What was there before either side changed it: as the run's own files found it, or as git has it where git saw
    /// the file unchanged when the copy was opened.
    async fn base_of(&self, path: &str) -> Option<Vec<u8>> {
        if let Some(bytes) = self.live.remembered(path) {
            return Some(bytes);
        }
        let before = self.survey()?.get(&path_of(path))?;
        let git = UserGit::of(self.base.root(), &self.desk.env)?;
        let recorded = git.recorded(path).await?;
        let key = Print::key_of(
            recorded.inode,
            recorded.size,
            recorded.changed,
            recorded.written,
        );
        if key != before.key {
            return None;
        }
        git.blob(&recorded.blob).await.ok()
    }

    fn take_in(
        &self,
        merged: &[(String, Vec<u8>)],
        others: &[PathBuf],
        now: Survey,
    ) -> Result<(), WorkspaceError> {
        let tree = self.tree()?;
        for (path, bytes) in merged {
            tree.write(path, bytes)
                .map_err(|err| WorkspaceError::other(err.message))?;
            self.live.forget(path);
        }
        if self.is_layer() {
            // Nothing of the old mount may be in use.
            drop(tree);
            self.remount()?;
        } else {
            for path in others
                .iter()
                .filter(|path| !copied::is_hidden(&self.hidden, path))
            {
                copy_path(&self.base, &tree, path).map_err(|why| {
                    WorkspaceError::other(format!(
                        "`{}` cannot be copied anew: {why}",
                        text_of(path)
                    ))
                })?;
            }
        }
        // Without the file a later landing takes every changed file for a conflict; nothing is guessed.
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
