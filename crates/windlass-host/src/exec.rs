//! Running commands of a run: each in a process group of its own, without a terminal, with an
//! empty standard input and a scrubbed environment; in a kernel sandbox where there is one. Nothing that was started
//! outlives its command there. Without a sandbox it is as far as process groups reach, and what leaves its group on
//! purpose ends with the run.

mod capture;
mod enclosed;
mod env;
mod group;
mod guard;
mod jobs;
mod leftover;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use windlass_core::enclosure::Enclosure;
use windlass_core::workspace::{
    Command, Files, Finished, JobId, JobOutput, ProcessEnd, ProcessError, Processes, Watch,
};
use windlass_core::{BoxFuture, CancellationToken};

pub use self::env::child_env;
pub(crate) use self::env::neutral_env;
pub use self::guard::Guard;

use self::capture::Capture;
use self::enclosed::{Enclosed, Tenants};
use self::group::{Apart, Launch, Running, start_inside};
use self::jobs::Jobs;
use crate::sandbox::{Inside, Remarks, Sandbox, TreeBorrower};
use crate::workspace::Root;
use windlass_sandbox::Within;

/// How long a command may take to end itself after it was asked to.
const TERM_GRACE: Duration = Duration::from_millis(300);
/// How long output is still read after the command ended, when something it started holds the pipe.
const DRAIN_GRACE: Duration = Duration::from_millis(100);
/// How long a killed command may take to be gone; longer only when the kernel itself is stuck.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// The largest piece read at once: what a pipe holds.
const PIECE: usize = 64 * 1024;
/// The variable that tells the processes of a run from others.
pub(crate) const MARK: &str = "WINDLASS_RUN";
/// Without `PATH` in the environment, programs are looked up here.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a background job was not started over a layer.
#[derive(Debug)]
pub enum JobError {
    /// No layer can be mounted here.
    NoLayer,
    /// It cannot be started at all.
    Other(ProcessError),
}

/// Starts the commands of one run in one workspace.
pub struct HostProcesses {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    shell: PathBuf,
    apart: Apart,
    guard: Arc<Guard>,
    sandbox: Option<Arc<Sandbox>>,
    jobs: Jobs,
    /// Agents that are not ours.
    tenants: Arc<Tenants>,
    /// In the environment of every command, so that daemons can be told from others.
    mark: String,
    /// Something was started since daemons were last looked for.
    started: AtomicBool,
}

