//! The landings of an in-place run. Every write of a file tool and every overlay of a command goes through here into
//! the user's tree. The swaps are the source for the log, for undo and for the result of the run.

use parking_lot::Mutex;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{
    CallChanges, FileChange, FileError, FileErrorKind, Files, WorkspaceError,
};

use crate::landing::undo::{SwapChains, change_of, describe};
use crate::landing::{
    ByteSource, Contents, Durability, LandError, LandingCall, image_at, land_call, recover,
};
use crate::path::path_of;
use windlass_host::workspace::Root;

/// Warning codes: the run needs more bytes for undo than the store holds; the changes of a command did not land.
const OVER_CAP: &str = "undo_over_cap";
const NOT_MERGED: &str = "not_merged";
/// Maximum paths of one call that are named because they cannot be undone.
const MAX_LOST: usize = 200;
/// Maximum paths of one call that are named because the disk is full. A landing is atomic, so the first ones represent
/// all.
const MAX_NOT_WRITTEN: usize = 200;

/// The stores of a workspace for undo.
#[derive(Debug)]
pub(super) struct UndoStore {
    pub(super) contents: Contents,
    /// The directory of the landing journal.
    pub(super) journal: PathBuf,
}

/// All landings of one run.
pub(super) struct CallLandings {
    pub(super) root: Arc<Root>,
    store: Arc<UndoStore>,
    session: SessionId,
    run: RunId,
    state: Mutex<LandingsState>,
}

#[derive(Default)]
struct LandingsState {
    /// Calls that have begun and not ended. A landing belongs to the last of them.
    open: Vec<(CallId, PendingCallChanges)>,
    /// The swaps that the run has landed so far.
    landed: SwapChains,
    /// Messages for the user, each shown once.
    notes: Vec<String>,
    /// Records of landings whose call is not in the log yet.
    records: Vec<(CallId, PathBuf)>,
    /// Changes of background jobs whose calls have ended, by the call that started the job.
    jobs: Vec<(CallId, PendingCallChanges)>,
    /// Whether the user was warned that the store is over its cap.
    warned_over_cap: bool,
}

impl LandingsState {
    /// The record that collects the changes of a call.
    fn record(&mut self, call: &CallId) -> Option<&mut PendingCallChanges> {
        let all = self.open.iter_mut().chain(&mut self.jobs);
        let mut of_call = all.filter(|(known, _)| known == call);
        of_call.next().map(|(_, record)| record)
    }
}

/// The changes of one call.
#[derive(Default)]
struct PendingCallChanges {
    landed: SwapChains,
    lost: BTreeMap<String, String>,
    warnings: Vec<(&'static str, String)>,
    not_written: BTreeSet<String>,
    full: Option<String>,
}

impl PendingCallChanges {
    fn changes(self, contents: &Contents) -> CallChanges {
        // The log contains the images; a diff of every file that a command changed would be too large for it.
        let counted = |swap: &Swap| FileChange {
            diff: None,
            ..describe(swap, contents)
        };
        CallChanges {
            files: self
                .landed
                .changed()
                .map(|swap| (counted(swap), swap.clone()))
                .collect(),
            lost: self.lost.into_iter().collect(),
            warnings: self.warnings,
            not_written: self.not_written.into_iter().collect(),
            full: self.full,
        }
    }
}

impl CallLandings {
    pub(super) fn new(
        root: Arc<Root>,
        store: Arc<UndoStore>,
        session: SessionId,
        run: RunId,
    ) -> Self {
        Self {
            root,
            store,
            session,
            run,
            state: Mutex::default(),
        }
    }

    pub(super) fn root_path(&self) -> &Path {
        self.root.root()
    }

    /// The directory of the landing journal.
    pub(super) fn journal(&self) -> &Path {
        &self.store.journal
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.store.contents
    }

    pub(super) fn open_call(&self) -> Option<CallId> {
        self.state.lock().open.last().map(|(call, _)| call.clone())
    }

    /// Calls whose background jobs landed changes that are not logged yet.
    pub(super) fn job_calls(&self) -> Vec<CallId> {
        let state = self.state.lock();
        state.jobs.iter().map(|(call, _)| call.clone()).collect()
    }

    /// Lands these changes atomically, as part of the open call.
    pub(super) fn land(&self, swaps: &[Swap], source: &dyn ByteSource) -> Result<(), FileError> {
        self.land_for(None, swaps, source)
    }

