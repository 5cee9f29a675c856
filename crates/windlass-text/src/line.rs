//! One line of text whose parts have styles.

use unicode_width::UnicodeWidthStr;

/// The role of a text, which determines its colour. A theme maps each tone to a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tone {
    #[default]
    Text,
    Muted,
    Accent,
    Ok,
    Warn,
    Bad,
    Added,
    Removed,
    Surface,
    Raised,
    Line,
    Focus,
    Keyword,
    Literal,
    Number,
    Comment,
    Function,
    Type,
}

/// The style of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TextStyle {
    pub tone: Tone,
    /// The colour behind the text; `None` is the background of the terminal or page.
    pub background: Option<Tone>,
    pub bold: bool,
    pub italic: bool,
    pub underline: bool,
    pub strikethrough: bool,
}

impl From<Tone> for TextStyle {
    fn from(tone: Tone) -> Self {
        Self {
            tone,
            ..Self::default()
        }
    }
}

/// A text with one style. It has no line breaks and no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    pub text: String,
    pub style: TextStyle,
}

/// One logical line. Wrapped rows of it begin with `indent` spaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StyledLine {
    pub spans: Vec<Span>,
    /// The indentation of wrapped rows, in columns.
    pub indent: usize,
}

impl StyledLine {
    /// A line of one style.
    #[must_use]
    pub fn of(text: impl Into<String>, style: impl Into<TextStyle>) -> Self {
        Self::default().with(text, style)
    }

    /// Appends a span.
    #[must_use]
    pub fn with(mut self, text: impl Into<String>, style: impl Into<TextStyle>) -> Self {
        self.spans.push(Span {
            text: text.into(),
            style: style.into(),
        });
        self
    }

    /// The text without styles.
    #[must_use]
    pub fn plain(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// The width in columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| span.text.width()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_counts_columns() {
        let line = StyledLine::of("a", Tone::Ok).with("漢", Tone::Text);
        assert_eq!((line.width(), line.plain()), (3, "a漢".to_owned()));
    }
}
