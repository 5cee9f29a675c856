//! Wraps the text into rows of the screen, only where rows are needed.
//!
//! No row depends on text before its piece: a piece is a line, or a part of about 4 KiB of a longer line, which begins a
//! row of its own. So an edit in a line of a megabyte costs as much as one in a short line.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use super::folds::PasteFolds;
use super::glyphs::glyph;

/// Bytes of a line that are wrapped together.
const PIECE: usize = 4 << 10;
const DEFAULT_WIDTH: usize = 80;

/// A row of the screen as a range of bytes, without the line break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextRow {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The row is the last one of its line.
    pub(super) ends_line: bool,
}

/// The wrapped rows of the piece that was needed last.
#[derive(Debug, Clone, Default)]
pub(super) struct RowLayout {
    /// The columns for text; 0 before the first view.
    width: usize,
    /// The line that was needed last, because a search for line breaks in a long line takes time.
    line: Option<(usize, usize)>,
    piece_start: usize,
    /// Empty if nothing is known.
    rows: Vec<TextRow>,
}

impl RowLayout {
    pub(super) fn set_width(&mut self, width: usize) {
        if self.width != width {
            self.width = width;
            self.invalidate();
        }
    }

    pub(super) fn width(&self) -> usize {
        match self.width {
            0 => DEFAULT_WIDTH,
            width => width,
        }
    }

    /// Forgets all rows. Every edit must call this.
    pub(super) fn invalidate(&mut self) {
        self.rows.clear();
        self.line = None;
    }

    /// The row that contains `pos`. A position between two rows of a line belongs to the second one.
    pub(super) fn row_at(&mut self, text: &str, folds: &PasteFolds, pos: usize) -> TextRow {
        let (start, end) = match self.line {
            Some((start, end)) if (start..=end).contains(&pos) => (start, end),
            _ => line_bounds(text, pos),
        };
        self.line = Some((start, end));
        let last_piece = (end - start).saturating_sub(1) / PIECE;
        let mut piece = ((pos - start) / PIECE).min(last_piece);
        let mut piece_start = boundary_at(text, start + piece * PIECE);
        while piece_start > pos && piece > 0 {
            piece -= 1;
            piece_start = boundary_at(text, start + piece * PIECE);
        }
        if self.rows.is_empty() || self.piece_start != piece_start {
            let piece_end = if piece == last_piece {
                end
            } else {
                boundary_at(text, start + (piece + 1) * PIECE).min(end)
            };
            self.wrap(text, folds, piece_start, piece_end, end);
        }
        let index = self.rows.partition_point(|row| row.start <= pos);
        let fallback = TextRow {
            start,
            end,
            ends_line: true,
        };
        self.rows
            .get(index.saturating_sub(1))
            .copied()
            .unwrap_or(fallback)
    }

    pub(super) fn next_row(
        &mut self,
        text: &str,
        folds: &PasteFolds,
        row: TextRow,
    ) -> Option<TextRow> {
        match row.ends_line {
            true if row.end >= text.len() => None,
            true => Some(self.row_at(text, folds, row.end + 1)),
            false => Some(self.row_at(text, folds, row.end)),
        }
    }

    pub(super) fn prev_row(
        &mut self,
        text: &str,
        folds: &PasteFolds,
        row: TextRow,
    ) -> Option<TextRow> {
        (row.start > 0).then(|| self.row_at(text, folds, prev_boundary(text, row.start)))
    }

    /// The column of `pos` in its row.
    pub(super) fn column_of(
        &self,
        text: &str,
        folds: &PasteFolds,
        row: TextRow,
        pos: usize,
    ) -> usize {
        let mut column = 0;
        for cluster in text[row.start..pos.min(row.end)].graphemes(true) {
            column += glyph(cluster, column, self.width(), folds).width;
        }
        column
    }

