//! An inline screen that draws on terminal emulators, and checks of each update.

use windlass_text::{StyledLine, Tone};
use windlass_tui::terminal::{InlineOptions, InlineScreen, LiveArea, RowReflow, ScreenSize};

/// The emulated terminal and the renderer that draws on it.
pub(crate) struct EmulatedScreen {
    pub(crate) terminal: avt::Terminal,
    pub(crate) screen: InlineScreen<Vec<u8>>,
    pub(crate) committed: Vec<String>,
    pub(crate) live: LiveArea,
    /// Whether a resize moved rows of a live area into the scrollback, where nothing can erase them.
    pub(crate) out_of_reach: bool,
    /// All bytes of all updates.
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn encode(line: &StyledLine, out: &mut String) {
    for span in &line.spans {
        match span.style.tone {
            Tone::Text => out.push_str(&span.text),
            _ => {
                out.push_str("\x1b[32m");
                out.push_str(&span.text);
                out.push_str("\x1b[m");
            }
        }
    }
}

pub(crate) fn options(reflow: RowReflow) -> InlineOptions {
    InlineOptions {
        reflow,
        ..InlineOptions::new(Box::new(encode))
    }
}

pub(crate) fn line(text: impl Into<String>) -> StyledLine {
    StyledLine::of(text.into(), Tone::Text)
}

/// A rule, a prompt with the cursor behind it, and a status row, of this width.
pub(crate) fn composer(free: usize, prompt: &str) -> LiveArea {
    let prompt = format!("> {prompt}");
    let status = format!(
        "model · auto{:>width$}",
        "$0.04",
        width = free.saturating_sub(12)
    );
    LiveArea {
        rows: vec![
            StyledLine::of("─".repeat(free), Tone::Muted),
            line(prompt.clone()),
            StyledLine::of(status, Tone::Muted),
        ],
        cursor: Some((1, prompt.chars().count().min(free))),
    }
}

impl EmulatedScreen {
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        Self {
            terminal: avt::Terminal::with_scrollback(columns, rows, None).unwrap(),
            screen: InlineScreen::new(
                Vec::new(),
                ScreenSize::new(columns, rows),
                options(RowReflow::AllRows),
            ),
            committed: Vec::new(),
            live: LiveArea::default(),
            out_of_reach: false,
            bytes: Vec::new(),
        }
    }

    pub(crate) fn commit(&mut self, text: &str) {
        self.committed.push(text.to_owned());
        self.screen.commit([line(text)]).unwrap();
    }

    /// Draws after a resize is complete, checks the bytes of the update, shows it to the emulator, and returns the number of bytes.
    pub(crate) fn draw(&mut self, live: LiveArea) -> usize {
        self.screen.settle();
        self.screen.draw(&live).unwrap();
        self.live = live;
        let update = String::from_utf8(std::mem::take(self.screen.output())).unwrap();
        check_update(&update);
        self.out_of_reach |= first_move_up(&update) > self.terminal.cursor().row;
        self.out_of_reach |= self.screen.leftover_rows() > 0;
        self.terminal.feed(&update);
        self.bytes.extend_from_slice(update.as_bytes());
        update.len()
    }

    pub(crate) fn composer(&self, prompt: &str) -> LiveArea {
        composer(self.screen.live_columns(), prompt)
    }

    /// The terminal changes its size first; the renderer learns of it afterwards.
    pub(crate) fn resize(&mut self, columns: usize, rows: usize) {
        self.terminal.resize(columns, rows);
        self.screen.resize(ScreenSize::new(columns, rows));
    }

