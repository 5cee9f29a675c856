//! One JSON document a line: bytes in, lines out. A line that lies whole inside one piece is never copied.
//! Blank lines are keep-alives. It does not look inside a line.

use std::borrow::Cow;

use super::{Event, FramingError, MOST, text};

/// The decoder of one stream.
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The first line is behind us, so a byte-order mark is no longer looked for.
    started: bool,
    failed: Option<FramingError>,
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl LineDecoder {
    /// A decoder for lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            started: false,
            failed: None,
        }
    }

    /// Reads the next bytes and hands each finished line to `on_event`.
    ///
    /// An error ends the stream for good: later pushes return it again.
    pub fn push<E: From<FramingError>>(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone().into());
        }
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.partial.is_empty() {
                self.line(line, &mut on_event)?;
            } else {
                self.grow(line)?;
                self.partial_line(&mut on_event)?;
            }
        }
        Ok(self.grow(rest)?)
    }

    /// The stream is over: hands over a last line without its line end.
    pub fn finish<E: From<FramingError>>(
        &mut self,
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone().into());
        }
        self.partial_line(&mut on_event)
    }

    fn partial_line<E: From<FramingError>>(
        &mut self,
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut line = std::mem::take(&mut self.partial);
        let result = self.line(&line, on_event);
        line.clear();
        self.partial = line;
        result
    }

    fn line<E: From<FramingError>>(
        &mut self,
        mut line: &[u8],
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.len() > self.limit {
            return Err(self.fail().into());
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        on_event(Event {
            name: Cow::Borrowed("message"),
            data: text(line),
        })
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        // A mark at the start of the stream is not part of the line; it is stripped when the line is read.
        let allowed = self.limit + if self.started { 0 } else { 3 };
        if self.partial.len() + bytes.len() > allowed {
            return Err(self.fail());
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Remembers the failure and frees what was collected.
    fn fail(&mut self) -> FramingError {
        let error = FramingError::LineTooLong(self.limit);
        self.failed = Some(error.clone());
        self.partial = Vec::new();
        error
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(body: &[u8], limit: usize, size: usize) -> (Vec<String>, Option<FramingError>) {
        let mut decoder = LineDecoder::new(limit);
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
