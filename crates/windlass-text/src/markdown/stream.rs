//! Markdown that arrives in pieces. Complete blocks are rendered once; only the open block is rendered again.

use std::sync::Arc;

use super::MarkdownOptions;
use super::chunk::render_chunk;
use super::classify::{
    FenceMark, ItemMark, ends_html, html_start, indent_of, is_heading, is_quote, is_rule,
};
use super::code::{code_line, highlighter_of, push_code};
use super::links::LinkTargets;
use crate::highlight::Highlighter;
use crate::line::StyledLine;
use crate::sanitize::plain;

/// The longest line in bytes. A longer one is rendered in pieces.
const MAX_LINE: usize = 16 * 1024;
/// The longest open paragraph in bytes. A longer one is rendered in pieces.
const MAX_PARAGRAPH: usize = 16 * 1024;
/// The longest open block of another kind in bytes: list items, quotes and HTML.
const MAX_BLOCK: usize = 64 * 1024;

/// Renders a stream of Markdown.
///
/// [`push`](Self::push) returns the lines of blocks that are complete and will not change, so that a terminal can print
/// them once. [`tail`](Self::tail) renders the open block. The lines do not depend on the pieces in which the text
/// arrives. The cost of `push` is linear in the text; the cost of `tail` is bounded by the longest open block.
///
/// A link may refer to a definition that has already arrived. A definition that follows its use is shown as a line.
#[derive(Debug, Clone)]
pub struct MarkdownStream {
    options: MarkdownOptions,
    /// The last, incomplete line.
    line: String,
    /// The complete lines of the open block, except those of code blocks.
    block: String,
    open: OpenBlock,
    /// A blank line separates the next line from the last one.
    blank: bool,
    /// Whether a line was returned.
    started: bool,
    /// The next line continues a paragraph that was cut.
    continued: bool,
    links: Arc<LinkTargets>,
}

/// The block that the next line may belong to.
#[derive(Debug, Clone, Default)]
enum OpenBlock {
    #[default]
    None,
    /// A paragraph, table or heading with an underline.
    Paragraph,
    Quote,
    /// A block of HTML and the text that ends it; without one, a blank line does.
    Html(Option<&'static str>),
    Item(OpenItem),
    Fence(FenceMark, Option<Highlighter>),
    /// Code that is marked by its indentation, and the number of blank lines after it.
    Indented(usize),
}

/// A list item or a footnote.
#[derive(Debug, Clone)]
struct OpenItem {
    mark: ItemMark,
    /// The number that is shown, for items of numbered lists.
    number: Option<u64>,
    /// The blank lines after its last line.
    blanks: usize,
    /// The blanks that are added to its lines, because a nested list has less indentation than it needs.
    shift: usize,
    fence: Option<FenceMark>,
}

impl MarkdownStream {
    /// Begins an empty document.
    #[must_use]
    pub fn new(options: MarkdownOptions) -> Self {
        Self {
            options,
            line: String::new(),
            block: String::new(),
            open: OpenBlock::None,
            blank: false,
            started: false,
            continued: false,
            links: Arc::default(),
        }
    }

    /// Appends text and returns the lines that are complete now.
    pub fn push(&mut self, text: &str) -> Vec<StyledLine> {
        let mut out = Vec::new();
        for piece in text.split_inclusive('\n') {
            let (mut rest, newline) = match piece.strip_suffix('\n') {
                Some(rest) => (rest, true),
                None => (piece, false),
            };
            while self.line.len() + rest.len() > MAX_LINE {
                let (fits, more) =
                    rest.split_at(rest.floor_char_boundary(MAX_LINE - self.line.len()));
                self.line.push_str(fits);
                rest = more;
                self.cut_line(&mut out);
            }
            self.line.push_str(rest);
            if newline {
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut out);
                // The buffer is used again.
                self.line = line;
                self.line.clear();
            }
        }
        out
    }

    /// Renders the open block as if the text ended here.
    #[must_use]
    pub fn tail(&self) -> Vec<StyledLine> {
        let mut copy = self.clone();
        if let OpenBlock::Fence(mark, _) = &copy.open
            && mark.may_be_closed_by(&copy.line)
        {
            copy.line.clear();
        }
        copy.finish()
    }

