//! When text was not found in a file, finds the most similar place, so that an error message can show it to the author
//! of the edit. Never used to decide where an edit is applied.
//!
//! The time is linear in the size of the file and bounded. Each line that occurs in both texts votes for the line where
//! the wanted text would start. If the votes decide nothing, the longest wanted line is compared with every line of the
//! file by the pairs of bytes that they share.

use std::collections::HashMap;

use super::text::TextLine;

/// Only this many bytes of a file are searched.
const MAX_BYTES: usize = 8 << 20;
/// Only this many of the wanted lines are considered.
const MAX_WANTED: usize = 400;
/// Only this many occurrences of the same wanted line vote.
const MAX_REPEATS: usize = 8;
/// At most this many lines are shown.
const MAX_SHOWN_LINES: usize = 30;
/// A shown line is cut at this many bytes.
const MAX_SHOWN_CHARS: usize = 300;
/// Only this many bytes of a line are compared.
const MAX_PROBE: usize = 200;
/// A vote with a lower weight comes from lines like `}` alone and decides nothing.
const CONVINCING: usize = 6;

/// The part of a file that is most similar to the wanted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Number of the first line shown, from 1.
    pub line: usize,
    /// The lines of the file, each with its number in front.
    pub shown: String,
    /// The first line that differs: its number, the wanted text and the text in the file.
    pub differs: Option<(usize, String, String)>,
}

impl std::fmt::Display for Nearest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the nearest text is at line {}:\n{}",
            self.line, self.shown
        )?;
        if let Some((line, wanted, found)) = &self.differs {
            write!(
                f,
                "\nfirst difference, line {line}: wanted {wanted:?}, found {found:?}"
            )?;
        }
        Ok(())
    }
}

/// The place most similar to `wanted`, or `None` if none is similar enough.
pub fn nearest(lines: &[TextLine<'_>], wanted: &[&str]) -> Option<Nearest> {
    let within = lines.partition_point(|line| line.end() <= MAX_BYTES);
    let lines = &lines[..within];
    let wanted = &wanted[..wanted.len().min(MAX_WANTED)];
    let vote = by_vote(lines, wanted);
    let start = match vote {
        Some((start, weight)) if weight >= CONVINCING => start,
        _ => by_probe(lines, wanted).or(vote.map(|(start, _)| start))?,
    };
    Some(show(lines, wanted, start))
}

/// Each line that occurs in both texts votes for the line where the wanted text would start, with its length as the
/// weight of the vote. Returns the line with the highest total, and that total.
fn by_vote(lines: &[TextLine<'_>], wanted: &[&str]) -> Option<(usize, usize)> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in wanted.iter().enumerate() {
        let trimmed = line.trim();
        if !trimmed.is_empty() {
            let indexes = places.entry(trimmed).or_default();
            if indexes.len() < MAX_REPEATS {
                indexes.push(index);
            }
        }
    }
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.text.trim();
        for &index in places.get(trimmed).into_iter().flatten() {
            *votes.entry(at.saturating_sub(index)).or_default() += trimmed.len().min(40);
        }
    }
    votes
        .into_iter()
        .max_by_key(|&(start, weight)| (weight, std::cmp::Reverse(start)))
}

/// Compares the longest wanted line with every line of the file by the byte pairs that they share.
fn by_probe(lines: &[TextLine<'_>], wanted: &[&str]) -> Option<usize> {
    let (index, probe) = wanted
        .iter()
        .map(|line| cut(line.trim(), MAX_PROBE))
        .enumerate()
        .max_by_key(|(index, line)| (line.len(), std::cmp::Reverse(*index)))?;
    if probe.len() < 3 {
        return None;
    }
    let mut scored: Vec<(usize, usize)> = Vec::new();
    let pairs = BytePairs::of(probe.as_bytes());
    let mut seen = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let text = cut(line.text.trim(), MAX_PROBE);
        if text.len() * 4 < probe.len() || text.len() < 2 {
            continue;
        }
        let score =
            pairs.shared_with(text.as_bytes(), &mut seen) * 2000 / (probe.len() + text.len() - 2);
        if score >= 400 {
            scored.push((score, at));
        }
    }
    scored.sort_by_key(|&(score, at)| (std::cmp::Reverse(score), at));
    scored.truncate(5);
    let ratio = |at: usize| crate::sequence::ratio(probe, cut(lines[at].text.trim(), MAX_PROBE));
    let best = scored
        .into_iter()
        .map(|(_, at)| (ratio(at), at))
        .max_by(|left, right| left.0.total_cmp(&right.0).then(right.1.cmp(&left.1)))?;
    (best.0 >= 0.5).then(|| best.1.saturating_sub(index))
}

