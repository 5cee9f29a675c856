//! One line of text whose parts have styles.

use std::sync::Arc;

use crate::sanitize::span_text;
use crate::width::columns;

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
    /// The background of changed words in an added line.
    AddedEmphasis,
    /// The background of changed words in a removed line.
    RemovedEmphasis,
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
    /// A colour of the terminal's palette, from the output of a program.
    Indexed(u8),
    /// A fixed colour, from the output of a program.
    Rgb(u8, u8, u8),
}

/// The style of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TextStyle {
    pub tone: Tone,
    /// The colour behind the text; `None` is the background of the terminal or page.
    pub background: Option<Tone>,
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underline: bool,
    pub strikethrough: bool,
    /// Swaps the colours of the text and of the background.
    pub reversed: bool,
}

impl TextStyle {
    /// The same style in bold.
    #[must_use]
    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }
}

impl Tone {
    /// The style with this tone in bold.
    #[must_use]
    pub fn bold(self) -> TextStyle {
        TextStyle::from(self).bold()
    }
}

impl From<Tone> for TextStyle {
    fn from(tone: Tone) -> Self {
        Self {
            tone,
            ..Self::default()
        }
    }
}

/// A text with one style. It has no line breaks and no control characters if a constructor made it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    pub text: String,
    pub style: TextStyle,
    /// The target that a terminal or page opens on a click.
    pub link: Option<Arc<str>>,
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
    pub fn of(text: impl AsRef<str>, style: impl Into<TextStyle>) -> Self {
        Self::default().with(text, style)
    }

    /// Appends a text. Control characters are removed, and tabs become blanks.
    #[must_use]
    pub fn with(mut self, text: impl AsRef<str>, style: impl Into<TextStyle>) -> Self {
        self.push(text.as_ref(), style);
        self
    }

    /// Sets the indentation of wrapped rows, in columns.
    #[must_use]
    pub fn with_indent(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    /// Appends a text. Control characters are removed, and tabs become blanks.
    pub fn push(&mut self, text: &str, style: impl Into<TextStyle>) {
        self.push_linked(text, style.into(), None);
    }

    /// Like [`StyledLine::push`], with the target of a link.
    pub fn push_linked(&mut self, text: &str, style: TextStyle, link: Option<&Arc<str>>) {
        let column = if text.contains('\t') { self.width() } else { 0 };
        self.append(&span_text(text, column), style, link);
    }

    /// Appends a text that is sanitized already. Text of the same style becomes one span.
    pub(crate) fn append(&mut self, text: &str, style: TextStyle, link: Option<&Arc<str>>) {
        if text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == style && last.link.as_ref() == link => {
                last.text.push_str(text);
            }
            _ => self.spans.push(Span {
                text: text.to_owned(),
                style,
                link: link.cloned(),
            }),
        }
    }

    /// Appends the spans of another line.
    pub fn extend(&mut self, other: &Self) {
        for span in &other.spans {
            self.append(&span.text, span.style, span.link.as_ref());
        }
    }

    /// The text without styles.
    #[must_use]
    pub fn plain(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// The width in columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| columns(&span.text)).sum()
    }

    /// Whether the line shows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.iter().all(|span| span.text.is_empty())
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

    #[test]
    fn constructors_remove_control_characters_and_expand_tabs() {
        let line = StyledLine::of("a\u{1b}[2J\n", Tone::Ok).with("\tb", Tone::Text);
        assert_eq!(line.plain(), "a[2J    b");
    }

    #[test]
    fn text_of_the_same_style_is_one_span() {
        let line = StyledLine::of("a", Tone::Ok)
            .with("", Tone::Bad)
            .with("b", Tone::Ok);
        assert_eq!(line.spans.len(), 1);
    }
}
