//! The copy of one isolated run: opening, mounting, closing, and its changes by content. The changes are relative to a
//! snapshot of the user's tree (the baseline). A walk takes this snapshot while the run makes its first steps; it is
//! stored with the copy.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::CancellationToken;
use windlass_core::image::{Image, Swap};
use windlass_core::terms::{Strategy, Terms};
use windlass_core::workspace::{Changes, CheckState, Files, WorkspaceError};

use super::call_changes::CopyState;
use super::check_tree::{
    CheckBase, FreshTree, MountedTree, copy_root_mode, image, remove_stale_trees, with_tracked,
};
use super::kept_runs::KeptRun;
use super::mounted_copy::{CopyMount, MountedCopy};
use super::overlay_changes::{OverlayTrees, TouchedPaths};
use super::render::{self, RenderCache};
use super::sources::is_source;
use super::stat_snapshot::{FsTime, StatRecord, StatSnapshot};
use super::{CopyContext, copy_tree, isolation, kept_run_error};
use crate::git_dirs::GitDirs;
use crate::landing::{lock_within, tree_hash};
use crate::path::{path_of, text_of};
use crate::symlinks::{SymlinkVerdict, judge_symlink};
use windlass_host::sandbox::{Sandbox, SandboxError, Tier, Tree};
use windlass_host::workspace::Root;

/// Paths that are named in one note.
const MAX_NAMED: usize = 5;
/// Ignored paths that are listed.
const MAX_LEFT: usize = 500;
/// Time that a landing waits for another run that has its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(600);

/// The private copy of a run.
pub(crate) struct RunCopy {
    pub(super) context: Arc<CopyContext>,
    pub(super) name: String,
    pub(super) live: Arc<MountedCopy>,
    /// The user's own tree.
    pub(super) base: Arc<Root>,
    strategy: Strategy,
    plan: Arc<Sandbox>,
    sandbox: Mutex<Option<Arc<Sandbox>>>,
    slot: Mutex<Option<KeptRun>>,
    pub(super) dir: PathBuf,
    pub(super) baseline: Mutex<Baseline>,
    stop: CancellationToken,
    notes: Mutex<Vec<String>>,
    rendered: Mutex<RenderCache>,
    /// Notes that were reported.
    noted: Mutex<BTreeSet<String>>,
    /// The workspace lock, while it is this run's turn to land.
    turn: Mutex<Option<OwnedFd>>,
    /// By path; valid as long as the stat record is the same.
    pub(super) own_images: Mutex<HashMap<String, (StatRecord, Image)>>,
    pub(super) base_images: Mutex<HashMap<String, (StatRecord, Image)>>,
    /// The images in the copy after the last call.
    pub(super) copy_state: Arc<Mutex<CopyState>>,
    /// Paths of the workspace that are not in the copy, because commands must not read them.
    pub(super) hidden: Vec<PathBuf>,
}

/// The state of the user's tree that the changes of the copy are relative to.
pub(super) enum Baseline {
    /// The walk is running.
    Walking(std::thread::JoinHandle<StatSnapshot>),
    Known(Arc<StatSnapshot>),
    /// The process died before the snapshot was stored. Any changed file may also have been changed by the user.
    Lost,
}

/// The changes of a copy, by content.
#[derive(Debug, Clone, Default)]
pub(super) struct CopyChanges {
    pub(super) swaps: Vec<Swap>,
    pub(super) left: Vec<String>,
    pub(super) newly_ignored: Vec<String>,
    pub(super) cannot: Vec<(String, String)>,
    pub(super) asks: Vec<(String, String)>,
}

impl RunCopy {
    /// Creates an overlay over the user's tree.
    pub(super) fn layered(
        context: Arc<CopyContext>,
        plan: Arc<Sandbox>,
        mut slot: KeptRun,
    ) -> Result<Self, Box<(KeptRun, SandboxError)>> {
        slot.meta.strategy = Some(Strategy::Overlay);
        let mounted = match Self::mount(&context, &plan, &slot) {
            Ok(mounted) => mounted,
            Err(err) => return Err(Box::new((slot, err))),
        };
        // Recovery after a crash needs the metadata.
        if let Err(err) = slot.write_meta() {
            return Err(Box::new((slot, SandboxError::Unavailable(err.to_string()))));
        }
        let work = Self::with_mount(context, plan, slot, mounted);
        work.start_walk();
        Ok(work)
    }

