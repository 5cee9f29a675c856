//! Background jobs of a run. One task per job keeps its newest output. All jobs end with the run, also if the run is
//! simply dropped.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::AbortHandle;
use windlass_core::CancellationToken;
use windlass_core::workspace::{JobId, JobOutput, ProcessEnd, ProcessError};

use super::capture::trim_cut_char_start;
use super::group::StartedProcess;
use super::{OutputSink, drive};

/// The maximum number of running jobs in a run.
const MAX_JOBS: usize = 16;
/// The maximum number of remembered jobs, including ended ones; the oldest ended jobs are forgotten first.
const MAX_REMEMBERED: usize = 32;
/// The number of bytes that are kept of a job's newest output.
const KEPT: usize = 256 * 1024;

/// The jobs of one run.
#[derive(Default)]
pub(super) struct Jobs {
    all: Mutex<Vec<BackgroundJob>>,
    started: AtomicU32,
}

struct BackgroundJob {
    id: JobId,
    state: Arc<Mutex<JobState>>,
    /// Cancelling it asks the job to end.
    stop: CancellationToken,
    /// Cancelled when the job has ended.
    ended: CancellationToken,
    task: AbortHandle,
}

#[derive(Default)]
struct JobState {
    newest: VecDeque<u8>,
    total: u64,
    end: Option<ProcessEnd>,
    /// Whether all processes that the job started are known to be gone.
    gone: bool,
}

impl Jobs {
    /// Returns whether any job is running.
    pub(super) fn are_running(&self) -> bool {
        let all = self.all.lock();
        all.iter().any(|job| job.state.lock().end.is_none())
    }

    pub(super) fn start(
        &self,
        launch: impl FnOnce() -> Result<StartedProcess, ProcessError>,
    ) -> Result<JobId, ProcessError> {
        let mut all = self.all.lock();
        let alive = all
            .iter()
            .filter(|job| job.state.lock().end.is_none())
            .count();
        if alive >= MAX_JOBS {
            return Err(ProcessError(format!(
                "{MAX_JOBS} background jobs are running already; stop one first"
            )));
        }
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| ProcessError("background jobs need a running tokio runtime".to_owned()))?;
        let mut running = launch()?;
        let id = JobId(format!(
            "j{}",
            self.started.fetch_add(1, Ordering::Relaxed) + 1
        ));
        let state = Arc::new(Mutex::new(JobState::default()));
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let (mut sink, stopped, done) = (
            Newest(Arc::clone(&state)),
            stop.clone(),
            ended.clone().drop_guard(),
        );
        let task = runtime.spawn(async move {
            let end = drive(&mut running, None, &stopped, &mut sink).await;
            let mut state = sink.0.lock();
            state.end = Some(end);
            state.gone = running.ended.is_some();
            drop(state);
            drop(done);
        });
        if all.len() >= MAX_REMEMBERED
            && let Some(oldest) = all.iter().position(|job| job.state.lock().end.is_some())
        {
            all.remove(oldest);
        }
        all.push(BackgroundJob {
            id: id.clone(),
            state,
            stop,
            ended,
            task: task.abort_handle(),
        });
        Ok(id)
    }

    pub(super) fn poll(
        &self,
        job: &JobId,
        offset: u64,
        max: usize,
    ) -> Result<JobOutput, ProcessError> {
        let all = self.all.lock();
        let state = find(&all, job)?.state.lock();
        Ok(state.from(offset, max))
    }

    pub(super) async fn stop(&self, job: &JobId) -> Result<(), ProcessError> {
        let ended = {
            let all = self.all.lock();
            let job = find(&all, job)?;
            job.stop.cancel();
            job.ended.clone()
        };
        ended.cancelled().await;
        Ok(())
    }

    /// Kills and forgets a job that did not start properly.
    pub(super) fn forget(&self, job: &JobId) {
        let mut all = self.all.lock();
        if let Some(at) = all.iter().position(|known| known.id == *job) {
            all.remove(at).task.abort();
        }
    }

    /// Resolves when a job has ended, with whether all processes that it started are known to be gone.
    pub(super) fn end_of(&self, job: &JobId) -> impl Future<Output = bool> + Send + 'static {
        let all = self.all.lock();
        let job = find(&all, job).map(|job| (job.ended.clone(), Arc::clone(&job.state)));
        async move {
            let Ok((ended, state)) = job else { return true };
            ended.cancelled().await;
            state.lock().gone
        }
    }

    pub(super) async fn stop_all(&self) {
        let ended: Vec<_> = self
            .all
            .lock()
            .iter()
            .map(|job| {
                job.stop.cancel();
                job.ended.clone()
            })
            .collect();
        for job in ended {
            job.cancelled().await;
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        // Aborting the task drops its process group, which kills it.
        for job in self.all.lock().iter() {
            job.task.abort();
        }
    }
}

impl JobState {
    fn from(&self, offset: u64, max: usize) -> JobOutput {
        let kept_from = self.total - self.newest.len() as u64;
        let start = offset.clamp(kept_from, self.total);
        let skip = usize::try_from(start - kept_from).unwrap_or(usize::MAX);
        let mut bytes: Vec<u8> = self.newest.iter().skip(skip).take(max).copied().collect();
        if self.end.is_none() || start + (bytes.len() as u64) < self.total {
            // A partial key would not be recognized as a secret, so it is held back until the next poll.
            let open = crate::secret::open_key(&bytes);
            bytes.truncate(if open > 0 { open } else { bytes.len() });
        }
        let next_offset = start + bytes.len() as u64;
        let mut text = String::new();
        if start > offset {
            text = format!("[... {} bytes left out ...]\n", start - offset);
        }
        text.push_str(&String::from_utf8_lossy(trim_cut_char_start(
            &bytes,
            start > offset,
        )));
        JobOutput {
            text,
            next_offset,
            end: self.end,
        }
    }
}

struct Newest(Arc<Mutex<JobState>>);

impl OutputSink for Newest {
    fn push(&mut self, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.total += bytes.len() as u64;
        let last = &bytes[bytes.len().saturating_sub(KEPT)..];
        let excess = (state.newest.len() + last.len()).saturating_sub(KEPT);
        state.newest.drain(..excess);
        state.newest.extend(last);
    }
}

fn find<'a>(all: &'a [BackgroundJob], id: &JobId) -> Result<&'a BackgroundJob, ProcessError> {
    all.iter().find(|job| job.id == *id).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|job| job.id.0.as_str()).collect();
        ProcessError(format!(
            "there is no job `{}`; the jobs of this run are: {}",
            id.0,
            known.join(", ")
        ))
    })
}
