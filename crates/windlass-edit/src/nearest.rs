//! Finds the place in a file that looks most like text that was not found, to be shown to whoever
//! asked for it. Never used to decide where an edit goes.
//!
//! The work is linear in the file and bounded: lines vote for where the wanted text would start,
//! and only when none agrees is one probe line compared by its letter pairs.

use std::collections::HashMap;

use super::text::Line;

/// Files are searched up to this size; the rest is not looked at.
const MAX_BYTES: usize = 8 << 20;
/// Wanted lines beyond this do not vote.
const MAX_WANTED: usize = 400;
/// Repeats of one wanted line beyond this do not vote.
const MAX_REPEATS: usize = 8;
/// Lines shown, and characters of each.
const MAX_SHOWN_LINES: usize = 30;
const MAX_SHOWN_CHARS: usize = 300;
/// Lines longer than this are compared by their beginning.
const MAX_PROBE: usize = 200;
/// A vote lighter than this rests on lines like `}` alone.
const CONVINCING: usize = 6;

/// The text of a file that looks most like what was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Number of the first line shown, from 1.
    pub line: usize,
    /// The lines, each after its number.
    pub shown: String,
    /// The first line that differs: its number, what was wanted, what is there.
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

/// The place most like `wanted`, if any resembles it at all.
pub fn nearest(lines: &[Line<'_>], wanted: &[&str]) -> Option<Nearest> {
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

/// Each line that is in both says where the wanted text would start; the heaviest vote wins.
fn by_vote(lines: &[Line<'_>], wanted: &[&str]) -> Option<(usize, usize)> {
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

/// Compares the longest wanted line with every line by the letter pairs they share.
fn by_probe(lines: &[Line<'_>], wanted: &[&str]) -> Option<usize> {
    let (index, probe) = wanted
        .iter()
        .map(|line| cut(line.trim(), MAX_PROBE))
        .enumerate()
        .max_by_key(|(index, line)| (line.len(), std::cmp::Reverse(*index)))?;
    if probe.len() < 3 {
        return None;
    }
    let mut scored: Vec<(usize, usize)> = Vec::new();
    let pairs = Pairs::of(probe.as_bytes());
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

/// How often each pair of neighbouring bytes occurs in the probe.
struct Pairs(HashMap<(u8, u8), usize>);

impl Pairs {
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

fn show(lines: &[Line<'_>], wanted: &[&str], start: usize) -> Nearest {
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

/// Lines after their numbers, long ones cut with a mark.
pub fn numbered(lines: &[Line<'_>], first: usize) -> String {
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

/// The longest beginning of `text` that is at most `max` bytes and ends between characters.
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
