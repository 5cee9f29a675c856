//! Sanitizes untrusted text for a terminal. All output passes through here. In questions to the user, invisible
//! characters are made visible. Only characters matter here, never the meaning of the text.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;
pub(crate) use windlass::plain_text::plain;
use windlass::plain_text::{is_plain, joins_emoji, with_neighbours};

/// The most consecutive blanks that a question shows unchanged; more could push text out of sight.
const MAX_BLANKS: usize = 12;
/// The number of lines that a question shows of the beginning and of the end of a long text.
const END_LINES: usize = 100;
/// The number of characters that a question shows of the beginning and of the end of a long line.
const END_CHARS: usize = 1_000;

/// Like [`plain`], on one line, so that a newline in a name cannot forge a line of output.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace('\n', "⏎").replace('\t', " ")
}

/// Like [`plain`], with all lines but the first indented, so that none of them looks like a message of its own.
pub(crate) fn message(text: &str) -> String {
    plain(text.trim_end()).replace('\n', "\n  ")
}

/// For questions to the user: writes invisible characters as code points, so that nothing is hidden.
pub(crate) fn marked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blanks = 0;
    for (before, c, after) in with_neighbours(text) {
        if c == ' ' || c == '\t' {
            blanks += 1;
            continue;
        }
        push_blanks(&mut out, std::mem::take(&mut blanks));
        if c == '\n' || (is_plain(c) && !unseen(c)) || joins_emoji(before, c, after) {
            out.push(c);
        } else {
            out.push_str(&format!("‹U+{:04X}›", u32::from(c)));
        }
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

/// Like [`marked`], on one line.
pub(crate) fn marked_line(text: &str) -> String {
    marked(text).replace('\n', "⏎")
}

/// Like [`marked`], with a bar before each line, so that no line can look like output of windlass. A long text is cut in
/// the middle, with a note.
pub(crate) fn marked_block(text: &str) -> String {
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
fn unseen(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2800}' | '\u{3000}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}')
}

/// Serializes a value as one line of JSON that is safe for a terminal.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    let mut line = Vec::new();
    // Writing to memory fails only for values without a JSON form, and all our values have one.
    if write_json(&mut line, value).is_err() {
        line.clear();
    }
    line.push(b'\n');
    String::from_utf8(line).unwrap_or_default()
}

/// Writes a value as JSON. Unsafe characters are escaped, so that no information is lost.
pub(crate) fn write_json(to: impl Write, value: &impl Serialize) -> io::Result<()> {
    value
        .serialize(&mut serde_json::Serializer::with_formatter(to, SafeJson))
        .map_err(io::Error::from)
}

struct SafeJson;

impl Formatter for SafeJson {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        writer.write_all(escaped_json(fragment).as_bytes())
    }
}

/// Escapes unsafe characters in JSON text, in which they can only be parts of strings.
pub(crate) fn escaped_json(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
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

    /// The definition of safe text in the attack corpus.
    fn terminal_safe(text: &str) -> bool {
        text.chars().all(|c| match c {
            '\n' | '\t' => true,
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
            c => !c.is_control(),
        })
    }

    #[test]
    fn joiners_are_kept_within_emoji_and_removed_elsewhere() {
        for emoji in ["👩\u{200d}👩\u{200d}👧", "❤\u{fe0f}\u{200d}🔥", "☀\u{fe0f}"] {
            assert_eq!(plain(emoji), emoji);
            assert_eq!(marked(emoji), emoji);
        }
        assert_eq!(plain("rm\u{200d}x 👩\u{200d}x"), "rmx 👩x");
        assert_eq!(marked("a\u{200d}b"), "a‹U+200D›b");
        assert_eq!(marked("a\u{fe0f}b"), "a‹U+FE0F›b");
    }

    #[test]
    fn untrusted_text_cannot_control_a_terminal() {
        let rows = [
            (
                "a\u{1b}[31mb\u{1b}]0;title\u{7}c\rd\u{9b}2Je\u{7f}f\u{202e}g\u{0}h\ti\nj",
                "a[31mb]0;titlecd2Jefgh\ti\nj",
            ),
            ("\u{1b}]52;c;Y3VybA==\u{7}", "]52;c;Y3VybA=="),
            (
                "\u{1b}]8;;http://a\u{1b}\\b\u{1b}]8;;\u{1b}\\",
                "]8;;http://a\\b]8;;\\",
            ),
            ("\u{9d}0;x\u{9c}", "0;x"),
            ("\u{8}\u{8}\u{7}bell", "bell"),
            ("safe\u{200b}\u{2060}\u{e0041} text\u{2066}", "safe text"),
            ("a\u{2028}b\u{85}c", "abc"),
            (
                "schöne Grüße, 日本語, עברית, 👩‍🔧",
                "schöne Grüße, 日本語, עברית, 👩‍🔧",
            ),
        ];
        for (text, expect) in rows {
            assert_eq!(plain(text), expect, "{text:?}");
        }
    }

    #[test]
    fn questions_show_invisible_characters() {
        let rows = [
            ("rm a\rls   ", "rm a‹U+000D›ls   "),
            ("echo \u{202e} x\u{202c}", "echo ‹U+202E› x‹U+202C›"),
            ("safe\u{200b}\u{e0041}", "safe‹U+200B›‹U+E0041›"),
            ("a\u{1b}[2Jb", "a‹U+001B›[2Jb"),
            ("a\u{a0}b\u{3164}", "a‹U+00A0›b‹U+3164›"),
            (
                "ls                                        ; touch x",
                "ls ‹40 blanks› ; touch x",
            ),
            ("    indented\n        more", "    indented\n        more"),
        ];
        for (text, expect) in rows {
            assert_eq!(marked(text), expect, "{text:?}");
        }
        assert_eq!(marked_line("a\nb"), "a⏎b");
        assert_eq!(one_line("a\nerror: b\u{1b}"), "a⏎error: b");
        assert_eq!(message("a\nhint: b\n"), "a\n  hint: b");
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

    #[test]
    fn json_keeps_all_characters_and_escapes_unsafe_ones() {
        let text = "a\u{1b}\u{9b}\u{7f}\u{202e}\u{200b}\u{e0041}\n\"é";
        let line = json_line(&text);
        assert_eq!(
            line,
            "\"a\\u001b\\u009b\\u007f\\u202e\\u200b\\udb40\\udc41\\n\\\"é\"\n"
        );
        assert_eq!(
            serde_json::from_str::<String>(&line).ok().as_deref(),
            Some(text)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe_in_every_format(bytes in prop::collection::vec(any::<u8>(), 0..200), more in ".{0,60}") {
            let text = format!("{}{more}", String::from_utf8_lossy(&bytes));
            for out in [plain(&text).into_owned(), one_line(&text), message(&text), marked(&text), marked_line(&text), marked_block(&text), json_line(&text)] {
                prop_assert!(terminal_safe(&out), "{:?}", out);
            }
            prop_assert_eq!(one_line(&text).lines().count().max(1), 1);
            prop_assert_eq!(json_line(&text).lines().count(), 1);
            prop_assert!(marked_block(&text).lines().all(|line| line.starts_with("  │ ")));
            let back: String = serde_json::from_str(&json_line(&text)).map_err(|err| TestCaseError::fail(err.to_string()))?;
            prop_assert_eq!(back, text);
        }
    }
}
