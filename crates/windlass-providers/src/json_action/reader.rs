//! Finds the JSON object in a model's text while it arrives. An action becomes a call; an answer becomes text, already
//! while the model is writing it. Prose around the object is passed on; the object itself is not.
//! An incomplete object is never executed. A complete object that is not valid JSON becomes a call that fails with an
//! error, so that the model can correct it.

use serde_json::{Map, Value};
use windlass_core::provider::{Chunk, EndReason};

use crate::protocol::Batch;

/// The maximum length of the text up to the end of an action, in bytes.
pub(super) const MAX_TEXT: usize = 8 << 20;
/// The maximum number of `{` inside an unclosed object that are tried as the start of another object.
const MAX_NESTED_STARTS: usize = 32;

/// The text is longer than [`MAX_TEXT`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Debug)]
pub(super) struct ActionReader {
    tools: Vec<String>,
    /// All text until the object is found.
    text: String,
    /// The end of the text that was passed on as prose.
    passed_on: usize,
    /// The end of the text that was scanned.
    scanned: usize,
    state: ReaderState,
    native: bool,
}

#[derive(Debug)]
enum ReaderState {
    Seeking,
    Inside(Scan),
    /// Inside the text of an answer.
    Answering(Unescape),
    /// The object was an answer; the text after it is ignored.
    Answered,
    /// The object was an action; the text after it is ignored.
    Called,
}

#[derive(Debug, Clone, Copy)]
struct Scan {
    start: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The object may be an answer that can be streamed.
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

    /// Processes one byte; returns whether it closed the object.
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

enum ObjectMeaning {
    Action {
        name: String,
        args: String,
    },
    Answer(String),
    /// The object belongs to the prose.
    Other,
}

impl ActionReader {
    pub(super) fn new(tools: Vec<String>) -> Self {
        Self {
            tools,
            text: String::new(),
            passed_on: 0,
            scanned: 0,
            state: ReaderState::Seeking,
            native: false,
        }
    }

    /// Records that the model made a native call.
    pub(super) fn native_call(&mut self) {
        self.native = true;
    }

    /// Processes the next piece of text.
    pub(super) fn push(&mut self, piece: &str, out: &mut Batch) -> Result<(), TooLong> {
        match &mut self.state {
            ReaderState::Answered | ReaderState::Called => return Ok(()),
            ReaderState::Answering(string) => {
                if string.push(piece, out) {
                    self.state = ReaderState::Answered;
                }
                return Ok(());
            }
            ReaderState::Seeking | ReaderState::Inside(_) => {}
        }
        if self.text.len() + piece.len() > MAX_TEXT {
            return Err(TooLong);
        }
        self.text.push_str(piece);
        self.scan(out);
        if let ReaderState::Seeking = self.state {
            self.pass_on_lines(out);
        }
        Ok(())
    }

    /// Ends the answer and pushes its end reason.
    pub(super) fn finish(&mut self, end: EndReason, out: &mut Batch) {
        let refused = end == EndReason::Refused;
        if let ReaderState::Inside(scan) = self.state {
            self.search_unclosed(scan, out);
        }
        let end = match &self.state {
            ReaderState::Called => EndReason::ToolCalls,
            // Text that was cut off after a complete answer is ignored.
            ReaderState::Answered => EndReason::Done,
            ReaderState::Answering(_) => end,
            // A partial action is neither displayed nor executed; the engine asks the model again.
            ReaderState::Inside(scan) if mentions(&self.text[scan.start..]) => {
                self.pass_on(scan.start, out);
                EndReason::Length
            }
            ReaderState::Inside(_) | ReaderState::Seeking => {
                self.pass_on(self.text.len(), out);
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
                ReaderState::Seeking => {
                    let Some(at) = self.text[self.scanned..].find('{') else {
                        self.scanned = self.text.len();
                        return;
                    };
                    self.scanned += at;
                    self.state = ReaderState::Inside(Scan::at(self.scanned));
                }
                ReaderState::Inside(scan) => {
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
                    self.state = ReaderState::Seeking;
                    if self.settle(scan.start, self.scanned, out) {
                        return;
                    }
                }
                ReaderState::Answering(_) | ReaderState::Answered | ReaderState::Called => return,
            }
        }
    }

