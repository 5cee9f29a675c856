//! Fits styled lines into a width: wrapping between words, cutting with an ellipsis, and aligning to both sides.

use std::ops::Range;

use crate::line::{Span, StyledLine, TextStyle};
use crate::width::{clusters, first_cluster, prefix};

/// Marks a place where text was cut.
const ELLIPSIS: &str = "…";

/// Punctuation of Chinese and Japanese text that must not begin a row.
const NOT_FIRST: &str = "、。，．：；！？）」』】〉》”’";

/// Wraps a line between words into rows of at most `width` columns; 0 counts as 1. Rows after the first begin with the
/// indentation of the line, at most half of the width. Words that are longer than a row are broken. A row is wider
/// only if one symbol is.
#[must_use]
pub fn wrap(line: &StyledLine, width: usize) -> Vec<StyledLine> {
    let mut rows = Vec::new();
    wrap_into(line.clone(), width, &mut rows);
    rows
}

/// Like [`wrap`], and appends to rows.
pub(crate) fn wrap_into(line: StyledLine, width: usize, out: &mut Vec<StyledLine>) {
    let width = width.max(1);
    if line.width() <= width {
        return out.push(line);
    }
    let mut rows = RowBuilder::new(&line, width, out);
    for at in 0..line.spans.len() {
        rows.add_span(at);
    }
    rows.finish();
}

/// Breaks a line after exactly `width` columns, for text whose blanks matter, such as code.
#[must_use]
pub fn wrap_columns(line: &StyledLine, width: usize) -> Vec<StyledLine> {
    let mut rows = Vec::new();
    wrap_columns_into(line.clone(), width, &mut rows);
    rows
}

/// Like [`wrap_columns`], and appends to rows.
pub(crate) fn wrap_columns_into(line: StyledLine, width: usize, out: &mut Vec<StyledLine>) {
    let width = width.max(1);
    if line.width() <= width {
        return out.push(line);
    }
    let mut rows = RowBuilder::new(&line, width, out);
    for span in &line.spans {
        rows.place(span, &span.text);
    }
    rows.finish();
}

/// A part of a line: ranges of bytes of its spans.
#[derive(Default)]
struct LinePart {
    ranges: Vec<(usize, Range<usize>)>,
    width: usize,
}

impl LinePart {
    fn add(&mut self, span: usize, range: Range<usize>, columns: usize) {
        self.width += columns;
        match self.ranges.last_mut() {
            Some((last, end)) if *last == span && end.end == range.start => end.end = range.end,
            _ => self.ranges.push((span, range)),
        }
    }

    fn clear(&mut self) {
        self.ranges.clear();
        self.width = 0;
    }
}

/// Collects rows. A word is kept back until it is complete, because only then its row is known.
struct RowBuilder<'a> {
    line: &'a StyledLine,
    out: &'a mut Vec<StyledLine>,
    row: StyledLine,
    /// The width of the current row.
    used: usize,
    /// Whether the row has text after its indentation.
    filled: bool,
    /// Whether the row is the first one.
    first: bool,
    blanks: LinePart,
    word: LinePart,
    /// Whether the word ends with a wide symbol, after which a row may end.
    after_wide: bool,
    indent: usize,
    width: usize,
}

impl<'a> RowBuilder<'a> {
    fn new(line: &'a StyledLine, width: usize, out: &'a mut Vec<StyledLine>) -> Self {
        Self {
            line,
            out,
            row: StyledLine::default().with_indent(line.indent),
            used: 0,
            filled: false,
            first: true,
            blanks: LinePart::default(),
            word: LinePart::default(),
            after_wide: false,
            indent: line.indent.min(max_indent(width)),
            width,
        }
    }

    fn add_span(&mut self, span: usize) {
        let text = &self.line.spans[span].text;
        let mut at = 0;
        if text.is_ascii() {
            for piece in text.split_inclusive(' ') {
                let word = piece.trim_end_matches(' ');
                if !word.is_empty() {
                    if self.after_wide {
                        self.end_word();
                    }
                    self.word.add(span, at..at + word.len(), word.len());
                }
                if word.len() < piece.len() {
                    self.end_word();
                    self.blanks.add(span, at + word.len()..at + piece.len(), 1);
                }
                at += piece.len();
            }
            return;
        }
        for (cluster, columns) in clusters(text) {
            self.add_cluster(span, at, cluster, columns);
            at += cluster.len();
        }
    }

    fn add_cluster(&mut self, span: usize, at: usize, cluster: &str, columns: usize) {
        let range = at..at + cluster.len();
        if cluster == " " {
            self.end_word();
            return self.blanks.add(span, range, 1);
        }
        let wide = columns > 1;
        if (wide || self.after_wide) && !NOT_FIRST.contains(cluster) && columns > 0 {
            self.end_word();
        }
        self.word.add(span, range, columns);
        if columns > 0 {
            self.after_wide = wide;
        }
    }

