//! The inline renderer on a terminal emulator that wraps lines again after a resize.

#![allow(clippy::unwrap_used)]

mod support;

use std::num::NonZero;

use support::{EmulatedScreen, line};
use windlass_tui::terminal::{InlineScreen, LiveArea, RowReflow, ScreenSize};

fn draw_composer(emulated: &mut EmulatedScreen, prompt: &str) -> usize {
    emulated.draw(emulated.composer(prompt))
}

fn with_thirty_lines() -> EmulatedScreen {
    let mut emulated = EmulatedScreen::new(80, 24);
    for number in 0..30 {
        let long = "and a longer tail that the terminal has to wrap ".repeat(number % 4);
        emulated.commit(format!("line {number} {long}").trim_end());
        draw_composer(&mut emulated, "hello");
    }
    emulated.check("thirty lines");
    emulated
}

#[test]
fn six_resizes_leave_one_composer() {
    let mut emulated = with_thirty_lines();
    for (columns, rows) in [(40, 24), (120, 24), (20, 24), (100, 12), (60, 40), (80, 24)] {
        emulated.resize(columns, rows);
        draw_composer(&mut emulated, "hello");
        emulated.check(&format!("{columns}x{rows}"));
    }
    assert_eq!(emulated.screen.leftover_rows(), 0);
}

fn sixty_sizes() -> Vec<(usize, usize)> {
    let widths = (40..80).rev().step_by(2).chain((40..120).step_by(4));
    let widths = widths.chain((20..120).rev().step_by(5));
    widths.zip((10..=30).chain(10..=30).chain(10..30)).collect()
}

#[test]
fn a_drag_of_sixty_steps_leaves_one_composer() {
    let mut emulated = with_thirty_lines();
    let sizes = sixty_sizes();
    assert_eq!(sizes.len(), 60);
    for (step, (columns, rows)) in sizes.into_iter().enumerate() {
        emulated.resize(columns, rows);
        let live = emulated.composer("hello");
        emulated.screen.draw(&live).unwrap();
        assert!(emulated.screen.output().is_empty(), "drawn during a drag");
        if step % 15 == 14 {
            draw_composer(&mut emulated, "hello");
            emulated.check(&format!("{columns}x{rows}"));
        }
    }
    assert_eq!(emulated.screen.leftover_rows(), 0);
}

/// The user waits after each step. The emulator counts the empty rows below the live area as lines, so that the live
/// area rises. Empty lines may stay in the scrollback, but never a part of a composer.
#[test]
fn sixty_separate_resizes_leave_one_composer() {
    let mut emulated = with_thirty_lines();
    let filled = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().filter(|line| !line.is_empty()).collect()
    };
    for (columns, rows) in sixty_sizes() {
        emulated.resize(columns, rows);
        draw_composer(&mut emulated, "hello");
        assert_eq!(filled(emulated.lines()), filled(emulated.expected()));
    }
}

#[test]
fn several_resizes_between_draws_leave_one_composer() {
    let mut emulated = with_thirty_lines();
    for steps in [[40, 30, 77], [100, 90, 33], [120, 25, 80]] {
        for columns in steps {
            emulated.resize(columns, 24);
        }
        draw_composer(&mut emulated, "hello");
        emulated.check(&format!("{steps:?}"));
    }
}

#[test]
fn commits_during_a_drag_keep_their_text() {
    let mut emulated = with_thirty_lines();
    for step in 0..60 {
        let columns = 30 + (step * 37) % 90;
        emulated.resize(columns, 24);
        emulated.commit(&format!("step {step} {}", "word ".repeat(step).trim_end()));
        draw_composer(&mut emulated, "hello");
        emulated.check(&format!("{step}: {columns}"));
    }
}

#[test]
fn rows_above_a_tiny_screen_stay_in_the_scrollback() {
    let mut emulated = with_thirty_lines();
    for (columns, rows) in [(10, 3), (80, 24)] {
        emulated.resize(columns, rows);
        draw_composer(&mut emulated, "hello");
        emulated.check_despite_rows_out_of_reach(&format!("{columns}x{rows}"));
    }
    assert!(emulated.screen.leftover_rows() > 0);
}

#[test]
fn nothing_is_written_if_nothing_changed() {
    let mut emulated = with_thirty_lines();
    assert_eq!(draw_composer(&mut emulated, "hello"), 0);
    emulated.resize(80, 24);
    assert_eq!(draw_composer(&mut emulated, "hello"), 0);
    let typed = draw_composer(&mut emulated, "hello!");
    assert!(typed <= "\x1b[?2026h!\x1b[?2026l".len(), "{typed}");
    emulated.check("typed");
    let deleted = draw_composer(&mut emulated, "hell");
    assert!(deleted < 40, "{deleted}");
    emulated.check("deleted");
}

#[test]
fn a_live_area_taller_than_the_screen_shows_its_end() {
    let mut emulated = EmulatedScreen::new(20, 5);
    emulated.commit("before");
    let rows: Vec<_> = (0..12).map(|row| line(format!("row {row}"))).collect();
    for cursor in [Some((11, 3)), Some((2, 0)), None, Some((7, 5))] {
        let rows = rows.clone();
        emulated.draw(LiveArea { rows, cursor });
        emulated.check(&format!("{cursor:?}"));
    }
    draw_composer(&mut emulated, "small");
    emulated.check("small");
}

