//! Splits bytes into lines. A line that is complete within one piece is not copied. [`LineDecoder`] passes on one JSON
//! document per line without parsing it and skips blank lines, which are keep-alives.

use std::borrow::Cow;

use super::{FramedEvent, FramingError, MAX_SIZE, text};

/// Splits a stream into lines that end with a line feed, a carriage return or both.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    limit: usize,
    /// The start of an incomplete line.
    partial: Vec<u8>,
    /// The last piece ended with a carriage return, so a line feed at the start of the next piece belongs to it.
    skip_line_feed: bool,
    /// The first line was read, so a byte-order mark is no longer expected.
    started: bool,
    failed: Option<FramingError>,
}

impl LineSplitter {
    /// Creates a splitter for lines of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            skip_line_feed: false,
            started: false,
            failed: None,
        }
    }

    /// Removes the next line from `rest` and returns it without its terminator. Returns `None` if `rest` has no
    /// complete line; the start of a line is kept for the next piece. After an error, every later call returns the same
    /// error.
    pub(crate) fn next<'a>(
        &mut self,
        rest: &mut &'a [u8],
    ) -> Result<Option<Cow<'a, [u8]>>, FramingError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        if !rest.is_empty() && std::mem::take(&mut self.skip_line_feed) {
            *rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        let end = memchr::memchr2(b'\n', b'\r', rest);
        let (line, left) = rest.split_at(end.unwrap_or(rest.len()));
        // A byte-order mark at the start of the stream is not part of the line.
        let allowed = self.limit + if self.started { 0 } else { 3 };
        if self.partial.len() + line.len() > allowed {
            return Err(self.fail(FramingError::LineTooLong(self.limit)));
        }
        let Some((end, left)) = left.split_first() else {
            self.partial.extend_from_slice(line);
            *rest = left;
            return Ok(None);
        };
        *rest = left;
        if *end == b'\r' {
            // Remove the line feed now if it has arrived, so that the caller sees where the line really ends.
            *rest = left.strip_prefix(b"\n").unwrap_or(left);
            self.skip_line_feed = left.is_empty();
        }
        let mut line = Cow::Borrowed(line);
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(&line);
            line = Cow::Owned(std::mem::take(&mut self.partial));
        }
        if !std::mem::replace(&mut self.started, true) && line.starts_with(b"\xef\xbb\xbf") {
            line = match line {
                Cow::Borrowed(line) => Cow::Borrowed(&line[3..]),
                Cow::Owned(line) => Cow::Owned(line[3..].to_vec()),
            };
        }
        if line.len() > self.limit {
            return Err(self.fail(FramingError::LineTooLong(self.limit)));
        }
        Ok(Some(line))
    }

    /// Returns whether the next byte begins a line other than the first.
    pub(crate) fn is_at_line_start(&self) -> bool {
        self.started && self.partial.is_empty() && !self.skip_line_feed && self.failed.is_none()
    }

    /// Returns the maximum length of a line, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Stores the failure and frees the buffered bytes.
    pub(crate) fn fail(&mut self, error: FramingError) -> FramingError {
        self.failed = Some(error.clone());
        self.partial = Vec::new();
        error
    }
}

/// Decodes one stream of JSON lines.
#[derive(Debug)]
pub struct LineDecoder(LineSplitter);

impl Default for LineDecoder {
    fn default() -> Self {
        Self(LineSplitter::new(MAX_SIZE))
    }
}

impl LineDecoder {
    /// Reads the next bytes and passes each complete line to `on_event`.
    ///
    /// After an error of the framing, every later push returns the same error.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        while let Some(line) = self.0.next(&mut rest)? {
            let line = line.trim_ascii();
            if !line.is_empty() {
                let (name, data) = ("message".into(), text(line));
                on_event(FramedEvent { name, data })?;
            }
        }
        Ok(())
    }

    /// Ends the stream. Passes on a last line without a terminator.
    pub fn finish<E: From<FramingError>>(
        &mut self,
        on_event: impl FnMut(FramedEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push(b"\n", on_event)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(body: &[u8], limit: usize, size: usize) -> (Vec<String>, Option<FramingError>) {
        let mut decoder = LineDecoder(LineSplitter::new(limit));
        let mut lines = Vec::new();
        let mut take = |event: FramedEvent<'_>| {
            lines.push(event.data.into_owned());
            Ok::<(), FramingError>(())
        };
        for piece in body.chunks(size) {
            if let Err(error) = decoder.push(piece, &mut take) {
                return (lines, Some(error));
            }
        }
        let error = decoder.finish(&mut take).err();
        (lines, error)
    }

    #[test]
    fn lines_come_out_without_byte_order_mark_and_blank_lines() {
        let body = "\u{feff}{\"a\":1}\n\n \r\n{\"b\":\"\u{e9}\"}\r\n{\"c\":3}".as_bytes();
        for size in 1..=body.len() {
            let (lines, error) = read(body, 100, size);
            assert_eq!(
                (lines, error),
                (
                    vec![
                        "{\"a\":1}".into(),
                        "{\"b\":\"\u{e9}\"}".into(),
                        "{\"c\":3}".into()
                    ],
                    None
                )
            );
        }
    }

    #[test]
    fn a_line_past_the_limit_is_an_error_in_every_split() {
        let body = b"12345678\n123456789\n1\n";
        for size in 1..=body.len() {
            assert_eq!(
                read(body, 8, size),
                (vec!["12345678".into()], Some(FramingError::LineTooLong(8))),
                "{size}"
            );
        }
    }

    #[test]
    fn whole_lines_are_borrowed() {
        let mut decoder = LineDecoder::default();
        decoder
            .push(b"{}\n[]\n", |event| {
                assert!(matches!(event.data, Cow::Borrowed(_)));
                Ok::<(), FramingError>(())
            })
            .unwrap();
    }
}
