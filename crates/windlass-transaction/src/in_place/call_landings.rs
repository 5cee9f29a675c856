//! The one way of an in-place run into the user's tree: every write of a tool and every layer of a command is a landing,
//! and its swaps are the source of the log, of undo and of the result of the run.

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

use crate::landing::undo::{Stretches, change_of, describe};
use crate::landing::{Contents, LandError, LandingCall, Lasting, Source, land_call, look, recover};
use crate::path::path_of;
use windlass_host::workspace::Root;

/// The codes of warnings: the run needs more bytes for undo than the store holds otherwise; a command's changes are not in
/// the workspace.
const OVER_CAP: &str = "undo_over_cap";
const NOT_MERGED: &str = "not_merged";
/// The most paths of one call that are named because they cannot be undone.
const MAX_LOST: usize = 200;
/// The most paths of one call that are named because the disk has no room for them. A landing is all or nothing, so the
/// first ones stand for all.
const MAX_NOT_WRITTEN: usize = 200;

/// The stores of a workspace that undo needs.
#[derive(Debug)]
pub(super) struct UndoStore {
    pub(super) contents: Contents,
    /// Where a landing notes what it does.
    pub(super) journal: PathBuf,
}

/// The landings of one run.
pub(super) struct CallLandings {
    pub(super) root: Arc<Root>,
    store: Arc<UndoStore>,
    session: SessionId,
    run: RunId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls that were begun and have not ended; what lands belongs to the last of them.
    open: Vec<(CallId, CallRecord)>,
    /// The swaps that the run landed so far.
    landed: Stretches,
    /// Texts for the user, each shown once.
    notes: Vec<String>,
    /// Records of landings whose call is not in the log yet.
    records: Vec<(CallId, PathBuf)>,
    /// Changes of background jobs whose calls have ended, by the call that started the job.
    jobs: Vec<(CallId, CallRecord)>,
    /// The user was told that the run needs more than the store holds.
    told_over_cap: bool,
}

impl State {
    /// The record that takes the changes of a call.
    fn record(&mut self, call: &CallId) -> Option<&mut CallRecord> {
        let all = self.open.iter_mut().chain(&mut self.jobs);
        let mut of_call = all.filter(|(known, _)| known == call);
        of_call.next().map(|(_, record)| record)
    }
}

