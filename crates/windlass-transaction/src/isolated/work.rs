//! One copy: how it is opened and closed, and what was changed in it by content. What it was relative to is known by a
//! walk that goes on beside the first steps of the run and is kept with the copy.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::CancellationToken;
use windlass_core::image::{Image, Swap};
use windlass_core::terms::{Strategy, Terms};
use windlass_core::workspace::{Changes, CheckState, FileChange, Files, WorkspaceError};

use super::call_changes::CopyState;
use super::check_tree::{Below, FreshTree, Mounted, image, remove_left, take_mode, with_tracked};
use super::layer::{Layers, Touched};
use super::live::{Behind, Live};
use super::shelf::Slot;
use super::shown;
use super::sources::is_source;
use super::survey::{Moment, Print, Survey};
use super::{Desk, copied, isolation, shelf_error};
use crate::git_dirs::GitDirs;
use crate::landing::{lock_within, tree_hash};
use crate::links::{Leads, leads};
use crate::path::{path_of, text_of};
use windlass_host::sandbox::{Sandbox, SandboxError, Tier, Tree};
use windlass_host::workspace::Root;

/// Paths that are named in one note.
const MAX_NAMED: usize = 5;
/// Ignored paths that are listed.
const MAX_LEFT: usize = 500;
/// Another run may work so long on its turn to land before it is not waited for.
const TURN_PATIENCE: Duration = Duration::from_secs(600);

/// A copy that a run works on.
pub(crate) struct Work {
    pub(super) desk: Arc<Desk>,
    pub(super) name: String,
    pub(super) live: Arc<Live>,
    /// The user's own tree.
    pub(super) base: Arc<Root>,
    strategy: Strategy,
    plan: Arc<Sandbox>,
    sandbox: Mutex<Option<Arc<Sandbox>>>,
    slot: Mutex<Option<Slot>>,
    pub(super) dir: PathBuf,
    pub(super) baseline: Mutex<Baseline>,
    stop: CancellationToken,
    notes: Mutex<Vec<String>>,
    cache: Mutex<Cache>,
    /// The lock of the workspace while it is this run's turn to land.
    turn: Mutex<Option<OwnedFd>>,
    /// By path: valid as long as the record is the same.
    pub(super) own_images: Mutex<HashMap<String, (Print, Image)>>,
    pub(super) base_images: Mutex<HashMap<String, (Print, Image)>>,
    /// What the last call left in the copy.
    pub(super) copy_state: Arc<Mutex<CopyState>>,
    /// Paths of the workspace that are not in the copy because commands must not read them.
    pub(super) hidden: Vec<PathBuf>,
}

/// What the copy is relative to.
pub(super) enum Baseline {
    /// It is being looked at.
    Coming(std::thread::JoinHandle<Survey>),
    Known(Arc<Survey>),
    /// The process died before it was written down: every changed file may be one that the person changed, too.
    Lost,
}

#[derive(Default)]
struct Cache {
    shown: BTreeMap<String, (Swap, FileChange)>,
    /// Notes that were made.
    said: BTreeSet<String>,
}

/// What was changed, by content.
#[derive(Debug, Clone, Default)]
pub(super) struct Changed {
    pub(super) swaps: Vec<Swap>,
    pub(super) left: Vec<String>,
    pub(super) newly_ignored: Vec<String>,
    pub(super) cannot: Vec<(String, String)>,
    pub(super) asks: Vec<(String, String)>,
}

impl Work {
    /// A layer over the tree.
    pub(super) fn layered(
        desk: Arc<Desk>,
        plan: Arc<Sandbox>,
        mut slot: Slot,
    ) -> Result<Self, Box<(Slot, SandboxError)>> {
        slot.card.strategy = Some(Strategy::Overlay);
        let mounted = match Self::mount(&desk, &plan, &slot) {
            Ok(mounted) => mounted,
            Err(err) => return Err(Box::new((slot, err))),
        };
        // Who finds it after a crash must know what it is.
        if let Err(err) = slot.write_card() {
            return Err(Box::new((slot, SandboxError::Unavailable(err.to_string()))));
        }
        let work = Self::over(desk, plan, slot, mounted);
        work.look_around();
        Ok(work)
    }

