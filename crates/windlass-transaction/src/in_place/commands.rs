//! The commands of an in-place run. Each command runs in an overlay of its own on top of the current tree, and its
//! changes land when it has ended. The overlay of a background job also lands before every later call. In the tier
//! without namespaces, commands work on a copy, whose changes land in the same way. If the kernel has no overlays at
//! all, commands write to the tree directly, and undo does not cover them.

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
use super::command_overlay::{CommandOverlay, FileTime};
use super::job_view::JobView;
use super::job_views::JobViews;
use super::land_overlay::land_overlay;
use super::stat_baseline::StatBaseline;
use windlass_host::exec::{HostProcesses, JobError, append_note};
use windlass_host::sandbox::{CommandTree, Sandbox, SandboxError};

/// Timeout of the empty command that tests whether overlays work.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

const REFRESH: Duration = Duration::from_millis(500);

/// Start of the message about a command that has no overlay.
const NOT_RUN: &str = "the command was not run: ";

/// The reason why undo does not cover a command.
pub(super) const NO_OVERLAY: &str = "without a kernel overlay, commands write to the workspace directly: undo covers changes by \
                                   the file tools, but not changes by commands";
const JOB: &str = "without a kernel overlay, a background job writes to the workspace directly, and undo does not cover it";

pub(super) struct InPlaceCommands {
    landings: Arc<CallLandings>,
    processes: Arc<HostProcesses>,
    sandbox: Option<Arc<Sandbox>>,
    /// The tree before the first command that wrote to it directly.
    baseline: Arc<StatBaseline>,
    /// There are no overlays here, and the run has reported it.
    no_overlays: bool,
    /// Whether commands can have an overlay here, once it was tested.
    overlays: OnceCell<bool>,
    /// The copy that commands work on, once it is known whether there is one.
    copy: OnceCell<Option<Arc<dyn CommandTree>>>,
    /// The views of background jobs that have overlays.
    views: Arc<JobViews>,
    /// Whether `views` may contain a view.
    started_jobs: AtomicBool,
    /// Background jobs were started and may have changed the copy.
    jobs_ran: AtomicBool,
    /// The call that started the last background job.
    job_call: Mutex<Option<CallId>>,
    /// The time at which the copy was last updated from the workspace.
    updated: Mutex<Option<FileTime>>,
    /// Refreshes the copy while background jobs may read it.
    refresher: Mutex<Option<AbortHandle>>,
}

