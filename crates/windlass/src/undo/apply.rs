//! Plans and applies an undo or a redo. The plan compares the logged changes with the current files. Applying is one
//! landing, followed by an event in the log. If the process dies in between, recovery completes the undo in the tree and
//! in the log, or removes it from both. Only files that the log names are read.
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass::Windlass;
//! use windlass::machine::{Root, SessionLog};
//! use windlass::undo::{
//!     AppliedUndo, PlannedUndo, UndoOptions, UndoReport, UndoRequest, UndoTarget, changes_of_session, last_changes,
//!     plan_undo, undoable_changes,
//! };
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
//! let last = UndoRequest::Undo(UndoTarget::LastRun);
//! let planned: PlannedUndo = plan_undo(settings, &root, None, &last).await?;
//! assert!(!planned.is_redo());
//! let store = SessionLog::new(settings.places.sessions_dir());
//! assert_eq!(undoable_changes(&store, &planned.session).await?.done.len(), 1);
//! let (session, files) = last_changes(settings, &root).await?;
//! assert_eq!(changes_of_session(settings, &root, &session).await?, files);
//! assert_eq!(files[0].path, "a.txt");
//! let report: UndoReport = planned.report(true);
//! assert!(report.preview && report.conflicts.is_empty());
//! let options = UndoOptions::default();
//! planned.check(&options)?;
//! let applied: AppliedUndo = planned.apply(settings, &root, &options).await?;
//! assert!(applied.files == 1 && !work.path().join("a.txt").exists());
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Serialize;
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

use super::{UndoTarget, UndoableChanges};
use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::wire;

/// Number of sessions that are searched for changes to undo.
const MAX_SESSIONS: usize = 50;

/// Requests an undo or a redo.
#[derive(Debug, Clone)]
pub enum UndoRequest {
    Undo(UndoTarget),
    /// Redo the last undo.
    Redo,
}

/// Options of applying an undo or a redo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndoOptions {
    /// Skip the files with conflicts. Otherwise a conflict stops everything.
    pub partly: bool,
    /// Also commit the undone changes, as a revert of the commits that the landings made.
    pub revert_commit: bool,
}

/// The changes of an undo or a redo, before or after it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UndoReport {
    pub session: SessionId,
    /// Nothing is applied.
    pub preview: bool,
    pub files: Vec<FileChange>,
    /// Paths where the undo is merged with later edits.
    pub merged: Vec<String>,
    /// Paths that already have the wanted content.
    pub unchanged: Vec<String>,
    /// Paths that cannot be undone, each with the reason.
    pub conflicts: Vec<(String, String)>,
    /// Commits that were made of the changes.
    pub commits: Vec<String>,
}

/// The result of an undo or a redo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AppliedUndo {
    /// The number of changed files.
    pub files: usize,
    /// The commit that reverts the commits of the landings, if it was requested and there were any.
    pub revert: Option<String>,
}

/// An undo or redo that is planned and not applied yet.
pub struct PlannedUndo {
    pub session: SessionId,
    /// The changes that the undo would make.
    pub files: Vec<FileChange>,
    /// The files to merge, the files that already have the wanted content, and the conflicts.
    pub plan: UndoPlan,
    /// The run, if exactly one run is undone.
    pub run: Option<RunId>,
    /// Whether a newer run or session of the workspace was skipped, because it has nothing to undo.
    pub is_older: bool,
    /// Commits that were made of the changes. Undoing does not change them.
    pub commits: Vec<String>,
    task: UndoOperation,
    contents: Contents,
}

/// Reads the changes of a session that can be undone from its log.
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

/// Plans an undo or a redo in the given session, or in the newest session of the workspace with suitable changes. No file
/// is changed.
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

/// The files that the last run of the workspace changed, with diffs, and its session. Runs without changes and undone
/// runs are skipped.
pub async fn last_changes(
    settings: &Settings,
    root: &Root,
) -> Result<(SessionId, Vec<FileChange>), Error> {
    let store = SessionLog::new(settings.places.sessions_dir());
    let last = UndoRequest::Undo(UndoTarget::LastRun);
    let (session, task, _) = find(&store, root, None, &last).await?;
    let contents = undo_contents(&settings.places.undo_dir());
    let contents = contents.map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    Ok((session, changed_files(root, &task.swaps, &contents)))
}

/// The files that the last run of a session changed, with diffs. Runs without changes and undone runs are skipped.
pub async fn changes_of_session(
    settings: &Settings,
    root: &Root,
    session: &SessionId,
) -> Result<Vec<FileChange>, Error> {
    let store = SessionLog::new(settings.places.sessions_dir());
    let changes = undoable_changes(&store, session).await?;
    let last = UndoRequest::Undo(UndoTarget::LastRun);
    let Some(task) = UndoOperation::of(&last, &changes) else {
        return Ok(Vec::new());
    };
    let contents = undo_contents(&settings.places.undo_dir());
    let contents = contents.map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    Ok(changed_files(root, &task.swaps, &contents))
}

