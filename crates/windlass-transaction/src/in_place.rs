//! In-place runs, which work on the user's own tree. Every write of a file tool and every command is a landing of its
//! own, so that each call can be undone. There is no copy; opening an isolated run here is an error, and never falls
//! back to an in-place run.
//!
//! All changes go through `call_landings`, which `files` and `commands` use. `command_overlay` is the overlay of one
//! command, `overlay_diff` reads its changes and `land_overlay` lands them. `job_view` copies later changes of the
//! workspace into the overlay of a background job; `tree_watch` reports those changes. `stat_baseline` finds the
//! changes of commands without an overlay.

mod call_landings;
mod checks;
mod command_overlay;
mod commands;
mod files;
mod git_config;
mod job_view;
mod job_views;
mod land_overlay;
mod moved_folders;
mod overlay_diff;
mod stat_baseline;
mod tree_watch;

pub(crate) use self::moved_folders::{RestoredFolders, restore_moved_folders};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::clock::Clock;
use windlass_core::id::{RunId, SessionId};
use windlass_core::terms::{Isolation, SandboxTier, Strategy, Terms};
use windlass_core::validator::BaseTree;
use windlass_core::workspace::{
    Changes, CheckState, CheckTree, FileChange, Files, Landed, Landing, Opening, Processes,
    Snapshots, Transaction, WorkspaceError, Workspaces,
};

use self::call_landings::{CallLandings, UndoStore};
use self::commands::InPlaceCommands;
use self::files::InPlaceFiles;
use self::stat_baseline::StatBaseline;
use crate::isolated::isolation;
use crate::landing::{Contents, ContentsError};
use windlass_host::exec::{Guard, HostProcesses};
use windlass_host::sandbox::{Ended, Sandbox, SandboxError, Standard};
use windlass_host::workspace::Root;

/// Opens the user's tree for in-place runs.
pub struct InPlace {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    guard: Arc<Guard>,
    sandbox: Option<Arc<Sandbox>>,
    undo: Arc<UndoStore>,
}

impl InPlace {
    /// Runs work in `root`, with exactly this environment for commands, and in the sandbox if there is one; see
    /// [`windlass_host::exec::child_env`]. Bytes for undo go to the content store in `contents`, which holds at most
    /// `cap` bytes. `journal` is the directory of the landing journal.
    pub fn new(
        root: Arc<Root>,
        env: Vec<(OsString, OsString)>,
        sandbox: Option<Arc<Sandbox>>,
        contents: &Path,
        journal: PathBuf,
        cap: u64,
    ) -> Result<Self, ContentsError> {
        let contents = Contents::open(contents, cap)?;
        Ok(Self {
            root,
            env,
            guard: Arc::default(),
            sandbox,
            undo: Arc::new(UndoStore { contents, journal }),
        })
    }
}

/// Runs a program of the user in a sandbox around the user's own tree, connected to its own standard streams. If
/// commands work on a copy, the changes land when the program has ended. Returns the changes that did not land, with
/// the reason.
pub async fn run_program(
    sandbox: Arc<Sandbox>,
    root: Arc<Root>,
    undo: &Path,
    argv: &[OsString],
    dir: &Path,
    standard: Standard,
) -> Result<(Ended, Option<String>), SandboxError> {
    let Some(copy) = sandbox.working_copy()? else {
        return Ok((sandbox.run(argv, dir, standard).await?, None));
    };
    let failed = |why: String| {
        SandboxError::Invalid(format!("cannot land the changes of the program: {why}"))
    };
    let contents = crate::isolated::undo_contents(undo).map_err(|err| failed(err.to_string()))?;
    let store = UndoStore {
        contents,
        journal: crate::isolated::undo_journal(undo, root.root()),
    };
    let mut overlay = command_overlay::CommandOverlay::make(&sandbox.command_layers(), root.root())
        .map_err(|err| failed(err.message))?;
    let ended = sandbox.run(argv, dir, standard).await?;
    let landed = tokio::task::spawn_blocking(move || match copy.take(&overlay.upper)? {
        Some(gone) => {
            overlay.gone = gone;
            let now = windlass_host::clock::SystemClock::new().now();
            let session = SessionId::fresh(now, windlass_host::clock::random_u64());
            let landings = CallLandings::new(root, Arc::new(store), session, RunId::nth(1));
            land_overlay::land_overlay(&landings, &overlay, None).or_else(|why| {
                let kept = overlay.keep();
                Ok(Some(format!(
                    "{why}. Its changes are kept in {}",
                    kept.display()
                )))
            })
        }
        None => Ok(None),
    });
    let not_landed = landed
        .await
        .map_err(|err| failed(err.to_string()))?
        .map_err(failed)?;
    Ok((ended, not_landed))
}

