//! `sessions search`: finds text in prompts, answers, calls and results of all sessions, one event at a time.

use std::process::ExitCode;

use serde_json::json;
use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass::core::search_text::{fold_case, visit_texts};
use windlass::machine::SessionLog;

use crate::args::SearchArgs;
use crate::command_error::CommandError;
use crate::out::say;
use crate::sanitize::{message, one_line};
use crate::{exit, out};

/// The number of characters shown on each side of a match.
const AROUND: usize = 80;

pub(super) fn run(store: &SessionLog, args: &SearchArgs) -> Result<ExitCode, CommandError> {
    let needle = Needle::new(&args.text, args.case);
    if needle.chars.is_empty() {
        return Err(
            CommandError::usage("the search text is empty").hint("name the text to search for")
        );
    }
    let mut search = store.search(&args.text)?;
    let mut found = 0;
    'sessions: while let Some(id) = search.next_session() {
        while let Some(event) = search.next_event() {
            let event = match event {
                Ok(event) => event,
                Err(err) => {
                    say!("warning: skipped: {}", message(&err.to_string()));
                    break;
                }
            };
            for (who, line) in matches(&event, &needle) {
                if found >= args.limit || out::stdout_error().is_some() {
                    break 'sessions;
                }
                found += 1;
                print_match(&id, &event, who, &line, args.json);
            }
        }
    }
    if found >= args.limit {
        say!("stopped after {} matches; `--limit` shows more", args.limit);
    } else if found == 0 && !args.json {
        say!("no matches in {} sessions", search.sessions());
    }
    // Like grep: no match is a failure.
    Ok(exit::success_if(found > 0))
}

fn print_match(id: &SessionId, event: &Event, who: &'static str, line: &str, as_json: bool) {
    let seq = event.order.seq().unwrap_or_default();
    if as_json {
        out::json(
            &json!({ "session": id, "seq": seq, "run": event.run, "at": event.at, "who": who, "line": line }),
        );
    } else {
        out::out(&format!("{}  {seq:>5}  {who:<7} {}\n", id, one_line(line)));
    }
}

/// Returns the lines of an event that contain the text, with their authors.
fn matches(event: &Event, needle: &Needle) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut visit = |who: &'static str, text: &str| {
        if needle.is_absent_from(text) {
            return;
        }
        found.extend(
            text.lines()
                .filter_map(|line| needle.around(line))
                .map(|line| (who, line)),
        );
    };
    visit_texts(&event.kind, &mut visit);
    found
}

/// A search text, folded to lower case unless `case` is set.
struct Needle {
    chars: Vec<char>,
    case: bool,
}

impl Needle {
    fn new(text: &str, case: bool) -> Self {
        let mut needle = Self {
            chars: Vec::new(),
            case,
        };
        needle.chars = text.chars().map(|c| needle.fold(c)).collect();
        needle
    }

    /// A fast negative check for ASCII texts; `false` does not mean that the text contains the needle.
    fn is_absent_from(&self, text: &str) -> bool {
        let [first, rest @ ..] = self.chars.as_slice() else {
            return false;
        };
        if !text.is_ascii() || !self.chars.iter().all(char::is_ascii) {
            return false;
        }
        let same = |byte: u8, c: char| {
            if self.case {
                byte == c as u8
            } else {
                byte.eq_ignore_ascii_case(&(c as u8))
            }
        };
        let bytes = text.as_bytes();
        !bytes.iter().enumerate().any(|(at, byte)| {
            same(*byte, *first)
                && bytes.len() - at > rest.len()
                && bytes[at + 1..]
                    .iter()
                    .zip(rest)
                    .all(|(byte, c)| same(*byte, *c))
        })
    }

    /// Folds one character to one, so that offsets in the folded line are offsets in the line.
    fn fold(&self, c: char) -> char {
        if self.case { c } else { fold_case(c) }
    }

    /// Returns the part of a line around the first match.
    fn around(&self, line: &str) -> Option<String> {
        // A line may be a complete large result, so it is scanned without a copy.
        let here = |at: &usize| {
            line[*at..]
                .chars()
                .map(|c| self.fold(c))
                .take(self.chars.len())
                .eq(self.chars.iter().copied())
        };
        let at = line.char_indices().map(|(at, _)| at).find(here)?;
        let (before, rest) = line.split_at(at);
        let from = before
            .char_indices()
            .rev()
            .nth(AROUND - 1)
            .map_or(0, |(from, _)| from);
        let to = rest
            .char_indices()
            .nth(self.chars.len() + AROUND)
            .map_or(rest.len(), |(to, _)| to);
        let (head, tail) = (
            if from > 0 { "…" } else { "" },
            if to < rest.len() { "…" } else { "" },
        );
        Some(format!("{head}{}{}{tail}", &before[from..], &rest[..to]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, case: bool, line: &str, expect: Option<&str>) {
        let needle = Needle::new(text, case);
        assert_eq!(needle.around(line).as_deref(), expect, "{text} in {line}");
        assert!(
            expect.is_none() || !needle.is_absent_from(line),
            "the negative check is wrong: {text} in {line}"
        );
    }

    #[test]
    fn a_match_is_shown_with_its_surroundings() {
        check("grüße", false, "Schöne GRÜSSE", None);
        check(
            "grüße",
            false,
            "Schöne GRÜßE, alle",
            Some("Schöne GRÜßE, alle"),
        );
        check("Grüße", true, "grüße", None);
        check("abc", false, "ab", None);
        check("bc", false, "abABC", Some("abABC"));
        check("bc", true, "abABC", None);
        assert!(
            Needle::new("bc", true).is_absent_from("abABC")
                && Needle::new("abc", false).is_absent_from("ab")
        );
        // A character that gets longer when folded does not shift the result.
        check("x", false, "İİİx", Some("İİİx"));
        let long = format!("{}needle{}", "a".repeat(500), "b".repeat(500));
        let expect = format!("…{}needle{}…", "a".repeat(80), "b".repeat(80));
        check("NEEDLE", false, &long, Some(&expect));
    }
}
