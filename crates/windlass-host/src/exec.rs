//! Runs commands. Each command has its own process group, no terminal, an empty standard input and an environment
//! without credentials; it runs in a kernel sandbox where one is available. In a sandbox no process outlives its
//! command. Without one, the process group is killed when the command ends, and daemons that left the group are killed
//! when the run ends.

mod capture;
mod daemons;
mod enclosure;
mod env;
mod group;
mod guard;
mod jobs;

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
use self::enclosure::{AgentEnclosure, EnclosedProcesses};
use self::group::{Detachment, HostLaunch, StartedProcess, start_inside};
use self::jobs::Jobs;
use crate::sandbox::{OpenSandbox, Sandbox, SandboxNotes, TreeBorrower};
use crate::workspace::Root;
use windlass_sandbox::Within;

/// The time that a command has to exit after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(300);
/// The time for reading the remaining output after the command exited, if a process that it started holds the pipe
/// open.
const DRAIN_GRACE: Duration = Duration::from_millis(100);
/// The time to wait for a killed command to disappear. It takes longer only if the kernel is stuck.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// The size of the read buffer: the capacity of a pipe.
const PIECE: usize = 64 * 1024;
/// The environment variable that identifies the processes of a run.
pub(crate) const MARK: &str = "WINDLASS_RUN";
/// Programs are looked up here if the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The reason why a background job was not started in a layer.
#[derive(Debug)]
pub enum JobError {
    /// The sandbox cannot mount a layer here.
    NoLayer,
    /// The job cannot be started at all.
    Other(ProcessError),
}

/// Starts the commands of one run in one workspace.
pub struct HostProcesses {
    root: Arc<Root>,
    env: Vec<(OsString, OsString)>,
    shell: PathBuf,
    detachment: Detachment,
    guard: Arc<Guard>,
    sandbox: Option<Arc<Sandbox>>,
    jobs: Jobs,
    /// Processes of foreign agents.
    agents: Arc<EnclosedProcesses>,
    /// A random value in the environment of each command, which identifies daemons of this run.
    mark: String,
    /// Whether a command was started since the last search for daemons.
    started: AtomicBool,
}

impl HostProcesses {
    /// Prepares commands in `root` with exactly this environment; [`child_env`] builds it.
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
            detachment: Detachment::needed(),
            guard: Arc::default(),
            sandbox: None,
            jobs: Jobs::default(),
            agents: Arc::default(),
            mark,
            started: AtomicBool::new(false),
        }
    }

    /// Runs commands in a sandbox, with the environment of the sandbox, and uses a guard that other runs share.
    #[must_use]
    pub fn in_sandbox(mut self, sandbox: Option<Arc<Sandbox>>, guard: Arc<Guard>) -> Self {
        (self.sandbox, self.guard) = (sandbox, guard);
        self
    }

    /// Kills the daemons that left their process group.
    fn kill_daemons(&self) {
        if self.started.swap(false, Ordering::Relaxed) {
            daemons::kill_marked(&self.mark);
        }
    }

    /// Opens the sandbox. This takes a few milliseconds, so it runs on a thread for blocking calls.
    async fn inside(&self) -> Result<Option<Arc<OpenSandbox>>, ProcessError> {
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
        inside: &OpenSandbox,
        command: &Command,
        layer: Option<Within<'_>>,
    ) -> Result<StartedProcess, ProcessError> {
        let dir = workdir_in(&self.root, &command.workdir)?;
        let argv = [
            self.shell.clone().into_os_string(),
            "-c".into(),
            command.line.clone().into(),
        ];
        start_inside(inside, &argv, &dir, command, layer)
    }

    /// Runs a command until it exits. With a layer, the command's writes to the workspace go to the layer and nowhere
    /// else. Also returns whether all processes of the command are known to be gone.
    pub async fn run_in_layer(
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
        let notes = match (&self.sandbox, &inside) {
            (Some(sandbox), Some(inside)) => {
                sandbox.notes(inside, running.ended, &captured.text, failed)
            }
            _ => SandboxNotes::default(),
        };
        let (gone, refused) = (running.ended.is_some(), notes.refused);
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
        notes
            .text
            .iter()
            .for_each(|text| append_note(&mut finished, text));
        Ok((finished, gone))
    }

    /// Starts a background job in a layer, and returns a handle of the workspace as the job sees it.
    pub fn start_in_layer(
        &self,
        command: &Command,
        layer: &str,
    ) -> Result<(JobId, OwnedFd), JobError> {
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

    /// Resolves when a job has ended, with whether all processes that it started are known to be gone.
    pub fn job_end(&self, job: &JobId) -> impl Future<Output = bool> + Send + 'static {
        self.jobs.end_of(job)
    }

    fn launch(&self, command: &Command) -> Result<StartedProcess, ProcessError> {
        let dir = open_workdir(&self.root, &command.workdir)?;
        self.started.store(true, Ordering::Relaxed);
        let (env, detachment, guard) = (&self.env, self.detachment, &self.guard);
        let input = command.input.clone();
        HostLaunch {
            program: &self.shell,
            args: &["-c", &command.line],
            env,
            dir,
            input,
            detachment,
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

/// Returns the working directory of a program as a path in the view of a sandbox.
fn workdir_in(root: &Root, given: &str) -> Result<PathBuf, ProcessError> {
    // The handle is not used; opening it checks that the directory exists inside the workspace.
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
            self.run_in_layer(command, watch, None)
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
            self.agents.end_all().await;
            self.kill_daemons();
        })
    }

    fn pause_agents(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.jobs.stop_all().await;
            self.agents.pause_all().await;
            self.kill_daemons();
        })
    }

    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        Box::pin(async move {
            let (Some(sandbox), Some(inside)) = (&self.sandbox, self.inside().await?) else {
                return Err(ProcessError::no_enclosure());
            };
            let setup = sandbox
                .enclose(&inside)
                .await
                .ok_or_else(ProcessError::no_enclosure)?;
            let setup = setup.map_err(|err| ProcessError(err.to_string()))?;
            let enclosed = AgentEnclosure::new(setup, &inside, &self.root, &self.agents)?;
            Ok(Arc::new(enclosed) as Arc<dyn Enclosure>)
        })
    }
}