    /// A copy of the tree.
    pub(super) fn copied(
        desk: Arc<Desk>,
        plan: Arc<Sandbox>,
        mut slot: Slot,
        why: &str,
    ) -> Result<Self, WorkspaceError> {
        let left_out = copied::measure(&desk.root).map_err(|too_large| {
            isolation(format!(
                "no layer can be had: {why}; and {too_large}; work on it directly with --in-place"
            ))
        })?;
        // Where there is no view that hides them, credentials are not copied.
        let mut hidden = if tier(&plan)? == Tier::Broker {
            plan.hidden_in_workspace()
        } else {
            Vec::new()
        };
        hidden.extend(left_out.iter().cloned());
        slot.card.hidden.clone_from(&hidden);
        let tree = slot.folder("tree").map_err(shelf_error)?;
        // What the copy is relative to is known before a byte of it is read.
        let survey = Survey::as_of(Moment::now(), &desk.root, &CancellationToken::new());
        let copied = copied::copy(&desk.root, &tree, &hidden).map_err(isolation)?;
        slot.card.strategy = Some(if copied.shared {
            Strategy::Reflink
        } else {
            Strategy::Copy
        });
        let own = Root::open(&tree).map_err(|err| isolation(err.to_string()))?;
        let all = Survey::of_everything(&own);
        write_survey(&slot.dir, "survey", &survey);
        write_survey(&slot.dir, "copied", &all);
        let mounted = Self::mount(&desk, &plan, &slot).map_err(|err| isolation(err.to_string()))?;
        let work = Self::over(desk, plan, slot, mounted);
        work.note(format!(
            "the run works on a copy of the tree and not on a layer: {why}"
        ));
        for (path, why) in copied.missing.iter().take(MAX_NAMED) {
            work.note(format!("`{}` is not in the copy: {why}", text_of(path)));
        }
        left_out
            .iter()
            .take(MAX_NAMED)
            .for_each(|path| work.note(copied::left_out_note(path)));
        *work.baseline() = Baseline::Known(Arc::new(survey));
        work.write_card()?;
        Ok(work)
    }

    /// One that was kept.
    pub(super) fn reopen(
        desk: Arc<Desk>,
        plan: Arc<Sandbox>,
        mut slot: Slot,
    ) -> Result<Self, WorkspaceError> {
        if slot.card.strategy != Some(Strategy::Overlay) && tier(&plan)? == Tier::Broker {
            // A copy that was made for a view that hides credentials holds them.
            let tree = slot.folder("tree").map_err(shelf_error)?;
            for path in plan.hidden_in_workspace() {
                if !slot.card.hidden.contains(&path) {
                    copied::hide(&tree, &path).map_err(isolation)?;
                    slot.card.hidden.push(path);
                }
            }
            slot.write_card().map_err(shelf_error)?;
        }
        remove_left(&slot.dir);
        let known = Survey::read(&slot.dir.join("survey"));
        let upper = std::fs::read_dir(slot.dir.join("upper"));
        let mounted = Self::mount(&desk, &plan, &slot).map_err(|err| isolation(err.to_string()))?;
        let work = Self::over(desk, plan, slot, mounted);
        work.copy_state.lock().expire();
        match known {
            Some(survey) => *work.baseline() = Baseline::Known(Arc::new(survey)),
            // Its process died before the first walk was written down. A layer that holds nothing is relative to what
            // is there now.
            None if upper.is_ok_and(|mut entries| entries.next().is_none()) => work.look_around(),
            None => *work.baseline() = Baseline::Lost,
        }
        Ok(work)
    }

