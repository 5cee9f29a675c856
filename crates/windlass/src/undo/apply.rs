//! Applies an undo or a redo: what the log says was done is planned against the files that are there, done as one landing,
//! and logged. An undo whose process dies is in the tree and in the log, or in neither. Files that nothing names are not looked at.
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass::Windlass;
//! use windlass::machine::{Root, SessionLog};
//! use windlass::undo::{PlannedUndo, UndoRequest, Wanted, last_changes, plan_undo, undoable_changes};
//! # use windlass_testing::{ScriptedProvider, call, says};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let write = call("1", "write_file", &serde_json::json!({ "path": "a.txt", "content": "good\n" }));
//! # let model = ScriptedProvider::new([write, says("It is good now.")]);
//! let windlass = Windlass::without_settings(work.path(), data.path())?
//!     .provider(Arc::new(model), "scripted");
//! windlass.run("make it good").await?;
//! let (settings, root) = (windlass.settings(), Arc::new(Root::open(work.path())?));
//! let last = UndoRequest::Undo(Wanted::LastRun);
//! let planned: PlannedUndo = plan_undo(settings, &root, None, &last).await?;
//! assert!(!planned.is_redo());
//! let store = SessionLog::new(settings.places.sessions_dir());
//! assert_eq!(undoable_changes(&store, &planned.session).await?.done.len(), 1);
//! let (_, files) = last_changes(settings, &root).await?;
//! assert_eq!(files[0].path, "a.txt");
//! planned.apply(settings, &root).await?;
//! assert!(!work.path().join("a.txt").exists());
//! let reverted = PlannedUndo::commit_revert(settings, &root, &["1a2b3c".into()], &[]).await;
//! assert!(reverted.is_err(), "there is no repository here");
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use futures_util::StreamExt;
use windlass_core::event::EventKind;
use windlass_core::id::{RunId, SessionId};
use windlass_core::image::Swap;
use windlass_core::runtime::RunMode;
use windlass_core::store::SessionStore;
use windlass_core::workspace::{FileChange, Files};
use windlass_engine::OpenSession;
use windlass_host::exec::child_env;
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::Root;
use windlass_transaction::isolated::{commit_paths, undo_contents, undo_journal};
use windlass_transaction::landing::undo::{UndoPlan, changed_files, plan, preview};
use windlass_transaction::landing::{Contents, LandingUndo, land_undo};

use super::{UndoableChanges, Wanted};
use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::wire;

/// Sessions that are searched for something to undo.
const MAX_SESSIONS: usize = 50;

/// What to undo or redo.
#[derive(Debug, Clone)]
pub enum UndoRequest {
    /// Undo these changes.
    Undo(Wanted),
    /// Redo what was undone last.
    Redo,
}

/// An undo or redo that was planned and not applied yet.
pub struct PlannedUndo {
    /// The session whose changes it is about.
    pub session: SessionId,
    /// What would happen to each file.
    pub files: Vec<FileChange>,
    /// Files that are merged, that are as wanted already, and that cannot be undone.
    pub plan: UndoPlan,
    /// The run that is undone, where it is one.
    pub run: Option<RunId>,
    /// A newer run or session of the workspace was passed over, because it has nothing to undo.
    pub is_older: bool,
    /// Commits that were made of the changes. Undoing does not change them.
    pub commits: Vec<String>,
    task: Task,
    contents: Contents,
}

/// The changes of a session that can be undone.
pub async fn undoable_changes(
    store: &SessionLog,
    session: &SessionId,
) -> Result<UndoableChanges, Error> {
    let mut changes = UndoableChanges::default();
    let mut events = store.read(session, 1);
    while let Some(event) = events.next().await {
        changes.apply(&event?);
    }
    Ok(changes)
}

/// Plans an undo or a redo in the named session, or in the newest of the workspace that has something. Changes nothing.
pub async fn plan_undo(
    settings: &Settings,
    root: &Root,
    session: Option<&SessionId>,
    request: &UndoRequest,
) -> Result<PlannedUndo, Error> {
    let failed = |err: String| Error::new(ErrorKind::Failed, err);
    let store = SessionLog::new(settings.places.sessions_dir());
    let (session, task, is_older) = find(&store, root, session, request).await?;
    let contents = undo_contents(&settings.places.undo_dir());
    let contents = contents.map_err(|err| failed(err.to_string()))?;
    let plan = plan(root, &task.swaps, &contents).map_err(|err| failed(err.to_string()))?;
    Ok(PlannedUndo {
        session,
        files: preview(root, &plan, &contents),
        plan,
        run: task.run.clone(),
        is_older,
        commits: task.commits.clone(),
        task,
        contents,
    })
}

/// The files that the last run of the workspace changed, with diffs, and its session. Runs that changed nothing or were
/// undone are passed over.
pub async fn last_changes(
    settings: &Settings,
    root: &Root,
) -> Result<(SessionId, Vec<FileChange>), Error> {
    let store = SessionLog::new(settings.places.sessions_dir());
    let last = UndoRequest::Undo(Wanted::LastRun);
    let (session, task, _) = find(&store, root, None, &last).await?;
    let contents = undo_contents(&settings.places.undo_dir());
    let contents = contents.map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    Ok((session, changed_files(root, &task.swaps, &contents)))
}

