//! A message in the history: shared, with a precomputed size and a cache for its wire form.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::message::{Message, Part};
use crate::tool::WireSlot;

/// One message of the history. It is cheap to clone and caches its wire form.
#[derive(Clone)]
pub struct Entry(Arc<EntryData>);

struct EntryData {
    message: Message,
    seq: u64,
    summary: bool,
    bytes: usize,
    wire: WireSlot,
}

impl Entry {
    /// Wraps a message that is not in a log.
    #[must_use]
    pub fn new(message: Message) -> Self {
        Self::at(0, message)
    }

    /// Wraps the message of an event. Results get the sequence number of the answer with their calls, because both
    /// belong to one step: a cut by sequence number must not separate them.
    #[must_use]
    pub fn at(seq: u64, message: Message) -> Self {
        Self::with(seq, message, false)
    }

    /// Wraps the summary that replaces all messages up to an event.
    #[must_use]
    pub fn summary(seq: u64, message: Message) -> Self {
        Self::with(seq, message, true)
    }

    fn with(seq: u64, message: Message, summary: bool) -> Self {
        let bytes = weigh(&message);
        Self(Arc::new(EntryData {
            message,
            seq,
            summary,
            bytes,
            wire: WireSlot::default(),
        }))
    }

    /// The sequence number of the event that created the message.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// Whether the entry is a summary of other messages.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        self.0.summary
    }

    /// The approximate size on the wire in bytes, for estimating tokens.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The cache for the encoded form.
    #[must_use]
    pub fn wire(&self) -> &WireSlot {
        &self.0.wire
    }
}

/// The form in snapshots: `[seq, summary, message]`.
impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0.seq, self.0.summary, &self.0.message).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seq, summary, message) = Deserialize::deserialize(deserializer)?;
        Ok(Self::with(seq, message, summary))
    }
}

impl Deref for Entry {
    type Target = Message;
    fn deref(&self) -> &Message {
        &self.0.message
    }
}

/// The size of a message in bytes: its content, and a small constant for its structure.
fn weigh(message: &Message) -> usize {
    const FRAME: usize = 32;
    let part = |part: &Part| match part {
        Part::Text { text } => text.len(),
        Part::Reasoning { text, opaque } => text.len() + opaque.as_ref().map_or(0, json_len),
        // An image is billed by its size in pixels; an eighth of its base64 is a generous upper bound.
        Part::Image { data, .. } => data.len() / 8,
        Part::Call(call) => call.name.len() + json_len(&call.args) + FRAME,
        Part::Result(result) => result.text.len() + FRAME,
    };
    message.parts.iter().map(part).sum::<usize>() + FRAME
}

/// The length of a value as JSON, computed without encoding it.
pub(super) fn json_len(value: &Value) -> usize {
    // A comma follows every item but the last.
    let commas = |items: usize| items.saturating_sub(1);
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => string_len(text),
        Value::Array(items) => 2 + commas(items.len()) + items.iter().map(json_len).sum::<usize>(),
        Value::Object(fields) => {
            let fields_len: usize = fields
                .iter()
                .map(|(name, value)| string_len(name) + 1 + json_len(value))
                .sum();
            2 + commas(fields.len()) + fields_len
        }
    }
}

/// The length of a text as a JSON string.
fn string_len(text: &str) -> usize {
    let escape = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
        0..0x20 => 5,
        _ => 0,
    };
    2 + text.len() + text.bytes().map(escape).sum::<usize>()
}
