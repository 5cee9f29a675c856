//! A program that plays a recording: it writes its lines, and waits for the client's lines in between. The client's
//! lines must contain the recorded fields.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::oneshot;
use windlass_core::BoxFuture;
use windlass_core::enclosure::{AgentProcess, ProcessHandle};
use windlass_core::workspace::{ProcessEnd, ProcessError};

/// One action of a program.
#[derive(Debug, Clone)]
pub(crate) enum PeerStep {
    /// Writes a line to standard output.
    Write(String),
    /// Waits for a line that contains this.
    Expect(Value),
    /// Writes to standard error.
    WriteStderr(String),
    /// Does nothing until it is killed.
    Hang,
}

/// Parses a recording: `{"dir": "<" | ">", "msg": …}` per line; other lines are written unchanged.
pub(crate) fn recording(text: &str) -> Vec<PeerStep> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| match serde_json::from_str::<Value>(line) {
            Ok(value) if value["dir"] == "<" => PeerStep::Write(value["msg"].to_string()),
            Ok(value) if value["dir"] == ">" => PeerStep::Expect(value["msg"].clone()),
            Ok(value) if value["dir"] == "2" => {
                PeerStep::WriteStderr(value["msg"].as_str().unwrap().to_owned())
            }
            Ok(value) if value["dir"] == "hang" => PeerStep::Hang,
            _ => PeerStep::Write(line.to_owned()),
        })
        .collect()
}

/// The received lines, and their deviations from the recording.
#[derive(Debug, Default)]
pub(crate) struct ReceivedLines {
    pub(crate) lines: Vec<Value>,
    pub(crate) faults: Vec<String>,
}

/// Starts a program that plays these steps and exits with this code.
pub(crate) fn play(
    steps: Vec<PeerStep>,
    exit: i32,
    received: Arc<Mutex<ReceivedLines>>,
) -> AgentProcess {
    // The pipes are small, so that unread data blocks the writer.
    let (stdin, hears) = tokio::io::duplex(4_096);
    let (stdout, says) = tokio::io::duplex(4_096);
    let (stderr, complains) = tokio::io::duplex(4_096);
    let (over, end) = oneshot::channel();
    let task = tokio::spawn(async move {
        run(steps, BufReader::new(hears), says, complains, received).await;
        let _ = over.send(ProcessEnd::Exited { code: exit });
    });
    let handle = PlayedProgram {
        task,
        end: Some(end),
    };
    AgentProcess {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
        handle: Box::new(handle),
    }
}

async fn run(
    steps: Vec<PeerStep>,
    mut hears: BufReader<DuplexStream>,
    mut says: DuplexStream,
    mut complains: DuplexStream,
    received: Arc<Mutex<ReceivedLines>>,
) {
    for step in steps {
        match step {
            PeerStep::Write(line) => {
                let _ = says.write_all(format!("{line}\n").as_bytes()).await;
            }
            PeerStep::WriteStderr(text) => {
                let _ = complains.write_all(text.as_bytes()).await;
            }
            PeerStep::Expect(wanted) => {
                let mut line = String::new();
                let n = hears.read_line(&mut line).await.unwrap_or_default();
                let value: Value = serde_json::from_str(&line).unwrap_or_default();
                let mut received = received.lock();
                if n == 0 {
                    received.faults.push(format!(
                        "nothing more was received, but this was expected: {wanted}"
                    ));
                    return;
                }
                if !holds(&value, &wanted) {
                    received
                        .faults
                        .push(format!("received: {value}\nexpected: {wanted}"));
                }
                received.lines.push(value);
            }
            PeerStep::Hang => std::future::pending().await,
        }
    }
    drop((says, complains));
    // Lines up to the end of the input that the recording does not contain.
    let mut line = String::new();
    while hears.read_line(&mut line).await.is_ok_and(|n| n > 0) {
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        received.lock().lines.push(value);
        line.clear();
    }
}

/// Whether a value contains everything in another value.
fn holds(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| value.get(key).is_some_and(|value| holds(value, wanted))),
        (Value::Array(value), Value::Array(wanted)) => {
            value.len() == wanted.len()
                && value
                    .iter()
                    .zip(wanted)
                    .all(|(value, wanted)| holds(value, wanted))
        }
        (Value::String(value), Value::String(wanted)) if wanted.contains('…') => {
            wanted.split('…').all(|piece| value.contains(piece))
        }
        (value, wanted) => value == wanted,
    }
}

struct PlayedProgram {
    task: tokio::task::JoinHandle<()>,
    end: Option<oneshot::Receiver<ProcessEnd>>,
}

impl ProcessHandle for PlayedProgram {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        let end = self.end.take();
        Box::pin(async move {
            match end {
                Some(end) => end.await.map_err(|_| ProcessError("it was killed".into())),
                None => Err(ProcessError("it was waited for already".into())),
            }
        })
    }
    fn terminate(&self) {
        self.task.abort();
    }
    fn kill(&self) {
        self.task.abort();
    }
}

impl Drop for PlayedProgram {
    fn drop(&mut self) {
        self.task.abort();
    }
}