    fn over(
        desk: Arc<Desk>,
        plan: Arc<Sandbox>,
        slot: Slot,
        (behind, sandbox): (Behind, Arc<Sandbox>),
    ) -> Self {
        let live = Live::new(
            behind.root.root().to_owned(),
            Arc::clone(&desk.root),
            slot.dir.join("before"),
        );
        let hidden = slot.card.hidden.clone();
        live.set(Some(behind));
        Self {
            base: Arc::clone(&desk.root),
            desk,
            name: slot.card.name.clone(),
            live: Arc::new(live),
            strategy: slot.card.strategy.unwrap_or_default(),
            plan,
            sandbox: Mutex::new(Some(sandbox)),
            dir: slot.dir.clone(),
            slot: Mutex::new(Some(slot)),
            baseline: Mutex::new(Baseline::Lost),
            stop: CancellationToken::new(),
            notes: Mutex::default(),
            cache: Mutex::default(),
            turn: Mutex::default(),
            own_images: Mutex::default(),
            base_images: Mutex::default(),
            copy_state: Arc::default(),
            hidden,
        }
    }

    /// Puts the copy at the workspace's path, in a sandbox of its own.
    fn mount(
        desk: &Desk,
        plan: &Arc<Sandbox>,
        slot: &Slot,
    ) -> Result<(Behind, Arc<Sandbox>), SandboxError> {
        let folder = |name: &str| slot.folder(name).map_err(|err| err.to_string());
        let needed = |name: &str| folder(name).map_err(SandboxError::Unavailable);
        let tree = if slot.card.strategy == Some(Strategy::Overlay) {
            let (upper, work) = (needed("upper")?, needed("work")?);
            take_mode(desk.root.root(), &upper);
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
        let Mounted {
            root,
            processes,
            sandbox,
        } = desk.ground(plan).mount(tree, folder, false)?;
        Ok((Behind { root, processes }, sandbox))
    }

    /// A tree for checks.
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
            (true, true) => Below::LayerOver(&upper),
            (true, false) => Below::Layer,
            (false, true) => Below::Copy {
                of: &own,
                hidden: &self.hidden,
            },
            (false, false) => Below::Copy {
                of: &self.base,
                hidden: &self.hidden,
            },
        };
        let tree = FreshTree::make(self.desk.ground(&self.plan), &self.dir, &below)?;
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

    /// Mounts it anew, so that it shows what is below it now.
    pub(super) fn remount(&self) -> Result<(), WorkspaceError> {
        self.copy_state.lock().expire();
        self.close();
        let slot = self.slot.lock();
        let slot = slot
            .as_ref()
            .ok_or_else(|| WorkspaceError::other("the copy is closed"))?;
        let (behind, sandbox) =
            Self::mount(&self.desk, &self.plan, slot).map_err(|err| isolation(err.to_string()))?;
        self.live.set(Some(behind));
        *self.sandbox.lock() = Some(sandbox);
        Ok(())
    }

    /// Nothing of it is in use any more.
    fn close(&self) {
        self.live.set(None);
        *self.sandbox.lock() = None;
    }

    /// Starts the walk that tells what the copy is relative to.
    fn look_around(&self) {
        // From here on the run sees the tree: what is changed later, also while the walk goes on, is somebody else's.
        let moment = Moment::now();
        let (root, dir, stop) = (Arc::clone(&self.base), self.dir.clone(), self.stop.clone());
        let walk = move || {
            let survey = Survey::as_of(moment, &root, &stop);
            write_survey(&dir, "survey", &survey);
            survey
        };
        *self.baseline() = match std::thread::Builder::new()
            .name("windlass-survey".into())
            .spawn(walk)
        {
            Ok(walking) => Baseline::Coming(walking),
            Err(_) => Baseline::Known(Arc::new(Survey::as_of(moment, &self.base, &self.stop))),
        };
    }

