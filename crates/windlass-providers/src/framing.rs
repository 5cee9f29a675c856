//! Splits a body into events, in one of three framings: server-sent events, one JSON document per line, or AWS
//! event-stream messages. The events do not depend on the pieces in which the network delivers the bytes. Each byte is
//! examined a bounded number of times, and every length has a limit. This module opens no socket and knows no vendor.

mod aws;
mod lines;

use std::borrow::Cow;

pub use aws::AwsDecoder;
pub use lines::LineDecoder;
pub(crate) use lines::LineSplitter;

use crate::sse::SseDecoder;

/// The maximum size of a line, event or message, in bytes.
pub(crate) const MAX_SIZE: usize = 16 << 20;

/// The format that separates the events of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Sse,
    /// One JSON document per line.
    JsonLines,
    /// Binary messages with headers and checksums.
    AwsEventStream,
}

impl Framing {
    /// Returns the media type for the `Accept` header.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::JsonLines => "application/x-ndjson",
            Self::AwsEventStream => "application/vnd.amazon.eventstream",
        }
    }
}

/// One event of a body. It borrows from the bytes that the framer is reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramedEvent<'a> {
    /// `message` if the stream gives no name.
    pub name: Cow<'a, str>,
    /// Invalid UTF-8 is replaced.
    pub data: Cow<'a, str>,
}

/// The reason why a stream cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    #[error("a line of the event stream is longer than {0} bytes")]
    LineTooLong(usize),
    #[error("an event of the stream is larger than {0} bytes")]
    EventTooLarge(usize),
    #[error(
        "a checksum of the event stream is wrong; the answer was damaged in transit or is no event stream"
    )]
    Checksum,
    #[error("a message of the event stream is malformed: {0}")]
    Malformed(&'static str),
    /// The upstream reports a failure instead of an event.
    #[error("{message} ({name})")]
    Exception {
        /// The upstream's name for the failure, for example `throttlingException`.
        name: String,
        message: String,
    },
}

/// Splits one body into events.
#[derive(Debug)]
pub enum Framer {
    Sse(SseDecoder),
    JsonLines(LineDecoder),
    AwsEventStream(AwsDecoder),
}

impl Framer {
    /// Creates a framer with the default limits.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(SseDecoder::default()),
            Framing::JsonLines => Self::JsonLines(LineDecoder::default()),
            Framing::AwsEventStream => Self::AwsEventStream(AwsDecoder::default()),
        }
    }

    /// Reads the next bytes and passes each complete event to `on_event`.
    ///
    /// After an error, every later push returns the same error.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Sse(decoder) => decoder.push(bytes, on_event),
            Self::JsonLines(decoder) => decoder.push(bytes, on_event),
            Self::AwsEventStream(decoder) => decoder.push(bytes, on_event),
        }
    }

    /// Ends the stream. Passes on a last event without a terminator, if the framing can recognize one.
    pub fn finish<E: From<FramingError>>(
        &mut self,
        on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Sse(decoder) => decoder.finish(on_event),
            Self::JsonLines(decoder) => decoder.finish(on_event),
            // A message without its checksum is incomplete.
            Self::AwsEventStream(_) => Ok(()),
        }
    }
}

/// Returns the bytes as text. Valid UTF-8, which is nearly everything, takes the fast check and stays borrowed.
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

    type NamesAndData = Vec<(String, String)>;

    /// Returns the events and the error of a body that is pushed in pieces of this size.
    fn read(framing: Framing, body: &[u8], size: usize) -> (NamesAndData, Option<FramingError>) {
        let mut framer = Framer::new(framing);
        let mut events = NamesAndData::new();
        let mut take = |event: FramedEvent<'_>| {
            events.push((event.name.into_owned(), event.data.into_owned()));
            Ok::<(), FramingError>(())
        };
        for piece in body.chunks(size.max(1)) {
            if let Err(error) = framer.push(piece, &mut take) {
                assert_eq!(
                    framer.push(b"x", &mut take),
                    Err(error.clone()),
                    "an error stays"
                );
                return (events, Some(error));
            }
        }
        let error = framer.finish(&mut take).err();
        (events, error)
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
