//! Decodes AWS event-stream messages: a prelude with two lengths and their checksum, headers, a payload, and a checksum
//! of the message. A message that is complete within one piece is not copied. Lengths are checked before bytes are
//! buffered, and a damaged message ends the stream.

use std::borrow::Cow;

use super::{FramedEvent, FramingError, MAX_SIZE, text};

/// The size of the two lengths and their checksum, in bytes.
const PRELUDE: usize = 12;
/// The size of a message without headers and payload, in bytes.
const OVERHEAD: usize = PRELUDE + 4;

/// Decodes one AWS event stream.
#[derive(Debug)]
pub struct AwsDecoder {
    /// The maximum size of a message, in bytes.
    max_message: usize,
    /// The maximum size of its headers, in bytes.
    max_headers: usize,
    /// The start of an incomplete message.
    partial: Vec<u8>,
    failed: Option<FramingError>,
}

impl Default for AwsDecoder {
    fn default() -> Self {
        Self {
            max_message: MAX_SIZE,
            max_headers: 128 << 10,
            partial: Vec::new(),
            failed: None,
        }
    }
}

/// The headers that define the meaning of a message.
#[derive(Debug, Default)]
struct Headers<'a> {
    message_type: Option<&'a [u8]>,
    event_type: Option<&'a [u8]>,
    exception_type: Option<&'a [u8]>,
    error_code: Option<&'a [u8]>,
    error_message: Option<&'a [u8]>,
}

impl AwsDecoder {
    /// Reads the next bytes and passes each complete event to `on_event`, with its event type as the name and its
    /// payload as the data. An exception message is an error.
    ///
    /// After an error, every later push returns the same error.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone().into());
        }
        let mut rest = bytes;
        while !self.partial.is_empty() && !rest.is_empty() {
            let size = if self.partial.len() < PRELUDE {
                PRELUDE
            } else {
                self.size(&self.partial)?
            };
            let (more, left) = rest.split_at(rest.len().min(size - self.partial.len()));
            self.partial.extend_from_slice(more);
            rest = left;
            if self.partial.len() < PRELUDE {
                return Ok(());
            }
            // The lengths are checked as soon as they are complete, so that no bytes are buffered for a bad message.
            let size = self.check(|this| this.size(&this.partial))?;
            if self.partial.len() == size {
                let mut message = std::mem::take(&mut self.partial);
                let result = self.pass_message(&message, &mut on_event);
                message.clear();
                self.partial = message;
                result?;
            }
        }
        while rest.len() >= PRELUDE {
            let size = self.check(|this| this.size(rest))?;
            let Some((message, left)) = rest.split_at_checked(size) else {
                break;
            };
            rest = left;
            self.pass_message(message, &mut on_event)?;
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// Returns the size of the message that begins here. `start` must contain a whole prelude.
    fn size(&self, start: &[u8]) -> Result<usize, FramingError> {
        let (total, headers) = (number(start, 0), number(start, 4));
        if crc32fast::hash(&start[..8]) != number(start, 8) as u32 {
            return Err(FramingError::Checksum);
        }
        if total > self.max_message {
            return Err(FramingError::EventTooLarge(self.max_message));
        }
        if headers > self.max_headers || headers.saturating_add(OVERHEAD) > total {
            return Err(FramingError::Malformed("its lengths contradict each other"));
        }
        Ok(total)
    }

    fn pass_message<E: From<FramingError>>(
        &mut self,
        message: &[u8],
        on_event: &mut impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let event = self.check(|_| event(message))?;
        on_event(event)
    }

    /// Stores a failure and frees the buffered bytes.
    fn check<T>(
        &mut self,
        check: impl FnOnce(&Self) -> Result<T, FramingError>,
    ) -> Result<T, FramingError> {
        let result = check(self);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.partial = Vec::new();
        }
        result
    }
}

/// Reads a big-endian number of four bytes; panics if there are fewer.
fn number(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + 4]
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Decodes a message whose lengths were checked.
fn event(message: &[u8]) -> Result<FramedEvent<'_>, FramingError> {
    let (body, checksum) = message.split_at(message.len() - 4);
    if crc32fast::hash(body) != number(checksum, 0) as u32 {
        return Err(FramingError::Checksum);
    }
    let (headers, payload) = body[PRELUDE..].split_at(number(message, 4));
    let headers = read_headers(headers).ok_or(FramingError::Malformed(
        "its headers end early or are unknown",
    ))?;
    match headers.message_type {
        Some(b"exception") => {
            let name = text(headers.exception_type.unwrap_or(b"exception")).into_owned();
            Err(FramingError::Exception {
                name,
                message: exception_message(payload),
            })
        }
        Some(b"error") => Err(FramingError::Exception {
            name: text(headers.error_code.unwrap_or(b"error")).into_owned(),
            message: headers.error_message.map_or_else(
                || exception_message(payload),
                |message| text(message).into_owned(),
            ),
        }),
        _ => {
            let name = headers.event_type.map_or(Cow::Borrowed("message"), text);
            Ok(FramedEvent {
                name,
                data: text(payload),
            })
        }
    }
}

/// Returns the message in the payload of an exception.
fn exception_message(payload: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(payload).ok();
    let message = parsed.as_ref().and_then(|value| {
        value
            .get("message")
            .or_else(|| value.get("Message"))?
            .as_str()
    });
    match message {
        Some(message) => message.to_owned(),
        None if payload.is_empty() => "the upstream reported a failure".to_owned(),
        None => text(&payload[..payload.len().min(1_024)]).into_owned(),
    }
}

