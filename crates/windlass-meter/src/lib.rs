//! The model endpoint of an agent that is not built in. The agent sends its model requests here instead of to the
//! vendor. The meter adds the real key, reserves, counts and prices every call, and passes the request on (decisions 7
//! and 9). It refuses a request that does not fit the limits of the run before it is sent, with an error that the agent
//! understands.
//!
//! The modules, in the order of one request: `route` finds out where it goes, `model_request` parses it,
//! `vendor_actions` removes what must not be passed on, `handler` reserves the call, `forwarded_call` sends it, `tee`
//! reads the usage from the answer while it streams back, and `billing` books the call. `dialect` formats errors in the
//! agent's protocol.

mod billing;
mod dialect;
mod endpoint;
mod forwarded_call;
mod handler;
mod model_request;
mod route;
mod tee;
#[cfg(test)]
mod tests;
mod vendor_actions;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, mpsc};
use windlass_core::budget::{Price, Usage};
use windlass_core::enclosure::{AgentConnection, Enclosure};
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::store::StoreError;
use windlass_core::{BoxFuture, CancellationToken};
use windlass_providers::WireProvider;

pub use self::endpoint::{Endpoint, Ledger, Trip};

use self::billing::BillingQueue;
use self::handler::RequestHandler;

/// The most connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// The largest request head, in bytes.
const MAX_HEAD: usize = 256 << 10;
/// The timeout for the head of a request, and for the pause before it on an open connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The time that the last answer may take to reach the agent.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The most consecutive connections that fail to be accepted.
const MAX_REFUSED: u32 = 16;
/// Random bytes in the key of a run.
const KEY_BYTES: usize = 24;

/// Looks up the price that the settings set for a model.
pub type PriceOf = Arc<dyn Fn(&str) -> Option<Price> + Send + Sync>;

/// Counts what an agent that is not built in spends.
pub struct Meter {
    key: String,
    upstreams: Vec<Arc<WireProvider>>,
    prices: PriceOf,
    cost_is_explicit: bool,
    /// Bounds the memory of request bodies.
    body_memory: Semaphore,
    billing: Arc<BillingQueue>,
}

impl Meter {
    /// Creates a meter in front of these vendors. A request goes to the first one that speaks its protocol. `prices`
    /// returns the price from the settings; without one the vendor's own table applies. If the user set a cost limit
    /// (`cost_is_explicit`), a model without a known price is refused.
    pub fn new(
        upstreams: Vec<Arc<WireProvider>>,
        prices: PriceOf,
        cost_is_explicit: bool,
    ) -> std::io::Result<Self> {
        let mut random = [0; KEY_BYTES];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // Some agents check how a key begins. No vendor accepts this one.
        let key = format!("sk-windlass-placeholder-{random}");
        let body_memory = Semaphore::new(handler::BODY_PERMITS);
        Ok(Self {
            key,
            upstreams,
            prices,
            cost_is_explicit,
            body_memory,
            billing: Arc::default(),
        })
    }
}

/// Accepts and serves connections until no further call is served and the agent has received the last answer.
async fn serve<'a>(
    handler: &RequestHandler<'a>,
    mut forwarded: mpsc::UnboundedReceiver<BoxFuture<'a, ()>>,
    place: &dyn Enclosure,
) -> Trip {
    let billing = &handler.meter.billing;
    let (mut connections, mut passing) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut accepting = place.accept();
    let mut refused = 0;
    let mut last_answer_timer = std::pin::pin!(None);
    loop {
        tokio::select! {
            biased;
            Some(forwarded_call) = forwarded.recv() => passing.push(forwarded_call),
            Some(()) = passing.next(), if !passing.is_empty() => {}
            Some(was_last) = connections.next(), if !connections.is_empty() => {
                if let (true, Some(trip)) = (was_last, billing.trip()) {
                    return trip;
                }
            }
            () = billing.stopped.notified(), if last_answer_timer.is_none() => {
                last_answer_timer.set(billing.trip().map(|_| tokio::time::sleep(LAST_ANSWER_TIMEOUT)));
            }
            () = elapsed(last_answer_timer.as_mut()) => if let Some(trip) = billing.trip() { return trip },
            taken = &mut accepting, if connections.len().max(passing.len()) < MAX_CONNECTIONS => {
                accepting = place.accept();
                match taken {
                    Ok(wire) => {
                        refused = 0;
                        connections.push(connection(handler, wire));
                    }
                    Err(err) if refused >= MAX_REFUSED => return Trip::Provider(unreachable_endpoint(&err)),
                    Err(_) => refused += 1,
                }
            }
        }
    }
}

/// Waits for the timer; without one it waits forever.
async fn elapsed(time: Pin<&mut Option<tokio::time::Sleep>>) {
    match time.as_pin_mut() {
        Some(time) => time.await,
        None => std::future::pending().await,
    }
}

impl Endpoint for Meter {
    fn key(&self) -> String {
        self.key.clone()
    }

    fn serve<'a>(
        &'a self,
        place: &'a dyn Enclosure,
        ledger: Ledger<'a>,
        done: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Trip>, StoreError>> {
        Box::pin(async move {
            self.billing.reopen();
            let mut booking = std::pin::pin!(self.billing.run(ledger));
            let (forwarded, queue) = mpsc::unbounded_channel();
            let handler = RequestHandler {
                meter: self,
                ledger,
                forwarded,
            };
            let trip = tokio::select! {
                biased;
                () = done.cancelled() => None,
                trip = serve(&handler, queue, place) => Some(trip),
                booked = &mut booking => return booked.map(|()| self.billing.trip()),
            };
            self.billing.close();
            booking.await?;
            Ok(trip.or_else(|| self.billing.trip()))
        })
    }

    fn failing(&self) -> Option<ProviderError> {
        self.billing.failing()
    }

    fn declined(&self) -> bool {
        self.billing.declined()
    }

    fn take_usage(&self) -> Usage {
        self.billing.take_usage()
    }
}

/// Serves one connection to its end; returns whether no further call is served.
async fn connection(handler: &RequestHandler<'_>, wire: Box<dyn AgentConnection>) -> bool {
    let last = AtomicBool::new(false);
    let service = service_fn(|request| {
        let answer: BoxFuture<'_, _> = Box::pin(async {
            Ok::<_, std::convert::Infallible>(handler.answer(request, &last).await)
        });
        answer
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD);
    // A broken connection is no error here: a call that was sent is booked when its answer is dropped.
    let _ = server.serve_connection(TokioIo::new(wire), service).await;
    last.load(Ordering::Relaxed)
}

fn unreachable_endpoint(err: &std::io::Error) -> ProviderError {
    let message =
        format!("the agent's connections to its model endpoint cannot be accepted: {err}");
    ProviderError {
        kind: ProviderErrorKind::Network {
            transient: false,
            sent: false,
        },
        message,
        status: None,
    }
}
