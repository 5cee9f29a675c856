//! A session store: the storage of logs. It has one line per event and one writer per session, and is read in order.
//! This one is a map; a real one is a database or files. Lines that `append` took and `sync` confirmed must survive.
//! All other state of a session is a fold of its events, so another engine can resume from the lines alone.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures_util::StreamExt;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::session_state::StateFold;
use windlass_core::store::{
    LogWriter, OpenLog, OpenedLog, SessionHead, SessionStore, StoreError, StoreErrorKind,
};
use windlass_core::{BoxFuture, BoxStream};
use windlass_engine::{EngineError, OpenSession, Request, RunOptions};
use windlass_testing::says;

use super::ExampleResult;
use super::fakes::Fakes;

#[derive(Clone, Default)]
struct MapStore(Arc<Mutex<StoredLines>>);

#[derive(Default)]
struct StoredLines {
    lines: BTreeMap<SessionId, Vec<String>>,
    /// Sessions that have a writer.
    held: HashSet<SessionId>,
}

impl MapStore {
    fn rows(&self) -> MutexGuard<'_, StoredLines> {
        self.0.lock()
    }

    fn events(&self, session: &SessionId) -> Vec<Result<Event, StoreError>> {
        let rows = self.rows();
        let Some(lines) = rows.lines.get(session) else {
            return vec![Err(missing(session))];
        };
        let damaged =
            |err: serde_json::Error| StoreError::new(StoreErrorKind::Damaged, err.to_string());
        lines
            .iter()
            .map(|line| serde_json::from_str(line).map_err(damaged))
            .collect()
    }
}

fn missing(session: &SessionId) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotFound,
        format!("there is no session `{session}`"),
    )
}

impl SessionStore for MapStore {
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>> {
        Box::pin(async move {
            let mut rows = self.rows();
            match (how, rows.lines.contains_key(session)) {
                (OpenLog::New, true) => {
                    return Err(StoreError::new(StoreErrorKind::Exists, "it exists already"));
                }
                (OpenLog::Existing, false) => return Err(missing(session)),
                _ => {}
            }
            if !rows.held.insert(session.clone()) {
                return Err(StoreError::new(
                    StoreErrorKind::Locked,
                    format!("`{session}` is open elsewhere"),
                ));
            }
            rows.lines.entry(session.clone()).or_default();
            let writer = Box::new(MapWriter {
                of: self.clone(),
                session: session.clone(),
            });
            Ok(OpenedLog {
                writer,
                notices: Vec::new(),
                after_power_cut: false,
            })
        })
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
    ) -> BoxStream<'a, Result<Event, StoreError>> {
        let from = |event: &Result<Event, StoreError>| {
            event
                .as_ref()
                .map_or(true, |event| event.order.seq() >= Some(from_seq))
        };
        futures_util::stream::iter(
            self.events(session)
                .into_iter()
                .filter(from)
                .collect::<Vec<_>>(),
        )
        .boxed()
    }

    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>> {
        let ids: Vec<SessionId> = self.rows().lines.keys().rev().cloned().collect();
        let heads = ids.into_iter().filter_map(|id| {
            let events: Vec<Event> = self.events(&id).into_iter().flatten().collect();
            let (first, last) = (events.first()?, events.last()?);
            let EventKind::SessionOpened { workspace, .. } = &first.kind else {
                return None;
            };
            let (workspace, title, count) = (workspace.clone(), String::new(), events.len() as u64);
            let mut state = StateFold::default();
            events.iter().for_each(|event| state.add(event));
            Some(Ok(SessionHead {
                id,
                opened: first.at,
                last: last.at,
                workspace,
                title,
                events: count,
                state: state.state(),
            }))
        });
        futures_util::stream::iter(heads.collect::<Vec<_>>()).boxed()
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>> {
        let removed = self.rows().lines.remove(session);
        Box::pin(std::future::ready(
            removed.map(|_| ()).ok_or_else(|| missing(session)),
        ))
    }
}

/// The only writer of a session. Dropping it frees the session.
struct MapWriter {
    of: MapStore,
    session: SessionId,
}

impl LogWriter for MapWriter {
    fn append<'a>(
        &'a mut self,
        _event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let mut rows = self.of.rows();
        let appended = rows
            .lines
            .get_mut(&self.session)
            .map(|lines| lines.push(line.to_owned()));
        Box::pin(std::future::ready(
            appended.ok_or_else(|| missing(&self.session)),
        ))
    }

    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        // A database commits here. Lines that were appended before the first poll must be durable when this returns.
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Drop for MapWriter {
    fn drop(&mut self) {
        self.of.rows().held.remove(&self.session);
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let (fakes, store) = (Fakes::new([says("one"), says("two")]), MapStore::default());
    let engine = || fakes.builder().store(Arc::new(store.clone())).build();
    let first = engine()?.execute(Request::new("count")).await?;
    let session = engine()?
        .open(OpenSession::Resume(first.session.clone()), RunMode::Full)
        .await?;
    let second = engine()?
        .open(OpenSession::Resume(first.session.clone()), RunMode::Full)
        .await
        .err();
    let Some(EngineError::Store(err)) = second else {
        return Err("two may not write one session".into());
    };
    assert_eq!(err.kind, StoreErrorKind::Locked);
    let outcome = session
        .run(Message::user("go on"), RunOptions::default())?
        .finish()
        .await;
    assert_eq!(outcome, Some(Outcome::Completed));
    let asked: Vec<String> = fakes.provider.asked()[1]
        .iter()
        .map(Message::text)
        .collect();
    assert_eq!(
        asked,
        ["count", "one", "go on"],
        "the other engine knew the session from its lines alone"
    );
    let heads: Vec<_> = store.list().collect().await;
    assert_eq!(heads.len(), 1);
    Ok(())
}
