//! Random keys and pastes: the composer never panics, and its invariants hold after every step.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation as _;

use super::tests::composer;
use super::*;

/// Clusters and parts of clusters, hidden characters, marks of folds and the letters of vi commands.
const TYPED: &[&str] = &[
    "a",
    "b c",
    "word ",
    "\n",
    " ",
    "\t",
    "é",
    "e\u{301}",
    "\u{301}",
    "漢字",
    "👩‍👩‍👧",
    "\u{200d}",
    "🇩🇪",
    "🇩",
    "\u{202e}",
    "\u{100000}",
    "\u{1b}",
    "\r",
    "/",
    "@",
    "@src",
    "/mo",
    "!",
    "#",
    "\\",
    "\"",
    ".",
    "d",
    "w",
    "y",
    "p",
    "3",
    "g",
    "G",
    "f",
    "c",
    "x",
    "u",
    "j",
    "k",
    "0",
    "$",
    "~",
    "r",
    "o",
    "O",
    "\u{e0041}",
    "\u{fe0f}",
    "क्षि",
    "لا",
    "\u{600}",
];

#[derive(Debug, Clone)]
enum RandomStep {
    Type(usize),
    /// A key of the table, by its number among all keys.
    Key(usize),
    Paste(usize, usize),
    View(usize, usize),
    Editor(usize),
}

fn steps() -> impl Strategy<Value = RandomStep> {
    prop_oneof![
        8 => (0..TYPED.len()).prop_map(RandomStep::Type),
        8 => (0..500_usize).prop_map(RandomStep::Key),
        1 => ((0..TYPED.len()), (1..40_usize)).prop_map(|(text, count)| RandomStep::Paste(text, count)),
        2 => ((0..200_usize), (0..12_usize)).prop_map(|(width, rows)| RandomStep::View(width, rows)),
        1 => (0..TYPED.len()).prop_map(RandomStep::Editor),
    ]
}

fn keys() -> Vec<KeyEvent> {
    let names = key_bindings()
        .iter()
        .flat_map(|binding| binding.keys.split(", "));
    let keys = names.filter_map(keys::parse_key);
    let pages = [KeyCode::PageUp, KeyCode::PageDown, KeyCode::F(1)];
    let pages = pages.into_iter().map(|code| (code, KeyModifiers::NONE));
    keys.chain(pages)
        .map(|(code, modifiers)| KeyEvent::new(code, modifiers))
        .collect()
}

fn take(composer: &mut Composer, step: &RandomStep, keys: &[KeyEvent], may_submit: bool) {
    match step {
        RandomStep::Type(text) => {
            for c in TYPED[*text].chars() {
                composer.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
            }
        }
        RandomStep::Key(number) => {
            let key = keys[number % keys.len()];
            if may_submit || key.code != KeyCode::Enter {
                composer.key(key);
            }
        }
        RandomStep::Paste(text, count) => {
            composer.paste(TYPED[*text].repeat(*count));
        }
        RandomStep::View(width, rows) => {
            composer.popup_view(*width, *rows);
            composer.view(*width, *rows);
        }
        RandomStep::Editor(text) => composer.set_text(TYPED[*text]),
    }
    // Some pastes multiply the text; the test stays fast without them.
    if composer.buffer.text().len() > 4_000 {
        composer.set_text("");
    }
}

fn check_invariants(composer: &mut Composer, width: usize, max_rows: usize) {
    let buffer = &composer.buffer;
    let cursor = buffer.cursor();
    let is_boundary = cursor == buffer.text().len()
        || buffer
            .text()
            .grapheme_indices(true)
            .any(|(at, _)| at == cursor);
    assert!(is_boundary, "{:?} at {cursor}", buffer.text());
    assert!(
        buffer
            .text()
            .chars()
            .all(|c| matches!(c, '\n' | '\t') || !c.is_control())
    );

    let view = composer.view(width, max_rows);
    assert!((1..=max_rows.max(1)).contains(&view.rows.len()));
    assert!(
        view.cursor.0 < view.rows.len() && view.cursor.1 < width.max(1),
        "{:?}",
        view.cursor
    );
    let popup = composer.popup_view(width, max_rows);
    assert!(popup.len() <= max_rows);
    for line in view.rows.iter().chain(&popup) {
        assert!(line.width() <= width.max(1), "{width}: {:?}", line.plain());
        assert!(
            !line.plain().contains(char::is_control),
            "{:?}",
            line.plain()
        );
    }
}

