//! Forks a session: the new session starts as a copy of another, up to an event. The other session does not change; its asks
//! are answered there, and its changes to the tree are undone there.

use futures_util::StreamExt;
use windlass_core::event::EventKind;
use windlass_core::history::History;
use windlass_core::id::SessionId;
use windlass_core::runtime::RunMode;
use windlass_core::store::{LogWriter, Skimmed, StoreError, StoreErrorKind, create_session};

use super::{Engine, EngineError, Session};

impl Engine {
    /// Creates and opens a session from the events of another, up to event `at` or all of them. If copying fails, the new
    /// session is removed, because a partial copy would look complete.
    pub async fn fork(
        &self,
        from: &SessionId,
        at: Option<u64>,
        mode: RunMode,
    ) -> Result<Session, EngineError> {
        self.require(mode)?;
        let parts = &self.0;
        // Read first, so that a missing session does not create an empty one.
        if let Some(Err(err)) = parts.store.read(from, 1).next().await {
            return Err(err.into());
        }
        let (id, mut writer) = self.create_log().await?;
        let copied = self.copy(from, at, &id, writer.as_mut()).await;
        let (history, last) = match copied {
            Ok(copied) => copied,
            Err(err) => {
                // Release the lease before the deletion. An error of the deletion would only hide the first error.
                drop(writer);
                let _ = parts.store.delete(&id).await;
                return Err(err);
            }
        };
        let session = self.session(id, writer, history);
        let forked = EventKind::Forked {
            from: from.clone(),
            at_seq: last,
        };
        session.log.emit(&session.scope(None), forked).await?;
        session.log.sync().await?;
        session.note_model().await?;
        Ok(session)
    }

    /// Creates a log under an unused id.
    pub(super) async fn create_log(&self) -> Result<(SessionId, Box<dyn LogWriter>), EngineError> {
        let parts = &self.0;
        Ok(create_session(parts.store.as_ref(), parts.clock.as_ref(), None).await?)
    }

    /// Copies the events up to `at`. Returns their fold and the number of the last one.
    async fn copy(
        &self,
        from: &SessionId,
        at: Option<u64>,
        id: &SessionId,
        writer: &mut dyn LogWriter,
    ) -> Result<(History, u64), EngineError> {
        let parts = &self.0;
        let mut events = parts.store.read(from, 1);
        let (mut history, mut last) = (History::default(), 0);
        while at.is_none_or(|at| last < at)
            && let Some(event) = events.next().await
        {
            let mut event = event?;
            last = event.order.seq().unwrap_or(last);
            event.session = id.clone();
            history.apply(&event);
            let line = serde_json::to_string(&event).map_err(|err| unwritable(&err))?;
            writer.append(&event, &line).await?;
        }
        drop(events);
        if last == 0 || at.is_some_and(|at| at != last) {
            // If nothing was copied, the last number is not known yet.
            let last = if last == 0 {
                self.last_of(from).await?
            } else {
                last
            };
            return Err(EngineError::NoSuchEvent {
                session: from.clone(),
                at: at.unwrap_or(0),
                last,
            });
        }
        parts.store.share_artifacts(from, id).await?;
        Ok((history, last))
    }

    /// The number of the last event of a session.
    async fn last_of(&self, session: &SessionId) -> Result<u64, EngineError> {
        let mut last = 0;
        let mut events = self.0.store.skim(session, 1, |_| false);
        while let Some(event) = events.next().await {
            last = match event? {
                Skimmed::Event(event) => event.order.seq().unwrap_or(last),
                Skimmed::Passed { seq } => seq,
            };
        }
        Ok(last)
    }
}

fn unwritable(err: &serde_json::Error) -> EngineError {
    let text = format!("an event could not be written as JSON: {err}");
    StoreError::new(StoreErrorKind::Io, text).into()
}
