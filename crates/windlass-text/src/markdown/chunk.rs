//! Renders one block of Markdown, for example a paragraph or a list item with all that it contains.

use std::ops::Range;
use std::sync::Arc;

use pulldown_cmark::{
    BlockQuoteKind, CodeBlockKind, CowStr, Event, HeadingLevel, Parser, Tag, TagEnd,
};

use super::MarkdownOptions;
use super::code::{code_line, highlighter_of, push_code};
use super::links::{LinkTargets, extensions};
use super::table::TableCells;
use crate::highlight::Highlighter;
use crate::line::{StyledLine, TextStyle, Tone};
use crate::width::columns;
use crate::wrap::wrap_into;

/// The most bytes of a link target that are shown.
const MAX_TARGET: usize = 500;
/// The widest sum of quote marks and indentations if there is no width, in columns.
const MAX_PREFIX: usize = 60;

/// Renders a block. `number` replaces the number of the first list item.
pub(super) fn render_chunk(
    source: &str,
    options: &MarkdownOptions,
    number: Option<u64>,
    links: &mut Arc<LinkTargets>,
) -> Vec<StyledLine> {
    let known = Arc::clone(links);
    let mut missing: Vec<String> = Vec::new();
    let mut definitions: Vec<(String, String)> = Vec::new();
    let mut renderer = ChunkRenderer::new(source, options, number);
    {
        let resolve = |link: pulldown_cmark::BrokenLink<'_>| {
            let target = known.get(&link.reference);
            if target.is_none() {
                missing.push(link.reference.to_string());
            }
            target.map(|target| (CowStr::from(target.to_string()), CowStr::from("")))
        };
        let parser = Parser::new_with_broken_link_callback(source, extensions(), Some(resolve));
        for (label, definition) in parser.reference_definitions().iter() {
            definitions.push((label.to_owned(), definition.dest.to_string()));
        }
        for (event, range) in parser.into_offset_iter() {
            renderer.event(event, range);
        }
    }
    let mut lines = renderer.finish();
    if !missing.is_empty() || !definitions.is_empty() {
        let links = Arc::make_mut(links);
        for label in missing {
            links.note_missing(&label);
        }
        for (label, target) in definitions {
            // The text that refers to it was shown without the target.
            if links.define(&label, &target) {
                lines.push(StyledLine::of(format!("[{label}]: {target}"), Tone::Muted));
            }
        }
    }
    lines
}

/// A quote, list item or footnote that is open, with the text at the beginning of its rows.
struct OpenContainer {
    /// The mark of the first row, until that row is written.
    first: Option<StyledLine>,
    rest: StyledLine,
    /// The width of `rest`, and of `first` if there is one.
    width: usize,
}

struct OpenLink {
    target: Arc<str>,
    text: String,
}

struct ChunkRenderer<'a> {
    source: &'a str,
    options: &'a MarkdownOptions,
    number: Option<u64>,
    out: Vec<StyledLine>,
    containers: Vec<OpenContainer>,
    /// The number of the next item of each open list; `None` for lists without numbers.
    lists: Vec<Option<u64>>,
    /// The logical line that is being built.
    inline: StyledLine,
    styles: Vec<TextStyle>,
    links: Vec<OpenLink>,
    code: Option<(Option<Highlighter>, String)>,
    table: Option<TableCells>,
    /// The end of the last content in the source.
    end: usize,
}

impl<'a> ChunkRenderer<'a> {
    fn new(source: &'a str, options: &'a MarkdownOptions, number: Option<u64>) -> Self {
        Self {
            source,
            options,
            number,
            out: Vec::new(),
            containers: Vec::new(),
            lists: Vec::new(),
            inline: StyledLine::default(),
            styles: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            end: 0,
        }
    }