    /// Ends the document and returns the lines of the open block. The stream is empty afterwards.
    pub fn finish(&mut self) -> Vec<StyledLine> {
        let mut out = Vec::new();
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.end_line(&line, &mut out);
        }
        self.flush(&mut out);
        *self = Self::new(self.options.clone());
        out
    }

    /// Whether [`tail`](Self::tail) has nothing to show.
    #[must_use]
    pub fn is_tail_empty(&self) -> bool {
        self.line.is_empty() && self.block.is_empty()
    }

    pub(super) fn define_links_of(&mut self, markdown: &str) {
        Arc::make_mut(&mut self.links).define_all(markdown);
    }

    /// Renders the beginning of a line that is too long. It is cut before a word, if there is one.
    fn cut_line(&mut self, out: &mut Vec<StyledLine>) {
        let words = self
            .line
            .char_indices()
            .rev()
            .zip(self.line.chars().rev().skip(1));
        let at = words
            .take_while(|((at, _), _)| *at > MAX_LINE / 2)
            // A word cannot be the mark of a block.
            .find(|((_, c), before)| c.is_alphabetic() && *before == ' ')
            .map_or(self.line.len(), |((at, _), _)| at);
        let rest = self.line.split_off(at);
        let line = std::mem::replace(&mut self.line, rest);
        self.end_line(&line, out);
        if !matches!(self.open, OpenBlock::Fence(..) | OpenBlock::Indented(_)) {
            self.flush(out);
            self.continued = true;
        }
    }

    fn end_line(&mut self, line: &str, out: &mut Vec<StyledLine>) {
        let line = plain(line);
        if let OpenBlock::Fence(mark, highlighter) = &mut self.open {
            if mark.is_closed_by(&line) && indent_of(&line) <= 3 {
                self.open = OpenBlock::None;
                return;
            }
            let line = code_line(mark.strip(&line), highlighter.as_mut(), &self.options);
            self.push_code(line, out);
        } else if line.trim().is_empty() {
            self.blank_line(out);
        } else {
            self.text_line(&line, out);
            let max = match self.open {
                OpenBlock::Paragraph => MAX_PARAGRAPH,
                _ => MAX_BLOCK,
            };
            if self.block.len() > max {
                self.flush(out);
            }
        }
    }

    fn blank_line(&mut self, out: &mut Vec<StyledLine>) {
        self.continued = false;
        match &mut self.open {
            OpenBlock::None => self.blank = true,
            OpenBlock::Item(item) => item.blanks += 1,
            OpenBlock::Indented(blanks) => *blanks += 1,
            OpenBlock::Html(Some(_)) => self.block.push('\n'),
            _ => {
                self.flush(out);
                self.blank = true;
            }
        }
    }

    fn text_line(&mut self, line: &str, out: &mut Vec<StyledLine>) {
        if std::mem::take(&mut self.continued) && matches!(self.open, OpenBlock::None) {
            self.open = OpenBlock::Paragraph;
            return self.append(line);
        }
        match &mut self.open {
            OpenBlock::None => {}
            OpenBlock::Item(item) => {
                if item.accepts(line) {
                    let blanks = std::mem::take(&mut item.blanks);
                    self.block.extend(std::iter::repeat_n('\n', blanks));
                    self.block.extend(std::iter::repeat_n(' ', item.shift));
                    return self.append(line);
                }
                let next = item.next_number(line);
                self.flush(out);
                return self.begin(line, next, out);
            }
            OpenBlock::Paragraph | OpenBlock::Quote => {
                let starts_quote = matches!(self.open, OpenBlock::Paragraph) && is_quote(line);
                if !starts_quote && !interrupts(line) {
                    return self.append(line);
                }
                self.flush(out);
            }
            OpenBlock::Html(end) => {
                let ended = end.is_some_and(|end| ends_html(line, end));
                self.append(line);
                if ended {
                    self.flush(out);
                }
                return;
            }
            OpenBlock::Indented(blanks) => {
                let blanks = std::mem::take(blanks);
                if indent_of(line) >= 4 {
                    for _ in 0..blanks {
                        self.push_code(StyledLine::default(), out);
                    }
                    return self.indented_code(line, out);
                }
                self.blank = blanks > 0;
            }
            // The caller handles lines of code.
            OpenBlock::Fence(..) => return,
        }
        self.begin(line, None, out);
    }

    /// Begins a block with a line. `number` is the number of a list item, if it continues a list.
    fn begin(&mut self, line: &str, number: Option<u64>, out: &mut Vec<StyledLine>) {
        if indent_of(line) >= 4 {
            return self.indented_code(line, out);
        }
        if let Some((mark, language)) = FenceMark::opening(line) {
            let highlighter = highlighter_of(language, &self.options);
            self.open = OpenBlock::Fence(mark, highlighter);
            return;
        }
        if is_heading(line) || is_rule(line) {
            self.open = OpenBlock::Paragraph;
            self.append(line);
            return self.flush(out);
        }
        let item = ItemMark::parse(line).or_else(|| ItemMark::footnote(line));
        self.open = if let Some(mark) = item {
            OpenBlock::Item(OpenItem {
                mark,
                number: number.or(mark.number),
                blanks: 0,
                shift: 0,
                fence: None,
            })
        } else if is_quote(line) {
            OpenBlock::Quote
        } else if let Some(end) = html_start(line) {
            OpenBlock::Html(end)
        } else {
            OpenBlock::Paragraph
        };
        self.append(line);
        if let OpenBlock::Html(Some(end)) = self.open
            && ends_html(line, end)
        {
            self.flush(out);
        }
    }

    fn append(&mut self, line: &str) {
        self.block.push_str(line);
        self.block.push('\n');
    }

    fn indented_code(&mut self, line: &str, out: &mut Vec<StyledLine>) {
        self.open = OpenBlock::Indented(0);
        let mut text = line;
        let mut columns = 0;
        // The indentation is four columns; a tab that crosses them counts as blanks.
        while columns < 4 {
            columns += if text.starts_with('\t') { 4 } else { 1 };
            text = &text[1..];
        }
        let line = code_line(text, None, &self.options);
        self.push_code(line, out);
    }

    fn push_code(&mut self, line: StyledLine, out: &mut Vec<StyledLine>) {
        self.separate(out);
        push_code(line, &self.options, self.options.width, out);
    }

    /// Adds the blank line that separates blocks.
    fn separate(&mut self, out: &mut Vec<StyledLine>) {
        if std::mem::take(&mut self.blank) && self.started {
            out.push(StyledLine::default());
        }
        self.started = true;
    }

    /// Renders the open block.
    fn flush(&mut self, out: &mut Vec<StyledLine>) {
        let open = std::mem::take(&mut self.open);
        if !self.block.is_empty() {
            let number = match &open {
                OpenBlock::Item(item) => item.number,
                _ => None,
            };
            let mut lines = render_chunk(&self.block, &self.options, number, &mut self.links);
            self.block.clear();
            if !lines.is_empty() {
                self.separate(out);
                out.append(&mut lines);
            }
        }
        match open {
            OpenBlock::Item(item) => self.blank |= item.blanks > 0,
            OpenBlock::Indented(blanks) => self.blank |= blanks > 0,
            _ => {}
        }
    }
}

