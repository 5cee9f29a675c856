//! Shows finished lines and a composer, for trying resizes in a real terminal.
//!
//! Keys: `c` commits a line, `t` makes the live area taller, `p` reprints, `s` suspends, `q` ends; others are typed
//! into the composer. The first argument is the number of lines at the start, `cut` as second one is for terminals
//! that do not wrap lines again.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEventKind, poll, read};
use windlass_text::{StyledLine, Tone};
use windlass_tui::terminal::{
    InlineOptions, InlineScreen, LiveArea, RawTerminal, RowReflow, TerminalModes,
};

/// tmux tells a program about a resize up to 250 milliseconds late.
const RESIZE_PAUSE: Duration = Duration::from_millis(300);

fn encode(line: &StyledLine, out: &mut String) {
    for span in &line.spans {
        let code = match span.style.tone {
            Tone::Muted => "90",
            Tone::Accent => "36",
            _ => "39",
        };
        out.push_str(&format!("\x1b[{code}m{}\x1b[m", span.text));
    }
}

fn committed(number: usize) -> StyledLine {
    let long = "漢字 and a long tail that wraps ".repeat(number % 4);
    StyledLine::of(format!("line {number} {long}"), Tone::Text)
}

fn live(columns: usize, typed: &str, extra: usize) -> LiveArea {
    let mut rows = vec![StyledLine::of("─".repeat(columns), Tone::Muted)];
    rows.extend((0..extra).map(|row| StyledLine::of(format!("extra row {row}"), Tone::Accent)));
    rows.push(StyledLine::of(format!("COMPOSER> {typed}"), Tone::Text));
    let status = format!("{:>columns$}", "STATUS $0.04 of $10");
    rows.push(StyledLine::of(status, Tone::Muted));
    let cursor = Some((rows.len() - 2, 10 + typed.chars().count()));
    LiveArea { rows, cursor }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let lines = arguments.next().and_then(|text| text.parse().ok());
    let lines: usize = lines.unwrap_or(30);
    let terminal = RawTerminal::enter(io::stdin(), io::stdout(), TerminalModes::default())?;
    let options = InlineOptions {
        reflow: match arguments.next().as_deref() {
            Some("cut") => RowReflow::NoRow,
            Some("cursor") => RowReflow::AllRowsMoveCursor,
            _ => RowReflow::AllRows,
        },
        ..InlineOptions::new(Box::new(encode))
    };
    let mut screen = InlineScreen::new(io::stdout(), terminal.size(), options);
    let (mut typed, mut extra, mut number) = (String::new(), 0, lines);
    screen.commit((0..lines).map(committed))?;
    loop {
        screen.resize(terminal.size());
        screen.draw(&live(screen.live_columns(), &typed, extra))?;
        if screen.is_settling() && !poll(RESIZE_PAUSE)? {
            screen.settle();
            continue;
        }
        let Event::Key(key) = read()? else {
            continue;
        };
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('q') => break,
            KeyCode::Char('c') => {
                screen.commit([committed(number)])?;
                number += 1;
            }
            KeyCode::Char('t') => extra = (extra + 5) % 20,
            KeyCode::Char('p') => screen.reprint([committed(number)])?,
            KeyCode::Char('s') => {
                screen.clear()?;
                terminal.suspend()?;
                std::thread::sleep(RESIZE_PAUSE);
                terminal.resume()?;
            }
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => {
                typed.pop();
            }
            _ => {}
        }
    }
    screen.clear()
}
