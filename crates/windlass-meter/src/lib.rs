//! The model endpoint of an agent that is not ours. It speaks the agent's own protocol on one side and the vendor's on
//! the other, holds the real key, and reserves, counts and prices every call on its way (decisions 7 and 9). What does
//! not fit the limits of the run is refused before it is sent, in words that the agent understands.
//!
//! A tour in the order of one request: `route` says where it goes, `ask` what is asked, `beyond` what is not
//! passed on of it, `forward` reserves it, `passage` passes on the rest, `tee` reads the answer in passing, `desk` keeps the books, and
//! `dialect` knows how to say no.

mod ask;
mod beyond;
mod desk;
mod dialect;
mod endpoint;
mod forward;
mod passage;
mod route;
mod tee;
#[cfg(test)]
mod tests;

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
use windlass_core::enclosure::{Enclosure, Wire};
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::store::StoreError;
use windlass_core::{BoxFuture, CancellationToken};
use windlass_providers::WireProvider;

pub use self::endpoint::{Endpoint, Ledger, Trip};

use self::desk::Desk;
use self::forward::Shop;

/// Connections at once; further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// The largest head of a request.
const MAX_HEAD: usize = 256 << 10;
/// How long a connection may say nothing between two requests, or take for the head of one.
const HEAD: Duration = Duration::from_secs(120);
/// How long the last answer may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Connections in a row that cannot be taken.
const MAX_REFUSED: u32 = 16;
/// Bytes of chance in the key of a run.
const KEY: usize = 24;

/// The price that somebody set for a model.
pub type PriceOf = Arc<dyn Fn(&str) -> Option<Price> + Send + Sync>;

/// Counts what a foreign agent spends.
pub struct Meter {
    key: String,
    upstreams: Vec<Arc<WireProvider>>,
    prices: PriceOf,
    cost_is_explicit: bool,
    /// What requests take in memory.
    room: Semaphore,
    desk: Arc<Desk>,
}

impl Meter {
    /// A meter in front of these vendors. A request goes to the first that understands it. `prices` is what the
    /// configuration says of a model; where it says nothing, the vendor's table counts. With a cost limit that somebody
    /// set, a model without a price is refused.
    pub fn new(
        upstreams: Vec<Arc<WireProvider>>,
        prices: PriceOf,
        cost_is_explicit: bool,
    ) -> std::io::Result<Self> {
        let mut chance = [0; KEY];
        getrandom::fill(&mut chance).map_err(std::io::Error::other)?;
        let chance: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        // Some agents look at the beginning of a key; nobody takes this one for a real one.
        let key = format!("sk-windlass-placeholder-{chance}");
        let room = Semaphore::new(forward::ROOM);
        Ok(Self {
            key,
            upstreams,
            prices,
            cost_is_explicit,
            room,
            desk: Arc::default(),
        })
    }
}

/// Takes connections and answers them, until nothing more is served and the agent knows.
async fn serve<'a>(
    shop: &Shop<'a>,
    mut passages: mpsc::UnboundedReceiver<BoxFuture<'a, ()>>,
    place: &dyn Enclosure,
) -> Trip {
    let desk = &shop.meter.desk;
    let (mut connections, mut passing) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut accepting = place.accept();
    let mut refused = 0;
    let mut last_words = std::pin::pin!(None);
    loop {
        tokio::select! {
            biased;
            Some(passage) = passages.recv() => passing.push(passage),
            Some(()) = passing.next(), if !passing.is_empty() => {}
            Some(was_last) = connections.next(), if !connections.is_empty() => {
                if let (true, Some(trip)) = (was_last, desk.trip()) {
                    return trip;
                }
            }
            () = desk.stopped.notified(), if last_words.is_none() => {
                last_words.set(desk.trip().map(|_| tokio::time::sleep(LAST_WORDS)));
            }
            () = over(last_words.as_mut()) => if let Some(trip) = desk.trip() { return trip },
            taken = &mut accepting, if connections.len().max(passing.len()) < MAX_CONNECTIONS => {
                accepting = place.accept();
                match taken {
                    Ok(wire) => {
                        refused = 0;
                        connections.push(connection(shop, wire));
                    }
                    Err(err) if refused >= MAX_REFUSED => return Trip::Provider(unreachable_endpoint(&err)),
                    Err(_) => refused += 1,
                }
            }
        }
    }
}

/// When the time is over, where one was set.
async fn over(time: Pin<&mut Option<tokio::time::Sleep>>) {
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
            self.desk.reopen();
            let mut clerk = std::pin::pin!(self.desk.clerk(ledger));
            let (passages, queue) = mpsc::unbounded_channel();
            let shop = Shop {
                meter: self,
                ledger,
                passages,
            };
            let trip = tokio::select! {
                biased;
                () = done.cancelled() => None,
                trip = serve(&shop, queue, place) => Some(trip),
                booked = &mut clerk => return booked.map(|()| self.desk.trip()),
            };
            self.desk.close();
            clerk.await?;
            Ok(trip.or_else(|| self.desk.trip()))
        })
    }

    fn failing(&self) -> Option<ProviderError> {
        self.desk.failing()
    }

    fn declined(&self) -> bool {
        self.desk.declined()
    }

    fn take_usage(&self) -> Usage {
        self.desk.take_usage()
    }
}

/// One connection to its end; whether nothing more is served after it.
async fn connection(shop: &Shop<'_>, wire: Box<dyn Wire>) -> bool {
    let last = AtomicBool::new(false);
    let service = service_fn(|request| {
        let answer: BoxFuture<'_, _> = Box::pin(async {
            Ok::<_, std::convert::Infallible>(shop.answer(request, &last).await)
        });
        answer
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD);
    // A connection that breaks is the agent's business; what it began to use is counted when its answer is dropped.
    let _ = server.serve_connection(TokioIo::new(wire), service).await;
    last.load(Ordering::Relaxed)
}

fn unreachable_endpoint(err: &std::io::Error) -> ProviderError {
    let message = format!("connections of the agent to its model endpoint cannot be taken: {err}");
    ProviderError {
        kind: ProviderErrorKind::Network {
            transient: false,
            sent: false,
        },
        message,
        status: None,
    }
}
