//! Sessions in memory, with injected faults.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::SessionId;
use windlass_core::session_state::StateFold;
use windlass_core::store::{
    LogWriter, OpenLog, OpenedLog, SessionHead, SessionStore, StoreError, StoreErrorKind,
};
use windlass_core::{BoxFuture, BoxStream};

/// A session store in memory. Clones share the sessions.
#[derive(Clone, Default)]
pub struct MemoryStore {
    sessions: Arc<Mutex<HashMap<SessionId, Vec<String>>>>,
    fault: Arc<Mutex<Option<StoreFault>>>,
    syncs: Arc<Mutex<u64>>,
    power_cut: Arc<std::sync::atomic::AtomicBool>,
}

/// An injected fault of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// Every append from this one on (counted from 1) fails as if the disk were full.
    FullAt(u64),
    /// Every sync fails with an IO error.
    Sync,
}

impl MemoryStore {
    /// Makes the store fail like this from now on.
    pub fn fail(&self, fault: StoreFault) {
        *self.fault.lock() = Some(fault);
    }

    /// Returns the log lines of a session.
    #[must_use]
    pub fn lines(&self, session: &SessionId) -> Vec<String> {
        self.lock().get(session).cloned().unwrap_or_default()
    }

    /// Replaces a session's log, as if another process had written it.
    pub fn put(&self, session: &SessionId, lines: Vec<String>) {
        self.lock().insert(session.clone(), lines);
    }

    /// Makes every log that is opened from now on look as if the power had failed.
    pub fn cut_power(&self) {
        self.power_cut
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the number of syncs.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        *self.syncs.lock()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<SessionId, Vec<String>>> {
        self.sessions.lock()
    }

    fn events(&self, session: &SessionId) -> Result<Vec<Event>, StoreError> {
        let lines = self
            .lock()
            .get(session)
            .cloned()
            .ok_or_else(|| not_found(session))?;
        let parse = |line: &String| {
            serde_json::from_str(line)
                .map_err(|err| StoreError::new(StoreErrorKind::Damaged, err.to_string()))
        };
        lines.iter().map(parse).collect()
    }
}

fn not_found(session: &SessionId) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotFound,
        format!("there is no session `{session}`"),
    )
}

impl SessionStore for MemoryStore {
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>> {
        Box::pin(async move {
            let mut sessions = self.lock();
            match (how, sessions.contains_key(session)) {
                (OpenLog::New, true) => {
                    return Err(StoreError::new(StoreErrorKind::Exists, "it exists already"));
                }
                (OpenLog::Existing, false) => return Err(not_found(session)),
                (OpenLog::New, false) => {
                    sessions.insert(session.clone(), Vec::new());
                }
                (OpenLog::Existing, true) => {}
            }
            drop(sessions);
            let writer = Box::new(MemoryLogWriter {
                store: self.clone(),
                session: session.clone(),
            });
            Ok(OpenedLog {
                writer,
                notices: Vec::new(),
                after_power_cut: self.power_cut.load(std::sync::atomic::Ordering::Relaxed),
            })
        })
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
    ) -> BoxStream<'a, Result<Event, StoreError>> {
        let events = match self.events(session) {
            Ok(events) => events
                .into_iter()
                .filter(|event| event.order.seq() >= Some(from_seq))
                .map(Ok)
                .collect(),
            Err(err) => vec![Err(err)],
        };
        futures_util::stream::iter(events).boxed()
    }

    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>> {
        let mut ids: Vec<SessionId> = self.lock().keys().cloned().collect();
        ids.sort_by(|a, b| b.cmp(a));
        let heads = ids.into_iter().filter_map(|id| {
            let events = match self.events(&id) {
                Ok(events) => events,
                Err(err) => return Some(Err(err)),
            };
            let (first, last) = (events.first()?, events.last()?);
            let EventKind::SessionOpened { workspace, .. } = &first.kind else {
                return None;
            };
            let title = events.iter().find_map(|event| match &event.kind {
                EventKind::RunStarted { prompt, .. } => Some(prompt.text()),
                _ => None,
            });
            let (opened, last, count) = (first.at, last.at, events.len() as u64);
            let workspace = workspace.clone();
            let mut state = StateFold::default();
            events.iter().for_each(|event| state.add(event));
            Some(Ok(SessionHead {
                id,
                opened,
                last,
                workspace,
                title: title.unwrap_or_default(),
                events: count,
                state: state.state(),
            }))
        });
        futures_util::stream::iter(heads.collect::<Vec<_>>()).boxed()
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.lock()
                .remove(session)
                .map(|_| ())
                .ok_or_else(|| not_found(session))
        })
    }
}

struct MemoryLogWriter {
    store: MemoryStore,
    session: SessionId,
}

impl LogWriter for MemoryLogWriter {
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let fault = *self.store.fault.lock();
            let mut sessions = self.store.lock();
            let lines = sessions
                .get_mut(&self.session)
                .ok_or_else(|| not_found(&self.session))?;
            let next = lines.len() as u64 + 1;
            if matches!(fault, Some(StoreFault::FullAt(at)) if next >= at) {
                return Err(StoreError::new(StoreErrorKind::Full, "no space is left"));
            }
            assert_eq!(
                event.order.seq(),
                Some(next),
                "the engine left a gap in the log"
            );
            lines.push(line.to_owned());
            Ok(())
        })
    }

    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        let store = self.store.clone();
        Box::pin(async move {
            *store.syncs.lock() += 1;
            match *store.fault.lock() {
                Some(StoreFault::Sync) => Err(StoreError::new(
                    StoreErrorKind::Io,
                    "the disk does not answer",
                )),
                _ => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use windlass_core::store::Skimmed;

    use super::*;

    #[tokio::test]
    async fn a_store_without_its_own_skim_returns_every_event() {
        let (store, id) = (MemoryStore::default(), "s1".parse().unwrap());
        let line = r#"{"v":2,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"noted","data":{"text":"x"}}"#;
        store.put(&id, vec![line.to_owned()]);
        let skimmed: Vec<_> = store.skim(&id, 1, |_| false).collect().await;
        assert_eq!(
            skimmed,
            [Ok(Skimmed::Event(serde_json::from_str(line).unwrap()))]
        );
        let unknown = "s2".parse().unwrap();
        assert!(matches!(
            &store.skim(&unknown, 1, |_| true).collect::<Vec<_>>().await[..],
            [Err(_)]
        ));
    }
}
