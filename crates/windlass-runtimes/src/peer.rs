//! A program in an enclosure that speaks JSON lines. Output to the program is queued until it reads, its own output is
//! returned line by line, and the end of its standard error is kept. This module does not interpret the lines.

use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use windlass_core::BoxFuture;
use windlass_core::clock::Clock;
use windlass_core::enclosure::{Inmate, Life};
use windlass_core::workspace::{ProcessEnd, ProcessError};

use crate::acp::words::end_of;
use crate::dialogue::{Framing, Input};
use crate::lines::{Lines, Tail};

/// Bytes that may wait for a program that does not read.
const MAX_WAITING: usize = 64 << 20;
/// Bytes of standard error that are read at once.
const PIECE: usize = 8 << 10;
/// Reads of standard error after the program's last output.
const MAX_PIECES: usize = 64;
/// Bytes of standard error in messages to the user.
const SHOWN: usize = 1_500;

/// A running program. Dropping it kills the program with all its descendants.
pub struct Peer {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Vec<u8>,
    /// Stdin is closed after the waiting bytes.
    last: bool,
    lines: Lines<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    tail: Tail,
    life: Box<dyn Life>,
}

impl Peer {
    #[must_use]
    pub fn new(inmate: Inmate) -> Self {
        let Inmate {
            stdin,
            stdout,
            stderr,
            life,
        } = inmate;
        Self {
            stdin: Some(stdin),
            waiting: Vec::new(),
            last: false,
            lines: Lines::new(stdout),
            stderr: Some(stderr),
            tail: Tail::default(),
            life,
        }
    }

    /// Queues a line for the program. It is written while [`Peer::next`] is polled. If too many bytes wait, stdin is
    /// closed.
    pub fn send(&mut self, value: &Value) {
        if self.stdin.is_none() {
            return;
        }
        self.waiting.extend_from_slice(value.to_string().as_bytes());
        self.waiting.push(b'\n');
        if self.waiting.len() > MAX_WAITING {
            self.hang_up();
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
    /// `max_unread` bytes wait for the program, or without `listen`. Cancel-safe.
    pub(crate) async fn hear(
        &mut self,
        framing: Framing,
        max_unread: usize,
        listen: bool,
    ) -> Option<Input> {
        while !listen || self.waiting.len() >= max_unread {
            self.write_on().await;
        }
        match framing {
            Framing::Json => self.next().await.ok().flatten().map(Input::Line),
            Framing::Text => match self.line().await {
                Ok(Some(line)) => Some(Input::Text(line)),
                Ok(None) | Err(_) => {
                    // A program may close its output before it is done, so this waits for its exit without a timeout.
                    self.hang_up();
                    let end = self.wait(Box::pin(std::future::pending())).await?;
                    Some(Input::Ended(end, self.complaint()))
                }
            },
        }
    }

    /// Queues this text, and closes stdin after it.
    pub fn say_last(&mut self, text: &str) {
        self.waiting.extend_from_slice(text.as_bytes());
        self.last = true;
    }

    /// The next line in any format; `None` at the end. Cancel-safe.
    pub async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if self.last && self.waiting.is_empty() {
                self.hang_up();
            }
            match self.step(true).await {
                // The program no longer reads its stdin. Its remaining output is still read.
                Step::Wrote(Err(_)) => self.hang_up(),
                Step::Line(line) => return line,
                Step::Wrote(Ok(())) | Step::Complained => {}
            }
        }
    }

    /// Sends a termination signal to the program and all its descendants.
    pub fn terminate(&self) {
        self.life.terminate();
    }

    /// Writes a part of the waiting bytes without reading output. Never completes if nothing waits. Cancel-safe.
    pub async fn write_on(&mut self) {
        if let Step::Wrote(Err(_)) = self.step(false).await {
            self.hang_up();
        }
    }

    /// Lines that were too long or not JSON.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.lines.too_long.saturating_add(self.lines.not_json)
    }

    /// Reads the available standard error without waiting for more.
    pub(crate) async fn hear_complaint(&mut self) {
        for _ in 0..MAX_PIECES {
            // The yield lets the reactor notice data in the pipe.
            tokio::task::yield_now().await;
            if complain(&mut self.stderr, &mut self.tail)
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
    pub fn complaint(&self) -> String {
        end_of(&self.tail.text(), SHOWN).to_owned()
    }

    /// Closes stdin and waits for the exit of the program, at most for `grace`.
    pub async fn end(&mut self, clock: &dyn Clock, grace: Duration) -> Option<ProcessEnd> {
        let mut time = clock.sleep(grace);
        // Queued answers must not be lost, so they are written first.
        while self.stdin.is_some() && !self.waiting.is_empty() {
            tokio::select! {
                biased;
                () = &mut time => break,
                next = self.next_or_written() => if !matches!(next, Ok(true)) { break },
            }
        }
        self.hang_up();
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
            life,
            ..
        } = self;
        let mut over = life.wait();
        let mut said_all = false;
        let end = loop {
            tokio::select! {
                biased;
                end = &mut over => break end,
                () = &mut time => return None,
                line = lines.line(), if !said_all => said_all = !matches!(line, Ok(Some(_))),
                () = complain(stderr, tail) => {}
            }
        };
        // The last standard error output often explains the exit, and may still be in the pipe.
        while stderr.is_some() {
            tokio::select! {
                biased;
                () = complain(stderr, tail) => {}
                () = &mut time => break,
            }
        }
        Some(end)
    }

    /// Ends the program and describes its exit for the user.
    pub async fn ended_in_words(&mut self, clock: &dyn Clock, grace: Duration) -> String {
        let end = self.end(clock, grace).await;
        let end = end.map_or_else(
            || "and did not exit".to_owned(),
            |end| format!("with {}", end.in_words()),
        );
        let said = self.complaint();
        if said.is_empty() {
            end
        } else {
            format!("{end}; end of its standard error: {said}")
        }
    }

    /// Writes a part of the queue, or ignores a line. Returns false at the end of the output.
    async fn next_or_written(&mut self) -> io::Result<bool> {
        match self.step(true).await {
            Step::Wrote(wrote) => wrote.map(|()| true),
            Step::Line(line) => line.map(|line| line.is_some()),
            Step::Complained => Ok(true),
        }
    }

    /// The first possible operation: write a part of the queue, read a line (with `listen`), or read standard error.
    /// Cancel-safe.
    async fn step(&mut self, listen: bool) -> Step {
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
            wrote = write_some(stdin, waiting) => Step::Wrote(wrote),
            line = lines.line(), if listen => Step::Line(line),
            () = complain(stderr, tail) => Step::Complained,
        }
    }

    fn hang_up(&mut self) {
        self.stdin = None;
        self.waiting = Vec::new();
    }
}

/// A completed operation of [`Peer::step`].
enum Step {
    Wrote(io::Result<()>),
    Line(io::Result<Option<Vec<u8>>>),
    Complained,
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
async fn complain(from: &mut Option<Box<dyn AsyncRead + Send + Unpin>>, tail: &mut Tail) {
    let mut piece = [0; PIECE];
    match from {
        Some(stream) => match stream.read(&mut piece).await {
            Ok(n) if n > 0 => tail.push(&piece[..n]),
            _ => *from = None,
        },
        None => std::future::pending().await,
    }
}
