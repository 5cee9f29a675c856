//! Markdown as styled lines, at once or as a stream.
//!
//! Blank lines and line breaks are those of the source, so that an answer looks as its author arranged it.

mod chunk;
mod classify;
mod code;
mod links;
mod stream;
mod table;

pub use stream::MarkdownStream;

use crate::line::StyledLine;

/// The widest line of text that is comfortable to read, in columns. Callers limit [`MarkdownOptions::width`] to it.
pub const READABLE_WIDTH: usize = 100;

/// The layout of rendered Markdown.
#[derive(Debug, Clone)]
pub struct MarkdownOptions {
    /// The width in columns to which text is wrapped and tables are fitted. `None` renders one line for each line of
    /// the source; the caller wraps them.
    pub width: Option<usize>,
    /// The indentation of code blocks in columns.
    pub code_indent: usize,
    /// Whether lines of code that are wider than `width` are broken. Without it, a copied line has no added breaks.
    pub wrap_code: bool,
    /// Whether the lines of a paragraph are joined before they are wrapped.
    pub join_lines: bool,
    /// Whether code blocks have the colours of their language.
    pub highlight: bool,
}

impl Default for MarkdownOptions {
    fn default() -> Self {
        Self {
            width: None,
            code_indent: 4,
            wrap_code: true,
            join_lines: false,
            highlight: true,
        }
    }
}

impl MarkdownOptions {
    /// The default layout with a width in columns.
    #[must_use]
    pub fn with_width(width: usize) -> Self {
        Self {
            width: Some(width),
            ..Self::default()
        }
    }
}

/// Renders a complete text. The result equals that of a [`MarkdownStream`], except that links may refer to definitions
/// that follow later.
#[must_use]
pub fn render(markdown: &str, options: &MarkdownOptions) -> Vec<StyledLine> {
    let mut stream = MarkdownStream::new(options.clone());
    stream.define_links_of(markdown);
    let mut lines = stream.push(markdown);
    lines.append(&mut stream.finish());
    lines
}

#[cfg(test)]
mod tests;
