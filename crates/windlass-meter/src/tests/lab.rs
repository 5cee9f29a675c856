//! A meter with simple surroundings: an enclosure whose connections are pipes, a ledger with a budget, a vendor on
//! loopback, and an agent that speaks plain HTTP.

use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, mpsc};
use windlass_core::ask::{Answer as PersonsAnswer, Ask};
use windlass_core::budget::{Budget, Limit, Price, Spent, Usage};
use windlass_core::context::WorkRecord;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::runtime::{BudgetAccount, EventSink, Hold};
use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::workspace::{FileError, ProcessError};
use windlass_core::{BoxFuture, CancellationToken};
use windlass_providers::{Http, HttpOptions, ProviderOptions, WireProvider, vendor};
use windlass_scripted::http;
pub(super) use windlass_scripted::{Act, ByteServer};

use super::super::Meter;
use crate::endpoint::{Endpoint as _, Ledger, Trip};

/// An enclosure that can only accept connections.
pub(super) struct PipeEnclosure {
    connections: mpsc::UnboundedSender<DuplexStream>,
    queue: tokio::sync::Mutex<mpsc::UnboundedReceiver<DuplexStream>>,
}

impl PipeEnclosure {
    fn new() -> Self {
        let (connections, queue) = mpsc::unbounded_channel();
        Self {
            connections,
            queue: tokio::sync::Mutex::new(queue),
        }
    }

    /// Opens a connection of the agent.
    pub(super) fn connect(&self) -> DuplexStream {
        let (agent, ours) = tokio::io::duplex(1 << 20);
        self.connections.send(ours).unwrap();
        agent
    }
}

impl Enclosure for PipeEnclosure {
    fn home(&self) -> &Path {
        Path::new("/home")
    }
    fn put(&self, _: &str, _: &[u8]) -> Result<(), FileError> {
        unreachable!("a meter writes nothing")
    }
    fn read(&self, _: &str, _: u64) -> Result<Vec<u8>, FileError> {
        unreachable!("a meter reads nothing")
    }
    fn clear(&self, _: &str) -> Result<(), FileError> {
        Ok(())
    }
    fn endpoint(&self) -> Option<u16> {
        Some(1)
    }
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AgentConnection>>> {
        Box::pin(async {
            let wire = self.queue.lock().await.recv().await;
            wire.map(|wire| Box::new(wire) as Box<dyn AgentConnection>)
                .ok_or_else(|| io::Error::other("closed"))
        })
    }
    fn start(&self, _: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>> {
        unreachable!("a meter starts nothing")
    }
    fn take_refused(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A call as it was booked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Booked {
    pub(super) model: String,
    pub(super) usage: Usage,
    pub(super) price: Option<Price>,
    pub(super) estimated: bool,
}

/// An account and a log in memory.
pub(super) struct TestLedger {
    budget: Budget,
    spent: Mutex<Spent>,
    held: Mutex<Vec<(u64, Spent)>>,
    next: AtomicU64,
    pub(super) booked: Mutex<Vec<Booked>>,
    pub(super) events: Mutex<Vec<EventKind>>,
    pub(super) changed: Notify,
    /// Makes every booking fail.
    pub(super) full: AtomicBool,
}

impl TestLedger {
    fn new(budget: Budget) -> Self {
        Self {
            budget,
            spent: Mutex::default(),
            held: Mutex::default(),
            next: AtomicU64::new(1),
            booked: Mutex::default(),
            events: Mutex::default(),
            changed: Notify::new(),
            full: AtomicBool::new(false),
        }
    }

    /// Returns the number of reservations.
    pub(super) fn holds(&self) -> usize {
        self.held.lock().len()
    }
}

impl BudgetAccount for TestLedger {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    fn spent(&self) -> Spent {
        *self.spent.lock()
    }
    fn exceeded(&self) -> Option<Limit> {
        self.budget.exceeded(&self.spent(), Duration::ZERO)
    }
    fn admit(&self, input: u64, want: u64, price: Option<Price>) -> Result<u64, Limit> {
        self.budget.admit(&self.spent(), input, want, price)
    }
    fn hold(&self, input: u64, want: u64, price: Option<Price>) -> Result<Hold, Limit> {
        let mut held = self.held.lock();
        let mut spent = self.spent();
        held.iter().for_each(|(_, one)| spent.add(one));
        if let Some(limit) = self.budget.exceeded(&spent, Duration::ZERO) {
            return Err(limit);
        }
        let output = self.budget.admit(&spent, input, want, price)?;
        let mut one = Spent {
            steps: 1,
            ..Spent::default()
        };
        one.settle(
            Usage {
                input,
                output,
                ..Usage::default()
            },
            price,
            false,
        );
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        held.push((id, one));
        Ok(Hold { id, output })
    }
    fn release(&self, hold: Hold) {
        let mut held = self.held.lock();
        let before = held.len();
        held.retain(|(id, _)| *id != hold.id);
        assert_eq!(held.len() + 1, before, "a hold is given up exactly once");
    }
    fn settle<'a>(
        &'a self,
        usage: Usage,
        price: Option<Price>,
        estimated: bool,
        model: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::task::yield_now().await; // writing a log takes time
            if self.full.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::Full, "the disk is full"));
            }
            {
                let mut spent = self.spent.lock();
                spent.settle(usage, price, estimated);
                spent.steps += 1;
            }
            self.booked.lock().push(Booked {
                model: model.to_owned(),
                usage,
                price,
                estimated,
            });
            self.changed.notify_waiters();
            Ok(())
        })
    }
}

