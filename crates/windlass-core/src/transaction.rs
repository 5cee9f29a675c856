//! The ports to one run's view of the workspace, in place or on a copy: what is in force, what was changed, how it
//! lands, and what each call changed for undo. `windlass-transaction` implements these; nothing here opens anything.
//!
//! ```
//! use windlass_core::transaction::{LandTo, Landing};
//!
//! let landing = Landing { tree_hash: Some("h1".into()), to: LandTo::Commit("Fix the build".into()) };
//! assert_ne!(landing.to, LandTo::Tree);
//! ```

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::id::{CallId, RunId, SessionId};
use crate::image::Swap;
use crate::terms::{Isolation, Terms};
use crate::validator::Before;
use crate::workspace::{FileChange, Files, Processes};

/// A run's wish for a workspace.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// Of which session.
    pub session: &'a SessionId,
    /// For which run.
    pub run: &'a RunId,
    /// On the user's own tree or on a copy.
    pub isolation: Isolation,
    /// Go on with the copy that was kept under this name.
    pub kept: Option<&'a str>,
}

/// Opens workspaces for runs.
pub trait Workspaces: Send + Sync {
    /// Opens the workspace for one run. What cannot be had is an error, never a silent fallback.
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>>;
    /// The changes in the copy of a run whose process died. None where the copy is gone or cannot be read.
    fn left_changes<'a>(&'a self, _copy: &'a str) -> BoxFuture<'a, Vec<FileChange>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// One run's view of the workspace.
///
/// The port has seventeen methods because one object owns the copy from opening to landing. Split in two, somebody could
/// land with one half what was never judged with the other. Those with a default are needed by copies alone.
pub trait Transaction: Send + Sync {
    /// What is in force, for the event that says so.
    fn terms(&self) -> Terms;
    /// The name of the copy; `None` in place.
    fn name(&self) -> Option<&str> {
        None
    }
    /// What a person should know about this view of the workspace, each thing once.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// The files.
    fn files(&self) -> Arc<dyn Files>;
    /// The tree as it was before.
    fn before(&self) -> Arc<dyn Before>;
    /// The processes.
    fn processes(&self) -> Arc<dyn Processes>;
    /// What each call changes, for undo; `None` where the run is undone as a whole.
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        None
    }
    /// What differs from the tree at opening.
    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>>;
    /// Ends every process, so that nothing moves while validators look.
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>>;
    /// Paths that the person changed in their own tree since it was opened or last caught up with.
    fn moved(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Takes in what the person changed meanwhile: three-way where both changed a file and what was there before is
    /// known. Where it is not, or both changed the same lines, the error lists the paths and nothing was taken in.
    fn catch_up(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Waits until no other run is landing into the workspace, in the order in which runs ask. The turn lasts until
    /// [`Self::end_turn`] or the end of the transaction. Says whether it had to wait.
    fn take_turn(&self) -> BoxFuture<'_, Result<bool, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(false)))
    }
    /// Lets the next run land.
    fn end_turn(&self) {}
    /// Opens a tree for checks, in which nothing of the run's own processes is: see [`CheckTree`].
    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>>;
    /// Brings exactly the changes of this hash to where they belong, all or nothing. After an error the copy is as it
    /// was.
    fn land<'a>(&'a self, landing: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>>;
    /// Keeps the copy by name; `None` where there is nothing to keep.
    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>>;
    /// Throws the copy away.
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>>;
}

/// The state of the tree that checks are to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState<'a> {
    /// As it was before the run.
    Base,
    /// Exactly what would land: no ignored file that the run changed is there.
    Landing {
        /// Changed paths that are shown as they were before the run.
        without: &'a [String],
    },
    /// What would land, and the ignored files as the run left them.
    WithIgnored {
        /// Changed paths that are shown as they were before the run.
        without: &'a [String],
    },
}

