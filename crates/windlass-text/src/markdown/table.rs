//! Tables of Markdown: aligned columns that fit a width, or one line for each cell if they cannot.

use pulldown_cmark::Alignment;

use crate::line::{StyledLine, TextStyle, Tone};
use crate::wrap::wrap;

/// The columns between two columns of a table.
const GAP: usize = 2;
/// The narrowest column to which a table is fitted.
const MIN_COLUMN: usize = 6;
/// A table with more columns than this has one line for each cell.
const MAX_COLUMNS: usize = 64;
/// The widest column of a table that has no width to fit.
const MAX_NATURAL: usize = 1_000;

/// The cells of one table.
#[derive(Debug, Default)]
pub(super) struct TableCells {
    pub(super) alignments: Vec<Alignment>,
    pub(super) head: Vec<StyledLine>,
    pub(super) rows: Vec<Vec<StyledLine>>,
}

impl TableCells {
    pub(super) fn render(&self, width: Option<usize>) -> Vec<StyledLine> {
        match self.widths(width) {
            Some(widths) => self.aligned(&widths),
            None => self.stacked(),
        }
    }

    /// The width of each column, or `None` if the table cannot fit.
    fn widths(&self, width: Option<usize>) -> Option<Vec<usize>> {
        let count = self.head.len();
        if count == 0 || count > MAX_COLUMNS {
            return None;
        }
        let mut widths = vec![1; count];
        for row in self.rows.iter().chain([&self.head]) {
            for (at, cell) in row.iter().take(count).enumerate() {
                widths[at] = widths[at].max(cell.width().min(MAX_NATURAL));
            }
        }
        let gaps = GAP * (count - 1);
        let Some(width) = width.filter(|width| widths.iter().sum::<usize>() + gaps > *width) else {
            return Some(widths);
        };
        let mut free = width
            .checked_sub(gaps)
            .filter(|free| *free >= count * MIN_COLUMN)?;
        // Narrow columns keep their width; the wide ones share the rest.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|at| widths[*at]);
        for (done, at) in order.into_iter().enumerate() {
            widths[at] = widths[at].min(free / (count - done));
            free -= widths[at];
        }
        Some(widths)
    }

    fn aligned(&self, widths: &[usize]) -> Vec<StyledLine> {
        let mut out = Vec::new();
        if self.head.iter().any(|cell| !cell.is_empty()) {
            self.row(&self.head, widths, &mut out);
            let mut rule = StyledLine::default();
            for (at, width) in widths.iter().enumerate() {
                if at > 0 {
                    rule.push(&" ".repeat(GAP), Tone::Text);
                }
                rule.push(&"─".repeat(*width), Tone::Line);
            }
            out.push(rule);
        }
        for row in &self.rows {
            self.row(row, widths, &mut out);
        }
        out
    }

    fn row(&self, cells: &[StyledLine], widths: &[usize], out: &mut Vec<StyledLine>) {
        let wrapped: Vec<Vec<StyledLine>> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| wrap(cell, *width))
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            let mut line = StyledLine::default();
            let mut blanks = 0;
            for (column, rows) in wrapped.iter().enumerate() {
                let empty = StyledLine::default();
                let cell = rows.get(at).unwrap_or(&empty);
                let free = widths[column].saturating_sub(cell.width());
                let before = match self.alignments.get(column) {
                    Some(Alignment::Right) => free,
                    Some(Alignment::Center) => free / 2,
                    _ => 0,
                };
                // Blanks are written only if text follows, so that rows do not end with blanks.
                blanks += before;
                if !cell.is_empty() {
                    line.append(&" ".repeat(blanks), TextStyle::default(), None);
                    line.extend(cell);
                    blanks = 0;
                } else {
                    blanks += cell.width();
                }
                blanks += free - before + GAP;
            }
            out.push(line);
        }
    }

    /// One line for each cell, with the head of its column, and a blank line between rows.
    fn stacked(&self) -> Vec<StyledLine> {
        let mut out: Vec<StyledLine> = Vec::new();
        for row in &self.rows {
            if !out.is_empty() {
                out.push(StyledLine::default());
            }
            for (at, cell) in row.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                let mut line = StyledLine::default().with_indent(2);
                if let Some(head) = self.head.get(at).filter(|head| !head.is_empty()) {
                    line.extend(head);
                    line.push(": ", Tone::Muted);
                }
                line.extend(cell);
                out.push(line);
            }
        }
        if self.rows.is_empty() {
            out.extend(self.head.iter().filter(|cell| !cell.is_empty()).cloned());
        }
        out
    }
}
