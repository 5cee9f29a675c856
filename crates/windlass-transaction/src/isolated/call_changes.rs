//! Records the changes of each call in the copy of an isolated run, by content, so that single calls can be undone
//! after the run landed. The landing does not depend on these records.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_core::BoxFuture;
use windlass_core::id::CallId;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{CallChanges, FileChange, Snapshots, WorkspaceError};

use super::blocking;
use super::check_tree::image;
use super::run_copy::RunCopy;
use crate::landing::undo::describe;
use crate::path::{path_of, text_of};
use windlass_host::workspace::Root;

/// Maximum recorded changes of one call; a call with more can only be undone with its run.
const MAX_FILES: usize = 2_000;

/// The images in the copy at the last snapshot.
#[derive(Default)]
pub(super) struct CopyState {
    /// By path; only those that differ from the user's tree.
    images: BTreeMap<String, Image>,
    /// The copy was changed by something other than a call.
    stale: bool,
}

impl CopyState {
    /// Marks the state as outdated, before the copy changes without a call.
    pub(super) fn expire(&mut self) {
        self.stale = true;
    }
}

/// Records the changes of calls in a copy.
pub(super) struct CallRecorder {
    work: Arc<RunCopy>,
    state: Arc<Mutex<CopyState>>,
}

impl CallRecorder {
    pub(super) fn new(work: Arc<RunCopy>) -> Self {
        let state = Arc::clone(&work.copy_state);
        Self { work, state }
    }
}

impl Snapshots for CallRecorder {
    fn begin(&self, _: &CallId) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.stale) {
            // If this fails, the changes count as changes of the call.
            let _ = self.work.call_swaps(&mut state);
        }
    }

    fn end<'a>(&'a self, _: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let (work, state) = (Arc::clone(&self.work), Arc::clone(&self.state));
        Box::pin(blocking(move || {
            let swaps = work.call_swaps(&mut state.lock());
            // Errors are ignored here; the landing reports unreadable files.
            let files = swaps.map_or_else(|_| Vec::new(), |swaps| work.recorded(swaps));
            Ok(CallChanges {
                files,
                ..CallChanges::default()
            })
        }))
    }
}

impl RunCopy {
    /// The differences of the copy since the last snapshot.
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

    /// Stores both sides if there is space, and describes each change.
    fn recorded(&self, swaps: Vec<Swap>) -> Vec<(FileChange, Swap)> {
        let (Ok(contents), Ok(merged)) = (self.context.contents(), self.tree()) else {
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
                // A file that changed meanwhile is stored under its new hash, and undo finds nothing under the old one.
                let _ = contents.put_unsynced(&file);
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
