//! Commands of an in-place run. Each runs over a layer of its own, on top of the tree as it is then, and the layer lands
//! when the command has ended; that of a background job also before every later call. Without namespaces commands work on
//! a copy, whose changes land in the same way. Where the kernel has no layers at all, commands write to the tree itself
//! and undo does not cover them.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use windlass_core::id::CallId;
use windlass_core::workspace::{
    CallChanges, Command, FileErrorKind, Finished, JobId, JobOutput, ProcessEnd, ProcessError,
    Processes, Snapshots, Watch, WorkspaceError,
};
use windlass_core::{BoxFuture, CancellationToken};

use super::call_landings::CallLandings;
use super::job_view::JobView;
use super::job_views::JobViews;
use super::land_layer::land_layer;
use super::layer::{CommandLayer, Moment};
use super::stat_baseline::StatBaseline;
use windlass_host::exec::{HostProcesses, JobError, remark};
use windlass_host::sandbox::{CommandTree, Sandbox, SandboxError};

/// How long a command that does nothing may take, when it is seen whether there are layers.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two refreshes of the copy while background jobs run.
const REFRESH: Duration = Duration::from_millis(500);

/// How the failure of a command begins that has no layer.
const NOT_RUN: &str = "the command was not run: ";

/// Why undo does not cover a command.
pub(super) const NO_LAYER: &str = "without a kernel layer commands write to the workspace directly: undo covers what the \
                                   file tools write, and not what commands change";
const JOB: &str = "without a kernel layer a background job writes to the workspace directly, and undo does not cover it";

pub(super) struct Commands {
    landings: Arc<CallLandings>,
    processes: Arc<HostProcesses>,
    sandbox: Option<Arc<Sandbox>>,
    /// The tree from before the first command that wrote to it directly.
    baseline: Arc<StatBaseline>,
    /// There are no layers here, and the run has said so.
    no_layers: bool,
    /// Whether a command can have a layer here, once that was tried.
    layers: OnceCell<bool>,
    /// The copy that commands work on, once it is known whether there is one.
    copy: OnceCell<Option<Arc<dyn CommandTree>>>,
    /// The views of background jobs that have layers.
    views: Arc<JobViews>,
    /// There may be such views.
    started_jobs: AtomicBool,
    /// Background jobs were started and may have changed the copy.
    jobs_ran: AtomicBool,
    /// The call that started the last of them.
    job_call: Mutex<Option<CallId>>,
    /// When the copy was last made like the workspace.
    updated: Mutex<Option<Moment>>,
    /// Refreshes the copy while background jobs may look at it.
    refresher: Mutex<Option<AbortHandle>>,
}

impl Commands {
    pub(super) fn new(
        landings: Arc<CallLandings>,
        processes: Arc<HostProcesses>,
        sandbox: Option<Arc<Sandbox>>,
        baseline: Arc<StatBaseline>,
        no_layers: bool,
    ) -> Self {
        let layers = sandbox.as_ref().map(|sandbox| sandbox.command_layers());
        let views = JobViews::new(Arc::clone(&landings), layers.unwrap_or_default());
        Self {
            views: Arc::new(views),
            job_call: Mutex::default(),
            started_jobs: AtomicBool::new(false),
            landings,
            processes,
            sandbox,
            baseline,
            no_layers,
            layers: OnceCell::new(),
            copy: OnceCell::new(),
            jobs_ran: AtomicBool::new(false),
            updated: Mutex::default(),
            refresher: Mutex::default(),
        }
    }

    /// A layer for the next command; nothing where the kernel has none. One that cannot be made fails the call: without
    /// it the command would write to the tree directly.
    async fn layer(&self) -> Result<Option<CommandLayer>, ProcessError> {
        if self.no_layers || !*self.layers.get_or_try_init(|| self.try_layer()).await? {
            return Ok(None);
        }
        self.make_layer().await.map(Some)
    }

    async fn make_layer(&self) -> Result<CommandLayer, ProcessError> {
        let Some(sandbox) = &self.sandbox else {
            return Err(ProcessError("layers need a sandbox".to_owned()));
        };
        let (parent, landings) = (sandbox.command_layers(), Arc::clone(&self.landings));
        let made = tokio::task::spawn_blocking(move || make_layer(&landings, &parent)).await;
        made.unwrap_or_else(|err| Err(ProcessError(err.to_string())))
    }

