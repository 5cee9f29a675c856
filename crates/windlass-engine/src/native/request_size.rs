//! Estimates the size of a request. Only new messages are counted, and the counts that the vendor reports correct the
//! estimate.

use std::collections::HashSet;

use serde_json::Value;
use windlass_core::budget::Estimator;
use windlass_core::history::Entry;
use windlass_core::id::CallId;
use windlass_core::message::Role;
use windlass_core::tool::ToolSet;

/// The approximate size of the tool descriptions in a request, in bytes.
pub(crate) fn tool_bytes(tools: &ToolSet) -> usize {
    tools
        .iter()
        .map(|tool| tool.spec().description.len() + json_bytes(&tool.spec().schema) + 64)
        .sum()
}

/// The approximate length of a value as JSON. It is counted without serializing, because every start needs it.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_bytes(item) + 1).sum::<usize>(),
        Value::Object(map) => {
            2 + map
                .iter()
                .map(|(name, value)| name.len() + 4 + json_bytes(value))
                .sum::<usize>()
        }
    }
}

/// Counts the bytes of a request without walking the whole history at every step.
pub(super) struct RequestSize {
    pub(super) estimator: Estimator,
    /// Bytes of the system prompt and the tools.
    pub(super) base: usize,
    counted: usize,
    bytes: usize,
    /// Ids of all calls so far. Vendors require unique ids.
    pub(super) calls: HashSet<CallId>,
}

impl RequestSize {
    pub(super) fn new(base: usize) -> Self {
        Self {
            estimator: Estimator::default(),
            base,
            counted: 0,
            bytes: 0,
            calls: HashSet::new(),
        }
    }

    pub(super) fn bytes(&mut self, history: &[Entry]) -> usize {
        for entry in &history[self.counted..] {
            self.bytes += entry.bytes();
            self.calls.extend(entry.calls().map(|call| call.id.clone()));
        }
        self.counted = history.len();
        self.base + self.bytes
    }

    /// Forgets the count, because a compaction changed the messages.
    pub(super) fn recount(&mut self) {
        (self.counted, self.bytes) = (0, 0);
    }

    /// Corrects the estimate of a resumed session with the reported input of its last call. That input was everything before
    /// the last answer.
    pub(super) fn seed(&mut self, reported: u64, history: &[Entry]) {
        let answer = history.iter().rposition(|one| one.role == Role::Assistant);
        let sent = &history[..answer.unwrap_or(0)];
        let bytes = self.base + sent.iter().map(Entry::bytes).sum::<usize>();
        let mut learned = self.estimator;
        learned.correct(bytes, reported);
        // Until the first report of this run, the higher estimate is the safe one.
        if !sent.is_empty() && learned.tokens(bytes) > self.estimator.tokens(bytes) {
            self.estimator = learned;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::message::Message;

    #[test]
    fn a_resumed_session_estimates_as_it_learned_before() {
        let said = |role| Message {
            role,
            ..Message::user("word ".repeat(1_000))
        };
        let history = [Role::User, Role::Assistant, Role::User].map(|role| Entry::new(said(role)));
        let mut seeded = RequestSize::new(1_000);
        seeded.seed(5_000, &history);
        let bytes = 1_000 + history[0].bytes();
        let learned = seeded.estimator.tokens(bytes);
        assert!((5_000..6_000).contains(&learned), "{learned}");
        let mut cheap = RequestSize::new(1_000);
        cheap.seed(10, &history);
        assert_eq!(
            cheap.estimator.tokens(bytes),
            Estimator::default().tokens(bytes)
        );
    }
}