    /// Starts to stream the answer, if this object is one.
    fn stream_answer(&mut self, scan: Scan, out: &mut Batch) -> bool {
        match answer_start(&self.text[scan.start..]) {
            AnswerStart::Unclear => false,
            AnswerStart::No => {
                if let ReaderState::Inside(scan) = &mut self.state {
                    scan.may_answer = false;
                }
                false
            }
            AnswerStart::At(at) => {
                // A line break separates the answer from prose before it.
                if self.pass_on_before(scan.start, out) {
                    out.text("\n");
                }
                let mut string = Unescape::default();
                let closed = string.push(&self.text[scan.start + at..], out);
                self.state = if closed {
                    ReaderState::Answered
                } else {
                    ReaderState::Answering(string)
                };
                true
            }
        }
    }

    /// Handles a complete object; returns false if it belongs to the prose.
    fn settle(&mut self, start: usize, end: usize, out: &mut Batch) -> bool {
        match meaning(&self.text[start..end], &self.tools) {
            ObjectMeaning::Action { name, args } => {
                self.pass_on_before(start, out);
                out.push(Chunk::CallStart {
                    index: 0,
                    id: String::new(),
                    name,
                });
                out.args(0, &args);
                self.state = ReaderState::Called;
                true
            }
            ObjectMeaning::Answer(text) => {
                if self.pass_on_before(start, out) {
                    out.text("\n");
                }
                out.text(&text);
                self.state = ReaderState::Answered;
                true
            }
            ObjectMeaning::Other => false,
        }
    }

    /// Searches an unclosed object for a complete one inside it.
    fn search_unclosed(&mut self, unfinished: Scan, out: &mut Batch) {
        let mut from = unfinished.start + 1;
        for _ in 0..MAX_NESTED_STARTS {
            let Some(at) = self.text[from..].find('{') else {
                return;
            };
            let start = from + at;
            let mut scan = Scan::at(start);
            let closed = self.text.as_bytes()[start..]
                .iter()
                .position(|byte| scan.closes(*byte));
            // The arguments of a partial action are not an action, even if they are a complete object.
            if let Some(closed) = closed
                && !mentions(&self.text[unfinished.start..start])
                && self.settle(start, start + closed + 1, out)
            {
                return;
            }
            from = closed.map_or(start + 1, |closed| start + closed + 1);
        }
    }

    /// Passes on the complete lines, which cannot belong to an object.
    fn pass_on_lines(&mut self, out: &mut Batch) {
        let waiting = &self.text[self.passed_on..];
        let Some(end) = waiting.rfind('\n') else {
            return;
        };
        let end = without_fence(&waiting[..end]).trim_end().len();
        self.pass_on(self.passed_on + end, out);
    }

    /// Passes on the prose before an object, without the code fence around the object; returns whether there is any
    /// prose.
    fn pass_on_before(&mut self, start: usize, out: &mut Batch) -> bool {
        let end = self.passed_on
            + without_fence(&self.text[self.passed_on..start])
                .trim_end()
                .len();
        self.pass_on(end, out);
        !self.text[..end].trim().is_empty()
    }

