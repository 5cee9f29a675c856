//! Lines from standard input. A line that the user typed before a question appeared must not answer it, so each line
//! carries the number of questions shown when it was read.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use windlass_text::{StyledLine, Tone};

/// The longest line in bytes; the rest of a longer one is dropped.
const MAX_LINE: usize = 1 << 20;

/// Reads lines from standard input on a separate thread, one for each request.
#[derive(Default)]
pub(crate) struct TerminalInput {
    wanted: Option<std::sync::mpsc::Sender<()>>,
    lines: Option<mpsc::Receiver<Option<TypedLine>>>,
    waiting: bool,
    /// The number of questions shown so far.
    questions: Arc<AtomicU64>,
}

/// A line of standard input.
pub(crate) struct TypedLine {
    pub(crate) text: String,
    /// The number of questions shown when the line was read.
    after: u64,
}

impl TerminalInput {
    /// Shows a question. On a terminal, type-ahead is discarded.
    pub(crate) fn ask(&mut self, question: &[StyledLine]) {
        self.discard_type_ahead();
        self.questions.fetch_add(1, Ordering::SeqCst);
        crate::out::err_open_line(question);
    }

    /// Repeats the question after a line that is no valid answer.
    pub(crate) fn ask_again(&mut self) {
        let again = "please answer with one of the options above: ";
        self.ask(&[StyledLine::of(again, Tone::Text)]);
    }

    /// Discards unread input of a terminal.
    pub(crate) fn discard_type_ahead(&self) {
        if std::io::stdin().is_terminal() {
            let _ =
                rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        }
    }

    /// Shows the mark for a prompt. Type-ahead becomes part of the prompt.
    pub(crate) fn show(&mut self, prompt: &str) {
        crate::out::err(prompt);
    }

    /// Whether a line was read after the last question, so that it can be the answer.
    pub(crate) fn answers(&self, line: &TypedLine) -> bool {
        line.after == self.questions.load(Ordering::SeqCst) || !std::io::stdin().is_terminal()
    }

    /// Reads the next line; `None` at the end of input. Cancel safe: a dropped call loses no line.
    pub(crate) async fn line(&mut self) -> Option<TypedLine> {
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
        // A blocking read cannot be cancelled; the thread ends with the process.
        std::thread::spawn(move || {
            while wants.recv().is_ok() {
                let line = read_line().map(|text| TypedLine {
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
        let taken = MAX_LINE.saturating_sub(line.len()).min(used);
        line.extend_from_slice(&available[..taken]);
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
