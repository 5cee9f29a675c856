//! A span as plain data: an operation with its times, its parent and its attributes.

use std::fmt;

use windlass_core::id::{RunId, SessionId, TraceId};

/// At most this many events of a span are kept; later ones are counted.
pub const MAX_EVENTS: usize = 128;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// A string, which may be empty.
    Text(String),
    /// A signed 64-bit integer.
    Int(i64),
    /// Either true or false.
    Bool(bool),
    /// A list of strings.
    Texts(Vec<String>),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for AttributeValue {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

/// The name and the value of an attribute.
pub type Attribute = (&'static str, AttributeValue);

/// Whether a span is a request to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside this process.
    Internal,
    /// A request to another process.
    Client,
}

/// The id of a span, unique in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// The id of the span of a run. It is the same in every process that works on the run, and if the trace is created
    /// from the log again.
    #[must_use]
    pub fn of_run(session: &SessionId, run: &RunId) -> Self {
        Self::of(session, run, 0)
    }

    /// The id of the span that begins with the event `seq` of a run.
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
        // An id of zeros is invalid in OpenTelemetry.
        id[7] |= u8::from(id == [0; 8]);
        Self(id)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The trace id that is sent: that of the events if it is a valid one, else a hash of it.
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

/// One operation: a run, a model call, a tool call, a check or a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace id, 32 hexadecimal digits.
    pub trace: String,
    /// The id of this span.
    pub id: SpanId,
    /// The id of the enclosing span.
    pub parent: Option<SpanId>,
    /// The operation, for example `execute_tool bash`.
    pub name: String,
    /// Whether the span is a request to another process.
    pub kind: SpanKind,
    /// The start in milliseconds since 1970.
    pub start: i64,
    /// The end in milliseconds since 1970; never before the start.
    pub end: i64,
    /// The attributes, in the order in which they were set.
    pub attributes: Vec<Attribute>,
    /// The first [`MAX_EVENTS`] events during the span.
    pub events: Vec<SpanEvent>,
    /// The number of events that were not kept.
    pub dropped_events: u32,
    /// The reason of a failure as a stable name; `None` on success.
    pub error: Option<String>,
    /// The reason of a failure in words; only if content is exported.
    pub detail: Option<String>,
}

/// An event during a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// The kind of event, for example `windlass.retry`.
    pub name: &'static str,
    /// The time in milliseconds since 1970.
    pub at: i64,
    /// The attributes of the event.
    pub attributes: Vec<Attribute>,
}

impl Span {
    /// A new span without attributes; its end is its start until it is closed.
    pub(crate) fn new(trace: String, id: SpanId, name: String, kind: SpanKind, start: i64) -> Self {
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

    /// Adds an attribute to the span.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.push((name, value.into()));
    }

    /// Adds an event, or counts it if there are [`MAX_EVENTS`] already.
    pub fn add_event(&mut self, event: SpanEvent) {
        match self.events.len() < MAX_EVENTS {
            true => self.events.push(event),
            false => self.dropped_events = self.dropped_events.saturating_add(1),
        }
    }

    /// Ends the span. If the clock was set back, its duration is 0, never negative.
    pub fn close(&mut self, end: i64, error: Option<String>) {
        self.end = end.max(self.start);
        if let Some(error) = &error {
            self.set("error.type", error.as_str());
        }
        self.error = error;
    }

    /// The approximate size of the encoded span in bytes.
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

impl AttributeValue {
    fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(_) | Self::Bool(_) => 8,
            Self::Texts(texts) => texts.iter().map(|text| text.len() + 24).sum(),
        }
    }
}
