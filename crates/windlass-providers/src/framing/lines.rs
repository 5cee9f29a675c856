//! Lines: bytes in, lines out. A line that lies whole inside one piece is never copied. And one JSON document a line,
//! where blank lines are keep-alives; it does not look inside a line.

use std::borrow::Cow;

use super::{Event, FramingError, MOST, text};

/// Cuts a stream into lines that end with a line feed, a carriage return or both.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    limit: usize,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// A carriage return ended the last line: a line feed that follows belongs to it.
    skip_line_feed: bool,
    /// The first line is behind us, so a byte-order mark is no longer looked for.
    started: bool,
    failed: Option<FramingError>,
}

impl LineSplitter {
    /// For lines of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            skip_line_feed: false,
            started: false,
            failed: None,
        }
    }

    /// Takes the next line off `rest`, without its end. `None` when `rest` is used up; the start of a line is kept for
    /// the next piece. An error ends the stream for good: later calls return it again.
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
        // A mark at the start of the stream is not part of the line.
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
        self.skip_line_feed = *end == b'\r';
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

    /// Whether the next byte is the first one of a line, of a stream that has had lines.
    pub(crate) fn is_at_line_start(&self) -> bool {
        self.started && self.partial.is_empty() && !self.skip_line_feed && self.failed.is_none()
    }

    /// The longest line.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Remembers the failure and frees what was collected.
    pub(crate) fn fail(&mut self, error: FramingError) -> FramingError {
        self.failed = Some(error.clone());
        self.partial = Vec::new();
        error
    }
}

/// The decoder of one stream of JSON lines.
#[derive(Debug)]
pub struct LineDecoder(LineSplitter);

impl Default for LineDecoder {
    fn default() -> Self {
        Self(LineSplitter::new(MOST))
    }
}

impl LineDecoder {
    /// Reads the next bytes and hands each finished line to `on_event`.
    ///
    /// An error of the framing ends the stream for good: later pushes return it again.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        while let Some(line) = self.0.next(&mut rest)? {
            let line = line.trim_ascii();
            if !line.is_empty() {
                let (name, data) = ("message".into(), text(line));
                on_event(Event { name, data })?;
            }
        }
        Ok(())
    }

    /// The stream is over: hands over a last line without its line end.
    pub fn finish<E: From<FramingError>>(
        &mut self,
        on_event: impl FnMut(Event<'_>) -> Result<(), E>,
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
        let mut seen = Vec::new();
        let mut take = |event: Event<'_>| {
            seen.push(event.data.into_owned());
            Ok::<(), FramingError>(())
        };
        for piece in body.chunks(size) {
            if let Err(error) = decoder.push(piece, &mut take) {
                return (seen, Some(error));
            }
        }
        let error = decoder.finish(&mut take).err();
        (seen, error)
    }

    #[test]
    fn lines_come_out_whole_without_marks_and_blank_ones() {
        let body = "\u{feff}{\"a\":1}\n\n \r\n{\"b\":\"\u{e9}\"}\r\n{\"c\":3}".as_bytes();
        for size in 1..=body.len() {
            let (seen, error) = read(body, 100, size);
            assert_eq!(
                (seen, error),
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
