//! Isolated runs: a run works on a private copy of the workspace, and its changes land as a whole or not at all. The
//! copy is a kernel overlay if possible, which costs the same for a tree of any size; otherwise the files are copied.
//! Nothing in the run can write to the user's own tree.
//!
//! The modules: `kept_runs` stores copies by name. `stat_snapshot` records the metadata of a tree, to detect what the
//! user changes meanwhile. `overlay_changes` and `copy_tree` are the two kinds of copies. `sources` decides which files
//! belong to the source set. `run_copy` is one copy with its changes, `mounted_copy` gives access to its files and
//! processes. `check_tree` is the tree for the validators. `catch_up` merges the user's changes into the copy.
//! `landing` transfers the result. `unlogged` records landings that are not in the log yet.

mod call_changes;
mod catch_up;
pub(crate) mod check_tree;
mod commit;
pub(crate) mod copy_tree;
mod dead_run;
#[cfg(test)]
mod enclosed_tests;
mod kept_runs;
mod landing;
mod mounted_copy;
mod overlay_changes;
mod render;
mod run_copy;
mod sources;
mod stat_snapshot;
mod unlogged;
mod user_git;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::image::Swap;
use windlass_core::terms::{Isolation, Terms};
use windlass_core::validator::BaseTree;
use windlass_core::workspace::*;

use windlass_sandbox::{OpenedSandbox, SandboxSession, Spec};

pub use self::kept_runs::{KeptRun, KeptRunError, KeptRunMeta, KeptRuns, MAX_AGE, MAX_BYTES};
pub(crate) use self::stat_snapshot::{StatSnapshot, parent};
pub use self::unlogged::{UnloggedRunLanding, landing_was_logged, unlogged_run_landings};

use self::call_changes::CallRecorder;
use self::check_tree::{OpenedTree, TreeContext};
use self::run_copy::RunCopy;
use crate::in_place::{InPlace, RestoredFolders, restore_moved_folders};
use crate::landing::{
    Contents, ContentsError, Recovered, UnloggedLanding, UnloggedUndo, recover, unlogged_landings,
    unlogged_undos,
};
use crate::path::text_of;
use windlass_host::exec::Guard;
use windlass_host::private::{entries, remove_tree};
use windlass_host::sandbox::{Helper, Sandbox, SandboxError, Tree};
use windlass_host::workspace::Root;

/// Maximum bytes of replaced files that are stored for undo.
pub const UNDO_BYTES: u64 = 200 << 20;
/// Directory of the journals in the undo directory.
const JOURNALS: &str = "journals";
const MAX_JOURNALS: usize = 10_000;
/// Maximum entries near the top of the tree that are checked for files of another owner.
const MAX_PROBED: usize = 2_000;

/// Opens the user's tree for runs, in place or as an isolated copy.
pub struct Transactions {
    /// `None` if the undo directory is in the workspace.
    in_place: Option<InPlace>,
    context: Arc<CopyContext>,
}

/// The parts that all copies of one workspace share.
pub(crate) struct CopyContext {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    guard: Arc<Guard>,
    sandbox: Option<Arc<Sandbox>>,
    kept_runs: KeptRuns,
    undo: PathBuf,
    /// Directories at the top of the workspace in which the agent keeps its own state. One that the user's tree does
    /// not have never lands.
    state_dirs: Vec<String>,
}

impl Transactions {
    /// Runs work on `root`, with exactly this environment for commands. Copies are stored in `kept_runs`, and the files
    /// that a landing replaces in the directory `undo`. Without a sandbox there are no isolated runs.
    pub fn new(
        root: Arc<Root>,
        env: Vec<(OsString, OsString)>,
        sandbox: Option<Arc<Sandbox>>,
        kept_runs: KeptRuns,
        undo: PathBuf,
    ) -> Result<Self, ContentsError> {
        // A store inside the workspace would be part of the tree that it stores. Opening a run reports this.
        let in_place = match undo.starts_with(root.root()) {
            true => None,
            false => Some(InPlace::new(
                Arc::clone(&root),
                env.clone(),
                sandbox.clone(),
                &undo.join("contents"),
                undo_journal(&undo, root.root()),
                UNDO_BYTES,
            )?),
        };
        let context = CopyContext {
            root,
            env,
            guard: Arc::default(),
            sandbox,
            kept_runs,
            undo,
            state_dirs: Vec::new(),
        };
        Ok(Self {
            in_place,
            context: Arc::new(context),
        })
    }