    /// Lands changes as part of the call that started a background job, or of the open call if `job_call` is `None`.
    pub(super) fn land_for(
        &self,
        job_call: Option<&CallId>,
        swaps: &[Swap],
        source: &dyn ByteSource,
    ) -> Result<(), FileError> {
        if swaps.is_empty() {
            return Ok(());
        }
        let call = job_call.cloned().or_else(|| self.open_call());
        if let Some(call) = job_call {
            let mut state = self.state.lock();
            if state.record(call).is_none() {
                state
                    .jobs
                    .push((call.clone(), PendingCallChanges::default()));
            }
        }
        // The bytes that the run replaced stay until its end, also if they exceed the cap.
        let replaced = OnceCell::new();
        let keep = |hash: &str| {
            let replaced = replaced.get_or_init(|| self.replaced());
            replaced.contains(hash)
        };
        let stored = self
            .contents()
            .store_after(swaps, source, Durability::Deferred, &keep);
        // A missing source is an error of the call, and not of the store.
        let not_stored = |err: FileError| match err.kind {
            FileErrorKind::Full => LandError::NotStored(err),
            _ => LandError::File(err),
        };
        let landed = stored.map_err(not_stored).and_then(|()| {
            let call = call.clone().map(|call| LandingCall {
                session: self.session.clone(),
                run: self.run.clone(),
                call,
            });
            self.land_or_recover(swaps, source, call)
        });
        let over_cap = self.contents().over_cap();
        let mut state = self.state.lock();
        match landed {
            Ok(record) => {
                swaps.iter().for_each(|swap| state.landed.add(swap));
                let warned = std::mem::replace(&mut state.warned_over_cap, over_cap.is_some());
                // A cancelled call may have ended meanwhile. Then its record stays, and the next command logs it.
                if let Some(call) = call
                    && let Some(changes) = state.record(&call)
                {
                    swaps.iter().for_each(|swap| changes.landed.add(swap));
                    let is_written = |path: &str| swaps.iter().any(|swap| swap.path == path);
                    changes.not_written.retain(|path| !is_written(path));
                    if let Some(over_cap) = over_cap.filter(|_| !warned) {
                        changes.warnings.push((OVER_CAP, over_cap.to_string()));
                    }
                    state.records.extend(record.map(|record| (call, record)));
                }
                Ok(())
            }
            Err(err) => {
                let (ends_run, err) = match err {
                    LandError::NotStored(err) => (true, err),
                    // Without space for another journal, there is none for the log either. A full disk of the workspace
                    // alone only fails the call.
                    err => {
                        let err = file_error(&err);
                        let full = err.kind == FileErrorKind::Full;
                        (full && self.contents().is_disk_full(), err)
                    }
                };
                if let Some(changes) = call.and_then(|call| state.record(&call)) {
                    if ends_run {
                        changes.full = Some(err.message.clone());
                    } else if err.kind == FileErrorKind::Full {
                        let paths = swaps.iter().map(|swap| swap.path.clone());
                        changes.not_written.extend(paths.take(MAX_NOT_WRITTEN));
                    }
                }
                Err(err)
            }
        }
    }

    /// The hashes of all files that the run replaced.
    fn replaced(&self) -> HashSet<String> {
        let state = self.state.lock();
        let swaps = state.landed.0.values().flatten();
        let hashes = swaps.filter_map(|swap| match &swap.before {
            Image::File { hash, .. } => Some(hash.clone()),
            Image::Absent | Image::Link { .. } => None,
        });
        hashes.collect()
    }

    /// Ends the run after the open call was logged, because there is no disk space for its commands.
    pub(super) fn end_run(&self, why: &str) {
        if let Some((_, call)) = self.state.lock().open.last_mut() {
            call.full = Some(why.to_owned());
        }
    }

    /// Warns the user of changes of the open call that did not land.
    pub(super) fn warn_not_merged(&self, why: &str) {
        if let Some((_, call)) = self.state.lock().open.last_mut() {
            call.warnings.push((NOT_MERGED, why.to_owned()));
        }
    }

    fn land_or_recover(
        &self,
        swaps: &[Swap],
        source: &dyn ByteSource,
        call: Option<LandingCall>,
    ) -> Result<Option<PathBuf>, LandError> {
        let UndoStore { contents, journal } = &*self.store;
        let land = |call| land_call(&self.root, swaps, source, contents, journal, call);
        let done = match land(call.clone()) {
            // Its process is dead; otherwise it would hold the lock.
            Err(LandError::Unfinished(_)) => {
                recover(journal, contents, &|_, _| {})?;
                land(call)
            }
            other => other,
        };
        Ok(done?.record)
    }