    /// The last position of the row that is not right of `goal`.
    pub(super) fn position_at(
        &self,
        text: &str,
        folds: &PasteFolds,
        row: TextRow,
        goal: usize,
    ) -> usize {
        let mut column = 0;
        let mut last = row.start;
        for (at, cluster) in text[row.start..row.end].grapheme_indices(true) {
            last = row.start + at;
            column += glyph(cluster, column, self.width(), folds).width;
            if column > goal {
                return last;
            }
        }
        // The end of a row that does not end its line is the beginning of the next row.
        if row.ends_line { row.end } else { last }
    }

    fn wrap(
        &mut self,
        text: &str,
        folds: &PasteFolds,
        start: usize,
        piece_end: usize,
        line_end: usize,
    ) {
        self.rows.clear();
        self.piece_start = start;
        let mut at = start;
        loop {
            let end = row_end(text, at, piece_end, self.width(), folds);
            self.rows.push(TextRow {
                start: at,
                end,
                ends_line: end == line_end,
            });
            if end >= piece_end || end <= at {
                break;
            }
            at = end;
        }
    }
}

/// The end of the row that begins at `start`: after the last space that fits, or inside a word that is wider than a row.
fn row_end(text: &str, start: usize, end: usize, width: usize, folds: &PasteFolds) -> usize {
    let bytes = text.as_bytes();
    let mut at = start;
    let mut column = 0;
    let mut after_space = None;
    while at < end {
        let is_ascii = bytes[at].is_ascii() && bytes.get(at + 1).is_none_or(u8::is_ascii);
        let (len, wide) = if is_ascii && bytes[at] != b'\t' {
            (1, 1)
        } else {
            let cluster = text[at..end].graphemes(true).next().unwrap_or_default();
            (
                cluster.len().max(1),
                glyph(cluster, column, width, folds).width,
            )
        };
        let is_space = matches!(bytes[at], b' ' | b'\t');
        if column > 0 && column + wide > width {
            // One space between words is shown in the column that is reserved for the cursor.
            return match bytes[at] {
                b' ' if at + 1 < end => at + 1,
                b' ' | b'\t' => at,
                _ => after_space.unwrap_or(at),
            };
        }
        column += wide;
        at += len;
        if is_space {
            after_space = Some(at);
        }
    }
    end
}

/// The beginning and the end of the line that contains `pos`, without its line break.
pub(super) fn line_bounds(text: &str, pos: usize) -> (usize, usize) {
    let start = text[..pos].rfind('\n').map_or(0, |at| at + 1);
    let end = text[pos..].find('\n').map_or(text.len(), |at| pos + at);
    (start, end)
}

/// The first boundary between grapheme clusters at or after `pos`.
pub(super) fn boundary_at(text: &str, pos: usize) -> usize {
    let mut pos = pos.min(text.len());
    while !text.is_char_boundary(pos) {
        pos += 1;
    }
    let bytes = text.as_bytes();
    if pos == 0 || pos == text.len() || (bytes[pos - 1].is_ascii() && bytes[pos].is_ascii()) {
        return pos;
    }
    // Clusters do not reach over line breaks, so the line is enough.
    let start = text[..pos].rfind('\n').map_or(0, |at| at + 1);
    let line = &text[start..];
    let mut cursor = GraphemeCursor::new(pos - start, line.len(), true);
    match cursor.is_boundary(line, 0) {
        Ok(false) => cursor
            .next_boundary(line, 0)
            .ok()
            .flatten()
            .map_or(text.len(), |at| start + at),
        _ => pos,
    }
}

pub(super) fn next_boundary(text: &str, pos: usize) -> usize {
    let bytes = text.as_bytes();
    // Most text is ASCII, in which every byte is a cluster.
    if bytes.get(pos).is_some_and(u8::is_ascii) && bytes.get(pos + 1).is_none_or(u8::is_ascii) {
        return pos + 1;
    }
    text[pos..]
        .graphemes(true)
        .next()
        .map_or(pos, |cluster| pos + cluster.len())
}

pub(super) fn prev_boundary(text: &str, pos: usize) -> usize {
    if let [.., before, last] = &text.as_bytes()[..pos]
        && before.is_ascii()
        && last.is_ascii()
    {
        return pos - 1;
    }
    text[..pos]
        .graphemes(true)
        .next_back()
        .map_or(pos, |cluster| pos - cluster.len())
}
