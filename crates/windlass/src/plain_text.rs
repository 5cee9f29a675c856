//! Removes characters from untrusted text that could control a terminal or change the order in which text is shown.
//! Only characters matter here, never the meaning of the text.
//!
//! ```
//! use windlass::plain_text::{is_plain, joins_emoji, plain, with_neighbours};
//!
//! assert_eq!(plain("a\u{1b}[31mb\u{202e}c"), "a[31mbc");
//! assert!(is_plain('\n') && !is_plain('\u{200b}'));
//! let joined = with_neighbours("👩\u{200d}👧").any(|(before, c, after)| joins_emoji(before, c, after));
//! assert!(joined && plain("👩\u{200d}👧") == "👩\u{200d}👧");
//! ```

use std::borrow::Cow;

/// Removes escape sequences, control characters except newline and tab, bidirectional controls and invisible
/// characters.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
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