/// Parses the headers, each with name, type and value. Returns `None` if a length or type is invalid.
fn read_headers(mut rest: &[u8]) -> Option<Headers<'_>> {
    let mut headers = Headers::default();
    while let Some((length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        let (kind, after) = after.split_first()?;
        let (size, after) = match kind {
            0 | 1 => (0, after),
            2 => (1, after),
            3 => (2, after),
            4 => (4, after),
            5 | 8 => (8, after),
            9 => (16, after),
            6 | 7 => {
                let (size, after) = after.split_first_chunk::<2>()?;
                (usize::from(u16::from_be_bytes(*size)), after)
            }
            _ => return None,
        };
        let (value, after) = after.split_at_checked(size)?;
        rest = after;
        let field = match name {
            b":message-type" => &mut headers.message_type,
            b":event-type" => &mut headers.event_type,
            b":exception-type" => &mut headers.exception_type,
            b":error-code" => &mut headers.error_code,
            b":error-message" => &mut headers.error_message,
            _ => continue,
        };
        if *kind == 7 {
            *field = Some(value);
        }
    }
    Some(headers)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Encodes a message with text headers.
    pub(crate) fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in headers {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(7);
            bytes.extend_from_slice(&(value.len() as u16).to_be_bytes());
            bytes.extend_from_slice(value.as_bytes());
        }
        raw(&bytes, payload.as_bytes())
    }

    fn raw(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&((headers.len() + payload.len() + OVERHEAD) as u32).to_be_bytes());
        out.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        out.extend_from_slice(headers);
        out.extend_from_slice(payload);
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Checks the events and the error of a body, in pieces of every size.
    #[track_caller]
    fn check(body: &[u8], expect: &[(&str, &str)], error: Option<FramingError>) {
        for size in 1..=body.len() {
            let mut decoder = AwsDecoder {
                max_message: 300,
                max_headers: 200,
                ..AwsDecoder::default()
            };
            let mut events = Vec::new();
            let mut failed = None;
            for piece in body.chunks(size) {
                failed = decoder
                    .push(piece, |event| {
                        events.push((event.name.into_owned(), event.data.into_owned()));
                        Ok::<(), FramingError>(())
                    })
                    .err();
                if failed.is_some() {
                    break;
                }
            }
            let events: Vec<_> = events
                .iter()
                .map(|(name, data)| (name.as_str(), data.as_str()))
                .collect();
            assert_eq!(
                (events.as_slice(), &failed),
                (expect, &error),
                "in pieces of {size}"
            );
        }
    }

    fn event(name: &str, payload: &str) -> Vec<u8> {
        message(
            &[
                (":event-type", name),
                (":content-type", "application/json"),
                (":message-type", "event"),
            ],
            payload,
        )
    }

    #[test]
    fn the_published_example_of_an_empty_message_reads() {
        // Total 16, no headers; both checksums as the format's documentation gives them.
        let empty = [
            0, 0, 0, 0x10, 0, 0, 0, 0, 0x05, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff,
        ];
        check(&empty, &[("message", "")], None);
    }

    #[test]
    fn messages_become_events() {
        check(
            &[event("a", "{}"), event("b", "x\u{e9}")].concat(),
            &[("a", "{}"), ("b", "x\u{e9}")],
            None,
        );
    }

    #[test]
    fn every_type_of_header_is_passed_over() {
        let mut headers = Vec::new();
        for (kind, size) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 4),
            (5, 8),
            (8, 8),
            (9, 16),
        ] {
            headers.extend_from_slice(&[1, b'x', kind]);
            headers.extend(std::iter::repeat_n(7, size));
        }
        headers.extend_from_slice(&[1, b'x', 6, 0, 2, 7, 7]);
        check(&raw(&headers, b"p"), &[("message", "p")], None);
        check(
            &raw(&[1, b'x', 10], b"p"),
            &[],
            Some(FramingError::Malformed(
                "its headers end early or are unknown",
            )),
        );
        check(
            &raw(&[9, b'x'], b"p"),
            &[],
            Some(FramingError::Malformed(
                "its headers end early or are unknown",
            )),
        );
    }

    #[test]
    fn exceptions_and_errors_are_typed() {
        let exception = message(
            &[
                (":exception-type", "throttlingException"),
                (":message-type", "exception"),
            ],
            r#"{"message":"Too many tokens"}"#,
        );
        let error = FramingError::Exception {
            name: "throttlingException".into(),
            message: "Too many tokens".into(),
        };
        check(
            &[event("a", "1"), exception].concat(),
            &[("a", "1")],
            Some(error),
        );
        let headers = [
            (":message-type", "error"),
            (":error-code", "InternalError"),
            (":error-message", "oops"),
        ];
        let error = FramingError::Exception {
            name: "InternalError".into(),
            message: "oops".into(),
        };
        check(&message(&headers, ""), &[], Some(error));
    }

    #[test]
    fn damage_and_bad_sizes_are_found_before_bytes_are_buffered() {
        let mut damaged = event("a", "{\"text\":\"hello\"}");
        let at = damaged.len() - 8;
        damaged[at] ^= 1;
        check(&damaged, &[], Some(FramingError::Checksum));
        check(
            b"HTTP is not an event stream at all",
            &[],
            Some(FramingError::Checksum),
        );
        let mut large = 4_000_000_u32.to_be_bytes().to_vec();
        large.extend_from_slice(&[0; 4]);
        large.extend_from_slice(&crc32fast::hash(&large).to_be_bytes());
        check(&large, &[], Some(FramingError::EventTooLarge(300)));
        let mut contradictory = [20_u32.to_be_bytes(), 9_u32.to_be_bytes()].concat();
        contradictory.extend_from_slice(&crc32fast::hash(&contradictory).to_be_bytes());
        check(
            &contradictory,
            &[],
            Some(FramingError::Malformed("its lengths contradict each other")),
        );
    }
}