    fn end_word(&mut self) {
        self.after_wide = false;
        if self.word.ranges.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let blanks = std::mem::take(&mut self.blanks);
        if self.used + blanks.width + word.width <= self.width {
            self.append(&blanks);
        } else if self.filled {
            self.next_row();
        } else if self.first {
            // The indentation of the first row leaves half of the row for text.
            let style = blanks
                .ranges
                .first()
                .map(|(span, _)| self.line.spans[*span].style);
            let kept = blanks.width.min(max_indent(self.width));
            self.row
                .append(&" ".repeat(kept), style.unwrap_or_default(), None);
            self.used += kept;
        }
        if self.used + word.width <= self.width {
            self.append(&word);
            self.filled = true;
        } else {
            for (span, range) in &word.ranges {
                let span = &self.line.spans[*span];
                self.place(span, &span.text[range.clone()]);
            }
        }
        // The buffers are used again.
        (self.word, self.blanks) = (word, blanks);
        self.word.clear();
        self.blanks.clear();
    }

    fn append(&mut self, part: &LinePart) {
        for (span, range) in &part.ranges {
            let span = &self.line.spans[*span];
            self.row
                .append(&span.text[range.clone()], span.style, span.link.as_ref());
        }
        self.used += part.width;
    }

    /// Appends a text to the row, and to new rows when a row is full.
    fn place(&mut self, span: &Span, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (mut fits, mut columns) = prefix(rest, self.width.saturating_sub(self.used));
            if fits.is_empty() && self.filled {
                self.next_row();
                continue;
            }
            if fits.is_empty() {
                // A symbol that is wider than a row has a row of its own.
                (fits, columns) = first_cluster(rest);
            }
            self.row.append(fits, span.style, span.link.as_ref());
            self.used += columns;
            self.filled = true;
            rest = &rest[fits.len()..];
        }
    }

    fn next_row(&mut self) {
        let mut next = StyledLine::default().with_indent(self.line.indent);
        if self.indent > 0 {
            next.append(&" ".repeat(self.indent), TextStyle::default(), None);
        }
        self.out.push(std::mem::replace(&mut self.row, next));
        self.used = self.indent;
        self.filled = false;
        self.first = false;
    }

    fn finish(mut self) {
        self.end_word();
        if self.filled || self.first {
            self.out.push(self.row);
        }
    }
}

/// The widest indentation of a row; half of the row and one wide symbol remain for text.
fn max_indent(width: usize) -> usize {
    (width / 2).min(width.saturating_sub(2))
}

/// The beginning of a line with at most `width` columns, and its width.
fn cut(line: &StyledLine, width: usize) -> (StyledLine, usize) {
    let mut out = StyledLine::default().with_indent(line.indent);
    let mut used = 0;
    for span in &line.spans {
        let (kept, kept_width) = prefix(&span.text, width - used);
        out.append(kept, span.style, span.link.as_ref());
        used += kept_width;
        if kept.len() < span.text.len() {
            break;
        }
    }
    (out, used)
}

/// Cuts the end of a line that is wider than `width` columns and marks the place with `…`.
#[must_use]
pub fn truncate(line: &StyledLine, width: usize) -> StyledLine {
    if line.width() <= width {
        return line.clone();
    }
    if width == 0 {
        return StyledLine::default();
    }
    let (mut out, _) = cut(line, width - 1);
    let style = out.spans.last().or(line.spans.first());
    let style = style.map_or_else(TextStyle::default, |span| span.style);
    out.append(ELLIPSIS, style, None);
    out
}

/// Cuts the beginning of a line that is wider than `width` columns and marks the place with `…`, for example for a
/// path whose file name matters.
#[must_use]
pub fn truncate_start(line: &StyledLine, width: usize) -> StyledLine {
    let all = line.width();
    if all <= width {
        return line.clone();
    }
    if width == 0 {
        return StyledLine::default();
    }
    let mut out = StyledLine::default().with_indent(line.indent);
    let mut skip = all - (width - 1);
    for span in &line.spans {
        let mut start = 0;
        if skip > 0 {
            for (cluster, columns) in clusters(&span.text) {
                if skip == 0 && columns > 0 {
                    break;
                }
                skip = skip.saturating_sub(columns);
                start += cluster.len();
            }
        }
        let kept = &span.text[start..];
        if !kept.is_empty() && out.spans.is_empty() {
            out.append(ELLIPSIS, span.style, None);
        }
        out.append(kept, span.style, span.link.as_ref());
    }
    if out.spans.is_empty() {
        out.append(ELLIPSIS, TextStyle::default(), None);
    }
    out
}

/// One row with a text on the left and a text that ends at column `width`. The left text is cut first; the right one
/// only if it takes more than half of the row.
#[must_use]
pub fn align(left: &StyledLine, right: &StyledLine, width: usize) -> StyledLine {
    if right.is_empty() {
        return truncate(left, width);
    }
    let (left_width, right_width) = (left.width(), right.width());
    let (left, right) = if left_width + 2 + right_width <= width {
        (left.clone(), right.clone())
    } else {
        let right = truncate(right, (width / 2).max(width.saturating_sub(left_width + 2)));
        let left = truncate(left, width.saturating_sub(right.width() + 2));
        (left, right)
    };
    let gap = width.saturating_sub(left.width() + right.width());
    let mut out = left;
    out.append(&" ".repeat(gap), TextStyle::default(), None);
    out.extend(&right);
    out
}