    /// Starts a background job over a layer that lands while it runs; none where there are no layers.
    fn start_over_layer(&self, command: &Command) -> Result<Option<JobId>, ProcessError> {
        let Some(sandbox) = self.sandbox.as_ref().filter(|_| !self.no_layers) else {
            return Ok(None);
        };
        sandbox.open().map_err(|err| self.not_opened(&err))?;
        let layer = make_layer(&self.landings, &sandbox.command_layers())?;
        self.views.watch();
        let (job, tree) = match self.processes.start_over(command, &layer.name) {
            Ok(started) => started,
            Err(JobError::NoLayer) => return self.refuse_full_disk().map(|()| None),
            Err(JobError::Other(err)) => return Err(err),
        };
        self.started_jobs.store(true, Ordering::Relaxed);
        let workspace = Arc::clone(&self.landings.root);
        let call = self.landings.open_call();
        self.views
            .add(JobView::new(job.clone(), call, layer, tree, workspace));
        let (ended, views, id) = (
            self.processes.job_end(&job),
            Arc::clone(&self.views),
            job.clone(),
        );
        tokio::spawn(async move {
            let gone = ended.await;
            // The run may have landed it already.
            let _ = tokio::task::spawn_blocking(move || views.finish(&id, gone)).await;
        });
        Ok(Some(job))
    }

    /// Lands the layers of jobs that have ended, before anybody is told so.
    async fn finish_jobs(&self, jobs: Vec<JobId>) {
        for job in jobs {
            let (ended, views) = (self.processes.job_end(&job), Arc::clone(&self.views));
            let gone = ended.await;
            let _ = tokio::task::spawn_blocking(move || views.finish(&job, gone)).await;
        }
    }

    /// Whether the kernel has layers: runs a command that does nothing over one.
    async fn try_layer(&self) -> Result<bool, ProcessError> {
        let Some(sandbox) = self.sandbox.clone() else {
            return Ok(false);
        };
        // The directory for layers is made when the sandbox is opened.
        let opened = tokio::task::spawn_blocking(move || sandbox.open().map(drop)).await;
        let opened = opened.map_err(|err| ProcessError(err.to_string()))?;
        opened.map_err(|err| self.not_opened(&err))?;
        let layer = self.make_layer().await?;
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
        let has = ran
            .is_ok_and(|(finished, gone)| gone && finished.end == ProcessEnd::Exited { code: 0 });
        if !has {
            self.refuse_full_disk()?;
        }
        Ok(has)
    }

    /// A full disk is no reason to believe that the kernel has no layers.
    fn refuse_full_disk(&self) -> Result<(), ProcessError> {
        if self.landings.contents().is_disk_full() {
            let why = "no layer can be made for the command, because the disk of the data directory is full";
            self.landings.end_run(why);
            return Err(ProcessError(format!("{NOT_RUN}{why}")));
        }
        Ok(())
    }

    fn not_opened(&self, err: &SandboxError) -> ProcessError {
        if self.landings.contents().is_disk_full() {
            self.landings.end_run(&err.to_string());
        }
        ProcessError(err.to_string())
    }

    /// Runs a command on the copy, over a layer or in the tree, as the tier and the command need it.
    async fn run_one(&self, command: Command, watch: Watch<'_>) -> Result<Finished, ProcessError> {
        if let Some(copy) = self.copy().await? {
            return self.run_on_copy(copy, command, watch).await;
        }
        if command.looks {
            return self.processes.run(command, watch).await;
        }
        match self.layer().await? {
            Some(layer) => self.run_over(layer, command, watch).await,
            None => self.run_directly(command, watch).await,
        }
    }

    async fn run_over(
        &self,
        layer: CommandLayer,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let (mut finished, gone) = self
            .processes
            .run_over(command, watch, Some(&layer.name))
            .await?;
        if gone {
            self.finish(&mut finished, self.land(layer, None, None).await);
        } else if !layer.is_empty() {
            // Its processes may still write to the layer.
            let why = "nothing that the command changed is in the workspace: its processes could not be ended";
            self.finish(&mut finished, Err(kept(why, layer)));
        }
        Ok(finished)
    }