/// The changes of one call.
#[derive(Default)]
struct CallRecord {
    landed: Stretches,
    lost: BTreeMap<String, String>,
    warnings: Vec<(&'static str, String)>,
    not_written: BTreeSet<String>,
    full: Option<String>,
}

impl CallRecord {
    fn changes(self, contents: &Contents) -> CallChanges {
        // The log holds the images; a diff of every file that a command changed would be too much for it.
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

    /// Where landings into the workspace note what they do.
    pub(super) fn journal(&self) -> &Path {
        &self.store.journal
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.store.contents
    }

    /// The call that is open.
    pub(super) fn open_call(&self) -> Option<CallId> {
        self.state.lock().open.last().map(|(call, _)| call.clone())
    }

    /// Calls whose background jobs landed something that is not logged yet.
    pub(super) fn job_calls(&self) -> Vec<CallId> {
        let state = self.state.lock();
        state.jobs.iter().map(|(call, _)| call.clone()).collect()
    }

    /// Brings these changes into the tree, all of them or none, as part of the call that is open.
    pub(super) fn land(&self, swaps: &[Swap], source: &dyn Source) -> Result<(), FileError> {
        self.land_for(None, swaps, source)
    }

    /// The same as part of a call that started a background job, where one is given.
    pub(super) fn land_for(
        &self,
        job_call: Option<&CallId>,
        swaps: &[Swap],
        source: &dyn Source,
    ) -> Result<(), FileError> {
        if swaps.is_empty() {
            return Ok(());
        }
        let call = job_call.cloned().or_else(|| self.open_call());
        if let Some(call) = job_call {
            let mut state = self.state.lock();
            if state.record(call).is_none() {
                state.jobs.push((call.clone(), CallRecord::default()));
            }
        }
        // What the run replaced stays until its end, also where it is more than the store holds otherwise.
        let replaced = OnceCell::new();
        let keep = |hash: &str| {
            let replaced = replaced.get_or_init(|| self.replaced());
            replaced.contains(hash)
        };
        let stored = self
            .contents()
            .store_after(swaps, source, Lasting::Later, &keep);
        // A source that is gone is the fault of the call, and not of the store.
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
                let told = std::mem::replace(&mut state.told_over_cap, over_cap.is_some());
                // A call that was cancelled may have ended meanwhile. Its record stays then, and the next command logs it.
                if let Some(call) = call
                    && let Some(changes) = state.record(&call)
                {
                    swaps.iter().for_each(|swap| changes.landed.add(swap));
                    let is_written = |path: &str| swaps.iter().any(|swap| swap.path == path);
                    changes.not_written.retain(|path| !is_written(path));
                    if let Some(over_cap) = over_cap.filter(|_| !told) {
                        changes.warnings.push((OVER_CAP, over_cap.to_string()));
                    }
                    state.records.extend(record.map(|record| (call, record)));
                }
                Ok(())
            }
            Err(err) => {
                let (ends_run, err) = match err {
                    LandError::NotStored(err) => (true, err),
                    // Without room for another journal there is none for the log either. A workspace on another disk
                    // that is full fails the call alone.
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

    /// The hashes of everything that the run replaced.
    fn replaced(&self) -> HashSet<String> {
        let state = self.state.lock();
        let swaps = state.landed.0.values().flatten();
        let hashes = swaps.filter_map(|swap| match &swap.before {
            Image::File { hash, .. } => Some(hash.clone()),
            Image::Absent | Image::Link { .. } => None,
        });
        hashes.collect()
    }

    /// Ends the run when the open call is logged: there is no room for what its commands need.
    pub(super) fn end_run(&self, why: &str) {
        if let Some((_, call)) = self.state.lock().open.last_mut() {
            call.full = Some(why.to_owned());
        }
    }

    /// Warns the user of changes of the open call that are not in the workspace.
    pub(super) fn warn_not_merged(&self, why: &str) {
        if let Some((_, call)) = self.state.lock().open.last_mut() {
            call.warnings.push((NOT_MERGED, why.to_owned()));
        }
    }

    fn land_or_recover(
        &self,
        swaps: &[Swap],
        source: &dyn Source,
        call: Option<LandingCall>,
    ) -> Result<Option<PathBuf>, LandError> {
        let UndoStore { contents, journal } = &*self.store;
        let land = |call| land_call(&self.root, swaps, source, contents, journal, call);
        let done = match land(call.clone()) {
            // Its process is dead, or it would hold the lock.
            Err(LandError::Unfinished(_)) => {
                recover(journal, contents)?;
                land(call)
            }
            other => other,
        };
        Ok(done?.record)
    }

    /// Notes that a change of a path cannot be undone.
    pub(super) fn lose(&self, path: &str, why: impl Into<String>) {
        if let Some((_, call)) = self.state.lock().open.last_mut()
            && call.lost.len() < MAX_LOST
        {
            call.lost.entry(path.to_owned()).or_insert(why.into());
        }
    }

    /// Tells the user something about the run.
    pub(super) fn note(&self, text: String) {
        self.state.lock().notes.push(text);
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().notes)
    }

    /// Takes in what commands without a layer made of paths that the run landed.
    pub(super) fn look_again(&self) {
        let mut state = self.state.lock();
        let paths = state.landed.0.values();
        let last = paths.filter_map(|stretches| stretches.last().cloned());
        for swap in last.collect::<Vec<_>>() {
            let Ok(now) = look(&self.root, &swap.path) else {
                continue;
            };
            if now == swap.after {
                continue;
            }
            if let Ok((file, _)) = self.root.open_file(&path_of(&swap.path)) {
                let _ = self.contents().put_soon(&file);
            }
            state.landed.add(&Swap {
                path: swap.path,
                before: swap.after,
                after: now,
            });
        }
    }

    /// Everything that the run landed, by path.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        let state = self.state.lock();
        let paths = state.landed.0.values();
        paths
            .filter_map(|stretches| match stretches.as_slice() {
                [one] => (one.before != one.after).then(|| describe(one, self.contents())),
                [first, .., last] => Some(self.sum(first, last, stretches)),
                [] => None,
            })
            .collect()
    }

    /// A path that another program changed, too: the lines of the run alone are counted.
    fn sum(&self, first: &Swap, last: &Swap, stretches: &[Swap]) -> FileChange {
        let parts = stretches
            .iter()
            .map(|stretch| describe(stretch, self.contents()));
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

    /// Every path that the run landed, also where nothing of it is left.
    pub(super) fn paths(&self) -> Vec<String> {
        self.state.lock().landed.0.keys().cloned().collect()
    }

    /// The image of a path from before the run changed it; `None` where the run did not.
    pub(super) fn before(&self, path: &str) -> Option<Image> {
        let state = self.state.lock();
        let first = state.landed.0.get(path)?.first()?;
        Some(first.before.clone())
    }

    /// Whether the run landed nothing.
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

/// The log of what calls changed; see [`Snapshots`].
impl CallLandings {
    pub(super) fn begin(&self, call: &CallId) {
        self.state
            .lock()
            .open
            .push((call.clone(), CallRecord::default()));
    }

    pub(super) fn end<'a>(
        &'a self,
        call: &'a CallId,
    ) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let record = {
            let mut state = self.state.lock();
            let State { open, jobs, .. } = &mut *state;
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
                WorkspaceError::other(format!("the changes of the call cannot be read: {err}"))
            })
        })
    }

    pub(super) fn logged(&self, call: &CallId) {
        let mut state = self.state.lock();
        state.records.retain(|(known, record)| {
            let logged = known == call;
            if logged {
                // One that stays is compared with the log by the next command, and removed then.
                let _ = std::fs::remove_file(record);
            }
            !logged
        });
    }
}
