//! The rows of the composer: the prompt mark, the visible rows of the text, and the line for a notice or a search.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr as _;
use windlass_text::{Span, StyledLine, TextStyle, Tone};

use super::Composer;
use super::glyphs::{GlyphKind, glyph, single_line};
use super::rows::{TextRow, boundary_at};
use super::text_buffer::TextBuffer;

/// The mark before the first row. Further rows are indented by the same columns; an arrow there says that text is hidden
/// above or below.
const PROMPT_MARK: &str = " > ";
/// Narrower terminals show the text without the mark.
const MIN_WIDTH_WITH_MARK: usize = 8;

/// The composer as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComposerView {
    /// At least one row. No row is wider than the width.
    pub rows: Vec<StyledLine>,
    /// The row and the column of the cursor, inside the rows and the width.
    pub cursor: (usize, usize),
    /// The mode of vi, if it is on: `INSERT` or `NORMAL`.
    pub indicator: Option<&'static str>,
}

/// The kind of text that the user types, for the status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputMode {
    Prompt,
    Shell,
    Note,
    Command,
}

impl Composer {
    /// Draws at most `max_rows` rows of `width` columns, scrolled to the cursor.
    pub fn view(&mut self, width: usize, max_rows: usize) -> ComposerView {
        let (width, max_rows) = (width.max(1), max_rows.max(1));
        let indicator = self.vi_indicator();
        if let Some(search) = &mut self.search {
            let label = match (search.query.is_empty(), search.found) {
                (false, None) => "no prompt contains: ",
                _ => "search: ",
            };
            let line = format!(" {label}{}", search.query);
            let line = tail_of(&line, width.saturating_sub(1));
            let cursor_column = line.width().min(width - 1);
            let mut rows = if max_rows > 1 {
                draw_text(&mut search.preview, &mut 0, width, max_rows - 1, &|_| {
                    Tone::Muted.into()
                })
                .rows
            } else {
                Vec::new()
            };
            rows.push(StyledLine::of(line, Tone::Accent));
            return ComposerView {
                cursor: (rows.len() - 1, cursor_column),
                rows,
                indicator,
            };
        }
        let notice_rows = usize::from(self.notice.is_some() && max_rows > 1);
        let accent_end = self.prefix_end();
        let style = move |at: usize| -> TextStyle {
            if at < accent_end {
                Tone::Accent.into()
            } else {
                Tone::Text.into()
            }
        };
        let room = max_rows - notice_rows;
        let mut view = draw_text(&mut self.buffer, &mut self.top, width, room, &style);
        if self.buffer.is_empty() {
            add_placeholder(&mut view.rows, &self.placeholder, width);
        }
        if let Some(notice) = self.notice.as_ref().filter(|_| notice_rows > 0) {
            let text = single_line(&format!("   {notice}"), width);
            view.rows.push(StyledLine::of(text, Tone::Bad));
        }
        view.indicator = indicator;
        view
    }

    /// The kind of text by its first character.
    #[must_use]
    pub fn input_mode(&self) -> InputMode {
        match self.buffer.text().chars().next() {
            Some('!') => InputMode::Shell,
            Some('#') => InputMode::Note,
            Some('/') if self.prefix_end() > 0 => InputMode::Command,
            _ => InputMode::Prompt,
        }
    }

    /// The end of the prefix or of the known command at the beginning of the text.
    fn prefix_end(&self) -> usize {
        let text = self.buffer.text();
        match text.chars().next() {
            Some('!' | '#') => 1,
            Some('/') => {
                let name = text[1..].split(char::is_whitespace).next().unwrap_or("");
                let mut commands = self.completion.commands.iter();
                if commands.any(|command| command.name == name) {
                    name.len() + 1
                } else {
                    0
                }
            }
            _ => 0,
        }
    }
}

