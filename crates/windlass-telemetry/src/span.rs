//! One span as plain data: what was done, from when to when, below which other span.

use std::fmt;

use windlass_core::id::{RunId, SessionId, TraceId};

/// Events of one span that are kept; what comes after them is counted.
pub const MAX_EVENTS: usize = 128;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// A list of texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

/// A name and its value.
pub type Attribute = (&'static str, Value);

/// On which side of a call the span stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Work inside of this process.
    Internal,
    /// A request to another.
    Client,
}

/// Eight bytes that name a span in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// The span of a run: the same in every process that works on it, and when it is made from the log again.
    #[must_use]
    pub fn of_run(session: &SessionId, run: &RunId) -> Self {
        Self::of(session, run, 0)
    }

    /// The span that begins with an event of a run.
    #[must_use]
    pub fn of(session: &SessionId, run: &RunId, seq: u64) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(session.as_str().as_bytes())
            .update(b"\n")
            .update(run.as_str().as_bytes())
            .update(b"\n");
        hash.update(&seq.to_le_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&hash.finalize().as_bytes()[..8]);
        // Nothing but zeros would mean no span at all.
        id[7] |= u8::from(id == [0; 8]);
        Self(id)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The trace of events as it is sent: their own when it has the form of one, else one that is made from it.
#[must_use]
pub fn trace_id(trace: &TraceId) -> String {
    let text = trace.as_str();
    let is_hex = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == 32 && is_hex && text.bytes().any(|byte| byte != b'0') {
        return text.to_owned();
    }
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace: String,
    /// Its own id.
    pub id: SpanId,
    /// The span it is a part of.
    pub parent: Option<SpanId>,
    /// What was done.
    pub name: String,
    /// On which side of a call.
    pub kind: Kind,
    /// In milliseconds since 1970.
    pub start: i64,
    /// Never before the start.
    pub end: i64,
    /// What is known about it.
    pub attributes: Vec<Attribute>,
    /// What happened on the way.
    pub events: Vec<SpanEvent>,
    /// What happened and is not told any more.
    pub dropped_events: u32,
    /// Why it failed, in a stable word.
    pub error: Option<String>,
    /// Why it failed, in words; only where content may be told.
    pub detail: Option<String>,
}

/// Something that happened while a span was open.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// What.
    pub name: &'static str,
    /// In milliseconds since 1970.
    pub at: i64,
    /// What is known about it.
    pub attributes: Vec<Attribute>,
}

impl Span {
    /// A span that ends where it starts, until it is closed.
    pub(crate) fn new(trace: String, id: SpanId, name: String, kind: Kind, start: i64) -> Self {
        Self {
            trace,
            id,
            parent: None,
            name,
            kind,
            start,
            end: start,
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            error: None,
            detail: None,
        }
    }

    /// One more attribute.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// Something happened. Only so much of it is kept.
    pub fn tell(&mut self, event: SpanEvent) {
        match self.events.len() < MAX_EVENTS {
            true => self.events.push(event),
            false => self.dropped_events = self.dropped_events.saturating_add(1),
        }
    }

    /// Ends it. A clock that was set back makes it short, never negative.
    pub fn close(&mut self, end: i64, error: Option<String>) {
        self.end = end.max(self.start);
        if let Some(error) = &error {
            self.set("error.type", error.as_str());
        }
        self.error = error;
    }

    /// About how many bytes it has when it is sent.
    #[must_use]
    pub fn weight(&self) -> usize {
        let of = |attributes: &[Attribute]| {
            attributes
                .iter()
                .map(|(name, value)| name.len() + value.weight() + 32)
                .sum()
        };
        let events: usize = self
            .events
            .iter()
            .map(|event| event.name.len() + of(&event.attributes) + 64)
            .sum();
        let own: usize = of(&self.attributes);
        256 + self.name.len() + own + events + self.detail.as_ref().map_or(0, String::len)
    }
}

impl Value {
    fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(_) | Self::Bool(_) => 8,
            Self::Texts(texts) => texts.iter().map(|text| text.len() + 24).sum(),
        }
    }
}
