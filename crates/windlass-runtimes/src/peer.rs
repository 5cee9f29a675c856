//! A program in an enclosure that speaks JSON lines. Output to the program is queued until it reads, its own output is
//! returned line by line, and the end of its standard error is kept. This module does not interpret the lines.

use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use windlass_core::BoxFuture;
use windlass_core::clock::Clock;
use windlass_core::enclosure::{AgentProcess, ProcessHandle};
use windlass_core::workspace::{ProcessEnd, ProcessError};

use crate::acp::text::end_of;
use crate::dialogue::{DialogueInput, OutputFraming};
use crate::lines::{AgentLineReader, OutputTail};

/// Bytes that may wait for a program that does not read.
const MAX_WAITING: usize = 64 << 20;
/// Bytes of standard error that are read at once.
const PIECE: usize = 8 << 10;
/// Reads of standard error after the program's last output.
const MAX_PIECES: usize = 64;
/// Bytes of standard error in messages to the user.
const MAX_QUOTED: usize = 1_500;

/// A running program. Dropping it kills the program with all its descendants.
pub struct AgentPeer {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Vec<u8>,
    /// Stdin is closed after the waiting bytes.
    last: bool,
    lines: AgentLineReader<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    tail: OutputTail,
    handle: Box<dyn ProcessHandle>,
}

impl AgentPeer {
    /// Takes over the pipes and the handle of a spawned program.
    #[must_use]
    pub fn new(process: AgentProcess) -> Self {
        let AgentProcess {
            stdin,
            stdout,
            stderr,
            handle,
        } = process;
        Self {
            stdin: Some(stdin),
            waiting: Vec::new(),
            last: false,
            lines: AgentLineReader::new(stdout),
            stderr: Some(stderr),
            tail: OutputTail::default(),
            handle,
        }
    }

    /// Queues a line for the program. It is written while [`AgentPeer::next`] is polled. If too many bytes wait, stdin is
    /// closed.
    pub fn send(&mut self, value: &Value) {
        if self.stdin.is_none() {
            return;
        }
        self.waiting.extend_from_slice(value.to_string().as_bytes());
        self.waiting.push(b'\n');
        if self.waiting.len() > MAX_WAITING {
            self.close_stdin();
        }
    }

    /// The next line that is JSON; `None` at the end. Cancel-safe: dropping the future loses no data.
    pub async fn next(&mut self) -> io::Result<Option<Value>> {
        while let Some(line) = self.line().await? {
            if let Some(value) = self.lines.value(&line) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The next output of the program; `None` at the end of a program that speaks JSON. Reads nothing while more than
    /// `max_unsent` bytes wait for the program, or without `listen`. Cancel-safe.
    pub(crate) async fn next_input(
        &mut self,
        framing: OutputFraming,
        max_unsent: usize,
        listen: bool,
    ) -> Option<DialogueInput> {
        while !listen || self.waiting.len() >= max_unsent {
            self.write_more().await;
        }
        match framing {
            OutputFraming::Json => self.next().await.ok().flatten().map(DialogueInput::Line),
            OutputFraming::Text => match self.line().await {
                Ok(Some(line)) => Some(DialogueInput::Text(line)),
                Ok(None) | Err(_) => {
                    // A program may close its output before it is done, so this waits for its exit without a timeout.
                    self.close_stdin();
                    let end = self.wait(Box::pin(std::future::pending())).await?;
                    Some(DialogueInput::ProcessEnded(end, self.stderr_tail()))
                }
            },
        }
    }

    /// Queues this text, and closes stdin after it.
    pub fn send_last(&mut self, text: &str) {
        self.waiting.extend_from_slice(text.as_bytes());
        self.last = true;
    }

    /// The next line in any format; `None` at the end. Cancel-safe.
    pub async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if self.last && self.waiting.is_empty() {
                self.close_stdin();
            }
            match self.step(true).await {
                // The program no longer reads its stdin. Its remaining output is still read.
                PeerEvent::Wrote(Err(_)) => self.close_stdin(),
                PeerEvent::Line(line) => return line,
                PeerEvent::Wrote(Ok(())) | PeerEvent::ReadStderr => {}
            }
        }
    }

    /// Sends a termination signal to the program and all its descendants.
    pub fn terminate(&self) {
        self.handle.terminate();
    }

    /// Writes a part of the waiting bytes without reading output. Never completes if nothing waits. Cancel-safe.
    pub async fn write_more(&mut self) {
        if let PeerEvent::Wrote(Err(_)) = self.step(false).await {
            self.close_stdin();
        }
    }

    /// Lines that were too long or not JSON.
    #[must_use]
    pub fn skipped_lines(&self) -> u64 {
        self.lines.too_long.saturating_add(self.lines.not_json)
    }

