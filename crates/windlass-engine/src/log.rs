//! The log of a session while a process writes it. Every event gets its number here, is written first and displayed second.
//! After a failed write or sync, nothing more is written.

mod durable;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, mpsc};
use windlass_core::clock::Clock;
use windlass_core::event::{Event, EventKind, Order, VERSION};
use windlass_core::history::{Entry, History};
use windlass_core::id::{RunId, SessionId, TraceId};
use windlass_core::message::Part;
use windlass_core::redact::clean_event;
use windlass_core::store::{LogWriter, StoreError, StoreErrorKind};
use windlass_core::workspace::Redactor;
use windlass_core::{BoxFuture, CancellationToken};

use self::durable::Durable;
use crate::load_history::MAX_HISTORY;

/// Writes the events of a session, folds them into its history and sends them to the reader of the run.
pub(crate) struct EventLog {
    session: SessionId,
    clock: Arc<dyn Clock>,
    writer: AsyncMutex<LineWriter>,
    history: Mutex<History>,
    durable: Arc<Durable>,
    live: AtomicU32,
    redactor: Arc<dyn Redactor>,
}

struct LineWriter {
    port: Box<dyn LogWriter>,
    line: String,
    broken: Option<StoreError>,
}

/// The run and trace of an event, and the reader that receives it.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) run: Option<RunId>,
    pub(crate) trace: TraceId,
    pub(crate) view: Option<ViewSender>,
}

/// The bounded channel to the reader of a run's events. If it is full, a durable event waits and a live event is dropped.
#[derive(Clone)]
pub(crate) struct ViewSender {
    pub(crate) to: mpsc::Sender<Event>,
    pub(crate) live: bool,
    /// Cancelled when the run has to stop.
    pub(crate) stop: CancellationToken,
    /// The reader did not read for [`READER_TIMEOUT`] after that; events are no longer sent to it.
    pub(crate) lost: Arc<AtomicBool>,
}

/// Capacity of the channel that live events leave free for durable events.
const RESERVED: usize = 512;
/// Maximum time that a stopped run waits for a reader that does not read.
const READER_TIMEOUT: Duration = Duration::from_secs(5);

impl EventLog {
    pub(crate) fn new(
        session: SessionId,
        clock: Arc<dyn Clock>,
        port: Box<dyn LogWriter>,
        history: History,
        redactor: Arc<dyn Redactor>,
    ) -> Self {
        let durable = Arc::new(Durable::new(history.last_seq()));
        let writer = LineWriter {
            port,
            line: String::new(),
            broken: None,
        };
        Self {
            session,
            clock,
            writer: AsyncMutex::new(writer),
            history: Mutex::new(history),
            durable,
            live: AtomicU32::new(0),
            redactor,
        }
    }

    pub(crate) fn redactor(&self) -> &dyn Redactor {
        self.redactor.as_ref()
    }

    /// Redacts, numbers, writes, folds and displays a durable event. Returns its number.
    pub(crate) async fn emit(&self, scope: &Scope, mut kind: EventKind) -> Result<u64, StoreError> {
        clean_event(self.redactor(), &mut kind);
        let mut writer = self.writer.lock().await;
        self.write(&mut writer, scope, kind).await
    }

    /// Like [`EventLog::emit`], for an event that depends on the history: no other event is written between the decision
    /// and the event. An error of `decide` is returned, and nothing is written.
    pub(crate) async fn emit_if<E>(
        &self,
        scope: &Scope,
        decide: impl FnOnce(&History) -> Result<EventKind, E>,
    ) -> Result<Result<u64, E>, StoreError> {
        let mut writer = self.writer.lock().await;
        let mut kind = match self.with_history(|history| decide(history)) {
            Ok(kind) => kind,
            Err(why) => return Ok(Err(why)),
        };
        clean_event(self.redactor(), &mut kind);
        self.write(&mut writer, scope, kind).await.map(Ok)
    }

    async fn write(
        &self,
        writer: &mut LineWriter,
        scope: &Scope,
        kind: EventKind,
    ) -> Result<u64, StoreError> {
        self.usable(writer)?;
        let seq = self.durable.written() + 1;
        let event = self.event(scope, Order::Durable { seq }, kind);
        // If this future is dropped during the write, a part of the event may be on disk: refuse later events.
        writer.broken = Some(StoreError::new(
            StoreErrorKind::Io,
            "an earlier write to the log was interrupted",
        ));
        if let Err(err) = writer.append(&event).await {
            tracing::error!(session = %self.session, seq, kind = ?err.kind, "an event was not written");
            // If the disk is full, nothing was written, and space may become free: the next event gets the same number.
            writer.broken = (err.kind != StoreErrorKind::Full).then(|| err.clone());
            return Err(err);
        }
        writer.broken = None;
        tracing::debug!(session = %self.session, seq, kind = event.kind.name(), "event");
        self.durable.wrote(seq);
        self.live.store(0, Ordering::Release);
        self.with_history(|history| history.apply(&event));
        // Send while the writer is locked, so that the reader sees events in the order of the log.
        self.show_durable(scope, event).await;
        Ok(seq)
    }

    /// Displays an event that could not be written: the terminal event of a run whose store failed.
    pub(crate) async fn show_unwritten(&self, scope: &Scope, mut kind: EventKind) {
        clean_event(self.redactor(), &mut kind);
        let after = self.durable.written();
        let n = self.live.fetch_add(1, Ordering::AcqRel) + 1;
        let event = self.event(scope, Order::Live { after, n }, kind);
        self.show_durable(scope, event).await;
    }

