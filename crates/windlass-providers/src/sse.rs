//! Decodes server-sent events from a stream of bytes, in pieces of any size.
//! A line that is complete within one piece is not copied: the event borrows it. Every byte is examined once, and a
//! line or event above its size limit is an error.

use std::borrow::Cow;

use crate::framing::{FramedEvent, FramingError, LineSplitter, MAX_SIZE, text};

/// Decodes one stream of server-sent events.
#[derive(Debug)]
pub struct SseDecoder {
    lines: LineSplitter,
    /// The maximum size of `data` in one event, in bytes.
    max_event: usize,
    /// The data of the current event, if it could not stay borrowed.
    data: Vec<u8>,
    name: Vec<u8>,
    has_data: bool,
    repeated: RepeatedPrefix,
}

/// The bytes around the data of the last event. An event that begins with the same bytes has the same name, and its data
/// ends at the end of the line. So the deltas of a long answer are decoded without splitting them into lines.
#[derive(Debug, Default)]
struct RepeatedPrefix {
    before: Vec<u8>,
    name: String,
    /// The lines end with `\r\n`, not with `\n`.
    crlf: bool,
}

/// The maximum length of a repeated prefix, in bytes.
const MAX_BEFORE: usize = 256;

impl RepeatedPrefix {
    /// Returns the data of an event that begins like the last one, and the bytes after the event.
    fn strip<'a>(&self, rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if self.before.is_empty() {
            return None;
        }
        let after = rest.strip_prefix(&self.before[..])?;
        // A space after the colon is not part of the data.
        if self.before.ends_with(b":") && after.starts_with(b" ") {
            return None;
        }
        let (data, end) = after.split_at(memchr::memchr2(b'\n', b'\r', after)?);
        let rest = match self.crlf {
            true => end.strip_prefix(b"\r\n\r\n"),
            false => end.strip_prefix(b"\n\n"),
        };
        Some((data, rest?))
    }
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_limits(MAX_SIZE, MAX_SIZE)
    }
}

/// The parts of the current event that are borrowed from the bytes of one push.
#[derive(Default)]
struct BorrowedParts<'a> {
    data: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

impl SseDecoder {
    fn with_limits(max_line: usize, max_event: usize) -> Self {
        Self {
            lines: LineSplitter::new(max_line),
            max_event,
            data: Vec::new(),
            name: Vec::new(),
            has_data: false,
            repeated: RepeatedPrefix::default(),
        }
    }

