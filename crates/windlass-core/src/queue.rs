//! Prompts that wait for a run, folded from the log.
//!
//! ```
//! use windlass_core::event::EventKind;
//! use windlass_core::message::Message;
//! use windlass_core::queue::Queue;
//!
//! let mut queue = Queue::default();
//! queue.apply(7, &EventKind::Queued { prompt: Message::user("then the docs"), steer: false });
//! assert_eq!(queue.first().map(|waiting| waiting.seq), Some(7));
//! ```

use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::message::Message;
use crate::outcome::{Outcome, RunSummary};

/// A prompt that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The event that told of it.
    pub seq: u64,
    /// The prompt.
    pub prompt: Message,
    /// It is meant for the run that is going.
    pub steer: bool,
}

/// Prompts that wait, in the order they came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

    /// All prompts that wait.
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

    /// The prompt of the next run. Prompts that were meant for a run that is over are included.
    #[must_use]
    pub fn first(&self) -> Option<&Waiting> {
        self.0.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::SavedFlags;

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
