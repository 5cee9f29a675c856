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
            EventKind::Forked { .. } => self.asks.clear(),
            // Work of a run shows that the run has begun; a note beside runs does not. Of many changes of one call
            // the tail may hold nothing else.
            EventKind::CallStarted { .. } | EventKind::Said { .. } if in_run => {
                self.state = Some(SessionState::Interrupted);
            }
            _ if in_run && self.state.is_none() => self.state = Some(SessionState::Interrupted),
            _ => {}
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