    /// Reads the next bytes and passes each complete event to `on_event`.
    ///
    /// After an error of the framing, every later push returns the same error.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        let mut held = BorrowedParts::default();
        // The bytes from the start of the event on, if it starts in this push.
        let mut event = None;
        loop {
            if self.is_between_events(&held) {
                self.push_repeated(&mut rest, &mut on_event)?;
                event = Some(rest);
            }
            let Some(line) = self.lines.next(&mut rest)? else {
                break;
            };
            match line {
                Cow::Borrowed(line) => {
                    if let (b"", Some(event)) = (line, event) {
                        self.learn(&event[..event.len() - rest.len()], &held);
                    }
                    self.line(line, &mut held, &mut on_event)?;
                }
                // An owned line is dropped after this iteration, so its parts are copied.
                Cow::Owned(line) => {
                    self.keep(&std::mem::take(&mut held));
                    let mut collected = BorrowedParts::default();
                    self.line(&line, &mut collected, &mut on_event)?;
                    self.keep(&collected);
                }
            }
        }
        self.keep(&held);
        Ok(())
    }

    /// Returns whether no line of the next event was read yet.
    fn is_between_events(&self, held: &BorrowedParts<'_>) -> bool {
        let is_empty = !self.has_data && self.name.is_empty() && held.name.is_none();
        is_empty && self.lines.is_at_line_start()
    }

    /// Passes on events that begin like the last one.
    fn push_repeated<E: From<FramingError>>(
        &mut self,
        rest: &mut &[u8],
        on_event: &mut impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some((data, after)) = self.repeated.strip(rest) {
            // The normal path reports lines above the limit.
            if rest.len() - after.len() > self.max_event.min(self.lines.limit()) {
                break;
            }
            *rest = after;
            on_event(FramedEvent {
                name: Cow::Borrowed(&self.repeated.name),
                data: text(data),
            })?;
        }
        Ok(())
    }

    /// Keeps the bytes before the data of an event, if the data is its last line.
    fn learn(&mut self, event: &[u8], held: &BorrowedParts<'_>) {
        self.repeated.before.clear();
        let Some(data) = held.data else { return };
        // Find the data by its address, because another line may contain the same bytes.
        let at = (data.as_ptr() as usize).checked_sub(event.as_ptr() as usize);
        let parts = at.and_then(|at| Some((event.get(..at)?, event.get(at + data.len()..)?)));
        let Some((before, end)) = parts.filter(|(before, _)| before.len() <= MAX_BEFORE) else {
            return;
        };
        let crlf = match end {
            b"\n\n" => false,
            b"\r\n\r\n" => true,
            _ => return,
        };
        let name = held.name.unwrap_or_default();
        if let Ok(name) = std::str::from_utf8(name) {
            let name = if name.is_empty() { "message" } else { name };
            self.repeated.name.clear();
            self.repeated.name.push_str(name);
            self.repeated.before.extend_from_slice(before);
            self.repeated.crlf = crlf;
        }
    }

    /// Ends the stream. Passes on an event without its closing blank line.
    ///
    /// The specification drops such an event, but several servers omit the last blank line, and the decoder of the
    /// event detects an incomplete document.
    pub fn finish<E: From<FramingError>>(
        &mut self,
        mut on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push(b"\n", &mut on_event)?;
        self.dispatch(&mut BorrowedParts::default(), &mut on_event)
    }

    fn line<'a, E: From<FramingError>>(
        &mut self,
        line: &'a [u8],
        held: &mut BorrowedParts<'a>,
        on_event: &mut impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if line.is_empty() {
            return self.dispatch(held, on_event);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => self.data_line(value, held)?,
            b"event" => held.name = Some(value),
            _ => {} // a comment (empty field name) or an unknown field
        }
        Ok(())
    }

    fn data_line<'a>(
        &mut self,
        value: &'a [u8],
        held: &mut BorrowedParts<'a>,
    ) -> Result<(), FramingError> {
        if !self.has_data {
            self.has_data = true;
            held.data = Some(value);
            return self.check_event(value.len());
        }
        if let Some(first) = held.data.take() {
            self.data.extend_from_slice(first);
        }
        self.check_event(self.data.len() + 1 + value.len())?;
        self.data.push(b'\n');
        self.data.extend_from_slice(value);
        Ok(())
    }

    fn dispatch<E: From<FramingError>>(
        &mut self,
        held: &mut BorrowedParts<'_>,
        on_event: &mut impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let had_data = std::mem::take(&mut self.has_data);
        let BorrowedParts { data, name } = std::mem::take(held);
        let result = if had_data {
            let name = name.unwrap_or(&self.name);
            on_event(FramedEvent {
                name: if name.is_empty() {
                    Cow::Borrowed("message")
                } else {
                    text(name)
                },
                data: text(data.unwrap_or(&self.data)),
            })
        } else {
            Ok(())
        };
        self.data.clear();
        self.name.clear();
        result
    }

    /// Copies the borrowed parts, so that they survive until the next push.
    fn keep(&mut self, held: &BorrowedParts<'_>) {
        if let Some(data) = held.data {
            self.data.clear();
            self.data.extend_from_slice(data);
        }
        if let Some(name) = held.name {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
    }

    fn check_event(&mut self, size: usize) -> Result<(), FramingError> {
        if size <= self.max_event {
            return Ok(());
        }
        self.data = Vec::new();
        let too_large = FramingError::EventTooLarge(self.max_event);
        Err(self.lines.fail(too_large))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    type NamesAndData = Vec<(String, String)>;

    fn decode_pieces<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        (max_line, max_event): (usize, usize),
    ) -> (NamesAndData, Option<FramingError>) {
        let mut decoder = SseDecoder::with_limits(max_line, max_event);
        let mut events = NamesAndData::new();
        let mut take = |event: FramedEvent<'_>| {
            events.push((event.name.into_owned(), event.data.into_owned()));
            Ok::<(), FramingError>(())
        };
        for piece in pieces {
            if let Err(error) = decoder.push(piece, &mut take) {
                return (events, Some(error));
            }
        }
        let error = decoder.finish(&mut take).err();
        (events, error)
    }

    #[track_caller]
    fn check(stream: &[u8], expect: &[(&str, &str)]) {
        let expect: NamesAndData = expect
            .iter()
            .map(|(name, data)| (name.to_string(), data.to_string()))
            .collect();
        assert_eq!(
            decode_pieces([stream], (MAX_SIZE, MAX_SIZE)),
            (expect.clone(), None)
        );
        for split in 0..=stream.len() {
            let (head, tail) = stream.split_at(split);
            assert_eq!(
                decode_pieces([head, tail], (MAX_SIZE, MAX_SIZE)).0,
                expect,
                "split at {split}"
            );
        }
        assert_eq!(
            decode_pieces(stream.chunks(1), (MAX_SIZE, MAX_SIZE)).0,
            expect,
            "byte by byte"
        );
    }

    #[test]
    fn events_end_at_a_blank_line() {
        check(
            b"data: a\n\ndata: b\n\n",
            &[("message", "a"), ("message", "b")],
        );
    }

    #[test]
    fn every_line_end_works_and_may_be_mixed() {
        check(
            b"event: x\r\ndata: a\r\n\r\ndata: b\r\rdata: c\n\r\ndata:d\r\n\n",
            &[
                ("x", "a"),
                ("message", "b"),
                ("message", "c"),
                ("message", "d"),
            ],
        );
    }

    #[test]
    fn data_lines_are_joined_and_one_space_is_dropped() {
        check(
            b"data: a\ndata:  b\ndata\ndata:c\n\n",
            &[("message", "a\n b\n\nc")],
        );
    }

    #[test]
    fn comments_unknown_fields_and_empty_events_are_skipped() {
        check(
            b": keep-alive\n\n\n\nevent: ping\n\nfoo: bar\ndata\n\n:x\ndata: y\n\n",
            &[("message", ""), ("message", "y")],
        );
    }

    #[test]
    fn a_byte_order_mark_is_dropped_only_at_the_start() {
        check(
            "\u{feff}data: a\n\ndata: \u{feff}b\n\n".as_bytes(),
            &[("message", "a"), ("message", "\u{feff}b")],
        );
        check("\u{feff}\u{feff}data: a\n\n".as_bytes(), &[]);
    }

    #[test]
    fn invalid_utf8_is_replaced_and_characters_may_be_split() {
        check(
            "data: h\u{e9}llo \u{1f600}\n\n".as_bytes(),
            &[("message", "h\u{e9}llo \u{1f600}")],
        );
        check(
            b"data: a\xff\xf0\x9fb\n\n",
            &[("message", "a\u{fffd}\u{fffd}b")],
        );
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        check(
            b"data: a\n\ndata: [DONE]",
            &[("message", "a"), ("message", "[DONE]")],
        );
        check(b"data: a\n", &[("message", "a")]);
    }

    #[test]
    fn an_event_that_begins_like_the_last_one_is_decoded_correctly() {
        let x = |data| ("x", data);
        check(
            b"event: x\ndata: a\n\nevent: x\ndata: b\n\nevent: x\ndata:  c\n\nevent: x\ndata: \n\n",
            &[x("a"), x("b"), x(" c"), x("")],
        );
        check(
            b"event: x\ndata: a\n\nevent: x\ndata: b\ndata: c\n\nevent: x\ndata: d\r\n\r\nevent: y\ndata: e\n\n",
            &[x("a"), x("b\nc"), x("d"), ("y", "e")],
        );
        let message = |data| ("message", data);
        check(
            b"data:a\n\ndata: b\n\ndata:c\nevent: x\n\ndata:d\n\n",
            &[message("a"), message("b"), x("c"), message("d")],
        );
        check(
            b"data: a\r\n\r\ndata: b\r\n\r\ndata: c\r\ndata: d\r\n\r\ndata: e\n\ndata: f\r\n\r\ndata: g\r\r\ndata: h\r\n\r\n",
            &[
                message("a"),
                message("b"),
                message("c\nd"),
                message("e"),
                message("f"),
                message("g"),
                message("h"),
            ],
        );
        // The same bytes at the end of another line are not the data.
        check(
            b"data: ab\n:zzab\n\ndata: ab\n:zzcd\n\n",
            &[message("ab"), message("ab")],
        );
    }

    #[test]
    fn whole_lines_are_borrowed_from_the_piece() {
        let mut decoder = SseDecoder::default();
        let mut borrowed = 0;
        decoder
            .push(b"event: e\ndata: abc\n\ndata: def\n\n", |event| {
                borrowed += usize::from(matches!(
                    (&event.name, &event.data),
                    (Cow::Borrowed(_), Cow::Borrowed(_))
                ));
                Ok::<(), FramingError>(())
            })
            .unwrap();
        assert_eq!(borrowed, 2);
    }

    #[test]
    fn a_line_or_event_above_the_limit_is_a_permanent_error() {
        let limits = (16, 20);
        let long = [b"data: ok\n\ndata: ".as_slice(), &[b'x'; 11], b"\n\n"].concat();
        let many = b"data: 1234567890\ndata: 1234567890\n\n";
        for size in 1..long.len() {
            assert_eq!(
                decode_pieces(long.chunks(size), limits).1,
                Some(FramingError::LineTooLong(16))
            );
        }
        for size in 1..many.len() {
            assert_eq!(
                decode_pieces(many.chunks(size), limits).1,
                Some(FramingError::EventTooLarge(20))
            );
        }
        let mut decoder = SseDecoder::with_limits(16, 20);
        let mut ignore = |_: FramedEvent<'_>| Ok::<(), FramingError>(());
        assert!(decoder.push(&[b'x'; 40], &mut ignore).is_err());
        assert!(decoder.push(b"data: a\n\n", &mut ignore).is_err());
    }

    proptest! {
        #[test]
        fn the_same_events_for_every_split(
            lines in prop::collection::vec("(data|event|id|retry|:)?[: ]{0,2}[a-c\u{e9}\u{1f600}]{0,4}(\n|\r|\r\n)", 0..24),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let stream = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            let whole = decode_pieces([stream.as_slice()], (MAX_SIZE, MAX_SIZE));
            prop_assert_eq!(decode_pieces(pieces, (MAX_SIZE, MAX_SIZE)), whole);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), size in 1usize..40) {
            let limits = (64, 64);
            let whole = decode_pieces([bytes.as_slice()], limits);
            prop_assert_eq!(decode_pieces(bytes.chunks(size), limits), whole);
        }
    }
}
