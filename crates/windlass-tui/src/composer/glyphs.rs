//! The form of each grapheme cluster on the screen: its text and its width in columns.
//!
//! Hidden and reordering characters are shown as their code, so that a pasted text cannot look like another one. The
//! text itself is not changed.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::folds::PasteFolds;

/// Columns between tab stops, counted from the beginning of a row.
const TAB_STOP: usize = 4;
/// Characters of one cluster that are shown; emoji of families have about ten.
const MAX_CLUSTER_CHARS: usize = 16;

/// The reason why a cluster is shown in a special style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GlyphKind {
    Plain,
    /// The label of a folded paste.
    Fold,
    /// A hidden character, shown as its code.
    Escaped,
}

/// One grapheme cluster as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glyph<'a> {
    pub(super) text: Cow<'a, str>,
    /// At least 1 and at most the room that the caller gave.
    pub(super) width: usize,
    pub(super) kind: GlyphKind,
}

/// The form of `cluster` at `column`, at most `room` columns wide. `room` is at least 1.
pub(super) fn glyph<'a>(
    cluster: &'a str,
    column: usize,
    room: usize,
    folds: &'a PasteFolds,
) -> Glyph<'a> {
    let room = room.max(1);
    if let [byte] = cluster.as_bytes()
        && *byte == b'\t'
    {
        let width = (TAB_STOP - column % TAB_STOP).min(room);
        return plain(Cow::Owned(" ".repeat(width)), width);
    }
    if let [b' '..=b'~'] = cluster.as_bytes() {
        return plain(Cow::Borrowed(cluster), 1);
    }
    let mut first_chars = cluster.chars().take(MAX_CLUSTER_CHARS);
    if let Some(label) = first_chars.find_map(|c| folds.label(c)) {
        return fitted(Cow::Borrowed(label), GlyphKind::Fold, room);
    }
    let width = if is_suspicious(cluster) {
        0
    } else {
        cluster.width()
    };
    if width > 0 {
        return if width <= room {
            plain(Cow::Borrowed(cluster), width)
        } else {
            // A wide character in a single column.
            plain(Cow::Borrowed("…"), 1)
        };
    }
    fitted(Cow::Owned(escaped(cluster)), GlyphKind::Escaped, room)
}

/// The text with hidden characters as their codes, without line breaks, at most `room` columns wide.
pub(super) fn single_line(text: &str, room: usize) -> String {
    let folds = PasteFolds::default();
    let mut line = String::new();
    let mut column = 0;
    // The bytes after which the mark of the cut still fits.
    let mut kept = 0;
    for cluster in text.graphemes(true) {
        let shown = match cluster {
            "\n" | "\r\n" | "\r" => " ",
            other => other,
        };
        let glyph = glyph(shown, column, usize::MAX, &folds);
        if column < room {
            kept = line.len();
        }
        if column + glyph.width > room {
            line.truncate(kept);
            if room > 0 {
                line.push('…');
            }
            break;
        }
        column += glyph.width;
        line.push_str(&glyph.text);
    }
    line
}

fn plain(text: Cow<'_, str>, width: usize) -> Glyph<'_> {
    Glyph {
        text,
        width,
        kind: GlyphKind::Plain,
    }
}

/// Cuts a text that is wider than the room.
fn fitted(text: Cow<'_, str>, kind: GlyphKind, room: usize) -> Glyph<'_> {
    let width = text.width().max(1);
    if width <= room {
        return Glyph { text, width, kind };
    }
    let mut cut = String::new();
    let mut columns = 0;
    for c in text.chars() {
        let wide = c.to_string().width();
        if columns + wide + 1 > room {
            break;
        }
        columns += wide;
        cut.push(c);
    }
    cut.push('…');
    Glyph {
        text: Cow::Owned(cut),
        width: columns + 1,
        kind,
    }
}

fn is_suspicious(cluster: &str) -> bool {
    // The flags of England, Scotland and Wales consist of a black flag and tags.
    if cluster.starts_with('\u{1f3f4}') && cluster.chars().nth(8).is_none() {
        return false;
    }
    cluster.chars().nth(MAX_CLUSTER_CHARS).is_some() || cluster.chars().any(is_hidden)
}

/// Characters that are invisible, or that change the order of others.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn escaped(cluster: &str) -> String {
    // A cluster can be as long as the text.
    let first_chars = || cluster.chars().take(MAX_CLUSTER_CHARS);
    let hidden: Vec<char> = first_chars().filter(|c| is_hidden(*c)).collect();
    let mut text: String = first_chars().filter(|c| !is_hidden(*c)).collect();
    if text.width() == 0 {
        text.clear();
    }
    match hidden.first().or(cluster.chars().next().as_ref()) {
        Some(first) if hidden.len() > 1 => text.push_str(&format!("<U+{:04X}…>", *first as u32)),
        Some(first) if hidden.len() == 1 || text.is_empty() => {
            text.push_str(&format!("<U+{:04X}>", *first as u32));
        }
        _ => text.push('…'),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cluster: &str, room: usize, text: &str, width: usize) {
        let folds = PasteFolds::default();
        let glyph = glyph(cluster, 1, room, &folds);
        assert_eq!((glyph.text.as_ref(), glyph.width), (text, width));
    }

    #[test]
    fn hidden_characters_are_shown_as_codes() {
        check("\u{202e}", 20, "<U+202E>", 8);
        check("a\u{e0041}\u{e0042}", 20, "a<U+E0041…>", 11);
        check("\u{301}", 20, "<U+0301>", 8);
        check("\u{1b}", 20, "<U+001B>", 8);
    }

    #[test]
    fn ordinary_clusters_are_unchanged() {
        check("e\u{301}", 20, "e\u{301}", 1);
        check("漢", 20, "漢", 2);
        check("👩‍👩‍👧‍👦", 20, "👩‍👩‍👧‍👦", 2);
        check("\t", 20, "   ", 3);
    }

    #[test]
    fn nothing_is_wider_than_the_room() {
        check("漢", 1, "…", 1);
        check("\u{202e}", 4, "<U+…", 4);
        assert_eq!(single_line("漢字 and\nmore", 6), "漢字 …");
        assert_eq!(single_line("👩‍👩‍👧👩‍👩‍👧", 3), "👩‍👩‍👧…");
        assert_eq!(single_line("👩‍👩‍👧👩‍👩‍👧", 2), "…");
        assert_eq!(single_line("a\u{1b}[31mb", 40), "a<U+001B>[31mb");
    }
}
