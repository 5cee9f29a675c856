//! One line of text with a cursor, for the fields of panels.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use windlass_text::width::{clusters, columns, prefix};

/// The longest text in bytes.
const MAX_BYTES: usize = 16 << 10;

/// A field of one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LineInput {
    text: String,
    /// The position of the cursor in bytes, at the start of a cluster.
    cursor: usize,
}

impl LineInput {
    /// A field with this text and the cursor at its end.
    #[must_use]
    pub(crate) fn with_text(text: &str) -> Self {
        let mut input = Self::default();
        input.insert(text);
        input
    }

    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Inserts a text at the cursor. Line breaks become spaces, and control characters are left out.
    pub(crate) fn insert(&mut self, text: &str) {
        for c in text.chars() {
            let c = if c.is_whitespace() { ' ' } else { c };
            if c.is_control() || self.text.len() + c.len_utf8() > MAX_BYTES {
                continue;
            }
            self.text.insert(self.cursor, c);
            self.cursor += c.len_utf8();
        }
    }

    /// Applies a key. Returns whether it was used.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
        if key
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return false;
        }
        match key.code {
            KeyCode::Char(c) => self.insert(c.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace => {
                let start = self.before();
                self.text.replace_range(start..self.cursor, "");
                self.cursor = start;
            }
            KeyCode::Delete => self.text.replace_range(self.cursor..self.after(), ""),
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.after(),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => return false,
        }
        true
    }

    fn before(&self) -> usize {
        let last = clusters(&self.text[..self.cursor]).last();
        self.cursor - last.map_or(0, |(cluster, _)| cluster.len())
    }

    fn after(&self) -> usize {
        let next = clusters(&self.text[self.cursor..]).next();
        self.cursor + next.map_or(0, |(cluster, _)| cluster.len())
    }

    /// The part of the text that fits the width, and the column of the cursor in it.
    #[must_use]
    pub(crate) fn view(&self, width: usize) -> (String, usize) {
        let width = width.max(2);
        let mut start = 0;
        while columns(&self.text[start..self.cursor]) >= width {
            let first = clusters(&self.text[start..]).next();
            start += first.map_or(1, |(cluster, _)| cluster.len().max(1));
        }
        let (shown, _) = prefix(&self.text[start..], width);
        (shown.to_owned(), columns(&self.text[start..self.cursor]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str, keys: &[KeyCode]) -> LineInput {
        let mut input = LineInput::with_text(text);
        for code in keys {
            input.key(KeyEvent::from(*code));
        }
        input
    }

    #[test]
    fn keys_edit_the_text() {
        let check = |text: &str, keys: &[KeyCode], expect: &str| {
            assert_eq!(typed(text, keys).text(), expect);
        };
        check("ab", &[KeyCode::Backspace], "a");
        check("ab", &[KeyCode::Left, KeyCode::Char('x')], "axb");
        check("ab", &[KeyCode::Home, KeyCode::Delete], "b");
        check("e\u{301}", &[KeyCode::Backspace], "");
        check("漢字", &[KeyCode::Left, KeyCode::Backspace], "字");
        check(
            "",
            &[KeyCode::Backspace, KeyCode::Delete, KeyCode::Left],
            "",
        );
    }

    #[test]
    fn the_cursor_stays_in_the_view() {
        for width in 0..12 {
            let (shown, column) = LineInput::with_text("abc漢字def").view(width);
            assert!(column < width.max(2), "{width}: {shown:?} {column}");
        }
    }
}
