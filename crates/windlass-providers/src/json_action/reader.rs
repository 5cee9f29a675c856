//! Reads a model's text as it comes and finds the one JSON object in it: an action becomes a call, an answer becomes
//! text while it is still being written. Prose around the object is passed on, the object itself never is.
//! An object that is not whole is never acted on; one that is whole but not JSON becomes a call that only gets an
//! error back.

use serde_json::{Map, Value};
use windlass_core::provider::{Chunk, EndReason};

use crate::protocol::Batch;

/// The most text that is looked at for one action.
const MOST: usize = 8 << 20;
/// How many openings of an object are tried again when what began as one never ended.
const MOST_TRIES: usize = 32;

/// The answer passed [`MOST`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Debug)]
pub(super) struct Reader {
    tools: Vec<String>,
    /// All text so far, until the object is found.
    text: String,
    /// Up to here it was passed on as prose.
    shown: usize,
    /// Up to here it was scanned.
    scanned: usize,
    state: State,
    native: bool,
}

#[derive(Debug)]
enum State {
    /// No object is open.
    Seeking,
    /// Inside one.
    Inside(Scan),
    /// Inside the text of an answer.
    Answering(Unescape),
    /// The object was an answer; what follows does not count.
    Answered,
    /// It was an action.
    Called,
}

#[derive(Debug, Clone, Copy)]
struct Scan {
    start: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// It may still turn out to be an answer that can be shown as it comes.
    may_answer: bool,
}

impl Scan {
    fn at(start: usize) -> Self {
        Self {
            start,
            depth: 0,
            in_string: false,
            escaped: false,
            may_answer: true,
        }
    }