impl EventSink for TestLedger {
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.events.lock().push(kind);
            Ok(1)
        })
    }
    fn show(&self, _: EventKind) {}
    fn watched(&self) -> bool {
        false
    }
    fn ask(&self, _: Ask) -> BoxFuture<'_, Result<PersonsAnswer, StoreError>> {
        Box::pin(std::future::ready(Ok(PersonsAnswer::Unanswered)))
    }
    fn history(&self) -> Arc<Vec<Entry>> {
        Arc::default()
    }
    fn facts(&self) -> WorkRecord {
        WorkRecord::default()
    }
}

/// A complete HTTP answer of a vendor.
pub(super) fn whole(status: u16, kind: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    http::whole(status, &format!("content-type: {kind}\r\n"), body)
}

/// An answer as server-sent events, in one piece.
pub(super) fn events(body: impl AsRef<[u8]>) -> Vec<u8> {
    whole(200, "text/event-stream", body)
}

/// A vendor that gives the same answer to every request.
pub(super) fn saying(answer: Vec<u8>) -> ByteServer {
    ByteServer::saying(vec![Act::Say(answer)]).unwrap()
}

/// The HTTP answer that the agent received.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl HttpAnswer {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A meter with its enclosure and ledger.
pub(super) struct MeterLab {
    pub(super) meter: Meter,
    pub(super) place: PipeEnclosure,
    pub(super) books: TestLedger,
}

impl MeterLab {
    pub(super) fn new(upstreams: Vec<WireProvider>, budget: Budget) -> Self {
        Self::priced(upstreams, budget, None, false)
    }

    pub(super) fn priced(
        upstreams: Vec<WireProvider>,
        budget: Budget,
        price: Option<Price>,
        cost_is_explicit: bool,
    ) -> Self {
        let upstreams = upstreams.into_iter().map(Arc::new).collect();
        let meter = Meter::new(upstreams, Arc::new(move |_| price), cost_is_explicit).unwrap();
        Self {
            meter,
            place: PipeEnclosure::new(),
            books: TestLedger::new(budget),
        }
    }

    /// Serves while the agent does something.
    pub(super) async fn during<T>(&self, agent: impl Future<Output = T>) -> (T, Option<Trip>) {
        let (said, served) = self.served(agent).await;
        (said, served.unwrap())
    }

    /// Like [`MeterLab::during`], for a log that may fail.
    pub(super) async fn served<T>(
        &self,
        agent: impl Future<Output = T>,
    ) -> (T, Result<Option<Trip>, StoreError>) {
        let done = CancellationToken::new();
        let ledger = Ledger {
            account: &self.books,
            sink: &self.books,
        };
        let working = async {
            let said = agent.await;
            done.cancel();
            said
        };
        let (said, served) = tokio::join!(working, self.meter.serve(&self.place, ledger, &done));
        assert_eq!(
            self.books.holds(),
            0,
            "nothing is held when nobody is served"
        );
        (said, served)
    }

    /// Returns a request with the key of the run, as text.
    pub(super) fn post(&self, path: &str, body: &str) -> String {
        let (key, length) = (self.meter.key(), body.len());
        format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:1\r\nx-api-key: {key}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    /// Sends a request and reads the answer to its end.
    pub(super) async fn ask(&self, request: &str) -> HttpAnswer {
        let mut wire = self.place.connect();
        wire.write_all(request.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        // A cut answer is returned as well.
        let _ = wire.read_to_end(&mut all).await;
        parse(&all)
    }

    /// Makes one call and stops serving.
    pub(super) async fn call(&self, path: &str, body: &str) -> (HttpAnswer, Option<Trip>) {
        self.during(self.ask(&self.post(path, body))).await
    }

    pub(super) fn booked(&self) -> Vec<Booked> {
        self.books.booked.lock().clone()
    }
}

fn parse(all: &[u8]) -> HttpAnswer {
    let at = all
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| {
            panic!("no answer: {:?}", String::from_utf8_lossy(all));
        });
    let head = String::from_utf8_lossy(&all[..at]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let rest = &all[at + 4..];
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    HttpAnswer {
        status,
        head,
        body: if chunked {
            unchunked(rest)
        } else {
            rest.to_vec()
        },
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if size == 0 || rest.len() < at + 2 + size + 2 {
            break;
        }
        body.extend_from_slice(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 2 + size + 2..];
    }
    body
}

/// The real key, which no agent may see.
pub(super) const REAL_KEY: &str = "sk-the-real-one-0123456789";

pub(super) fn client() -> Http {
    Http::new(&HttpOptions::default()).unwrap()
}

/// A vendor's provider at another URL.
pub(super) fn upstream(id: &str, url: &str) -> WireProvider {
    upstream_with(id, url, client())
}

pub(super) fn upstream_with(id: &str, url: &str, http: Http) -> WireProvider {
    let options = ProviderOptions {
        base_url: Some(url.to_owned()),
        key: Some(REAL_KEY.to_owned().into()),
        settings: [("project".to_owned(), "p".to_owned())].into(),
        ..ProviderOptions::new(http)
    };
    WireProvider::new(*vendor(id).unwrap(), options).unwrap()
}
