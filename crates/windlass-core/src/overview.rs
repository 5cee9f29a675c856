//! The overview of a session for lists and for resuming it. It is folded from the log and holds no messages.
//!
//! ```
//! use windlass_core::event::Event;
//! use windlass_core::overview::SessionOverview;
//!
//! let line = r#"{"v":2,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"session_opened","data":{"workspace":"/work","runtime":"native","program":"1"}}"#;
//! let event: Event = serde_json::from_str(line).expect("an event");
//! let mut overview = SessionOverview::default();
//! overview.apply(&event);
//! assert_eq!(overview.workspace, "/work");
//! ```

use crate::ask::Ask;
use crate::event::{Event, EventKind};
use crate::flags::SavedFlags;
use crate::queue::Queue;
use crate::run::Run;
use crate::terms::Isolation;

/// The state of a session, without its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionOverview {
    /// The root of the workspace.
    pub workspace: String,
    /// The flags of its last run.
    pub flags: SavedFlags,
    /// Whether the last run worked on an isolated copy.
    pub isolation: Isolation,
    /// The name of the kept run that the last run left.
    pub kept: Option<String>,
    /// The run that has not finished.
    pub open: Option<Run>,
    /// Asks that wait for an answer.
    pub asks: Vec<Ask>,
    /// Prompts that wait for a run.
    pub queue: Queue,
    /// The number of runs, also those that were copied by a fork.
    pub runs: u64,
    /// The sequence number of the last event.
    pub last_seq: u64,
}

/// Kinds of events that change an overview.
const USED: &[&str] = &[
    "session_opened",
    "run_started",
    "run_finished",
    "asked",
    "answered",
    "forked",
    "queued",
    "queue_changed",
    "said",
    "transaction_opened",
    "kept",
    "discarded",
    "iteration_started",
    "iteration_finished",
    "validation_started",
    "validated",
    "judged",
    "landed",
    "run_ending",
    "call_started",
    "denied",
    "paused",
    "rule_broken",
    "not_written",
    "file_changed",
];

impl SessionOverview {
    /// Whether events of a kind, by its name in the log, change anything other than the last sequence number.
    #[must_use]
    pub fn needs(kind: &str) -> bool {
        USED.contains(&kind)
    }

    /// Applies one event. Live events are ignored.
    pub fn apply(&mut self, event: &Event) {
        let Some(seq) = event.order.seq() else { return };
        self.last_seq = seq;
        self.queue.apply(seq, &event.kind);
        if let Some(open) = &mut self.open {
            open.apply(event);
        }
        match &event.kind {
            EventKind::SessionOpened { workspace, .. } => self.workspace.clone_from(workspace),
            EventKind::RunStarted { prompt, flags, .. } => {
                self.runs += 1;
                self.flags.clone_from(flags);
                self.kept = None;
                self.asks.clear();
                self.open = event
                    .run
                    .clone()
                    .map(|id| Run::new(id, prompt.clone(), flags.clone()));
            }
            EventKind::RunFinished(_) => {
                self.open = None;
                self.asks.clear();
            }
            EventKind::TransactionOpened { terms, .. } => self.isolation = terms.isolation,
            EventKind::Kept { name } => self.kept = Some(name.clone()),
            EventKind::Landed { .. } | EventKind::Discarded { .. } => self.kept = None,
            EventKind::Asked { ask } => self.asks.push(ask.clone()),
            EventKind::Answered { ask, .. } => self.asks.retain(|open| open.id != *ask),
            EventKind::Forked { .. } => self.asks.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_changes_the_overview_is_listed() {
        assert_eq!(USED.iter().find(|kind| !EventKind::is_known(kind)), None);
        let mut overview = SessionOverview::default();
        for line in include_str!("../tests/events.jsonl").lines() {
            let event: Event =
                serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
            let mut after = overview.clone();
            after.apply(&event);
            if !SessionOverview::needs(event.kind.name()) {
                let last_seq = after.last_seq;
                assert_eq!(
                    after,
                    SessionOverview {
                        last_seq,
                        ..overview
                    },
                    "{line}"
                );
            }
            overview = after;
        }
    }
}
