//! Making room between runs, because a person wants it: all but the last steps, or everything, gives way to a summary.
//! The log keeps what was left out.

use std::time::Duration;

use windlass_core::budget::{Budget, Spent};
use windlass_core::context::How;
use windlass_core::runtime::{MakeRoom, RuntimeError};

use super::close::close;
use super::{EngineError, Session};
use crate::account::Books;
use crate::asking::OnAsk;
use crate::run::{RunOptions, RunOutlet};

impl Session {
    /// Makes room in the messages; false when nothing was to be gained. What a summary costs is booked to the session.
    /// Not while a run is going or waits for an answer: its calls need their messages. One that was broken off is closed.
    pub async fn compact(&self, how: How, budget: Budget) -> Result<bool, EngineError> {
        let _alone = self.alone()?;
        if self.look(|history| history.waits()) {
            let why = "a run waits for an answer; answer it first";
            return Err(EngineError::NoRoom(why.into()));
        }
        if let Some(run) = self.look(|history| history.open_run().cloned()) {
            let in_copy = match &run.copy {
                Some(copy) => self.parts.workspaces.left_changes(copy).await,
                None => Vec::new(),
            };
            close(&self.log, &self.trace, run, in_copy, None).await?;
        }
        let parts = &self.parts;
        let options = RunOptions {
            budget,
            on_ask: OnAsk::Deny,
            ..RunOptions::default()
        };
        let books = Books::new(
            budget,
            parts.clock.clone(),
            Spent::default(),
            Duration::ZERO,
        );
        let outlet = RunOutlet::new(self.log.clone(), self.scope(None), books, &options);
        let room = MakeRoom {
            how,
            outlet: &outlet,
            account: &outlet,
            tools: &parts.tools,
            cancel: outlet.control.stop.clone(),
        };
        let made = parts.runtime.compact(room).await;
        self.log.sync().await?;
        match made {
            Ok(made) => Ok(made),
            Err(RuntimeError::Store(err)) => Err(err.into()),
            Err(RuntimeError::Other(why)) => Err(EngineError::NoRoom(why)),
        }
    }
}
