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

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::message::Message;
use crate::outcome::{Outcome, RunSummary};

/// A prompt that waits for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueuedPrompt {
    /// The sequence number of its `queued` event.
    pub seq: u64,
    /// The message that the user sent.
    pub prompt: Message,
    /// True if it is meant for the current run.
    pub steer: bool,
}

/// Prompts that wait for a run, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue(Vec<QueuedPrompt>);

impl Queue {
    /// Applies one event. Cancelling also clears the queue.
    pub fn apply(&mut self, seq: u64, kind: &EventKind) {
        match kind {
            EventKind::Queued { prompt, steer } => {
                self.0.push(QueuedPrompt {
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

    /// All prompts that wait, oldest first.
    #[must_use]
    pub fn all(&self) -> &[QueuedPrompt] {
        &self.0
    }

    /// Prompts that are meant for the current run.
    #[must_use]
    pub fn steering(&self) -> Vec<QueuedPrompt> {
        self.0
            .iter()
            .filter(|waiting| waiting.steer)
            .cloned()
            .collect()
    }

    /// The prompt of the next run. A steering prompt whose run has ended also becomes the prompt of a run.
    #[must_use]
    pub fn first(&self) -> Option<&QueuedPrompt> {
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
    fn a_prompt_leaves_the_queue_by_its_sequence_number_and_not_by_its_text() {
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
