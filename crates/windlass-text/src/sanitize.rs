//! Removes characters from untrusted text that could control a terminal or change the order in which text is shown.
//! Only characters matter here, never the meaning of the text.
//!
//! ```
//! use windlass_text::sanitize::{is_plain, joins_emoji, plain, with_neighbours};
//!
//! assert_eq!(plain("a\u{1b}[31mb\u{202e}c"), "a[31mbc");
//! assert!(is_plain('\n') && !is_plain('\u{200b}'));
//! let joined = with_neighbours("👩\u{200d}👧").any(|(before, c, after)| joins_emoji(before, c, after));
//! assert!(joined && plain("👩\u{200d}👧") == "👩\u{200d}👧");
//! ```

mod marked;

use std::borrow::Cow;

pub use marked::{marked, marked_block, marked_line, visible};

use crate::width::columns;

/// The distance of tab stops in columns.
pub const TAB_STOP: usize = 4;

/// Removes escape sequences, control characters except newline and tab, bidirectional controls and invisible
/// characters.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if is_plain_text(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for (before, c, after) in with_neighbours(text) {
        if is_plain(c) || joins_emoji(before, c, after) {
            out.push(c);
        }
    }
    out.into()
}

/// Whether each character of a text is plain on its own.
fn is_plain_text(text: &str) -> bool {
    // Without an early exit within a chunk, the compiler checks many bytes at once.
    let printable = |all: bool, byte: &u8| all & matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let mut chunks = text.as_bytes().chunks(64);
    chunks.all(|chunk| chunk.iter().fold(true, printable)) || text.chars().all(is_plain)
}

/// Iterates over the characters, each with its predecessor and its successor.
pub fn with_neighbours(
    text: &str,
) -> impl Iterator<Item = (Option<char>, char, Option<char>)> + '_ {
    let before = std::iter::once(None).chain(text.chars().map(Some));
    let after = text.chars().skip(1).map(Some).chain([None]);
    before
        .zip(text.chars())
        .zip(after)
        .map(|((before, c), after)| (before, c, after))
}

/// Whether `c` is a zero-width joiner between two emoji, or a variation selector after one. These belong to one visible
/// emoji and hide nothing.
#[must_use]
pub fn joins_emoji(before: Option<char>, c: char, after: Option<char>) -> bool {
    let picture = |c: Option<char>| {
        c.is_some_and(|c| {
            matches!(c, '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}')
        })
    };
    match c {
        '\u{200d}' => (picture(before) || before == Some('\u{fe0f}')) && picture(after),
        '\u{fe0f}' => picture(before),
        _ => false,
    }
}

/// Whether [`plain`] keeps a character that stands alone.
#[must_use]
pub fn is_plain(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        // Bidirectional controls, zero-width characters, line separators, annotations and tags.
        '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{61c}'
        | '\u{feff}' => false,
        '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => false,
        c => !c.is_control(),
    }
}

/// Like [`plain`], on one line, so that a newline in a name cannot forge a line of output.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    let text = plain(text);
    if text.contains(['\n', '\t']) {
        return text.replace('\n', "⏎").replace('\t', " ").into();
    }
    text
}

/// Like [`plain`], with all lines but the first indented, so that none of them looks like a message of its own.
#[must_use]
pub fn message(text: &str) -> String {
    plain(text.trim_end()).replace('\n', "\n  ")
}

/// Text for a span that begins at a column: plain, tabs as blanks up to the next tab stop, newlines as blanks.
#[must_use]
pub fn span_text(text: &str, column: usize) -> Cow<'_, str> {
    let text = plain(text);
    if !text.contains(['\n', '\t']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut column = column;
    for piece in text.split_inclusive(['\n', '\t']) {
        let words = piece.trim_end_matches(['\n', '\t']);
        out.push_str(words);
        column += columns(words);
        let blanks = match &piece[words.len()..] {
            "" => 0,
            "\t" => TAB_STOP - column % TAB_STOP,
            _ => 1,
        };
        out.extend(std::iter::repeat_n(' ', blanks));
        column += blanks;
    }
    out.into()
}

/// Escapes unsafe characters in JSON text, in which they can only be parts of strings.
#[must_use]
pub fn escaped_json(text: &str) -> Cow<'_, str> {
    if is_plain_text(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(plain(text), expect, "{text:?}");
    }

    #[test]
    fn untrusted_text_cannot_control_a_terminal() {
        check(
            "a\u{1b}[31mb\u{1b}]0;title\u{7}c\rd\u{9b}2Je\u{7f}f\u{202e}g\u{0}h\ti\nj",
            "a[31mb]0;titlecd2Jefgh\ti\nj",
        );
        check("\u{1b}]52;c;Y3VybA==\u{7}", "]52;c;Y3VybA==");
        check(
            "\u{1b}]8;;http://a\u{1b}\\b\u{1b}]8;;\u{1b}\\",
            "]8;;http://a\\b]8;;\\",
        );
        check("\u{9d}0;x\u{9c}", "0;x");
        check("\u{8}\u{8}\u{7}bell", "bell");
        check("safe\u{200b}\u{2060}\u{e0041} text\u{2066}", "safe text");
        check("a\u{2028}b\u{85}c", "abc");
        check(
            "schöne Grüße, 日本語, עברית, 👩‍🔧",
            "schöne Grüße, 日本語, עברית, 👩‍🔧",
        );
    }

    #[test]
    fn joiners_are_kept_within_emoji_and_removed_elsewhere() {
        for emoji in ["👩\u{200d}👩\u{200d}👧", "❤\u{fe0f}\u{200d}🔥", "☀\u{fe0f}"] {
            check(emoji, emoji);
        }
        check("rm\u{200d}x 👩\u{200d}x", "rmx 👩x");
    }

    #[test]
    fn names_and_messages_cannot_forge_lines() {
        assert_eq!(one_line("a\nerror: b\u{1b}"), "a⏎error: b");
        assert_eq!(message("a\nhint: b\n"), "a\n  hint: b");
    }

    #[test]
    fn tabs_become_blanks_up_to_the_next_stop() {
        for (text, column, expect) in [
            ("\ta", 0, "    a"),
            ("ab\tc", 0, "ab  c"),
            ("\tc", 3, " c"),
            ("漢\tc", 0, "漢  c"),
            ("a\nb\t", 0, "a b "),
            ("\t\t", 0, "        "),
        ] {
            assert_eq!(span_text(text, column), expect, "{text:?} at {column}");
        }
    }

    #[test]
    fn json_keeps_all_characters_and_escapes_unsafe_ones() {
        assert_eq!(
            escaped_json("\"a\u{1b}\u{202e}\u{e0041}é\""),
            "\"a\\u001b\\u202e\\udb40\\udc41é\""
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe_in_every_format(bytes in prop::collection::vec(any::<u8>(), 0..200), more in "(?s).{0,60}") {
            let text = format!("{}{more}", String::from_utf8_lossy(&bytes));
            let safe = |text: &str| text.chars().all(|c| is_plain(c) || c == '\u{200d}' || c == '\u{fe0f}');
            for out in [plain(&text).into_owned(), one_line(&text).into_owned(), message(&text), span_text(&text, 3).into_owned(), escaped_json(&text).into_owned()] {
                prop_assert!(safe(&out), "{:?}", out);
            }
            prop_assert!(!one_line(&text).contains(['\n', '\t']));
            prop_assert!(!span_text(&text, 1).contains(['\n', '\t']));
            let once = plain(&text);
            prop_assert_eq!(plain(&once), once.as_ref());
        }
    }
}
