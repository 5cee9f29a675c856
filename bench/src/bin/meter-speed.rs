//! Measures what the meter adds between an agent and its model, compared with a plain relay of the same bytes; each
//! runs on its own thread, in turn. Prints `first METER RELAY`, the milliseconds from a request to the first byte of
//! its answer, and `second METER RELAY`, the milliseconds of processor time per second for 2 MB of events.

#![allow(clippy::print_stdout)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use windlass_bench::exchange::{closed, open_request};
use windlass_bench::flags::Flags;
use windlass_bench::meter_stubs::{PortEnclosure, UnlimitedLedger};
use windlass_bench::wire::{Flood, ModelProtocol};
use windlass_core::CancellationToken;
use windlass_meter::{Endpoint as _, Ledger, Meter};
use windlass_providers::{Http, HttpOptions, ProviderOptions, WireProvider, vendor};
use windlass_scripted::http::{self, Loopback};

/// The size of a request that agents send with a short prompt, in bytes.
const REQUEST: usize = 50_000;
/// The length of a stream, the interval of its pieces, and their size in bytes: 2 MB per second.
const STREAM: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(5);
const PIECE: usize = 10_000;

fn main() -> Result<()> {
    let flags = Flags::from_env(&["--times", "--streams"])?;
    let model = model()?;
    let address: SocketAddr = model.url.trim_start_matches("http://").parse()?;
    let (meter, relay) = (MeterOrRelay::meter(address)?, MeterOrRelay::relay(address)?);
    let (mut to_meter, mut to_relay) = (BenchAgent::connect(&meter)?, BenchAgent::connect(&relay)?);
    for nth in 0..flags.get("--times")?.unwrap_or(100) + 3 {
        let (ours, floor) = (to_meter.ask("short")?.0, to_relay.ask("short")?.0);
        // The first requests open connections.
        if nth >= 3 {
            println!("first {} {}", ms(ours), ms(floor));
        }
    }
    for _ in 0..flags.get("--streams")?.unwrap_or(3) {
        let ours = meter.cpu_during(|| to_meter.ask("long"))?;
        let floor = relay.cpu_during(|| to_relay.ask("long"))?;
        println!("second {ours} {floor}");
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A meter or a relay between the agent and its model, on its own thread.
struct MeterOrRelay {
    address: SocketAddr,
    key: String,
    /// Asks for the processor time of the thread.
    cpu: tokio::sync::mpsc::UnboundedSender<mpsc::Sender<Duration>>,
}

type CpuQuestions = tokio::sync::mpsc::UnboundedReceiver<mpsc::Sender<Duration>>;

impl MeterOrRelay {
    fn meter(model: SocketAddr) -> Result<Self> {
        let http = Http::new(&HttpOptions::default())?;
        let options = ProviderOptions {
            base_url: Some(format!("http://{model}")),
            key: Some("real".to_owned().into()),
            ..ProviderOptions::new(http)
        };
        let upstream = WireProvider::new(*vendor("anthropic").context("no such vendor")?, options)?;
        let meter = Meter::new(vec![Arc::new(upstream)], Arc::new(|_| None), false)?;
        let key = meter.key();
        Self::start(key, move |listener, asked| async move {
            let books = UnlimitedLedger;
            let ledger = Ledger {
                account: &books,
                sink: &books,
            };
            let (enclosure, done) = (PortEnclosure(listener), CancellationToken::new());
            let _ = tokio::join!(
                meter.serve(&enclosure, ledger, &done),
                answer(asked, done.clone())
            );
        })
    }

    fn relay(model: SocketAddr) -> Result<Self> {
        Self::start("any".to_owned(), move |listener, asked| async move {
            let done = CancellationToken::new();
            let relay = async {
                while let Ok((mut agent, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        let Ok(mut model) = tokio::net::TcpStream::connect(model).await else {
                            return;
                        };
                        let nodelay = agent.set_nodelay(true).and(model.set_nodelay(true));
                        if nodelay.is_ok() {
                            // A broken connection is no error here.
                            let _ = tokio::io::copy_bidirectional(&mut agent, &mut model).await;
                        }
                    });
                }
            };
            tokio::select! {
                () = relay => {}
                () = answer(asked, done.clone()) => {}
            }
        })
    }

    fn start<F, W>(key: String, work: F) -> Result<Self>
    where
        F: FnOnce(tokio::net::TcpListener, CpuQuestions) -> W + Send + 'static,
        W: Future<Output = ()>,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (cpu, asked) = tokio::sync::mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::spawn(move || {
            runtime.block_on(async {
                if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                    work(listener, asked).await;
                }
            });
        });
        Ok(Self { address, key, cpu })
    }

    fn cpu(&self) -> Result<Duration> {
        let (answer, answered) = mpsc::channel();
        self.cpu.send(answer).ok().context("the thread is gone")?;
        Ok(answered.recv()?)
    }

    /// Returns milliseconds of processor time per second of the work.
    fn cpu_during(&self, work: impl FnOnce() -> Result<(Duration, usize)>) -> Result<f64> {
        let (before, began) = (self.cpu()?, Instant::now());
        let (_, read) = work()?;
        let took = began.elapsed().as_secs_f64();
        ensure!(
            read as f64 / took > 1.6e6,
            "only {read} bytes came in {took:.2} s"
        );
        Ok(ms(self.cpu()? - before) / took)
    }
}

