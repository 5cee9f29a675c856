//! Line edits by anchor: every line is shown as `12:k3f9|text`, and an edit names its lines by number and hash.
//!
//! If the hash of an anchor is no longer that of its line, nothing is edited and the error shows fresh anchors near the
//! current position of the text. An edit is never moved to another line.

use super::nearest::cut;
use super::text::{LineEnding, TextLine, ending_for, lines, push_lines};

/// At most this many fresh anchors are shown.
const MAX_FRESH: usize = 60;
/// Lines shown before and after the probable new position of a stale anchor.
const AROUND: usize = 4;
/// A line shown with a fresh anchor is cut at this many bytes.
const MAX_SHOWN_CHARS: usize = 300;

/// Identifies a line by its number (from 1) and the hash of its text. Number 0 is the position before the first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Line number from 1, or 0 for the top of the file.
    pub line: usize,
    /// The hash, four characters; empty for line 0.
    pub hash: String,
}

impl Anchor {
    /// Parses `12:k3f9`, `12:k3f9|text` (a line as it is shown) or `0`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split('|').next().unwrap_or_default().trim();
        let (line, hash) = text.split_once(':').unwrap_or((text, ""));
        let line: usize = line.parse().ok()?;
        let valid = if line == 0 {
            hash.is_empty()
        } else {
            is_hash(hash)
        };
        valid.then(|| Self {
            line,
            hash: hash.to_ascii_lowercase(),
        })
    }
}

/// One change of whole lines. All anchors refer to the text before any of the edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEdit {
    /// Replaces the lines `start` to `end`, both included, with `text`.
    Replace {
        /// The first line that is replaced.
        start: Anchor,
        /// The last line that is replaced.
        end: Anchor,
        /// The new lines; a newline at the end is optional.
        text: String,
    },
    /// Inserts `text` after a line.
    InsertAfter {
        /// The line before the new ones; line 0 for the top of the file.
        after: Anchor,
        /// The new lines; a newline at the end is optional.
        text: String,
    },
    /// Removes the lines `start` to `end`, both included.
    Delete {
        /// The first line that is removed.
        start: Anchor,
        /// The last line that is removed.
        end: Anchor,
    },
}

/// Why line edits were not applied. None of these cases changes anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnchorError {
    /// The list of edits is empty.
    #[error("no edit was given")]
    Empty,
    /// The lines of some anchors have changed.
    #[error("{} not what the file has now; nothing was written. Fresh anchors:\n{fresh}", stale_list(.stale))]
    Stale {
        /// The anchors that no longer match, as `12:k3f9`.
        stale: Vec<String>,
        /// The lines around their probable new positions, with anchors.
        fresh: String,
    },
    /// A range ends before it starts.
    #[error("the range {start} to {end} ends before it starts")]
    Backwards {
        /// First line of the range.
        start: usize,
        /// Last line of the range.
        end: usize,
    },
    /// Line 0 was given for a replacement or a removal.
    #[error("line 0 is only the place to insert at the top of a file; lines start at 1")]
    LineZero,
    /// Two edits change the same line or insert at the same position.
    #[error("two edits touch line {line}; join them into one")]
    Overlap {
        /// A line that both edits change.
        line: usize,
    },
    /// The new text is empty.
    #[error("`text` is empty; use a delete to remove lines, or \"\\n\" for one blank line")]
    NoText,
    /// The new text was copied together with the anchors in front of its lines.
    #[error("every line of `text` starts with an anchor like `12:k3f9|`; send the text only")]
    AnchorsInText,
    /// The edits left the text as it was.
    #[error("the edits would leave the file exactly as it is")]
    NoChange,
}

fn stale_list(stale: &[String]) -> String {
    let plural = if stale.len() == 1 {
        "anchor {} is"
    } else {
        "anchors {} are"
    };
    plural.replace("{}", &stale.join(", "))
}

