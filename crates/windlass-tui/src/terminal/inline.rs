//! The renderer of the inline display mode. Finished lines go into the scrollback of the terminal; the live area below
//! them is redrawn in place.
//!
//! Finished lines are written once and not wrapped, so that the terminal wraps them again when its width changes, and
//! copies them without line breaks. The renderer only makes relative moves. It erases only from the live area
//! downward, so it cannot damage the scrollback or the text of other programs.
//!
//! After a resize, the terminal has wrapped the rows of the live area for the new width. The renderer computes the
//! number of terminal rows that they fill now, moves to the first one, and erases from there.
//!
//! Many terminals count the empty rows below the live area as lines. Each resize that wraps a row of the live area then
//! moves everything up by one row, until the live area itself would leave the screen. Therefore the live area is
//! narrower while the user drags the border of the window, so that the next step wraps nothing. See
//! [`InlineScreen::settle`].
//!
//! ```
//! use windlass_text::{StyledLine, Tone};
//! use windlass_tui::terminal::{InlineOptions, InlineScreen, LiveArea, ScreenSize};
//!
//! let options = InlineOptions::new(Box::new(|line, out| out.push_str(&line.plain())));
//! let mut screen = InlineScreen::new(Vec::new(), ScreenSize::new(80, 24), options);
//! screen.commit([StyledLine::of("an answer", Tone::Text)])?;
//! screen.draw(&LiveArea {
//!     rows: vec![StyledLine::of("> ", Tone::Text)],
//!     cursor: Some((0, 2)),
//! })?;
//! assert!(String::from_utf8_lossy(screen.output()).contains("an answer\r\n> "));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};
use std::time::Duration;

use windlass_text::StyledLine;

use super::frame::FrameBytes;
use super::reflow::{first_rows, wrapped_height};
use super::row::{changed_part, fit_row, row_width, without_controls};
use super::{RowReflow, ScreenSize};

/// Committed bytes that wait for the next draw. More are written at once.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Old rows that are remembered after a resize moved them into the scrollback.
const MAX_HIDDEN_ROWS: usize = 256;

/// The time without a resize after which the user has probably stopped dragging.
pub const RESIZE_PAUSE: Duration = Duration::from_millis(150);

/// Appends a line with escape sequences for its styles. It ends with the default style, and without a line break.
pub type EncodeLine = Box<dyn Fn(&StyledLine, &mut String) + Send + Sync>;

/// The properties of the terminal that the renderer needs.
pub struct InlineOptions {
    pub encode: EncodeLine,
    /// Whether each update is marked as synchronized, so that the terminal shows it at once. Terminals without support
    /// ignore the mark.
    pub synchronized: bool,
    pub reflow: RowReflow,
}

impl InlineOptions {
    /// The options for most terminals.
    #[must_use]
    pub fn new(encode: EncodeLine) -> Self {
        Self {
            encode,
            synchronized: true,
            reflow: RowReflow::default(),
        }
    }
}

/// The rows below the finished lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveArea {
    /// Rows that are fitted to [`InlineScreen::live_columns`]; wider rows are cut. If there are more rows than the
    /// screen has, the last ones and the one with the cursor are shown.
    pub rows: Vec<StyledLine>,
    /// The row and the column of the cursor; `None` hides it.
    pub cursor: Option<(usize, usize)>,
}

/// The live area on the screen. It has at least one row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DrawnArea {
    rows: Vec<StyledLine>,
    /// The position of the cursor, also if it is hidden.
    row: usize,
    column: usize,
    cursor_visible: bool,
}

impl DrawnArea {
    fn blank() -> Self {
        Self {
            rows: vec![StyledLine::default()],
            row: 0,
            column: 0,
            cursor_visible: true,
        }
    }
}

/// The place where a repaint begins.
struct Rewind {
    rows_up: usize,
    /// Whether the first row of the screen continues a line of the scrollback, so that text in it would be joined to
    /// that line.
    joins_scrollback: bool,
}

/// Draws finished lines and a live area on a terminal. See the [module](self).
pub struct InlineScreen<W: Write> {
    out: W,
    size: ScreenSize,
    options: InlineOptions,
    drawn: DrawnArea,
    /// Encoded lines with line breaks.
    queued: String,
    /// Whether the next draw writes all rows, also those that did not change.
    repaint: bool,
    /// Whether the size changed since the last draw.
    resized: bool,
    /// Whether more changes of the size may follow soon.
    settling: bool,
    /// Rows of earlier live areas that a resize moved into the scrollback. A larger screen may show them again.
    hidden: Vec<StyledLine>,
    /// Hidden rows that are followed by finished lines and stay in the scrollback.
    leftover: usize,
}

