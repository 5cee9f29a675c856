//! The plain text that a program printed: keeps the end, without terminal sequences.

/// Bytes of an answer that are kept.
const MAX_BYTES: usize = 256 << 10;

/// The end of the printed text.
#[derive(Debug, Default)]
pub(super) struct PrintedText {
    kept: String,
    /// Bytes that were dropped.
    pub(super) dropped: usize,
}

impl PrintedText {
    pub(super) fn push(&mut self, line: &str) {
        self.kept.push_str(line);
        self.kept.push('\n');
        if self.kept.len() > MAX_BYTES * 2 {
            self.cut();
        }
    }

    /// The end of the text.
    pub(super) fn text(&mut self) -> &str {
        self.cut();
        self.kept.trim()
    }

    fn cut(&mut self) {
        let over = self
            .kept
            .ceil_char_boundary(self.kept.len().saturating_sub(MAX_BYTES));
        self.dropped = self.dropped.saturating_add(over);
        self.kept.drain(..over);
    }
}

/// A line without terminal sequences. Of a line that was overwritten, only the last version remains.
pub(super) fn without_sequences(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches('\r');
    let text = text.rsplit('\r').next().unwrap_or_default();
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('\u{1b}', Some('[')) => {
                chars.next();
                // The sequence ends with this letter.
                while chars.next().is_some_and(|c| !matches!(c, '@'..='~')) {}
            }
            ('\u{1b}', Some(']')) => {
                while chars.next().is_some_and(|c| !matches!(c, '\u{7}' | '\\')) {}
            }
            ('\u{1b}', Some(_)) => drop(chars.next()),
            (c, _) if c.is_control() && c != '\t' => {}
            (c, _) => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], expect: &str) {
        assert_eq!(without_sequences(line), expect);
    }

    #[test]
    fn terminal_sequences_are_removed_and_indents_stay() {
        check(b"  x = \x1b[1;31m1\x1b[0m;\t# \xc3\xa4", "  x = 1;\t# ä");
        check(b"\x1b]0;title\x07word\x1b]8;;u\x1b\\s", "words");
        check(b"10%\r50%\rdone\r", "done");
        check(b"\xff\x08\x1b", "\u{fffd}");
        check(b"a\x1b[", "a");
    }

    #[test]
    fn only_the_end_of_a_long_output_is_kept() {
        let mut printed = PrintedText::default();
        for n in 0..200_000 {
            printed.push(&format!("line {n} ä"));
        }
        assert!(
            printed.text().ends_with("line 199999 ä")
                && printed.text().len() <= MAX_BYTES
                && printed.dropped > MAX_BYTES
        );
        assert!(printed.kept.capacity() <= MAX_BYTES * 4);
        let mut short = PrintedText::default();
        short.push("  hi");
        assert_eq!(short.text(), "hi");
        assert_eq!(short.dropped, 0);
    }
}