    async fn run_on_copy(
        &self,
        copy: Arc<dyn CommandTree>,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        self.land_jobs_of_copy(&copy).await;
        // Before the update: a save that the update misses is newer than the layer, and so a conflict.
        let layer = self.make_layer().await?;
        let own = Arc::clone(&copy);
        let updated = tokio::task::spawn_blocking(move || own.update())
            .await
            .map_err(|err| err.to_string());
        updated.and_then(|updated| updated).map_err(ProcessError)?;
        *self.updated.lock() = Some(layer.began);
        if command.looks {
            return self.processes.run(command, watch).await;
        }
        let mut finished = self.processes.run(command, watch).await?;
        self.finish(&mut finished, self.land(layer, Some(copy), None).await);
        Ok(finished)
    }

    /// Lands what background jobs changed in the copy since it was last updated.
    async fn land_jobs_of_copy(&self, copy: &Arc<dyn CommandTree>) {
        if !self.jobs_ran.load(Ordering::Relaxed) {
            return;
        }
        let mut layer = match self.make_layer().await {
            Ok(layer) => layer,
            Err(err) => return self.views.report(err.to_string()),
        };
        if let Some(updated) = *self.updated.lock() {
            // A job may have read any file since then.
            layer.began = updated;
        }
        let call = self.job_call.lock().clone();
        if let Err(why) = self.land(layer, Some(Arc::clone(copy)), call).await {
            self.views.report(why);
            // Brings the copy back to the workspace; the next command says why where that fails.
            let own = Arc::clone(copy);
            let _ = tokio::task::spawn_blocking(move || own.update()).await;
        }
    }

    /// Lets background jobs see what the user saves: the copy is refreshed until all of them are stopped.
    fn keep_fresh(&self, copy: Arc<dyn CommandTree>) {
        let mut task = self.refresher.lock();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if task.is_some() {
            return;
        }
        let refresh = async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                let own = Arc::clone(&copy);
                // A path that cannot be copied now is copied by the next update, which says why it cannot.
                let _ = tokio::task::spawn_blocking(move || own.refresh()).await;
            }
        };
        *task = Some(runtime.spawn(refresh).abort_handle());
    }

    fn stop_refreshing(&self) {
        let mut task = self.refresher.lock();
        if let Some(task) = task.take() {
            task.abort();
        }
    }

    /// Lands a layer, or what changed in the copy. Gives a remark, or says what did not land and where it is kept. Once
    /// begun it goes on to its end, also when the call is cancelled.
    async fn land(
        &self,
        mut layer: CommandLayer,
        copy: Option<Arc<dyn CommandTree>>,
        job_call: Option<CallId>,
    ) -> Result<Option<String>, String> {
        let landings = Arc::clone(&self.landings);
        let landed = tokio::task::spawn_blocking(move || {
            if let Some(copy) = copy {
                match copy.take(&layer.upper) {
                    Ok(Some(gone)) => layer.gone = gone,
                    Ok(None) => return Ok(None),
                    Err(why) => return Err(why),
                }
            }
            land_layer(&landings, &layer, job_call.as_ref()).map_err(|why| kept(&why, layer))
        });
        landed
            .await
            .unwrap_or_else(|err| Err(format!("the landing stopped: {err}")))
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

    fn update_for_job(&self, copy: &dyn CommandTree) -> Result<(), ProcessError> {
        let parent = self
            .sandbox
            .as_ref()
            .map(|sandbox| sandbox.command_layers());
        let layer = parent.map(|parent| make_layer(&self.landings, &parent));
        let layer = layer.transpose()?;
        copy.update().map_err(ProcessError)?;
        *self.updated.lock() = layer.map(|layer| layer.began);
        Ok(())
    }

    /// Notes in the result of a command how its landing went, and warns the user of changes that did not land.
    fn finish(&self, finished: &mut Finished, landed: Result<Option<String>, String>) {
        match landed {
            Ok(None) => {}
            Ok(Some(told)) => remark(finished, &told),
            Err(why) => {
                self.landings.warn_not_merged(&why);
                finished.not_landed = Some(why);
            }
        }
    }

    /// Runs a command that writes to the tree itself.
    async fn run_directly(
        &self,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let baseline = Arc::clone(&self.baseline);
        // Without it the command still runs; its changes are then found by git alone.
        let _ = tokio::task::spawn_blocking(move || baseline.take()).await;
        if !self.no_layers {
            // The run did not know it when it was opened.
            self.landings.lose("what commands change", NO_LAYER);
        }
        self.processes.run(command, watch).await
    }
}