/// Answers each question with the processor time of this thread.
async fn answer(mut asked: CpuQuestions, done: CancellationToken) {
    while let Some(to) = asked.recv().await {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        let _ = to.send(Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            nanos,
        ));
    }
    done.cancel();
}

/// An agent with one keep-alive connection.
struct BenchAgent {
    to: TcpStream,
    from: BufReader<TcpStream>,
    key: String,
}

impl BenchAgent {
    fn connect(server: &MeterOrRelay) -> Result<Self> {
        let to = TcpStream::connect(server.address)?;
        to.set_nodelay(true)?;
        Ok(Self {
            from: BufReader::with_capacity(64 << 10, to.try_clone()?),
            to,
            key: server.key.clone(),
        })
    }

    /// Sends a request; returns the time to the first byte of the answer, and its size.
    fn ask(&mut self, what: &str) -> Result<(Duration, usize)> {
        let body = closed(&open_request(REQUEST));
        let mut request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {}\r\nuser-agent: {what}\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n",
            self.key,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        let began = Instant::now();
        self.to.write_all(&request)?;
        ensure!(
            !self.from.fill_buf()?.is_empty(),
            "the connection was closed"
        );
        let first = began.elapsed();
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(line.contains(" 200 "), "the answer was {line}");
        while !line.trim().is_empty() {
            line.clear();
            self.from.read_line(&mut line)?;
        }
        let mut read = 0;
        loop {
            line.clear();
            self.from.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16)
                .with_context(|| format!("`{line}` is no size"))?;
            let mut piece = vec![0; size + 2];
            self.from.read_exact(&mut piece)?;
            read += size;
            if size == 0 {
                return Ok((first, read));
            }
        }
    }
}

/// Starts a model server. The user agent chooses between a short answer and a stream at a steady pace.
fn model() -> Result<Loopback> {
    let flood = Flood::new(ModelProtocol::Messages, 10, Flood::BLOCK);
    let end = flood.block[..PIECE].rfind("\n\n");
    let piece = http::chunk(&flood.block[..end.context("a block has no events")? + 2]);
    let begin = [
        http::stream_head(200, http::EVENT_STREAM),
        http::chunk(&flood.start),
    ]
    .concat();
    let rest = [http::chunk(&flood.end), http::LAST_CHUNK.to_vec()].concat();
    let server = Loopback::start(0, move |out, request, _| {
        out.write_all(&begin)?;
        if request
            .header("user-agent")
            .is_some_and(|agent| agent.starts_with("long"))
        {
            let began = Instant::now();
            for nth in 1.. {
                out.write_all(&piece)?;
                let due = TICK * nth;
                if due >= STREAM {
                    break;
                }
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
        out.write_all(&rest)
    })?;
    Ok(server)
}
