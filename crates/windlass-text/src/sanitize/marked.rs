//! Text of questions to the user: invisible characters are shown as code points, so that nothing is hidden.

use std::borrow::Cow;

use super::{is_plain, joins_emoji, with_neighbours};

/// The most consecutive blanks that a question shows unchanged; more could push text out of sight.
const MAX_BLANKS: usize = 12;
/// The number of lines that a question shows of the beginning and of the end of a long text.
const END_LINES: usize = 100;
/// The number of characters that a question shows of the beginning and of the end of a long line.
const END_CHARS: usize = 1_000;

/// Writes characters that are invisible, that look like a blank or that control a terminal as code points. Blanks, tabs
/// and newlines stay.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let printable = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    if text.bytes().all(printable) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for (before, c, after) in with_neighbours(text) {
        if (is_plain(c) && !is_unseen(c)) || joins_emoji(before, c, after) {
            out.push(c);
        } else {
            out.push_str(&format!("‹U+{:04X}›", u32::from(c)));
        }
    }
    out.into()
}

/// For questions to the user: like [`visible`], with tabs as blanks and with a note in place of many blanks, so that
/// nothing is hidden.
#[must_use]
pub fn marked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blanks = 0;
    for c in visible(text).chars() {
        if c == ' ' || c == '\t' {
            blanks += 1;
            continue;
        }
        push_blanks(&mut out, std::mem::take(&mut blanks));
        out.push(c);
    }
    push_blanks(&mut out, blanks);
    out
}

fn push_blanks(out: &mut String, count: usize) {
    let indents = out.is_empty() || out.ends_with('\n');
    if count <= MAX_BLANKS || (indents && count <= 4 * MAX_BLANKS) {
        out.extend(std::iter::repeat_n(' ', count));
    } else {
        out.push_str(&format!(" ‹{count} blanks› "));
    }
}

/// Like [`marked`], with newlines as visible marks.
#[must_use]
pub fn marked_line(text: &str) -> String {
    marked(text).replace('\n', "⏎")
}

/// Like [`marked`], with a bar before each line, so that no line can look like output of windlass. A long text is cut in
/// the middle, with a note.
#[must_use]
pub fn marked_block(text: &str) -> String {
    let text = marked(text.trim_end_matches('\n'));
    let lines: Vec<&str> = text.split('\n').collect();
    let mut out = String::new();
    let hidden = lines.len().saturating_sub(2 * END_LINES);
    for (at, line) in lines.iter().enumerate() {
        if hidden > 0 && at == END_LINES {
            out.push_str(&format!("  ‹{hidden} lines are NOT shown›\n"));
        }
        if hidden == 0 || at < END_LINES || at >= END_LINES + hidden {
            out.push_str(&format!("  │ {}\n", ends(line)));
        }
    }
    out
}

/// Cuts a long line in the middle, with a note.
fn ends(line: &str) -> Cow<'_, str> {
    let count = line.chars().count();
    if count <= 2 * END_CHARS + 100 {
        return line.into();
    }
    let head: String = line.chars().take(END_CHARS).collect();
    let tail: String = line.chars().skip(count - END_CHARS).collect();
    format!(
        "{head} ‹{} characters are NOT shown› {tail}",
        count - 2 * END_CHARS
    )
    .into()
}

/// Whether a character is harmless for a terminal, but invisible or similar to a blank.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2800}' | '\u{3000}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(marked(text), expect, "{text:?}");
    }

    #[test]
    fn questions_show_invisible_characters() {
        check("rm a\rls   ", "rm a‹U+000D›ls   ");
        check("echo \u{202e} x\u{202c}", "echo ‹U+202E› x‹U+202C›");
        check("safe\u{200b}\u{e0041}", "safe‹U+200B›‹U+E0041›");
        check("a\u{1b}[2Jb", "a‹U+001B›[2Jb");
        check("a\u{a0}b\u{3164}", "a‹U+00A0›b‹U+3164›");
        check(
            "ls                                        ; touch x",
            "ls ‹40 blanks› ; touch x",
        );
        check("    indented\n        more", "    indented\n        more");
        check("a\u{200d}b", "a‹U+200D›b");
        check("a\u{fe0f}b", "a‹U+FE0F›b");
        check("❤\u{fe0f}\u{200d}🔥", "❤\u{fe0f}\u{200d}🔥");
        assert_eq!(marked_line("a\nb"), "a⏎b");
        assert_eq!(visible("\ta\u{200b}\n  b"), "\ta‹U+200B›\n  b");
    }

    #[test]
    fn the_end_of_a_long_command_is_always_visible() {
        let long = format!("echo {}; touch tail", "x".repeat(10_000));
        let shown = marked_block(&long);
        assert!(
            shown.starts_with("  │ echo xxx") && shown.ends_with("x; touch tail\n"),
            "{shown}"
        );
        assert!(shown.contains("characters are NOT shown") && shown.len() < 3_000);
        let lines: String = (0..1_000).map(|n| format!("line {n}\n")).collect();
        let shown = marked_block(&lines);
        assert!(
            shown.contains("│ line 0\n") && shown.ends_with("│ line 999\n"),
            "{shown}"
        );
        assert!(shown.contains("‹800 lines are NOT shown›"));
        assert_eq!(marked_block("a\n[y]es, once"), "  │ a\n  │ [y]es, once\n");
    }

    proptest! {
        #[test]
        fn each_line_of_a_question_has_a_bar(text in "(?s).{0,200}") {
            prop_assert!(marked_block(&text).lines().all(|line| line.starts_with("  │ ")));
            prop_assert!(!marked_line(&text).contains('\n'));
        }
    }
}