impl PlannedUndo {
    /// Whether this is a redo, and not an undo.
    #[must_use]
    pub fn is_redo(&self) -> bool {
        self.task.redo
    }

    /// The plan for programs.
    #[must_use]
    pub fn report(&self, preview: bool) -> UndoReport {
        UndoReport {
            session: self.session.clone(),
            preview,
            files: self.files.clone(),
            merged: self.plan.merged.clone(),
            unchanged: self.plan.unchanged.clone(),
            conflicts: self.plan.conflicts.clone(),
            commits: self.commits.clone(),
        }
    }

    /// Fails if the plan cannot be applied with these options. [`Self::apply`] checks this, too.
    pub fn check(&self, options: &UndoOptions) -> Result<(), Error> {
        let word = if self.is_redo() { "redone" } else { "undone" };
        if let Some((path, why)) = self.plan.conflicts.first().filter(|_| !options.partly) {
            let message = format!("nothing was {word}, because `{path}` cannot be {word}: {why}");
            return Err(Error::new(ErrorKind::Conflict, message)
                .hint("see all conflicts with `--preview`; `--partly` skips them"));
        }
        if options.revert_commit && !self.plan.merged.is_empty() {
            let why =
                "nothing was undone: the commit would contain your later edits of these files";
            return Err(Error::new(ErrorKind::Conflict, why)
                .hint("commit them first, or omit `--revert-commit`"));
        }
        Ok(())
    }

    /// Applies the plan to all files without conflicts, and logs it.
    pub async fn apply(
        self,
        settings: &Settings,
        root: &Arc<Root>,
        options: &UndoOptions,
    ) -> Result<AppliedUndo, Error> {
        self.check(options)?;
        // Opening the session locks it first, so that no run of it is in progress while its files change.
        let built = wire::idle_engine(settings, root.clone())?;
        let session = built
            .engine
            .open(OpenSession::Resume(self.session.clone()), RunMode::Analysis)
            .await?;
        let journal = undo_journal(&settings.places.undo_dir(), root.root());
        let swaps = &self.plan.swaps;
        let undo = self.task.landing(self.session.clone());
        let done = land_undo(root, swaps, &self.contents, &journal, undo);
        let done = done.map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
        // If the process dies here, recovery finds the record and adds the event to the log.
        session.note(self.task.event(swaps.clone())).await?;
        if let Some(record) = done.record {
            let _ = std::fs::remove_file(record);
        }
        let revert = match options.revert_commit && !self.commits.is_empty() {
            true => Some(self.commit_revert(settings, root).await?),
            false => None,
        };
        Ok(AppliedUndo {
            files: swaps.len(),
            revert,
        })
    }

    async fn commit_revert(&self, settings: &Settings, root: &Root) -> Result<String, Error> {
        let exceptions = settings.layers.texts("env.pass").unwrap_or_default();
        let env = child_env(settings.environment.variables(), exceptions);
        let scratch = undo_journal(&settings.places.undo_dir(), root.root());
        let commits = self.commits.join(", ");
        let message = format!("Revert {commits}\n\nUndone by windlass.\n");
        commit_paths(root.root(), &env, &scratch, &self.plan.swaps, &message)
            .await
            .map_err(|why| {
                Error::new(
                    ErrorKind::Failed,
                    format!("the files were undone, but the revert could not be committed: {why}"),
                )
            })
    }
}

/// The swaps to undo or redo, and the data of the event that will record it.
struct UndoOperation {
    swaps: Vec<Swap>,
    /// The number of the event of the first change to undo, or of the undo to redo.
    of: u64,
    /// The numbers of the events of further changes; empty for a redo.
    also: Vec<u64>,
    redo: bool,
    run: Option<RunId>,
    commits: Vec<String>,
}

impl UndoOperation {
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
            run: first.run.clone().filter(|_| *wanted == UndoTarget::LastRun),
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

/// Finds the session and the changes. The last value is whether a newer run or session was skipped.
async fn find(
    store: &SessionLog,
    root: &Root,
    named: Option<&SessionId>,
    request: &UndoRequest,
) -> Result<(SessionId, UndoOperation, bool), Error> {
    let nothing = || {
        match request {
        UndoRequest::Undo(UndoTarget::Call(_)) => Error::usage("no change of that call can be undone")
            .hint(
                "`windlass undo --run RUN` undoes a whole run; single calls cannot be undone if they were made by a \
                 foreign agent, or in a copy without an overlay",
            ),
        _ => Error::usage("there is nothing to undo")
            .hint("`windlass sessions show SESSION` shows the changes of a session"),
    }
    };
    let is_last_run = matches!(request, UndoRequest::Undo(UndoTarget::LastRun));
    if let Some(id) = named {
        let changes = undoable_changes(store, id).await?;
        let task = UndoOperation::of(request, &changes).ok_or_else(nothing)?;
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
        if let Some(task) = UndoOperation::of(request, &changes) {
            is_older |= changes.is_passed_over(task.run.as_ref());
            return Ok((head.id, task, is_older && is_last_run));
        }
        is_older |= !changes.runs.is_empty();
    }
    Err(nothing())
}
