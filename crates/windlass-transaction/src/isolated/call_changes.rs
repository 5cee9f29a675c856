//! The changes of each call in the copy of an isolated run, by content, so that one call of a run that landed can be
//! undone. Nothing is in the user's tree here; the landing does not depend on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_core::BoxFuture;
use windlass_core::id::CallId;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{CallChanges, FileChange, Snapshots, WorkspaceError};

use super::blocking;
use super::check_tree::image;
use super::work::Work;
use crate::landing::undo::describe;
use crate::path::{path_of, text_of};
use windlass_host::workspace::Root;

/// The most changes of one call that are recorded: a call with more is undone with its run.
const MAX_FILES: usize = 2_000;

/// What the copy held when it was last looked at.
#[derive(Default)]
pub(super) struct CopyState {
    /// By path, where it differs from the user's tree.
    images: BTreeMap<String, Image>,
    /// The copy was changed by something else than a call.
    stale: bool,
}

impl CopyState {
    /// The copy is about to change without a call.
    pub(super) fn expire(&mut self) {
        self.stale = true;
    }
}

/// Records the changes of calls.
pub(super) struct CallRecorder {
    work: Arc<Work>,
    state: Arc<Mutex<CopyState>>,
}

impl CallRecorder {
    pub(super) fn new(work: Arc<Work>) -> Self {
        let state = Arc::clone(&work.copy_state);
        Self { work, state }
    }
}

impl Snapshots for CallRecorder {
    fn begin(&self, _: &CallId) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.stale) {
            // What cannot be read now is taken for a change of the call.
            let _ = self.work.call_swaps(&mut state);
        }
    }

    fn end<'a>(&'a self, _: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let (work, state) = (Arc::clone(&self.work), Arc::clone(&self.state));
        Box::pin(blocking(move || {
            let swaps = work.call_swaps(&mut state.lock());
            // The landing says what cannot be read.
            let files = swaps.map_or_else(|_| Vec::new(), |swaps| work.recorded(swaps));
            Ok(CallChanges {
                files,
                ..CallChanges::default()
            })
        }))
    }
}

impl Work {
    /// The differences of the copy since it was last looked at.
    fn call_swaps(&self, state: &mut CopyState) -> Result<Vec<Swap>, WorkspaceError> {
        let merged = self.tree()?;
        let mut paths: std::collections::BTreeSet<String> = self
            .touched()?
            .sources
            .iter()
            .map(|path| text_of(path))
            .collect();
        paths.extend(state.images.keys().cloned());
        let mut swaps = Vec::new();
        for path in paths {
            let (Ok(base), Ok(after)) = (
                image(&self.base_images, &self.base, &path),
                image(&self.own_images, &merged, &path),
            ) else {
                continue;
            };
            let before = state.images.get(&path).cloned().unwrap_or(base);
            if before != after {
                state.images.insert(path.clone(), after.clone());
                swaps.push(Swap {
                    path,
                    before,
                    after,
                });
            }
        }
        Ok(swaps)
    }

    /// Stores both sides where there is room, and describes each change.
    fn recorded(&self, swaps: Vec<Swap>) -> Vec<(FileChange, Swap)> {
        let (Ok(contents), Ok(merged)) = (self.desk.contents(), self.tree()) else {
            return Vec::new();
        };
        if swaps.len() > MAX_FILES {
            return Vec::new();
        }
        let store = |root: &Root, path: &str, image: &Image| {
            if let Image::File { hash, size, .. } = image
                && !contents.has(hash)
                && contents.has_room(*size)
                && let Ok((file, _)) = root.open_file(&path_of(path))
            {
                // One that changed meanwhile is stored under its own name, and undo finds nothing under this one.
                let _ = contents.put_soon(&file);
            }
        };
        let recorded = swaps.into_iter().map(|swap| {
            store(&self.base, &swap.path, &swap.before);
            store(&merged, &swap.path, &swap.after);
            let change = FileChange {
                diff: None,
                ..describe(&swap, &contents)
            };
            (change, swap)
        });
        recorded.collect()
    }
}