    /// Creates a copy of the user's tree.
    pub(super) fn copied(
        context: Arc<CopyContext>,
        plan: Arc<Sandbox>,
        mut slot: KeptRun,
        why: &str,
    ) -> Result<Self, WorkspaceError> {
        let left_out = copy_tree::measure(&context.root).map_err(|too_large| {
            isolation(format!(
                "cannot mount an overlay: {why}; and {too_large}; work directly in your tree with `--in-place`"
            ))
        })?;
        // The broker tier has no mounts to hide credentials with, so they are not copied.
        let mut hidden = if tier(&plan)? == Tier::Broker {
            plan.hidden_in_workspace()
        } else {
            Vec::new()
        };
        hidden.extend(left_out.iter().cloned());
        slot.meta.hidden.clone_from(&hidden);
        let tree = slot.folder("tree").map_err(kept_run_error)?;
        // Take the baseline before the first byte is copied.
        let snapshot = StatSnapshot::as_of(FsTime::now(), &context.root, &CancellationToken::new());
        let copied = copy_tree::copy(&context.root, &tree, &hidden).map_err(isolation)?;
        slot.meta.strategy = Some(if copied.shared {
            Strategy::Reflink
        } else {
            Strategy::Copy
        });
        let own = Root::open(&tree).map_err(|err| isolation(err.to_string()))?;
        let all = StatSnapshot::of_everything(&own);
        write_snapshot(&slot.dir, "survey", &snapshot);
        write_snapshot(&slot.dir, "copied", &all);
        let mounted =
            Self::mount(&context, &plan, &slot).map_err(|err| isolation(err.to_string()))?;
        let work = Self::with_mount(context, plan, slot, mounted);
        work.note(format!(
            "the run works on a copy of the tree instead of an overlay: {why}"
        ));
        for (path, why) in copied.missing.iter().take(MAX_NAMED) {
            work.note(format!("`{}` is not in the copy: {why}", text_of(path)));
        }
        left_out
            .iter()
            .take(MAX_NAMED)
            .for_each(|path| work.note(copy_tree::left_out_note(path)));
        *work.baseline() = Baseline::Known(Arc::new(snapshot));
        work.write_meta()?;
        Ok(work)
    }

    /// Opens a kept copy again.
    pub(super) fn reopen(
        context: Arc<CopyContext>,
        plan: Arc<Sandbox>,
        mut slot: KeptRun,
    ) -> Result<Self, WorkspaceError> {
        if slot.meta.strategy != Some(Strategy::Overlay) && tier(&plan)? == Tier::Broker {
            // A copy that was made in another tier contains the credentials.
            let tree = slot.folder("tree").map_err(kept_run_error)?;
            for path in plan.hidden_in_workspace() {
                if !slot.meta.hidden.contains(&path) {
                    copy_tree::hide(&tree, &path).map_err(isolation)?;
                    slot.meta.hidden.push(path);
                }
            }
            slot.write_meta().map_err(kept_run_error)?;
        }
        remove_stale_trees(&slot.dir);
        let known = StatSnapshot::read(&slot.dir.join("survey"));
        let upper = std::fs::read_dir(slot.dir.join("upper"));
        let mounted =
            Self::mount(&context, &plan, &slot).map_err(|err| isolation(err.to_string()))?;
        let work = Self::with_mount(context, plan, slot, mounted);
        work.copy_state.lock().expire();
        match known {
            Some(snapshot) => *work.baseline() = Baseline::Known(Arc::new(snapshot)),
            // Its process died before the first snapshot was stored. An empty overlay is relative to the current tree.
            None if upper.is_ok_and(|mut entries| entries.next().is_none()) => work.start_walk(),
            None => *work.baseline() = Baseline::Lost,
        }
        Ok(work)
    }

