//! The number of terminal rows that rows of the live area fill after the terminal wrapped them for another width.

use std::cmp::Ordering;

use windlass_text::{StyledLine, Tone};

use super::row::{symbol_widths, symbols};
use super::{RowReflow, ScreenSize};

/// One row of the live area as the renderer wrote it, and the terminal rows it fills now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrappedHeight {
    pub rows: usize,
    /// The terminal row that the cursor is in, counted from the first one of this row.
    pub cursor: usize,
}

/// Wraps a row as terminals do: a symbol that does not fit begins the next terminal row. `cursor` is a column of the
/// row before wrapping; a cursor behind the text stays in the last terminal row.
pub(crate) fn wrapped_height(
    row: &StyledLine,
    columns: usize,
    cursor: Option<usize>,
    reflow: RowReflow,
) -> WrappedHeight {
    let is_cut = match reflow {
        RowReflow::AllRows => false,
        RowReflow::AllButCursorRow => cursor.is_some(),
        RowReflow::NoRow => true,
    };
    if is_cut {
        return WrappedHeight { rows: 1, cursor: 0 };
    }
    let (mut rows, mut used, mut before) = (1, 0, 0);
    let mut cursor_row = None;
    for width in symbol_widths(row).filter(|width| *width > 0) {
        let width = width.min(columns);
        if used + width > columns {
            rows += 1;
            used = 0;
        }
        used += width;
        before += width;
        if cursor_row.is_none() && cursor.is_some_and(|cursor| cursor < before) {
            cursor_row = Some(rows - 1);
        }
    }
    WrappedHeight {
        rows,
        cursor: cursor_row.unwrap_or(rows - 1),
    }
}

/// The part of a row that fills the first `rows` terminal rows, followed by the blank with which the renderer ends it.
pub(crate) fn first_rows(row: &StyledLine, columns: usize, rows: usize) -> StyledLine {
    let mut text = String::new();
    let (mut row_number, mut used) = (1, 0);
    for (symbol, width) in row.spans.iter().flat_map(|span| symbols(&span.text)) {
        let width = width.min(columns);
        if used + width > columns {
            row_number += 1;
            used = 0;
        }
        if row_number > rows {
            break;
        }
        used += width;
        text.push_str(symbol);
    }
    text.push(' ');
    StyledLine::of(text, Tone::Text)
}

/// The place where a repaint begins.
pub(crate) struct Rewind {
    /// The distance from the cursor.
    pub rows_up: usize,
    /// The number of terminal rows from there to the end of the old live area.
    pub height: usize,
    /// Whether the first row of the screen continues a line of the scrollback, so that text in it would be joined to
    /// that line.
    pub joins_scrollback: bool,
}

/// Finds the first of these rows after a resize. Rows that are certainly above the screen are returned, too: a screen
/// has no more rows above the cursor than it is high. `cursor` is the index of a row and a column.
pub(crate) fn find_rows(
    rows: &[StyledLine],
    cursor: (usize, usize),
    size: ScreenSize,
    reflow: RowReflow,
) -> (Rewind, Vec<StyledLine>) {
    let (mut above, mut below) = (Vec::new(), 0);
    for (at, row) in rows.iter().enumerate() {
        let column = (at == cursor.0).then_some(cursor.1);
        let height = wrapped_height(row, size.columns, column, reflow);
        match at.cmp(&cursor.0) {
            Ordering::Less => above.push((row, height.rows)),
            Ordering::Equal => {
                above.push((row, height.cursor));
                below += height.rows - height.cursor;
            }
            Ordering::Greater => below += height.rows,
        }
    }
    let total: usize = above.iter().map(|(_, height)| height).sum();
    let rows_up = total.min(size.rows - 1);
    let (mut unreachable, mut hidden) = (total - rows_up, Vec::new());
    let mut joins_scrollback = false;
    for (row, height) in above {
        if unreachable == 0 {
            break;
        }
        joins_scrollback = height > unreachable;
        hidden.push(match joins_scrollback {
            true => first_rows(row, size.columns, unreachable),
            false => row.clone(),
        });
        unreachable = unreachable.saturating_sub(height);
    }
    let rewind = Rewind {
        rows_up,
        height: rows_up + below,
        joins_scrollback,
    };
    (rewind, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, columns: usize, cursor: usize, reflow: RowReflow, expect: (usize, usize)) {
        let row = StyledLine::of(text, Tone::Text);
        let height = wrapped_height(&row, columns, Some(cursor), reflow);
        assert_eq!((height.rows, height.cursor), expect, "{text} {columns}");
    }

    #[test]
    fn rows_wrap_as_in_terminals() {
        check("", 5, 0, RowReflow::AllRows, (1, 0));
        check("abcde", 5, 5, RowReflow::AllRows, (1, 0));
        check("abcdef", 5, 5, RowReflow::AllRows, (2, 1));
        check("abcdef", 5, 4, RowReflow::AllRows, (2, 0));
        check("abcdefghij", 5, 30, RowReflow::AllRows, (2, 1));
        check("漢字漢字", 3, 0, RowReflow::AllRows, (4, 0));
        check("漢字漢字", 3, 2, RowReflow::AllRows, (4, 1));
        check("漢", 1, 0, RowReflow::AllRows, (1, 0));
    }

    #[test]
    fn the_part_in_the_scrollback_ends_with_a_blank() {
        let row = StyledLine::of("ab漢c", Tone::Text);
        assert_eq!(first_rows(&row, 3, 1).plain(), "ab ");
        assert_eq!(first_rows(&row, 3, 2).plain(), "ab漢c ");
    }

    #[test]
    fn terminals_that_cut_rows_keep_one_row() {
        check("abcdef", 5, 5, RowReflow::NoRow, (1, 0));
        check("abcdef", 5, 5, RowReflow::AllButCursorRow, (1, 0));
        let row = StyledLine::of("abcdef", Tone::Text);
        let height = wrapped_height(&row, 5, None, RowReflow::AllButCursorRow);
        assert_eq!(height.rows, 2);
    }
}