    /// Names directories at the top of the workspace in which the agent keeps its own state. An isolated run does not
    /// land one that the user's tree does not have. To be called before the first run is opened.
    #[must_use]
    pub fn with_state_dirs(mut self, dirs: Vec<String>) -> Self {
        if let Some(context) = Arc::get_mut(&mut self.context) {
            context.state_dirs = dirs;
        }
        self
    }
}

impl Workspaces for Transactions {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        if opening.isolation == Isolation::InPlace {
            return match &self.in_place {
                Some(in_place) => in_place.open(opening),
                None => Box::pin(std::future::ready(Err(store_inside_workspace()))),
            };
        }
        let context = Arc::clone(&self.context);
        let (session, run) = (opening.session.to_string(), opening.run.to_string());
        let kept = opening.kept.map(str::to_owned);
        let runtime = tokio::runtime::Handle::current();
        Box::pin(async move {
            blocking(move || {
                // The tokio runtime serves the proxy of the sandbox.
                let _inside = runtime.enter();
                let work = context.open(&session, &run, kept.as_deref())?;
                Ok(Box::new(IsolatedRun(Arc::new(work))) as Box<dyn Transaction>)
            })
            .await
        })
    }

    fn left_changes<'a>(&'a self, copy: &'a str) -> BoxFuture<'a, Vec<FileChange>> {
        let (context, copy) = (Arc::clone(&self.context), copy.to_owned());
        let read = move || Ok(context.left_changes(&copy));
        Box::pin(async move { blocking(read).await.unwrap_or_default() })
    }
}

impl CopyContext {
    fn left_changes(&self, name: &str) -> Vec<FileChange> {
        let meta = self.kept_runs.meta(name).ok();
        meta.filter(|meta| meta.root == self.root.root())
            .and_then(|meta| dead_run::changes(&self.kept_runs.dir_of(name).ok()?, &meta))
            .unwrap_or_default()
    }

    fn open(
        self: Arc<Self>,
        session: &str,
        run: &str,
        kept: Option<&str>,
    ) -> Result<RunCopy, WorkspaceError> {
        let Some(sandbox) = self.sandbox.clone() else {
            return Err(isolation(
                "an isolated run needs the kernel sandbox to keep commands out of your tree; leave \
                 out `--sandbox full`, or work directly in your tree with `--in-place`"
                    .to_owned(),
            ));
        };
        // The agent resumes with its memory of this session, whichever copy it works on.
        let sandbox = sandbox
            .for_agent(session)
            .map_err(isolation)?
            .map_or(sandbox, Arc::new);
        if let Some(name) = kept {
            let slot = self.kept_runs.open(name).map_err(kept_run_error)?;
            if slot.meta.root != self.root.root() {
                let message = format!(
                    "`{name}` is a copy of {}; change to that directory first",
                    slot.meta.root.display()
                );
                return Err(WorkspaceError::other(message));
            }
            return RunCopy::reopen(self, sandbox, slot);
        }
        if self.store_is_inside() {
            return Err(store_inside_workspace());
        }
        if is_bare(self.root.root()) {
            return Err(isolation(
                "this is a bare git repository without files to work on; create a work tree with `git \
                 worktree add` and change to it"
                    .to_owned(),
            ));
        }
        let past_limits = self.prune();
        let reason = self.overlay_obstacle();
        let slot = self
            .kept_runs
            .create(self.root.root(), session, run)
            .map_err(kept_run_error)?;
        let dir = slot.dir.clone();
        let opened = match reason {
            None => match RunCopy::layered(Arc::clone(&self), Arc::clone(&sandbox), slot) {
                Ok(work) => Ok(work),
                Err(failed) => match *failed {
                    (slot, SandboxError::NoLayers(why)) => {
                        RunCopy::copied(self, sandbox, slot, &why)
                    }
                    (_, err) => Err(isolation(err.to_string())),
                },
            },
            Some(why) => RunCopy::copied(self, sandbox, slot, &why),
        };
        match &opened {
            Ok(work) => past_limits.into_iter().for_each(|note| work.note(note)),
            // The copy never contained anything.
            Err(_) => drop(remove_tree(&dir)),
        }
        opened
    }