    fn with_mount(
        context: Arc<CopyContext>,
        plan: Arc<Sandbox>,
        slot: KeptRun,
        (mount_handle, sandbox): (CopyMount, Arc<Sandbox>),
    ) -> Self {
        let live = MountedCopy::new(
            mount_handle.root.root().to_owned(),
            Arc::clone(&context.root),
            slot.dir.join("before"),
        );
        let hidden = slot.meta.hidden.clone();
        live.set(Some(mount_handle));
        Self {
            base: Arc::clone(&context.root),
            context,
            name: slot.meta.name.clone(),
            live: Arc::new(live),
            strategy: slot.meta.strategy.unwrap_or_default(),
            plan,
            sandbox: Mutex::new(Some(sandbox)),
            dir: slot.dir.clone(),
            slot: Mutex::new(Some(slot)),
            baseline: Mutex::new(Baseline::Lost),
            stop: CancellationToken::new(),
            notes: Mutex::default(),
            rendered: Mutex::default(),
            noted: Mutex::default(),
            turn: Mutex::default(),
            own_images: Mutex::default(),
            base_images: Mutex::default(),
            copy_state: Arc::default(),
            hidden,
        }
    }

    /// Mounts the copy at the path of the workspace, in a sandbox of its own.
    fn mount(
        context: &CopyContext,
        plan: &Arc<Sandbox>,
        slot: &KeptRun,
    ) -> Result<(CopyMount, Arc<Sandbox>), SandboxError> {
        let folder = |name: &str| slot.folder(name).map_err(|err| err.to_string());
        let needed = |name: &str| folder(name).map_err(SandboxError::Unavailable);
        let tree = if slot.meta.strategy == Some(Strategy::Overlay) {
            let (upper, work) = (needed("upper")?, needed("work")?);
            copy_root_mode(context.root.root(), &upper);
            Tree::Layered {
                upper,
                work,
                between: None,
            }
        } else {
            Tree::Copy {
                from: needed("tree")?,
            }
        };
        let MountedTree {
            root,
            processes,
            sandbox,
        } = context.tree_context(plan).mount(tree, folder, false)?;
        Ok((CopyMount { root, processes }, sandbox))
    }

    /// Creates a tree for validators.
    pub(super) async fn check_tree(
        self: &Arc<Self>,
        state: CheckState<'_>,
    ) -> Result<FreshTree, WorkspaceError> {
        let swaps = match state {
            CheckState::Base => Vec::new(),
            _ => self.changed().await?.swaps,
        };
        let (with_ignored, without) = match state {
            CheckState::WithIgnored { without } => (true, without.to_vec()),
            CheckState::Landing { without } => (false, without.to_vec()),
            CheckState::Base => (false, Vec::new()),
        };
        let work = Arc::clone(self);
        super::blocking(move || work.open_check_tree(&swaps, with_ignored, &without)).await
    }

    fn open_check_tree(
        &self,
        swaps: &[Swap],
        with_ignored: bool,
        without: &[String],
    ) -> Result<FreshTree, WorkspaceError> {
        let (own, upper) = (self.tree()?, self.dir.join("upper"));
        let below = match (self.is_layer(), with_ignored) {
            (true, true) => CheckBase::StackedOverlay(&upper),
            (true, false) => CheckBase::Overlay,
            (false, true) => CheckBase::Copy {
                of: &own,
                hidden: &self.hidden,
            },
            (false, false) => CheckBase::Copy {
                of: &self.base,
                hidden: &self.hidden,
            },
        };
        let tree = FreshTree::make(self.context.tree_context(&self.plan), &self.dir, &below)?;
        let taken = swaps.iter().filter(|swap| !without.contains(&swap.path));
        let taken = taken.map(|swap| (swap.path.as_str(), &swap.after));
        if with_ignored {
            tree.reset(without)?;
        } else {
            tree.put(&own, taken.clone())?;
        }
        tree.expect(taken);
        Ok(tree.of_run(own))
    }

    /// Mounts the copy again, so that it shows the current state of the user's tree.
    pub(super) fn remount(&self) -> Result<(), WorkspaceError> {
        self.copy_state.lock().expire();
        self.close();
        let slot = self.slot.lock();
        let slot = slot
            .as_ref()
            .ok_or_else(|| WorkspaceError::other("the copy of the run is closed"))?;
        let (mount_handle, sandbox) = Self::mount(&self.context, &self.plan, slot)
            .map_err(|err| isolation(err.to_string()))?;
        self.live.set(Some(mount_handle));
        *self.sandbox.lock() = Some(sandbox);
        Ok(())
    }

    /// Closes the mount and its sandbox.
    fn close(&self) {
        self.live.set(None);
        *self.sandbox.lock() = None;
    }

