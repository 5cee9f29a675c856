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
//! Two properties of terminals shape the behaviour after a resize:
//!
//! - A program may learn of a resize late (tmux waits up to 250 milliseconds), and the user drags a border in many
//!   steps. A move that is computed for another width would erase finished lines. Therefore nothing is drawn until the
//!   size is stable; see [`InlineScreen::settle`].
//! - Many terminals count the empty rows below the live area as lines. Each resize that wraps rows of the live area
//!   then moves it up, until the next one moves its first rows into the scrollback. Near the top of the screen, empty
//!   rows above the live area keep it away from there until finished lines fill them.
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
//! assert!(String::from_utf8_lossy(screen.output()).contains("an answer\r\n>"));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};

use windlass_text::StyledLine;

use super::frame::FrameBytes;
use super::reflow::{ResizeRules, Rewind, find_rows, wrapped_height};
use super::row::{changed_part, fit_row, row_width, without_controls};
use super::{RowReflow, ScreenSize};

/// Committed bytes that wait for the next draw. More are written at once.
const MAX_QUEUED_BYTES: usize = 1 << 20;

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
    /// The number of empty rows at the beginning that keep the end of the area in place.
    padding: usize,
    /// The position of the cursor, also if it is hidden.
    row: usize,
    column: usize,
    cursor_visible: bool,
}

impl DrawnArea {
    fn blank() -> Self {
        Self {
            rows: vec![StyledLine::default()],
            padding: 0,
            row: 0,
            column: 0,
            cursor_visible: true,
        }
    }
}

/// Draws finished lines and a live area on a terminal. See the [module](self).
pub struct InlineScreen<W: Write> {
    out: W,
    size: ScreenSize,
    options: InlineOptions,
    drawn: DrawnArea,
    /// Encoded lines with line breaks.
    queued: String,
    /// The number of terminal rows that the queued lines fill.
    queued_rows: usize,
    /// Whether the next draw writes all rows, also those that did not change.
    repaint: bool,
    /// Whether the size changed since the last draw.
    resized: bool,
    /// Whether it changed once, and not to fewer rows.
    is_simple_resize: bool,
    /// Whether more changes of the size may follow soon.
    settling: bool,
    /// The number of empty rows below the live area. It is an estimate, because the position of the first row is unknown:
    /// the greatest possible number, for terminals that count these rows as lines.
    below: usize,
    /// Rows of earlier live areas in the scrollback.
    leftover: usize,
}

impl<W: Write> InlineScreen<W> {
    /// Begins in the row of the cursor. Nothing is written before the first draw.
    pub fn new(out: W, size: ScreenSize, options: InlineOptions) -> Self {
        let size = ScreenSize::new(size.columns, size.rows);
        Self {
            out,
            below: size.rows - 1,
            size,
            options,
            drawn: DrawnArea::blank(),
            queued: String::new(),
            queued_rows: 0,
            repaint: true,
            resized: false,
            is_simple_resize: false,
            settling: false,
            leftover: 0,
        }
    }

    /// The size that was set last.
    #[must_use]
    pub fn size(&self) -> ScreenSize {
        self.size
    }

    /// The greatest width of a row of the live area. The last column stays free: text in it would leave the terminal
    /// in a state between two rows, and terminals disagree about the width of some symbols.
    #[must_use]
    pub fn live_columns(&self) -> usize {
        (self.size.columns - 1).max(1)
    }

    /// Rows of earlier live areas that a resize moved into the scrollback, where they cannot be erased. It happens if
    /// the live area, wrapped for the new width, has more rows above its cursor than the new screen.
    #[must_use]
    pub fn leftover_rows(&self) -> usize {
        self.leftover
    }