    fn tree_context(&self, plan: &Arc<Sandbox>) -> TreeContext {
        TreeContext {
            root: Arc::clone(&self.root),
            env: self.env.clone(),
            guard: Arc::clone(&self.guard),
            plan: Arc::clone(plan),
        }
    }

    fn store_is_inside(&self) -> bool {
        self.undo.starts_with(self.root.root())
    }

    /// Removes copies of runs that never began. Reports how many kept runs exceed the limits, and does not discard
    /// them: only `gc` does, because a wrong clock during one command must not delete any.
    fn prune(&self) -> Option<String> {
        let surplus = self.kept_runs.surplus(MAX_BYTES, MAX_AGE).into_iter();
        let (past, unmade): (Vec<_>, Vec<_>) = surplus.partition(|(meta, _)| meta.was_made());
        for (meta, _) in unmade {
            // If this fails, the next run tries again.
            let _ = self.kept_runs.open(&meta.name).and_then(KeptRun::discard);
        }
        let (first, why) = past.first()?;
        Some(format!(
            "{} kept runs exceed the limits ({}: {why}); `windlass sessions gc` discards them",
            past.len(),
            first.name
        ))
    }

    /// A reason why an overlay over this tree would not show or not change all files, found by a quick check.
    fn overlay_obstacle(&self) -> Option<String> {
        let mounts = mounts_below(self.root.root());
        if let Some(first) = mounts.first() {
            return Some(format!(
                "other file systems are mounted in the tree ({})",
                first.display()
            ));
        }
        let foreign = foreign_near_top(&self.root)?;
        Some(format!(
            "files of another owner are in the tree ({})",
            foreign.display()
        ))
    }

    fn contents(&self) -> Result<Contents, WorkspaceError> {
        undo_contents(&self.undo).map_err(|err| WorkspaceError::other(err.to_string()))
    }
}

fn store_inside_workspace() -> WorkspaceError {
    isolation(
        "the directory for copies and undo is inside the workspace; set XDG_DATA_HOME to a directory outside it"
            .to_owned(),
    )
}

/// Finishes or rolls back landings of dead processes. Call it before any other work.
pub fn recover_landings(
    kept_runs: &KeptRuns,
    undo: &Path,
) -> Vec<(String, Result<Recovered, String>)> {
    kept_runs.sweep();
    let mut recovered = Vec::new();
    let journals = kept_runs
        .directories()
        .into_iter()
        .map(|(name, dir)| (name, landing::journal_of(&dir)));
    let own = entries(&undo.join(JOURNALS), MAX_JOURNALS);
    let own = own.map(|entry| ("in-place work".to_owned(), entry.path()));
    for (name, journal) in journals.chain(own) {
        // In the common case there is no journal, and this costs one system call.
        if !journal.is_dir() {
            continue;
        }
        let ended = |root: &Root, landed: bool| {
            let Some(dir) = journal.parent() else { return };
            if !landed {
                unlogged::refresh_baseline(dir, root);
            }
            unlogged::settle(dir, landed);
        };
        let contents = undo_contents(undo).map_err(|err| err.to_string());
        let outcome = contents.and_then(|contents| {
            recover(&journal, &contents, &ended).map_err(|err| err.to_string())
        });
        match outcome {
            Ok(None) => {}
            Ok(Some(done)) => recovered.push((name, Ok(done))),
            Err(why) => recovered.push((name, Err(why))),
        }
    }
    for entry in entries(&undo.join(JOURNALS), MAX_JOURNALS) {
        for RestoredFolders { root, paths, left } in restore_moved_folders(&entry.path()) {
            let done = Recovered {
                root,
                landed: false,
                paths,
                left,
            };
            recovered.push(("in-place work".to_owned(), Ok(done)));
        }
    }
    recovered
}