impl OpenItem {
    /// Whether a line belongs to the item.
    fn accepts(&mut self, line: &str) -> bool {
        let indent = indent_of(line);
        let next = ItemMark::parse(line);
        // Models often indent lists below numbered items by two columns, which is one too few.
        let nested = self.number.is_some()
            && self.shift == 0
            && self.fence.is_none()
            && (2..self.mark.content).contains(&indent)
            && next.is_some_and(|next| next.number.is_none())
            && !is_rule(line);
        if nested {
            self.shift = self.mark.content - indent;
        }
        if indent >= 2 && indent + self.shift >= self.mark.content {
            match &self.fence {
                Some(fence) if fence.is_closed_by(line) => self.fence = None,
                Some(_) => {}
                None => self.fence = FenceMark::opening(line).map(|(fence, _)| fence),
            }
            return true;
        }
        // Text without indentation continues a paragraph of the item.
        let ends = self.blanks > 0
            || self.fence.is_some()
            || is_rule(line)
            || is_quote(line)
            || FenceMark::opening(line).is_some()
            || is_heading(line)
            || html_start(line).is_some()
            || next.is_some()
            || ItemMark::footnote(line).is_some();
        !ends
    }

    /// The number of the next item, if a line begins one of the same list.
    fn next_number(&self, line: &str) -> Option<u64> {
        let mark = ItemMark::parse(line)?;
        let number = self.number.filter(|_| mark.symbol == self.mark.symbol)?;
        Some(number.saturating_add(1))
    }
}

/// Whether a line ends a paragraph or quote without a blank line.
fn interrupts(line: &str) -> bool {
    let fence = indent_of(line) <= 3 && FenceMark::opening(line).is_some();
    fence
        || is_heading(line)
        || (!is_rule(line) && ItemMark::parse(line).is_some_and(|mark| mark.interrupts_paragraph()))
}
