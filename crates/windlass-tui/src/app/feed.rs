//! The events of the session. A task reads them and joins deltas that arrived together, so that the interface applies and
//! draws a batch at once.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass::core::event::{Event, EventKind};

use super::{App, now_ms};
use crate::backend::{EventSource, OperationError, SourceItem};

/// Batches that wait for the interface.
const WAITING: usize = 8;
/// Items of a batch.
const BATCH: usize = 512;
/// The longest text of joined deltas, in bytes.
const MAX_JOINED: usize = 64 << 10;

/// Items that arrived together.
pub(super) enum Batch {
    Items(Vec<SourceItem>),
    /// The stream ended.
    Ended(Option<OperationError>),
}

/// Reads events until it is dropped.
pub(super) struct EventPump {
    batches: mpsc::Receiver<Batch>,
    task: JoinHandle<()>,
}

impl Drop for EventPump {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EventPump {
    pub(super) fn start(mut source: EventSource) -> Self {
        let (to, batches) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            loop {
                let batch = read_batch(&mut source).await;
                let ended = matches!(batch, Batch::Ended(_));
                if to.send(batch).await.is_err() || ended {
                    return;
                }
            }
        });
        Self { batches, task }
    }
}

/// Waits for the next batch; for ever without a session.
pub(super) async fn next_batch(pump: &mut Option<EventPump>) -> Batch {
    match pump {
        Some(pump) => match pump.batches.recv().await {
            Some(batch) => batch,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn read_batch(source: &mut EventSource) -> Batch {
    let mut items = Vec::new();
    let mut next = match source.next().await {
        Ok(Some(item)) => Some(item),
        Ok(None) => return Batch::Ended(None),
        Err(err) => return Batch::Ended(Some(err)),
    };
    while let Some(item) = next.take() {
        add(&mut items, item);
        if items.len() >= BATCH {
            break;
        }
        // Only items that are ready. An error is found again by the next read.
        next = match source.next().now_or_never() {
            Some(Ok(item)) => item,
            _ => None,
        };
    }
    Batch::Items(items)
}

/// Adds an item. A delta is joined to a delta of the same content before it.
fn add(items: &mut Vec<SourceItem>, item: SourceItem) {
    if let (Some(SourceItem::Event(last)), SourceItem::Event(event)) = (items.last_mut(), &item)
        && joined(last, event)
    {
        return;
    }
    items.push(item);
}

fn joined(last: &mut Event, event: &Event) -> bool {
    match (&mut last.kind, &event.kind) {
        (
            EventKind::Delta { of, text },
            EventKind::Delta {
                of: other,
                text: more,
            },
        ) if of == other && text.len() + more.len() <= MAX_JOINED => {
            text.push_str(more);
            true
        }
        _ => false,
    }
}

impl App {
    /// Applies a batch of events.
    pub(super) fn apply(&mut self, batch: Batch) {
        let items = match batch {
            Batch::Items(items) => items,
            Batch::Ended(error) => {
                self.feed = None;
                if let Some(error) = error {
                    self.warn(format!("the events of the session ended: {error}"));
                }
                return;
            }
        };
        for item in items {
            match item {
                SourceItem::Gap => self.conversation.lost_live_events(),
                SourceItem::Event(event) => {
                    self.conversation.apply(&event);
                    self.after_event(&event);
                }
            }
        }
        self.show_asks();
    }

    fn after_event(&mut self, event: &Event) {
        self.alert(event);
        match &event.kind {
            EventKind::RunFinished(_) => {
                self.queues = false;
                self.facts.branch = super::reports::branch(&self.options.workspace);
                if let Some(files) = self.composer.files_mut() {
                    files.refresh();
                }
                self.read_window();
            }
            _ => {}
        }
    }

    /// Calls the user back, unless the window has the focus or the user typed something a moment ago.
    fn alert(&mut self, event: &Event) {
        let Some(alert) = &self.options.alert else {
            return;
        };
        let idle = now_ms()
            .saturating_sub(self.last_key_ms)
            .max(0)
            .unsigned_abs();
        // A terminal that does not report the focus never says that it lost it.
        let idle = match self.focus {
            Some(true) => return,
            Some(false) => Duration::MAX,
            None => Duration::from_millis(idle),
        };
        if let Some(sequence) = alert.text(event, idle) {
            self.screen.alert(&sequence);
        }
    }
}