    /// Takes one byte; true when it closed the object.
    fn closes(&mut self, byte: u8) -> bool {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' => self.depth += 1,
            b'}' => {
                self.depth -= 1;
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

/// What an object means.
enum Meaning {
    Action {
        name: String,
        args: String,
    },
    Answer(String),
    /// It belongs to the prose.
    Other,
}

impl Reader {
    pub(super) fn new(tools: Vec<String>) -> Self {
        Self {
            tools,
            text: String::new(),
            shown: 0,
            scanned: 0,
            state: State::Seeking,
            native: false,
        }
    }

    /// The model made a call of its own.
    pub(super) fn native_call(&mut self) {
        self.native = true;
    }

    /// More text.
    pub(super) fn push(&mut self, piece: &str, out: &mut Batch) -> Result<(), TooLong> {
        match &mut self.state {
            State::Answered | State::Called => return Ok(()),
            State::Answering(string) => {
                if string.push(piece, out) {
                    self.state = State::Answered;
                }
                return Ok(());
            }
            State::Seeking | State::Inside(_) => {}
        }
        if self.text.len() + piece.len() > MOST {
            return Err(TooLong);
        }
        self.text.push_str(piece);
        self.scan(out);
        if let State::Seeking = self.state {
            self.show_lines(out);
        }
        Ok(())
    }

    /// The answer is over.
    pub(super) fn finish(&mut self, end: EndReason, out: &mut Batch) {
        let refused = end == EndReason::Refused;
        if let State::Inside(scan) = self.state {
            self.look_inside(scan, out);
        }
        let end = match &self.state {
            State::Called => EndReason::ToolCalls,
            // What was cut off behind a whole answer does not count.
            State::Answered => EndReason::Done,
            State::Answering(_) => end,
            // Half an action is not shown and not run: the engine asks for it again.
            State::Inside(scan) if mentions(&self.text[scan.start..]) => {
                self.show(scan.start, out);
                EndReason::Length
            }
            State::Inside(_) | State::Seeking => {
                self.show(self.text.len(), out);
                if self.native {
                    EndReason::ToolCalls
                } else {
                    end
                }
            }
        };
        let end = if refused { EndReason::Refused } else { end };
        out.push(Chunk::End(end));
    }

    fn scan(&mut self, out: &mut Batch) {
        loop {
            match &mut self.state {
                State::Seeking => {
                    let Some(at) = self.text[self.scanned..].find('{') else {
                        self.scanned = self.text.len();
                        return;
                    };
                    self.scanned += at;
                    self.state = State::Inside(Scan::at(self.scanned));
                }
                State::Inside(scan) => {
                    let bytes = self.text.as_bytes();
                    let closed = bytes[self.scanned..]
                        .iter()
                        .position(|byte| scan.closes(*byte));
                    let scan = *scan;
                    if scan.may_answer && self.stream_answer(scan, out) {
                        return;
                    }
                    let Some(closed) = closed else {
                        self.scanned = self.text.len();
                        return;
                    };
                    self.scanned += closed + 1;
                    self.state = State::Seeking;
                    if self.settle(scan.start, self.scanned, out) {
                        return;
                    }
                }
                State::Answering(_) | State::Answered | State::Called => return,
            }
        }
    }

    /// Goes over to showing the answer piece by piece, when this object is one.
    fn stream_answer(&mut self, scan: Scan, out: &mut Batch) -> bool {
        match answer_begins(&self.text[scan.start..]) {
            Begins::Unclear => false,
            Begins::No => {
                if let State::Inside(scan) = &mut self.state {
                    scan.may_answer = false;
                }
                false
            }
            Begins::At(at) => {
                // An answer after prose begins on its own line.
                if self.show_before(scan.start, out) {
                    out.text("\n");
                }
                let mut string = Unescape::default();
                let closed = string.push(&self.text[scan.start + at..], out);
                self.state = if closed {
                    State::Answered
                } else {
                    State::Answering(string)
                };
                true
            }
        }
    }

    /// Acts on a whole object; false when it belongs to the prose.
    fn settle(&mut self, start: usize, end: usize, out: &mut Batch) -> bool {
        match meaning(&self.text[start..end], &self.tools) {
            Meaning::Action { name, args } => {
                self.show_before(start, out);
                out.push(Chunk::CallStart {
                    index: 0,
                    id: String::new(),
                    name,
                });
                out.args(0, &args);
                self.state = State::Called;
                true
            }
            Meaning::Answer(text) => {
                if self.show_before(start, out) {
                    out.text("\n");
                }
                out.text(&text);
                self.state = State::Answered;
                true
            }
            Meaning::Other => false,
        }
    }

    /// What began as an object and never ended may hide one that did.
    fn look_inside(&mut self, unfinished: Scan, out: &mut Batch) {
        let mut from = unfinished.start + 1;
        for _ in 0..MOST_TRIES {
            let Some(at) = self.text[from..].find('{') else {
                return;
            };
            let start = from + at;
            let mut scan = Scan::at(start);
            let closed = self.text.as_bytes()[start..]
                .iter()
                .position(|byte| scan.closes(*byte));
            // The arguments of half an action are not an action, however whole they look.
            if let Some(closed) = closed
                && !mentions(&self.text[unfinished.start..start])
                && self.settle(start, start + closed + 1, out)
            {
                return;
            }
            from = closed.map_or(start + 1, |closed| start + closed + 1);
        }
    }

    /// Passes on lines that cannot belong to an object.
    fn show_lines(&mut self, out: &mut Batch) {
        let waiting = &self.text[self.shown..];
        let Some(end) = waiting.rfind('\n') else {
            return;
        };
        let end = without_fence(&waiting[..end]).trim_end().len();
        self.show(self.shown + end, out);
    }

    /// Passes on the prose before an object, without the fence that opens it; true when there was any.
    fn show_before(&mut self, start: usize, out: &mut Batch) -> bool {
        let end = self.shown
            + without_fence(&self.text[self.shown..start])
                .trim_end()
                .len();
        self.show(end, out);
        !self.text[..end].trim().is_empty()
    }

    fn show(&mut self, end: usize, out: &mut Batch) {
        if end > self.shown {
            let fresh = &self.text[self.shown..end];
            let nothing_yet = self.text[..self.shown].trim().is_empty();
            out.text(if nothing_yet {
                fresh.trim_start()
            } else {
                fresh
            });
            self.shown = end;
        }
    }
}

/// The text without an opening code fence as its last line.
fn without_fence(text: &str) -> &str {
    let trimmed = text.trim_end();
    let line = trimmed.rfind('\n').map_or(0, |at| at + 1);
    let last = trimmed[line..].trim_start();
    let fence = (last.starts_with("```") || last.starts_with("~~~"))
        && !last[3..].trim().contains(['`', ' ']);
    if fence { &text[..line] } else { text }
}

enum Begins {
    At(usize),
    No,
    Unclear,
}

/// Whether an object begins `{"answer": "`, and where its text starts.
fn answer_begins(object: &str) -> Begins {
    let mut rest = object;
    for token in ["{", "\"answer\"", ":", "\""] {
        rest = rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => rest = after,
            None if token.starts_with(rest) => return Begins::Unclear,
            None => return Begins::No,
        }
    }
    Begins::At(object.len() - rest.len())
}

const ACTION: [&str; 5] = ["action", "tool", "tool_name", "function", "name"];
const ARGUMENTS: [&str; 6] = [
    "arguments",
    "args",
    "parameters",
    "input",
    "action_input",
    "action_arguments",
];
const ANSWER: [&str; 2] = ["answer", "final_answer"];

fn meaning(object: &str, tools: &[String]) -> Meaning {
    // A line break inside a string can only mean itself, so that much is forgiven.
    let parsed =
        serde_json::from_str(object).or_else(|_| serde_json::from_str(&escape_controls(object)));
    match parsed {
        Ok(Value::Object(object)) => of_object(&object, tools, true),
        _ if mentions(object) => {
            let name = named(object).unwrap_or("action").to_owned();
            Meaning::Action {
                name,
                args: object.to_owned(),
            }
        }
        _ => Meaning::Other,
    }
}

fn of_object(object: &Map<String, Value>, tools: &[String], outermost: bool) -> Meaning {
    let name = ACTION
        .iter()
        .find_map(|key| Some((*key, object.get(*key)?)));
    let args = ARGUMENTS.iter().find_map(|key| object.get(*key));
    match (name, args) {
        // `name` alone is anybody's object.
        (Some(("name", _)), None) => {}
        (Some((_, Value::String(name))), args) => {
            let finishes = ANSWER.contains(&name.as_str()) || name == "finish" || name == "none";
            if finishes && !tools.contains(name) {
                return Meaning::Answer(args.map(only_text).unwrap_or_default());
            }
            let args = match args {
                None | Some(Value::Null) => "{}".to_owned(),
                // Some models write the arguments as a text that holds JSON.
                Some(Value::String(json)) => json.clone(),
                Some(args) => args.to_string(),
            };
            return Meaning::Action {
                name: name.clone(),
                args,
            };
        }
        (Some((_, Value::Object(inner))), _) if outermost => return of_object(inner, tools, false),
        _ => {}
    }
    match ANSWER.iter().find_map(|key| object.get(*key)) {
        Some(Value::String(text)) => Meaning::Answer(text.clone()),
        Some(value) => Meaning::Answer(value.to_string()),
        None => Meaning::Other,
    }
}

/// The text in the arguments of an action that only says something.
fn only_text(args: &Value) -> String {
    let inside = args
        .as_object()
        .filter(|object| object.len() == 1)
        .and_then(|object| object.values().next());
    match inside.unwrap_or(args) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether text that is not JSON was meant to be one of our objects.
fn mentions(text: &str) -> bool {
    key_at(text, "action").is_some() || key_at(text, "answer").is_some()
}

/// The name in an action that is not JSON.
fn named(text: &str) -> Option<&str> {
    let after = text[key_at(text, "action")?..].trim_start();
    let quote = after
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let name = after[1..].split(quote).next()?;
    (!name.is_empty() && name.len() <= 128).then_some(name)
}

/// Where the value of this key begins, in whatever quotes the key stands.
fn key_at(text: &str, key: &str) -> Option<usize> {
    text.match_indices(key).find_map(|(at, _)| {
        let before = text[..at].trim_end_matches(['"', '\'', '`']).trim_end();
        let after = text[at + key.len()..]
            .trim_start_matches(['"', '\'', '`'])
            .trim_start();
        (before.ends_with(['{', ',']) && after.starts_with(':'))
            .then(|| text.len() - after.len() + 1)
    })
}

/// The object with the control characters inside its strings written as escapes.
fn escape_controls(object: &str) -> String {
    let mut scan = Scan::at(0);
    let mut out = String::with_capacity(object.len() + 16);
    for c in object.chars() {
        match c {
            '\n' if scan.in_string => out.push_str("\\n"),
            '\r' if scan.in_string => out.push_str("\\r"),
            '\t' if scan.in_string => out.push_str("\\t"),
            c => out.push(c),
        }
        let mut bytes = [0; 4];
        for byte in c.encode_utf8(&mut bytes).bytes() {
            scan.closes(byte);
        }
    }
    out
}

/// A JSON string, read as it comes.
#[derive(Debug, Default)]
struct Unescape {
    /// An escape that is not complete.
    pending: String,
    /// The first half of a character that is written as two escapes.
    high: Option<u16>,
}

impl Unescape {
    /// Takes more; true when the string was closed in it.
    fn push(&mut self, piece: &str, out: &mut Batch) -> bool {
        let mut plain = 0;
        for (at, c) in piece.char_indices() {
            if !self.pending.is_empty() {
                self.pending.push(c);
                plain = at + c.len_utf8();
                self.escape(out);
                continue;
            }
            if c != '"' && c != '\\' {
                continue;
            }
            self.plain(&piece[plain..at], out);
            plain = at + 1;
            if c == '"' {
                self.lone(out);
                return true;
            }
            self.pending.push(c);
        }
        self.plain(&piece[plain..], out);
        false
    }

    fn plain(&mut self, text: &str, out: &mut Batch) {
        if !text.is_empty() {
            self.lone(out);
            out.text(text);
        }
    }

    fn escape(&mut self, out: &mut Batch) {
        let Some(kind) = self.pending.chars().nth(1) else {
            return;
        };
        if kind == 'u'
            && self.pending.len() < 6
            && self.pending[2..]
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let unit = pending
            .get(2..6)
            .and_then(|hex| u16::from_str_radix(hex, 16).ok());
        if let (Some(unit), 'u') = (unit, kind) {
            self.unit(unit, out);
            return;
        }
        self.lone(out);
        match kind {
            'n' => out.text("\n"),
            't' => out.text("\t"),
            'r' => out.text("\r"),
            'b' => out.text("\u{8}"),
            'f' => out.text("\u{c}"),
            // An escape that JSON does not know stands for what is behind the stroke.
            _ => out.text(&pending[1..]),
        }
    }

    fn unit(&mut self, unit: u16, out: &mut Batch) {
        let units = [self.high.unwrap_or(unit), unit];
        let pair = if self.high.is_some() {
            &units[..]
        } else {
            &units[..1]
        };
        if self.high.is_none() && (0xd800..0xdc00).contains(&unit) {
            self.high = Some(unit);
            return;
        }
        if let Some(Ok(c)) = char::decode_utf16(pair.iter().copied()).next() {
            self.high = None;
            out.text(c.encode_utf8(&mut [0; 4]));
            return;
        }
        // The first half stood alone; the second may begin a pair of its own.
        if self.high.is_some() {
            self.lone(out);
            self.unit(unit, out);
        } else {
            out.text("\u{fffd}");
        }
    }

    fn lone(&mut self, out: &mut Batch) {
        if self.high.take().is_some() {
            out.text("\u{fffd}");
        }
    }
}
