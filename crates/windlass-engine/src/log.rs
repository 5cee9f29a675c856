//! The one place where events get their number, are written and are shown: log first, show second.
//! After a failed write or sync nothing more is written; what was written stays.

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
use crate::load::MAX_HISTORY;

/// A session's log while somebody writes it.
pub(crate) struct Log {
    session: SessionId,
    clock: Arc<dyn Clock>,
    writer: AsyncMutex<Writer>,
    history: Mutex<History>,
    durable: Arc<Durable>,
    live: AtomicU32,
    redactor: Arc<dyn Redactor>,
}

struct Writer {
    port: Box<dyn LogWriter>,
    line: String,
    broken: Option<StoreError>,
}

/// Whose events these are and who looks at them.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) run: Option<RunId>,
    pub(crate) trace: TraceId,
    pub(crate) view: Option<View>,
}

/// The way to the one who watches a run. Bounded: a durable fact waits for room, a live one is dropped instead.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) to: mpsc::Sender<Event>,
    pub(crate) live: bool,
    /// The run was told to end.
    pub(crate) gone: CancellationToken,
    /// It did not read for too long after that.
    pub(crate) lost: Arc<AtomicBool>,
}

/// Room in the view's queue that only durable facts use.
const RESERVED: usize = 512;
/// How long a run that was told to end waits for a view to read.
const PATIENCE: Duration = Duration::from_secs(5);

impl Log {
    pub(crate) fn new(
        session: SessionId,
        clock: Arc<dyn Clock>,
        port: Box<dyn LogWriter>,
        history: History,
        redactor: Arc<dyn Redactor>,
    ) -> Self {
        let durable = Arc::new(Durable::new(history.last_seq()));
        let writer = Writer {
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

    /// Takes the secrets out of a durable fact, numbers, writes, folds and shows it. The log is what the model saw.
    pub(crate) async fn emit(&self, scope: &Scope, mut kind: EventKind) -> Result<u64, StoreError> {
        clean_event(self.redactor(), &mut kind);
        let mut writer = self.writer.lock().await;
        self.usable(&writer)?;
        let seq = self.durable.written() + 1;
        let event = self.event(scope, Order::Durable { seq }, kind);
        // Should this future be dropped half way, nobody knows what was written: nothing may follow it.
        writer.broken = Some(StoreError::new(
            StoreErrorKind::Io,
            "the log was left in the middle of an event",
        ));
        if let Err(err) = writer.append(&event).await {
            tracing::error!(session = %self.session, seq, kind = ?err.kind, "an event was not written");
            // A full disk took nothing, and may have room again: the number is free for the next event.
            writer.broken = (err.kind != StoreErrorKind::Full).then(|| err.clone());
            return Err(err);
        }
        writer.broken = None;
        tracing::debug!(session = %self.session, seq, kind = event.kind.name(), "event");
        self.durable.wrote(seq);
        self.live.store(0, Ordering::Release);
        self.with_history(|history| history.apply(&event));
        // Still under the writer's lock, so that views see the order of the log.
        self.show_durable(scope, event).await;
        Ok(seq)
    }

    /// Shows a fact that could not be written: the terminal event of a run whose store failed.
    pub(crate) async fn show_unwritten(&self, scope: &Scope, mut kind: EventKind) {
        clean_event(self.redactor(), &mut kind);
        let after = self.durable.written();
        let n = self.live.fetch_add(1, Ordering::AcqRel) + 1;
        let event = self.event(scope, Order::Live { after, n }, kind);
        self.show_durable(scope, event).await;
    }

    /// Shows a live fact; dropped when the view has no room.
    pub(crate) fn show_live(&self, scope: &Scope, kind: EventKind) {
        let Some(view) = scope.view.as_ref().filter(|view| view.live) else {
            return;
        };
        // Live facts leave room: a slow view must not lose the durable ones behind them.
        if view.to.capacity() <= RESERVED {
            return;
        }
        let after = self.durable.written();
        let n = self.live.fetch_add(1, Ordering::AcqRel) + 1;
        let _ = view
            .to
            .try_send(self.event(scope, Order::Live { after, n }, kind));
    }

    /// Returns when everything emitted before the call survives a power cut. Others go on emitting meanwhile, and all who
    /// wait at the same time share one sync.
    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        match self.begin_sync().await? {
            Some((upto, sync)) => self.durable.settle(upto, sync).await,
            None => Ok(()),
        }
    }

    /// Lets everything emitted so far become durable behind what is done next. A failure is seen by the next emit or
    /// sync, as if it had failed there.
    pub(crate) async fn sync_behind(&self) -> Result<(), StoreError> {
        // The task holds neither the log nor the lease in it: whoever closes the session frees it at once.
        if let Some((upto, sync)) = self.begin_sync().await? {
            let durable = Arc::clone(&self.durable);
            drop(tokio::spawn(
                async move { durable.settle(upto, sync).await },
            ));
        }
        Ok(())
    }

    /// A sync that was not begun yet, and the last event it is for; none when that is durable already.
    async fn begin_sync(
        &self,
    ) -> Result<Option<(u64, BoxFuture<'static, Result<(), StoreError>>)>, StoreError> {
        let mut writer = self.writer.lock().await;
        self.usable(&writer)?;
        let upto = self.durable.written();
        Ok((!self.durable.covers(upto)).then(|| (upto, writer.port.sync())))
    }

    /// Saves a snapshot where the log has grown enough for one and no run is open.
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

    fn usable(&self, writer: &Writer) -> Result<(), StoreError> {
        writer.broken.clone().map_or(Ok(()), Err)?;
        self.durable.check()
    }

    pub(crate) fn entries(&self) -> Arc<Vec<Entry>> {
        self.with_history(|history| history.entries())
    }

    pub(crate) fn with_history<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut self.history.lock())
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
        // A view that is slow is waited for, but it must not hold a run that was told to end for ever: whoever wants
        // what it then misses reads the log.
        let given_up = async {
            view.gone.cancelled().await;
            self.clock.sleep(PATIENCE).await;
        };
        tokio::select! {
            biased;
            _ = view.to.send(event) => {}
            () = given_up => view.lost.store(true, Ordering::Relaxed),
        }
    }
}

impl Writer {
    async fn append(&mut self, event: &Event) -> Result<(), StoreError> {
        // The buffer is used again for every line; a huge one is not kept.
        let mut bytes = std::mem::take(&mut self.line).into_bytes();
        bytes.clear();
        bytes.reserve(likely_bytes(&event.kind));
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

/// About how long the line of an event gets. Room for megabytes is taken once instead of doubling up to it, which
/// would hold twice as much for a moment.
fn likely_bytes(kind: &EventKind) -> usize {
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
    // Line ends and quotes take two bytes in JSON; an eighth more holds most text.
    FRAME + text + text / 8
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
