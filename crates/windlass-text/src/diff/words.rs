//! Finds the words that differ between a removed and an added line.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// The most words of a line that are compared.
const MAX_WORDS: usize = 300;
/// The longest line in bytes that is compared.
const MAX_LINE: usize = 4_000;

/// The ranges of bytes that differ, in the old and in the new line.
pub(super) type ChangedRanges = (Vec<Range<usize>>, Vec<Range<usize>>);

/// Limits the comparisons of one diff, because each may cost the product of the numbers of words.
#[derive(Debug)]
pub(super) struct WordBudget(usize);

impl Default for WordBudget {
    fn default() -> Self {
        Self(4_000_000)
    }
}

/// Compares two lines word by word. Returns no ranges if the lines have little in common.
pub(super) fn changed_words(old: &str, new: &str, budget: &mut WordBudget) -> ChangedRanges {
    let none = (Vec::new(), Vec::new());
    if old.len() > MAX_LINE || new.len() > MAX_LINE {
        return none;
    }
    let (old_words, new_words) = (words(old), words(new));
    let cost = old_words.len() * new_words.len();
    if old_words.len() > MAX_WORDS || new_words.len() > MAX_WORDS || cost > budget.0 {
        return none;
    }
    budget.0 -= cost;
    let mut ranges = (Vec::new(), Vec::new());
    let mut same = 0;
    for op in capture_diff_slices(Algorithm::Myers, &old_words, &new_words) {
        let (old_range, new_range) = (op.old_range(), op.new_range());
        if let DiffOp::Equal { .. } = op {
            let equal = &old_words[old_range];
            same += equal.iter().map(|word| word.trim().len()).sum::<usize>();
            continue;
        }
        push(&mut ranges.0, &old_words, old_range);
        push(&mut ranges.1, &new_words, new_range);
    }
    let longest = old.trim().len().max(new.trim().len());
    if same * 3 < longest { none } else { ranges }
}

/// Adds the bytes of some words. Ranges with only a blank between them are joined.
fn push(ranges: &mut Vec<Range<usize>>, words: &[&str], range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    let length = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
    let start = length(&words[..range.start]);
    let end = start + length(&words[range.clone()]);
    match ranges.last_mut() {
        Some(last) if last.end + 1 == start && words[range.start - 1] == " " => last.end = end,
        Some(last) if last.end == start => last.end = end,
        _ => ranges.push(start..end),
    }
}

/// Splits a line into words, blanks and single symbols.
fn words(text: &str) -> Vec<&str> {
    let class = |c: char| {
        if c.is_alphanumeric() || c == '_' {
            0
        } else {
            1 + u8::from(c.is_whitespace())
        }
    };
    let mut out = Vec::new();
    let mut start = 0;
    let mut before = None;
    for (at, c) in text.char_indices() {
        let class = class(c);
        if before.is_some_and(|before| before != class || class == 1) {
            out.push(&text[start..at]);
            start = at;
        }
        before = Some(class);
    }
    if start < text.len() {
        out.push(&text[start..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &str, new: &str, expect_old: &[&str], expect_new: &[&str]) {
        let (old_ranges, new_ranges) = changed_words(old, new, &mut WordBudget::default());
        let texts = |text: &str, ranges: Vec<Range<usize>>| -> Vec<String> {
            ranges
                .into_iter()
                .map(|range| text[range].to_owned())
                .collect()
        };
        assert_eq!(texts(old, old_ranges), expect_old, "{old}");
        assert_eq!(texts(new, new_ranges), expect_new, "{new}");
    }

    #[test]
    fn only_changed_words_are_found() {
        check("let a = 1;", "let b = 1;", &["a"], &["b"]);
        check("f(x)", "f(x, y)", &[], &[", y"]);
        check(
            "return one two;",
            "return six ten;",
            &["one two"],
            &["six ten"],
        );
        check("abc", "xyz", &[], &[]);
        check("same", "same", &[], &[]);
        check("grüße an alle", "grüße an viele", &["alle"], &["viele"]);
    }

    #[test]
    fn long_lines_are_not_compared() {
        let old = "a ".repeat(1_000);
        check(&old, &format!("{old}b"), &[], &[]);
        let mut budget = WordBudget(3);
        assert_eq!(
            changed_words("a b", "a c", &mut budget),
            (Vec::new(), Vec::new())
        );
    }
}
