//! The full screen: the conversation with its own scrolling, and panes for the checks, the changes and the log.

use std::io::{self, Stdout};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};
use windlass_text::{
    ColorTheme, StyledLine, TextStyle, ThemeColor, Tone, width::prefix, wrap_columns,
};

use crate::app::FullView;
use crate::conversation::BlockKind;
use crate::screen::Screen;

/// The columns from which the side pane is shown.
const WIDE: u16 = 100;
/// Rows that one step of the wheel scrolls.
const WHEEL_ROWS: isize = 3;
/// The columns of the side pane.
const SIDE: u16 = 38;

/// The part of the state that the main pane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pane {
    Conversation,
    Changes,
    Checks,
    Log,
}

const PANES: [(Pane, &str); 4] = [
    (Pane::Conversation, "conversation"),
    (Pane::Changes, "changes"),
    (Pane::Checks, "checks"),
    (Pane::Log, "log"),
];

/// The state of the full screen.
pub(crate) struct FullScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    theme: ColorTheme,
    pane: Pane,
    /// Rows above the end; 0 follows the end.
    scrolled: usize,
    /// Rows of the pane at the last draw.
    height: usize,
    /// All rows at the last draw, to keep the position when rows are added.
    rows: usize,
    /// The main pane at the last draw, and the number and texts of its rows.
    main: Rect,
    first: usize,
    texts: Vec<String>,
    selection: Option<TextSelection>,
    /// The mouse scrolls and selects here instead of in the terminal.
    pub(crate) mouse: bool,
}

/// A selection in the main pane, from one row and column to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TextSelection {
    from: (usize, usize),
    to: (usize, usize),
}

impl TextSelection {
    /// The columns of a row that are selected.
    fn columns(&self, row: usize) -> Option<(usize, usize)> {
        let (start, end) = match self.from <= self.to {
            true => (self.from, self.to),
            false => (self.to, self.from),
        };
        if row < start.0 || row > end.0 {
            return None;
        }
        let from = if row == start.0 { start.1 } else { 0 };
        let to = if row == end.0 { end.1 + 1 } else { usize::MAX };
        Some((from, to))
    }
}

impl FullScreen {
    /// Switches to the alternate screen.
    pub(crate) fn open(screen: &mut Screen) -> io::Result<Self> {
        let mouse = true;
        screen.enter_full_screen(mouse)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(Self {
            terminal,
            theme: screen.theme().clone(),
            pane: Pane::Conversation,
            scrolled: 0,
            height: 1,
            rows: 0,
            main: Rect::default(),
            first: 0,
            texts: Vec::new(),
            selection: None,
            mouse,
        })
    }