    /// Records that a change of a path cannot be undone.
    pub(super) fn lose(&self, path: &str, why: impl Into<String>) {
        if let Some((_, call)) = self.state.lock().open.last_mut()
            && call.lost.len() < MAX_LOST
        {
            call.lost.entry(path.to_owned()).or_insert(why.into());
        }
    }

    /// Adds a message for the user.
    pub(super) fn note(&self, text: String) {
        self.state.lock().notes.push(text);
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().notes)
    }

    /// Adds the changes that commands without an overlay made to paths that the run landed.
    pub(super) fn reread_paths(&self) {
        let mut state = self.state.lock();
        let paths = state.landed.0.values();
        let last = paths.filter_map(|chains| chains.last().cloned());
        for swap in last.collect::<Vec<_>>() {
            let Ok(now) = image_at(&self.root, &swap.path) else {
                continue;
            };
            if now == swap.after {
                continue;
            }
            if let Ok((file, _)) = self.root.open_file(&path_of(&swap.path)) {
                let _ = self.contents().put_unsynced(&file);
            }
            state.landed.add(&Swap {
                path: swap.path,
                before: swap.after,
                after: now,
            });
        }
    }

    /// The changes of the run, by path.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        let state = self.state.lock();
        let paths = state.landed.0.values();
        paths
            .filter_map(|chains| match chains.as_slice() {
                [one] => (one.before != one.after).then(|| describe(one, self.contents())),
                [first, .., last] => Some(self.sum(first, last, chains)),
                [] => None,
            })
            .collect()
    }

    /// Summarizes a path that another program changed, too: counts only the lines that the run changed.
    fn sum(&self, first: &Swap, last: &Swap, chains: &[Swap]) -> FileChange {
        let parts = chains.iter().map(|chain| describe(chain, self.contents()));
        let sum = |known: Option<u32>, more: Option<u32>| Some(known?.saturating_add(more?));
        let (added, removed) = parts.fold((Some(0), Some(0)), |(added, removed), part| {
            (sum(added, part.added), sum(removed, part.removed))
        });
        FileChange {
            path: first.path.clone(),
            change: change_of(&first.before, &last.after),
            added,
            removed,
            diff: None,
        }
    }

    /// Every path that the run landed, also if its change was reverted.
    pub(super) fn paths(&self) -> Vec<String> {
        self.state.lock().landed.0.keys().cloned().collect()
    }

    /// The image of a path before the run changed it; `None` if the run did not change it.
    pub(super) fn before(&self, path: &str) -> Option<Image> {
        let state = self.state.lock();
        let first = state.landed.0.get(path)?.first()?;
        Some(first.before.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().landed.0.is_empty()
    }
}

fn file_error(err: &LandError) -> FileError {
    match err {
        LandError::File(err) | LandError::NotStored(err) => err.clone(),
        LandError::Conflict { .. } => FileError {
            kind: FileErrorKind::Changed,
            message: err.to_string(),
        },
        LandError::Busy | LandError::Unfinished(_) | LandError::Journal(_) => FileError {
            kind: FileErrorKind::Io,
            message: err.to_string(),
        },
    }
}

/// Implements [`Snapshots`](windlass_core::workspace::Snapshots) for the commands of the run.
impl CallLandings {
    pub(super) fn begin(&self, call: &CallId) {
        self.state
            .lock()
            .open
            .push((call.clone(), PendingCallChanges::default()));
    }

    pub(super) fn end<'a>(
        &'a self,
        call: &'a CallId,
    ) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let record = {
            let mut state = self.state.lock();
            let LandingsState { open, jobs, .. } = &mut *state;
            [open, jobs].into_iter().find_map(|records| {
                let at = records.iter().position(|(known, _)| known == call)?;
                Some(records.remove(at).1)
            })
        };
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let Some(record) = record else {
                return Ok(CallChanges::default());
            };
            // Most calls change a few files; a checkout of another branch changes thousands.
            let described = tokio::task::spawn_blocking(move || record.changes(&store.contents));
            described.await.map_err(|err| {
                WorkspaceError::other(format!("cannot read the changes of the call: {err}"))
            })
        })
    }

    pub(super) fn logged(&self, call: &CallId) {
        let mut state = self.state.lock();
        state.records.retain(|(known, record)| {
            let logged = known == call;
            if logged {
                // If this fails, the next command compares the record with the log, and removes it.
                let _ = std::fs::remove_file(record);
            }
            !logged
        });
    }
}