/// Appends blanks up to `width` columns, for example for a background that fills the row.
#[must_use]
pub fn pad(line: &StyledLine, width: usize, style: impl Into<TextStyle>) -> StyledLine {
    let mut out = line.clone();
    let missing = width.saturating_sub(line.width());
    out.append(&" ".repeat(missing), style.into(), None);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::line::Tone;

    fn texts(rows: &[StyledLine]) -> Vec<String> {
        rows.iter().map(StyledLine::plain).collect()
    }

    #[track_caller]
    fn check(text: &str, indent: usize, width: usize, expect: &[&str]) {
        let line = StyledLine::of(text, Tone::Text).with_indent(indent);
        let rows = wrap(&line, width);
        assert_eq!(texts(&rows), expect, "{text:?} in {width}");
        // The result does not depend on the spans.
        let mut spans = StyledLine::default().with_indent(indent);
        for (at, (cluster, _)) in clusters(text).enumerate() {
            let tones = [Tone::Text, Tone::Ok];
            spans.push(cluster, tones[at % 2]);
        }
        assert_eq!(texts(&wrap(&spans, width)), expect);
    }

    #[test]
    fn text_is_wrapped_between_words() {
        check("one two three", 0, 7, &["one two", "three"]);
        check("one two three", 2, 7, &["one two", "  three"]);
        check("one  two", 0, 20, &["one  two"]);
        check("one    two", 0, 5, &["one", "two"]);
        check("  one two", 2, 6, &["  one", "  two"]);
        check("", 0, 1, &[""]);
        check("   ", 0, 1, &[""]);
    }

    #[test]
    fn long_words_are_broken() {
        check("abcdefgh", 0, 3, &["abc", "def", "gh"]);
        check("a bcdefgh i", 0, 3, &["a", "bcd", "efg", "h i"]);
        check("abcdef", 2, 4, &["abcd", "  ef"]);
        check("abc", 9, 1, &["a", "b", "c"]);
    }

    #[test]
    fn wide_symbols_are_not_cut() {
        check("漢字漢字", 0, 5, &["漢字", "漢字"]);
        check("漢字。漢", 0, 4, &["漢", "字。", "漢"]);
        check("ab漢字", 0, 4, &["ab漢", "字"]);
        check("漢字", 0, 1, &["漢", "字"]);
        check("e\u{301}e\u{301}", 0, 1, &["e\u{301}", "e\u{301}"]);
    }

    #[test]
    fn code_is_broken_at_the_column() {
        let line = StyledLine::of("a  b  c", Tone::Text).with_indent(1);
        assert_eq!(texts(&wrap_columns(&line, 4)), ["a  b", "   c"]);
    }

    #[test]
    fn the_ellipsis_counts_for_the_width() {
        let line = StyledLine::of("ab", Tone::Ok).with("漢字", Tone::Bad);
        for (width, end, start) in [
            (0, "", ""),
            (1, "…", "…"),
            (3, "ab…", "…字"),
            (4, "ab…", "…字"),
            (5, "ab漢…", "…漢字"),
            (6, "ab漢字", "ab漢字"),
        ] {
            assert_eq!(truncate(&line, width).plain(), end, "{width}");
            assert_eq!(truncate_start(&line, width).plain(), start, "{width}");
        }
    }

    #[test]
    fn the_right_text_ends_at_the_width() {
        for (left, right, width, expect) in [
            ("Read a", "12 lines", 20, "Read a      12 lines"),
            ("Read a/long/path", "12 lines", 20, "Read a/lo…  12 lines"),
            ("Read a", "", 4, "Rea…"),
            ("left", "a very long text", 10, "le…  a ve…"),
        ] {
            let row = align(
                &StyledLine::of(left, Tone::Text),
                &StyledLine::of(right, Tone::Muted),
                width,
            );
            assert_eq!(row.plain(), expect);
        }
    }

    proptest! {
        #[test]
        fn rows_fit_and_keep_the_text(text in "(?s)[ a-z漢字é\u{301}👩\u{200d}\t\n]{0,80}", indent in 0_usize..12, width in 0_usize..20) {
            let line = StyledLine::of(&text, Tone::Text).with_indent(indent);
            for rows in [wrap(&line, width), wrap_columns(&line, width)] {
                for row in &rows {
                    prop_assert!(row.width() <= width.max(2), "{:?}", row.plain());
                }
                let kept: String = texts(&rows).concat().replace(' ', "");
                prop_assert_eq!(kept, line.plain().replace(' ', ""));
                prop_assert!(rows.len() <= line.width().max(1));
            }
            prop_assert!(truncate(&line, width).width() <= width);
            prop_assert!(truncate_start(&line, width).width() <= width);
            prop_assert!(align(&line, &StyledLine::of("12 lines", Tone::Muted), width).width() <= width.max(1));
        }
    }
}
