//! Renders streamed Markdown for a terminal, line by line: headings, lists, quotes, emphasis and code are styled, and
//! text is wrapped between words. A line is printed once it is complete, so that nothing is redrawn.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthStr;

use super::style::{Paint, Style};
use crate::sanitize::plain;

/// The widest line of text, in columns; wider ones are hard to read.
const MAX_WIDTH: usize = 100;
/// The longest incomplete line in bytes. A longer one is printed in pieces.
const MAX_LINE: usize = 16 * 1024;

/// Renders a stream of Markdown to lines with styles.
pub(crate) struct MarkdownRenderer {
    paint: Paint,
    width: usize,
    /// The last, incomplete line.
    line: String,
    /// The fence of the code block that is open.
    fence: Option<&'static str>,
}

impl MarkdownRenderer {
    pub(crate) fn new(paint: Paint, columns: usize) -> Self {
        Self {
            paint,
            // The last column stays free: some terminals wrap when it is written.
            width: columns.clamp(20, MAX_WIDTH + 1) - 1,
            line: String::new(),
            fence: None,
        }
    }

    /// Appends text and returns the lines that are complete now.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece);
            if piece.ends_with('\n') || self.line.len() > MAX_LINE {
                self.end_line(&mut out);
            }
        }
        out
    }

    /// Ends the stream and returns the last, incomplete line.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if !self.line.is_empty() {
            self.end_line(&mut out);
        }
        self.fence = None;
        out
    }

    /// The last, incomplete line without styles.
    pub(crate) fn unfinished(&self) -> &str {
        &self.line
    }

    fn end_line(&mut self, out: &mut String) {
        let line = std::mem::take(&mut self.line);
        let line = plain(line.trim_end());
        let text = line.trim_start();
        let fence = ["```", "~~~"]
            .into_iter()
            .find(|fence| text.starts_with(fence));
        match (self.fence, fence) {
            (Some(open), Some(found)) if open == found => self.fence = None,
            (Some(_), _) => out.push_str(&self.paint.on(Style::Accent, &format!("    {line}"))),
            (None, Some(found)) => {
                self.fence = Some(found);
                return;
            }
            // Do not wrap rows of a table: the model aligned them.
            (None, None) if text.starts_with('|') => out.push_str(&line),
            (None, None) => self.render(&line, out),
        }
        if fence.is_none() {
            out.push('\n');
        }
    }

    /// Renders one line outside of a code block.
    fn render(&self, line: &str, out: &mut String) {
        // Indentation means a nested list here, not a code block.
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let mut words = LineWrapper::new(self.paint, self.width, indent);
        for event in Parser::new_ext(text, Options::ENABLE_STRIKETHROUGH) {
            match event {
                Event::Start(Tag::Heading { .. }) => words.styles.push(Style::Bold),
                Event::Start(Tag::Strong | Tag::Emphasis) => words.styles.push(Style::Bold),
                Event::End(TagEnd::Heading(_) | TagEnd::Strong | TagEnd::Emphasis) => {
                    words.styles.pop();
                }
                Event::Start(Tag::List(Some(number))) => words.begin(&format!("{number}. ")),
                Event::Start(Tag::List(None)) => words.begin("• "),
                Event::Start(Tag::BlockQuote(_)) => words.begin("│ "),
                Event::Start(Tag::Link { dest_url, .. }) => {
                    words.link = Some((dest_url.into_string(), String::new()));
                }
                Event::End(TagEnd::Link) => words.end_link(),
                Event::Code(code) => words.push_styled(&code, Some(Style::Accent)),
                Event::Rule => words.push("───"),
                Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                    words.push(&text)
                }
                _ => {}
            }
        }
        out.push_str(&words.out);
    }
}

/// Wraps plain text between words. Continuation lines are indented two columns more than the first.
pub(crate) fn wrap(line: &str, columns: usize) -> String {
    if line.width() < columns {
        return line.to_owned();
    }
    let text = line.trim_start();
    let mut words = LineWrapper::new(Paint::none(), columns.max(20) - 1, line.len() - text.len());
    words.hanging += 2;
    words.push(text);
    words.out
}

/// Builds one line of Markdown and wraps it between words.
struct LineWrapper {
    paint: Paint,
    width: usize,
    /// The indentation of continuation lines, in columns.
    hanging: usize,
    styles: Vec<Style>,
    out: String,
    /// Columns used in the current output line.
    used: usize,
    /// A blank separates the last word from the next.
    blank: bool,
    /// The target of the open link, and its text so far.
    link: Option<(String, String)>,
}

impl LineWrapper {
    fn new(paint: Paint, width: usize, indent: usize) -> Self {
        let indent = indent.min(width / 2);
        Self {
            paint,
            width,
            hanging: indent,
            styles: Vec::new(),
            out: " ".repeat(indent),
            used: indent,
            blank: false,
            link: None,
        }
    }