    pub(super) fn baseline(&self) -> MutexGuard<'_, Baseline> {
        self.baseline.lock()
    }

    /// What the copy is relative to; waits for the walk.
    pub(super) fn survey(&self) -> Option<Arc<Survey>> {
        let mut baseline = self.baseline();
        if let Baseline::Coming(_) = &*baseline {
            let Baseline::Coming(walking) = std::mem::replace(&mut *baseline, Baseline::Lost)
            else {
                return None;
            };
            if let Ok(survey) = walking.join() {
                self.note_survey(&survey);
                *baseline = Baseline::Known(Arc::new(survey));
            }
        }
        match &*baseline {
            Baseline::Known(survey) => Some(Arc::clone(survey)),
            _ => None,
        }
    }

    fn note_survey(&self, survey: &Survey) {
        let named = |paths: &[PathBuf]| {
            paths
                .iter()
                .take(MAX_NAMED)
                .map(|path| text_of(path))
                .collect::<Vec<_>>()
                .join(", ")
        };
        if !survey.foreign.is_empty() {
            self.note(format!(
                "files of another owner cannot be changed in this run: {}",
                named(&survey.foreign)
            ));
        }
        if !survey.closed.is_empty() {
            self.note(format!(
                "these folders cannot be read: {}",
                named(&survey.closed)
            ));
        }
        if survey.cut {
            self.note(
                "the tree has too many files to be watched; what you change meanwhile may not be seen".to_owned(),
            );
        }
    }

    pub(super) fn note(&self, text: String) {
        self.notes.lock().push(text);
    }

    /// The same for what would be said at every look.
    fn note_once(&self, text: String) {
        if self.cache.lock().said.insert(text.clone()) {
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

    /// The tree as the run left it.
    pub(super) fn tree(&self) -> Result<Arc<Root>, WorkspaceError> {
        Ok(self
            .live
            .behind()
            .map_err(|err| WorkspaceError::other(err.message))?
            .root)
    }

    /// Everything that differs from the user's tree, by content.
    pub(super) async fn changed(self: &Arc<Self>) -> Result<Changed, WorkspaceError> {
        let work = Arc::clone(self);
        let touched = super::blocking(move || work.touched()).await?;
        let touched = match with_tracked(touched, &self.base, &self.desk.env).await {
            Ok(touched) => touched,
            Err((touched, why)) => {
                self.note_once(format!(
                    "git cannot say whether ignored files are tracked, so none lands: {why}"
                ));
                touched
            }
        };
        let work = Arc::clone(self);
        super::blocking(move || work.compared(touched)).await
    }

    pub(super) fn touched(&self) -> Result<Touched, WorkspaceError> {
        let merged = self.tree()?;
        let open = |name: &str| {
            Root::open(&self.dir.join(name)).map_err(|err| WorkspaceError::other(err.to_string()))
        };
        if self.is_layer() {
            let layers = Layers {
                upper: &open("upper")?,
                lower: &self.base,
                merged: &merged,
            };
            return layers.touched().map_err(WorkspaceError::other);
        }
        let before = Survey::read(&self.dir.join("copied")).ok_or_else(|| {
            WorkspaceError::other("the list of what was copied is gone; discard the copy")
        })?;
        Ok(Touched::between(&before, &merged))
    }

    fn compared(&self, touched: Touched) -> Result<Changed, WorkspaceError> {
        let merged = self.tree()?;
        let mut changed = Changed::default();
        let link = |path: &Path| match image(&self.own_images, &merged, &text_of(path)) {
            Ok(Image::Link { target }) => Some(path_of(&target).into_owned()),
            _ => None,
        };
        let has = |path: &Path| merged.stat(&text_of(path)).is_ok();
        let mut git_dirs = GitDirs::new(has);
        for path in &touched.sources {
            let text = text_of(path);
            let text = text.as_str();
            if copied::is_hidden(&self.hidden, path) {
                if !matches!(image(&self.own_images, &merged, text), Ok(Image::Absent)) {
                    let why = "it was hidden from the run, so the run cannot know what it replaces; take it away";
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
                        "it is a link to the run's own copy ({target}); make it a relative link"
                    );
                    changed.cannot.push((text.to_owned(), why));
                }
                Ok((before, after)) => {
                    let led = match &after {
                        Image::Link { target } => leads(self.base.root(), text, target, &link),
                        _ => Leads::Freely,
                    };
                    match led {
                        Leads::Freely => {}
                        Leads::Ask(why) => changed.asks.push((text.to_owned(), why)),
                        Leads::Never(why) => {
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
        // Rules of before do not know them: the run hides from the landing what its own checks may need.
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
            .take(MAX_LEFT)
            .collect();
        Ok(changed)
    }

    /// Whether a link names the copy by a path that only this run knows.
    fn leads_into_copy(&self, target: &str) -> bool {
        path_of(target).starts_with(&self.dir)
    }

    /// The changes as people read them, with the hash of what would land.
    pub(super) fn show(&self, changed: Changed) -> Result<Changes, WorkspaceError> {
        let merged = self.tree()?;
        let mut known = std::mem::take(&mut self.cache.lock().shown);
        let files = shown::changes(&changed.swaps, &self.base, &merged, &mut known);
        let paths: BTreeSet<&str> = changed
            .swaps
            .iter()
            .map(|swap| swap.path.as_str())
            .collect();
        known.retain(|path, _| paths.contains(path.as_str()));
        self.cache.lock().shown = known;
        let tree_hash = Some(self.hash_of(&changed.swaps));
        let files_before = self.survey().map(|survey| survey.files);
        let Changed {
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

    pub(super) fn hash_of(&self, swaps: &[Swap]) -> String {
        let survey = self.survey();
        tree_hash(
            survey
                .as_ref()
                .map_or("unknown", |survey| survey.fingerprint()),
            swaps,
        )
    }

    /// Whether it is a layer over the tree, and not a copy of it.
    pub(super) fn is_layer(&self) -> bool {
        self.strategy == Strategy::Overlay
    }

    pub(super) fn write_card(&self) -> Result<(), WorkspaceError> {
        self.slot
            .lock()
            .as_ref()
            .map_or(Ok(()), Slot::write_card)
            .map_err(shelf_error)
    }

    /// Takes the workspace's lock for landings; the kernel gives it to those who wait in their order. A run that works for
    /// very long on its turn is not waited for.
    pub(super) async fn take_turn(&self) -> Result<bool, WorkspaceError> {
        if self.turn.lock().is_some() {
            return Ok(false);
        }
        let dir = super::undo_journal(&self.desk.undo, self.base.root());
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
        // A wait for a lock has no timeout and cannot be cancelled, so a thread of its own waits. When the
        // future is dropped, it lets go at once.
        let (got, lock) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("landing turn".to_owned())
            .spawn(move || {
                let locked = lock_within(again.into(), TURN_PATIENCE);
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
        // What it is relative to has to be known later.
        let _ = self.survey();
        self.close();
        self.end_turn();
        let Some(mut slot) = self.slot.lock().take() else {
            return Ok(None);
        };
        // While a run works on it nothing is written out for its sake; what is kept must survive a power cut.
        if let Ok(dir) = std::fs::File::open(&slot.dir) {
            let _ = rustix::fs::syncfs(dir);
        }
        slot.keep(files).map_err(shelf_error)?;
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
            .map_or(Ok(()), Slot::discard)
            .map_err(shelf_error)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A walk that nobody waits for any more must not write into a folder that is gone.
        self.stop.cancel();
    }
}

fn tier(plan: &Sandbox) -> Result<Tier, WorkspaceError> {
    plan.tier().map_err(|err| isolation(err.to_string()))
}

fn write_survey(dir: &Path, name: &str, survey: &Survey) {
    // Without it a later landing takes every changed file for a conflict: nothing is lost, and nothing is guessed.
    let _ = survey.write(&dir.join(name));
}
