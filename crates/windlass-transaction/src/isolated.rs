//! Isolated runs: a private view of the workspace that only lands as a whole. A layer of the kernel where it can be
//! had, which costs the same for any tree; else a copy. The user's own tree is not writable by anything in the run.
//!
//! A tour: `shelf` keeps copies by name; `survey` is the stat walk that tells what a person changed meanwhile; `layer`
//! and `copied` are the two kinds of copies; `sources` says which files count; `work` is one copy with its changes;
//! `check_tree` is the tree that the checks see;
//! `catching_up` takes in what the person did; `landing` brings the result home; `untold` is what the log must still be
//! told of it.

mod call_changes;
mod catching_up;
pub(crate) mod check_tree;
mod commit;
pub(crate) mod copied;
mod dead;
#[cfg(test)]
mod enclosed_tests;
mod landing;
mod layer;
mod live;
mod shelf;
mod shown;
mod sources;
mod survey;
mod untold;
mod user_git;
mod work;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::image::Swap;
use windlass_core::terms::{Isolation, Terms};
use windlass_core::validator::Before;
use windlass_core::workspace::*;

use windlass_sandbox::{Session, Spec};

pub use self::shelf::{Card, MAX_AGE, MAX_BYTES, Shelf, ShelfError, Slot};
pub(crate) use self::survey::{Survey, parent};
pub use self::untold::{Untold, landing_was_told, untold_landings};

use self::call_changes::CallRecorder;
use self::check_tree::{Ground, OpenedTree};
use self::work::Work;
use crate::in_place::{InPlace, PutBack, recover_set_aside};
use crate::landing::{
    Contents, ContentsError, Recovered, UnloggedLanding, UnloggedUndo, recover, unlogged_landings,
    unlogged_undos,
};
use crate::path::text_of;
use windlass_host::exec::Guard;
use windlass_host::private::{entries, remove_tree};
use windlass_host::sandbox::{Helper, Sandbox, SandboxError, Tree};
use windlass_host::workspace::Root;

/// How much of what was displaced is kept for undo.
pub const UNDO_BYTES: u64 = 200 << 20;
/// The folder of journals below the undo store, and the most of them that are looked at.
const JOURNALS: &str = "journals";
const MAX_JOURNALS: usize = 10_000;
/// Folders near the top that are looked at for files of another owner before a layer is tried.
const PROBED: usize = 2_000;

/// Opens the user's tree for runs, in place or as a copy.
pub struct Transactions {
    /// None where the undo store would lie in the workspace.
    in_place: Option<InPlace>,
    desk: Arc<Desk>,
}

/// What copies of one workspace have in common.
pub(crate) struct Desk {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    guard: Arc<Guard>,
    sandbox: Option<Arc<Sandbox>>,
    shelf: Shelf,
    undo: PathBuf,
}

impl Transactions {
    /// Runs in `root` with exactly this environment for commands; copies are kept on the shelf, and what a landing
    /// displaces in the undo store. Without a sandbox there are no copies.
    pub fn new(
        root: Arc<Root>,
        env: Vec<(OsString, OsString)>,
        sandbox: Option<Arc<Sandbox>>,
        shelf: Shelf,
        undo: PathBuf,
    ) -> Result<Self, ContentsError> {
        // A store inside the workspace would be part of what it stores; opening a run says so.
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
        let desk = Desk {
            root,
            env,
            guard: Arc::default(),
            sandbox,
            shelf,
            undo,
        };
        Ok(Self {
            in_place,
            desk: Arc::new(desk),
        })
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
                None => Box::pin(std::future::ready(Err(store_is_inside()))),
            };
        }
        let desk = Arc::clone(&self.desk);
        let (session, run) = (opening.session.to_string(), opening.run.to_string());
        let kept = opening.kept.map(str::to_owned);
        let runtime = tokio::runtime::Handle::current();
        Box::pin(async move {
            blocking(move || {
                // The way out of a sandbox is served by the runtime.
                let _inside = runtime.enter();
                let work = desk.open(&session, &run, kept.as_deref())?;
                Ok(Box::new(IsolatedRun(Arc::new(work))) as Box<dyn Transaction>)
            })
            .await
        })
    }

    fn left_changes<'a>(&'a self, copy: &'a str) -> BoxFuture<'a, Vec<FileChange>> {
        let (desk, copy) = (Arc::clone(&self.desk), copy.to_owned());
        let look = move || Ok(desk.left_changes(&copy));
        Box::pin(async move { blocking(look).await.unwrap_or_default() })
    }
}

impl Desk {
    fn left_changes(&self, name: &str) -> Vec<FileChange> {
        let card = self.shelf.card(name).ok();
        card.filter(|card| card.root == self.root.root())
            .and_then(|card| dead::changes(&self.shelf.place(name).ok()?, &card))
            .unwrap_or_default()
    }

