//! `sessions search`: words in prompts, answers, calls and results of all sessions, read one event at a time.

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

/// Characters shown on each side of a hit.
const AROUND: usize = 80;

pub(super) fn run(store: &SessionLog, args: &SearchArgs) -> Result<ExitCode, CommandError> {
    let needle = Needle::new(&args.text, args.case);
    if needle.chars.is_empty() {
        return Err(
            CommandError::usage("there is nothing to find").hint("name the words to look for")
        );
    }
    let mut search = store.search(&args.text)?;
    let mut found = 0;
    'sessions: while let Some(id) = search.next_session() {
        while let Some(event) = search.next_event() {
            let event = match event {
                Ok(event) => event,
                Err(err) => {
                    say!("warning: passed over: {}", message(&err.to_string()));
                    break;
                }
            };
            for (who, line) in hits(&event, &needle) {
                if found >= args.limit || out::stdout_error().is_some() {
                    break 'sessions;
                }
                found += 1;
                tell(&id, &event, who, &line, args.json);
            }
        }
    }
    if found >= args.limit {
        say!(
            "there may be more than {} hits; --limit shows more",
            args.limit
        );
    } else if found == 0 && !args.json {
        say!("nothing found in {} sessions", search.sessions());
    }
    // As with other programs that search: nothing found is not a success.
    Ok(exit::success_if(found > 0))
}

fn tell(id: &SessionId, event: &Event, who: &'static str, line: &str, as_json: bool) {
    let seq = event.order.seq().unwrap_or_default();
    if as_json {
        out::json(
            &json!({ "session": id, "seq": seq, "run": event.run, "at": event.at, "who": who, "line": line }),
        );
    } else {
        out::out(&format!("{}  {seq:>5}  {who:<7} {}\n", id, one_line(line)));
    }
}

/// The lines of an event that hold the words, with who said them.
fn hits(event: &Event, needle: &Needle) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut look = |who: &'static str, text: &str| {
        if needle.cannot_be_in(text) {
            return;
        }
        found.extend(
            text.lines()
                .filter_map(|line| needle.around(line))
                .map(|line| (who, line)),
        );
    };
    visit_texts(&event.kind, &mut look);
    found
}

/// What is looked for.
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

    /// A quick no, for the many texts that do not hold it.
    fn cannot_be_in(&self, text: &str) -> bool {
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

    /// One character for one, so that places in the folded line are places in the line.
    fn fold(&self, c: char) -> char {
        if self.case { c } else { fold_case(c) }
    }

    /// The piece of a line around the first place that holds it.
    fn around(&self, line: &str) -> Option<String> {
        // A line may be the whole of a large result: it is walked, and never copied.
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
            expect.is_none() || !needle.cannot_be_in(line),
            "the quick no is wrong: {text} in {line}"
        );
    }

    #[test]
    fn a_hit_is_shown_with_what_is_around_it() {
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
            Needle::new("bc", true).cannot_be_in("abABC")
                && Needle::new("abc", false).cannot_be_in("ab")
        );
        // A character that grows when it is folded does not move what is shown.
        check("x", false, "İİİx", Some("İİİx"));
        let long = format!("{}needle{}", "a".repeat(500), "b".repeat(500));
        let expect = format!("…{}needle{}…", "a".repeat(80), "b".repeat(80));
        check("NEEDLE", false, &long, Some(&expect));
    }
}
