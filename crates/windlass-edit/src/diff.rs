//! Writes the difference between two texts as a unified diff with line counts, in bounded time and size.
//!
//! People and models read it. A huge change is only summarised.

use std::borrow::Cow;
use std::time::Duration;

use crate::sequence::{DiffOp, DiffTag, diff, group_diff_ops};

use super::text::{TextLine, lines};

/// A changed part with more lines than this is counted, not compared.
const MAX_LINES: usize = 20_000;
/// Comparing stops refining after this time; the result is still a correct diff, only longer.
const PATIENCE: Duration = Duration::from_millis(200);
/// The number of unchanged lines shown around a change.
const CONTEXT: usize = 3;
/// A line is cut at this many bytes.
const MAX_LINE: usize = 2_000;

/// A unified diff and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The diff itself; if it was cut, it ends with a note.
    pub text: String,
    /// The number of lines only in the new text.
    pub added: usize,
    /// The number of lines only in the old text.
    pub removed: usize,
    /// Whether `text` leaves something out.
    pub cut: bool,
}

/// A file name as written in a diff: quoted and escaped if it has a control character, a quote or a backslash.
fn quoted(name: &str) -> Cow<'_, str> {
    if !name.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
        return Cow::Borrowed(name);
    }
    let mut text = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    text.push_str(&format!("\\{byte:03o}"));
                }
            }
            c => text.push(c),
        }
    }
    text.push('"');
    Cow::Owned(text)
}

/// The difference from `before` to `after`, with at most about `max_bytes` of diff text.
/// A name with a control character is quoted, so that it cannot forge lines; other names are printed as they are.
/// The caller passes `/dev/null` as the old name of a created file and as the new name of a deleted file.
pub fn unified(
    old_name: &str,
    new_name: &str,
    before: &str,
    after: &str,
    max_bytes: usize,
) -> Diff {
    let (old, new) = (lines(before), lines(after));
    let same_start = old.iter().zip(&new).take_while(|(a, b)| same(a, b)).count();
    let (old_rest, new_rest) = (&old[same_start..], &new[same_start..]);
    let same_end = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(a, b)| same(a, b))
        .count();
    let (removed, added) = (old_rest.len() - same_end, new_rest.len() - same_end);
    let mut text = format!("--- {}\n+++ {}\n", quoted(old_name), quoted(new_name));
    if removed == 0 && added == 0 {
        return Diff {
            text: String::new(),
            added,
            removed,
            cut: false,
        };
    }
    if removed + added > MAX_LINES {
        let at = same_start + 1;
        text.push_str(&format!(
            "@@ from line {at}: {removed} lines are replaced with {added}; too many to show @@\n"
        ));
        return Diff {
            text,
            added,
            removed,
            cut: true,
        };
    }
    // Only the changed part and its context are compared, so that the cost does not grow with the file.
    let first = same_start.saturating_sub(CONTEXT);
    let keep_end = same_end.min(CONTEXT);
    let old_part = raw(before, &old[first..old.len() - same_end + keep_end]);
    let new_part = raw(after, &new[first..new.len() - same_end + keep_end]);
    compare(text, &old_part, &new_part, first, max_bytes)
}

fn same(a: &TextLine<'_>, b: &TextLine<'_>) -> bool {
    a.text == b.text && a.ending == b.ending
}

fn raw<'a>(content: &'a str, lines: &[TextLine<'_>]) -> Vec<&'a str> {
    lines
        .iter()
        .map(|line| &content[line.start..line.end()])
        .collect()
}

fn compare(mut text: String, old: &[&str], new: &[&str], offset: usize, max_bytes: usize) -> Diff {
    let ops = diff(old, new, Some(PATIENCE));
    let mut result = Diff {
        text: String::new(),
        added: 0,
        removed: 0,
        cut: false,
    };
    for op in ops.iter().filter(|op| op.tag() != DiffTag::Equal) {
        result.added += op.new_range().len();
        result.removed += op.old_range().len();
    }
    for group in group_diff_ops(ops, CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let (old_range, new_range) = (
            first.old_range().start..last.old_range().end,
            first.new_range().start..last.new_range().end,
        );
        text.push_str(&format!(
            "@@ -{} +{} @@\n",
            place(&old_range, offset),
            place(&new_range, offset)
        ));
        for (sign, line) in group.iter().flat_map(|op| signed(op, old, new)) {
            if text.len() >= max_bytes {
                text.push_str("… (diff cut here)\n");
                return Diff {
                    text,
                    cut: true,
                    ..result
                };
            }
            result.cut |= push(&mut text, sign, line);
        }
    }
    Diff { text, ..result }
}

/// The lines of an operation with their signs: removed lines first, then added ones.
fn signed<'a>(
    op: &DiffOp,
    old: &'a [&'a str],
    new: &'a [&'a str],
) -> impl Iterator<Item = (char, &'a str)> {
    let (sign, added) = match op.tag() {
        DiffTag::Equal => (' ', 0..0),
        _ => ('-', op.new_range()),
    };
    let removed = old[op.old_range()].iter().map(move |line| (sign, *line));
    removed.chain(new[added].iter().map(|line| ('+', *line)))
}