impl Drop for HostProcesses {
    fn drop(&mut self) {
        self.kill_daemons();
    }
}

/// Appends a note of the sandbox to the output of a command.
pub fn append_note(finished: &mut Finished, text: &str) {
    let line = if finished.output.is_empty() || finished.output.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    finished
        .output
        .push_str(&format!("{line}[sandbox: {text}]"));
}

/// The receiver of a command's output.
trait OutputSink {
    fn push(&mut self, bytes: &[u8]);
    /// Returns the time when [`OutputSink::report`] should be called next, if any.
    fn report_due(&self) -> Option<Instant> {
        None
    }
    fn report(&mut self) {}
}

/// The event that [`drive`] waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPhase {
    /// The command has not exited.
    Running,
    /// The command received SIGTERM and has not exited.
    Terminating,
    /// The command was killed and is not gone yet.
    Killed,
    /// The command exited; the rest of its output is read.
    Draining,
}

/// Waits until a command exits, and then kills the rest of its process group.
async fn drive(
    running: &mut StartedProcess,
    deadline: Option<Instant>,
    cancel: &CancellationToken,
    sink: &mut impl OutputSink,
) -> ProcessEnd {
    let mut buffer = Vec::with_capacity(PIECE);
    let mut phase = WaitPhase::Running;
    let mut until = deadline;
    let mut ours: Option<ProcessEnd> = None;
    let mut status: Option<ExitStatus> = None;
    let mut open = true;
    let cancelled = cancel.cancelled();
    tokio::pin!(cancelled);
    // The timer is set before each wait; this distant time stands for never.
    let far = Instant::now() + Duration::from_secs(86_400 * 365);
    let timer = tokio::time::sleep_until(far);
    tokio::pin!(timer);
    while status.is_none() || (open && phase == WaitPhase::Draining) {
        let wake = [until, sink.report_due()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(far);
        if timer.deadline() != wake {
            timer.as_mut().reset(wake);
        }
        tokio::select! {
            biased;
            () = &mut cancelled, if phase == WaitPhase::Running => {
                ours = Some(ProcessEnd::Cancelled);
                running.group.terminate();
                (phase, until) = (WaitPhase::Terminating, Some(Instant::now() + TERM_GRACE));
            }
            () = &mut timer => {
                if sink.report_due().is_some_and(|due| due <= wake) {
                    sink.report();
                }
                if until.is_none_or(|until| until > wake) {
                    continue;
                }
                match phase {
                    WaitPhase::Running => {
                        ours = Some(ProcessEnd::TimedOut);
                        running.group.terminate();
                        (phase, until) = (WaitPhase::Terminating, Some(Instant::now() + TERM_GRACE));
                    }
                    WaitPhase::Terminating => {
                        running.group.kill();
                        (phase, until) = (WaitPhase::Killed, Some(Instant::now() + KILL_GRACE));
                    }
                    WaitPhase::Killed | WaitPhase::Draining => break,
                }
            }
            read = running.output.read_buf(&mut buffer), if open => {
                open = read.is_ok_and(|n| n > 0);
                sink.push(&buffer);
                buffer.clear();
            }
            ended = running.leader.wait(), if status.is_none() => {
                let (code, ended) = ended.unwrap_or_else(|why| {
                    // A shell reports an exec failure with this exit code and a message in the output.
                    sink.push(why.as_bytes());
                    (ExitStatus::from_raw(127 << 8), None)
                });
                (status, running.ended) = (Some(code), ended);
                (phase, until) = (WaitPhase::Draining, Some(Instant::now() + DRAIN_GRACE));
            }
        }
    }
    // Kill the processes that the command left in its group.
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

/// Finds `bash` on the child's own `PATH`, or `/bin/sh`, which every system has. Never uses a shell from the workspace.
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
