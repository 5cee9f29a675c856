//! Lines from the person at the terminal. What was typed before a question was shown is no answer to it: each line
//! knows which question was the last one when it was typed.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

/// The longest line that is taken.
const MAX_LINE: usize = 1 << 20;

/// Standard input, line by line, on a thread of its own.
#[derive(Default)]
pub(crate) struct Input {
    wanted: Option<std::sync::mpsc::Sender<()>>,
    lines: Option<mpsc::Receiver<Option<Line>>>,
    waiting: bool,
    /// How many questions were shown.
    questions: Arc<AtomicU64>,
}

/// What was typed.
pub(crate) struct Line {
    pub(crate) text: String,
    /// How many questions had been shown by then.
    after: u64,
}

impl Input {
    /// Shows a question. On a terminal, whatever was typed ahead is dropped.
    pub(crate) fn ask(&mut self, question: &str) {
        self.drop_unread();
        self.questions.fetch_add(1, Ordering::SeqCst);
        crate::out::err(question);
    }

    /// Drops what was typed at a terminal and not read.
    pub(crate) fn drop_unread(&self) {
        if std::io::stdin().is_terminal() {
            let _ =
                rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        }
    }

    /// Shows that a prompt may be typed; what was typed already is part of it.
    pub(crate) fn show(&mut self, prompt: &str) {
        crate::out::err(prompt);
    }

    /// Whether a line was typed after the last question, so that it can be an answer to it.
    pub(crate) fn answers(&self, line: &Line) -> bool {
        line.after == self.questions.load(Ordering::SeqCst) || !std::io::stdin().is_terminal()
    }

    /// The next line; `None` at the end of input. Safe to drop and call again.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        if self.lines.is_none() {
            self.start();
        }
        if !self.waiting {
            self.wanted.as_ref()?.send(()).ok()?;
            self.waiting = true;
        }
        let line = self.lines.as_mut()?.recv().await.flatten();
        self.waiting = false;
        line
    }

    fn start(&mut self) {
        let (wanted, wants) = std::sync::mpsc::channel::<()>();
        let (to, lines) = mpsc::channel(1);
        let questions = self.questions.clone();
        // A blocking read cannot be called off; the thread ends with the process.
        std::thread::spawn(move || {
            while wants.recv().is_ok() {
                let line = read_line().map(|text| Line {
                    text,
                    after: questions.load(Ordering::SeqCst),
                });
                if to.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        self.wanted = Some(wanted);
        self.lines = Some(lines);
    }
}

fn read_line() -> Option<String> {
    let mut stdin = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        let available = stdin.fill_buf().ok()?;
        if available.is_empty() {
            break;
        }
        let (used, ends) = match available.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (available.len(), false),
        };
        let room = MAX_LINE.saturating_sub(line.len()).min(used);
        line.extend_from_slice(&available[..room]);
        stdin.consume(used);
        if ends {
            break;
        }
    }
    if line.is_empty() {
        return None;
    }
    let line = String::from_utf8_lossy(&line);
    Some(line.trim_end_matches(['\n', '\r']).to_owned())
}
