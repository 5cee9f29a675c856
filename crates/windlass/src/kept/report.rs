//! Kept runs as rows, their changes, and their deletion.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass::Windlass;
//! use windlass::kept::{
//!     DiffReport, GcLimits, GcReport, KeptRow, KeptStatus, SurplusRun, check_discard, diff, discard, gc, status,
//! };
//! use windlass::machine::Root;
//! # use windlass_testing::{ScriptedProvider, call, says};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let write = call("1", "write_file", &serde_json::json!({ "path": "a.txt", "content": "good\n" }));
//! # let model = ScriptedProvider::new([write, says("It is good now.")]);
//! let windlass = Windlass::without_settings(work.path(), data.path())?
//!     .provider(Arc::new(model), "scripted")
//!     .validate("false")
//!     .max_iterations(1);
//! windlass.run("make it good").await?;
//! let (settings, root) = (windlass.settings(), Arc::new(Root::open(work.path())?));
//! let status: KeptStatus = status(&settings.places, Some(work.path()));
//! let row: &KeptRow = &status.kept[0];
//! assert_eq!((row.state, row.files), ("kept", 1));
//!
//! let report = diff(settings, &root, None).await?;
//! assert!(matches!(&report, DiffReport::Kept { name, .. } if *name == row.name));
//! assert_eq!(report.files()[0].path, "a.txt");
//!
//! let limits = GcLimits { bytes: 1 << 30, age: Duration::from_secs(86_400) };
//! let collected: GcReport = gc(&settings.places, &limits, true)?;
//! let gone: &[SurplusRun] = &collected.gone;
//! assert!(gone.is_empty() && collected.kept_runs == 1);
//!
//! assert_eq!(check_discard(&settings.places, &row.name)?.files, 1);
//! discard(settings, &row.name).await?;
//! assert!(diff(settings, &root, None).await.is_err(), "nothing is kept, and nothing landed");
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::event::EventKind;
use windlass_core::id::SessionId;
use windlass_core::terms::Strategy;
use windlass_core::workspace::FileChange;
use windlass_host::config::Places;
use windlass_host::workspace::Root;
use windlass_transaction::isolated::{
    KeptRun, KeptRunError, KeptRunMeta, UNDO_BYTES, undo_contents,
};

use super::{changes_of, find, note, shelf};
use crate::error::{Error, ErrorKind};
use crate::recovery::recoveries;
use crate::settings::Settings;
use crate::undo::last_changes;

/// The kept runs, and the landings that recovery finished or rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeptStatus {
    /// Newest first.
    pub kept: Vec<KeptRow>,
    /// A sentence for each recovered landing.
    pub recovered: Vec<String>,
}

/// A kept run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeptRow {
    pub name: String,
    /// `running`, `kept`, or `interrupted` if the process of the run died.
    pub state: &'static str,
    /// The workspace that was copied.
    pub root: PathBuf,
    pub session: String,
    pub run: String,
    /// `None` until the copy was made.
    pub strategy: Option<Strategy>,
    /// Number of files that it would change.
    pub files: usize,
    /// Disk usage in bytes.
    pub bytes: u64,
    /// When the copy was opened, in seconds since 1970.
    pub opened: u64,
    /// When it was kept, in seconds since 1970.
    pub kept: Option<u64>,
}

/// The changes of a kept run, or of the run that landed last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum DiffReport {
    /// The changes that would land.
    Kept {
        name: String,
        files: Vec<FileChange>,
        /// The hash of the tree that would land.
        tree_hash: Option<String>,
        /// Changed ignored files and build outputs, which do not land.
        left: Vec<String>,
        /// Changed source files that cannot land, each with the reason.
        cannot_land: Vec<(String, String)>,
    },
    /// The changes that landed last.
    Landed {
        session: SessionId,
        files: Vec<FileChange>,
    },
}

/// The limits above which kept runs are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcLimits {
    /// The disk usage of all kept runs together.
    pub bytes: u64,
    /// The age of a kept run.
    pub age: Duration,
}

/// The kept runs that were deleted because of the limits, and the disk usage of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GcReport {
    /// Nothing was deleted; the report says what would be.
    pub dry_run: bool,
    pub gone: Vec<SurplusRun>,
    /// The disk usage of the deleted runs.
    pub bytes: u64,
    /// The number of kept runs that are left.
    pub kept_runs: usize,
    /// Their disk usage.
    pub kept_bytes: u64,
    /// The disk usage of the contents for undo.
    pub undo_bytes: u64,
    /// The limit for it; the oldest contents are deleted automatically.
    pub undo_cap: u64,
}

/// A kept run above the limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SurplusRun {
    pub name: String,
    pub bytes: u64,
    /// The limit that it exceeds.
    pub why: String,
}

impl DiffReport {
    /// The changed files, sorted by path.
    #[must_use]
    pub fn files(&self) -> &[FileChange] {
        match self {
            Self::Kept { files, .. } | Self::Landed { files, .. } => files,
        }
    }
}

