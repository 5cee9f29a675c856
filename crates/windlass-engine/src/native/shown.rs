//! What has been shown of an answer while it was streamed: a retry shows no word twice.

use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::provider::Chunk;

/// What has been shown of an answer, so that a retry shows no word twice.
#[derive(Default)]
pub(super) struct Shown {
    /// Text shown by tries that failed.
    before: String,
    /// How much of it this try has repeated.
    matched: usize,
    /// Text shown by this try.
    now: String,
    /// Reasoning or arguments were shown by a try that failed; they are not shown again.
    thoughts: Seen,
    args: Seen,
    /// This try said something else: it is shown whole when it is committed, not piece by piece.
    silent: bool,
}

impl Shown {
    pub(super) fn delta(&mut self, chunk: &Chunk) -> Option<EventKind> {
        let (of, text) = match chunk {
            Chunk::Text(text) => (DeltaOf::Text, self.unseen(text)?),
            Chunk::Reasoning(text) if self.thoughts.first() => (DeltaOf::Reasoning, text.as_str()),
            Chunk::CallArgs { index, json } if self.args.first() => {
                (DeltaOf::Arguments(*index), json.as_str())
            }
            _ => return None,
        };
        (!text.is_empty()).then(|| EventKind::Delta {
            of,
            text: text.to_owned(),
        })
    }

    /// The part of a piece that was not shown before.
    fn unseen<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if self.silent {
            return None;
        }
        let rest = &self.before[self.matched..];
        let fresh = if rest.is_empty() {
            text
        } else if let Some(fresh) = text.strip_prefix(rest) {
            self.matched = self.before.len();
            fresh
        } else if rest.starts_with(text) {
            self.matched += text.len();
            return None;
        } else {
            self.silent = true;
            return None;
        };
        self.now.push_str(fresh);
        Some(fresh)
    }

    pub(super) fn restart(&mut self) {
        self.before.push_str(&std::mem::take(&mut self.now));
        self.matched = 0;
        self.thoughts = self.thoughts.over();
        self.args = self.args.over();
    }
}

/// Whether something was shown, and by which try.
#[derive(Clone, Copy, Default)]
enum Seen {
    #[default]
    Never,
    ByThisTry,
    Before,
}

impl Seen {
    fn first(&mut self) -> bool {
        if matches!(self, Self::Before) {
            return false;
        }
        *self = Self::ByThisTry;
        true
    }

    fn over(self) -> Self {
        if matches!(self, Self::Never) {
            Self::Never
        } else {
            Self::Before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(shown: &mut Shown, pieces: &[&str]) -> String {
        let mut all = String::new();
        for piece in pieces {
            if let Some(EventKind::Delta { text, .. }) =
                shown.delta(&Chunk::Text((*piece).to_owned()))
            {
                all.push_str(&text);
            }
        }
        all
    }

    #[test]
    fn a_retry_shows_only_what_is_new() {
        let mut shown = Shown::default();
        assert_eq!(texts(&mut shown, &["Hel", "lo wo"]), "Hello wo");
        shown.restart();
        assert_eq!(texts(&mut shown, &["H", "ello world", "!"]), "rld!");
    }

    #[test]
    fn a_retry_that_differs_is_not_shown_piece_by_piece() {
        let mut shown = Shown::default();
        texts(&mut shown, &["Hello"]);
        shown.restart();
        assert_eq!(texts(&mut shown, &["He", "y there"]), "");
    }
}
