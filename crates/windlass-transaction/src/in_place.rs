//! Working on the user's own tree: the in-place form of a transaction. What was changed is known afterwards, by
//! content for what went through the files and by the system's own records for what commands did.
//! There is no copy here; an isolated run is refused, never quietly run in place. With a store for it, every call can be
//! taken back: see `undo` for what tools write and `commands` for what commands do.

mod commands;
mod layer;
mod merge;
mod stored;
mod taken;
mod tracked;
mod undo;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::terms::{Isolation, Strategy, Terms};
use windlass_core::validator::Before;
use windlass_core::workspace::{
    Changes, FileChange, Files, Landed, Landing, Opening, Processes, Snapshots, Transaction,
    WorkspaceError, WorkspaceErrorKind, Workspaces,
};

use self::commands::Commands;
use self::tracked::Tracked;
use self::undo::Undo;
use crate::landing::{Contents, ContentsError};
use windlass_host::exec::{Guard, HostProcesses};
use windlass_host::sandbox::{Ended, Sandbox, SandboxError, Standard};
use windlass_host::workspace::Root;

/// Opens the user's tree for runs.
pub struct InPlace {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    guard: Arc<Guard>,
    sandbox: Option<Arc<Sandbox>>,
    undo: Option<Arc<Undo>>,
}

impl InPlace {
    /// Runs in `root`, with exactly this environment for commands; see [`windlass_host::exec::child_env`].
    #[must_use]
    pub fn new(root: Arc<Root>, env: Vec<(OsString, OsString)>) -> Self {
        Self {
            root,
            env,
            guard: Arc::default(),
            sandbox: None,
            undo: None,
        }
    }

    /// The same with calls that can be taken back: what was there before goes to the content store in `contents`, which
    /// holds at most `cap` bytes, and what commands did is brought in by landings that are noted in `journal`.
    pub fn undo(
        mut self,
        contents: &Path,
        journal: PathBuf,
        cap: u64,
    ) -> Result<Self, ContentsError> {
        let contents = Contents::open(contents, cap)?;
        self.undo = Some(Arc::new(Undo::new(
            Arc::clone(&self.root),
            contents,
            journal,
        )));
        Ok(self)
    }

    /// The same with commands in a sandbox.
    #[must_use]
    pub fn sandboxed(mut self, sandbox: Arc<Sandbox>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }
}

/// Runs a program of the user's in a sandbox around the user's own tree, with its own standard handles. Where commands
/// work on a copy, what it changed is merged when it has ended; paths that stayed as they are are told of.
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
        SandboxError::Invalid(format!("what the program changes cannot be merged: {why}"))
    };
    let contents = crate::isolated::undo_contents(undo).map_err(|err| failed(err.to_string()))?;
    let journal = crate::isolated::undo_journal(undo, root.root());
    let mut layer = layer::CommandLayer::make(&sandbox.command_layers(), root.root())
        .map_err(|err| failed(err.message))?;
    let ended = sandbox.run(argv, dir, standard).await?;
    let merged = tokio::task::spawn_blocking(move || match copy.take(&layer.upper)? {
        Some(gone) => {
            layer.gone = gone;
            merge::merge(&Undo::new(root, contents, journal), &layer).map_err(|err| err.message)
        }
        None => Ok(None),
    });
    let told = merged
        .await
        .map_err(|err| failed(err.to_string()))?
        .map_err(failed)?;
    Ok((ended, told))
}

impl Workspaces for InPlace {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        Box::pin(async move {
            if opening.isolation == Isolation::Isolated {
                return Err(WorkspaceError {
                    kind: WorkspaceErrorKind::Isolation,
                    message: "an isolated run needs a private copy of the tree, which is not available here; \
                              run in place (`--in-place`) instead"
                        .to_owned(),
                });
            }
            if let Some(sandbox) = self.sandbox.clone().filter(|sandbox| sandbox.opens_first()) {
                let opened = tokio::task::spawn_blocking(move || sandbox.open()).await;
                let opened =
                    opened.unwrap_or_else(|err| Err(SandboxError::Unavailable(err.to_string())));
                opened.map_err(|err| WorkspaceError {
                    kind: WorkspaceErrorKind::Isolation,
                    message: err.to_string(),
                })?;
            }
            let files = Arc::new(Tracked::new(Arc::clone(&self.root), self.undo.clone()));
            let processes = HostProcesses::new(Arc::clone(&self.root), self.env.clone());
            let processes = processes
                .guarded_by(Arc::clone(&self.guard))
                .held_by(self.sandbox.clone());
            let (sandbox, undo) = (self.sandbox.clone(), self.undo.clone());
            let processes = Arc::new(Commands::new(
                Arc::clone(&files),
                Arc::new(processes),
                sandbox.clone(),
                undo.clone(),
            ));
            Ok(Box::new(InPlaceRun {
                files,
                processes,
                sandbox,
                undo,
            }) as Box<dyn Transaction>)
        })
    }
}

struct InPlaceRun {
    files: Arc<Tracked>,
    processes: Arc<Commands>,
    sandbox: Option<Arc<Sandbox>>,
    undo: Option<Arc<Undo>>,
}

impl InPlaceRun {
    async fn look(files: Arc<Tracked>) -> Result<Vec<FileChange>, WorkspaceError> {
        let looked = tokio::task::spawn_blocking(move || files.changes()).await;
        looked.map_err(|err| WorkspaceError::other(format!("cannot look for changes: {err}")))
    }
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

    fn before(&self) -> Arc<dyn Before> {
        Arc::clone(&self.files) as Arc<dyn Before>
    }

    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        self.undo.clone().map(|undo| undo as Arc<dyn Snapshots>)
    }

    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>> {
        if self.files.is_untouched() {
            return Box::pin(std::future::ready(Ok(Changes::default())));
        }
        Box::pin(async move {
            let files = Self::look(Arc::clone(&self.files)).await?;
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

    fn land<'a>(&'a self, _: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>> {
        // It is all there already; what is left is to say what.
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
#[path = "in_place/undo_tests.rs"]
mod undo_tests;
