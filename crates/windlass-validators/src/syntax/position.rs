//! Flaws of a text with their line and column, for all languages.

/// A syntax error in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The line number, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// A description of the error, without line breaks.
    pub message: String,
    /// The text may be correct: the parser cannot see what a macro expands to.
    pub doubtful: bool,
}

/// A message is cut at this many characters.
const MAX_MESSAGE: usize = 300;

impl Flaw {
    /// A flaw at a byte offset of a text.
    pub(crate) fn at(text: &str, offset: usize, message: impl AsRef<str>) -> Self {
        let (line, column) = line_and_column(text, offset);
        Self {
            line,
            column,
            message: one_line(message.as_ref()),
            doubtful: false,
        }
    }
}

/// The line and column of a byte offset, both from 1. A byte-order mark does not count as a column.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (u32, u32) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text.as_bytes()[..offset];
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let column = text[start..offset]
        .chars()
        .filter(|c| *c != '\u{feff}')
        .count();
    (number(line + 1), number(column + 1))
}

/// The text of a line, counted from 1.
pub(crate) fn line_of(text: &str, line: u32) -> &str {
    text.lines()
        .nth(line.saturating_sub(1) as usize)
        .unwrap_or_default()
}

/// Joins the lines of a message and cuts it at [`MAX_MESSAGE`] characters.
pub(crate) fn one_line(message: &str) -> String {
    let mut text = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = text.char_indices().nth(MAX_MESSAGE) {
        text.truncate(at);
        text.push('…');
    }
    text
}

pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters_without_a_byte_order_mark() {
        for (text, offset, expect) in [
            ("abc", 0, (1, 1)),
            ("abc", 99, (1, 4)),
            ("a\nbc", 3, (2, 2)),
            ("é=é", 3, (1, 3)),
            ("é", 1, (1, 1)),
            ("\u{feff}ab", 4, (1, 2)),
            ("", 0, (1, 1)),
        ] {
            assert_eq!(line_and_column(text, offset), expect, "{text:?} {offset}");
        }
    }
}