/// The hash of one line's text, without its ending.
pub fn hash(text: &str) -> String {
    // The alphabet has no letters that look like digits. Twenty bits are enough, as the line number is compared too.
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let digest = blake3::hash(text.as_bytes());
    let bytes = digest.as_bytes();
    let bits = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (0..4)
        .map(|index| char::from(ALPHABET[(bits >> (27 - 5 * index)) as usize & 31]))
        .collect()
}

fn is_hash(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A line as it is shown to a model, with its anchor.
pub fn render_line(number: usize, text: &str) -> String {
    format!("{number}:{}|{text}", hash(text))
}

/// Applies all edits, or none.
pub fn apply(content: &str, edits: &[LineEdit]) -> Result<String, AnchorError> {
    if edits.is_empty() {
        return Err(AnchorError::Empty);
    }
    let all = lines(content);
    check_anchors(&all, edits)?;
    let mut spans = edits.iter().map(span).collect::<Result<Vec<_>, _>>()?;
    spans.sort_by_key(|span| (span.from, span.to));
    for pair in spans.windows(2) {
        // Two insertions at the same position have no defined order, so they are an overlap too.
        if pair[1].from < pair[0].to || (pair[1].from == pair[0].from && pair[1].to == pair[0].to) {
            return Err(AnchorError::Overlap {
                line: pair[1].from + 1,
            });
        }
    }
    let mut out = String::with_capacity(content.len());
    let mut done = 0;
    for span in &spans {
        push_lines(&mut out, &all[done..span.from]);
        put(&mut out, span, &all);
        done = span.to;
    }
    push_lines(&mut out, &all[done..]);
    if out == content {
        Err(AnchorError::NoChange)
    } else {
        Ok(out)
    }
}

/// Replaces the lines `from..to` (from 0) with `new`.
struct LineSpan {
    from: usize,
    to: usize,
    new: Vec<String>,
}

fn span(edit: &LineEdit) -> Result<LineSpan, AnchorError> {
    let range = |start: &Anchor, end: &Anchor| {
        if start.line == 0 {
            return Err(AnchorError::LineZero);
        }
        if end.line < start.line {
            return Err(AnchorError::Backwards {
                start: start.line,
                end: end.line,
            });
        }
        Ok((start.line - 1, end.line))
    };
    let ((from, to), new) = match edit {
        LineEdit::Replace { start, end, text } => (range(start, end)?, new_lines(text)?),
        LineEdit::Delete { start, end } => (range(start, end)?, Vec::new()),
        LineEdit::InsertAfter { after, text } => ((after.line, after.line), new_lines(text)?),
    };
    Ok(LineSpan { from, to, new })
}

fn new_lines(text: &str) -> Result<Vec<String>, AnchorError> {
    if text.is_empty() {
        return Err(AnchorError::NoText);
    }
    let new: Vec<String> = lines(text)
        .iter()
        .map(|line| line.text.to_owned())
        .collect();
    let anchored = |line: &String| {
        line.split_once('|')
            .is_some_and(|(anchor, _)| anchor.contains(':') && Anchor::parse(anchor).is_some())
    };
    if new.iter().all(anchored) {
        return Err(AnchorError::AnchorsInText);
    }
    Ok(new)
}

fn put(out: &mut String, span: &LineSpan, all: &[TextLine<'_>]) {
    let around = if span.from < span.to {
        &all[span.from..span.to]
    } else {
        &all[span.from.saturating_sub(1)..span.from]
    };
    let ending = ending_for(around, all);
    let at_end = span.to == all.len();
    // A file without a final newline stays without one; an empty file gets one.
    let open = at_end
        && all
            .last()
            .is_some_and(|line| line.ending == LineEnding::None);
    if open && span.from == all.len() {
        out.push_str(ending.as_str());
    }
    for (index, text) in span.new.iter().enumerate() {
        out.push_str(text);
        if !(open && index + 1 == span.new.len()) {
            out.push_str(ending.as_str());
        }
    }
}

fn check_anchors(all: &[TextLine<'_>], edits: &[LineEdit]) -> Result<(), AnchorError> {
    let mut stale: Vec<&Anchor> = Vec::new();
    for edit in edits {
        let anchors = match edit {
            LineEdit::Replace { start, end, .. } | LineEdit::Delete { start, end } => {
                vec![start, end]
            }
            LineEdit::InsertAfter { after, .. } => vec![after],
        };
        for anchor in anchors {
            let fits = anchor.line == 0
                || all
                    .get(anchor.line - 1)
                    .is_some_and(|line| hash(line.text) == anchor.hash);
            if !fits && !stale.contains(&anchor) {
                stale.push(anchor);
            }
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    let fresh = fresh_anchors(all, &stale);
    Err(AnchorError::Stale {
        stale: stale
            .iter()
            .map(|anchor| format!("{}:{}", anchor.line, anchor.hash))
            .collect(),
        fresh,
    })
}

/// Lines with anchors around the new position of each stale anchor: the nearest line with the same hash, or the old line
/// number if there is none.
fn fresh_anchors(all: &[TextLine<'_>], stale: &[&Anchor]) -> String {
    if all.is_empty() {
        return "(the file is empty; insert after line 0)".to_owned();
    }
    let hashes: Vec<String> = all.iter().map(|line| hash(line.text)).collect();
    let mut shown = std::collections::BTreeSet::new();
    for anchor in stale {
        let number = anchor.line.clamp(1, all.len()) - 1;
        let centre = hashes
            .iter()
            .enumerate()
            .filter(|(_, hash)| **hash == anchor.hash)
            .map(|(index, _)| index)
            .min_by_key(|index| index.abs_diff(number))
            .unwrap_or(number);
        shown.extend(centre.saturating_sub(AROUND)..(centre + AROUND + 1).min(all.len()));
        if shown.len() >= MAX_FRESH {
            break;
        }
    }
    let mut out: Vec<String> = Vec::new();
    let mut last = None;
    for index in shown.into_iter().take(MAX_FRESH) {
        if last.is_some_and(|last| last + 1 < index) {
            out.push("…".to_owned());
        }
        out.push(format!(
            "{}:{}|{}",
            index + 1,
            hashes[index],
            cut(all[index].text, MAX_SHOWN_CHARS)
        ));
        last = Some(index);
    }
    out.join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anchor(content: &str, line: usize) -> Anchor {
        let hash = if line == 0 {
            String::new()
        } else {
            hash(lines(content)[line - 1].text)
        };
        Anchor { line, hash }
    }

    /// Each edit is its kind (`replace`, `insert` or `delete`), first line, last line and text. The anchors are those of
    /// the text `seen`.
    #[track_caller]
    fn check(seen: &str, content: &str, edits: &[(&str, usize, usize, &str)], expect: &str) {
        let edits: Vec<LineEdit> = edits
            .iter()
            .map(|&(op, from, to, text)| {
                let (start, end, text) = (anchor(seen, from), anchor(seen, to), text.to_owned());
                match op {
                    "replace" => LineEdit::Replace { start, end, text },
                    "insert" => LineEdit::InsertAfter { after: start, text },
                    _ => LineEdit::Delete { start, end },
                }
            })
            .collect();
        let result = apply(content, &edits).unwrap_or_else(|err| format!("error: {err}"));
        assert_eq!(result, expect);
    }

    #[test]
    fn lines_are_replaced_inserted_and_deleted_by_anchor() {
        let text = "a\r\nb\r\nc\r\n";
        check(
            text,
            text,
            &[("replace", 2, 2, "x\ny\n")],
            "a\r\nx\r\ny\r\nc\r\n",
        );
        check(
            text,
            text,
            &[("insert", 0, 0, "top")],
            "top\r\na\r\nb\r\nc\r\n",
        );
        check(
            text,
            text,
            &[("insert", 3, 3, "end\n")],
            "a\r\nb\r\nc\r\nend\r\n",
        );
        check(text, text, &[("delete", 1, 2, "")], "c\r\n");
        check(
            text,
            text,
            &[
                ("delete", 3, 3, ""),
                ("replace", 1, 1, "A"),
                ("insert", 1, 1, "n"),
            ],
            "A\r\nn\r\nb\r\n",
        );
    }

    #[test]
    fn a_missing_final_newline_stays_missing() {
        check("a\nb", "a\nb", &[("replace", 2, 2, "c\n")], "a\nc");
        check("a\nb", "a\nb", &[("insert", 2, 2, "c\n")], "a\nb\nc");
        check("", "", &[("insert", 0, 0, "c")], "c\n");
        check("a\nb", "a\nb", &[("replace", 1, 1, "\n")], "\nb");
    }

    #[test]
    fn a_stale_anchor_changes_nothing_and_returns_fresh_ones() {
        let fresh = |number: usize, text: &str| render_line(number, text);
        check(
            "a\nb\n",
            "new\na\nb\n",
            &[("replace", 2, 2, "x")],
            &format!(
                "error: anchor 2:{} is not what the file has now; nothing was written. Fresh anchors:\n{}\n{}\n{}",
                hash("b"),
                fresh(1, "new"),
                fresh(2, "a"),
                fresh(3, "b")
            ),
        );
        check(
            "a\n",
            "",
            &[("delete", 1, 1, "")],
            &format!(
                "error: anchor 1:{} is not what the file has now; nothing was written. Fresh anchors:\n(the file is empty; insert after line 0)",
                hash("a")
            ),
        );
    }

    #[test]
    fn invalid_edits_are_refused_with_a_reason() {
        let text = "a\nb\nc\n";
        check(
            text,
            text,
            &[("replace", 3, 2, "x")],
            "error: the range 3 to 2 ends before it starts",
        );
        check(
            text,
            text,
            &[("replace", 1, 2, "x"), ("delete", 2, 2, "")],
            "error: two edits touch line 2; join them into one",
        );
        check(
            text,
            text,
            &[("insert", 1, 1, "x"), ("insert", 1, 1, "y")],
            "error: two edits touch line 2; join them into one",
        );
        check(
            text,
            text,
            &[("delete", 0, 1, "")],
            "error: line 0 is only the place to insert at the top of a file; lines start at 1",
        );
        check(
            text,
            text,
            &[("replace", 1, 1, "")],
            "error: `text` is empty; use a delete to remove lines, or \"\\n\" for one blank line",
        );
        check(
            text,
            text,
            &[("replace", 1, 1, "1:ab3k|x")],
            "error: every line of `text` starts with an anchor like `12:k3f9|`; send the text only",
        );
        check(
            text,
            text,
            &[("replace", 1, 1, "a")],
            "error: the edits would leave the file exactly as it is",
        );
        check(text, text, &[], "error: no edit was given");
    }

    #[test]
    fn anchors_are_read_as_shown() {
        let shown = render_line(12, "let x = 1 | 2;");
        assert_eq!(
            Anchor::parse(&shown),
            Some(Anchor {
                line: 12,
                hash: hash("let x = 1 | 2;")
            })
        );
        assert_eq!(
            Anchor::parse(" 0 "),
            Some(Anchor {
                line: 0,
                hash: String::new()
            })
        );
        for bad in ["", "x", "3", "3:", "3:abcde", "-1:abcd", "0:abcd", "3:äb"] {
            assert_eq!(Anchor::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn reading_an_anchor_never_panics(text in "\\PC{0,20}") {
            let _ = Anchor::parse(&text);
        }

        #[test]
        fn lines_outside_the_range_do_not_change(content in "[ab\r\n]{1,30}", pick in any::<prop::sample::Index>(), text in "[xy\n]{1,6}") {
            let all = lines(&content);
            let index = pick.index(all.len());
            let start = anchor(&content, index + 1);
            let result = apply(&content, &[LineEdit::Replace { start: start.clone(), end: start, text }]);
            if let Ok(out) = result {
                prop_assert!(out.starts_with(&content[..all[index].start]));
                prop_assert!(out.ends_with(&content[all[index].end()..]));
            }
        }
    }
}
