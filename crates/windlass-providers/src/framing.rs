//! From bytes to events, whatever a protocol wraps them in: server-sent events, one JSON document a line, or AWS
//! event-stream messages. In whatever pieces the network delivers, the events are the same; each byte is looked at a
//! bounded number of times, and everything has a limit. It opens no socket and knows no vendor.

mod aws;
mod lines;

use std::borrow::Cow;

pub use aws::AwsDecoder;
pub use lines::LineDecoder;
pub(crate) use lines::LineSplitter;

use crate::sse::SseDecoder;

/// The most that one line, event or message may take.
pub(crate) const MOST: usize = 16 << 20;

/// How events are told apart in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON document a line.
    JsonLines,
    /// Binary messages with headers and checksums.
    AwsEventStream,
}

impl Framing {
    /// The media type to ask for.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::JsonLines => "application/x-ndjson",
            Self::AwsEventStream => "application/vnd.amazon.eventstream",
        }
    }
}

/// One event. It lives as long as the call that hands it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name; `message` when the stream gave none.
    pub name: Cow<'a, str>,
    /// What it says; invalid UTF-8 is replaced.
    pub data: Cow<'a, str>,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A line passed its limit.
    #[error("a line of the event stream is longer than {0} bytes")]
    LineTooLong(usize),
    /// An event passed its limit.
    #[error("an event of the stream is larger than {0} bytes")]
    EventTooLarge(usize),
    /// A message was changed on its way, or these are no messages at all.
    #[error(
        "a checksum of the event stream is wrong; the answer was damaged on its way or is no event stream"
    )]
    Checksum,
    /// A message contradicts itself.
    #[error("a message of the event stream is malformed: {0}")]
    Malformed(&'static str),
    /// The upstream reports a failure in the place of an event.
    #[error("{message} ({name})")]
    Exception {
        /// The upstream's word for it.
        name: String,
        /// What it says.
        message: String,
    },
}

/// Reads one body.
#[derive(Debug)]
pub enum Framer {
    /// See [`SseDecoder`].
    Sse(SseDecoder),
    /// See [`LineDecoder`].
    JsonLines(LineDecoder),
    /// See [`AwsDecoder`].
    AwsEventStream(AwsDecoder),
}

impl Framer {
    /// A framer with the usual limits.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(SseDecoder::default()),
            Framing::JsonLines => Self::JsonLines(LineDecoder::default()),
            Framing::AwsEventStream => Self::AwsEventStream(AwsDecoder::default()),
        }
    }

    /// Reads the next bytes and hands each finished event to `on_event`.
    ///
    /// An error ends the stream for good: later pushes return it again.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Sse(decoder) => decoder.push(bytes, on_event),
            Self::JsonLines(decoder) => decoder.push(bytes, on_event),
            Self::AwsEventStream(decoder) => decoder.push(bytes, on_event),
        }
    }

    /// The stream is over. Hands over a last event whose end mark never came, where the framing lets one tell.
    pub fn finish<E: From<FramingError>>(
        &mut self,
        on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Sse(decoder) => decoder.finish(on_event),
            Self::JsonLines(decoder) => decoder.finish(on_event),
            // A message without its checksum is no message.
            Self::AwsEventStream(_) => Ok(()),
        }
    }
}

/// The bytes as text. Valid text, nearly all there is, goes through the fast check and stays borrowed.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    pub(crate) use super::aws::tests::message;

    type Seen = Vec<(String, String)>;

    /// What came out of a body given in pieces of this size.
    fn read(framing: Framing, body: &[u8], size: usize) -> (Seen, Option<FramingError>) {
        let mut framer = Framer::new(framing);
        let mut seen = Seen::new();
        let mut take = |event: Event<'_>| {
            seen.push((event.name.into_owned(), event.data.into_owned()));
            Ok::<(), FramingError>(())
        };
        for piece in body.chunks(size.max(1)) {
            if let Err(error) = framer.push(piece, &mut take) {
                assert_eq!(
                    framer.push(b"x", &mut take),
                    Err(error.clone()),
                    "an error stays"
                );
                return (seen, Some(error));
            }
        }
        let error = framer.finish(&mut take).err();
        (seen, error)
    }

    proptest! {
        #[test]
        fn any_bytes_read_the_same_in_every_split(
            body in prop::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n'), 3 => Just(0)], 0..300),
            size in 1usize..40,
        ) {
            for framing in [Framing::Sse, Framing::JsonLines, Framing::AwsEventStream] {
                prop_assert_eq!(read(framing, &body, size), read(framing, &body, body.len()), "{:?}", framing);
            }
        }

        #[test]
        fn messages_with_bytes_exchanged_read_the_same_in_every_split(
            payloads in prop::collection::vec("[a-z{}\":]{0,40}", 0..6),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            size in 1usize..40,
        ) {
            let mut body: Vec<u8> = payloads
                .iter()
                .flat_map(|payload| message(&[(":event-type", "e"), (":message-type", "event")], payload))
                .collect();
            let whole = read(Framing::AwsEventStream, &body, body.len());
            prop_assert_eq!(whole.0.iter().map(|(_, data)| data).collect::<Vec<_>>(), payloads.iter().collect::<Vec<_>>());
            prop_assert_eq!(whole.1, None);
            if body.is_empty() {
                return Ok(());
            }
            for (at, byte) in damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            prop_assert_eq!(read(Framing::AwsEventStream, &body, size), read(Framing::AwsEventStream, &body, body.len()));
        }
    }
}