/// The number of occurrences of each pair of adjacent bytes in a line.
struct BytePairs(HashMap<(u8, u8), usize>);

impl BytePairs {
    fn of(bytes: &[u8]) -> Self {
        let mut counts = HashMap::new();
        for pair in bytes.windows(2) {
            *counts.entry((pair[0], pair[1])).or_default() += 1;
        }
        Self(counts)
    }

    fn shared_with(&self, bytes: &[u8], seen: &mut HashMap<(u8, u8), usize>) -> usize {
        seen.clear();
        let mut shared = 0;
        for pair in bytes.windows(2) {
            let key = (pair[0], pair[1]);
            if let Some(&limit) = self.0.get(&key) {
                let used = seen.entry(key).or_default();
                if *used < limit {
                    *used += 1;
                    shared += 1;
                }
            }
        }
        shared
    }
}

fn show(lines: &[TextLine<'_>], wanted: &[&str], start: usize) -> Nearest {
    let count = wanted.len().clamp(1, MAX_SHOWN_LINES);
    let differs = wanted
        .iter()
        .zip(lines[start..].iter())
        .enumerate()
        .find(|(_, (wanted, line))| **wanted != line.text)
        .map(|(offset, (wanted, line))| {
            (
                start + offset + 1,
                cut(wanted, MAX_SHOWN_CHARS).to_owned(),
                cut(line.text, MAX_SHOWN_CHARS).to_owned(),
            )
        });
    let from = start.saturating_sub(1);
    let to = (start + count + 1).min(lines.len());
    Nearest {
        line: from + 1,
        shown: numbered(&lines[from..to], from + 1),
        differs,
    }
}

/// Writes each line with its number in front. A long line is cut and ends in `…`.
pub fn numbered(lines: &[TextLine<'_>], first: usize) -> String {
    let width = (first + lines.len().saturating_sub(1)).to_string().len();
    let mut out = String::new();
    for (offset, line) in lines.iter().enumerate() {
        if offset > 0 {
            out.push('\n');
        }
        let text = cut(line.text, MAX_SHOWN_CHARS);
        let mark = if text.len() < line.text.len() {
            " …"
        } else {
            ""
        };
        out.push_str(&format!("{:>width$}| {text}{mark}", first + offset));
    }
    out
}

/// The longest prefix of `text` that has at most `max` bytes and ends at a character boundary.
pub(super) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    #[track_caller]
    fn check(file: &str, wanted: &str, expect: Option<usize>) {
        let wanted: Vec<&str> = wanted.lines().collect();
        let lines = lines(file);
        let found = nearest(&lines, &wanted);
        assert_eq!(found.as_ref().map(|n| n.line), expect, "{found:?}");
    }

    #[test]
    fn a_shared_line_decides() {
        check(
            "a\nb\nfn main() {\n    run();\n}\n",
            "fn main() {\n    ran();\n}",
            Some(2),
        );
    }

    #[test]
    fn a_similar_line_decides_when_none_is_shared() {
        check(
            "one\ntwo\nlet total = sum(values);\nfour\n",
            "let totals = sum(value);",
            Some(2),
        );
    }

    #[test]
    fn nothing_alike_is_nothing() {
        check("one\ntwo\n", "zzzzzzzzzz", None);
        check("", "x", None);
        check("abc\n", "", None);
    }

    #[test]
    fn a_huge_repetitive_file_is_searched_in_bounded_time() {
        let file = "    }\n".repeat(300_000);
        let wanted = "    }\n".repeat(5_000) + "something else entirely\n";
        check(&file, &wanted, Some(1));
    }
}
