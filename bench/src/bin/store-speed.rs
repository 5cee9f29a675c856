//! Measures what a long session costs on disk. `make` writes one and prints, for each thousand events, the milliseconds
//! of appending them and of a plain write of the same bytes. `resume` folds it and prints the milliseconds of that and
//! of finding the line ends of the same bytes; `list` prints those of listing. `save` saves a snapshot and `load`
//! resumes with it. `many` writes many short sessions, and `stat` reads the metadata of each log. `read`, `tail`, `load`
//! and `stat` print nothing: the caller takes their time and memory from the kernel's accounting.

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures_util::StreamExt as _;
use windlass_bench::flags::Flags;
use windlass_bench::long_session::LongSession;
use windlass_core::event::EventKind;
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::store::{OpenLog, SessionStore as _};
use windlass_engine::load_history;
use windlass_host::session_log::SessionLog;

/// The number of events that are appended and timed together.
const BATCH: u64 = 1_000;
/// The number of events at the end that `tail` reads.
const LAST: u64 = 100;

/// Events of a short session.
const SHORT: u64 = 10;

fn main() -> Result<()> {
    let flags = Flags::from_env(&[
        "--what",
        "--dir",
        "--events",
        "--bytes",
        "--times",
        "--sessions",
    ])?;
    let dir: PathBuf = flags.need::<String>("--dir")?.into();
    let bench = StoreBench {
        log: SessionLog::new(dir.join("sessions")),
        dir,
        id: "long".parse()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let times: u64 = flags.get("--times")?.unwrap_or(5);
    let events: u64 = flags.get("--events")?.unwrap_or(u64::MAX);
    match flags.need::<String>("--what")?.as_str() {
        "make" => runtime.block_on(bench.make(events, flags.get("--bytes")?.unwrap_or(u64::MAX))),
        "resume" => (0..times).try_for_each(|_| {
            println!(
                "{} {}",
                ms(runtime.block_on(bench.resume(events))?),
                ms(bench.scan(events)?)
            );
            Ok(())
        }),
        "list" => (0..times).try_for_each(|_| {
            println!("{}", ms(runtime.block_on(bench.list())?));
            Ok(())
        }),
        "many" => runtime.block_on(bench.many(flags.need("--sessions")?)),
        "stat" => bench.stat(),
        "save" => runtime.block_on(bench.save()),
        "load" => runtime.block_on(bench.load()),
        "read" => runtime.block_on(bench.read()),
        "tail" => runtime.block_on(bench.tail()),
        other => bail!("unknown `--what {other}`"),
    }
}

struct StoreBench {
    log: SessionLog,
    dir: PathBuf,
    id: SessionId,
}

impl StoreBench {
    async fn make(&self, events: u64, bytes: u64) -> Result<()> {
        let session = LongSession::new(self.id.clone());
        let mut writer = self.log.open_writer(&self.id, OpenLog::New).await?.writer;
        let mut plain = File::create(self.dir.join("plain.jsonl"))?;
        let (mut seq, mut written) = (1, 0);
        while seq <= events && written < bytes {
            let batch: Vec<_> = (seq..seq + BATCH.min(events - seq + 1))
                .map(|seq| session.event(seq))
                .collect();
            let began = Instant::now();
            let mut lines = Vec::with_capacity(batch.len());
            for event in &batch {
                let line = serde_json::to_string(event)?;
                writer.append(event, &line).await?;
                lines.push(line);
            }
            let appending = began.elapsed();
            lines.iter_mut().for_each(|line| line.push('\n'));
            let began = Instant::now();
            for line in &lines {
                plain.write_all(line.as_bytes())?;
            }
            println!("{} {}", ms(appending), ms(began.elapsed()));
            seq += batch.len() as u64;
            written += lines.iter().map(|line| line.len() as u64).sum::<u64>();
        }
        writer.sync().await?;
        drop(plain);
        Ok(std::fs::remove_file(self.dir.join("plain.jsonl"))?)
    }

    /// Short sessions, each with a text of its own.
    async fn many(&self, sessions: u64) -> Result<()> {
        for session in 0..sessions {
            let id: SessionId = format!("20261115-031445-{session:06}").parse()?;
            let story = LongSession::new(id.clone());
            let mut writer = self.log.open_writer(&id, OpenLog::New).await?.writer;
            for seq in 1..=SHORT {
                let mut event = match seq {
                    SHORT => story.end(seq),
                    _ => story.event(seq),
                };
                if let EventKind::RunStarted { prompt, .. } = &mut event.kind {
                    *prompt = Message::user(format!("fix the parser of case {session:06}"));
                }
                writer
                    .append(&event, &serde_json::to_string(&event)?)
                    .await?;
            }
        }
        Ok(())
    }

    /// The least that a list of all sessions has to do.
    fn stat(&self) -> Result<()> {
        for entry in std::fs::read_dir(self.dir.join("sessions"))? {
            let log = entry?.path().join("events.jsonl");
            ensure!(log.symlink_metadata().is_ok() || log.to_string_lossy().contains("/."));
        }
        Ok(())
    }

    async fn resume(&self, events: u64) -> Result<Duration> {
        let began = Instant::now();
        let opened = self.log.open_writer(&self.id, OpenLog::Existing).await?;
        let history = load_history(&self.log, &self.id).await?;
        let took = began.elapsed();
        ensure!(
            history.last_seq() == events,
            "{} of {events} events were read",
            history.last_seq()
        );
        ensure!(opened.notices.is_empty(), "{:?}", opened.notices);
        Ok(took)
    }

    /// Saves the snapshot that the engine saves at the end of a run.
    async fn save(&self) -> Result<()> {
        let mut opened = self.log.open_writer(&self.id, OpenLog::Existing).await?;
        let mut history = load_history(&self.log, &self.id).await?;
        let end = LongSession::new(self.id.clone()).end(history.last_seq() + 1);
        let line = serde_json::to_string(&end)?;
        opened.writer.append(&end, &line).await?;
        history.apply(&end);
        ensure!(history.is_idle(), "the run is still open");
        opened.writer.save_snapshot(&|to| history.save(to));
        Ok(())
    }

    async fn load(&self) -> Result<()> {
        let _opened = self.log.open_writer(&self.id, OpenLog::Existing).await?;
        load_history(&self.log, &self.id).await?;
        Ok(())
    }

    /// Counts the lines of the log, which is the minimum of work with the same bytes.
    fn scan(&self, events: u64) -> Result<Duration> {
        let began = Instant::now();
        let mut file = File::open(self.log.log_path(&self.id))?;
        let (mut buffer, mut lines) = (vec![0; 256 * 1024], 0_u64);
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        ensure!(lines == events, "{lines} of {events} lines were found");
        Ok(began.elapsed())
    }

    async fn list(&self) -> Result<Duration> {
        let began = Instant::now();
        let heads: Vec<_> = self.log.list().collect().await;
        let took = began.elapsed();
        ensure!(
            !heads.is_empty() && heads.iter().all(Result::is_ok),
            "{heads:?}"
        );
        Ok(took)
    }

    async fn read(&self) -> Result<()> {
        let mut events = self.log.read(&self.id, 1);
        while let Some(event) = events.next().await {
            event?;
        }
        Ok(())
    }

    async fn tail(&self) -> Result<()> {
        let opened = self.log.open_writer(&self.id, OpenLog::Existing).await?;
        ensure!(opened.notices.is_empty(), "{:?}", opened.notices);
        let Some(head) = self.log.list().next().await else {
            bail!("there is no session")
        };
        let events = self
            .log
            .read(&self.id, head?.events + 1 - LAST)
            .count()
            .await as u64;
        ensure!(events == LAST, "{events} events were read");
        Ok(())
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