/// Landings of in-place calls that are in the tree, and that may be missing in the log of their session, oldest first.
/// They include landings of live sessions.
#[must_use]
pub fn unlogged_calls(undo: &Path) -> Vec<UnloggedLanding> {
    entries(&undo.join(JOURNALS), MAX_JOURNALS)
        .flat_map(|entry| unlogged_landings(&entry.path()))
        .collect()
}

/// Undos and redos that are in the tree, and that may be missing in the log of their session.
#[must_use]
pub fn unlogged_undo_landings(undo: &Path) -> Vec<UnloggedUndo> {
    entries(&undo.join(JOURNALS), MAX_JOURNALS)
        .flat_map(|entry| unlogged_undos(&entry.path()))
        .collect()
}

/// Tests whether an overlay can be mounted with its upper directory below `copies`.
pub fn try_layer(helper: &Helper, copies: &Path) -> Result<(), String> {
    // Use the same file system, and remove the directory afterwards: a test must leave no directories behind.
    let near = copies
        .ancestors()
        .find(|dir| dir.is_dir())
        .unwrap_or(copies);
    let place = near.join(format!(".windlass-trial-{}", std::process::id()));
    let trial = KeptRuns::new(place.clone());
    let slot = trial
        .create(Path::new("/"), "none", "none")
        .map_err(|err| err.to_string())?;
    let tried = (|| {
        let folder = |name: &str| slot.folder(name).map_err(|err| err.to_string());
        let (root, upper, work) = (folder("root")?, folder("upper")?, folder("work")?);
        let root = root.canonicalize().map_err(|err| err.to_string())?;
        let spec = Spec {
            tree: Tree::Layered {
                upper,
                work,
                between: None,
            },
            ..Spec::around(root)
        };
        SandboxSession::open(helper, &spec)
            .map(OpenedSandbox::close)
            .map_err(|err| err.to_string())
    })();
    drop(slot);
    let _ = remove_tree(&place);
    tried
}

/// The journal directory of a workspace for in-place work and undo. Only one landing at a time uses it.
#[must_use]
pub fn undo_journal(undo: &Path, root: &Path) -> PathBuf {
    let name = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    undo.join(JOURNALS).join(&name[..16])
}

/// The content store for undo.
pub fn undo_contents(undo: &Path) -> Result<Contents, ContentsError> {
    Contents::open(&undo.join("contents"), UNDO_BYTES)
}

/// Commits exactly these paths as they are in the tree. `scratch` is a private directory outside the tree.
pub async fn commit_paths(
    root: &Path,
    env: &[(OsString, OsString)],
    scratch: &Path,
    swaps: &[Swap],
    message: &str,
) -> Result<String, String> {
    let git = user_git::UserGit::of(root, env).ok_or("the workspace is not a git repository")?;
    commit::commit(&git, scratch, swaps, message).await
}

/// The transaction of one isolated run.
struct IsolatedRun(Arc<RunCopy>);

impl IsolatedRun {
    async fn on_work<T: Send + 'static>(
        &self,
        act: impl FnOnce(&RunCopy) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let work = Arc::clone(&self.0);
        blocking(move || act(&work)).await
    }
}