/// Draws the rows around the cursor. `top` is the position of the first visible row in the last view.
fn draw_text(
    buffer: &mut TextBuffer,
    top: &mut usize,
    width: usize,
    max_rows: usize,
    style: &dyn Fn(usize) -> TextStyle,
) -> ComposerView {
    let mark = if width >= MIN_WIDTH_WITH_MARK {
        PROMPT_MARK
    } else {
        ""
    };
    let room = width - mark.len();
    // The last column is for the cursor behind the text.
    buffer.layout.set_width(if room > 1 { room - 1 } else { 1 });
    let rows = visible_rows(buffer, top, max_rows);
    let cursor_row = buffer.cursor_row();
    let column = buffer
        .layout
        .column_of(&buffer.text, &buffer.folds, cursor_row, buffer.cursor);
    let row_number = rows.iter().position(|row| *row == cursor_row).unwrap_or(0);
    let lines = rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let is_cut_above = number == 0 && row.start > 0;
            let is_cut_below = number + 1 == rows.len() && row.end < buffer.text.len();
            let line = StyledLine::default();
            let line = match (mark, is_cut_above, is_cut_below) {
                ("", ..) => line,
                (_, true, true) => line.with(" ↕ ", Tone::Muted),
                (_, true, false) => line.with(" ↑ ", Tone::Muted),
                (_, false, true) if number > 0 => line.with(" ↓ ", Tone::Muted),
                _ if number == 0 => line.with(mark, Tone::Accent),
                _ => line.with(" ".repeat(mark.len()), Tone::Text),
            };
            draw_row(buffer, *row, line, style)
        })
        .collect();
    ComposerView {
        rows: lines,
        cursor: (row_number, (mark.len() + column).min(width - 1)),
        indicator: None,
    }
}

/// The visible rows: the cursor is among them, and the view moves as little as possible.
fn visible_rows(buffer: &mut TextBuffer, top: &mut usize, max_rows: usize) -> Vec<TextRow> {
    let cursor_row = buffer.cursor_row();
    let TextBuffer {
        text,
        folds,
        layout,
        ..
    } = buffer;
    let first = layout.row_at(text, folds, boundary_at(text, *top));
    // The highest position of the view in which the cursor is still in the last row.
    let mut lowest = cursor_row;
    for _ in 1..max_rows {
        match layout.prev_row(text, folds, lowest) {
            Some(above) if lowest.start > first.start => lowest = above,
            _ => break,
        }
    }
    let mut start = first;
    if first.start > cursor_row.start || first.start < lowest.start {
        start = lowest;
    }
    if first.start > cursor_row.start {
        start = cursor_row;
    }
    let mut rows = vec![start];
    while rows.len() < max_rows {
        let Some(next) = rows
            .last()
            .and_then(|row| layout.next_row(text, folds, *row))
        else {
            break;
        };
        rows.push(next);
    }
    // Deleted text must not leave free rows below while text is hidden above.
    while rows.len() < max_rows {
        let Some(above) = rows
            .first()
            .and_then(|row| layout.prev_row(text, folds, *row))
        else {
            break;
        };
        rows.insert(0, above);
    }
    *top = rows.first().map_or(0, |row| row.start);
    rows
}

/// Appends the text of a row to its mark.
fn draw_row(
    buffer: &TextBuffer,
    row: TextRow,
    mut line: StyledLine,
    style: &dyn Fn(usize) -> TextStyle,
) -> StyledLine {
    let width = buffer.layout.width();
    let mut column = 0;
    for (at, cluster) in buffer.text[row.start..row.end].grapheme_indices(true) {
        let glyph = glyph(cluster, column, width, &buffer.folds);
        // The space after a full row has no column.
        if column + glyph.width > width {
            break;
        }
        column += glyph.width;
        let style = match glyph.kind {
            GlyphKind::Plain => style(row.start + at),
            GlyphKind::Fold => Tone::Accent.into(),
            GlyphKind::Escaped => Tone::Warn.into(),
        };
        match line.spans.last_mut() {
            Some(last) if last.style == style && column > glyph.width => {
                last.text.push_str(&glyph.text);
            }
            _ => line.spans.push(Span {
                text: glyph.text.into_owned(),
                style,
                link: None,
            }),
        }
    }
    line
}

fn add_placeholder(rows: &mut [StyledLine], placeholder: &str, width: usize) {
    if let Some(first) = rows.first_mut() {
        let room = width.saturating_sub(first.width());
        first.spans.push(Span {
            text: single_line(placeholder, room),
            style: Tone::Muted.into(),
            link: None,
        });
    }
}

/// The end of a line that is too long, so that typed characters stay visible.
fn tail_of(line: &str, room: usize) -> String {
    let whole = single_line(line, usize::MAX);
    if whole.width() <= room {
        return whole;
    }
    let mut from = whole.len();
    let mut columns = 1;
    for (at, cluster) in whole.grapheme_indices(true).rev() {
        columns += cluster.width();
        if columns > room {
            break;
        }
        from = at;
    }
    if room == 0 {
        return String::new();
    }
    format!("…{}", &whole[from..])
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