    /// Starts the walk that takes the baseline.
    fn start_walk(&self) {
        // The run sees the tree from now on. Later changes, also those during the walk, are changes of the user.
        let moment = FsTime::now();
        let (root, dir, stop) = (Arc::clone(&self.base), self.dir.clone(), self.stop.clone());
        let walk = move || {
            let snapshot = StatSnapshot::as_of(moment, &root, &stop);
            write_snapshot(&dir, "survey", &snapshot);
            snapshot
        };
        *self.baseline() = match std::thread::Builder::new()
            .name("windlass-survey".into())
            .spawn(walk)
        {
            Ok(walking) => Baseline::Walking(walking),
            Err(_) => Baseline::Known(Arc::new(StatSnapshot::as_of(
                moment, &self.base, &self.stop,
            ))),
        };
    }

    pub(super) fn baseline(&self) -> MutexGuard<'_, Baseline> {
        self.baseline.lock()
    }

    /// The baseline; waits for the walk to finish.
    pub(super) fn survey(&self) -> Option<Arc<StatSnapshot>> {
        let mut baseline = self.baseline();
        if let Baseline::Walking(_) = &*baseline {
            let Baseline::Walking(walking) = std::mem::replace(&mut *baseline, Baseline::Lost)
            else {
                return None;
            };
            if let Ok(snapshot) = walking.join() {
                self.note_snapshot(&snapshot);
                *baseline = Baseline::Known(Arc::new(snapshot));
            }
        }
        match &*baseline {
            Baseline::Known(snapshot) => Some(Arc::clone(snapshot)),
            _ => None,
        }
    }

    fn note_snapshot(&self, snapshot: &StatSnapshot) {
        let named = |paths: &[PathBuf]| {
            paths
                .iter()
                .take(MAX_NAMED)
                .map(|path| text_of(path))
                .collect::<Vec<_>>()
                .join(", ")
        };
        if !snapshot.foreign.is_empty() {
            self.note(format!(
                "files of another owner cannot be changed in this run: {}",
                named(&snapshot.foreign)
            ));
        }
        if !snapshot.closed.is_empty() {
            self.note(format!(
                "these directories cannot be read: {}",
                named(&snapshot.closed)
            ));
        }
        if snapshot.cut {
            self.note(
                "the tree has too many files to watch; changes that you make meanwhile may go unnoticed".to_owned(),
            );
        }
    }

    pub(super) fn note(&self, text: String) {
        self.notes.lock().push(text);
    }

    /// Reports a note that would otherwise be repeated by every comparison.
    fn note_once(&self, text: String) {
        if self.noted.lock().insert(text.clone()) {
            self.note(text);
        }
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock())
    }

    pub(super) fn terms(&self) -> Terms {
        let sandbox = self
            .sandbox
            .lock()
            .clone()
            .unwrap_or_else(|| Arc::clone(&self.plan));
        sandbox.terms(self.strategy)
    }

    /// The tree of the copy.
    pub(super) fn tree(&self) -> Result<Arc<Root>, WorkspaceError> {
        Ok(self
            .live
            .mount_handle()
            .map_err(|err| WorkspaceError::other(err.message))?
            .root)
    }

    /// All differences from the user's tree, by content.
    pub(super) async fn changed(self: &Arc<Self>) -> Result<CopyChanges, WorkspaceError> {
        let work = Arc::clone(self);
        let touched = super::blocking(move || work.touched()).await?;
        let touched = match with_tracked(touched, &self.base, &self.context.env).await {
            Ok(touched) => touched,
            Err((touched, why)) => {
                self.note_once(format!(
                    "git cannot list the tracked files, so no ignored file lands: {why}"
                ));
                touched
            }
        };
        let work = Arc::clone(self);
        super::blocking(move || work.compare(touched)).await
    }

    pub(super) fn touched(&self) -> Result<TouchedPaths, WorkspaceError> {
        let merged = self.tree()?;
        let open = |name: &str| {
            Root::open(&self.dir.join(name)).map_err(|err| WorkspaceError::other(err.to_string()))
        };
        if self.is_layer() {
            let layers = OverlayTrees {
                upper: &open("upper")?,
                lower: &self.base,
                merged: &merged,
            };
            return layers.touched().map_err(WorkspaceError::other);
        }
        let before = StatSnapshot::read(&self.dir.join("copied")).ok_or_else(|| {
            WorkspaceError::other("the record of the copied files is missing; discard the copy")
        })?;
        Ok(TouchedPaths::between(&before, &merged))
    }

    fn compare(&self, touched: TouchedPaths) -> Result<CopyChanges, WorkspaceError> {
        let merged = self.tree()?;
        let mut changed = CopyChanges::default();
        let link = |path: &Path| match image(&self.own_images, &merged, &text_of(path)) {
            Ok(Image::Link { target }) => Some(path_of(&target).into_owned()),
            _ => None,
        };
        let has = |path: &Path| merged.stat(&text_of(path)).is_ok();
        let mut git_dirs = GitDirs::new(has);
        let mut agent_state = BTreeSet::new();
        for path in &touched.sources {
            if let Some(dir) = self.agent_state_dir(path) {
                agent_state.insert(dir);
                continue;
            }
            let text = text_of(path);
            let text = text.as_str();
            if copy_tree::is_hidden(&self.hidden, path) {
                if !matches!(image(&self.own_images, &merged, text), Ok(Image::Absent)) {
                    let why = "it was hidden from the run, so the run cannot know what it replaces; delete it in the copy";
                    changed.cannot.push((text.to_owned(), why.to_owned()));
                }
                continue;
            }
            match image(&self.base_images, &self.base, text)
                .and_then(|before| Ok((before, image(&self.own_images, &merged, text)?)))
            {
                Ok((before, after)) if before == after => {}
                Ok((_, Image::Link { target })) if self.leads_into_copy(&target) => {
                    let why = format!(
                        "it is a symlink to the run's own copy ({target}); make it a relative symlink"
                    );
                    changed.cannot.push((text.to_owned(), why));
                }
                Ok((before, after)) => {
                    let leads_to = match &after {
                        Image::Link { target } => {
                            judge_symlink(self.base.root(), text, target, &link)
                        }
                        _ => SymlinkVerdict::Allowed,
                    };
                    match leads_to {
                        SymlinkVerdict::Allowed => {}
                        SymlinkVerdict::Ask(why) => changed.asks.push((text.to_owned(), why)),
                        SymlinkVerdict::Never(why) => {
                            changed.cannot.push((text.to_owned(), why));
                            continue;
                        }
                    }
                    let landing = after.is_there().then(|| git_dirs.refusal(path));
                    match landing.flatten() {
                        Some(why) => changed.cannot.push((text.to_owned(), why)),
                        None => changed.swaps.push(Swap {
                            path: text.to_owned(),
                            before,
                            after,
                        }),
                    }
                }
                Err(why) => changed.cannot.push((text.to_owned(), why)),
            }
        }
        // Files that are ignored only by the run's own ignore rules: they would not land, although the checks of the
        // run may need them.
        let new = |path: &&PathBuf| {
            is_source(&self.base, path) && self.base.stat(&text_of(path)).is_err()
        };
        let hidden = touched.left.iter().take(MAX_LEFT).filter(new);
        changed.newly_ignored = hidden.map(|path| text_of(path)).collect();
        let special = touched
            .special
            .iter()
            .map(|path| format!("{} (a pipe, a socket or a device)", text_of(path)));
        changed.left = touched
            .left
            .iter()
            .map(|path| text_of(path))
            .chain(special)
            .chain(agent_state.into_iter().map(|dir| format!("{dir}/")))
            .take(MAX_LEFT)
            .collect();
        Ok(changed)
    }

    /// The directory of the agent's own state that a path is in, if the user's tree does not have that directory.
    fn agent_state_dir(&self, path: &Path) -> Option<&str> {
        let top = path.components().next()?.as_os_str();
        let mut dirs = self.context.state_dirs.iter().map(String::as_str);
        dirs.find(|dir| top == *dir)
            .filter(|dir| self.base.stat(dir).is_err())
    }

    /// Whether a symlink target is in the directory of the copy, which only this run knows.
    fn leads_into_copy(&self, target: &str) -> bool {
        path_of(target).starts_with(&self.dir)
    }

    /// Describes the changes for people, with the hash of the tree that would land.
    pub(super) fn show(&self, changed: CopyChanges) -> Result<Changes, WorkspaceError> {
        let merged = self.tree()?;
        let mut known = std::mem::take(&mut *self.rendered.lock());
        let files = render::changes(&changed.swaps, &self.base, &merged, &mut known);
        known.retain(&changed.swaps);
        *self.rendered.lock() = known;
        let tree_hash = Some(self.hash_of(&changed.swaps));
        let files_before = self.survey().map(|snapshot| snapshot.files);
        let CopyChanges {
            left,
            newly_ignored,
            cannot,
            asks,
            ..
        } = changed;
        Ok(Changes {
            files,
            tree_hash,
            left,
            newly_ignored,
            cannot,
            asks,
            files_before,
        })
    }

    /// Frees what only makes the next comparison faster, so that a large landing has its memory.
    pub(super) fn drop_caches(&self) {
        *self.rendered.lock() = RenderCache::default();
        *self.own_images.lock() = HashMap::new();
        *self.base_images.lock() = HashMap::new();
    }

    pub(super) fn hash_of(&self, swaps: &[Swap]) -> String {
        let snapshot = self.survey();
        tree_hash(
            snapshot
                .as_ref()
                .map_or("unknown", |snapshot| snapshot.fingerprint()),
            swaps,
        )
    }

    /// Whether it is an overlay, as opposed to a copy.
    pub(super) fn is_layer(&self) -> bool {
        self.strategy == Strategy::Overlay
    }

    pub(super) fn write_meta(&self) -> Result<(), WorkspaceError> {
        self.slot
            .lock()
            .as_ref()
            .map_or(Ok(()), KeptRun::write_meta)
            .map_err(kept_run_error)
    }

    /// Takes the workspace lock for landings; the kernel serves waiting runs in order. Gives up after [`TURN_TIMEOUT`]
    /// and lands without the lock. Returns whether it waited.
    pub(super) async fn take_turn(&self) -> Result<bool, WorkspaceError> {
        if self.turn.lock().is_some() {
            return Ok(false);
        }
        let dir = super::undo_journal(&self.context.undo, self.base.root());
        let failed = |why: String| WorkspaceError::other(format!("{}: {why}", dir.display()));
        windlass_host::private::create_dir(&dir).map_err(|err| failed(err.message))?;
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true);
        let file = file.open(dir.join("turn"));
        let file = file.map_err(|err| failed(err.to_string()))?;
        let again = file.try_clone().map_err(|err| failed(err.to_string()))?;
        let free = lock_within(file.into(), Duration::ZERO);
        if let Some(free) = free.map_err(|errno| failed(errno.to_string()))? {
            *self.turn.lock() = Some(free);
            return Ok(false);
        }
        // A wait for a lock has no timeout and cannot be cancelled, so a thread waits. If the future was dropped, the
        // thread releases the lock at once.
        let (got, lock) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("landing turn".to_owned())
            .spawn(move || {
                let locked = lock_within(again.into(), TURN_TIMEOUT);
                drop(got.send(locked.ok().flatten()));
            })
            .map_err(|err| failed(err.to_string()))?;
        let taken = lock.await.ok().flatten();
        *self.turn.lock() = taken;
        Ok(true)
    }

    pub(super) fn end_turn(&self) {
        *self.turn.lock() = None;
    }

    pub(super) fn keep(&self, files: usize) -> Result<Option<String>, WorkspaceError> {
        // Store the baseline before the copy is closed.
        let _ = self.survey();
        self.close();
        self.end_turn();
        let Some(mut slot) = self.slot.lock().take() else {
            return Ok(None);
        };
        // Nothing is synced while the run works, but a kept copy must survive a power cut.
        if let Ok(dir) = std::fs::File::open(&slot.dir) {
            let _ = rustix::fs::syncfs(dir);
        }
        slot.keep(files).map_err(kept_run_error)?;
        Ok(Some(self.name.clone()))
    }

    pub(super) fn discard(&self) -> Result<(), WorkspaceError> {
        self.stop.cancel();
        let _ = self.survey();
        self.close();
        self.end_turn();
        self.slot
            .lock()
            .take()
            .map_or(Ok(()), KeptRun::discard)
            .map_err(kept_run_error)
    }
}

impl Drop for RunCopy {
    fn drop(&mut self) {
        // An abandoned walk must not write into a directory that is being removed.
        self.stop.cancel();
    }
}

fn tier(plan: &Sandbox) -> Result<Tier, WorkspaceError> {
    plan.tier().map_err(|err| isolation(err.to_string()))
}

fn write_snapshot(dir: &Path, name: &str, snapshot: &StatSnapshot) {
    // Without the file, a later landing treats every changed file as a conflict. Nothing is lost, and nothing is
    // guessed.
    let _ = snapshot.write(&dir.join(name));
}