impl<W: Write> InlineScreen<W> {
    /// Begins in the row of the cursor. Nothing is written before the first draw.
    pub fn new(out: W, size: ScreenSize, options: InlineOptions) -> Self {
        Self {
            out,
            size: ScreenSize::new(size.columns, size.rows),
            options,
            drawn: DrawnArea::blank(),
            queued: String::new(),
            repaint: true,
            resized: false,
            settling: false,
            hidden: Vec::new(),
            leftover: 0,
        }
    }

    #[must_use]
    pub fn size(&self) -> ScreenSize {
        self.size
    }

    /// The greatest width of a row of the live area. The last column stays free: text in it would leave the terminal
    /// in a state between two rows, and terminals disagree about the width of some symbols. A quarter of the columns
    /// stays free between a resize and [`InlineScreen::settle`].
    #[must_use]
    pub fn live_columns(&self) -> usize {
        let columns = self.size.columns;
        let free = if self.settling {
            columns.div_ceil(4)
        } else {
            1
        };
        (columns - free).max(1)
    }

    /// Rows of earlier live areas that a resize moved into the scrollback, where they cannot be erased. It happens if
    /// the live area, wrapped for the new width, has more rows above its cursor than the new screen.
    #[must_use]
    pub fn leftover_rows(&self) -> usize {
        self.leftover + self.hidden.len()
    }

    /// The output, for sequences that neither print nor move the cursor, such as the title of the window.
    pub fn output(&mut self) -> &mut W {
        &mut self.out
    }

    /// Queues finished lines; the next draw writes them above the live area. More than a mebibyte is written at once.
    pub fn commit(&mut self, lines: impl IntoIterator<Item = StyledLine>) -> io::Result<()> {
        for line in lines {
            (self.options.encode)(&without_controls(line), &mut self.queued);
            self.queued.push_str("\r\n");
            if self.queued.len() > MAX_QUEUED_BYTES {
                self.draw_again()?;
            }
        }
        Ok(())
    }

    /// Prints content again below the finished lines and redraws everything, for example after another program wrote to
    /// the terminal.
    pub fn reprint(&mut self, lines: impl IntoIterator<Item = StyledLine>) -> io::Result<()> {
        self.repaint = true;
        self.commit(lines)
    }

    /// Writes the queued lines and the changes of the live area as one update. Writes nothing if nothing changed.
    pub fn draw(&mut self, live: &LiveArea) -> io::Result<()> {
        let next = self.fit(live);
        let mut frame = FrameBytes::at(self.drawn.row, self.drawn.column);
        let all = self.repaint || self.resized || !self.queued.is_empty();
        if all {
            self.write_all_rows(&mut frame, &next);
        } else {
            self.write_changed_rows(&mut frame, &next);
        }
        frame.move_to(next.row, next.column);
        if self.repaint || next.cursor_visible != self.drawn.cursor_visible {
            frame.cursor_visible(next.cursor_visible);
        }
        self.drawn = next;
        // After an error it is unknown what the terminal shows.
        self.repaint = true;
        self.resized = false;
        if let Some(bytes) = frame.finish(self.options.synchronized) {
            self.out.write_all(bytes.as_bytes())?;
            self.out.flush()?;
        }
        self.repaint = false;
        Ok(())
    }

    /// Sets the size after the terminal changed it. Call it for each change, and draw afterwards with rows that are
    /// fitted to the new [`InlineScreen::live_columns`].
    pub fn resize(&mut self, size: ScreenSize) {
        let size = ScreenSize::new(size.columns, size.rows);
        if size != self.size {
            self.resized = true;
            self.settling |= size.columns != self.size.columns;
        }
        self.size = size;
    }

    /// Lets the live area use the whole width again. Call it, and draw, when [`RESIZE_PAUSE`] has passed since the last
    /// resize.
    pub fn settle(&mut self) {
        self.settling = false;
    }