    fn pass_on(&mut self, end: usize, out: &mut Batch) {
        if end > self.passed_on {
            let prose = &self.text[self.passed_on..end];
            let nothing_yet = self.text[..self.passed_on].trim().is_empty();
            out.text(if nothing_yet {
                prose.trim_start()
            } else {
                prose
            });
            self.passed_on = end;
        }
    }
}

/// Returns the text without an opening code fence in its last line.
fn without_fence(text: &str) -> &str {
    let trimmed = text.trim_end();
    let line = trimmed.rfind('\n').map_or(0, |at| at + 1);
    let last = trimmed[line..].trim_start();
    let fence = (last.starts_with("```") || last.starts_with("~~~"))
        && !last[3..].trim().contains(['`', ' ']);
    if fence { &text[..line] } else { text }
}

enum AnswerStart {
    At(usize),
    No,
    Unclear,
}

/// Checks whether an object begins with `{"answer": "`, and returns where the text of the answer starts.
fn answer_start(object: &str) -> AnswerStart {
    let mut rest = object;
    for token in ["{", "\"answer\"", ":", "\""] {
        rest = rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => rest = after,
            None if token.starts_with(rest) => return AnswerStart::Unclear,
            None => return AnswerStart::No,
        }
    }
    AnswerStart::At(object.len() - rest.len())
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

fn meaning(object: &str, tools: &[String]) -> ObjectMeaning {
    // Models often write unescaped line breaks inside strings. Their meaning is clear, so they are accepted.
    let parsed =
        serde_json::from_str(object).or_else(|_| serde_json::from_str(&escape_controls(object)));
    match parsed {
        Ok(Value::Object(object)) => of_object(&object, tools, true),
        _ if mentions(object) => {
            let name = action_name(object).unwrap_or("action").to_owned();
            ObjectMeaning::Action {
                name,
                args: object.to_owned(),
            }
        }
        _ => ObjectMeaning::Other,
    }
}

fn of_object(object: &Map<String, Value>, tools: &[String], outermost: bool) -> ObjectMeaning {
    let name = ACTION
        .iter()
        .find_map(|key| Some((*key, object.get(*key)?)));
    let args = ARGUMENTS.iter().find_map(|key| object.get(*key));
    match (name, args) {
        // An object with only a `name` may be anything.
        (Some(("name", _)), None) => {}
        (Some((_, Value::String(name))), args) => {
            let finishes = ANSWER.contains(&name.as_str()) || name == "finish" || name == "none";
            if finishes && !tools.contains(name) {
                return ObjectMeaning::Answer(args.map(answer_text).unwrap_or_default());
            }
            let args = match args {
                None | Some(Value::Null) => "{}".to_owned(),
                // Some models write the arguments as a string that contains JSON.
                Some(Value::String(json)) => json.clone(),
                Some(args) => args.to_string(),
            };
            return ObjectMeaning::Action {
                name: name.clone(),
                args,
            };
        }
        (Some((_, Value::Object(inner))), _) if outermost => return of_object(inner, tools, false),
        _ => {}
    }
    match ANSWER.iter().find_map(|key| object.get(*key)) {
        Some(Value::String(text)) => ObjectMeaning::Answer(text.clone()),
        Some(value) => ObjectMeaning::Answer(value.to_string()),
        None => ObjectMeaning::Other,
    }
}

/// Returns the text in the arguments of an action that is a final answer.
fn answer_text(args: &Value) -> String {
    let inside = args
        .as_object()
        .filter(|object| object.len() == 1)
        .and_then(|object| object.values().next());
    match inside.unwrap_or(args) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns whether invalid JSON was meant to be an action or an answer.
fn mentions(text: &str) -> bool {
    key_at(text, "action").is_some() || key_at(text, "answer").is_some()
}

/// Returns the tool name in an action that is not valid JSON.
fn action_name(text: &str) -> Option<&str> {
    let after = text[key_at(text, "action")?..].trim_start();
    let quote = after
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let name = after[1..].split(quote).next()?;
    (!name.is_empty() && name.len() <= 128).then_some(name)
}

/// Returns where the value of this key begins. The key may be in any quotes or none.
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

/// Escapes the control characters inside the strings of an object.
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

/// Decodes a JSON string while it arrives.
#[derive(Debug, Default)]
struct Unescape {
    /// An incomplete escape sequence.
    pending: String,
    /// The high surrogate of a character that is written as two escapes.
    high: Option<u16>,
}

impl Unescape {
    /// Decodes the next piece; returns whether the string ended in it.
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
                self.flush_surrogate(out);
                return true;
            }
            self.pending.push(c);
        }
        self.plain(&piece[plain..], out);
        false
    }

    fn plain(&mut self, text: &str, out: &mut Batch) {
        if !text.is_empty() {
            self.flush_surrogate(out);
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
        self.flush_surrogate(out);
        match kind {
            'n' => out.text("\n"),
            't' => out.text("\t"),
            'r' => out.text("\r"),
            'b' => out.text("\u{8}"),
            'f' => out.text("\u{c}"),
            // An unknown escape stands for the character after the backslash.
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
        // The high surrogate has no partner; this unit may begin a pair of its own.
        if self.high.is_some() {
            self.flush_surrogate(out);
            self.unit(unit, out);
        } else {
            out.text("\u{fffd}");
        }
    }

    fn flush_surrogate(&mut self, out: &mut Batch) {
        if self.high.take().is_some() {
            out.text("\u{fffd}");
        }
    }
}