#[test]
fn live_rows_may_come_and_go() {
    let mut emulated = EmulatedScreen::new(30, 8);
    for count in [1, 4, 2, 0, 8, 3, 0, 1] {
        let rows = (0..count).map(|row| line(format!("{count} {row}")));
        let cursor = (count > 0).then_some((count / 2, 1));
        emulated.draw(LiveArea {
            rows: rows.collect(),
            cursor,
        });
        emulated.check(&format!("{count} rows"));
        emulated.commit(&format!("after {count}"));
        emulated.commit("");
    }
}

#[test]
fn one_column_and_one_row_are_enough() {
    let mut emulated = EmulatedScreen::new(1, 1);
    emulated.commit("abc");
    emulated.commit("");
    emulated.draw(LiveArea {
        rows: vec![line("> x")],
        cursor: Some((0, 2)),
    });
    assert_eq!(emulated.lines(), ["abc", "", ">"]);
    emulated.resize(20, 4);
    draw_composer(&mut emulated, "x");
    emulated.check("larger");
}

#[test]
fn clearing_removes_the_live_area_and_shows_the_cursor() {
    let mut emulated = with_thirty_lines();
    emulated.draw(LiveArea {
        rows: emulated.composer("").rows,
        cursor: None,
    });
    emulated.commit("last");
    emulated.screen.clear().unwrap();
    let update = std::mem::take(emulated.screen.output());
    emulated
        .terminal
        .feed(std::str::from_utf8(&update).unwrap());
    assert_eq!(emulated.lines(), emulated.committed);
    let cursor = emulated.terminal.cursor();
    assert!(cursor.visible && cursor.col == 0);

    // Another program writes, and the screen continues below it.
    emulated.terminal.feed("from another program\r\n");
    emulated.committed.push("from another program".to_owned());
    draw_composer(&mut emulated, "back");
    emulated.check("after another program");
    emulated.screen.reprint([line("again")]).unwrap();
    emulated.committed.push("again".to_owned());
    draw_composer(&mut emulated, "back");
    emulated.check("reprinted");
}

#[test]
fn a_long_answer_costs_at_most_three_times_its_text() {
    let mut emulated = EmulatedScreen::new(80, 24);
    let mut text = 0;
    let mut number = 0;
    // Ten seconds with sixty updates each.
    for frame in 0..600 {
        for _ in 0..34 {
            let line = format!("{number:06} {}", "a word of the answer ".repeat(4));
            text += line.len();
            number += 1;
            emulated.screen.commit([support::line(line)]).unwrap();
        }
        draw_composer(&mut emulated, &format!("frame {frame}"));
    }
    assert!(text > 1_800_000);
    assert!(
        emulated.bytes.len() < 3 * text,
        "{} for {text}",
        emulated.bytes.len()
    );
}

#[test]
fn a_large_commit_is_written_before_the_next_draw() {
    let mut emulated = EmulatedScreen::new(80, 24);
    draw_composer(&mut emulated, "hello");
    let lines = (0..30).map(|_| line("x".repeat(100_000)));
    emulated.screen.commit(lines).unwrap();
    assert!(emulated.screen.output().len() > 1 << 20);
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut emulated = EmulatedScreen::new(80, 24);
    let mut hostile = line("x");
    hostile.spans[0].text = "a\u{1b}[2J\u{9b}3Jb\rc".to_owned();
    emulated.screen.commit([hostile.clone()]).unwrap();
    emulated.committed.push("a[2J3Jbc".to_owned());
    emulated.draw(LiveArea {
        rows: vec![hostile],
        cursor: None,
    });
    assert_eq!(emulated.lines(), ["a[2J3Jbc", "a[2J3Jbc"]);
}

/// A terminal that cuts rows instead of wrapping them again, such as xterm.
#[test]
fn a_terminal_that_cuts_rows_keeps_the_finished_lines() {
    let cells = |count: u16| NonZero::new(count).unwrap();
    let mut terminal = vt100::Parser::new(cells(24), cells(120), 0);
    let size = ScreenSize::new(120, 24);
    let mut screen = InlineScreen::new(Vec::new(), size, support::options(RowReflow::NoRow));
    screen
        .commit((0..10).map(|number| line(format!("line {number}"))))
        .unwrap();
    for columns in (20..=120).rev().step_by(3).chain((20..=120).step_by(7)) {
        terminal.screen_mut().set_size(cells(24), cells(columns));
        screen.resize(ScreenSize::new(columns.into(), 24));
        screen.settle();
        screen
            .draw(&support::composer(screen.live_columns(), "hello"))
            .unwrap();
        terminal.process(&std::mem::take(screen.output()));
        let shown = terminal.screen().contents();
        let rows: Vec<&str> = shown.lines().filter(|row| !row.is_empty()).collect();
        let expected: Vec<String> = (0..10).map(|number| format!("line {number}")).collect();
        assert_eq!(rows[..10], expected, "{columns}");
        assert!(rows[10].starts_with('─') && rows[11] == "> hello" && rows.len() == 13);
    }
}
