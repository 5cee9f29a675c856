//! Prompts that wait for a run, folded from the log.
//!
//! ```
//! use windlass_core::event::EventKind;
//! use windlass_core::flags::SavedFlags;
//! use windlass_core::message::Message;
//! use windlass_core::queue::Queue;
//!
//! let mut queue = Queue::default();
//! let (prompt, flags) = (Message::user("then the docs"), SavedFlags::default());
//! queue.apply(7, &EventKind::Queued { prompt, steer: false, flags, by: None, key: None });
//! assert_eq!(queue.first().map(|waiting| waiting.seq), Some(7));
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::flags::SavedFlags;
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
    /// The flags of the run that it will start.
    #[serde(default, skip_serializing_if = "SavedFlags::is_empty")]
    pub flags: SavedFlags,
    /// The name of the token of the client that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The idempotency key of the request that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Prompts that wait for a run, in the order in which they run: oldest first, unless a user reordered them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue(Vec<QueuedPrompt>);

impl Queue {
    /// Applies one event. Cancelling also clears the queue.
    pub fn apply(&mut self, seq: u64, kind: &EventKind) {
        match kind {
            EventKind::Queued {
                prompt,
                steer,
                flags,
                by,
                key,
            } => {
                self.0.push(QueuedPrompt {
                    seq,
                    prompt: prompt.clone(),
                    steer: *steer,
                    flags: flags.clone(),
                    by: by.clone(),
                    key: key.clone(),
                });
            }
            // Each prompt is moved out of the old list, so a number that is unknown or repeated adds nothing.
            EventKind::QueueChanged { order } => {
                let mut old = std::mem::take(&mut self.0);
                let mut take = |seq: &u64| {
                    let at = old.iter().position(|waiting| waiting.seq == *seq)?;
                    Some(old.remove(at))
                };
                self.0 = order.iter().filter_map(&mut take).collect();
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

    /// All prompts that wait, in the order in which they run.
    #[must_use]
    pub fn all(&self) -> &[QueuedPrompt] {
        &self.0
    }

    /// The first prompt that is meant for the current run.
    #[must_use]
    pub fn first_steering(&self) -> Option<&QueuedPrompt> {
        self.0.iter().find(|waiting| waiting.steer)
    }

    /// Whether the prompt of this `queued` event still waits.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        self.0.iter().any(|waiting| waiting.seq == seq)
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

    fn queued(text: &str, steer: bool) -> EventKind {
        EventKind::Queued {
            prompt: Message::user(text),
            steer,
            flags: SavedFlags::default(),
            by: None,
            key: None,
        }
    }

    fn changed(order: &[u64]) -> EventKind {
        let order = order.to_vec();
        EventKind::QueueChanged { order }
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
    fn a_change_of_the_queue_reorders_and_removes_prompts_and_adds_none() {
        let three = || vec![queued("a", false), queued("b", true), queued("c", false)];
        let then = |more: &[EventKind]| [three(), more.to_vec()].concat();
        check(&then(&[changed(&[3, 1, 2])]), &["c", "a", "b"]);
        check(&then(&[changed(&[3])]), &["c"]);
        check(&then(&[changed(&[])]), &[]);
        check(
            &then(&[started("a", Some(1)), changed(&[2, 1, 3])]),
            &["b", "c"],
        );
        check(&then(&[changed(&[3, 3, 9])]), &["c"]);
        check(
            &then(&[changed(&[3, 1]), queued("d", false)]),
            &["c", "a", "d"],
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
