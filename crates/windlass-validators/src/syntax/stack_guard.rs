//! Runs recursive parsers safely. The nesting depth of the input is estimated first, and the parser runs on its own thread
//! with a stack of sufficient size. A panic or an endless loop in the parser becomes an error and does not affect the
//! process.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

/// A text with a greater estimated depth is not parsed.
pub(crate) const MAX_DEPTH: usize = 20_000;
/// The stack size, in bytes, that every parser gets.
const BASE_STACK: usize = 16 << 20;
/// The additional stack, in bytes, for each level of nesting. Unoptimised builds need far more.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) {
    64 << 10
} else {
    32 << 10
};
/// The time limit for parsing one text.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(20);

/// The reason why a text could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoVerdict(pub(crate) String);

/// Runs a parser for a text of this estimated depth. On a timeout the thread is left running, because it cannot be killed.
pub(crate) fn run<T: Send + 'static>(
    depth: usize,
    parse: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoVerdict> {
    if depth > MAX_DEPTH {
        return Err(NoVerdict(format!(
            "it is nested about {depth} levels deep, more than the supported {MAX_DEPTH}"
        )));
    }
    let stack = BASE_STACK + depth * STACK_PER_LEVEL;
    let (send, answer) = mpsc::sync_channel(1);
    let work = move || {
        let result = std::panic::catch_unwind(AssertUnwindSafe(parse));
        // The receiver is gone if the caller timed out.
        let _ = send.send(result);
    };
    let named = std::thread::Builder::new()
        .name("syntax".into())
        .stack_size(stack);
    named
        .spawn(work)
        .map_err(|err| NoVerdict(format!("no thread could be started to parse it: {err}")))?;
    match answer.recv_timeout(MAX_TIME) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err(NoVerdict("the parser failed on it".into())),
        Err(_) => Err(too_slow(MAX_TIME)),
    }
}

pub(crate) fn too_slow(most: Duration) -> NoVerdict {
    NoVerdict(format!("parsing it took longer than {} s", most.as_secs()))
}

/// The syntax of comments and strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommentStyle {
    /// `#` comments and triple-quoted strings.
    Python,
    /// `//` and `/*` comments and backtick strings.
    JavaScript,
}

/// Keywords after which the expression continues on the next line.
const CONTINUING_WORDS: &[&str] = &[
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

/// Estimates the recursion depth of a parser for this text. Operators alone can nest (`!!!!x`, `a ? b : c ? d : e`), so
/// each word and operator between two separators counts as a level, in addition to brackets. In strings and comments only
/// consecutive operators count: if the start of a string was misjudged, they are code after all.
pub(crate) fn depth(text: &str, style: CommentStyle) -> usize {
    // The depth of a text is at most its length, which is good enough for a short one.
    if text.len() <= 1_000 {
        return text.len();
    }
    let mut scan = DepthScanner {
        bytes: text.as_bytes(),
        ..DepthScanner::default()
    };
    let mut at = 0;
    while at < scan.bytes.len() {
        at = match skip_length(&scan.bytes[at..], style, scan.value) {
            Some(len) => {
                scan.text(at, at + len);
                at + len
            }
            None => scan.code(at),
        };
    }
    scan.deepest
}

/// The length of a comment, a string or a regular expression at the start of these bytes.
fn skip_length(bytes: &[u8], style: CommentStyle, after_value: bool) -> Option<usize> {
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
    match (style, bytes) {
        (CommentStyle::Python, [b'#', ..]) | (CommentStyle::JavaScript, [b'/', b'/', ..]) => {
            Some(plain(b"\n"))
        }
        (CommentStyle::JavaScript, [b'/', b'*', ..]) => Some(plain(b"*/")),
        (CommentStyle::JavaScript, [b'/', ..]) if !after_value => Some(until(b"/", 1, false)),
        (CommentStyle::JavaScript, [b'`', ..]) => Some(until(b"`", 1, true)),
        (CommentStyle::Python, [b'"', b'"', b'"', ..]) => Some(until(b"\"\"\"", 3, true)),
        (CommentStyle::Python, [b'\'', b'\'', b'\'', ..]) => Some(until(b"'''", 3, true)),
        (_, [b'"', ..]) => Some(until(b"\"", 1, false)),
        (_, [b'\'', ..]) => Some(until(b"'", 1, false)),
        _ => None,
    }
}

#[derive(Default)]
struct DepthScanner<'a> {
    bytes: &'a [u8],
    open: Vec<usize>,
    outer: usize,
    here: usize,
    deepest: usize,
    /// The code so far ends with a value, so a line break may end the statement.
    value: bool,
    line_ended: bool,
    /// A `;` was read, and only spaces since.
    ended: bool,
}

impl DepthScanner<'_> {
    /// Processes one token at `at` and returns the offset after it.
    fn code(&mut self, at: usize) -> usize {
        let byte = self.bytes[at];
        let space = matches!(byte, b'\n' | b' ' | b'\t' | b'\r');
        let mut next = at + 1;
        if self.ended && !space && byte != b';' {
            // After `;` a new statement begins, unless `else` or a closing bracket follows.
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
                let continues = CONTINUING_WORDS.contains(&word);
                if self.line_ended && !continues {
                    self.here = 0;
                }
                self.here += 1;
                self.value = !continues;
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

    /// Processes a comment or a string. A string is a value.
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
