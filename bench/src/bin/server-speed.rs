//! Measures a server with many sessions and readers. Prints one line of figures per measurement:
//!
//! - `--what health`: `US` microseconds of each `GET /healthz` over one connection; with `--path` of another address.
//! - `--what idle`: `KB CPU`, the memory per idle session and reader in kilobytes, and the percentage of one core.
//! - `--what runs`: `OVERHEAD` milliseconds of each step without the model's delay, then `delay MS` of each event, and
//!   `rate N`, the events per second.
//! - `--what reconnects`: `LOST REPEATED COUNT`, over readers that are cut at random positions.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use windlass_bench::event_stream::{EventStreamParser, SentEvent};
use windlass_bench::flags::Flags;

/// The longest time that a run, or the start of a reader, may take.
const LIMIT: Duration = Duration::from_secs(240);
/// The number of sessions that are created at once.
const AT_ONCE: usize = 32;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let flags = Flags::from_env(&[
        "--what",
        "--url",
        "--path",
        "--token",
        "--pid",
        "--count",
        "--seconds",
        "--model-delay-ms",
    ])?;
    let client = Arc::new(BenchClient::new(&flags)?);
    let count = flags.get("--count")?.unwrap_or(1);
    let what = flags.need::<String>("--what")?;
    let measured = async {
        match what.as_str() {
            "health" => {
                let path = flags.get::<String>("--path")?.unwrap_or("/healthz".into());
                client.health(&path, count).await
            }
            "idle" => client.idle(&flags, count).await,
            "runs" => client.runs(&flags, count).await,
            "reconnects" => client.reconnects(count).await,
            other => anyhow::bail!("`{other}` cannot be measured"),
        }
    };
    tokio::time::timeout(LIMIT, measured)
        .await
        .context("the measurement took too long")?
}

