//! A program in its place that speaks JSON lines: what is to be said waits here until it reads, what it says is given
//! line by line, and the end of what it complains about is kept. Nothing here knows what the lines mean.

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

/// The most that may wait for a program that does not read.
const MAX_WAITING: usize = 64 << 20;
/// Bytes of standard error read at once.
const PIECE: usize = 8 << 10;
/// Pieces that are read of a program that will say no more.
const MAX_PIECES: usize = 64;
/// How much of standard error a person is shown.
const SHOWN: usize = 1_500;

/// A running program. Dropped, it is killed with everything it started.
pub struct Peer {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Vec<u8>,
    /// Nothing is said behind what waits.
    last: bool,
    lines: Lines<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    tail: Tail,
    life: Box<dyn Life>,
}

impl Peer {
    /// A program that was started.
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

    /// Says something, as soon as the program reads: it goes out while [`Peer::next`] is waited for. A program that
    /// never reads is told nothing more.
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

    /// The next line that is JSON; `None` at the end. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> io::Result<Option<Value>> {
        while let Some(line) = self.line().await? {
            if let Some(value) = self.lines.value(&line) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// What the program says next, read so; `None` at the end of a program that speaks JSON. It only writes while more
    /// than `max_unread` bytes wait for the program, or without `listen`. May be dropped while it waits: nothing is lost.
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
                    // A program may close its output before it is done; it is waited for, however long that takes.
                    self.hang_up();
                    let end = self.wait(Box::pin(std::future::pending())).await?;
                    Some(Input::Ended(end, self.complaint()))
                }
            },
        }
    }

    /// Says these words and then the end of the input, as soon as the program reads.
    pub fn say_last(&mut self, text: &str) {
        self.waiting.extend_from_slice(text.as_bytes());
        self.last = true;
    }

    /// The next line as it is, whatever it is; `None` at the end. May be dropped while it waits: nothing is lost.
    pub async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if self.last && self.waiting.is_empty() {
                self.hang_up();
            }
            match self.step(true).await {
                // It does not listen any more. What it still says is read to the end.
                Step::Wrote(Err(_)) => self.hang_up(),
                Step::Line(line) => return line,
                Step::Wrote(Ok(())) | Step::Complained => {}
            }
        }
    }

    /// Asks the program and everything it started to end.
    pub fn terminate(&self) {
        self.life.terminate();
    }

    /// Writes a piece of what waits without listening. Never ends when nothing waits. May be dropped while it waits.
    pub async fn write_on(&mut self) {
        if let Step::Wrote(Err(_)) = self.step(false).await {
            self.hang_up();
        }
    }

    /// Lines that could not be read: too long ones, and such that are no JSON.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.lines.too_long.saturating_add(self.lines.not_json)
    }

    /// Reads what it complained about and nothing has read yet, without waiting for more.
    pub(crate) async fn hear_complaint(&mut self) {
        for _ in 0..MAX_PIECES {
            // Lets the reactor see what is in the pipe.
            tokio::task::yield_now().await;
            if complain(&mut self.stderr, &mut self.tail)
                .now_or_never()
                .is_none()
            {
                return;
            }
        }
    }

    /// Whether all that was said to it is written.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The end of what it complained about.
    #[must_use]
    pub fn complaint(&self) -> String {
        end_of(&self.tail.text(), SHOWN).to_owned()
    }

    /// Tells the program by the end of its input that nothing more comes, and waits for its end for so long.
    pub async fn end(&mut self, clock: &dyn Clock, grace: Duration) -> Option<ProcessEnd> {
        let mut time = clock.sleep(grace);
        // What is still to be said goes out first; answers must not be lost.
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

    /// Waits for its end until the time is over, and reads what it still says.
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
        // Its last complaint is often why it ended, and may still be in the pipe.
        while stderr.is_some() {
            tokio::select! {
                biased;
                () = complain(stderr, tail) => {}
                () = &mut time => break,
            }
        }
        Some(end)
    }

    /// How it ended, for a person, after it said the last.
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
            format!("{end}; the last on its standard error: {said}")
        }
    }

    /// Writes a piece, or passes over a line; whether it may go on.
    async fn next_or_written(&mut self) -> io::Result<bool> {
        match self.step(true).await {
            Step::Wrote(wrote) => wrote.map(|()| true),
            Step::Line(line) => line.map(|line| line.is_some()),
            Step::Complained => Ok(true),
        }
    }

    /// What is possible first: to write a piece, to read a line (with `listen`) or a complaint. May be dropped while it
    /// waits.
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

/// What a program took or said.
enum Step {
    Wrote(io::Result<()>),
    Line(io::Result<Option<Vec<u8>>>),
    Complained,
}

/// Writes what the program takes. Never ends when there is nothing to write.
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

/// Reads a piece of standard error. Never ends when there is no more.
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
