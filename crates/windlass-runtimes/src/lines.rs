//! Reads the output of an agent line by line, one JSON value per line, with a limit on the length. Longer lines and
//! lines that are not JSON are counted and ignored, because agents also print other text.

use std::collections::VecDeque;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of the longest line. Images and whole files arrive in one line.
pub const MAX_LINE: usize = 16 << 20;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Reads lines from a stream.
pub struct AgentLineReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// `start` is the first byte that was not returned, `searched` the first that was not searched for a line end.
    start: usize,
    searched: usize,
    /// The rest of a line that is too long is being ignored.
    skipping: bool,
    pub too_long: u64,
    pub not_json: u64,
}

impl<R: AsyncRead + Unpin> AgentLineReader<R> {
    /// Reads lines from this stream.
    pub fn new(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            skipping: false,
            too_long: 0,
            not_json: 0,
        }
    }

    /// Parses a line as JSON. Counts a line that is not JSON.
    pub(crate) fn value(&mut self, line: &[u8]) -> Option<Value> {
        let line = line.trim_ascii();
        let value = serde_json::from_slice(line).ok();
        self.not_json += u64::from(value.is_none() && !line.is_empty());
        value
    }

    /// The next line without its line end; `None` at the end of the stream.
    pub async fn line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let end = self.searched + at;
                let start = self.start;
                (self.start, self.searched) = (end + 1, end + 1);
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                // The end of a long line may arrive in the same read.
                if end - start > MAX_LINE {
                    self.too_long += 1;
                    continue;
                }
                return Ok(Some(self.buffer[start..end].to_vec()));
            }
            self.searched = self.buffer.len();
            if self.searched - self.start > MAX_LINE {
                self.too_long += u64::from(!std::mem::replace(&mut self.skipping, true));
            }
            if self.skipping {
                self.start = self.searched;
            }
            self.buffer.drain(..self.start);
            (self.searched, self.start) = (self.searched - self.start, 0);
            self.buffer.reserve(PIECE);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                let rest = std::mem::take(&mut self.buffer);
                (self.start, self.searched) = (0, 0);
                let whole = !std::mem::take(&mut self.skipping) && !rest.is_empty();
                return Ok(whole.then_some(rest));
            }
        }
    }
}

/// The last bytes of an output of any length.
#[derive(Debug, Default)]
pub struct OutputTail {
    kept: VecDeque<u8>,
}

impl OutputTail {
    const MAX_BYTES: usize = 8 << 10;

    /// Appends bytes, and drops the oldest ones above the limit.
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept
            .extend(&bytes[bytes.len().saturating_sub(Self::MAX_BYTES)..]);
        let over = self.kept.len().saturating_sub(Self::MAX_BYTES);
        self.kept.drain(..over);
    }

    /// The kept bytes as text, without control characters.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        text.chars()
            .filter(|c| *c == '\n' || !c.is_control())
            .collect::<String>()
            .trim()
            .to_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], values: &[&str], (too_long, not_json): (u64, u64)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut lines = AgentLineReader::new(text);
            let mut searched = Vec::new();
            while let Some(line) = lines.line().await.unwrap() {
                searched.extend(lines.value(&line).map(|value| value.to_string()));
            }
            assert_eq!(searched, values);
            assert_eq!((lines.too_long, lines.not_json), (too_long, not_json));
        });
    }

    #[test]
    fn each_json_line_is_returned_and_other_lines_are_counted() {
        check(
            b"{\"a\":1}\r\n\n  [2]\nhello\n3",
            &["{\"a\":1}", "[2]", "3"],
            (0, 1),
        );
        check(b"\xff\xfe\n1\n", &["1"], (0, 1));
        check(b"", &[], (0, 0));
        let long = [b"\"".repeat(MAX_LINE + PIECE * 2), b"\n7\n".to_vec()].concat();
        check(&long, &["7"], (1, 0));
    }

    #[test]
    fn only_the_end_of_an_output_is_kept() {
        let mut tail = OutputTail::default();
        tail.push(&b"x".repeat(20_000));
        tail.push(b"\x1b[31mlast\n");
        let text = tail.text();
        assert!(
            text.ends_with("[31mlast") && text.len() < 9_000 && !text.contains('\x1b'),
            "{text}"
        );
    }
}