impl HostProcesses {
    /// Commands in `root` with exactly this environment; see [`child_env`] for making it.
    #[must_use]
    pub fn new(root: Arc<Root>, mut env: Vec<(OsString, OsString)>) -> Self {
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone());
        let shell = find_shell(&path.unwrap_or_else(|| DEFAULT_PATH.into()), root.root());
        env.push(("PWD".into(), root.root().into()));
        let mark = format!("{:016x}", crate::clock::random_u64());
        env.push((MARK.into(), (&mark).into()));
        Self {
            root,
            env,
            shell,
            apart: Apart::needed(),
            guard: Arc::default(),
            sandbox: None,
            jobs: Jobs::default(),
            tenants: Arc::default(),
            mark,
            started: AtomicBool::new(false),
        }
    }

    /// The same in a sandbox, whose environment counts then, and with a watcher that other runs have too.
    #[must_use]
    pub fn held_by(mut self, sandbox: Option<Arc<Sandbox>>, guard: Arc<Guard>) -> Self {
        (self.sandbox, self.guard) = (sandbox, guard);
        self
    }

    /// Ends what left its group on purpose.
    fn end_leftovers(&self) {
        if self.started.swap(false, Ordering::Relaxed) {
            leftover::end_marked(&self.mark);
        }
    }

    /// The sandbox, opened. Opening one takes a few milliseconds, which nobody who shares this thread should wait.
    async fn inside(&self) -> Result<Option<Arc<Inside>>, ProcessError> {
        let Some(sandbox) = &self.sandbox else {
            return Ok(None);
        };
        let sandbox = Arc::clone(sandbox);
        let opened = tokio::task::spawn_blocking(move || sandbox.inside()).await;
        let opened = opened
            .map_err(|err| ProcessError(format!("the sandbox could not be opened: {err}")))?;
        opened
            .map(Some)
            .map_err(|err| ProcessError(err.to_string()))
    }

    fn launch_in(
        &self,
        inside: &Inside,
        command: &Command,
        layer: Option<Within<'_>>,
    ) -> Result<Running, ProcessError> {
        let dir = workdir_in(&self.root, &command.workdir)?;
        let argv = [
            self.shell.clone().into_os_string(),
            "-c".into(),
            command.line.clone().into(),
        ];
        start_inside(inside, &argv, &dir, command, layer)
    }

    /// Runs a command to its end, over a layer of its own where one is named; then what it wrote in the workspace is
    /// in the layer and nowhere else. Also says whether everything of it is gone.
    pub async fn run_over(
        &self,
        command: Command,
        watch: Watch<'_>,
        layer: Option<&str>,
    ) -> Result<(Finished, bool), ProcessError> {
        let inside = self.inside().await?;
        let began = Instant::now();
        let mut running = match &inside {
            Some(inside) => self.launch_in(inside, &command, layer.map(Within::Layer))?,
            None => self.launch(&command)?,
        };
        let mut capture = Capture::new(command.keep, watch.artifacts, watch.progress);
        let deadline = began.checked_add(command.timeout);
        let end = drive(&mut running, deadline, &watch.cancel, &mut capture).await;
        let took = began.elapsed();
        let captured = capture.finish();
        let failed = end != ProcessEnd::Exited { code: 0 };
        let remarks = match (&self.sandbox, &inside) {
            (Some(sandbox), Some(inside)) => {
                sandbox.remarks(inside, running.ended, &captured.text, failed)
            }
            _ => Remarks::default(),
        };
        let (gone, refused) = (running.ended.is_some(), remarks.refused);
        let (output, total_bytes, artifact) = (captured.text, captured.total, captured.artifact);
        let mut finished = Finished {
            end,
            output,
            total_bytes,
            artifact,
            took,
            refused,
            not_landed: None,
        };
        remarks
            .text
            .iter()
            .for_each(|text| remark(&mut finished, text));
        Ok((finished, gone))
    }

    /// Starts a background job over a layer of its own, and gives the workspace as the job sees it.
    pub fn start_over(&self, command: &Command, layer: &str) -> Result<(JobId, OwnedFd), JobError> {
        let sandbox = self.sandbox.as_ref().ok_or(JobError::NoLayer)?;
        let failed = |why: String| JobError::Other(ProcessError(why));
        let inside = sandbox.inside().map_err(|err| failed(err.to_string()))?;
        let borrower = TreeBorrower::new().map_err(|err| failed(err.to_string()))?;
        let within = Within::LentLayer(layer, &borrower);
        let job = self
            .jobs
            .start(|| self.launch_in(&inside, command, Some(within)))
            .map_err(JobError::Other)?;
        match borrower.receive() {
            Ok(tree) => Ok((job, tree)),
            Err(_) => {
                self.jobs.forget(&job);
                Err(JobError::NoLayer)
            }
        }
    }

    /// Resolves when a job has ended; says whether everything that it started is gone.
    pub fn job_end(&self, job: &JobId) -> impl Future<Output = bool> + Send + 'static {
        self.jobs.end_of(job)
    }

    fn launch(&self, command: &Command) -> Result<Running, ProcessError> {
        let dir = open_workdir(&self.root, &command.workdir)?;
        self.started.store(true, Ordering::Relaxed);
        let (env, apart, guard) = (&self.env, self.apart, &self.guard);
        let input = command.input.clone();
        Launch {
            program: &self.shell,
            args: &["-c", &command.line],
            env,
            dir,
            input,
            apart,
            guard,
        }
        .start()
    }
}

fn open_workdir(root: &Root, given: &str) -> Result<OwnedFd, ProcessError> {
    if root.is_gone() {
        let path = root.root().display();
        return Err(ProcessError(format!(
            "the workspace {path} was deleted; restore it or open another one"
        )));
    }
    let given = if given.is_empty() { "." } else { given };
    root.open_directory(given)
        .map_err(|err| ProcessError(format!("cannot start a command there: {err}")))
}

/// Where a program starts, as a path in the view of a sandbox.
fn workdir_in(root: &Root, given: &str) -> Result<PathBuf, ProcessError> {
    // The handle is not needed, but what it says is: the directory is there and inside.
    drop(open_workdir(root, given)?);
    let dir = root.resolve(if given.is_empty() { "." } else { given });
    let dir = dir.map_err(|err| ProcessError(format!("cannot start a command there: {err}")))?;
    Ok(root.root().join(dir.path))
}

impl Processes for HostProcesses {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move {
            self.run_over(command, watch, None)
                .await
                .map(|(finished, _)| finished)
        })
    }

    fn start(&self, command: Command) -> Result<JobId, ProcessError> {
        self.jobs.start(|| match &self.sandbox {
            Some(sandbox) => {
                let inside = sandbox
                    .inside()
                    .map_err(|err| ProcessError(err.to_string()))?;
                self.launch_in(&inside, &command, None)
            }
            None => self.launch(&command),
        })
    }

    fn has_jobs(&self) -> bool {
        self.jobs.are_running()
    }

    fn poll(&self, job: &JobId, offset: u64, max: usize) -> Result<JobOutput, ProcessError> {
        self.jobs.poll(job, offset, max)
    }

    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        Box::pin(self.jobs.stop(job))
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.jobs.stop_all().await;
            self.tenants.end_all().await;
            self.end_leftovers();
        })
    }

    fn pause_agents(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.jobs.stop_all().await;
            self.tenants.pause_all().await;
            self.end_leftovers();
        })
    }

    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        Box::pin(async move {
            let (Some(sandbox), Some(inside)) = (&self.sandbox, self.inside().await?) else {
                return Err(ProcessError::no_enclosure());
            };
            let lodging = sandbox
                .lodge(&inside)
                .await
                .ok_or_else(ProcessError::no_enclosure)?;
            let lodging = lodging.map_err(|err| ProcessError(err.to_string()))?;
            let enclosed = Enclosed::new(lodging, &inside, &self.root, &self.tenants)?;
            Ok(Arc::new(enclosed) as Arc<dyn Enclosure>)
        })
    }
}

