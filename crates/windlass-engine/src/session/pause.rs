//! Pauses the run in progress, and resumes or closes a paused run, in any process.

use windlass_core::history::History;
use windlass_core::outcome::Outcome;
use windlass_core::pause::PauseReason;

use super::close::close;
use super::driver::Start;
use super::{EngineError, Session};
use crate::run::{RunHandle, RunOptions};

impl Session {
    /// Pauses the run in progress, if there is one, at its next safe point; see [`crate::Pauser::pause`].
    pub fn pause(&self, reason: PauseReason) {
        if let Some(sink) = self.current.lock().upgrade() {
            sink.control.pause(reason);
        }
    }

    /// Resumes the paused run: the same run, with the amounts and the time that it has used. Fails if no run is paused, or
    /// if the run waits for an answer, which resumes it. The run keeps its isolation; `options.isolation` is ignored.
    pub fn resume_paused(&self, mut options: RunOptions) -> Result<RunHandle, EngineError> {
        let paused = self.with_history(|history| {
            let run = history.open_run().filter(|_| history.is_paused())?;
            Some((run.id.clone(), run.isolation, run.pause()?))
        });
        let Some((run, isolation, pause)) = paused else {
            return Err(self.not_paused());
        };
        options.isolation = isolation;
        let run_ms = pause.run_ms;
        self.begin(run, Start::Resume { run_ms }, options)
    }

    /// Closes a run that is paused or waits for an answer, while no process drives it: its asks are abandoned, its outcome
    /// is `cancelled`, its copy stays kept, and the queue is cleared.
    pub async fn close_paused(&self) -> Result<(), EngineError> {
        let _alone = self.alone()?;
        let is_open = |history: &History| history.is_paused() || history.waits();
        let run = self.with_history(|history| {
            let run = history.open_run().filter(|_| is_open(history));
            run.cloned()
        });
        let Some(run) = run else {
            return Err(self.not_paused());
        };
        let in_copy = self.changes_in_copy(&run).await;
        let cancelled = Some(Outcome::Cancelled);
        close(&self.log, &self.trace, run, in_copy, None, cancelled).await?;
        self.log.sync().await?;
        self.log.save_snapshot().await;
        Ok(())
    }

    /// Closes a run whose process died, as the next prompt would do. Returns false if there is none. A run that is paused or
    /// waits for an answer stays open.
    pub async fn close_interrupted(&self) -> Result<bool, EngineError> {
        let _alone = self.alone()?;
        let run = self.with_history(|history| {
            let is_left = !history.is_paused() && !history.waits();
            history.open_run().filter(|_| is_left).cloned()
        });
        let Some(run) = run else {
            return Ok(false);
        };
        let in_copy = self.changes_in_copy(&run).await;
        close(&self.log, &self.trace, run, in_copy, None, None).await?;
        self.log.sync().await?;
        Ok(true)
    }

    fn not_paused(&self) -> EngineError {
        EngineError::NotPaused(self.with_history(|history| {
            if history.waits() {
                "the run waits for an answer; answer its ask instead"
            } else if history.open_run().is_some() {
                "the run is in progress, or was left open by a process that died; send a prompt to continue"
            } else {
                "the session has no open run; send a prompt to start one"
            }
        }))
    }
}