impl KeptRow {
    fn new(meta: KeptRunMeta, busy: bool) -> Self {
        Self {
            name: meta.name,
            state: match (busy, meta.kept) {
                (true, _) => "running",
                (false, Some(_)) => "kept",
                (false, None) => "interrupted",
            },
            root: meta.root,
            session: meta.session,
            run: meta.run,
            strategy: meta.strategy,
            files: meta.files,
            bytes: meta.bytes,
            opened: meta.opened,
            kept: meta.kept,
        }
    }
}

/// The kept runs of the workspace with this root, or of all workspaces.
#[must_use]
pub fn status(places: &Places, root: Option<&Path>) -> KeptStatus {
    let here = |meta: &KeptRunMeta| root.is_none_or(|root| meta.root == root);
    let all = shelf(places).list().into_iter();
    // A run that died before its copy was complete has no changes; the next run or `gc` deletes it.
    let shown = all.filter(|(meta, busy)| here(meta) && (*busy || meta.was_made()));
    KeptStatus {
        kept: shown.map(|(meta, busy)| KeptRow::new(meta, busy)).collect(),
        recovered: recoveries(places),
    }
}

/// The changes of the kept run with this name. Without a name: of the newest kept run of the workspace, else of the run
/// that landed last.
pub async fn diff(
    settings: &Settings,
    root: &Arc<Root>,
    name: Option<&str>,
) -> Result<DiffReport, Error> {
    let meta = match find(&settings.places, root, name) {
        Ok(meta) => meta,
        Err(_) if name.is_none() => {
            let (session, files) = last_changes(settings, root).await.map_err(|_| {
                Error::usage("this workspace has no kept run and no landed run")
                    .hint("`windlass status --all` lists kept runs of other workspaces")
            })?;
            return Ok(DiffReport::Landed { session, files });
        }
        Err(err) => return Err(err),
    };
    let changes = changes_of(settings, root, &meta).await?;
    Ok(DiffReport::Kept {
        name: meta.name,
        files: changes.files,
        tree_hash: changes.tree_hash,
        left: changes.left,
        cannot_land: changes.cannot,
    })
}

/// Fails if the kept run cannot be deleted now: it does not exist, a run works on it, or its landing is not logged yet.
pub fn check_discard(places: &Places, name: &str) -> Result<KeptRunMeta, Error> {
    Ok(open_to_discard(places, name)?.meta.clone())
}

fn open_to_discard(places: &Places, name: &str) -> Result<KeptRun, Error> {
    let kept = shelf(places).open(name).map_err(|err| match err {
        KeptRunError::Busy(_) => Error::new(ErrorKind::Conflict, err.to_string()),
        KeptRunError::Unknown(_) | KeptRunError::Io(_) => Error::usage(err.to_string()),
    })?;
    if kept.has_pending_landing() {
        let why = format!("{name} has landed, but its landing is not in the log yet");
        return Err(Error::new(ErrorKind::Conflict, why)
            .hint("free some disk space, then run any command again"));
    }
    Ok(kept)
}

/// Deletes a kept run and logs this in its session. If only the log fails, it sends a warning.
pub async fn discard(settings: &Settings, name: &str) -> Result<(), Error> {
    let kept = open_to_discard(&settings.places, name)?;
    let meta = kept.meta.clone();
    kept.discard()
        .map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    let discarded = EventKind::Discarded {
        name: meta.name.clone(),
    };
    if let Err(why) = note(settings, &meta, discarded).await {
        settings.notices.warn(&format!(
            "the deletion could not be logged in the session: {}",
            why.message()
        ));
    }
    Ok(())
}

/// Deletes the kept runs above the limits. A dry run only reports them.
pub fn gc(places: &Places, limits: &GcLimits, dry_run: bool) -> Result<GcReport, Error> {
    let failed = |err: String| Error::new(ErrorKind::Failed, err);
    let shelf = shelf(places);
    let mut gone = Vec::new();
    for (meta, why) in shelf.surplus(limits.bytes, limits.age) {
        if !dry_run {
            // Another process may have opened it since it was listed.
            let Ok(kept) = shelf.open(&meta.name) else {
                continue;
            };
            kept.discard().map_err(|err| failed(err.to_string()))?;
        }
        gone.push(SurplusRun {
            name: meta.name,
            bytes: meta.bytes,
            why,
        });
    }
    let left = shelf.list();
    let undo = undo_contents(&places.undo_dir()).and_then(|contents| contents.used());
    Ok(GcReport {
        dry_run,
        bytes: gone.iter().map(|run| run.bytes).sum(),
        gone,
        kept_runs: left.len(),
        kept_bytes: left.iter().map(|(meta, _)| meta.bytes).sum(),
        undo_bytes: undo.map_err(|err| failed(err.to_string()))?,
        undo_cap: UNDO_BYTES,
    })
}
