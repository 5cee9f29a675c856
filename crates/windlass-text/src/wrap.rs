//! Fits styled lines into a width: wrapping between words, cutting with an ellipsis, and aligning to both sides.

use std::sync::Arc;

use crate::line::{StyledLine, TextStyle};
use crate::width::{clusters, prefix};

/// Marks a place where text was cut.
const ELLIPSIS: &str = "…";

/// Punctuation of Chinese and Japanese text that must not begin a row.
const NOT_FIRST: &str = "、。，．：；！？）」』】〉》”’";

/// Wraps a line between words into rows of at most `width` columns; 0 counts as 1. Rows after the first begin with the
/// indentation of the line, at most half of the width. Words that are longer than a row are broken. A row is wider
/// only if one symbol is.
#[must_use]
pub fn wrap(line: &StyledLine, width: usize) -> Vec<StyledLine> {
    let width = width.max(1);
    if line.width() <= width {
        return vec![line.clone()];
    }
    let mut rows = RowBuilder::new(line.indent, width);
    for span in &line.spans {
        let (style, link) = (span.style, span.link.as_ref());
        for (cluster, columns) in clusters(&span.text) {
            rows.add(cluster, columns, style, link);
        }
    }
    rows.finish()
}

/// Breaks a line after exactly `width` columns, for text whose blanks matter, such as code.
#[must_use]
pub fn wrap_columns(line: &StyledLine, width: usize) -> Vec<StyledLine> {
    let width = width.max(1);
    if line.width() <= width {
        return vec![line.clone()];
    }
    let mut rows = RowBuilder::new(line.indent, width);
    for span in &line.spans {
        for (cluster, columns) in clusters(&span.text) {
            rows.place(cluster, columns, span.style, span.link.as_ref());
        }
    }
    rows.finish()
}

/// Collects rows. A word is kept back until it is complete, because only then its row is known.
struct RowBuilder {
    rows: Vec<StyledLine>,
    row: StyledLine,
    /// The width of the current row.
    used: usize,
    /// Whether the row has text after its indentation.
    filled: bool,
    blanks: StyledLine,
    blanks_width: usize,
    word: StyledLine,
    word_width: usize,
    /// Whether the word ends with a wide symbol, after which a row may end.
    after_wide: bool,
    line_indent: usize,
    indent: usize,
    width: usize,
}

impl RowBuilder {
    fn new(line_indent: usize, width: usize) -> Self {
        Self {
            rows: Vec::new(),
            row: StyledLine::default().with_indent(line_indent),
            used: 0,
            filled: false,
            blanks: StyledLine::default(),
            blanks_width: 0,
            word: StyledLine::default(),
            word_width: 0,
            after_wide: false,
            line_indent,
            indent: line_indent.min(max_indent(width)),
            width,
        }
    }

    fn add(&mut self, cluster: &str, columns: usize, style: TextStyle, link: Option<&Arc<str>>) {
        if cluster == " " {
            self.end_word();
            self.blanks.append(cluster, style, link);
            self.blanks_width += 1;
            return;
        }
        let wide = columns > 1;
        if (wide || self.after_wide) && !NOT_FIRST.contains(cluster) && columns > 0 {
            self.end_word();
        }
        self.word.append(cluster, style, link);
        self.word_width += columns;
        if columns > 0 {
            self.after_wide = wide;
        }
    }

    fn end_word(&mut self) {
        self.after_wide = false;
        if self.word.spans.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let word_width = std::mem::take(&mut self.word_width);
        let blanks = std::mem::take(&mut self.blanks);
        let blanks_width = std::mem::take(&mut self.blanks_width);
        let first = !self.filled && self.rows.is_empty();
        if self.used + blanks_width + word_width <= self.width {
            self.row.extend(&blanks);
            self.used += blanks_width;
        } else if self.filled && self.used > self.indent {
            self.next_row();
        } else if first {
            // The indentation of the first row leaves half of the row for text.
            let (kept, kept_width) = cut(&blanks, max_indent(self.width));
            self.row.extend(&kept);
            self.used += kept_width;
        }
        if self.used + word_width <= self.width {
            self.row.extend(&word);
            self.used += word_width;
            self.filled = true;
            return;
        }
        for span in &word.spans {
            for (cluster, columns) in clusters(&span.text) {
                self.place(cluster, columns, span.style, span.link.as_ref());
            }
        }
    }

    /// Appends a symbol to the row, or to a new row if this one is full.
    fn place(&mut self, cluster: &str, columns: usize, style: TextStyle, link: Option<&Arc<str>>) {
        if self.used + columns > self.width && self.filled {
            self.next_row();
        }
        self.row.append(cluster, style, link);
        self.used += columns;
        self.filled = true;
    }

    fn next_row(&mut self) {
        let mut next = StyledLine::default().with_indent(self.line_indent);
        if self.indent > 0 {
            next.append(&" ".repeat(self.indent), TextStyle::default(), None);
        }
        self.rows.push(std::mem::replace(&mut self.row, next));
        self.used = self.indent;
        self.filled = false;
    }

    fn finish(mut self) -> Vec<StyledLine> {
        self.end_word();
        if self.filled || self.rows.is_empty() {
            self.rows.push(self.row);
        }
        self.rows
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
            ("left", "a very long text", 10, "lef… a v…"),
        ] {
            let row = align(
                &StyledLine::of(left, Tone::Text),
                &StyledLine::of(right, Tone::Muted),
                width,
            );
            assert!(row.width() <= width, "{:?}", row.plain());
            if expect.len() == width {
                assert_eq!(row.plain(), expect);
            }
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