impl Transaction for IsolatedRun {
    fn terms(&self) -> Terms {
        self.0.terms()
    }
    fn name(&self) -> Option<&str> {
        Some(&self.0.name)
    }
    fn notes(&self) -> Vec<String> {
        self.0.take_notes()
    }
    fn files(&self) -> Arc<dyn Files> {
        Arc::clone(&self.0.live) as Arc<dyn Files>
    }
    fn before(&self) -> Arc<dyn BaseTree> {
        Arc::clone(&self.0.live) as Arc<dyn BaseTree>
    }
    fn processes(&self) -> Arc<dyn Processes> {
        Arc::clone(&self.0.live) as Arc<dyn Processes>
    }
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        // Without an overlay, each snapshot would have to walk the whole copy.
        let recorder = || Arc::new(CallRecorder::new(Arc::clone(&self.0)));
        self.0.is_layer().then(|| recorder() as Arc<dyn Snapshots>)
    }
    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>> {
        Box::pin(async move {
            let changed = self.0.changed().await?;
            self.on_work(move |work| work.show(changed)).await
        })
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async move {
            self.0.live.pause_agents().await;
            Ok(())
        })
    }
    fn moved(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(async move {
            Ok(self
                .0
                .moved()
                .await?
                .iter()
                .map(|path| text_of(path))
                .collect())
        })
    }
    fn catch_up(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(self.0.catch_up())
    }
    fn take_turn(&self) -> BoxFuture<'_, Result<bool, WorkspaceError>> {
        Box::pin(self.0.take_turn())
    }
    fn end_turn(&self) {
        self.0.end_turn();
    }
    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>> {
        Box::pin(async move {
            let tree = self.0.check_tree(state).await?;
            Ok(Box::new(OpenedTree(Arc::new(tree))) as Box<dyn CheckTree>)
        })
    }
    fn land<'a>(&'a self, landing: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>> {
        Box::pin(self.0.land(landing))
    }
    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>> {
        Box::pin(async move {
            self.0.live.stop_all().await;
            let changed = self.0.changed().await;
            let files = match changed {
                // A run that changed nothing is not worth keeping.
                Ok(changed)
                    if changed.swaps.is_empty()
                        && changed.cannot.is_empty()
                        && !unlogged::is_pending(&self.0.dir)
                        && !self.0.has_commits().await =>
                {
                    return self.on_work(|work| work.discard().map(|()| None)).await;
                }
                Ok(changed) => changed.swaps.len(),
                Err(_) => 0,
            };
            self.on_work(move |work| work.keep(files)).await
        })
    }
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        Box::pin(async move {
            self.0.live.stop_all().await;
            self.on_work(RunCopy::discard).await
        })
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    let done = tokio::task::spawn_blocking(act).await;
    done.unwrap_or_else(|err| {
        Err(WorkspaceError::other(format!(
            "work on the copy failed: {err}"
        )))
    })
}

pub(crate) fn isolation(message: String) -> WorkspaceError {
    WorkspaceError {
        kind: WorkspaceErrorKind::Isolation,
        message,
    }
}

fn kept_run_error(err: KeptRunError) -> WorkspaceError {
    WorkspaceError {
        kind: match err {
            KeptRunError::Busy(_) => WorkspaceErrorKind::Busy,
            KeptRunError::Unknown(_) | KeptRunError::Io(_) => WorkspaceErrorKind::Other,
        },
        message: err.to_string(),
    }
}

/// In a bare repository, settings and hooks have no `.git` in their path, by which the landing would recognize them.
fn is_bare(root: &Path) -> bool {
    let is_dir = |name: &str| root.join(name).is_dir();
    is_dir("objects")
        && is_dir("refs")
        && root.join("HEAD").is_file()
        && !root.join(".git").exists()
}

/// Mount points below a directory.
fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescaped);
    points
        .filter(|point| point != root && point.starts_with(root))
        .collect()
}

/// The kernel escapes spaces and some other bytes as octal numbers.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let number = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let number =
            number.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match number {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(
        bytes,
    ))
}

/// A file of another owner near the top. Without root, an overlay can only copy up files of its own user.
fn foreign_near_top(root: &Root) -> Option<PathBuf> {
    let own = rustix::process::geteuid();
    if own.is_root() {
        return None;
    }
    let mut open = vec![(PathBuf::from("."), 0)];
    let mut left = MAX_PROBED;
    while let Some((dir, depth)) = open.pop() {
        let Ok((handle, entries)) = root.entries(&dir) else {
            continue;
        };
        for (name, kind) in entries {
            left = left.checked_sub(1)?;
            let path = dir.join(&name);
            let stat = rustix::fs::statat(&handle, &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            if stat.is_ok_and(|stat| stat.st_uid != own.as_raw()) {
                return Some(path);
            }
            if kind == rustix::fs::FileType::Directory && depth < 1 {
                open.push((path, depth + 1));
            }
        }
    }
    None
}
