//! Making room between runs, because a person wants it: all but the last steps, or everything, gives way to a summary.
//! The log keeps what was left out.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use windlass_core::budget::{Budget, Spent};
use windlass_core::context::How;
use windlass_core::runtime::{MakeRoom, RuntimeError};

use super::close::close;
use super::{EngineError, Session};
use crate::account::{Books, OpenAccount};
use crate::asking::OnAsk;
use crate::run::{Control, RunOutlet};

impl Session {
    /// Makes room in the messages; false when nothing was to be gained. What a summary costs is booked to the session.
    /// Not while a run is going or waits for an answer: its calls need their messages. One that was broken off is closed.
    pub async fn compact(&self, how: How, budget: Budget) -> Result<bool, EngineError> {
        let _alone = self
            .busy
            .clone()
            .try_lock_owned()
            .map_err(|_| EngineError::Busy)?;
        if self.look(|history| history.waits()) {
            return Err(EngineError::NoRoom(
                "a run waits for an answer; answer it first".into(),
            ));
        }
        if let Some(run) = self.look(|history| history.open_run().cloned()) {
            close(&self.log, &self.trace, run, None).await?;
        }
        let parts = &self.parts;
        let control = Arc::new(Control::default());
        let outlet = RunOutlet {
            log: self.log.clone(),
            scope: self.scope(None),
            books: Books::new(
                budget,
                parts.clock.clone(),
                Spent::default(),
                Duration::ZERO,
            ),
            clock: parts.clock.clone(),
            on_ask: OnAsk::Deny,
            ask_timeout: Duration::ZERO,
            ask_expiry: None,
            control: control.clone(),
            untorn: AtomicU32::new(0),
            held: Mutex::default(),
        };
        let account = OpenAccount {
            books: &outlet.books,
            outlet: &outlet,
        };
        let cancel = control.stop.clone();
        let room = MakeRoom {
            how,
            outlet: &outlet,
            account: &account,
            tools: &parts.tools,
            cancel,
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
