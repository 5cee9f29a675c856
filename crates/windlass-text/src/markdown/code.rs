//! Lines of code blocks.

use super::MarkdownOptions;
use crate::highlight::{CodeLanguage, Highlighter};
use crate::line::{StyledLine, TextStyle};
use crate::sanitize::span_text;
use crate::wrap::wrap_columns_into;

/// Adds the colours and the indentation to one line of code.
pub(super) fn code_line(
    text: &str,
    highlighter: Option<&mut Highlighter>,
    options: &MarkdownOptions,
) -> StyledLine {
    let text = span_text(text, 0);
    if text.is_empty() {
        if let Some(highlighter) = highlighter {
            highlighter.append_to(&mut StyledLine::default(), "");
        }
        return StyledLine::default();
    }
    let indent = options.code_indent;
    let mut line = StyledLine::default().with_indent(indent);
    line.append(&" ".repeat(indent), TextStyle::default(), None);
    match highlighter {
        Some(highlighter) => highlighter.append_to(&mut line, &text),
        None => line.append(&text, TextStyle::default(), None),
    }
    line
}

/// The highlighter for the language name of a code block.
pub(super) fn highlighter_of(name: &str, options: &MarkdownOptions) -> Option<Highlighter> {
    let name = name.split([',', ' ', '{', ':']).next()?;
    let language = CodeLanguage::of_name(name.trim_start_matches('.'))?;
    options.highlight.then(|| Highlighter::new(language))
}

/// Breaks a line of code if the layout says so, and adds it.
pub(super) fn push_code(
    line: StyledLine,
    options: &MarkdownOptions,
    width: Option<usize>,
    out: &mut Vec<StyledLine>,
) {
    match width {
        Some(width) if options.wrap_code => wrap_columns_into(line, width, out),
        _ => out.push(line),
    }
}
