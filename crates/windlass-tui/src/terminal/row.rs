//! Rows of the live area: fitting them into a width, and finding the part that changed.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use windlass_text::{Span, StyledLine, TextStyle, Tone};

/// Iterates over the symbols of a text and their widths in columns.
pub(crate) fn symbols(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.graphemes(true)
        .map(|symbol| (symbol, symbol.width().min(2)))
}

/// The widths of the symbols of a line; for a symbol such as a heart with an emoji selector, the width in terminals
/// that ignore the selector.
pub(crate) fn least_symbol_widths(line: &StyledLine) -> impl Iterator<Item = usize> {
    let all = line.spans.iter().flat_map(|span| symbols(&span.text));
    all.map(|(symbol, width)| {
        let first = symbol.chars().next().and_then(UnicodeWidthChar::width);
        first.unwrap_or(0).min(width)
    })
}

pub(crate) fn row_width(line: &StyledLine) -> usize {
    let all = line.spans.iter().flat_map(|span| symbols(&span.text));
    all.map(|(_, width)| width).sum()
}

/// Removes control characters: one of them could move the cursor, and all later moves would be wrong.
pub(crate) fn without_controls(mut line: StyledLine) -> StyledLine {
    for span in &mut line.spans {
        if span.text.chars().any(char::is_control) {
            let printable = span.text.chars().map(|c| match c {
                '\t' | '\n' => ' ',
                c => c,
            });
            span.text = printable.filter(|c| !c.is_control()).collect();
        }
    }
    line
}

/// A row of at most `columns` columns without invisible blanks at its end. Terminals disagree whether such blanks
/// count when they wrap the row again.
pub(crate) fn fit_row(line: &StyledLine, columns: usize) -> StyledLine {
    let mut row = StyledLine {
        spans: Vec::with_capacity(line.spans.len()),
        indent: line.indent,
    };
    let mut free = columns;
    for span in without_controls(line.clone()).spans {
        let (end, width) = fitting_prefix(&span.text, free);
        let is_cut = end < span.text.len();
        row.spans.push(Span {
            text: span.text[..end].to_owned(),
            ..span
        });
        free -= width;
        if is_cut {
            break;
        }
    }
    trim_blanks(&mut row);
    row
}

/// The length in bytes and the width of the longest prefix with at most `columns` columns.
fn fitting_prefix(text: &str, columns: usize) -> (usize, usize) {
    let (mut end, mut used) = (0, 0);
    for (symbol, width) in symbols(text) {
        if used + width > columns {
            break;
        }
        end += symbol.len();
        used += width;
    }
    (end, used)
}

fn trim_blanks(row: &mut StyledLine) {
    while let Some(last) = row.spans.last_mut() {
        let colourless = TextStyle {
            tone: Tone::default(),
            ..last.style
        };
        if colourless == TextStyle::default() {
            last.text.truncate(last.text.trim_end_matches(' ').len());
        }
        if !last.text.is_empty() {
            break;
        }
        row.spans.pop();
    }
}

/// The part of a row that differs from the row on the screen.
pub(crate) struct ChangedPart {
    /// The column where the part begins.
    pub column: usize,
    pub part: StyledLine,
}

/// The end of `new` from the first difference to `old`; `None` if the rows are equal. Only text of certain width is
/// left out, because all terminals agree where it ends.
pub(crate) fn changed_part(old: &StyledLine, new: &StyledLine) -> Option<ChangedPart> {
    if old.spans == new.spans {
        return None;
    }
    let equal = certain_chars(old)
        .zip(certain_chars(new))
        .take_while(|(before, after)| before.is_some() && before == after)
        .count();
    if [old, new].map(|line| text_chars(line).count()) == [equal; 2] {
        return None;
    }
    // A combining mark belongs to the character before it.
    let follows_mark = [old, new]
        .into_iter()
        .any(|line| text_chars(line).nth(equal).is_some_and(|c| !c.is_ascii()));
    let column = if follows_mark {
        equal.saturating_sub(1)
    } else {
        equal
    };
    Some(ChangedPart {
        column,
        part: skip_chars(new, column),
    })
}

fn text_chars(line: &StyledLine) -> impl Iterator<Item = char> {
    line.spans.iter().flat_map(|span| span.text.chars())
}

/// The characters with their spans' styles; `None` for a character whose width terminals may disagree about.
fn certain_chars(line: &StyledLine) -> impl Iterator<Item = Option<(char, Span)>> {
    line.spans.iter().flat_map(|span| {
        let style = Span {
            text: String::new(),
            ..span.clone()
        };
        span.text
            .chars()
            .map(move |c| matches!(c, ' '..='~' | '─'..='╿').then(|| (c, style.clone())))
    })
}

fn skip_chars(line: &StyledLine, count: usize) -> StyledLine {
    let mut left = count;
    let mut rest = StyledLine {
        spans: Vec::new(),
        indent: line.indent,
    };
    for span in &line.spans {
        let start = span
            .text
            .char_indices()
            .nth(left)
            .map_or(span.text.len(), |(at, _)| at);
        left -= span.text[..start].chars().count();
        if start < span.text.len() {
            rest.spans.push(Span {
                text: span.text[start..].to_owned(),
                ..span.clone()
            });
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fits(text: &str, columns: usize, expect: &str) {
        let row = fit_row(&StyledLine::of(text, Tone::Text), columns);
        assert_eq!(row.plain(), expect);
        assert!(row_width(&row) <= columns);
    }

    #[test]
    fn rows_are_cut_between_symbols_and_lose_blanks_at_the_end() {
        fits("abc", 2, "ab");
        fits("a漢字", 4, "a漢");
        fits("漢", 1, "");
        fits("ab   ", 9, "ab");
        fits("   ", 9, "");
        fits("e\u{301}x", 1, "e\u{301}");
    }

    #[test]
    fn blanks_with_a_background_stay() {
        let style = TextStyle {
            background: Some(Tone::Raised),
            ..TextStyle::default()
        };
        assert_eq!(fit_row(&StyledLine::of("a  ", style), 9).plain(), "a  ");
    }

    #[test]
    fn control_characters_are_removed() {
        let mut line = StyledLine::of("x", Tone::Text);
        line.spans[0].text = "a\u{1b}[2J\tb\u{9b}c".to_owned();
        assert_eq!(without_controls(line).plain(), "a[2J bc");
    }

    #[track_caller]
    fn changes(old: &str, new: &str, expect: Option<(usize, &str)>) {
        let (old, new) = (
            StyledLine::of(old, Tone::Text),
            StyledLine::of(new, Tone::Text),
        );
        let found = changed_part(&old, &new).map(|change| (change.column, change.part.plain()));
        assert_eq!(
            found,
            expect.map(|(column, text)| (column, text.to_owned()))
        );
    }

    #[test]
    fn the_changed_part_begins_at_the_first_difference() {
        changes("abc", "abc", None);
        changes("abc", "abx", Some((2, "x")));
        changes("abc", "abcd", Some((3, "d")));
        changes("abc", "", Some((0, "")));
        changes("漢b", "漢c", Some((0, "漢c")));
        changes("ae", "ae\u{301}", Some((1, "e\u{301}")));
        changes("──a", "──b", Some((2, "b")));
    }

    #[test]
    fn a_different_style_is_a_difference() {
        let old = StyledLine::of("ab", Tone::Text);
        let new = StyledLine::of("a", Tone::Text).with("b", Tone::Ok);
        let change = changed_part(&old, &new).map(|change| change.column);
        assert_eq!(change, Some(1));
    }
}