    fn open(
        self: Arc<Self>,
        session: &str,
        run: &str,
        kept: Option<&str>,
    ) -> Result<Work, WorkspaceError> {
        let Some(sandbox) = self.sandbox.clone() else {
            return Err(isolation(
                "an isolated run needs the kernel sandbox, because nothing else keeps commands from your tree; leave \
                 out `--sandbox full`, or work on the tree itself with --in-place"
                    .to_owned(),
            ));
        };
        // An agent goes on with what it remembers of this session, whichever copy it works on.
        let sandbox = sandbox
            .lodging(session)
            .map_err(isolation)?
            .map_or(sandbox, Arc::new);
        if let Some(name) = kept {
            let slot = self.shelf.open(name).map_err(shelf_error)?;
            if slot.card.root != self.root.root() {
                let message = format!(
                    "`{name}` is a copy of {}; go there first",
                    slot.card.root.display()
                );
                return Err(WorkspaceError::other(message));
            }
            return Work::reopen(self, sandbox, slot);
        }
        if self.shelf_is_inside() {
            return Err(store_is_inside());
        }
        if is_bare(self.root.root()) {
            return Err(isolation(
                "this is a bare git repository, which has no files to work on; make a work tree of it with `git \
                 worktree add` and go there"
                    .to_owned(),
            ));
        }
        let past_limits = self.prune();
        let reason = self.speaks_against_layer();
        let slot = self
            .shelf
            .create(self.root.root(), session, run)
            .map_err(shelf_error)?;
        let dir = slot.dir.clone();
        let opened = match reason {
            None => match Work::layered(Arc::clone(&self), Arc::clone(&sandbox), slot) {
                Ok(work) => Ok(work),
                Err(failed) => match *failed {
                    (slot, SandboxError::NoLayers(why)) => Work::copied(self, sandbox, slot, &why),
                    (_, err) => Err(isolation(err.to_string())),
                },
            },
            Some(why) => Work::copied(self, sandbox, slot, &why),
        };
        match &opened {
            Ok(work) => past_limits.into_iter().for_each(|note| work.note(note)),
            // It never held anything.
            Err(_) => drop(remove_tree(&dir)),
        }
        opened
    }

    fn ground(&self, plan: &Arc<Sandbox>) -> Ground {
        Ground {
            root: Arc::clone(&self.root),
            env: self.env.clone(),
            guard: Arc::clone(&self.guard),
            plan: Arc::clone(plan),
        }
    }

    fn shelf_is_inside(&self) -> bool {
        self.undo.starts_with(self.root.root())
    }

    /// Removes copies that never began. Says how many kept runs are past the bounds: only `gc` discards those, because a
    /// clock that is wrong for one command must not cost any.
    fn prune(&self) -> Option<String> {
        let surplus = self.shelf.surplus(MAX_BYTES, MAX_AGE).into_iter();
        let (past, unmade): (Vec<_>, Vec<_>) = surplus.partition(|(card, _)| card.was_made());
        for (card, _) in unmade {
            // The next run tries again where it fails.
            let _ = self.shelf.open(&card.name).and_then(Slot::discard);
        }
        let (first, why) = past.first()?;
        Some(format!(
            "{} kept runs are past the limits ({}: {why}); `windlass sessions gc` discards them",
            past.len(),
            first.name
        ))
    }