impl InPlaceCommands {
    pub(super) fn new(
        landings: Arc<CallLandings>,
        processes: Arc<HostProcesses>,
        sandbox: Option<Arc<Sandbox>>,
        baseline: Arc<StatBaseline>,
        no_overlays: bool,
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
            no_overlays,
            overlays: OnceCell::new(),
            copy: OnceCell::new(),
            jobs_ran: AtomicBool::new(false),
            updated: Mutex::default(),
            refresher: Mutex::default(),
        }
    }

    /// The overlay for the next command; `None` if the kernel has none. If it cannot be created, the call fails:
    /// without it the command would write to the tree directly.
    async fn overlay(&self) -> Result<Option<CommandOverlay>, ProcessError> {
        if self.no_overlays || !*self.overlays.get_or_try_init(|| self.try_overlay()).await? {
            return Ok(None);
        }
        self.make_overlay().await.map(Some)
    }

    async fn make_overlay(&self) -> Result<CommandOverlay, ProcessError> {
        let Some(sandbox) = &self.sandbox else {
            return Err(ProcessError("overlays need a sandbox".to_owned()));
        };
        let (parent, landings) = (sandbox.command_layers(), Arc::clone(&self.landings));
        let made = tokio::task::spawn_blocking(move || make_overlay(&landings, &parent)).await;
        made.unwrap_or_else(|err| Err(ProcessError(err.to_string())))
    }

    /// Starts a background job in an overlay that lands while it runs; `None` if there are no overlays.
    fn start_in_overlay(&self, command: &Command) -> Result<Option<JobId>, ProcessError> {
        let Some(sandbox) = self.sandbox.as_ref().filter(|_| !self.no_overlays) else {
            return Ok(None);
        };
        sandbox.open().map_err(|err| self.not_opened(&err))?;
        let overlay = make_overlay(&self.landings, &sandbox.command_layers())?;
        self.views.watch();
        let (job, tree) = match self.processes.start_in_layer(command, &overlay.name) {
            Ok(started) => started,
            Err(JobError::NoLayer) => return self.refuse_full_disk().map(|()| None),
            Err(JobError::Other(err)) => return Err(err),
        };
        self.started_jobs.store(true, Ordering::Relaxed);
        let workspace = Arc::clone(&self.landings.root);
        let call = self.landings.open_call();
        self.views
            .add(JobView::new(job.clone(), call, overlay, tree, workspace));
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

    /// Lands the overlays of jobs that have ended, before their end is reported.
    async fn finish_jobs(&self, jobs: Vec<JobId>) {
        for job in jobs {
            let (ended, views) = (self.processes.job_end(&job), Arc::clone(&self.views));
            let gone = ended.await;
            let _ = tokio::task::spawn_blocking(move || views.finish(&job, gone)).await;
        }
    }

    /// Tests whether the kernel has overlays, by running an empty command in one.
    async fn try_overlay(&self) -> Result<bool, ProcessError> {
        let Some(sandbox) = self.sandbox.clone() else {
            return Ok(false);
        };
        // The directory for overlays is created when the sandbox is opened.
        let opened = tokio::task::spawn_blocking(move || sandbox.open().map(drop)).await;
        let opened = opened.map_err(|err| ProcessError(err.to_string()))?;
        opened.map_err(|err| self.not_opened(&err))?;
        let overlay = self.make_overlay().await?;
        let nothing = Command {
            line: ":".into(),
            workdir: String::new(),
            timeout: TEST_TIMEOUT,
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
            .run_in_layer(nothing, watch, Some(&overlay.name))
            .await;
        let has = ran
            .is_ok_and(|(finished, gone)| gone && finished.end == ProcessEnd::Exited { code: 0 });
        if !has {
            self.refuse_full_disk()?;
        }
        Ok(has)
    }

    /// A full disk does not prove that the kernel has no overlays.
    fn refuse_full_disk(&self) -> Result<(), ProcessError> {
        if self.landings.contents().is_disk_full() {
            let why = "cannot create an overlay for the command, because the disk of the data directory is full";
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

    /// Runs a command on the copy, in an overlay or directly in the tree, as the tier and the command require.
    async fn run_one(&self, command: Command, watch: Watch<'_>) -> Result<Finished, ProcessError> {
        if let Some(copy) = self.copy().await? {
            return self.run_on_copy(copy, command, watch).await;
        }
        if command.looks {
            return self.processes.run(command, watch).await;
        }
        match self.overlay().await? {
            Some(overlay) => self.run_in_layer(overlay, command, watch).await,
            None => self.run_directly(command, watch).await,
        }
    }

    async fn run_in_layer(
        &self,
        overlay: CommandOverlay,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let (mut finished, gone) = self
            .processes
            .run_in_layer(command, watch, Some(&overlay.name))
            .await?;
        if gone {
            self.finish(&mut finished, self.land(overlay, None, None).await);
        } else if !overlay.is_empty() {
            // Its processes may still write to the overlay.
            let why = "none of the command's changes landed: its processes could not be killed";
            self.finish(&mut finished, Err(kept(why, overlay)));
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
        // Create the overlay before the update: a save that the update misses is then newer than the overlay, and a
        // conflict.
        let overlay = self.make_overlay().await?;
        let own = Arc::clone(&copy);
        let updated = tokio::task::spawn_blocking(move || own.update())
            .await
            .map_err(|err| err.to_string());
        updated.and_then(|updated| updated).map_err(ProcessError)?;
        *self.updated.lock() = Some(overlay.began);
        if command.looks {
            return self.processes.run(command, watch).await;
        }
        let mut finished = self.processes.run(command, watch).await?;
        self.finish(&mut finished, self.land(overlay, Some(copy), None).await);
        Ok(finished)
    }

    /// Lands the changes that background jobs made in the copy since its last update.
    async fn land_jobs_of_copy(&self, copy: &Arc<dyn CommandTree>) {
        if !self.jobs_ran.load(Ordering::Relaxed) {
            return;
        }
        let mut overlay = match self.make_overlay().await {
            Ok(overlay) => overlay,
            Err(err) => return self.views.report(err.to_string()),
        };
        if let Some(updated) = *self.updated.lock() {
            // A job may have read any file since then.
            overlay.began = updated;
        }
        let call = self.job_call.lock().clone();
        if let Err(why) = self.land(overlay, Some(Arc::clone(copy)), call).await {
            self.views.report(why);
            // Resets the copy to the workspace. If this fails, the next command reports why.
            let own = Arc::clone(copy);
            let _ = tokio::task::spawn_blocking(move || own.update()).await;
        }
    }

    /// Lets background jobs see the files that the user saves: refreshes the copy until all jobs are stopped.
    fn start_refreshing(&self, copy: Arc<dyn CommandTree>) {
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
                // A path that cannot be copied now is copied by the next update, which reports errors.
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

    /// Lands an overlay, or the changes of the copy. Returns a note, or an error that names the changes that did not
    /// land and where they are kept. The landing runs to its end, also if the call is cancelled.
    async fn land(
        &self,
        mut overlay: CommandOverlay,
        copy: Option<Arc<dyn CommandTree>>,
        job_call: Option<CallId>,
    ) -> Result<Option<String>, String> {
        let landings = Arc::clone(&self.landings);
        let landed = tokio::task::spawn_blocking(move || {
            if let Some(copy) = copy {
                match copy.take(&overlay.upper) {
                    Ok(Some(gone)) => overlay.gone = gone,
                    Ok(None) => return Ok(None),
                    Err(why) => return Err(why),
                }
            }
            land_overlay(&landings, &overlay, job_call.as_ref()).map_err(|why| kept(&why, overlay))
        });
        landed
            .await
            .unwrap_or_else(|err| Err(format!("the landing stopped: {err}")))
    }

    /// The copy that commands work on; `None` if they work on the workspace itself.
    async fn copy(&self) -> Result<Option<Arc<dyn CommandTree>>, ProcessError> {
        let Some(sandbox) = self.sandbox.clone() else {
            return Ok(None);
        };
        let runtime = tokio::runtime::Handle::current();
        let open = || async {
            let opened = tokio::task::spawn_blocking(move || {
                // The tokio runtime serves the proxy of the sandbox.
                let _inside = runtime.enter();
                sandbox.working_copy()
            });
            let opened = opened.await.map_err(|err| ProcessError(err.to_string()))?;
            opened.map_err(|err| ProcessError(err.to_string()))
        };
        Ok(self.copy.get_or_try_init(open).await?.clone())
    }

    fn update_for_job(&self, copy: &dyn CommandTree) -> Result<(), ProcessError> {
        let parent = self
            .sandbox
            .as_ref()
            .map(|sandbox| sandbox.command_layers());
        let overlay = parent.map(|parent| make_overlay(&self.landings, &parent));
        let overlay = overlay.transpose()?;
        copy.update().map_err(ProcessError)?;
        *self.updated.lock() = overlay.map(|overlay| overlay.began);
        Ok(())
    }

    /// Adds the result of the landing to the result of the command, and warns the user of changes that did not land.
    fn finish(&self, finished: &mut Finished, landed: Result<Option<String>, String>) {
        match landed {
            Ok(None) => {}
            Ok(Some(text)) => append_note(finished, &text),
            Err(why) => {
                self.landings.warn_not_merged(&why);
                finished.not_landed = Some(why);
            }
        }
    }

    /// Runs a command that writes to the tree directly.
    async fn run_directly(
        &self,
        command: Command,
        watch: Watch<'_>,
    ) -> Result<Finished, ProcessError> {
        let baseline = Arc::clone(&self.baseline);
        // If it cannot be taken, the command still runs; then only git can find its changes.
        let _ = tokio::task::spawn_blocking(move || baseline.take()).await;
        if !self.no_overlays {
            // This was not known when the run was opened.
            self.landings.lose("changes by commands", NO_OVERLAY);
        }
        self.processes.run(command, watch).await
    }
}

/// Creates an overlay. If the disk is full, the run ends.
fn make_overlay(landings: &CallLandings, parent: &Path) -> Result<CommandOverlay, ProcessError> {
    CommandOverlay::make(parent, landings.root_path()).map_err(|err| {
        if err.kind == FileErrorKind::Full {
            landings.end_run(&err.message);
        }
        let why = err.message;
        ProcessError(format!("{NOT_RUN}cannot create an overlay for it: {why}"))
    })
}

/// Keeps an overlay that did not land, and adds its place to the message.
fn kept(why: &str, overlay: CommandOverlay) -> String {
    format!(
        "{why}. Its changes are kept in {}",
        overlay.keep().display()
    )
}

impl Drop for InPlaceCommands {
    fn drop(&mut self) {
        self.stop_refreshing();
    }
}

impl Processes for InPlaceCommands {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move {
            let mut finished = self.run_one(command, watch).await?;
            for text in self.views.take_remarks() {
                append_note(&mut finished, &text);
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
                // Otherwise the changes of an earlier job would count as part of the workspace.
                self.update_for_job(copy.as_ref())?;
            }
            self.jobs_ran.store(true, Ordering::Relaxed);
            *self.job_call.lock() = self.landings.open_call();
            self.start_refreshing(copy);
            return self.processes.start(command);
        }
        if let Some(job) = self.start_in_overlay(&command)? {
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

impl Snapshots for InPlaceCommands {
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
