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

/// Finds the first of these rows after a resize. `cursor` is the index of a row and a column. Rows above the screen are
/// given up: a larger screen may show them again, but then it is unknown how the terminal wrapped them meanwhile.
pub(crate) fn find_rows(
    rows: &[StyledLine],
    cursor: (usize, usize),
    size: ScreenSize,
    reflow: RowReflow,
) -> Rewind {
    // The first terminal row of each row, counted from the first one of all.
    let (mut firsts, mut next, mut cursor_row) = (Vec::with_capacity(rows.len()), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let column = (at == cursor.0).then_some(cursor.1);
        let height = wrapped_height(row, size.columns, column, reflow);
        firsts.push(next);
        if column.is_some() {
            cursor_row = next + height.cursor;
        }
        next += height.rows;
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
    fn rows_above_the_screen_are_out_of_reach() {
        let rows = ["abcdef", "ab", "c"].map(|text| StyledLine::of(text, Tone::Text));
        let find = |columns, height| {
            let size = ScreenSize::new(columns, height);
            let found = find_rows(&rows, (2, 1), size, RowReflow::AllRows);
            (
                found.rows_up,
                found.height,
                found.out_of_reach,
                found.joins_scrollback,
            )
        };
        assert_eq!(find(9, 9), (2, 3, 0, false));
        assert_eq!(find(3, 9), (3, 4, 0, false));
        assert_eq!(find(3, 3), (2, 3, 1, true));
        assert_eq!(find(3, 2), (1, 2, 2, false));
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
