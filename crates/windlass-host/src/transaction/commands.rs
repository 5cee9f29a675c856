//! Commands of an in-place run. With undo each runs over a layer of its own, which is merged when it has ended; where
//! the kernel has no layers, the tree is looked at before and after. What only looks, and what goes on beside the run,
//! runs without either.

use std::sync::Arc;
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
use crate::exec::{HostProcesses, remark};
use crate::sandbox::Sandbox;

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
}

impl Commands {
    pub(super) fn new(
        files: Arc<Tracked>,
        processes: Arc<HostProcesses>,
        sandbox: Option<Arc<Sandbox>>,
        undo: Option<Arc<Undo>>,
    ) -> Self {
        Self { files, processes, sandbox, undo, layers: OnceCell::new(), stored: Arc::default() }
    }

    /// A layer for the next command; nothing where there are none.
    async fn layer(&self) -> Option<CommandLayer> {
        let can = *self.layers.get_or_init(|| self.try_layer()).await;
        if can { self.make_layer().await } else { None }
    }

    async fn make_layer(&self) -> Option<CommandLayer> {
        let (parent, root) = (self.sandbox.as_ref()?.command_layers(), self.files.root().to_owned());
        tokio::task::spawn_blocking(move || CommandLayer::make(&parent, &root)).await.ok()?.ok()
    }

    /// Runs a command that does nothing over a layer.
    async fn try_layer(&self) -> bool {
        // The directory for layers is made when the sandbox is opened.
        let opened = self.sandbox.clone().map(|sandbox| tokio::task::spawn_blocking(move || sandbox.open().is_ok()));
        let Some(opened) = opened else { return false };
        if !opened.await.unwrap_or(false) {
            return false;
        }
        let Some(layer) = self.make_layer().await else { return false };
        let nothing =
            Command { line: ":".into(), workdir: String::new(), timeout: PATIENCE, keep: 0, input: None, looks: false };
        let watch = Watch { progress: &|_| {}, cancel: CancellationToken::new(), artifacts: None };
        let ran = self.processes.run_over(nothing, watch, Some(&layer.name)).await;
        ran.is_ok_and(|(finished, gone)| gone && finished.end == ProcessEnd::Exited { code: 0 })
    }

    async fn run_layered(
        &self,
        undo: Arc<Undo>,
        layer: CommandLayer,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let (mut finished, gone) = self.processes.run_over(command, watch, Some(&layer.name)).await?;
        if !gone {
            // It could not be started, or the kernel itself is stuck: what it wrote goes nowhere.
            return Ok(finished);
        }
        // Once begun it goes on to its end, also when nobody waits any more.
        let merged = tokio::task::spawn_blocking(move || merge(&undo, &layer)).await;
        match merged {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(told))) => remark(&mut finished, &told),
            Ok(Err(err)) => remark(&mut finished, &format!("nothing was changed in the workspace: {err}")),
            Err(err) => remark(&mut finished, &format!("what was changed could not be merged: {err}")),
        }
        Ok(finished)
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
    fn run<'a>(&'a self, command: Command, watch: Watch<'a>) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        if self.files.has_baseline() && (self.undo.is_none() || command.looks) {
            return self.processes.run(command, watch);
        }
        Box::pin(async move {
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
        self.processes.stop_all()
    }
}