    /// Adds the mark of a list item or a quote, and aligns continuation lines after it.
    fn begin(&mut self, mark: &str) {
        self.out.push_str(mark);
        self.used += mark.width();
        self.hanging = self.used;
    }

    fn push(&mut self, text: &str) {
        if let Some((_, shown)) = &mut self.link {
            shown.push_str(text);
        }
        self.push_styled(text, self.styles.last().copied());
    }

    /// Adds the target of the link, unless it equals the text.
    fn end_link(&mut self) {
        if let Some((target, shown)) = self.link.take()
            && target != shown
        {
            self.push(&format!(" ({target})"));
        }
    }

    fn push_styled(&mut self, text: &str, style: Option<Style>) {
        // The parser decodes entities such as `&#27;` after the line was sanitized.
        for piece in plain(text).split_inclusive(' ') {
            let word = piece.trim_end_matches(' ');
            if !word.is_empty() {
                self.word(word, style);
            }
            self.blank |= piece.ends_with(' ');
        }
    }

    fn word(&mut self, word: &str, style: Option<Style>) {
        let width = word.width();
        let blank = usize::from(std::mem::take(&mut self.blank) && self.used > self.hanging);
        if blank > 0 && self.used + blank + width > self.width {
            self.out.push('\n');
            self.out.push_str(&" ".repeat(self.hanging));
            self.used = self.hanging;
        } else if blank > 0 {
            self.out.push(' ');
            self.used += 1;
        }
        self.used += width;
        match style {
            Some(style) => self.out.push_str(&self.paint.on(style, word)),
            None => self.out.push_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let mut whole = MarkdownRenderer::new(Paint::none(), 41);
        let shown = whole.push(text) + &whole.finish();
        assert_eq!(shown, expect);
        // The result does not depend on the pieces in which the text arrives.
        let mut pieces = MarkdownRenderer::new(Paint::none(), 41);
        let mut shown: String = text.chars().map(|c| pieces.push(&c.to_string())).collect();
        shown.push_str(&pieces.finish());
        assert_eq!(shown, expect);
    }

    #[test]
    fn an_entity_cannot_produce_an_escape_sequence() {
        let mut markdown = MarkdownRenderer::new(Paint::always(), 80);
        let shown = markdown.push("red &#27;[31m and `code`\n");
        assert_eq!(shown, "red [31m and \u{1b}[36mcode\u{1b}[0m\n");
    }

    #[test]
    fn text_is_wrapped_between_words() {
        check(
            "one two three four five six seven eight nine ten",
            "one two three four five six seven eight\nnine ten\n",
        );
        check("a\n\nb\n", "a\n\nb\n");
    }

    #[test]
    fn plain_lines_keep_their_indentation() {
        assert_eq!(
            wrap("  one two three four five", 21),
            "  one two three four\n    five"
        );
        assert_eq!(wrap("short", 80), "short");
    }

    #[test]
    fn lists_and_quotes_are_aligned() {
        check(
            "- first item that is longer than one line is\n  - inner\n3. third\n> said",
            "• first item that is longer than one\n  line is\n  • inner\n3. third\n│ said\n",
        );
    }

    #[test]
    fn emphasis_markers_are_removed() {
        check(
            "## Done\n**all** of `a_b` *is* well",
            "Done\nall of a_b is well\n",
        );
        check("see [the docs](docs/a.md)", "see the docs (docs/a.md)\n");
        check(
            "2 * 3 * 4 and snake_case_name",
            "2 * 3 * 4 and snake_case_name\n",
        );
    }

    #[test]
    fn code_blocks_keep_their_lines() {
        check(
            "```sh\nif true; then   echo \"a very long line that is not wrapped\"; fi\n```\nafter",
            "    if true; then   echo \"a very long line that is not wrapped\"; fi\nafter\n",
        );
        check("```\nnever closed", "    never closed\n");
    }

    #[test]
    fn styles_become_escape_sequences() {
        let mut markdown = MarkdownRenderer::new(Paint::always(), 40);
        assert_eq!(
            markdown.push("**b** `c`\n"),
            "\u{1b}[1mb\u{1b}[0m \u{1b}[36mc\u{1b}[0m\n"
        );
    }

    #[test]
    fn escapes_of_a_model_do_not_reach_the_terminal() {
        check("a\u{1b}[2Jb `c\u{1b}]0;x\u{7}`", "a[2Jb c]0;x\n");
    }

    #[test]
    fn the_memory_for_an_endless_line_is_bounded() {
        let mut markdown = MarkdownRenderer::new(Paint::none(), 40);
        let shown = markdown.push(&"x".repeat(MAX_LINE + 2));
        assert!(shown.len() > MAX_LINE);
        assert!(markdown.unfinished().is_empty());
    }
}
