//! Filters the live deltas of an answer, so that a retry of the request displays no text twice.

use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::provider::Chunk;

/// Remembers the displayed text of an answer across retries.
#[derive(Default)]
pub(super) struct DeltaFilter {
    /// Text that failed attempts displayed.
    before: String,
    /// Number of bytes of it that this attempt has repeated.
    matched: usize,
    /// Text that this attempt displayed.
    now: String,
    /// Reasoning and arguments that a failed attempt displayed are not displayed again.
    thoughts: ShownBy,
    args: ShownBy,
    /// This attempt has a different text. It is not displayed piece by piece, but as a whole when it is committed.
    silent: bool,
}

impl DeltaFilter {
    pub(super) fn delta(&mut self, chunk: &Chunk) -> Option<EventKind> {
        let (of, text) = match chunk {
            Chunk::Text(text) => (DeltaOf::Text, self.new_text(text)?),
            Chunk::Reasoning(text) if self.thoughts.may_show() => {
                (DeltaOf::Reasoning, text.as_str())
            }
            Chunk::CallArgs { index, json } if self.args.may_show() => {
                (DeltaOf::Arguments(*index), json.as_str())
            }
            _ => return None,
        };
        (!text.is_empty()).then(|| EventKind::Delta {
            of,
            text: text.to_owned(),
        })
    }

    /// The part of a piece that was not displayed before.
    fn new_text<'a>(&mut self, text: &'a str) -> Option<&'a str> {
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
        self.thoughts = self.thoughts.after_attempt();
        self.args = self.args.after_attempt();
    }
}

/// The attempt that displayed something.
#[derive(Clone, Copy, Default)]
enum ShownBy {
    #[default]
    Never,
    ThisAttempt,
    EarlierAttempt,
}

impl ShownBy {
    fn may_show(&mut self) -> bool {
        if matches!(self, Self::EarlierAttempt) {
            return false;
        }
        *self = Self::ThisAttempt;
        true
    }

    fn after_attempt(self) -> Self {
        if matches!(self, Self::Never) {
            Self::Never
        } else {
            Self::EarlierAttempt
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(filter: &mut DeltaFilter, pieces: &[&str]) -> String {
        let mut all = String::new();
        for piece in pieces {
            if let Some(EventKind::Delta { text, .. }) =
                filter.delta(&Chunk::Text((*piece).to_owned()))
            {
                all.push_str(&text);
            }
        }
        all
    }

    #[test]
    fn a_retry_shows_only_new_text() {
        let mut filter = DeltaFilter::default();
        assert_eq!(texts(&mut filter, &["Hel", "lo wo"]), "Hello wo");
        filter.restart();
        assert_eq!(texts(&mut filter, &["H", "ello world", "!"]), "rld!");
    }

    #[test]
    fn a_retry_that_differs_is_not_shown_piece_by_piece() {
        let mut filter = DeltaFilter::default();
        texts(&mut filter, &["Hello"]);
        filter.restart();
        assert_eq!(texts(&mut filter, &["He", "y there"]), "");
    }
}
