//! The ports to a run's workspace, in place or on a copy: its terms, the changes, the landing, and the changes of each
//! call for undo. `windlass-transaction` implements them; nothing here opens anything.
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
use crate::validator::BaseTree;
use crate::workspace::{FileChange, Files, Processes};

/// The parameters for opening the workspace of a run.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The session that the run belongs to.
    pub session: &'a SessionId,
    /// The run that the workspace is for.
    pub run: &'a RunId,
    /// Whether to work on an isolated copy.
    pub isolation: Isolation,
    /// The name of the kept run whose copy is opened again.
    pub kept: Option<&'a str>,
}

/// Opens workspaces for runs.
pub trait Workspaces: Send + Sync {
    /// Opens the workspace for one run. If the requested isolation is not available, that is an error, never a silent
    /// fallback.
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>>;
    /// The changes in the copy of a run whose process died. Empty if the copy is gone or unreadable.
    fn left_changes<'a>(&'a self, _copy: &'a str) -> BoxFuture<'a, Vec<FileChange>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// The workspace of one run.
///
/// The port has seventeen methods because one object owns the copy from opening to landing. If it were split in two, a
/// caller could land with one part what was never judged with the other. Only copies need the methods that have a
/// default.
pub trait Transaction: Send + Sync {
    /// The terms that are in force, for the event that states them.
    fn terms(&self) -> Terms;
    /// The name of the copy; `None` in place.
    fn name(&self) -> Option<&str> {
        None
    }
    /// Warnings about this workspace for the user.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// The files of the run's tree.
    fn files(&self) -> Arc<dyn Files>;
    /// The tree as it was before the run.
    fn before(&self) -> Arc<dyn BaseTree>;
    /// The processes of the run.
    fn processes(&self) -> Arc<dyn Processes>;
    /// The recorder of each call's changes, for undo; `None` if the run is undone as a whole.
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        None
    }
    /// The differences from the tree at opening.
    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>>;
    /// Ends every process, so that nothing changes while validators run.
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>>;
    /// Paths that the user changed in their own tree since the workspace was opened or last caught up.
    fn moved(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Merges the changes that the user made meanwhile: three-way, if both changed a file and the previous content is
    /// known. If it is unknown, or both changed the same lines, the error lists the paths and nothing is merged.
    fn catch_up(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Waits until no other run is landing in the workspace, in the order of the callers. The turn lasts until
    /// [`Self::end_turn`] or the end of the transaction. Returns whether it had to wait.
    fn take_turn(&self) -> BoxFuture<'_, Result<bool, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(false)))
    }
    /// Lets the next run land.
    fn end_turn(&self) {}
    /// Opens a tree for validators, which the run's own processes cannot influence: see [`CheckTree`].
    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>>;
    /// Lands exactly the changes with this hash, all or nothing. After an error the copy is unchanged.
    fn land<'a>(&'a self, landing: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>>;
    /// Keeps the copy and returns its name; `None` if there is nothing to keep.
    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>>;
    /// Deletes the copy with all changes in it.
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>>;
}

/// The state of the tree that validators see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState<'a> {
    /// The tree as it was before the run.
    Base,
    /// Exactly what would land: without the ignored files that the run changed.
    Landing {
        /// Changed paths that are shown as they were before the run.
        without: &'a [String],
    },
    /// The tree that would land, and the ignored files as the run left them.
    WithIgnored {
        /// Changed paths that are shown as they were before the run.
        without: &'a [String],
    },
}

/// A tree for validators in its own sandbox session: it has nothing that the run left in `/tmp` or in a cache, and no
/// process of the run can reach it. Dropping it deletes it.
pub trait CheckTree: Send + Sync {
    /// The files of this tree.
    fn files(&self) -> Arc<dyn Files>;
    /// The processes in this tree.
    fn processes(&self) -> Arc<dyn Processes>;
    /// Ends every process in the tree.
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>>;
    /// Ends the set-up. From here on, commands have only the network access of validators.
    fn end_setup(&self) {}
    /// Source files that a validator changed since the tree was opened, or since the last `take_over`.
    fn disturbed(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>>;
    /// Copies these files into the run's own tree.
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>>;
}

/// The changes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Changed files of the source set, sorted by path. These would land.
    pub files: Vec<FileChange>,
    /// The hash of the tree that would land (decision 6); `None` in place.
    pub tree_hash: Option<String>,
    /// Changed ignored files and build outputs, which do not land.
    pub left: Vec<String>,
    /// Those of them that are new and ignored only by rules that the run itself wrote. Validators must pass without
    /// them.
    pub newly_ignored: Vec<String>,
    /// Changed source files that cannot land, each with the reason.
    pub cannot: Vec<(String, String)>,
    /// Changed source files that land only with a person's approval, each with the reason.
    pub asks: Vec<(String, String)>,
    /// The number of source files before the run, if it is known.
    pub files_before: Option<usize>,
}

/// The parameters of a landing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Landing {
    /// The hash of the judged tree. A tree with another hash does not land.
    pub tree_hash: Option<String>,
    /// The destination of the changes.
    pub to: LandTo,
}

/// The destination of a landing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LandTo {
    /// The user's tree, without a commit.
    #[default]
    Tree,
    /// The user's tree, and a commit on the current branch with this message.
    Commit(String),
    /// A patch file, and nothing else.
    Patch(std::path::PathBuf),
}

/// The result of a landing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Landed {
    /// Paths that were written or removed.
    pub files: Vec<String>,
    /// The ref that the run's new commits went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refname: Option<String>,
    /// The content of each path before and after, for undo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swaps: Vec<Swap>,
    /// The id of the commit that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The patch file that was written instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Landed files that other programs on this machine will execute: build scripts, hooks, editor settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executes: Vec<String>,
    /// Ignored files and build outputs that did not land.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// A part of the landing that failed, such as the commit. The files themselves have landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
}

/// An error in opening, landing or keeping a workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WorkspaceError {
    /// The kind of error, for programs.
    pub kind: WorkspaceErrorKind,
    /// A description of the error and what to do about it.
    pub message: String,
}

/// Kinds of workspace errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceErrorKind {
    /// The requested isolation is not available (exit code 8).
    Isolation,
    /// The user changed the same files meanwhile.
    Conflict,
    /// The tree that would land is not the judged one.
    Stale,
    /// A run is working on the kept copy.
    Busy,
    /// Any other error, in words.
    Other,
}

impl WorkspaceError {
    /// An error without a specific kind.
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
    /// Starts recording: changes from here on belong to this call.
    fn begin(&self, call: &CallId);
    /// Returns the changes of the call. The content before and after is stored under its hash.
    fn end<'a>(&'a self, call: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>>;
    /// Confirms that the changes of the call are in the log. If this process dies before that, the next one has to log
    /// them.
    fn logged(&self, _call: &CallId) {}
    /// Lands the changes that background jobs made so far. Returns the calls that started them; [`Snapshots::end`] then
    /// returns the changes of each.
    fn land_jobs(&self) -> BoxFuture<'_, Vec<CallId>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// The changes of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallChanges {
    /// Each changed file: line counts and a diff for people, and the content before and after for undo.
    pub files: Vec<(FileChange, Swap)>,
    /// Paths that cannot be undone, with the reason.
    pub lost: Vec<(String, String)>,
    /// Warnings for the user, each with its code.
    pub warnings: Vec<(&'static str, String)>,
    /// Source files that the disk of the workspace has no room for.
    pub not_written: Vec<String>,
    /// Set if the disk is too full to store what undo needs. The run ends once the call is logged.
    pub full: Option<String>,
}
