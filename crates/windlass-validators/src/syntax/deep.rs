//! Lets a parser that recurses run without danger to the process: how deep an input can go is estimated first, the
//! parser gets a stack for it on a thread of its own, and a panic or an endless loop there is an answer, not an end.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

/// Deeper than this nothing is parsed.
pub(crate) const MAX_DEPTH: usize = 20_000;
/// What every parser gets.
const BASE_STACK: usize = 16 << 20;
/// What one more level may take. Unoptimised builds need the most by far.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) {
    64 << 10
} else {
    32 << 10
};
/// How long one text may take.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoAnswer(pub(crate) String);

/// Runs a parser over a text of this depth.
pub(crate) fn run<T: Send + 'static>(
    depth: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    if depth > MAX_DEPTH {
        return Err(NoAnswer(format!(
            "it is nested about {depth} levels deep, more than the {MAX_DEPTH} that are read"
        )));
    }
    let stack = BASE_STACK + depth * STACK_PER_LEVEL;
    let (send, answer) = mpsc::sync_channel(1);
    let work = move || {
        let said = std::panic::catch_unwind(AssertUnwindSafe(parse));
        // Whoever asked may have stopped waiting.
        let _ = send.send(said);
    };
    let named = std::thread::Builder::new()
        .name("syntax".into())
        .stack_size(stack);
    named
        .spawn(work)
        .map_err(|err| NoAnswer(format!("no thread could be started to read it: {err}")))?;
    match answer.recv_timeout(MAX_TIME) {
        Ok(Ok(said)) => Ok(said),
        Ok(Err(_)) => Err(NoAnswer("the parser failed on it".into())),
        Err(_) => Err(too_slow(MAX_TIME)),
    }
}

pub(crate) fn too_slow(most: Duration) -> NoAnswer {
    NoAnswer(format!("reading it took longer than {} s", most.as_secs()))
}

/// How a language marks what is no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// `#` and three quotes.
    Python,
    /// `//`, `/*` and back quotes.
    JavaScript,
}

/// Words after which a new line goes on with the same expression.
const GO_ON: &[&str] = &[
    "and",
    "as",
    "async",
    "await",
    "case",
    "catch",
    "delete",
    "do",
    "elif",
    "else",
    "extends",
    "finally",
    "for",
    "if",
    "in",
    "instanceof",
    "is",
    "lambda",
    "new",
    "not",
    "of",
    "or",
    "return",
    "typeof",
    "void",
    "while",
    "with",
    "yield",
];

/// About as deep as a recursive parser goes on this text. What stands between two separators at one bracket level can
/// nest by operators alone (`!!!!x`, `a ? b : c ? d : e`), so its words and signs count as levels too. Inside strings
/// and comments only signs in a row count: where the beginning of a string was misread, they are code after all.
pub(crate) fn depth(text: &str, marks: Marks) -> usize {
    // Nothing in a short text goes deeper than it is long.
    if text.len() <= 1_000 {
        return text.len();
    }
    let mut scan = Scan {
        bytes: text.as_bytes(),
        ..Scan::default()
    };
    let mut at = 0;
    while at < scan.bytes.len() {
        at = match skipped(&scan.bytes[at..], marks, scan.value) {
            Some(len) => {
                scan.text(at, at + len);
                at + len
            }
            None => scan.code(at),
        };
    }
    scan.deepest
}

/// The length of a comment, a string or a regular expression at the beginning of these bytes.
fn skipped(bytes: &[u8], marks: Marks, after_value: bool) -> Option<usize> {
    let until = |end: &[u8], from: usize, many_lines: bool| {
        let mut at = from;
        while at < bytes.len() {
            if bytes[at..].starts_with(end) {
                return at + end.len();
            }
            if bytes[at] == b'\n' && !many_lines {
                return at;
            }
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        bytes.len()
    };
    let plain = |end: &[u8]| {
        bytes
            .windows(end.len())
            .position(|found| found == end)
            .map_or(bytes.len(), |at| at + end.len())
    };
    match (marks, bytes) {
        (Marks::Python, [b'#', ..]) | (Marks::JavaScript, [b'/', b'/', ..]) => Some(plain(b"\n")),
        (Marks::JavaScript, [b'/', b'*', ..]) => Some(plain(b"*/")),
        (Marks::JavaScript, [b'/', ..]) if !after_value => Some(until(b"/", 1, false)),
        (Marks::JavaScript, [b'`', ..]) => Some(until(b"`", 1, true)),
        (Marks::Python, [b'"', b'"', b'"', ..]) => Some(until(b"\"\"\"", 3, true)),
        (Marks::Python, [b'\'', b'\'', b'\'', ..]) => Some(until(b"'''", 3, true)),
        (_, [b'"', ..]) => Some(until(b"\"", 1, false)),
        (_, [b'\'', ..]) => Some(until(b"'", 1, false)),
        _ => None,
    }
}

#[derive(Default)]
struct Scan<'a> {
    bytes: &'a [u8],
    open: Vec<usize>,
    outer: usize,
    here: usize,
    deepest: usize,
    /// The code so far ends with a value, so that a line end may end the statement.
    value: bool,
    line_ended: bool,
    /// A `;` was read and nothing since.
    ended: bool,
}

impl Scan<'_> {
    /// One piece of code; gives where the next begins.
    fn code(&mut self, at: usize) -> usize {
        let byte = self.bytes[at];
        let space = matches!(byte, b'\n' | b' ' | b'\t' | b'\r');
        let mut next = at + 1;
        if self.ended && !space && byte != b';' {
            // After `;` only `else` goes on with what was begun before, and a bracket that closes.
            if !matches!(byte, b')' | b']' | b'}') && !self.bytes[at..].starts_with(b"else") {
                self.here = 0;
            }
            self.ended = false;
        }
        match byte {
            b'(' | b'[' | b'{' => {
                self.here += 1;
                self.outer += self.here;
                self.open.push(self.here);
                self.here = 0;
                self.value = false;
            }
            b')' | b']' | b'}' => {
                if let Some(before) = self.open.pop() {
                    self.outer -= before;
                    self.here = before;
                }
                self.value = true;
            }
            b',' => {
                self.here = 0;
                self.value = false;
            }
            b';' => {
                self.ended = true;
                self.value = false;
            }
            b'\n' => self.line_ended |= self.value,
            b' ' | b'\t' | b'\r' => {}
            _ if is_word(byte) => {
                next += self.bytes[next..]
                    .iter()
                    .take_while(|byte| is_word(**byte))
                    .count();
                let word = std::str::from_utf8(&self.bytes[at..next]).unwrap_or_default();
                let goes_on = GO_ON.contains(&word);
                if self.line_ended && !goes_on {
                    self.here = 0;
                }
                self.here += 1;
                self.value = !goes_on;
            }
            _ => {
                self.here += 1;
                self.value = false;
            }
        }
        self.line_ended &= space;
        self.deepest = self.deepest.max(self.outer + self.here);
        next
    }

    /// A comment or a string: one value.
    fn text(&mut self, from: usize, to: usize) {
        let (mut row, mut longest) = (0_usize, 0_usize);
        for byte in &self.bytes[from..to] {
            match byte {
                byte if b"+-!~?:=*&|<>([{%^".contains(byte) => row += 1,
                b' ' => {}
                _ => row = 0,
            }
            longest = longest.max(row);
        }
        self.deepest = self.deepest.max(self.outer + self.here + longest);
        let comment = matches!(self.bytes[from..to], [b'#', ..] | [b'/', b'/' | b'*', ..]);
        self.value |= !comment;
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}