/// Makes a layer; where the disk has no room for it, the run ends.
fn make_layer(landings: &CallLandings, parent: &Path) -> Result<CommandLayer, ProcessError> {
    CommandLayer::make(parent, landings.root_path()).map_err(|err| {
        if err.kind == FileErrorKind::Full {
            landings.end_run(&err.message);
        }
        let why = err.message;
        ProcessError(format!("{NOT_RUN}no layer can be made for it: {why}"))
    })
}

/// Keeps a layer that did not land, and says where.
fn kept(why: &str, layer: CommandLayer) -> String {
    format!("{why}. Its changes are kept in {}", layer.keep().display())
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.stop_refreshing();
    }
}

impl Processes for Commands {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move {
            let mut finished = self.run_one(command, watch).await?;
            for text in self.views.take_remarks() {
                remark(&mut finished, &text);
            }
            Ok(finished)
        })
    }

    fn start(&self, command: Command) -> Result<JobId, ProcessError> {
        let copy = self.sandbox.as_ref().map(|sandbox| {
            sandbox
                .working_copy()
                .map_err(|err| ProcessError(err.to_string()))
        });
        if let Some(copy) = copy.transpose()?.flatten() {
            if !self.jobs_ran.load(Ordering::Relaxed) {
                // The changes of an earlier job would be taken for a part of the workspace.
                self.update_for_job(copy.as_ref())?;
            }
            self.jobs_ran.store(true, Ordering::Relaxed);
            *self.job_call.lock() = self.landings.open_call();
            self.keep_fresh(copy);
            return self.processes.start(command);
        }
        if let Some(job) = self.start_over_layer(&command)? {
            return Ok(job);
        }
        self.baseline.take();
        self.landings.lose(".", JOB);
        self.processes.start(command)
    }

    fn poll(&self, job: &JobId, offset: u64, max: usize) -> Result<JobOutput, ProcessError> {
        let mut output = self.processes.poll(job, offset, max)?;
        for text in self.views.take_remarks() {
            output.text.push_str(&format!("[sandbox: {text}]\n"));
        }
        Ok(output)
    }

    fn has_jobs(&self) -> bool {
        self.processes.has_jobs()
    }

    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        Box::pin(async move {
            self.processes.stop(job).await?;
            self.finish_jobs(vec![job.clone()]).await;
            Ok(())
        })
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.processes.stop_all().await;
            let views = Arc::clone(&self.views);
            let left = tokio::task::spawn_blocking(move || views.jobs()).await;
            self.finish_jobs(left.unwrap_or_default()).await;
            self.stop_refreshing();
            if self.jobs_ran.load(Ordering::Relaxed)
                && let Ok(Some(copy)) = self.copy().await
            {
                self.land_jobs_of_copy(&copy).await;
            }
            self.jobs_ran.store(false, Ordering::Relaxed);
        })
    }
}

impl Snapshots for Commands {
    fn begin(&self, call: &CallId) {
        self.landings.begin(call);
    }

    fn end<'a>(&'a self, call: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        self.landings.end(call)
    }

    fn logged(&self, call: &CallId) {
        self.landings.logged(call);
    }

    fn land_jobs(&self) -> BoxFuture<'_, Vec<CallId>> {
        Box::pin(async move {
            if self.started_jobs.load(Ordering::Relaxed) {
                let views = Arc::clone(&self.views);
                let _ = tokio::task::spawn_blocking(move || views.land()).await;
            }
            if self.jobs_ran.load(Ordering::Relaxed)
                && let Ok(Some(copy)) = self.copy().await
            {
                self.land_jobs_of_copy(&copy).await;
            }
            self.landings.job_calls()
        })
    }
}
