use proptest::prelude::*;

use super::*;
use crate::line::Tone;

fn read(pieces: &[&str]) -> Vec<StyledLine> {
    let mut reader = AnsiText::new();
    let mut lines: Vec<StyledLine> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
    lines.extend(reader.finish());
    lines
}

#[track_caller]
fn check(text: &str, expect: &[&str]) {
    let lines = read(&[text]);
    let texts: Vec<String> = lines.iter().map(StyledLine::plain).collect();
    assert_eq!(texts, expect, "{text:?}");
    // The result does not depend on the pieces in which the text arrives.
    let pieces: Vec<String> = text.chars().map(String::from).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    assert_eq!(read(&pieces), lines);
}

#[test]
fn overwritten_text_is_replaced() {
    check("a\r\nb", &["a", "b"]);
    check("10 %\r20 %\r100 %\n", &["100 %"]);
    check("abcdef\rxy", &["xycdef"]);
    check("abcdef\r\u{1b}[Kxy", &["xy"]);
    check("abc\u{8}\u{8}x", &["axc"]);
    check("abc\u{1b}[2K\rx", &["x"]);
    check("abc\u{1b}[1Kd", &["   d"]);
    check("abc\u{1b}[2K\u{1b}[1Gx", &["x"]);
    check("a\u{1b}[3Cb\u{1b}[2Dc", &["a  cb"]);
    check("a\tb\n\n", &["a       b", ""]);
}

#[test]
fn other_sequences_are_dropped() {
    check("a\u{1b}]0;title\u{7}b\u{1b}]8;;http://x\u{1b}\\c", &["abc"]);
    check("a\u{1b}Pq#1\u{1b}\\b\u{9d}x\u{9c}c", &["abc"]);
    check("a\u{1b}[?25l\u{1b}[2J\u{1b}[10;20H\u{1b}[1Ab", &["ab"]);
    check("a\u{1b}(Bb\u{1b}cd\u{1b}7e", &["abde"]);
    check("a\u{0}\u{7}\u{202e}\u{200b}b", &["ab"]);
    check("a\u{1b}]0;never closed\nb", &["a", "b"]);
    check("a\u{1b}[1\u{18}b", &["ab"]);
    check("👩\u{200d}👧 a\u{200d}b", &["👩\u{200d}👧 ab"]);
}

#[test]
fn styles_and_colours_are_kept() {
    let style = |text: &str| -> TextStyle {
        let lines = read(&[text, "x"]);
        lines[0].spans[0].style
    };
    let plain = TextStyle::default();
    for (text, expect) in [
        ("\u{1b}[31m", Tone::Indexed(1).into()),
        ("\u{1b}[1;91m", Tone::Indexed(9).bold()),
        ("\u{1b}[38;5;200m", Tone::Indexed(200).into()),
        ("\u{1b}[38;2;1;2;3m", Tone::Rgb(1, 2, 3).into()),
        ("\u{1b}[38:2::1:2:3m", Tone::Rgb(1, 2, 3).into()),
        ("\u{1b}[38:5:9m", Tone::Indexed(9).into()),
        ("\u{1b}[31;1m\u{1b}[m", plain),
        ("\u{1b}[31m\u{1b}[39m", plain),
        ("\u{1b}[38;5m", plain),
        ("\u{1b}[999m", plain),
        ("\u{1b}[>4;1m", plain),
        ("\u{1b}[58;5;1m", plain),
        (
            "\u{1b}[3;4;9;7;2m",
            TextStyle {
                italic: true,
                underline: true,
                strikethrough: true,
                reversed: true,
                dim: true,
                ..plain
            },
        ),
        (
            "\u{1b}[42;104m",
            TextStyle {
                background: Some(Tone::Indexed(12)),
                ..plain
            },
        ),
        ("\u{1b}[4:3m\u{1b}[4:0m", plain),
    ] {
        assert_eq!(style(text), expect, "{text:?}");
    }
    // A style lasts until it is changed, also on later lines.
    let lines = read(&["\u{1b}[3", "2ma\nb"]);
    assert!(
        lines
            .iter()
            .all(|line| line.spans[0].style.tone == Tone::Indexed(2))
    );
}

#[test]
fn memory_is_bounded() {
    let mut reader = AnsiText::new();
    let mut lines = 0;
    for _ in 0..100 {
        lines += reader.push(&"x".repeat(1_000)).len();
    }
    assert!(lines >= 6 && reader.cells.len() <= MAX_LINE);
    reader.push("\u{1b}[");
    reader.push(&"1;".repeat(100_000));
    assert!(reader.parameters.len() <= MAX_SEQUENCE);
    let mut reader = AnsiText::new();
    reader.push("\u{1b}[99999999999999999999C\u{1b}[999999999Cx");
    assert!(reader.cells.len() <= MAX_LINE);
}

proptest! {
    #[test]
    fn any_output_is_safe_and_independent_of_its_pieces(pieces in prop::collection::vec("(?s)([\u{1b}\\[\\]\r\n\t;0-9mKGCD\u{8}]|.){0,20}", 0..8)) {
        let whole = pieces.concat();
        let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let lines = read(&[&whole]);
        prop_assert_eq!(read(&parts), lines.clone());
        for line in lines {
            let text = line.plain();
            prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
            prop_assert_eq!(crate::sanitize::plain(&text), text.as_str());
        }
    }
}