    /// Reads the available standard error without waiting for more.
    pub(crate) async fn drain_stderr(&mut self) {
        for _ in 0..MAX_PIECES {
            // The yield lets the reactor notice data in the pipe.
            tokio::task::yield_now().await;
            if read_stderr(&mut self.stderr, &mut self.tail)
                .now_or_never()
                .is_none()
            {
                return;
            }
        }
    }

    /// Whether all queued bytes are written.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The end of standard error.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        end_of(&self.tail.text(), MAX_QUOTED).to_owned()
    }

    /// Closes stdin and waits for the exit of the program, at most for `grace`.
    pub async fn end(&mut self, clock: &dyn Clock, grace: Duration) -> Option<ProcessEnd> {
        let mut time = clock.sleep(grace);
        // Queued answers must not be lost, so they are written first.
        while self.stdin.is_some() && !self.waiting.is_empty() {
            tokio::select! {
                biased;
                () = &mut time => break,
                next = self.write_or_skip() => if !matches!(next, Ok(true)) { break },
            }
        }
        self.close_stdin();
        self.wait(time).await?.ok()
    }

    /// Waits for the exit of the program until `time` completes, and reads its remaining output.
    async fn wait(
        &mut self,
        mut time: BoxFuture<'_, ()>,
    ) -> Option<Result<ProcessEnd, ProcessError>> {
        let Self {
            lines,
            stderr,
            tail,
            handle,
            ..
        } = self;
        let mut exit = handle.wait();
        let mut at_eof = false;
        let end = loop {
            tokio::select! {
                biased;
                end = &mut exit => break end,
                () = &mut time => return None,
                line = lines.line(), if !at_eof => at_eof = !matches!(line, Ok(Some(_))),
                () = read_stderr(stderr, tail) => {}
            }
        };
        // The last standard error output often explains the exit, and may still be in the pipe.
        while stderr.is_some() {
            tokio::select! {
                biased;
                () = read_stderr(stderr, tail) => {}
                () = &mut time => break,
            }
        }
        Some(end)
    }

    /// Ends the program and describes its exit for the user.
    pub async fn end_and_describe(&mut self, clock: &dyn Clock, grace: Duration) -> String {
        let end = self.end(clock, grace).await;
        let end = end.map_or_else(
            || "and did not exit".to_owned(),
            |end| format!("with {}", end.in_words()),
        );
        let stderr = self.stderr_tail();
        if stderr.is_empty() {
            end
        } else {
            format!("{end}; end of its standard error: {stderr}")
        }
    }

    /// Writes a part of the queue, or ignores a line. Returns false at the end of the output.
    async fn write_or_skip(&mut self) -> io::Result<bool> {
        match self.step(true).await {
            PeerEvent::Wrote(wrote) => wrote.map(|()| true),
            PeerEvent::Line(line) => line.map(|line| line.is_some()),
            PeerEvent::ReadStderr => Ok(true),
        }
    }

    /// The first possible operation: write a part of the queue, read a line (with `listen`), or read standard error.
    /// Cancel-safe.
    async fn step(&mut self, listen: bool) -> PeerEvent {
        let Self {
            stdin,
            waiting,
            lines,
            stderr,
            tail,
            ..
        } = self;
        tokio::select! {
            biased;
            wrote = write_some(stdin, waiting) => PeerEvent::Wrote(wrote),
            line = lines.line(), if listen => PeerEvent::Line(line),
            () = read_stderr(stderr, tail) => PeerEvent::ReadStderr,
        }
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
        self.waiting = Vec::new();
    }
}

/// A completed operation of [`AgentPeer::step`].
enum PeerEvent {
    Wrote(io::Result<()>),
    Line(io::Result<Option<Vec<u8>>>),
    ReadStderr,
}

/// Writes as many bytes as the program accepts. Never completes if there is nothing to write.
async fn write_some(
    to: &mut Option<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: &mut Vec<u8>,
) -> io::Result<()> {
    match to {
        Some(to) if !waiting.is_empty() => {
            let n = to.write(waiting).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            waiting.drain(..n);
            if waiting.is_empty() {
                to.flush().await
            } else {
                Ok(())
            }
        }
        _ => std::future::pending().await,
    }
}

/// Reads a piece of standard error. Never completes after its end.
async fn read_stderr(from: &mut Option<Box<dyn AsyncRead + Send + Unpin>>, tail: &mut OutputTail) {
    let mut piece = [0; PIECE];
    match from {
        Some(stream) => match stream.read(&mut piece).await {
            Ok(n) if n > 0 => tail.push(&piece[..n]),
            _ => *from = None,
        },
        None => std::future::pending().await,
    }
}
