//! Random sequences of commits, draws and resizes on a terminal emulator.

#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use support::{EmulatedScreen, line};
use windlass_tui::terminal::LiveArea;

#[derive(Debug, Clone)]
enum ScreenStep {
    Commit(Vec<String>),
    /// Sizes that follow each other without a draw, and then a draw.
    Resize(Vec<(usize, usize)>),
    /// The prompt, more rows above it, and rows below it.
    Draw(String, Vec<String>, usize),
}

fn text(max: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::string::string_regex(&format!("[a-z][a-z ]{{0,{max}}}[a-z]")).unwrap(),
        2 => prop::string::string_regex(&format!("[a-z]{{1,3}}[漢字かなa-z]{{0,{}}}", max / 2)).unwrap(),
        1 => Just(String::new()),
    ]
}

fn step(sizes: impl Strategy<Value = (usize, usize)>) -> impl Strategy<Value = ScreenStep> {
    prop_oneof![
        3 => prop::collection::vec(text(400), 1..20).prop_map(ScreenStep::Commit),
        3 => prop::collection::vec(sizes, 1..4).prop_map(ScreenStep::Resize),
        2 => ("[a-z]{0,30}", prop::collection::vec(text(80), 0..4), 0..3_usize)
            .prop_map(|(prompt, above, below)| ScreenStep::Draw(prompt, above, below)),
    ]
}

/// The composer with more rows above the prompt, and fewer rows below it.
fn live(emulated: &EmulatedScreen, prompt: &str, above: &[String], below: usize) -> LiveArea {
    let mut live = emulated.composer(prompt);
    live.rows.truncate(2);
    live.rows.splice(1..1, above.iter().map(line));
    live.cursor = live.cursor.map(|(row, column)| (row + above.len(), column));
    live.rows
        .extend((0..below).map(|row| line(format!("status {row}"))));
    live
}

fn run(start: (usize, usize), steps: Vec<ScreenStep>) -> EmulatedScreen {
    let mut emulated = EmulatedScreen::new(start.0, start.1);
    let (mut prompt, mut above, mut below) = (String::new(), Vec::new(), 1);
    for (number, step) in steps.into_iter().enumerate() {
        let context = format!("step {number} {step:?}");
        match step {
            ScreenStep::Commit(lines) => {
                for text in lines {
                    emulated.commit(&text);
                }
                continue;
            }
            ScreenStep::Resize(sizes) => {
                // The emulator keeps the blanks that it adds before wide symbols, so that their rows become longer with
                // each resize.
                let wide = above.iter().any(|row: &String| !row.is_ascii());
                let count = if wide { 1 } else { sizes.len() };
                for (columns, rows) in sizes.into_iter().take(count) {
                    emulated.resize(columns, rows);
                }
            }
            ScreenStep::Draw(new_prompt, new_above, new_below) => {
                (prompt, above, below) = (new_prompt, new_above, new_below);
            }
        }
        let live = live(&emulated, &prompt, &above, below);
        emulated.draw(live.clone());
        if emulated.out_of_reach {
            emulated.check_despite_rows_out_of_reach(&context);
        } else {
            emulated.check(&context);
        }
        assert_eq!(emulated.draw(live), 0, "drawn twice; {context}");
    }
    emulated
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_lose_nothing_and_show_one_composer(
        start in (10..200_usize, 3..60_usize),
        steps in prop::collection::vec(step((10..200_usize, 3..60_usize)), 1..30),
    ) {
        run(start, steps);
    }

    /// If the screen is full of lines and large enough for the wrapped live area, no row goes out of reach.
    #[test]
    fn nothing_stays_in_the_scrollback_of_ordinary_screens(
        start in (60..200_usize, 30..60_usize),
        steps in prop::collection::vec(step((60..200_usize, 30..60_usize)), 1..12),
    ) {
        let fill = ScreenStep::Commit((0..60).map(|number| format!("line {number}")).collect());
        let steps = steps.into_iter().flat_map(|step| [fill.clone(), step]);
        let emulated = run(start, steps.collect());
        prop_assert!(!emulated.out_of_reach);
    }
}