    /// The number of empty rows between the finished lines and the live area, after a resize made it shorter.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.drawn.padding
    }

    /// The output, for sequences that neither print nor move the cursor, such as the title of the window.
    pub fn output(&mut self) -> &mut W {
        &mut self.out
    }

    /// Queues finished lines; the next draw writes them above the live area. More than a mebibyte is written at once.
    pub fn commit(&mut self, lines: impl IntoIterator<Item = StyledLine>) -> io::Result<()> {
        for line in lines {
            let line = without_controls(line);
            let height = wrapped_height(&line, self.size.columns, None);
            self.queued_rows += height.rows;
            (self.options.encode)(&line, &mut self.queued);
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

    /// Writes the queued lines and the changes of the live area as one update. Writes nothing if nothing changed, and
    /// between [`InlineScreen::resize`] and [`InlineScreen::settle`].
    pub fn draw(&mut self, live: &LiveArea) -> io::Result<()> {
        if self.settling {
            return Ok(());
        }
        self.draw_now(live)
    }

    fn draw_now(&mut self, live: &LiveArea) -> io::Result<()> {
        let rewind = self.rewind();
        let next = self.fit(live, &rewind);
        let written = next.rows.len() + self.queued_rows;
        self.below = (self.below + rewind.height).saturating_sub(written);
        let mut frame = FrameBytes::at(self.drawn.row, self.drawn.column);
        if self.repaint || self.resized || !self.queued.is_empty() {
            self.write_all_rows(&mut frame, &rewind, &next);
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

    /// Sets the size after the terminal changed it. Nothing is drawn until [`InlineScreen::settle`].
    pub fn resize(&mut self, size: ScreenSize) {
        let size = ScreenSize::new(size.columns, size.rows);
        if size != self.size {
            // Rows that a larger screen gets may be new and empty, or come from the scrollback.
            self.below = (self.below + size.rows).saturating_sub(self.size.rows);
            self.is_simple_resize = !self.resized && size.rows >= self.size.rows;
            self.resized = true;
            self.settling = true;
        }
        self.size = size;
    }

    /// Allows draws again. Call it, and draw, when the time in
    /// [`resize_pause`](super::TerminalCapabilities::resize_pause) has passed since the last resize.
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
        self.settling = false;
        self.draw_now(&LiveArea {
            rows: Vec::new(),
            cursor: Some((0, 0)),
        })?;
        self.repaint = true;
        Ok(())
    }

    fn draw_again(&mut self) -> io::Result<()> {
        let padding = self.drawn.padding;
        let cursor = (self.drawn.row.saturating_sub(padding), self.drawn.column);
        let live = LiveArea {
            rows: self.drawn.rows.iter().skip(padding).cloned().collect(),
            cursor: self.drawn.cursor_visible.then_some(cursor),
        };
        self.draw_now(&live)
    }

    fn fit(&self, live: &LiveArea, rewind: &Rewind) -> DrawnArea {
        let count = live.rows.len();
        let cursor = live
            .cursor
            .map(|(row, column)| (row.min(count.saturating_sub(1)), column));
        let last = count.saturating_sub(self.size.rows);
        let first = cursor.map_or(last, |(row, _)| row.min(last));
        let shown = live.rows.iter().skip(first).take(self.size.rows);
        let mut fitted: Vec<StyledLine> =
            shown.map(|row| fit_row(row, self.live_columns())).collect();
        if fitted.is_empty() {
            fitted.push(StyledLine::default());
        }
        let padding = match count {
            0 => 0,
            _ => self.padding_for(fitted.len(), rewind),
        };
        let mut rows = vec![StyledLine::default(); padding];
        rows.append(&mut fitted);
        // A hidden cursor waits in the first row: rows below it never scroll when the terminal becomes smaller.
        let (row, column) = cursor.map_or((0, 0), |(row, column)| (padding + row - first, column));
        DrawnArea {
            rows,
            padding,
            row,
            column: column.min(self.live_columns()).min(self.size.columns - 1),
            cursor_visible: cursor.is_some(),
        }
    }

    /// The number of empty rows above this many rows of the live area.
    fn padding_for(&self, rows: usize, rewind: &Rewind) -> usize {
        let wanted = if self.resized {
            let free = rewind.height.saturating_sub(rows + self.queued_rows);
            let above = self.size.rows.saturating_sub(self.below + free + rows);
            let safe = (2 * rows).min(self.size.rows / 3);
            safe.saturating_sub(above).min(free)
        } else {
            let grown = rows.saturating_sub(self.drawn.rows.len() - self.drawn.padding);
            self.drawn.padding.saturating_sub(grown + self.queued_rows)
        };
        wanted.min(self.size.rows.saturating_sub(rows))
    }

    fn rewind(&self) -> Rewind {
        if self.resized {
            let cursor = (self.drawn.row, self.drawn.column);
            let rules = ResizeRules {
                reflow: self.options.reflow,
                is_simple: self.is_simple_resize,
            };
            return find_rows(&self.drawn.rows, cursor, self.size, rules);
        }
        Rewind {
            rows_up: self.drawn.row,
            height: self.drawn.rows.len(),
            out_of_reach: 0,
            joins_scrollback: false,
        }
    }

    fn write_all_rows(&mut self, frame: &mut FrameBytes, rewind: &Rewind, next: &DrawnArea) {
        self.leftover += rewind.out_of_reach;
        frame.move_to_start(rewind.rows_up);
        frame.erase_below();
        if rewind.joins_scrollback {
            frame.lines("\r\n");
        }
        if !self.queued.is_empty() {
            frame.lines(&self.queued);
            self.queued = String::new();
            self.queued_rows = 0;
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
}
