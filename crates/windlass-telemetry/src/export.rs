//! What waits to be sent, and its way out: batches in the background through a port. Whatever the other side does, a run
//! is neither held up nor failed by it: what finds no room is dropped and counted, what is not taken is not sent again,
//! and trouble is told once.

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

/// Spans that wait.
const MAX_SPANS: usize = 2_048;
/// Bytes of spans that wait.
const MAX_BYTES: usize = 16 << 20;
/// Spans of one request.
const BATCH: usize = 256;
/// Bytes of one request, about.
const BATCH_BYTES: usize = 1 << 20;
/// So often something is sent while a run is going.
const EVERY: Duration = Duration::from_secs(5);

/// What a request is about; each has an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Sums.
    Metrics,
}

impl Signal {
    /// What is added to the address of a collector.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
        }
    }
}

/// The way to a collector.
pub trait Post: Send + Sync {
    /// Sends one request of OTLP/JSON. The error says in words what happened, without a secret.
    fn post<'a>(&'a self, signal: Signal, body: Vec<u8>) -> BoxFuture<'a, Result<(), String>>;
}

/// Keeps what is to be sent and sends it.
pub struct Exporter {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    post: Arc<dyn Post>,
    resource: Resource,
    queue: Mutex<Queue>,
    wake: Notify,
    /// Whoever holds it sends; one at a time.
    sending: AsyncMutex<()>,
}

#[derive(Default)]
struct Queue {
    spans: VecDeque<Span>,
    bytes: usize,
    meter: Meter,
    dropped: u64,
    trouble: Option<String>,
    told: bool,
    /// The other side once took all the time it was given.
    slow: bool,
}

impl Exporter {
    /// Starts sending in the background, on the runtime of whoever calls.
    #[must_use]
    pub fn start(post: Arc<dyn Post>, resource: Resource) -> Self {
        let shared = Arc::new(Shared {
            post,
            resource,
            queue: Mutex::default(),
            wake: Notify::new(),
            sending: AsyncMutex::new(()),
        });
        let task = tokio::spawn({
            let shared = shared.clone();
            async move {
                loop {
                    let _ = tokio::time::timeout(EVERY, shared.wake.notified()).await;
                    shared.send_all().await;
                }
            }
        });
        Self { shared, task }
    }

    /// Takes what came to its end. Never waits.
    pub fn give(&self, finished: Finished) {
        let mut queue = self.shared.queue.lock();
        for point in finished.points {
            queue.meter.add(point);
        }
        for span in finished.spans {
            let weight = span.weight();
            if queue.spans.len() >= MAX_SPANS || queue.bytes + weight > MAX_BYTES {
                queue.dropped += 1;
                queue
                    .trouble
                    .get_or_insert_with(|| "more came than could be sent".to_owned());
                continue;
            }
            queue.bytes += weight;
            queue.spans.push_back(span);
        }
        if queue.spans.len() >= BATCH || queue.bytes >= BATCH_BYTES {
            self.shared.wake.notify_one();
        }
    }

    /// Sends what waits, for at most this long. Gives what went wrong, the first time something did.
    pub async fn flush(&self, limit: Duration) -> Option<String> {
        if self.shared.queue.lock().slow {
            // Who let us wait in vain once does not hold up the end of every run.
            self.shared.wake.notify_one();
        } else if let Err(_late) = tokio::time::timeout(limit, self.shared.send_all()).await {
            let mut queue = self.shared.queue.lock();
            queue.slow = true;
            let seconds = limit.as_secs_f32();
            let why = format!("the collector did not answer within {seconds} s");
            queue.trouble.get_or_insert(why);
        }
        let mut queue = self.shared.queue.lock();
        let trouble = queue.trouble.take().filter(|_| !queue.told)?;
        queue.told = true;
        let lost = queue.dropped + queue.spans.len() as u64;
        Some(format!("{trouble} ({lost} spans not delivered)"))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
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
            // Counted as lost until they have arrived: this may be dropped half way.
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
                queue.trouble.get_or_insert(why);
                // Not asked again and again in one go.
                return;
            }
        }
    }
}

impl Queue {
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