/// A tree for checks, in a sandbox session of its own: nothing that the run left in `/tmp` or in a cache is there, and no
/// process of the run can reach it. It goes when it is dropped.
pub trait CheckTree: Send + Sync {
    /// The files.
    fn files(&self) -> Arc<dyn Files>;
    /// The processes.
    fn processes(&self) -> Arc<dyn Processes>;
    /// Ends every process in it.
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>>;
    /// The set-up is done: from here on commands reach what checks may reach.
    fn end_setup(&self) {}
    /// Source files that a check changed since the tree was opened, or since they were last taken over.
    fn disturbed(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>>;
    /// Takes these files over into the run's own tree.
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>>;
}

/// What a run changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// In the source set, sorted by path: what would land.
    pub files: Vec<FileChange>,
    /// The hash of exactly that (decision 6); `None` in place.
    pub tree_hash: Option<String>,
    /// Ignored paths and build outputs, which stay behind.
    pub left: Vec<String>,
    /// Those of them that are new and ignored only by rules that the run wrote itself: the checks must pass without
    /// them.
    pub newly_ignored: Vec<String>,
    /// Changed source files that cannot land, each with the reason.
    pub cannot: Vec<(String, String)>,
    /// Changed source files that land only when a person agrees, each with the reason.
    pub asks: Vec<(String, String)>,
    /// How many source files there were before, where that is known.
    pub files_before: Option<usize>,
}

/// How changes are to land.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Landing {
    /// The hash of what was judged; anything else does not land.
    pub tree_hash: Option<String>,
    /// Where they go.
    pub to: LandTo,
}

/// Where changes go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LandTo {
    /// Into the user's tree.
    #[default]
    Tree,
    /// Into the tree, and as a commit on the current branch with this message.
    Commit(String),
    /// Into a patch file, and nowhere else.
    Patch(std::path::PathBuf),
}

/// What landed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Landed {
    /// Paths that were written or removed.
    pub files: Vec<String>,
    /// Where new commits of the run went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refname: Option<String>,
    /// Each path by content, before and after: what undo needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swaps: Vec<Swap>,
    /// The commit that was made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The patch file that was written instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// What will be run on this machine by other programs: build scripts, hooks, settings of editors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executes: Vec<String>,
    /// Ignored paths and build outputs, which stayed behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// What was to come of it as well and did not, such as the commit. The files themselves are where they belong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
}

/// Why a workspace could not be opened, landed or kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WorkspaceError {
    /// What to match on.
    pub kind: WorkspaceErrorKind,
    /// What happened and what to do.
    pub message: String,
}

/// Kinds of workspace errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceErrorKind {
    /// The isolation asked for is not to be had (exit code 8).
    Isolation,
    /// The person changed the same files meanwhile.
    Conflict,
    /// What would land is not what was judged.
    Stale,
    /// Anything else.
    Other,
}

impl WorkspaceError {
    /// Anything else.
    #[must_use]
    pub fn other(message: impl Into<String>) -> Self {
        Self {
            kind: WorkspaceErrorKind::Other,
            message: message.into(),
        }
    }
}

/// Records the changes of each call in the user's own tree, so that they can be undone.
pub trait Snapshots: Send + Sync {
    /// From here on what changes is this call's doing.
    fn begin(&self, call: &CallId);
    /// Gives the changes of the call; both sides are stored under their hashes.
    fn end<'a>(&'a self, call: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>>;
    /// The changes of the call are in the log. Until then the next process has to log them if this one dies.
    fn logged(&self, _call: &CallId) {}
    /// Lands what background jobs changed so far. Gives the calls that started them; [`Snapshots::end`] then gives the
    /// changes of each.
    fn land_jobs(&self) -> BoxFuture<'_, Vec<CallId>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// What one call changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallChanges {
    /// Each changed file: counts and diff for people, and both sides by content for undo.
    pub files: Vec<(FileChange, Swap)>,
    /// Paths that cannot be undone, with the reason.
    pub lost: Vec<(String, String)>,
    /// Texts for the user, each with the code of its warning.
    pub warnings: Vec<(&'static str, String)>,
    /// Source files for which the disk of the workspace has no room.
    pub not_written: Vec<String>,
    /// No space is left for what undo needs. The run ends when the call is logged.
    pub full: Option<String>,
}
