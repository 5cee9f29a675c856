//! Commands of an in-place run. With undo each runs over a layer of its own, which is merged when it has ended; where
//! the kernel has no layers, the tree is looked at before and after. What only looks, and what goes on beside the run,
//! runs without either. Without namespaces all of them work on a copy, whose changes are merged in the same way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;
use windlass_core::workspace::{
    Command, Files, Finished, JobId, JobOutput, ProcessEnd, ProcessError, Processes, Watch,
};
use windlass_core::{BoxFuture, CancellationToken};

use super::layer::CommandLayer;
use super::merge::merge;
use super::stored::Stored;
use super::tracked::Tracked;
use super::undo::Undo;
use windlass_host::exec::{HostProcesses, remark};
use windlass_host::sandbox::{CommandTree, Sandbox};

/// How long a command that does nothing may take, when it is seen whether there are layers.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Commands {
    files: Arc<Tracked>,
    processes: Arc<HostProcesses>,
    sandbox: Option<Arc<Sandbox>>,
    undo: Option<Arc<Undo>>,
    /// Whether a command can have a layer here, once that was tried.
    layers: OnceCell<bool>,
    stored: Arc<Stored>,
    /// The copy that commands work on, once it is known whether there is one.
    copy: OnceCell<Option<Arc<dyn CommandTree>>>,
    /// A background job may have changed the copy since it was last merged.
    jobs_ran: AtomicBool,
}

impl Commands {
    pub(super) fn new(
        files: Arc<Tracked>,
        processes: Arc<HostProcesses>,
        sandbox: Option<Arc<Sandbox>>,
        undo: Option<Arc<Undo>>,
    ) -> Self {
        let (layers, stored, copy) = (OnceCell::new(), Arc::default(), OnceCell::new());
        Self {
            files,
            processes,
            sandbox,
            undo,
            layers,
            stored,
            copy,
            jobs_ran: AtomicBool::new(false),
        }
    }

    /// A layer for the next command; nothing where there are none.
    async fn layer(&self) -> Option<CommandLayer> {
        let can = *self.layers.get_or_init(|| self.try_layer()).await;
        if can { self.make_layer().await } else { None }
    }

    async fn make_layer(&self) -> Option<CommandLayer> {
        let (parent, root) = (
            self.sandbox.as_ref()?.command_layers(),
            self.files.root().to_owned(),
        );
        tokio::task::spawn_blocking(move || CommandLayer::make(&parent, &root))
            .await
            .ok()?
            .ok()
    }

    /// Runs a command that does nothing over a layer.
    async fn try_layer(&self) -> bool {
        // The directory for layers is made when the sandbox is opened.
        let opened = self
            .sandbox
            .clone()
            .map(|sandbox| tokio::task::spawn_blocking(move || sandbox.open().is_ok()));
        let Some(opened) = opened else { return false };
        if !opened.await.unwrap_or(false) {
            return false;
        }
        let Some(layer) = self.make_layer().await else {
            return false;
        };
        let nothing = Command {
            line: ":".into(),
            workdir: String::new(),
            timeout: PATIENCE,
            keep: 0,
            input: None,
            looks: false,
        };
        let watch = Watch {
            progress: &|_| {},
            cancel: CancellationToken::new(),
            artifacts: None,
        };
        let ran = self
            .processes
            .run_over(nothing, watch, Some(&layer.name))
            .await;
        ran.is_ok_and(|(finished, gone)| gone && finished.end == ProcessEnd::Exited { code: 0 })
    }

