//! The bytes of one update of the screen, and the position of the cursor in the live area.

use std::fmt::Write as _;

const BEGIN_SYNCHRONIZED: &str = "\x1b[?2026h";
const END_SYNCHRONIZED: &str = "\x1b[?2026l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const HIDE_CURSOR: &str = "\x1b[?25l";

/// Collects the bytes of one update. Rows are counted from the first row of the live area, and only relative moves are
/// made.
pub(crate) struct FrameBytes {
    bytes: String,
    row: usize,
    column: usize,
}

impl FrameBytes {
    /// A frame that begins with the cursor at this position of the live area.
    pub(crate) fn at(row: usize, column: usize) -> Self {
        Self {
            bytes: String::new(),
            row,
            column,
        }
    }

    /// Moves to a row that exists on the screen.
    pub(crate) fn move_to(&mut self, row: usize, column: usize) {
        match row.cmp(&self.row) {
            std::cmp::Ordering::Less => self.sequence(self.row - row, 'A'),
            std::cmp::Ordering::Greater => self.sequence(row - self.row, 'B'),
            std::cmp::Ordering::Equal => {}
        }
        self.row = row;
        if column == 0 {
            if self.column != 0 {
                self.bytes.push('\r');
            }
        } else if column > self.column {
            self.sequence(column - self.column, 'C');
        } else if column < self.column {
            self.sequence(self.column - column, 'D');
        }
        self.column = column;
    }

    /// Moves up and to the first column, also if the screen has fewer rows above, and calls that place row 0.
    pub(crate) fn move_to_start(&mut self, rows_up: usize) {
        if rows_up > 0 {
            self.sequence(rows_up, 'A');
        }
        self.bytes.push('\r');
        (self.row, self.column) = (0, 0);
    }

    /// Erases from the current row to the end of the screen; the cursor is in the first column. tmux moves the whole
    /// screen into its history if it is erased from its first cell, so the last erasure begins in the second one.
    pub(crate) fn erase_below(&mut self) {
        self.bytes.push_str("\x1b[K\x1b[C\x1b[J\r");
    }

    /// Erases from a row that is not the first one of the live area.
    pub(crate) fn erase_from(&mut self, row: usize) {
        self.move_to(row, 0);
        self.bytes.push_str("\x1b[J");
    }

    /// Erases the current row; the cursor goes to its first column. Erasing only the end of a row would leave cells
    /// that tmux counts when it wraps the row again.
    pub(crate) fn erase_row(&mut self) {
        self.move_to(self.row, 0);
        self.bytes.push_str("\x1b[K");
    }

    /// Writes encoded text of this width.
    pub(crate) fn text(&mut self, encode: impl FnOnce(&mut String), width: usize) {
        encode(&mut self.bytes);
        self.column += width;
    }

    /// Begins a new row below the current one; the screen scrolls if this was its last row.
    pub(crate) fn next_row(&mut self) {
        self.bytes.push_str("\r\n");
        (self.row, self.column) = (self.row + 1, 0);
    }

    /// Writes complete lines, after which the live area begins.
    pub(crate) fn lines(&mut self, encoded: &str) {
        self.bytes.push_str(encoded);
        (self.row, self.column) = (0, 0);
    }

    pub(crate) fn cursor_visible(&mut self, visible: bool) {
        let sequence = if visible { SHOW_CURSOR } else { HIDE_CURSOR };
        self.bytes.push_str(sequence);
    }

    /// The bytes for the terminal; `None` if there is nothing to write.
    pub(crate) fn finish(self, synchronized: bool) -> Option<String> {
        if self.bytes.is_empty() || !synchronized {
            return Some(self.bytes).filter(|bytes| !bytes.is_empty());
        }
        let mut bytes = self.bytes;
        bytes.insert_str(0, BEGIN_SYNCHRONIZED);
        bytes.push_str(END_SYNCHRONIZED);
        Some(bytes)
    }

    fn sequence(&mut self, count: usize, last: char) {
        if count == 1 {
            self.bytes.push_str("\x1b[");
            self.bytes.push(last);
        } else {
            // Writing into a string does not fail.
            let _ = write!(self.bytes, "\x1b[{count}{last}");
        }
    }
}
