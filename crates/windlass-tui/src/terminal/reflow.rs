//! The number of terminal rows that rows of the live area fill after the terminal wrapped them for another width.
//!
//! Where terminals differ, the smaller number is chosen: the renderer then leaves a row of an old live area on the
//! screen. With a number that is too great it would erase finished lines.

use windlass_text::StyledLine;

use super::row::least_symbol_widths;
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
) -> WrappedHeight {
    let (mut rows, mut used, mut before) = (1, 0, 0);
    let mut cursor_row = None;
    for width in least_symbol_widths(row).filter(|width| *width > 0) {
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

/// The place where a repaint begins.
pub(crate) struct Rewind {
    /// The distance from the cursor.
    pub rows_up: usize,
    /// The number of terminal rows from there to the end of the old live area.
    pub height: usize,
    /// The number of terminal rows that the resize certainly moved above the screen: a screen has no more rows above
    /// the cursor than it is high.
    pub out_of_reach: usize,
    /// Whether the first row of the screen continues a line of the scrollback, so that text in it would be joined to
    /// that line.
    pub joins_scrollback: bool,
}

/// The behaviour of the terminal in a resize.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResizeRules {
    pub reflow: RowReflow,
    /// Whether this is the only resize since the last draw, and the screen lost no rows. Otherwise the result depends on
    /// sizes that may be unknown.
    pub is_simple: bool,
}

impl ResizeRules {
    fn wraps(self, is_cursor_row: bool) -> bool {
        match self.reflow {
            RowReflow::AllRows => true,
            // The row of the cursor may be cut. Assuming so finds a place below the first row, never above it.
            RowReflow::AllRowsMoveCursor => self.is_simple || !is_cursor_row,
            RowReflow::NoRow => false,
        }
    }
}

/// Finds the first of these rows after a resize. `cursor` is the index of a row and a column. Rows above the screen are
/// given up: a larger screen may show them again, but then it is unknown how the terminal wrapped them meanwhile.
pub(crate) fn find_rows(
    rows: &[StyledLine],
    cursor: (usize, usize),
    size: ScreenSize,
    rules: ResizeRules,
) -> Rewind {
    // The first terminal row of each row, counted from the first one of all.
    let (mut firsts, mut next, mut cursor_row) = (Vec::with_capacity(rows.len()), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let column = (at == cursor.0).then_some(cursor.1);
        let height = match rules.wraps(column.is_some()) {
            true => wrapped_height(row, size.columns, column),
            false => WrappedHeight { rows: 1, cursor: 0 },
        };
        firsts.push(next);
        if column.is_some() {
            cursor_row = next + height.cursor;
        }
        next += height.rows;
    }
    if rules.reflow == RowReflow::AllRowsMoveCursor && rules.is_simple {
        cursor_row = cursor.0 + next - rows.len();
    }
    let rows_up = cursor_row.min(size.rows - 1);
    let out_of_reach = cursor_row - rows_up;
    Rewind {
        rows_up,
        height: next - out_of_reach,
        out_of_reach,
        joins_scrollback: !firsts.contains(&out_of_reach),
    }
}

#[cfg(test)]
mod tests {
    use windlass_text::Tone;

    use super::*;

    #[track_caller]
    fn check(text: &str, columns: usize, cursor: usize, expect: (usize, usize)) {
        let row = StyledLine::of(text, Tone::Text);
        let height = wrapped_height(&row, columns, Some(cursor));
        assert_eq!((height.rows, height.cursor), expect, "{text} {columns}");
    }

    #[test]
    fn rows_wrap_as_in_terminals() {
        check("", 5, 0, (1, 0));
        check("abcde", 5, 5, (1, 0));
        check("abcdef", 5, 5, (2, 1));
        check("abcdef", 5, 4, (2, 0));
        check("abcdefghij", 5, 30, (2, 1));
        check("漢字漢字", 3, 0, (4, 0));
        check("漢字漢字", 3, 2, (4, 1));
        check("漢", 1, 0, (1, 0));
        // A terminal may show this heart in one column.
        check("❤\u{fe0f}❤\u{fe0f}", 2, 0, (1, 0));
    }

    fn find(columns: usize, rows: usize, reflow: RowReflow, is_simple: bool) -> Rewind {
        let shown = ["abcdef", "abc", "abcd"].map(|text| StyledLine::of(text, Tone::Text));
        let size = ScreenSize::new(columns, rows);
        find_rows(&shown, (1, 3), size, ResizeRules { reflow, is_simple })
    }

    #[track_caller]
    fn finds(found: Rewind, rows_up: usize, height: usize) {
        assert_eq!((found.rows_up, found.height), (rows_up, height));
    }

    #[test]
    fn each_terminal_has_its_own_place_of_the_cursor() {
        finds(find(9, 9, RowReflow::AllRows, false), 1, 3);
        finds(find(3, 9, RowReflow::AllRows, false), 2, 5);
        finds(find(3, 9, RowReflow::NoRow, false), 1, 3);
        finds(find(3, 9, RowReflow::AllRowsMoveCursor, true), 3, 5);
        finds(find(2, 9, RowReflow::AllRowsMoveCursor, false), 3, 6);
    }

    #[test]
    fn rows_above_the_screen_are_out_of_reach() {
        let found = |columns, rows| {
            let found = find(columns, rows, RowReflow::AllRows, true);
            (found.rows_up, found.out_of_reach, found.joins_scrollback)
        };
        assert_eq!(found(3, 3), (2, 0, false));
        assert_eq!(found(3, 2), (1, 1, true));
        assert_eq!(found(3, 1), (0, 2, false));
    }
}
