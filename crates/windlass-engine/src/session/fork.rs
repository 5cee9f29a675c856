//! A session that begins as a copy of another, up to an event. The other stays as it is; what was asked there is
//! answered there, and what was done to the tree is taken back there.

use futures_util::StreamExt;
use windlass_core::event::EventKind;
use windlass_core::history::History;
use windlass_core::id::SessionId;
use windlass_core::runtime::RunMode;
use windlass_core::store::OpenLog;

use super::{Engine, EngineError, Session};

impl Engine {
    /// Makes a new session of the events of another up to this one, or of all of them, and opens it.
    pub async fn fork(&self, from: &SessionId, at: Option<u64>, mode: RunMode) -> Result<Session, EngineError> {
        let parts = &self.0;
        let id = SessionId::fresh(parts.clock.now(), parts.clock.entropy());
        let mut events = parts.store.read(from, 1);
        let mut writer = None;
        let (mut history, mut last) = (History::default(), 0);
        while let Some(event) = events.next().await {
            let mut event = event?;
            last = event.order.seq().unwrap_or(last);
            if at.is_some_and(|at| last > at) {
                last = at.unwrap_or(last);
                break;
            }
            // Made with the first event, so that a session that cannot be read leaves nothing behind.
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(parts.store.open_writer(&id, OpenLog::New).await?.writer),
            };
            event.session = id.clone();
            history.apply(&event);
            let line = serde_json::to_string(&event).map_err(|err| unwritable(&err))?;
            if let Err(err) = writer.append(&event, &line).await {
                let _ = parts.store.delete(&id).await;
                return Err(err.into());
            }
        }
        drop(events);
        let missing = at.filter(|at| *at != last || *at == 0);
        let (Some(writer), None) = (writer, missing) else {
            let _ = parts.store.delete(&id).await;
            return Err(EngineError::NoSuchEvent { session: from.clone(), at: at.unwrap_or(0), last });
        };
        parts.store.share_artifacts(from, &id).await?;
        let session = self.session(id, writer, history, mode);
        let forked = EventKind::Forked { from: from.clone(), at_seq: last };
        session.log.emit(&session.scope(None), forked).await?;
        session.log.sync().await?;
        session.note_model().await?;
        Ok(session)
    }
}

fn unwritable(err: &serde_json::Error) -> EngineError {
    let text = format!("an event could not be written as JSON: {err}");
    windlass_core::store::StoreError::new(windlass_core::store::StoreErrorKind::Io, text).into()
}