    async fn run_layered(
        &self,
        undo: Arc<Undo>,
        layer: CommandLayer,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let (mut finished, gone) = self
            .processes
            .run_over(command, watch, Some(&layer.name))
            .await?;
        if !gone {
            // It could not be started, or the kernel itself is stuck: what it wrote goes nowhere.
            return Ok(finished);
        }
        // Once begun it goes on to its end, also when nobody waits any more.
        let merged = tokio::task::spawn_blocking(move || merge(&undo, &layer)).await;
        match merged {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(told))) => remark(&mut finished, &told),
            Ok(Err(err)) => remark(
                &mut finished,
                &format!("nothing was changed in the workspace: {err}"),
            ),
            Err(err) => remark(
                &mut finished,
                &format!("what was changed could not be merged: {err}"),
            ),
        }
        Ok(finished)
    }

    /// The copy that commands work on; none where they work on the workspace itself.
    async fn copy(&self) -> Result<Option<Arc<dyn CommandTree>>, ProcessError> {
        let Some(sandbox) = self.sandbox.clone() else {
            return Ok(None);
        };
        let runtime = tokio::runtime::Handle::current();
        let look = || async {
            let opened = tokio::task::spawn_blocking(move || {
                // The way out of a sandbox is served by the runtime.
                let _inside = runtime.enter();
                sandbox.working_copy()
            });
            let opened = opened.await.map_err(|err| ProcessError(err.to_string()))?;
            opened.map_err(|err| ProcessError(err.to_string()))
        };
        Ok(self.copy.get_or_try_init(look).await?.clone())
    }

    async fn run_on_copy(
        &self,
        copy: Arc<dyn CommandTree>,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let (reads, own) = (command.looks, Arc::clone(&copy));
        let updated = tokio::task::spawn_blocking(move || own.update())
            .await
            .map_err(|err| err.to_string());
        updated.and_then(|updated| updated).map_err(ProcessError)?;
        if reads {
            return self.processes.run(command, watch).await;
        }
        let layer = self
            .make_layer()
            .await
            .ok_or_else(|| ProcessError("no folder for changes can be made".to_owned()))?;
        let mut finished = self.processes.run(command, watch).await?;
        match self.merge_copy(copy, layer).await {
            Ok(None) => {}
            Ok(Some(told)) => remark(&mut finished, &told),
            Err(why) => remark(
                &mut finished,
                &format!("nothing was changed in the workspace: {why}"),
            ),
        }
        Ok(finished)
    }

    /// Brings what changed in the copy into the workspace. Once begun it goes on to its end, also when nobody waits any
    /// more.
    async fn merge_copy(
        &self,
        copy: Arc<dyn CommandTree>,
        mut layer: CommandLayer,
    ) -> Result<Option<String>, String> {
        let Some(undo) = self.undo.clone() else {
            return Err("there is no folder for what would be replaced; set XDG_DATA_HOME to a folder outside the \
                        workspace"
                .to_owned());
        };
        let merged = tokio::task::spawn_blocking(move || {
            let Some(gone) = copy.take(&layer.upper)? else {
                return Ok(None);
            };
            layer.gone = gone;
            merge(&undo, &layer).map_err(|err| err.to_string())
        });
        merged.await.map_err(|err| err.to_string())?
    }

    async fn run_looked_after(
        &self,
        undo: Arc<Undo>,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let (stored, store) = (Arc::clone(&self.stored), Arc::clone(&undo));
        // Without the look the command still runs; what it changes is then named as what cannot be taken back.
        let _ = tokio::task::spawn_blocking(move || stored.before(&store)).await;
        let finished = self.processes.run(command, watch).await;
        let stored = Arc::clone(&self.stored);
        let _ = tokio::task::spawn_blocking(move || stored.after(&undo)).await;
        finished
    }
}

impl Processes for Commands {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move {
            if let Some(copy) = self.copy().await? {
                let files = Arc::clone(&self.files);
                let _ = tokio::task::spawn_blocking(move || files.take_baseline()).await;
                return self.run_on_copy(copy, command, watch).await;
            }
            if self.files.has_baseline() && (self.undo.is_none() || command.looks) {
                return self.processes.run(command, watch).await;
            }
            let files = Arc::clone(&self.files);
            // Without the look the command still runs; its changes are then found by nobody but git.
            let _ = tokio::task::spawn_blocking(move || files.take_baseline()).await;
            match self.undo.clone().filter(|_| !command.looks) {
                None => self.processes.run(command, watch).await,
                Some(undo) => match self.layer().await {
                    Some(layer) => self.run_layered(undo, layer, command, watch).await,
                    None => self.run_looked_after(undo, command, watch).await,
                },
            }
        })
    }

    fn start(&self, command: Command) -> Result<JobId, ProcessError> {
        self.files.take_baseline();
        let copy = self.sandbox.as_ref().map(|sandbox| {
            sandbox
                .working_copy()
                .map_err(|err| ProcessError(err.to_string()))
        });
        if let Some(copy) = copy.transpose()?.flatten() {
            copy.update().map_err(ProcessError)?;
            self.jobs_ran.store(true, Ordering::Relaxed);
            return self.processes.start(command);
        }
        if let Some(undo) = &self.undo {
            undo.lose(".", "a background job works on the workspace itself, and what it changes is not taken back");
        }
        self.processes.start(command)
    }

    fn poll(&self, job: &JobId, offset: u64, max: usize) -> Result<JobOutput, ProcessError> {
        self.processes.poll(job, offset, max)
    }

    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        self.processes.stop(job)
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.processes.stop_all().await;
            if !self.jobs_ran.swap(false, Ordering::Relaxed) {
                return;
            }
            if let (Ok(Some(copy)), Some(layer)) = (self.copy().await, self.make_layer().await)
                && let Err(why) = self.merge_copy(copy, layer).await
                && let Some(undo) = &self.undo
            {
                undo.lose(
                    ".",
                    format!("what a background job changed was not merged: {why}"),
                );
            }
        })
    }
}