impl Workspaces for InPlace {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        Box::pin(async move {
            if opening.isolation == Isolation::Isolated {
                return Err(isolation(
                    "an isolated run needs a private copy of the tree, which is not available here; run in place \
                     (`--in-place`) instead"
                        .to_owned(),
                ));
            }
            if let Some(sandbox) = self.sandbox.clone().filter(|sandbox| sandbox.opens_first()) {
                let opened = tokio::task::spawn_blocking(move || sandbox.open()).await;
                let opened =
                    opened.unwrap_or_else(|err| Err(SandboxError::Unavailable(err.to_string())));
                opened.map_err(|err| isolation(err.to_string()))?;
            }
            let landings = Arc::new(CallLandings::new(
                Arc::clone(&self.root),
                Arc::clone(&self.undo),
                opening.session.clone(),
                opening.run.clone(),
            ));
            let tier = self
                .sandbox
                .as_ref()
                .map(|sandbox| sandbox.terms(Strategy::InPlace).tier);
            let no_overlays = matches!(tier, None | Some(SandboxTier::Landlock));
            if no_overlays {
                landings.note(commands::NO_OVERLAY.to_owned());
            }
            let baseline = Arc::new(StatBaseline::new(Arc::clone(&self.root)));
            let parts = CommandParts {
                root: Arc::clone(&self.root),
                env: self.env.clone(),
                guard: Arc::clone(&self.guard),
                no_overlays,
            };
            Ok(Box::new(InPlaceRun {
                files: Arc::new(InPlaceFiles::new(Arc::clone(&landings))),
                processes: parts.commands(&landings, &baseline, self.sandbox.clone()),
                parts,
                landings,
                baseline,
                sandbox: self.sandbox.clone(),
            }) as Box<dyn Transaction>)
        })
    }
}

/// The parts from which the commands of a run are built.
struct CommandParts {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    guard: Arc<Guard>,
    no_overlays: bool,
}

impl CommandParts {
    /// InPlaceCommands in a sandbox session, whose changes land.
    fn commands(
        &self,
        landings: &Arc<CallLandings>,
        baseline: &Arc<StatBaseline>,
        sandbox: Option<Arc<Sandbox>>,
    ) -> Arc<InPlaceCommands> {
        let processes = HostProcesses::new(Arc::clone(&self.root), self.env.clone())
            .in_sandbox(sandbox.clone(), Arc::clone(&self.guard));
        Arc::new(InPlaceCommands::new(
            Arc::clone(landings),
            Arc::new(processes),
            sandbox,
            Arc::clone(baseline),
            self.no_overlays,
        ))
    }
}

struct InPlaceRun {
    parts: CommandParts,
    landings: Arc<CallLandings>,
    files: Arc<InPlaceFiles>,
    processes: Arc<InPlaceCommands>,
    baseline: Arc<StatBaseline>,
    sandbox: Option<Arc<Sandbox>>,
}

/// The changes that the run landed. If commands wrote to the tree directly, also every other file that changed
/// meanwhile.
fn changes(landings: &CallLandings, baseline: &StatBaseline) -> Vec<FileChange> {
    if baseline.is_taken() {
        landings.reread_paths();
    }
    let mut by_path: BTreeMap<String, FileChange> = baseline
        .changes()
        .into_iter()
        .map(|change| (change.path.clone(), change))
        .collect();
    for path in landings.paths() {
        // A change that is known by content replaces one that is only known by its stat record.
        by_path.remove(&path);
    }
    by_path.extend(
        landings
            .changes()
            .into_iter()
            .map(|change| (change.path.clone(), change)),
    );
    by_path.into_values().collect()
}

impl Transaction for InPlaceRun {
    fn terms(&self) -> Terms {
        if let Some(sandbox) = &self.sandbox {
            return sandbox.terms(Strategy::InPlace);
        }
        Terms {
            not_held: vec!["commands can do whatever you can".to_owned()],
            ..Terms::unconfined(Strategy::InPlace)
        }
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files) as Arc<dyn Files>
    }

    fn processes(&self) -> Arc<dyn Processes> {
        Arc::clone(&self.processes) as Arc<dyn Processes>
    }

    fn before(&self) -> Arc<dyn BaseTree> {
        Arc::clone(&self.files) as Arc<dyn BaseTree>
    }

    fn notes(&self) -> Vec<String> {
        self.landings.take_notes()
    }

    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        Some(Arc::clone(&self.processes) as Arc<dyn Snapshots>)
    }

    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>> {
        if self.landings.is_empty() && !self.baseline.is_taken() {
            return Box::pin(std::future::ready(Ok(Changes::default())));
        }
        let (landings, baseline) = (Arc::clone(&self.landings), Arc::clone(&self.baseline));
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || changes(&landings, &baseline)).await;
            let files = found.map_err(|err| {
                WorkspaceError::other(format!("cannot list the changes of the run: {err}"))
            })?;
            Ok(Changes {
                files,
                ..Changes::default()
            })
        })
    }

    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async move {
            self.processes.stop_all().await;
            Ok(())
        })
    }

    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>> {
        Box::pin(checks::open(self, state))
    }

    fn land<'a>(&'a self, _: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>> {
        // Everything has landed already; only the list of files is missing.
        Box::pin(async move {
            self.freeze().await?;
            let files = self
                .changes()
                .await?
                .files
                .into_iter()
                .map(|change| change.path)
                .collect();
            Ok(Landed {
                files,
                ..Landed::default()
            })
        })
    }

    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>> {
        Box::pin(async move {
            self.freeze().await?;
            Ok(None)
        })
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        Box::pin(async move { self.freeze().await })
    }
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "in_place/calls_tests.rs"]
mod calls_tests;