fn place(range: &std::ops::Range<usize>, offset: usize) -> String {
    match range.len() {
        0 => format!("{},0", range.start + offset),
        1 => format!("{}", range.start + offset + 1),
        count => format!("{},{count}", range.start + offset + 1),
    }
}

fn push(text: &mut String, sign: char, line: &str) -> bool {
    text.push(sign);
    let body = line.strip_suffix('\n').unwrap_or(line);
    let shown = super::nearest::cut(body, MAX_LINE);
    text.push_str(shown);
    let cut = shown.len() < body.len();
    if cut {
        text.push_str(" …");
    }
    text.push('\n');
    if body.len() == line.len() && !line.ends_with('\r') {
        text.push_str("\\ No newline at end of file\n");
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str, expect: &str) {
        let diff = unified("a/f", "b/f", before, after, 10_000);
        assert_eq!(
            format!("+{} -{}\n{}", diff.added, diff.removed, diff.text),
            expect
        );
    }

    #[test]
    fn a_change_is_shown_with_its_context() {
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "1\n2\n3\n4\nX\n6\n7\n8\n9\n",
            "+1 -1\n--- a/f\n+++ b/f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+X\n 6\n 7\n 8\n",
        );
    }

    #[test]
    fn new_files_missing_newlines_and_equal_texts() {
        check("", "a\n", "+1 -0\n--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+a\n");
        check(
            "a",
            "a\n",
            "+1 -1\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n",
        );
        check("a\n", "a\n", "+0 -0\n");
    }

    #[test]
    fn a_long_diff_is_cut_and_still_counted() {
        let after: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let diff = unified("/dev/null", "b/f", "", &after, 200);
        assert_eq!((diff.added, diff.cut), (1000, true));
        assert!(diff.text.len() < 300);
    }

    #[test]
    fn a_huge_change_is_summarised() {
        let diff = unified(
            "a/f",
            "b/f",
            &"a\n".repeat(200_000),
            &"b\n".repeat(300_000),
            10_000,
        );
        assert_eq!(
            (diff.added, diff.removed, diff.cut),
            (300_000, 200_000, true)
        );
        assert!(diff.text.contains("200000 lines are replaced with 300000"));
    }

    #[test]
    fn a_name_cannot_forge_lines() {
        let diff = unified(
            "/dev/null",
            "b/x\n+++ b/Makefile\n@@ -1 +1 @@\n+evil",
            "",
            "a\n",
            1000,
        );
        assert_eq!(
            diff.text,
            "--- /dev/null\n+++ \"b/x\\n+++ b/Makefile\\n@@ -1 +1 @@\\n+evil\"\n@@ -0,0 +1 @@\n+a\n"
        );
        for name in ["b/plain name", "b/\u{e4}"] {
            assert!(
                unified("/dev/null", name, "", "a\n", 1000)
                    .text
                    .contains(&format!("+++ {name}\n"))
            );
        }
    }

    #[test]
    fn a_quoted_name_round_trips() {
        let name = "x\"y\\z \u{e4}";
        let diff = unified("/dev/null", &format!("b/{name}"), "", "a\n", 1000);
        let patch = crate::patch::Patch::parse(&diff.text).expect("a patch");
        assert!(
            format!("{patch:?}").contains(&format!("{name:?}")),
            "{patch:?}"
        );
    }
}
