//! The terminal: modes, keys, the inline renderer and notifications.

pub mod capabilities;
pub mod inline;
pub mod input;
pub mod notify;
pub mod session;

mod frame;
mod reflow;
mod row;

pub use capabilities::{Multiplexer, TerminalCapabilities};
pub use inline::{EncodeLine, InlineOptions, InlineScreen, LiveArea};
pub use input::{PastedText, TerminalEvent, TerminalEvents};
pub use notify::{TaskProgress, TerminalWriter};
pub use session::{RawTerminal, TerminalModes, TerminalRestorer};

/// The size of a terminal in character cells. Zero counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenSize {
    pub columns: usize,
    pub rows: usize,
}

impl ScreenSize {
    /// A size of at least one column and one row.
    #[must_use]
    pub fn new(columns: usize, rows: usize) -> Self {
        Self {
            columns: columns.max(1),
            rows: rows.max(1),
        }
    }
}

/// The rows that a terminal wraps again when its width changes. This decides where the live area is after a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowReflow {
    /// kitty, GNOME Terminal, iTerm2, Windows Terminal, tmux and most others.
    #[default]
    AllRows,
    /// Terminals made with xterm.js, such as the one in VS Code: they wrap all rows, and move the cursor down by each row
    /// that this adds, also by those below it.
    AllRowsMoveCursor,
    /// xterm and the Linux console cut rows that are too long.
    NoRow,
}