struct BenchClient {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl BenchClient {
    fn new(flags: &Flags) -> Result<Self> {
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            url: flags.need("--url")?,
            token: flags.get("--token")?.unwrap_or_default(),
        })
    }

    async fn health(&self, path: &str, count: usize) -> Result<()> {
        let url = format!("{}{path}", self.url);
        for nth in 0..count + 50 {
            let began = Instant::now();
            let reply = self.http.get(&url).send().await?;
            ensure!(reply.status().is_success(), "{}", reply.status());
            let _ = reply.bytes().await?;
            // The first requests open the connection and load code.
            if nth >= 50 {
                println!("{}", began.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(())
    }

    /// Creates a session with a prompt and returns its id.
    async fn create(&self, prompt: &str) -> Result<String> {
        let reply = self
            .http
            .post(format!("{}/v1/sessions", self.url))
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .body(json!({"prompt": prompt}).to_string())
            .send()
            .await?;
        let status = reply.status();
        let text = reply.text().await?;
        ensure!(status.is_success(), "{status}: {text}");
        let value: Value = serde_json::from_str(&text)?;
        Ok(value["id"]
            .as_str()
            .context("a session without an id")?
            .to_owned())
    }

    async fn follow(&self, session: &str, after: u64) -> Result<EventStreamParser> {
        let reply = self
            .http
            .get(format!(
                "{}/v1/sessions/{session}/events?after={after}",
                self.url
            ))
            .bearer_auth(&self.token)
            .header("accept", "text/event-stream")
            .send()
            .await?;
        ensure!(reply.status().is_success(), "{}", reply.text().await?);
        Ok(EventStreamParser::new(reply.bytes_stream().boxed()))
    }

    /// Creates sessions and waits until the run of each has ended. Returns them with their readers.
    async fn finished_sessions(self: &Arc<Self>, count: usize) -> Result<Vec<EventStreamParser>> {
        let mut readers = Vec::new();
        for first in (0..count).step_by(AT_ONCE) {
            let last = (first + AT_ONCE).min(count);
            let started = (first..last).map(|nth| {
                let client = self.clone();
                async move {
                    let session = client.create(&format!("Say something, {nth}.")).await?;
                    let mut reader = client.follow(&session, 0).await?;
                    while let Some(event) = reader.next().await? {
                        if event.kind() == Some("run_finished") {
                            break;
                        }
                    }
                    anyhow::Ok(reader)
                }
            });
            readers.extend(try_join_all(started).await?);
        }
        Ok(readers)
    }

    async fn idle(self: &Arc<Self>, flags: &Flags, count: usize) -> Result<()> {
        let pid: u32 = flags.need("--pid")?;
        // The first sessions bring what all of them share.
        let _first = self.finished_sessions(AT_ONCE).await?;
        settle().await;
        let before = resident_kilobytes(pid)?;
        let _readers = self.finished_sessions(count).await?;
        settle().await;
        let after = resident_kilobytes(pid)?;
        let seconds: u64 = flags.get("--seconds")?.unwrap_or(10);
        let (cpu, began) = (cpu_ticks(pid)?, Instant::now());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let ticks = cpu_ticks(pid)?.saturating_sub(cpu);
        let percent = ticks as f64 / began.elapsed().as_secs_f64();
        println!(
            "{} {percent}",
            after.saturating_sub(before) as f64 / count as f64
        );
        Ok(())
    }

    async fn runs(self: &Arc<Self>, flags: &Flags, count: usize) -> Result<()> {
        let delay = flags.need::<u64>("--model-delay-ms")? as f64;
        let began = Instant::now();
        let finished = (0..count).map(|nth| {
            let client = self.clone();
            async move {
                let session = client.create(&format!("Do the steps, {nth}.")).await?;
                RunTimes::read(client.follow(&session, 0).await?).await
            }
        });
        let runs = try_join_all(finished).await?;
        let seconds = began.elapsed().as_secs_f64();
        let mut events = 0;
        for run in &runs {
            events += run.delays.len();
            for step in &run.steps {
                println!("{}", (step - delay).max(0.0));
            }
            for delay in &run.delays {
                println!("delay {delay}");
            }
        }
        println!("rate {}", events as f64 / seconds);
        Ok(())
    }

    async fn reconnects(self: &Arc<Self>, count: usize) -> Result<()> {
        let session = self.create("Do the steps.").await?;
        let mut all = self.follow(&session, 0).await?;
        let mut last = 0;
        while let Some(event) = all.next().await? {
            last = event.id.unwrap_or(last);
            if event.kind() == Some("run_finished") {
                break;
            }
        }
        let (mut lost, mut repeated, mut after, mut random) = (0_u64, 0_u64, 0, 0x2545_f491_u64);
        for _ in 0..count {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let mut reader = self.follow(&session, after).await?;
            // Cut after a random number of events, in the middle of what the server sends.
            for _ in 0..(random >> 33) % 20 {
                if after == last {
                    break;
                }
                let Some(event) = reader.next().await? else {
                    break;
                };
                let Some(id) = event.id else { continue };
                lost += id.saturating_sub(after + 1);
                repeated += u64::from(id <= after);
                after = id;
            }
            if after == last {
                after = 0;
            }
        }
        println!("{lost} {repeated} {count}");
        Ok(())
    }
}

/// The times of one run.
struct RunTimes {
    /// Milliseconds from each answer of the model to the next one.
    steps: Vec<f64>,
    /// Milliseconds from the time of an event to its arrival.
    delays: Vec<f64>,
}

impl RunTimes {
    async fn read(mut reader: EventStreamParser) -> Result<Self> {
        let mut times = Self {
            steps: Vec::new(),
            delays: Vec::new(),
        };
        let mut answered: Option<f64> = None;
        while let Some(event) = reader.next().await? {
            let (Some(kind), Some(at)) = (event.kind(), event.at_ms()) else {
                continue;
            };
            times.delays.push((now_ms() - at).max(0.0));
            // The amount of a call is logged right after its answer.
            if kind == "spent"
                && let Some(before) = answered.replace(at)
            {
                times.steps.push(at - before);
            }
            if kind == "run_finished" {
                ensure!(
                    event.data["data"]["outcome"]["is"] == "completed",
                    "a run failed: {}",
                    event.data
                );
                return Ok(times);
            }
        }
        anyhow::bail!("a stream ended before its run")
    }
}

fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64() * 1e3
}

/// Waits until memory and work of finished runs are gone.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

fn resident_kilobytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    Ok(kilobytes.context("no VmRSS")?.trim().parse()?)
}

/// Processor time in hundredths of a second.
fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("no command name")?;
    let mut times = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let (user, system) = (
        times.next().context("no time")??,
        times.next().context("no time")??,
    );
    Ok(user + system)
}

/// Facts about events of Windlass, which the parser does not know.
trait EventFacts {
    fn kind(&self) -> Option<&str>;
    fn at_ms(&self) -> Option<f64>;
}

impl EventFacts for SentEvent {
    fn kind(&self) -> Option<&str> {
        self.data["kind"].as_str()
    }

    fn at_ms(&self) -> Option<f64> {
        let at: jiff::Timestamp = self.data["at"].as_str()?.parse().ok()?;
        Some(at.as_microsecond() as f64 / 1e3)
    }
}