impl Drop for HostProcesses {
    fn drop(&mut self) {
        self.end_leftovers();
    }
}

/// Adds a line of ours to what a command said.
pub fn remark(finished: &mut Finished, text: &str) {
    let line = if finished.output.is_empty() || finished.output.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    finished
        .output
        .push_str(&format!("{line}[sandbox: {text}]"));
}

/// Who takes the output of a command.
trait Sink {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]);
    /// When [`Sink::tell`] wants to be called, if ever.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Tells somebody what is new.
    fn tell(&mut self) {}
}

/// What a command is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its end.
    Running,
    /// Its end, after it was asked to end.
    Terminating,
    /// Its end, after it was killed.
    Killed,
    /// The rest of its output.
    Draining,
}

/// Follows a command to its end, and ends everything in its group then.
async fn drive(
    running: &mut Running,
    deadline: Option<Instant>,
    cancel: &CancellationToken,
    sink: &mut impl Sink,
) -> ProcessEnd {
    let mut buffer = Vec::with_capacity(PIECE);
    let mut phase = Phase::Running;
    let mut until = deadline;
    let mut ours: Option<ProcessEnd> = None;
    let mut status: Option<ExitStatus> = None;
    let mut open = true;
    let cancelled = cancel.cancelled();
    tokio::pin!(cancelled);
    // Set for every wait below; far away stands for never.
    let far = Instant::now() + Duration::from_secs(86_400 * 365);
    let timer = tokio::time::sleep_until(far);
    tokio::pin!(timer);
    while status.is_none() || (open && phase == Phase::Draining) {
        let wake = [until, sink.due()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(far);
        if timer.deadline() != wake {
            timer.as_mut().reset(wake);
        }
        tokio::select! {
            biased;
            () = &mut cancelled, if phase == Phase::Running => {
                ours = Some(ProcessEnd::Cancelled);
                running.group.terminate();
                (phase, until) = (Phase::Terminating, Some(Instant::now() + TERM_GRACE));
            }
            () = &mut timer => {
                if sink.due().is_some_and(|due| due <= wake) {
                    sink.tell();
                }
                if until.is_none_or(|until| until > wake) {
                    continue;
                }
                match phase {
                    Phase::Running => {
                        ours = Some(ProcessEnd::TimedOut);
                        running.group.terminate();
                        (phase, until) = (Phase::Terminating, Some(Instant::now() + TERM_GRACE));
                    }
                    Phase::Terminating => {
                        running.group.kill();
                        (phase, until) = (Phase::Killed, Some(Instant::now() + KILL_GRACE));
                    }
                    Phase::Killed | Phase::Draining => break,
                }
            }
            read = running.output.read_buf(&mut buffer), if open => {
                open = read.is_ok_and(|n| n > 0);
                sink.push(&buffer);
                buffer.clear();
            }
            ended = running.leader.wait(), if status.is_none() => {
                let (code, ended) = ended.unwrap_or_else(|why| {
                    // The way a shell says it.
                    sink.push(why.as_bytes());
                    (ExitStatus::from_raw(127 << 8), None)
                });
                (status, running.ended) = (Some(code), ended);
                (phase, until) = (Phase::Draining, Some(Instant::now() + DRAIN_GRACE));
            }
        }
    }
    // What it left behind in its group ends with it.
    running.group.finish();
    ours.unwrap_or_else(|| status.map_or(ProcessEnd::Signalled { signal: 9 }, end_of))
}

fn end_of(status: ExitStatus) -> ProcessEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Exited { code },
        (None, signal) => ProcessEnd::Signalled {
            signal: signal.unwrap_or(0),
        },
    }
}

/// `bash` by the child's own `PATH`, or `sh`, which every system has at its place. Never one of the workspace's own.
fn find_shell(path: &std::ffi::OsStr, root: &Path) -> PathBuf {
    let executable = |file: &PathBuf| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(path)
        .filter(|dir| {
            dir.is_absolute() && !dir.canonicalize().is_ok_and(|dir| dir.starts_with(root))
        })
        .map(|dir| dir.join("bash"))
        .find(executable)
        .unwrap_or_else(|| Path::new("/bin/sh").to_owned())
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
