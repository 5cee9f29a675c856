use windlass_text::StyledLine;

use super::super::tests::{composer, press, shown, with_history};
use super::super::{Composer, ComposerOptions};

#[track_caller]
fn check_view(composer: &mut Composer, width: usize, rows: usize, expect: &[&str]) {
    let view = composer.view(width, rows);
    let mut found: Vec<String> = view.rows.iter().map(StyledLine::plain).collect();
    let (row, column) = view.cursor;
    found[row] = {
        let line = format!("{:width$}", found[row]);
        let at = line
            .char_indices()
            .nth(column)
            .map_or(line.len(), |(at, _)| at);
        format!("{}|{}", &line[..at], line[at..].trim_end())
    };
    assert_eq!(found, expect);
}

#[test]
fn the_view_wraps_and_scrolls() {
    let mut composer = composer(ComposerOptions {
        placeholder: "Ask anything".to_owned(),
        ..ComposerOptions::default()
    });
    check_view(&mut composer, 20, 3, &[" > |Ask anything"]);
    check_view(&mut composer, 8, 3, &[" > |Ask …"]);
    press(&mut composer, "the quick brown fox jumps over");
    check_view(
        &mut composer,
        20,
        5,
        &[" > the quick brown ", "   fox jumps over|"],
    );
    check_view(&mut composer, 12, 2, &[" ↑ jumps ", "   over|"]);
    press(&mut composer, "<ctrl-a>");
    check_view(&mut composer, 12, 2, &[" > |the", " ↓ quick "]);
    press(&mut composer, "<down><down>");
    assert_eq!(shown(&composer), "the quick |brown fox jumps over");
    check_view(&mut composer, 12, 2, &[" ↑ quick ", " ↓ |brown"]);
}

#[test]
fn notices_and_the_search_have_a_row() {
    let mut composer = composer(with_history(&["run tests"]));
    press(&mut composer, "/modle<enter>");
    check_view(
        &mut composer,
        60,
        3,
        &[
            " > /modle|",
            "   unknown command `/modle`; did you mean `/model`?",
        ],
    );
    press(&mut composer, "<ctrl-u><ctrl-r>te");
    check_view(&mut composer, 40, 3, &[" > run tests", " search: te|"]);
    press(&mut composer, "x");
    check_view(&mut composer, 40, 1, &[" no prompt contains: tex|"]);
}

#[test]
fn the_popup_shows_the_selected_item() {
    let mut composer = composer(ComposerOptions::default());
    assert!(composer.popup_view(60, 8).is_empty());
    press(&mut composer, "/<down>");
    let rows: Vec<String> = composer
        .popup_view(50, 8)
        .iter()
        .map(StyledLine::plain)
        .collect();
    assert_eq!(
        rows,
        [
            "   /model [name]  about model",
            format!("{:50}", " › /resume        about resume").as_str(),
            "   /help          about help",
            "   2 of 3 · tab inserts · esc closes",
        ]
    );
}

#[test]
fn hostile_text_is_shown_as_codes_and_submitted_unchanged() {
    let mut composer = composer(ComposerOptions::default());
    composer.paste("a\u{202e}b\u{1b}]0;x\u{7}".to_owned());
    check_view(&mut composer, 40, 2, &[" > a<U+202E>b]0;x|"]);
    assert_eq!(composer.text(), "a\u{202e}b]0;x");
}
