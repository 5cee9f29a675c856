//! Searches the prompts, answers, calls and results of all sessions for a text, one event at a time.
//!
//! ```
//! use windlass::machine::SessionLog;
//! use windlass::sessions::{SearchMatch, SessionSearch};
//!
//! # let dir = tempfile::tempdir()?;
//! let store = SessionLog::new(dir.path().join("sessions"));
//! let mut search = SessionSearch::new(&store, "flaky test", false)?;
//! let first: Option<Result<SearchMatch, _>> = search.next();
//! assert!(first.is_none() && search.sessions() == 0);
//! assert!(SessionSearch::new(&store, "", false).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::clock::Timestamp;
use windlass_core::event::Event;
use windlass_core::id::{RunId, SessionId};
use windlass_core::search_text::{fold_case, visit_texts};
use windlass_core::store::StoreError;
use windlass_host::session_log::{SessionLog, TextSearch};

use crate::error::Error;

/// The number of characters of a line on each side of a match.
const AROUND: usize = 80;

/// A line that contains the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SearchMatch {
    pub session: SessionId,
    /// The number of the event.
    pub seq: u64,
    pub run: Option<RunId>,
    pub at: Timestamp,
    /// The author of the line: `person`, `model`, `engine`, `call` or `result`.
    pub who: &'static str,
    /// The part of the line around the first match.
    pub line: String,
}

/// Iterates over the lines that contain the text, newest session first. A session that cannot be read is an error; the
/// others follow it.
pub struct SessionSearch<'a> {
    search: TextSearch<'a>,
    needle: Needle,
    session: Option<SessionId>,
    /// Matches of the current event.
    found: std::vec::IntoIter<SearchMatch>,
}

impl<'a> SessionSearch<'a> {
    /// Starts a search. Upper and lower case are distinguished if `case` is true.
    pub fn new(store: &'a SessionLog, text: &str, case: bool) -> Result<Self, Error> {
        let needle = Needle::new(text, case);
        if needle.chars.is_empty() {
            return Err(
                Error::usage("the search text is empty").hint("name the text to search for")
            );
        }
        Ok(Self {
            search: store.search(text)?,
            needle,
            session: None,
            found: Vec::new().into_iter(),
        })
    }

    /// The number of all sessions, including those that are not read.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.search.sessions()
    }
}

impl Iterator for SessionSearch<'_> {
    type Item = Result<SearchMatch, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.found.next() {
                return Some(Ok(found));
            }
            let Some(session) = &self.session else {
                self.session = Some(self.search.next_session()?);
                continue;
            };
            match self.search.next_event() {
                Some(Ok(event)) => {
                    self.found = matches(session, &event, &self.needle).into_iter();
                }
                Some(Err(err)) => {
                    self.session = None;
                    return Some(Err(err));
                }
                None => self.session = None,
            }
        }
    }
}

fn matches(session: &SessionId, event: &Event, needle: &Needle) -> Vec<SearchMatch> {
    let mut found = Vec::new();
    let mut visit = |who: &'static str, text: &str| {
        if needle.is_absent_from(text) {
            return;
        }
        let lines = text.lines().filter_map(|line| needle.around(line));
        found.extend(lines.map(|line| SearchMatch {
            session: session.clone(),
            seq: event.order.seq().unwrap_or_default(),
            run: event.run.clone(),
            at: event.at,
            who,
            line,
        }));
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
