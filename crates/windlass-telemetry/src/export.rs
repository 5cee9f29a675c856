//! Queues spans and measurements and sends them in batches in the background through a port. The collector can neither
//! delay nor fail a run: if the queue is full, spans are dropped and counted, a failed request is not retried, and an
//! error is reported once.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinHandle;
use windlass_core::BoxFuture;

use crate::fold::Finished;
use crate::metric::Meter;
use crate::otlp::{self, Resource};
use crate::span::Span;

/// The maximum number of queued spans.
const MAX_SPANS: usize = 2_048;
/// The maximum size of all queued spans, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The maximum number of spans in one request.
const BATCH: usize = 256;
/// The approximate maximum size of one request, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// The interval between requests during a run.
const EVERY: Duration = Duration::from_secs(5);

/// The kinds of requests; each has its own URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A request with spans.
    Traces,
    /// A request with sums and histograms.
    Metrics,
}

impl Signal {
    /// The path that is appended to the URL of a collector.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
        }
    }
}

/// The port that sends requests to a collector.
pub trait Post: Send + Sync {
    /// Sends one OTLP/JSON request. The error is a message for the user and contains no secret.
    fn post<'a>(&'a self, signal: Signal, body: Vec<u8>) -> BoxFuture<'a, Result<(), String>>;
}

/// Queues spans and measurements and sends them in the background.
pub struct Exporter {
    state: Arc<ExporterState>,
    task: JoinHandle<()>,
}

struct ExporterState {
    post: Arc<dyn Post>,
    resource: Resource,
    queue: Mutex<ExportQueue>,
    wake: Notify,
    /// Held while sending, so that only one task sends at a time.
    sending: AsyncMutex<()>,
}

#[derive(Default)]
struct ExportQueue {
    spans: VecDeque<Span>,
    bytes: usize,
    meter: Meter,
    dropped: u64,
    error: Option<String>,
    reported: bool,
    /// The collector did not answer within the limit of the last flush.
    slow: bool,
}

impl Exporter {
    /// Starts sending in the background, on the tokio runtime of the caller.
    #[must_use]
    pub fn start(post: Arc<dyn Post>, resource: Resource) -> Self {
        let state = Arc::new(ExporterState {
            post,
            resource,
            queue: Mutex::default(),
            wake: Notify::new(),
            sending: AsyncMutex::new(()),
        });
        let task = tokio::spawn({
            let state = state.clone();
            async move {
                loop {
                    let _ = tokio::time::timeout(EVERY, state.wake.notified()).await;
                    state.send_all().await;
                }
            }
        });
        Self { state, task }
    }

    /// Queues spans and measurements. Never blocks.
    pub fn give(&self, finished: Finished) {
        let mut queue = self.state.queue.lock();
        for point in finished.points {
            queue.meter.add(point);
        }
        for span in finished.spans {
            let weight = span.weight();
            if queue.spans.len() >= MAX_SPANS || queue.bytes + weight > MAX_BYTES {
                queue.dropped += 1;
                queue
                    .error
                    .get_or_insert_with(|| "the queue was full".to_owned());
                continue;
            }
            queue.bytes += weight;
            queue.spans.push_back(span);
        }
        if queue.spans.len() >= BATCH || queue.bytes >= BATCH_BYTES {
            self.state.wake.notify_one();
        }
    }

    /// Sends everything in the queue, for at most `limit`. Returns the first error of this exporter, once.
    pub async fn flush(&self, limit: Duration) -> Option<String> {
        if self.state.queue.lock().slow {
            // The collector timed out before, so the end of this run does not wait for it again.
            self.state.wake.notify_one();
        } else if let Err(_late) = tokio::time::timeout(limit, self.state.send_all()).await {
            let mut queue = self.state.queue.lock();
            queue.slow = true;
            let seconds = limit.as_secs_f32();
            let why = format!("the collector did not answer within {seconds} s");
            queue.error.get_or_insert(why);
        }
        let mut queue = self.state.queue.lock();
        let error = queue.error.take().filter(|_| !queue.reported)?;
        queue.reported = true;
        let lost = queue.dropped + queue.spans.len() as u64;
        Some(format!("{error} ({lost} spans not delivered)"))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ExporterState {
    async fn send_all(&self) {
        let _one = self.sending.lock().await;
        loop {
            let (spans, series) = {
                let mut queue = self.queue.lock();
                (queue.batch(), queue.meter.take())
            };
            if spans.is_empty() && series.is_empty() {
                return;
            }
            let count = spans.len() as u64;
            // The spans count as lost until they have arrived, because this future may be dropped at the next await.
            self.queue.lock().dropped += count;
            let mut sent = Ok(());
            if !spans.is_empty() {
                let body = otlp::traces(&self.resource, &spans).to_string();
                drop(spans);
                sent = self.post.post(Signal::Traces, body.into_bytes()).await;
            }
            if sent.is_ok() {
                self.queue.lock().dropped -= count;
            }
            if !series.is_empty() {
                let body = otlp::metrics(&self.resource, &series).to_string();
                sent = sent.and(self.post.post(Signal::Metrics, body.into_bytes()).await);
            }
            let mut queue = self.queue.lock();
            queue.slow &= sent.is_err();
            if let Err(why) = sent {
                queue.error.get_or_insert(why);
                // Do not send the next batch right away to a collector that just failed.
                return;
            }
        }
    }
}

impl ExportQueue {
    fn batch(&mut self) -> Vec<Span> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(span) = self.spans.pop_front() else {
                break;
            };
            bytes += span.weight();
            batch.push(span);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        batch
    }
}