    /// Displays a live event, or drops it if the reader is too slow.
    pub(crate) fn show_live(&self, scope: &Scope, kind: EventKind) {
        let Some(view) = scope.view.as_ref().filter(|view| view.live) else {
            return;
        };
        // Leave space for the durable events that follow.
        if view.to.capacity() <= RESERVED {
            return;
        }
        let after = self.durable.written();
        let n = self.live.fetch_add(1, Ordering::AcqRel) + 1;
        let _ = view
            .to
            .try_send(self.event(scope, Order::Live { after, n }, kind));
    }

    /// Returns when everything emitted before the call survives a power cut. Other tasks can emit meanwhile, and concurrent
    /// callers share one sync.
    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        match self.begin_sync().await? {
            Some((upto, sync)) => self.durable.settle(upto, sync).await,
            None => Ok(()),
        }
    }

    /// Starts a sync in the background. If it fails, the next emit or sync returns its error.
    pub(crate) async fn sync_in_background(&self) -> Result<(), StoreError> {
        // The task does not hold the log, which contains the lease: closing the session frees it at once.
        if let Some((upto, sync)) = self.begin_sync().await? {
            let durable = Arc::clone(&self.durable);
            drop(tokio::spawn(
                async move { durable.settle(upto, sync).await },
            ));
        }
        Ok(())
    }

    /// A sync that has not started yet, and the last event that it has to cover. `None` if that event is durable already.
    async fn begin_sync(
        &self,
    ) -> Result<Option<(u64, BoxFuture<'static, Result<(), StoreError>>)>, StoreError> {
        let mut writer = self.writer.lock().await;
        self.usable(&writer)?;
        let upto = self.durable.written();
        Ok((!self.durable.covers(upto)).then(|| (upto, writer.port.sync())))
    }

    /// Saves a snapshot if the log has grown enough and no run is open.
    pub(crate) async fn save_snapshot(&self) {
        let mut writer = self.writer.lock().await;
        if writer.broken.is_some() || !writer.port.snapshot_due() {
            return;
        }
        self.with_history(|history| {
            if history.is_idle() && history.held() <= MAX_HISTORY {
                writer.port.save_snapshot(&|to| history.save(to));
            }
        });
    }

    fn usable(&self, writer: &LineWriter) -> Result<(), StoreError> {
        writer.broken.clone().map_or(Ok(()), Err)?;
        self.durable.check()
    }

    pub(crate) fn entries(&self) -> Arc<Vec<Entry>> {
        self.with_history(|history| history.entries())
    }

    pub(crate) fn with_history<T>(&self, read: impl FnOnce(&mut History) -> T) -> T {
        read(&mut self.history.lock())
    }

    fn event(&self, scope: &Scope, order: Order, kind: EventKind) -> Event {
        Event {
            v: VERSION,
            order,
            at: self.clock.now(),
            session: self.session.clone(),
            run: scope.run.clone(),
            trace: scope.trace.clone(),
            kind,
        }
    }

    async fn show_durable(&self, scope: &Scope, event: Event) {
        let Some(view) = &scope.view else { return };
        let event = match view.to.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
            Err(mpsc::error::TrySendError::Full(event)) => event,
        };
        if view.lost.load(Ordering::Relaxed) {
            return;
        }
        // Wait for a slow reader, but do not let it delay a stopped run forever. It can read missed events from the log.
        let timed_out = async {
            view.stop.cancelled().await;
            self.clock.sleep(READER_TIMEOUT).await;
        };
        tokio::select! {
            biased;
            _ = view.to.send(event) => {}
            () = timed_out => view.lost.store(true, Ordering::Relaxed),
        }
    }
}

impl LineWriter {
    async fn append(&mut self, event: &Event) -> Result<(), StoreError> {
        // Reuse the buffer for every line, unless it has become huge.
        let mut bytes = std::mem::take(&mut self.line).into_bytes();
        bytes.clear();
        bytes.reserve(estimated_bytes(&event.kind));
        serde_json::to_writer(&mut bytes, event).map_err(|err| {
            StoreError::new(
                StoreErrorKind::Io,
                format!("an event could not be written as JSON: {err}"),
            )
        })?;
        self.line = String::from_utf8(bytes).map_err(|_| {
            StoreError::new(StoreErrorKind::Io, "an event was not written as UTF-8")
        })?;
        self.port.append(event, &self.line).await?;
        if self.line.capacity() > 1 << 16 {
            self.line = String::new();
        }
        Ok(())
    }
}

/// Estimates the length of the line of an event. Allocating megabytes at once avoids repeated doubling, which would
/// temporarily use twice the memory.
fn estimated_bytes(kind: &EventKind) -> usize {
    const FRAME: usize = 512;
    let text = match kind {
        EventKind::Said { message, .. }
        | EventKind::RunStarted {
            prompt: message, ..
        } => {
            let parts = message.parts.iter().map(|part| match part {
                Part::Text { text } | Part::Reasoning { text, .. } => text.len(),
                Part::Image { data, .. } => data.len(),
                Part::Result(result) => result.text.len(),
                Part::Call(_) => 0,
            });
            parts.sum()
        }
        EventKind::CallFinished { result, .. } => result.text.len(),
        _ => 0,
    };
    // Newlines and quotes take two bytes in JSON; an additional eighth is enough for most texts.
    FRAME + text + text / 8
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
