//! A message as the history holds it: shared, weighed once, with a place for its wire form.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::{Message, Part};
use crate::tool::WireSlot;

/// One message of the history, shared, with a place for its wire form.
#[derive(Clone)]
pub struct Entry(Arc<Inner>);

struct Inner {
    message: Message,
    seq: u64,
    summary: bool,
    bytes: usize,
    wire: WireSlot,
}

impl Entry {
    /// Wraps a message that is in no log.
    #[must_use]
    pub fn new(message: Message) -> Self {
        Self::at(0, message)
    }

    /// Wraps the message of an event. Results have the number of the answer that asked for them: they are one step, and
    /// nothing that goes by the number can part them.
    #[must_use]
    pub fn at(seq: u64, message: Message) -> Self {
        Self::with(seq, message, false)
    }

    /// Wraps what stands for all messages up to an event.
    #[must_use]
    pub fn summary(seq: u64, message: Message) -> Self {
        Self::with(seq, message, true)
    }

    fn with(seq: u64, message: Message, summary: bool) -> Self {
        let bytes = weigh(&message);
        Self(Arc::new(Inner {
            message,
            seq,
            summary,
            bytes,
            wire: WireSlot::default(),
        }))
    }

    /// The event that made it.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// Whether it stands for other messages.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        self.0.summary
    }

    /// About how many bytes it takes on a wire, for counting tokens.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Where an encoder keeps its bytes.
    #[must_use]
    pub fn wire(&self) -> &WireSlot {
        &self.0.wire
    }
}

/// For snapshots: `[seq, summary, message]`.
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

/// Bytes of a message: what is said, plus a little for its frame.
fn weigh(message: &Message) -> usize {
    const FRAME: usize = 32;
    let part = |part: &Part| match part {
        Part::Text { text } => text.len(),
        Part::Reasoning { text, opaque } => text.len() + opaque.as_ref().map_or(0, json_len),
        // An image is billed by its size on screen; its base64 is a generous bound of that.
        Part::Image { data, .. } => data.len() / 8,
        Part::Call(call) => call.name.len() + json_len(&call.args) + FRAME,
        Part::Result(result) => result.text.len() + FRAME,
    };
    message.parts.iter().map(part).sum::<usize>() + FRAME
}

/// How long a value is as JSON, without writing it anywhere.
pub(super) fn json_len(value: &serde_json::Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