impl PlannedUndo {
    /// Whether it is a redo.
    #[must_use]
    pub fn is_redo(&self) -> bool {
        self.task.redo
    }

    /// Makes a commit that takes the commits of the undone changes back. After [`Self::apply`], with its changes.
    pub async fn commit_revert(
        settings: &Settings,
        root: &Root,
        commits: &[String],
        swaps: &[Swap],
    ) -> Result<String, Error> {
        let exceptions = settings.layers.texts("env.pass").unwrap_or_default();
        let env = child_env(settings.environment.variables(), exceptions);
        let scratch = undo_journal(&settings.places.undo_dir(), root.root());
        let message = format!("Revert {}\n\nUndone by windlass.\n", commits.join(", "));
        commit_paths(root.root(), &env, &scratch, swaps, &message)
            .await
            .map_err(|why| Error::new(ErrorKind::Failed, format!("no commit was made: {why}")))
    }

    /// Applies it, without the files that cannot be undone.
    pub async fn apply(self, settings: &Settings, root: &Arc<Root>) -> Result<(), Error> {
        // The session is held first: a session at work must not have its files changed under it.
        let wired = wire::idle_engine(settings, root.clone())?;
        let session = wired
            .engine
            .open(OpenSession::Resume(self.session.clone()), RunMode::Analysis)
            .await?;
        let journal = undo_journal(&settings.places.undo_dir(), root.root());
        let swaps = &self.plan.swaps;
        let undo = self.task.landing(self.session.clone());
        let done = land_undo(root, swaps, &self.contents, &journal, undo);
        let done = done.map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
        // Where the process dies here, recovery finds the record and tells the log.
        session.note(self.task.event(swaps.clone())).await?;
        if let Some(record) = done.record {
            let _ = std::fs::remove_file(record);
        }
        Ok(())
    }
}

/// What is to be undone or redone, and what the log will say of it.
struct Task {
    swaps: Vec<Swap>,
    /// The event it is about: the first change, or for a redo the undo.
    of: u64,
    /// The further changes; none for a redo.
    also: Vec<u64>,
    redo: bool,
    run: Option<RunId>,
    commits: Vec<String>,
}

impl Task {
    fn of(request: &UndoRequest, changes: &UndoableChanges) -> Option<Self> {
        let UndoRequest::Undo(wanted) = request else {
            let last = changes.undone.last()?;
            return Some(Self {
                swaps: last.swaps.clone(),
                of: last.seq,
                also: Vec::new(),
                redo: true,
                run: None,
                commits: Vec::new(),
            });
        };
        let found = changes.find(wanted);
        let (first, others) = found.split_first()?;
        let swaps = found
            .iter()
            .flat_map(|change| changes.standing_swaps(change))
            .collect();
        Some(Self {
            swaps,
            of: first.seq,
            also: others.iter().map(|change| change.seq).collect(),
            redo: false,
            run: first.run.clone().filter(|_| *wanted == Wanted::LastRun),
            commits: found.iter().filter_map(|one| one.commit.clone()).collect(),
        })
    }

    fn landing(&self, session: SessionId) -> LandingUndo {
        LandingUndo {
            session,
            redo: self.redo,
            of: self.of,
            also: self.also.clone(),
        }
    }

    fn event(&self, swaps: Vec<Swap>) -> EventKind {
        match self.redo {
            true => EventKind::redone(self.of, swaps),
            false => EventKind::undone(self.of, self.also.clone(), swaps),
        }
    }
}

/// The session, the task, and whether a newer run or session has nothing to undo.
async fn find(
    store: &SessionLog,
    root: &Root,
    named: Option<&SessionId>,
    request: &UndoRequest,
) -> Result<(SessionId, Task, bool), Error> {
    let nothing = || {
        match request {
        UndoRequest::Undo(Wanted::Call(_)) => Error::usage("no change of that call can be undone")
            .hint(
                "`windlass undo --run RUN` takes a whole run back; the calls of an agent that is not ours, and of a run \
                 that worked on a copy without a kernel layer, are undone with their run",
            ),
        _ => Error::usage("there is nothing to take back")
            .hint("`windlass sessions show SESSION` tells what a session did"),
    }
    };
    let is_last_run = matches!(request, UndoRequest::Undo(Wanted::LastRun));
    if let Some(id) = named {
        let changes = undoable_changes(store, id).await?;
        let task = Task::of(request, &changes).ok_or_else(nothing)?;
        let is_older = is_last_run && changes.is_passed_over(task.run.as_ref());
        return Ok((id.clone(), task, is_older));
    }
    let here = root.root().display().to_string();
    let mut is_older = false;
    let mut heads = store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let Ok(head) = head else { continue };
        if head.workspace != here {
            continue;
        }
        let changes = undoable_changes(store, &head.id).await?;
        if let Some(task) = Task::of(request, &changes) {
            is_older |= changes.is_passed_over(task.run.as_ref());
            return Ok((head.id, task, is_older && is_last_run));
        }
        is_older |= !changes.runs.is_empty();
    }
    Err(nothing())
}