    /// Whether a resize waits for [`InlineScreen::settle`].
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.settling
    }

    /// Writes the queued lines and removes the live area; the cursor is at its start and visible. Other programs may
    /// write to the terminal until the next draw.
    pub fn clear(&mut self) -> io::Result<()> {
        self.repaint = true;
        self.draw(&LiveArea {
            rows: Vec::new(),
            cursor: Some((0, 0)),
        })?;
        self.repaint = true;
        Ok(())
    }

    fn draw_again(&mut self) -> io::Result<()> {
        let cursor = (self.drawn.row, self.drawn.column);
        let live = LiveArea {
            rows: self.drawn.rows.clone(),
            cursor: self.drawn.cursor_visible.then_some(cursor),
        };
        self.draw(&live)
    }

    fn fit(&self, live: &LiveArea) -> DrawnArea {
        let count = live.rows.len();
        let cursor = live
            .cursor
            .map(|(row, column)| (row.min(count.saturating_sub(1)), column));
        let last = count.saturating_sub(self.size.rows);
        let first = cursor.map_or(last, |(row, _)| row.min(last));
        let shown = live.rows.iter().skip(first).take(self.size.rows);
        let mut rows: Vec<StyledLine> =
            shown.map(|row| fit_row(row, self.live_columns())).collect();
        if rows.is_empty() {
            rows.push(StyledLine::default());
        }
        // A hidden cursor waits in the first row: rows below it never scroll when the terminal becomes smaller.
        let (row, column) = cursor.map_or((0, 0), |(row, column)| (row - first, column));
        DrawnArea {
            rows,
            row,
            column: column.min(self.live_columns()).min(self.size.columns - 1),
            cursor_visible: cursor.is_some(),
        }
    }

    fn write_all_rows(&mut self, frame: &mut FrameBytes, next: &DrawnArea) {
        let rewind = if self.resized {
            self.rewind_after_resize()
        } else {
            Rewind {
                rows_up: self.drawn.row,
                joins_scrollback: false,
            }
        };
        frame.move_to_start(rewind.rows_up);
        frame.erase_below();
        if rewind.joins_scrollback {
            frame.lines("\r\n");
        }
        if !self.queued.is_empty() {
            self.leftover += self.hidden.len();
            self.hidden.clear();
            frame.lines(&self.queued);
            self.queued = String::new();
        }
        for (at, row) in next.rows.iter().enumerate() {
            if at > 0 {
                frame.next_row();
            }
            frame.text(|out| (self.options.encode)(row, out), row_width(row));
        }
    }

    fn write_changed_rows(&self, frame: &mut FrameBytes, next: &DrawnArea) {
        let old = &self.drawn.rows;
        for (at, (old, new)) in old.iter().zip(&next.rows).enumerate() {
            let Some(change) = changed_part(old, new) else {
                continue;
            };
            let width = row_width(new);
            frame.move_to(at, change.column);
            if width < row_width(old) {
                frame.erase_row();
                frame.text(|out| (self.options.encode)(new, out), width);
            } else {
                let width = width - change.column;
                frame.text(|out| (self.options.encode)(&change.part, out), width);
            }
        }
        for (at, row) in next.rows.iter().enumerate().skip(old.len()) {
            if at == old.len() {
                frame.move_to(at - 1, 0);
            }
            frame.next_row();
            frame.text(|out| (self.options.encode)(row, out), row_width(row));
        }
        if next.rows.len() < old.len() {
            frame.erase_from(next.rows.len());
        }
    }

    /// Finds the first row of the live area on the resized screen, and remembers the rows above the screen.
    fn rewind_after_resize(&mut self) -> Rewind {
        let (columns, reflow) = (self.size.columns, self.options.reflow);
        let cursor_row = self.hidden.len() + self.drawn.row;
        let mut rows = std::mem::take(&mut self.hidden);
        rows.extend(self.drawn.rows.iter().take(self.drawn.row + 1).cloned());
        let heights = rows.iter().enumerate().map(|(at, row)| {
            let cursor = (at == cursor_row).then_some(self.drawn.column);
            let height = wrapped_height(row, columns, cursor, reflow);
            if at == cursor_row {
                height.cursor
            } else {
                height.rows
            }
        });
        let heights: Vec<usize> = heights.collect();
        let above: usize = heights.iter().sum();
        let rows_up = above.min(self.size.rows - 1);
        let mut unreachable = above - rows_up;
        let mut joins_scrollback = false;
        for (row, height) in rows.into_iter().zip(heights) {
            if unreachable == 0 {
                break;
            }
            if height <= unreachable && height > 0 {
                unreachable -= height;
                self.hidden.push(row);
            } else {
                self.hidden.push(first_rows(&row, columns, unreachable));
                joins_scrollback = true;
                unreachable = 0;
            }
        }
        let excess = self.hidden.len().saturating_sub(MAX_HIDDEN_ROWS);
        self.hidden.drain(..excess);
        self.leftover += excess;
        Rewind {
            rows_up,
            joins_scrollback,
        }
    }
}