    fn finish(mut self) -> Vec<StyledLine> {
        self.flush();
        self.out
    }

    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        let end = range.end;
        match event {
            Event::Start(tag) => return self.start(tag, range.start),
            Event::End(tag) => {
                let block = matches!(
                    tag,
                    TagEnd::CodeBlock | TagEnd::Table | TagEnd::HtmlBlock | TagEnd::Heading(_)
                );
                self.end_of(tag);
                if !block {
                    return;
                }
            }
            Event::Text(text) => self.text(&text),
            Event::Code(code) => {
                let style = self.style();
                let style = TextStyle {
                    tone: Tone::Accent,
                    ..style
                };
                self.push(&code, style);
            }
            Event::Html(html) => self.html(&html),
            Event::InlineHtml(html) if is_line_break(&html) => self.line_break(),
            Event::InlineHtml(html) => self.push(&html, Tone::Muted.into()),
            Event::FootnoteReference(label) => {
                self.push(&format!("[^{label}]"), Tone::Muted.into())
            }
            Event::SoftBreak if self.options.join_lines => self.push(" ", self.style()),
            Event::SoftBreak | Event::HardBreak => self.line_break(),
            Event::Rule => self.rule(range.start),
            Event::TaskListMarker(done) => self.task(done),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
        }
        self.end = self.source[..end].trim_end().len().max(self.end);
    }

    fn start(&mut self, tag: Tag<'_>, at: usize) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.open_block(at),
            Tag::Heading { level, .. } => {
                self.open_block(at);
                let style = TextStyle {
                    underline: level == HeadingLevel::H1,
                    ..self.style().bold()
                };
                self.styles.push(style);
            }
            Tag::BlockQuote(kind) => {
                self.open_block(at);
                self.contain(None, StyledLine::of("│ ", Tone::Muted));
                if let Some(kind) = kind {
                    let (name, tone) = alert(kind);
                    self.emit(StyledLine::of(name, tone.bold()));
                }
            }
            Tag::CodeBlock(kind) => {
                self.open_block(at);
                let highlighter = match &kind {
                    CodeBlockKind::Fenced(info) => highlighter_of(info, self.options),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some((highlighter, String::new()));
            }
            Tag::List(first) => {
                self.open_block(at);
                let number = self.number.take();
                self.lists.push(first.map(|first| number.unwrap_or(first)));
            }
            Tag::Item => self.item(at),
            Tag::FootnoteDefinition(label) => {
                self.open_block(at);
                let mark = StyledLine::of(format!("[^{label}]: "), Tone::Muted);
                self.contain(Some(mark), StyledLine::of("    ", Tone::Text));
            }
            Tag::Table(alignments) => {
                self.open_block(at);
                self.table = Some(TableCells {
                    alignments,
                    ..TableCells::default()
                });
            }
            Tag::TableHead => self.styles.push(self.style().bold()),
            Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::Emphasis => self.styles.push(TextStyle {
                italic: true,
                ..self.style()
            }),
            Tag::Strong => self.styles.push(self.style().bold()),
            Tag::Strikethrough => self.styles.push(TextStyle {
                strikethrough: true,
                ..self.style()
            }),
            Tag::Link { dest_url, .. } => self.open_link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.push("image: ", Tone::Muted.into());
                self.open_link(&dest_url);
            }
            _ => {}
        }
    }

    fn end_of(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) | TagEnd::Item | TagEnd::FootnoteDefinition => {
                self.flush();
                if self
                    .containers
                    .last()
                    .is_some_and(|open| open.first.is_some())
                {
                    self.emit(StyledLine::default());
                }
                self.containers.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Table => {
                let lines = self.table.take().map(|table| table.render(self.width()));
                for line in lines.unwrap_or_default() {
                    self.emit(line);
                }
            }
            TagEnd::TableHead => {
                self.styles.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(table) = &mut self.table {
                    match table.rows.last_mut() {
                        Some(row) => row.push(cell),
                        None => table.head.push(cell),
                    }
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    fn style(&self) -> TextStyle {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push(&mut self, text: &str, style: TextStyle) {
        let link = self.links.last_mut().map(|link| {
            if link.text.len() <= MAX_TARGET {
                link.text.push_str(text);
            }
            Arc::clone(&link.target)
        });
        self.inline.push_linked(text, style, link.as_ref());
    }

    fn text(&mut self, text: &str) {
        match &mut self.code {
            Some((_, code)) => code.push_str(text),
            None => self.push(text, self.style()),
        }
    }

    fn html(&mut self, html: &str) {
        for line in html.split_inclusive('\n') {
            self.push(line.trim_end(), Tone::Muted.into());
            if !line.ends_with('\n') {
                continue;
            }
            if self.inline.is_empty() {
                self.emit(StyledLine::default());
            }
            self.flush();
        }
    }

    fn line_break(&mut self) {
        if self.table.is_some() {
            self.push(" ", self.style());
        } else {
            self.flush();
        }
    }

    fn rule(&mut self, at: usize) {
        self.open_block(at);
        let width = self.width().unwrap_or(3).max(1);
        self.emit(StyledLine::of("─".repeat(width), Tone::Line));
    }

    fn task(&mut self, done: bool) {
        let mark = if done {
            StyledLine::of("☑ ", Tone::Ok)
        } else {
            StyledLine::of("☐ ", Tone::Muted)
        };
        if let Some(open) = self.containers.last_mut() {
            open.rest = StyledLine::of("  ", Tone::Text);
            open.width = 2;
            open.first = Some(mark);
        }
    }

    fn item(&mut self, at: usize) {
        self.open_block(at);
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => "• ".to_owned(),
        };
        let rest = StyledLine::of(" ".repeat(columns(&mark)), Tone::Text);
        self.contain(Some(StyledLine::of(mark, Tone::Muted)), rest);
    }

    fn contain(&mut self, first: Option<StyledLine>, rest: StyledLine) {
        let width = rest.width();
        self.containers.push(OpenContainer { first, rest, width });
    }

    fn open_link(&mut self, target: &str) {
        let style = TextStyle {
            tone: Tone::Accent,
            ..self.style()
        };
        self.styles.push(style);
        self.links.push(OpenLink {
            target: Arc::from(target),
            text: String::new(),
        });
    }

    /// Adds the target of the link, unless it equals the text.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some(OpenLink { target, text }) = self.links.pop() else {
            return;
        };
        let same = *target == *text || target.strip_prefix("mailto:") == Some(text.as_str());
        if same || target.is_empty() {
            return;
        }
        let end = target.floor_char_boundary(MAX_TARGET);
        let cut = if end < target.len() { "…" } else { "" };
        let shown = format!(" ({}{cut})", &target[..end]);
        self.inline
            .push_linked(&shown, Tone::Muted.into(), Some(&target));
    }

    fn end_code(&mut self) {
        let Some((mut highlighter, code)) = self.code.take() else {
            return;
        };
        for text in code.lines() {
            let line = code_line(text, highlighter.as_mut(), self.options);
            let mut rows = Vec::new();
            push_code(line, self.options, self.width(), &mut rows);
            for row in rows {
                self.emit_row(row);
            }
        }
    }

    /// Writes the open line and begins a block. A blank line of the source before it is kept.
    fn open_block(&mut self, at: usize) {
        self.flush();
        let gap = self.source.get(self.end..at).unwrap_or_default();
        if !self.out.is_empty() && has_blank_line(gap) {
            let mut line = self.prefix(false);
            if let Some(last) = line.spans.last_mut() {
                last.text.truncate(last.text.trim_end().len());
            }
            self.out.push(line);
        }
        self.end = self.end.max(at);
    }

    fn flush(&mut self) {
        if !self.inline.is_empty() {
            let line = std::mem::take(&mut self.inline);
            self.emit(line);
        }
    }

    /// The columns that remain for text.
    fn width(&self) -> Option<usize> {
        let width = self.options.width?;
        let prefix = self.containers.iter().map(|open| open.width);
        Some(width - prefix.sum::<usize>().min(width / 2))
    }

    fn emit(&mut self, line: StyledLine) {
        match self.width() {
            Some(width) if self.containers.is_empty() => wrap_into(line, width, &mut self.out),
            Some(width) => {
                let mut rows = Vec::new();
                wrap_into(line, width, &mut rows);
                for row in rows {
                    self.emit_row(row);
                }
            }
            None => self.emit_row(line),
        }
    }

    /// Writes a row after the marks of all open containers.
    fn emit_row(&mut self, row: StyledLine) {
        if self.containers.is_empty() {
            self.out.push(row);
            return;
        }
        let mut line = self.prefix(true);
        line.indent += row.indent;
        line.extend(&row);
        if row.is_empty()
            && let Some(last) = line.spans.last_mut()
        {
            last.text.truncate(last.text.trim_end().len());
        }
        self.out.push(line);
    }

    /// The marks of the open containers, at most half of the width. `first` uses the marks of first rows up.
    fn prefix(&mut self, first: bool) -> StyledLine {
        let max = self.options.width.map_or(MAX_PREFIX, |width| width / 2);
        let mut line = StyledLine::default();
        for open in &mut self.containers {
            if line.indent + open.width > max {
                break;
            }
            match open.first.take_if(|_| first) {
                Some(mark) => line.extend(&mark),
                None => line.extend(&open.rest),
            }
            line.indent += open.width;
        }
        if first {
            for open in &mut self.containers {
                open.first = None;
            }
        }
        line
    }
}

fn is_line_break(html: &str) -> bool {
    let tag = html.trim_start_matches('<').trim_end_matches('>');
    tag.trim_end_matches('/').trim().eq_ignore_ascii_case("br")
}

fn alert(kind: BlockQuoteKind) -> (&'static str, Tone) {
    match kind {
        BlockQuoteKind::Note => ("Note", Tone::Accent),
        BlockQuoteKind::Tip => ("Tip", Tone::Ok),
        BlockQuoteKind::Important => ("Important", Tone::Accent),
        BlockQuoteKind::Warning => ("Warning", Tone::Warn),
        BlockQuoteKind::Caution => ("Caution", Tone::Bad),
    }
}

/// Whether the text between two blocks contains a blank line; marks of quotes do not count as text.
fn has_blank_line(gap: &str) -> bool {
    let blank = |line: &str| line.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'>'));
    // The first line ends the block before, and the last one begins the next.
    let Some((_, rest)) = gap.split_once('\n') else {
        return false;
    };
    let Some((lines, _)) = rest.rsplit_once('\n') else {
        return false;
    };
    lines.split('\n').any(blank)
}