    /// The lines of the scrollback and the screen, with wrapped rows joined.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new()];
        for row in self.terminal.screen().all_lines() {
            let last = lines.last_mut().unwrap();
            *last += &row.text();
            if !row.is_wrapped() {
                *last = last.trim_end().to_owned();
                lines.push(String::new());
            }
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// The committed lines and the live area as they must be shown.
    pub(crate) fn expected(&self) -> Vec<String> {
        let size = self.screen.size();
        let rows = &self.live.rows;
        let last = rows.len().saturating_sub(size.rows);
        let first = self.live.cursor.map_or(last, |(row, _)| row.min(last));
        let shown = rows.iter().skip(first).take(size.rows);
        let mut lines = self.committed.clone();
        lines.extend(vec![String::new(); self.screen.padding()]);
        lines.extend(shown.map(|row| cut(&row.plain(), self.screen.live_columns())));
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    #[track_caller]
    pub(crate) fn check(&self, context: &str) {
        let (shown, expected) = (blankless(&self.lines()), blankless(&self.expected()));
        assert_eq!(shown, expected, "{context}\n{}", self.lines().join("\n"));
        self.check_cursor(context);
    }

    /// After rows of a live area went out of reach: all committed lines are there in order, the live area is complete
    /// at the end, and the cursor is in it. A line may continue a row that is out of reach.
    #[track_caller]
    pub(crate) fn check_despite_rows_out_of_reach(&self, context: &str) {
        let blankless = |lines: &[String]| -> Vec<String> {
            lines.iter().map(|line| line.replace(' ', "")).collect()
        };
        let shown = blankless(&self.lines());
        let mut rest = shown.iter();
        for line in blankless(&self.committed) {
            let found = rest.any(|shown| shown.ends_with(&line));
            assert!(found, "{line:?} is lost; {context}");
        }
        let live = blankless(&self.expected()[self.committed.len()..]);
        let live: Vec<&String> = live.iter().skip(self.screen.padding()).collect();
        let end: Vec<&String> = shown.iter().rev().take(live.len()).rev().collect();
        let same = end
            .iter()
            .zip(&live)
            .all(|(end, live)| end.ends_with(live.as_str()));
        assert!(
            same && end.len() == live.len(),
            "{end:?} {live:?} {context}"
        );
        self.check_cursor(context);
    }

    #[track_caller]
    fn check_cursor(&self, context: &str) {
        let Some((row, column)) = self.live.cursor else {
            assert!(!self.terminal.cursor().visible, "{context}");
            return;
        };
        let cursor = self.terminal.cursor();
        assert!(cursor.visible, "{context}");
        let column = column.min(self.screen.live_columns());
        let column = column.min(self.screen.size().columns - 1);
        assert_eq!(cursor.col, column, "{context}");
        let at = self.terminal.screen().line(cursor.row).unwrap();
        let expected = self.live.rows.get(row).map(StyledLine::plain);
        let expected = cut(&expected.unwrap_or_default(), self.screen.live_columns());
        assert_eq!(
            at.text().trim_end(),
            expected,
            "the row of the cursor; {context}"
        );
    }
}

/// The prefix that fits, without blanks at its end.
fn cut(text: &str, columns: usize) -> String {
    use unicode_width::UnicodeWidthChar;
    let mut used = 0;
    let fits = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    fits.collect::<String>().trim_end().to_owned()
}

/// The lines without blanks where the emulator adds some: before a wide symbol that it wraps.
fn blankless(lines: &[String]) -> Vec<String> {
    let wide = |line: &str| line.chars().any(|c| c >= '\u{3000}');
    lines
        .iter()
        .map(|line| match wide(line) {
            true => line.replace(' ', ""),
            false => line.trim_end().to_owned(),
        })
        .collect()
}

/// Each update is one synchronized update with relative moves, and erases only to the end of a row or of the screen.
#[track_caller]
pub(crate) fn check_update(update: &str) {
    if update.is_empty() {
        return;
    }
    let sequences = sequences(update);
    assert_eq!(sequences.first().map(String::as_str), Some("?2026h"));
    assert_eq!(sequences.last().map(String::as_str), Some("?2026l"));
    assert!(update.starts_with("\x1b[?2026h") && update.ends_with("\x1b[?2026l"));
    let marks = sequences.iter().filter(|text| text.contains("2026"));
    assert_eq!(marks.count(), 2, "{update:?}");
    for sequence in &sequences {
        let (parameters, last) = sequence.split_at(sequence.len() - 1);
        let allowed = match last {
            "A" | "B" | "C" | "D" => parameters.chars().all(|c| c.is_ascii_digit()),
            "J" | "K" => parameters.is_empty(),
            "m" => true,
            "h" | "l" => ["?2026", "?25"].contains(&parameters),
            _ => false,
        };
        assert!(allowed, "{sequence:?} in {update:?}");
    }
}

/// The number of rows of the first move, if it goes up.
fn first_move_up(update: &str) -> usize {
    let first = sequences(update).into_iter().nth(1).unwrap_or_default();
    match first.strip_suffix('A') {
        Some("") => 1,
        Some(count) => count.parse().unwrap(),
        None => 0,
    }
}

fn sequences(update: &str) -> Vec<String> {
    let parts = update.split('\x1b').skip(1).map(|part| {
        let part = part.strip_prefix('[').expect("only CSI sequences");
        let end = part
            .find(|c: char| ('@'..='~').contains(&c))
            .expect("a complete sequence");
        part[..=end].to_owned()
    });
    parts.collect()
}