    /// Applies a key. Returns whether it was used.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::PageUp => self.scroll(self.height as isize - 1),
            KeyCode::PageDown => self.scroll(1 - self.height as isize),
            KeyCode::Up if alt => self.scroll(1),
            KeyCode::Down if alt => self.scroll(-1),
            KeyCode::Home if alt => self.scrolled = self.rows,
            KeyCode::End if alt => self.scrolled = 0,
            KeyCode::Char(digit @ '1'..='4') if alt => {
                let at = digit as usize - '1' as usize;
                self.pane = PANES[at].0;
                self.scrolled = 0;
            }
            _ => return false,
        }
        true
    }

    /// Applies an event of the mouse. Returns the selected text when the selection ends.
    pub(crate) fn mouse(&mut self, event: MouseEvent) -> Option<String> {
        let column = usize::from(event.column.saturating_sub(self.main.x));
        let row = self.first + usize::from(event.row.saturating_sub(self.main.y));
        match event.kind {
            MouseEventKind::ScrollUp => self.scroll(WHEEL_ROWS),
            MouseEventKind::ScrollDown => self.scroll(-WHEEL_ROWS),
            MouseEventKind::Down(MouseButton::Left) => {
                let inside = self.main.contains((event.column, event.row).into());
                self.selection = inside.then_some(TextSelection {
                    from: (row, column),
                    to: (row, column),
                });
            }
            MouseEventKind::Drag(MouseButton::Left) => {
                if let Some(selection) = &mut self.selection {
                    selection.to = (row, column);
                }
            }
            MouseEventKind::Up(MouseButton::Left) => {
                let selection = self.selection?;
                if selection.from == selection.to {
                    self.selection = None;
                    return None;
                }
                return Some(self.selected(selection));
            }
            _ => {}
        }
        None
    }

    /// The selected text of the rows that are shown.
    fn selected(&self, selection: TextSelection) -> String {
        let rows = self.texts.iter().enumerate().filter_map(|(at, text)| {
            let (from, to) = selection.columns(self.first + at)?;
            Some(part_of(text, from, to).1.trim_end().to_owned())
        });
        rows.collect::<Vec<_>>().join("\n")
    }

    fn scroll(&mut self, by: isize) {
        let most = self.rows.saturating_sub(self.height);
        self.scrolled = self.scrolled.saturating_add_signed(by).min(most);
    }

    /// Draws all panes.
    pub(crate) fn draw(&mut self, mut view: FullView<'_>) -> io::Result<()> {
        let Self {
            terminal,
            theme,
            pane,
            scrolled,
            height,
            rows,
            main: main_area,
            first,
            texts,
            selection,
            mouse: _,
        } = self;
        terminal.draw(|frame| {
            let area = frame.area();
            let columns = usize::from(area.width).max(1);
            let input = view.input(columns, usize::from(area.height / 2).max(3));
            let queue = view.queue(columns);
            let input_height =
                (input.rows.len() + queue.len()).min(usize::from(area.height)) as u16;
            let [top, body, rule, below, status] = Layout::vertical([
                Constraint::Length(1),
                Constraint::Min(1),
                Constraint::Length(1),
                Constraint::Length(input_height),
                Constraint::Length(1),
            ])
            .areas(area);
            frame.render_widget(Paragraph::new(tabs(*pane, theme)), top);
            let (main, side) = match area.width >= WIDE {
                true => {
                    let [main, side] =
                        Layout::horizontal([Constraint::Min(1), Constraint::Length(SIDE)])
                            .areas(body);
                    (main, Some(side))
                }
                false => (body, None),
            };
            let lines = pane_lines(*pane, &view, usize::from(main.width));
            // Rows that are added while the user reads do not move what the user reads.
            if *scrolled > 0 {
                *scrolled += lines.len().saturating_sub(*rows);
            }
            *height = usize::from(main.height).max(1);
            *rows = lines.len();
            *scrolled = (*scrolled).min(rows.saturating_sub(*height));
            let end = lines.len() - *scrolled;
            let start = end.saturating_sub(*height);
            *main_area = main;
            *first = start;
            *texts = lines[start..end].iter().map(StyledLine::plain).collect();
            let shown = with_selection(&lines[start..end], start, *selection);
            draw_lines(frame, main, &shown, theme);
            if *scrolled > 0 {
                let text = format!(" {} rows below · PgDn ", *scrolled);
                let at = Rect {
                    x: main.x + main.width.saturating_sub(text.len() as u16 + 1),
                    y: main.y + main.height.saturating_sub(1),
                    width: (text.len() as u16).min(main.width),
                    height: 1,
                };
                frame.render_widget(
                    Paragraph::new(text).style(style(Tone::Accent.into(), theme)),
                    at,
                );
            }
            if let Some(side) = side {
                let block = Block::default()
                    .borders(Borders::LEFT)
                    .border_style(style(Tone::Line.into(), theme));
                let inner = block.inner(side);
                frame.render_widget(block, side);
                let lines = side_lines(&view, usize::from(inner.width));
                draw_lines(frame, inner, &lines, theme);
            }
            let line = StyledLine::of("─".repeat(columns), Tone::Line);
            draw_lines(frame, rule, &[line], theme);
            let mut shown = queue;
            let offset = shown.len();
            shown.extend(input.rows);
            draw_lines(frame, below, &shown, theme);
            let last = match view.notice {
                Some(notice) => notice.clone(),
                None => view.status(columns),
            };
            draw_lines(frame, status, &[last], theme);
            if let Some((row, column)) = input.cursor {
                let row = (offset + row) as u16;
                if row < below.height {
                    frame.set_cursor_position((below.x + column as u16, below.y + row));
                }
            }
        })?;
        Ok(())
    }
}

/// A text before, in and after a range of columns.
fn part_of(text: &str, from: usize, to: usize) -> (&str, &str, &str) {
    let (before, _) = prefix(text, from);
    let (inside, _) = prefix(&text[before.len()..], to.saturating_sub(from));
    (before, inside, &text[before.len() + inside.len()..])
}

/// Rows with the selected part in reverse.
fn with_selection(
    rows: &[StyledLine],
    first: usize,
    selection: Option<TextSelection>,
) -> Vec<StyledLine> {
    let mark = |(at, row): (usize, &StyledLine)| {
        let Some((from, to)) = selection.and_then(|one| one.columns(first + at)) else {
            return row.clone();
        };
        let text = row.plain();
        let (before, inside, after) = part_of(&text, from, to);
        let reversed = TextStyle {
            reversed: true,
            ..Tone::Text.into()
        };
        StyledLine::of(before, Tone::Text)
            .with(inside, reversed)
            .with(after, Tone::Text)
    };
    rows.iter().enumerate().map(mark).collect()
}