    /// What a layer over this tree could not show or change, seen at a glance.
    fn speaks_against_layer(&self) -> Option<String> {
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

fn store_is_inside() -> WorkspaceError {
    isolation(
        "the folder for copies and undo lies in the workspace itself; set XDG_DATA_HOME to a folder outside it"
            .to_owned(),
    )
}

/// Finishes or takes back landings that a dead process left behind; to be called before anything else is done.
pub fn recover_landings(shelf: &Shelf, undo: &Path) -> Vec<(String, Result<Recovered, String>)> {
    shelf.sweep();
    let mut recovered = Vec::new();
    let journals = shelf
        .directories()
        .into_iter()
        .map(|(name, dir)| (name, landing::journal_of(&dir)));
    let own = entries(&undo.join(JOURNALS), MAX_JOURNALS);
    let own = own.map(|entry| ("work in place".to_owned(), entry.path()));
    for (name, journal) in journals.chain(own) {
        // The common case costs one call: there is none.
        if !journal.is_dir() {
            continue;
        }
        let outcome = undo_contents(undo)
            .map_err(|err| err.to_string())
            .and_then(|contents| recover(&journal, &contents).map_err(|err| err.to_string()));
        match outcome {
            Ok(None) => {}
            Ok(Some(done)) => {
                if let Some(dir) = journal.parent() {
                    if let (false, Ok(root)) = (done.landed, Root::open(&done.root)) {
                        untold::refresh_survey(dir, &root);
                    }
                    untold::settle(dir, done.landed);
                }
                recovered.push((name, Ok(done)));
            }
            Err(why) => recovered.push((name, Err(why))),
        }
    }
    for entry in entries(&undo.join(JOURNALS), MAX_JOURNALS) {
        for PutBack { root, paths, left } in recover_set_aside(&entry.path()) {
            let done = Recovered {
                root,
                landed: false,
                paths,
                left,
            };
            recovered.push(("work in place".to_owned(), Ok(done)));
        }
    }
    recovered
}

/// Landings of calls in place that are in the tree and perhaps not in the log of their session, oldest first. Those of a
/// live session are among them.
#[must_use]
pub fn unlogged_calls(undo: &Path) -> Vec<UnloggedLanding> {
    entries(&undo.join(JOURNALS), MAX_JOURNALS)
        .flat_map(|entry| unlogged_landings(&entry.path()))
        .collect()
}

/// The same for undos and redos.
#[must_use]
pub fn unlogged_undo_landings(undo: &Path) -> Vec<UnloggedUndo> {
    entries(&undo.join(JOURNALS), MAX_JOURNALS)
        .flat_map(|entry| unlogged_undos(&entry.path()))
        .collect()
}

/// Whether a layer can be had with its upper side below this folder, which is where copies are kept.
pub fn try_layer(helper: &Helper, copies: &Path) -> Result<(), String> {
    // On the same file system, and gone afterwards: who only asks makes no folders.
    let near = copies
        .ancestors()
        .find(|dir| dir.is_dir())
        .unwrap_or(copies);
    let place = near.join(format!(".windlass-trial-{}", std::process::id()));
    let trial = Shelf::new(place.clone());
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
        Session::open(helper, &spec)
            .map(drop)
            .map_err(|err| err.to_string())
    })();
    drop(slot);
    let _ = remove_tree(&place);
    tried
}

/// Where work in place and undoing keep their journal for a workspace: one landing into it at a time.
#[must_use]
pub fn undo_journal(undo: &Path, root: &Path) -> PathBuf {
    let name = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    undo.join(JOURNALS).join(&name[..16])
}

/// The store of what was displaced.
pub fn undo_contents(undo: &Path) -> Result<Contents, ContentsError> {
    Contents::open(&undo.join("contents"), UNDO_BYTES)
}

/// Makes a commit of exactly these paths as they are in the tree. `scratch` is a private folder outside the tree.
pub async fn commit_paths(
    root: &Path,
    env: &[(OsString, OsString)],
    scratch: &Path,
    swaps: &[Swap],
    message: &str,
) -> Result<String, String> {
    let git = user_git::UserGit::of(root, env).ok_or("the workspace is no git repository")?;
    commit::commit(&git, scratch, swaps, message).await
}

/// One isolated run.
struct IsolatedRun(Arc<Work>);

impl IsolatedRun {
    async fn on_work<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Work) -> Result<T, WorkspaceError> + Send + 'static,
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
    fn before(&self) -> Arc<dyn Before> {
        Arc::clone(&self.0.live) as Arc<dyn Before>
    }
    fn processes(&self) -> Arc<dyn Processes> {
        Arc::clone(&self.0.live) as Arc<dyn Processes>
    }
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        // Without a layer every look would walk the whole copy.
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
                // What would change nothing is not worth a name.
                Ok(changed)
                    if changed.swaps.is_empty()
                        && changed.cannot.is_empty()
                        && !untold::is_pending(&self.0.dir)
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
            self.on_work(Work::discard).await
        })
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    let done = tokio::task::spawn_blocking(act).await;
    done.unwrap_or_else(|err| {
        Err(WorkspaceError::other(format!(
            "the copy could not be worked on: {err}"
        )))
    })
}

pub(crate) fn isolation(message: String) -> WorkspaceError {
    WorkspaceError {
        kind: WorkspaceErrorKind::Isolation,
        message,
    }
}

fn shelf_error(err: ShelfError) -> WorkspaceError {
    WorkspaceError::other(err.to_string())
}

/// A bare repository has settings and hooks without a `.git` above them by which the landing would know them.
fn is_bare(root: &Path) -> bool {
    let is_dir = |name: &str| root.join(name).is_dir();
    is_dir("objects")
        && is_dir("refs")
        && root.join("HEAD").is_file()
        && !root.join(".git").exists()
}

/// Mount points inside a directory.
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

/// The kernel writes spaces and the like as octal numbers.
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

/// A file of another owner near the top: who is not root can only take writes for their own.
fn foreign_near_top(root: &Root) -> Option<PathBuf> {
    let own = rustix::process::geteuid();
    if own.is_root() {
        return None;
    }
    let mut open = vec![(PathBuf::from("."), 0)];
    let mut left = PROBED;
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
