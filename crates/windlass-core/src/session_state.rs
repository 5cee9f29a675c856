//! The state of a session, as a list shows it: a fold of the last events of its log.
//!
//! ```
//! use windlass_core::session_state::{SessionState, StateFold};
//!
//! assert_eq!(StateFold::default().state(), SessionState::New);
//! assert_eq!(SessionState::from_word("waiting"), SessionState::Waiting);
//! ```

use std::collections::BTreeSet;

use crate::event::{Event, EventKind};
use crate::id::AskId;
use crate::outcome::RunSummary;

/// The number of events at the end of a log that decide the state: an open ask is among the last events.
pub const STATE_TAIL: u64 = 64;

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionState {
    /// It has had no run.
    New,
    /// A process writes it now.
    Running,
    /// Its run waits for an answer.
    Waiting,
    /// Its run was paused, and any process can resume it.
    Paused,
    /// Its last run has no end, and no process continues it.
    Interrupted,
    /// Its last run ended, with this word of the outcome.
    Finished(String),
    /// It was closed after its last run.
    Closed,
    /// The end of its log cannot be read.
    Damaged,
}

impl SessionState {
    /// The state in one word.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::New => "new",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Interrupted => "interrupted",
            Self::Finished(outcome) => outcome,
            Self::Closed => "closed",
            Self::Damaged => "damaged",
        }
    }

    /// The state that a word names; any other word is the outcome of a run.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        let plain = [
            Self::New,
            Self::Running,
            Self::Waiting,
            Self::Paused,
            Self::Interrupted,
            Self::Closed,
            Self::Damaged,
        ];
        let named = plain.into_iter().find(|state| state.word() == word);
        named.unwrap_or_else(|| Self::Finished(word.to_owned()))
    }
}

/// The fold of the last events. It does not know whether a process writes the session.
#[derive(Debug, Default)]
pub struct StateFold {
    state: Option<SessionState>,
    asks: BTreeSet<AskId>,
}

impl StateFold {
    /// Adds the next event.
    pub fn add(&mut self, event: &Event) {
        let in_run = event.run.is_some();
        match &event.kind {
            EventKind::RunFinished(RunSummary { outcome, .. }) => {
                self.asks.clear();
                self.state = Some(SessionState::Finished(outcome.word().to_owned()));
            }
            EventKind::SessionClosed {} => self.state = Some(SessionState::Closed),
            EventKind::RunStarted { .. } => {
                self.asks.clear();
                self.state = Some(SessionState::Interrupted);
            }
            EventKind::Asked { ask } => {
                self.asks.insert(ask.id.clone());
                self.state = Some(SessionState::Interrupted);
            }
            EventKind::Answered { ask, .. } => drop(self.asks.remove(ask)),
            EventKind::Forked { .. } => {
                self.asks.clear();
                self.end_pause();
            }
            EventKind::Paused { .. } => self.state = Some(SessionState::Paused),
            EventKind::TransactionOpened { .. } if self.state.is_some() => self.end_pause(),
            // Work of a run shows that the run has begun; a note beside runs does not. Of many changes of one call
            // the tail may hold nothing else.
            EventKind::CallStarted { .. } | EventKind::Said { .. } if in_run => {
                self.state = Some(SessionState::Interrupted);
            }
            _ if in_run && self.state.is_none() => self.state = Some(SessionState::Interrupted),
            _ => {}
        }
    }

    /// A process resumed the run, or the pause belongs to another session.
    fn end_pause(&mut self) {
        if self.state == Some(SessionState::Paused) {
            self.state = Some(SessionState::Interrupted);
        }
    }

    /// The state after the events that were added.
    #[must_use]
    pub fn state(self) -> SessionState {
        match self.asks.is_empty() {
            true => self.state.unwrap_or(SessionState::New),
            false => SessionState::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kinds: &[(&str, &str)], word: &str) {
        let mut fold = StateFold::default();
        for (kind, data) in kinds {
            let line = format!(
                r#"{{"v":2,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s","run":"r1","trace":"t","kind":"{kind}","data":{data}}}"#
            );
            fold.add(&serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line}")));
        }
        let state = fold.state();
        assert_eq!(state.word(), word);
        assert_eq!(SessionState::from_word(word), state);
    }

    #[test]
    fn a_paused_run_is_neither_interrupted_nor_waiting() {
        let paused = ("paused", r#"{"reason":"shutdown","run_ms":7}"#);
        let kept = ("kept", r#"{"name":"copy"}"#);
        let opened = (
            "transaction_opened",
            r#"{"isolation":"isolated","strategy":"copy","sandbox":"full","metering":"wire","gate":"per_call","network":"open"}"#,
        );
        let forked = ("forked", r#"{"from":"other","at_seq":3}"#);
        check(&[paused, kept], "paused");
        check(&[paused, kept, opened], "interrupted");
        check(&[paused, kept, forked], "interrupted");
        check(&[opened], "interrupted");
    }
}
