//! What the log says of a run that has not ended, and of prompts that wait: what somebody who goes on later has to know.
//! Folds of the log like everything else; nothing here is saved elsewhere.
//!
//! ```
//! use windlass_core::event::EventKind;
//! use windlass_core::message::Message;
//! use windlass_core::open_run::Queue;
//!
//! let mut queue = Queue::default();
//! queue.apply(7, &EventKind::Queued { prompt: Message::user("then the docs"), steer: false });
//! assert_eq!(queue.first().map(|waiting| waiting.seq), Some(7));
//! ```

use crate::ask::Ask;
use crate::event::{Event, EventKind};
use crate::flags::SavedFlags;
use crate::message::Message;
use crate::outcome::{Outcome, RunSummary};
use crate::run::Run;

/// A prompt that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The event that told of it.
    pub seq: u64,
    /// The prompt.
    pub prompt: Message,
    /// It is meant for the run that is going.
    pub steer: bool,
}

/// Prompts that wait, in the order they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue(Vec<Waiting>);

impl Queue {
    /// Takes one more event in. Cancelling also clears the queue.
    pub fn apply(&mut self, seq: u64, kind: &EventKind) {
        match kind {
            EventKind::Queued { prompt, steer } => {
                self.0.push(Waiting {
                    seq,
                    prompt: prompt.clone(),
                    steer: *steer,
                });
            }
            EventKind::RunStarted {
                queued: Some(taken),
                ..
            }
            | EventKind::Said {
                queued: Some(taken),
                ..
            } => {
                self.0.retain(|waiting| waiting.seq != *taken);
            }
            EventKind::RunFinished(RunSummary {
                outcome: Outcome::Cancelled,
                ..
            })
            | EventKind::Forked { .. } => {
                self.0.clear();
            }
            _ => {}
        }
    }

    /// What waits.
    #[must_use]
    pub fn all(&self) -> &[Waiting] {
        &self.0
    }

    /// All that is meant for the run that is going.
    #[must_use]
    pub fn steering(&self) -> Vec<Waiting> {
        self.0
            .iter()
            .filter(|waiting| waiting.steer)
            .cloned()
            .collect()
    }

    /// The first of all: what the next run is to do. What was meant for a run that is over comes with the rest.
    #[must_use]
    pub fn first(&self) -> Option<&Waiting> {
        self.0.first()
    }
}

/// What a list and whoever goes on has to know of a session, without its messages: a fold that takes little memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Glance {
    /// Where it works.
    pub workspace: String,
    /// The flags of its last run.
    pub flags: SavedFlags,
    /// The run that has not ended.
    pub open: Option<Run>,
    /// What waits for a person.
    pub asks: Vec<Ask>,
    /// Prompts that wait.
    pub queue: Queue,
    /// The last event.
    pub last_seq: u64,
}

/// Kinds of events that change something in a glance.
const USED: &[&str] = &[
    "session_opened",
    "run_started",
    "run_finished",
    "asked",
    "answered",
    "forked",
    "queued",
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
];

impl Glance {
    /// Whether events of a kind, by its name in the log, change anything here but the last number.
    #[must_use]
    pub fn needs(kind: &str) -> bool {
        USED.contains(&kind)
    }

    /// Takes one more event in.
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
                self.flags.clone_from(flags);
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

    fn queued(text: &str, steer: bool) -> EventKind {
        EventKind::Queued {
            prompt: Message::user(text),
            steer,
        }
    }

    fn started(text: &str, queued: Option<u64>) -> EventKind {
        EventKind::RunStarted {
            prompt: Message::user(text),
            queued,
            flags: SavedFlags::default(),
        }
    }

    fn said(message: Message, queued: Option<u64>) -> EventKind {
        EventKind::Said { message, queued }
    }

    fn finished(outcome: Outcome) -> EventKind {
        EventKind::RunFinished(RunSummary::new(outcome))
    }

    #[track_caller]
    fn check(kinds: &[EventKind], waits: &[&str]) {
        let mut queue = Queue::default();
        for (seq, kind) in (1..).zip(kinds) {
            queue.apply(seq, kind);
        }
        let texts: Vec<String> = queue
            .all()
            .iter()
            .map(|waiting| waiting.prompt.text())
            .collect();
        assert_eq!(texts, waits);
    }

    #[test]
    fn a_prompt_leaves_the_queue_by_its_number_and_not_by_its_words() {
        check(
            &[
                queued("a", false),
                queued("a", false),
                started("a", Some(2)),
            ],
            &["a"],
        );
        check(&[queued("a", false), started("a", None)], &["a"]);
        check(
            &[
                queued("a swordfish", false),
                started("a [redacted]", Some(1)),
            ],
            &[],
        );
        check(
            &[
                queued("left", true),
                said(Message::assistant("left"), None),
                queued("b", false),
            ],
            &["left", "b"],
        );
        check(
            &[
                queued("b", false),
                queued("left", true),
                said(Message::user("left"), Some(2)),
            ],
            &["b"],
        );
        check(
            &[queued("a", false), said(Message::user("a"), None)],
            &["a"],
        );
    }

    #[test]
    fn a_glance_reads_every_kind_that_changes_it() {
        assert_eq!(USED.iter().find(|kind| !EventKind::is_known(kind)), None);
        let mut glance = Glance::default();
        for line in include_str!("../tests/events.jsonl").lines() {
            let event: Event =
                serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
            let mut after = glance.clone();
            after.apply(&event);
            if !Glance::needs(event.kind.name()) {
                let last_seq = after.last_seq;
                assert_eq!(after, Glance { last_seq, ..glance }, "{line}");
            }
            glance = after;
        }
    }

    #[test]
    fn a_cancel_clears_the_queue() {
        check(&[queued("a", false), finished(Outcome::Completed)], &["a"]);
        check(
            &[
                queued("a", false),
                queued("b", true),
                finished(Outcome::Cancelled),
            ],
            &[],
        );
    }
}