fn random_composer(vi_mode: bool) -> Composer {
    composer(ComposerOptions {
        vi_mode,
        history: PromptHistory::with_entries(["one".to_owned(), "two\nlines".to_owned()]),
        ..ComposerOptions::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_after_every_step(
        steps in prop::collection::vec(steps(), 1..200),
        vi_mode in any::<bool>(),
        width in 1..200_usize,
        rows in 1..12_usize,
    ) {
        let keys = keys();
        let mut composer = random_composer(vi_mode);
        for step in &steps {
            take(&mut composer, step, &keys, true);
            check_invariants(&mut composer, width, rows);
        }
    }

    #[test]
    fn undo_of_everything_returns_the_start(
        steps in prop::collection::vec(steps(), 1..200),
        vi_mode in any::<bool>(),
    ) {
        let keys = keys();
        let mut composer = random_composer(vi_mode);
        for step in &steps {
            take(&mut composer, step, &keys, false);
        }
        check_undo(&mut composer);
    }

    #[test]
    fn every_width_shows_the_cursor(text in ".{0,80}", at in 0..80_usize) {
        let mut composer = random_composer(false);
        composer.set_text(&text);
        composer.buffer.move_to(at);
        for width in 1..=200 {
            for rows in [1, 2, 5] {
                check_invariants(&mut composer, width, rows);
            }
        }
    }
}

fn check_undo(composer: &mut Composer) {
    // An edit drops the edits that could be redone.
    composer.buffer.insert_char('z');
    let end = composer.buffer.text().to_owned();
    while composer.buffer.undo() {}
    assert_eq!(composer.buffer.text(), "");
    while composer.buffer.redo() {}
    assert_eq!(composer.buffer.text(), end);
}

/// A generator of the same numbers in every run.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    fn step(&mut self) -> RandomStep {
        match self.below(20) {
            0..8 => RandomStep::Type(self.below(TYPED.len())),
            8..16 => RandomStep::Key(self.below(500)),
            16 => RandomStep::Paste(self.below(TYPED.len()), 1 + self.below(40)),
            17..19 => RandomStep::View(self.below(200), self.below(12)),
            _ => RandomStep::Editor(self.below(TYPED.len())),
        }
    }
}

#[test]
fn ten_thousand_steps_hold_the_invariants() {
    let keys = keys();
    for (seed, vi_mode) in [(0x9e37_79b9, false), (0x1234_5678_9abc, true)] {
        let mut random = XorShift(seed);
        let mut composer = random_composer(vi_mode);
        for _ in 0..10_000 {
            take(&mut composer, &random.step(), &keys, true);
            let (width, rows) = (1 + random.below(200), 1 + random.below(12));
            check_invariants(&mut composer, width, rows);
        }
    }
}

#[test]
fn ten_thousand_steps_can_be_undone() {
    let keys = keys();
    for (seed, vi_mode) in [(0x0dd_ba11, false), (0xfeed, true)] {
        let mut random = XorShift(seed);
        let mut composer = random_composer(vi_mode);
        for _ in 0..10_000 {
            take(&mut composer, &random.step(), &keys, false);
        }
        check_undo(&mut composer);
    }
}

/// Texts of `size` bytes: short lines, one line, one word, one line of wide characters, line breaks, and one cluster.
fn large_texts(size: usize) -> Vec<(&'static str, String)> {
    let repeated = |text: &str| text.repeat(size / text.len());
    vec![
        ("lines", repeated("some words in a line of text\n")),
        ("one line", repeated("some words in a line of text ")),
        ("one word", repeated("x")),
        ("wide characters", repeated("漢字")),
        ("line breaks", repeated("\n")),
        ("one cluster", format!("e{}", repeated("\u{301}"))),
    ]
}

/// The time of the paste, and the slowest key with its view after the paste was unfolded.
fn measure(text: &str) -> (Duration, (Duration, &'static str)) {
    let mut composer = composer(ComposerOptions::default());
    let start = Instant::now();
    composer.paste(text.to_owned());
    composer.view(80, 20);
    let paste = start.elapsed();
    let unfold = press_timed(&mut composer, "<alt-o>");
    assert_eq!(composer.buffer.text().len(), text.len());
    let mut slowest = (unfold, "<alt-o>");
    let keys = [
        "x",
        "<left>",
        "<up>",
        "y",
        "<ctrl-home>",
        "z",
        "<down>",
        "<ctrl-e>",
        "<backspace>",
        "<ctrl-end>",
        "<up>",
        " ",
        "<ctrl-w>",
        "<alt-b>",
        "<ctrl-t>",
        "<ctrl-_>",
    ];
    for key in keys {
        slowest = slowest.max((press_timed(&mut composer, key), key));
    }
    (paste, slowest)
}

fn press_timed(composer: &mut Composer, key: &str) -> Duration {
    let start = Instant::now();
    super::tests::press(composer, key);
    composer.popup_view(80, 8);
    composer.view(80, 20);
    start.elapsed()
}

#[test]
fn a_large_text_does_not_block() {
    for (name, text) in large_texts(128 << 10) {
        let (paste, slowest) = measure(&text);
        // Far above the times that are measured, and far below those of a quadratic algorithm.
        assert!(
            paste.max(slowest.0) < Duration::from_secs(2),
            "{name}: {paste:?} {slowest:?}"
        );
    }
}

/// Run it with `cargo test --release -p windlass-tui -- --ignored --nocapture a_key_in`.
#[test]
#[ignore = "measures time; run it in release"]
#[allow(clippy::print_stderr)]
fn a_key_in_a_megabyte_of_words_takes_less_than_5_ms() {
    for (name, text) in large_texts(1 << 20) {
        let (paste, slowest) = measure(&text);
        eprintln!("{name:16} paste {paste:?}, slowest key {slowest:?}");
        // The other texts are measured, but users do not write words of a megabyte.
        if matches!(name, "lines" | "one line") {
            assert!(slowest.0 < Duration::from_millis(5), "{name}: {slowest:?}");
        }
    }
}