fn tabs(current: Pane, theme: &ColorTheme) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (at, (pane, name)) in PANES.iter().enumerate() {
        let tone = if *pane == current {
            Tone::Accent
        } else {
            Tone::Muted
        };
        let text = TextStyle {
            bold: *pane == current,
            ..tone.into()
        };
        spans.push(Span::styled(format!("{name} "), style(text, theme)));
        spans.push(Span::styled(
            format!("alt-{}   ", at + 1),
            style(Tone::Muted.into(), theme),
        ));
    }
    Line::from(spans)
}

/// The rows of a pane, wrapped to a width.
fn pane_lines(pane: Pane, view: &FullView<'_>, columns: usize) -> Vec<StyledLine> {
    let columns = columns.max(1);
    let wanted = |kind: BlockKind| match pane {
        Pane::Conversation => true,
        Pane::Changes => matches!(kind, BlockKind::Call | BlockKind::Landing),
        Pane::Checks => kind == BlockKind::Check,
        Pane::Log => false,
    };
    let mut rows = Vec::new();
    for block in view.conversation.blocks() {
        if pane == Pane::Log {
            let number = block.seq.map_or_else(String::new, |seq| format!("#{seq}"));
            let first = block.lines.iter().find(|line| !line.is_empty());
            let mut row = StyledLine::of(format!(" {number:>6} "), Tone::Muted).with_indent(8);
            if let Some(first) = first {
                row.extend(first);
            }
            rows.extend(wrap_columns(&row, columns));
        } else if wanted(block.kind) {
            for line in &block.lines {
                rows.extend(wrap_columns(line, columns));
            }
        }
    }
    if pane == Pane::Conversation {
        rows.extend(view.open(columns, usize::MAX));
    }
    rows
}

/// The side pane: checks, notes and costs.
fn side_lines(view: &FullView<'_>, columns: usize) -> Vec<StyledLine> {
    let columns = columns.max(1);
    let conversation = view.conversation;
    let heading =
        |text: &str| StyledLine::of(format!(" {text}"), TextStyle::from(Tone::Text).bold());
    let mut lines = Vec::new();
    lines.push(heading("Checks"));
    if conversation.checks.rows.is_empty() {
        lines.push(StyledLine::of("   none yet", Tone::Muted));
    }
    for (name, state) in &conversation.checks.rows {
        lines.push(
            StyledLine::of(format!("   {} ", state.mark()), state.tone())
                .with(windlass_text::sanitize::one_line(name), Tone::Text),
        );
    }
    if !conversation.notes.trim().is_empty() {
        lines.push(StyledLine::default());
        lines.push(heading("Notes"));
        for line in conversation.notes.lines() {
            lines.push(StyledLine::of(format!("   {line}"), Tone::Text).with_indent(3));
        }
    }
    if let Some(name) = &conversation.kept {
        lines.push(StyledLine::default());
        lines.push(heading("Kept run"));
        lines.push(StyledLine::of(format!("   {name}"), Tone::Text));
        lines.push(StyledLine::of("   /diff /land /discard", Tone::Muted));
    }
    lines
        .iter()
        .flat_map(|line| wrap_columns(line, columns))
        .collect()
}

fn draw_lines(
    frame: &mut ratatui::Frame<'_>,
    area: Rect,
    lines: &[StyledLine],
    theme: &ColorTheme,
) {
    let lines: Vec<Line<'_>> = lines.iter().map(|line| to_line(line, theme)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn to_line<'a>(line: &'a StyledLine, theme: &ColorTheme) -> Line<'a> {
    let span =
        |span: &'a windlass_text::Span| Span::styled(span.text.as_str(), style(span.style, theme));
    Line::from(line.spans.iter().map(span).collect::<Vec<_>>())
}

fn style(text: TextStyle, theme: &ColorTheme) -> Style {
    let mut style = Style::default().fg(color(theme.color(text.tone)));
    if let Some(background) = text.background {
        style = style.bg(color(theme.color(background)));
    }
    let modifiers = [
        (text.bold, Modifier::BOLD),
        (text.italic, Modifier::ITALIC),
        (text.underline, Modifier::UNDERLINED),
        (text.strikethrough, Modifier::CROSSED_OUT),
        (text.reversed, Modifier::REVERSED),
        (text.dim, Modifier::DIM),
    ];
    for (on, modifier) in modifiers {
        if on {
            style = style.add_modifier(modifier);
        }
    }
    style
}

fn color(color: ThemeColor) -> Color {
    match color {
        ThemeColor::Rgb(red, green, blue) => Color::Rgb(red, green, blue),
        ThemeColor::Indexed(index) => Color::Indexed(index),
        _ => Color::Reset,
    }
}
