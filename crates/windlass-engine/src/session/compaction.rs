//! Compaction between runs at the request of the user: a summary replaces all messages, or all but the last steps. The log
//! keeps the replaced messages.

use std::time::Duration;

use windlass_core::budget::{Budget, Spent};
use windlass_core::context::CompactionMode;
use windlass_core::runtime::{CompactionRequest, RuntimeError};

use super::close::close;
use super::{EngineError, Session};
use crate::ledger::RunLedger;
use crate::pending_asks::OnAsk;
use crate::run::{RunOptions, RunOutlet};

impl Session {
    /// Compacts the messages. Returns false if nothing can be dropped. The session's totals include the cost of the summary.
    /// Fails while a run is in progress, is paused or waits for an answer, because its calls need their messages. A run that a dead
    /// process left open is closed.
    pub async fn compact(&self, how: CompactionMode, budget: Budget) -> Result<bool, EngineError> {
        let _alone = self.alone()?;
        if self.with_history(|history| history.waits()) {
            let why = "a run waits for an answer; answer it first";
            return Err(EngineError::CompactionFailed(why.into()));
        }
        if self.with_history(|history| history.is_paused()) {
            let why = "a run is paused; resume it or close it first";
            return Err(EngineError::CompactionFailed(why.into()));
        }
        if let Some(run) = self.with_history(|history| history.open_run().cloned()) {
            let in_copy = self.changes_in_copy(&run).await;
            close(&self.log, &self.trace, run, in_copy, None, None).await?;
        }
        let parts = &self.parts;
        let options = RunOptions {
            budget,
            on_ask: OnAsk::Deny,
            ..RunOptions::default()
        };
        let ledger = RunLedger::new(
            budget,
            parts.clock.clone(),
            Spent::default(),
            Duration::ZERO,
        );
        let sink = RunOutlet::new(self.log.clone(), self.scope(None), ledger, &options);
        let room = CompactionRequest {
            how,
            sink: &sink,
            account: &sink,
            tools: &parts.tools,
            cancel: sink.control.stop.clone(),
        };
        let compacted = parts.runtime.compact(room).await;
        self.log.sync().await?;
        match compacted {
            Ok(compacted) => Ok(compacted),
            Err(RuntimeError::Store(err)) => Err(err.into()),
            Err(RuntimeError::Other(why)) => Err(EngineError::CompactionFailed(why)),
        }
    }
}
