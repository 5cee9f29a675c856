//! Limits for the output of an agent in one turn. Its messages are kept in memory.

use windlass_core::message::Part;

const MAX_MESSAGES: u64 = 20_000;
/// Bytes of all messages of one turn.
const MAX_BYTES: usize = 64 << 20;

/// Limits for an incomplete message: its parts, and their bytes.
const MAX_PARTS: usize = 64;
const MAX_WAITING: usize = 1 << 20;

/// Bytes of a part.
pub(crate) fn part_size(part: &Part) -> usize {
    match part {
        Part::Text { text } | Part::Reasoning { text, .. } => text.len(),
        Part::Call(call) => call.id.0.len() + call.name.len() + call.args.to_string().len(),
        Part::Image { data, .. } => data.len(),
        Part::Result(result) => result.text.len(),
    }
}

/// Whether the collected parts must be logged now, because an agent may never complete a message.
pub(crate) fn must_flush(parts: &[Part]) -> bool {
    parts.len() >= MAX_PARTS || parts.iter().map(part_size).sum::<usize>() >= MAX_WAITING
}

/// Counts the messages of a turn and their bytes.
#[derive(Debug, Default)]
pub(crate) struct TurnVolume {
    pub(crate) messages: u64,
    bytes: usize,
}

impl TurnVolume {
    pub(crate) fn add(&mut self, parts: &[Part]) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(parts.iter().map(part_size).sum());
    }

    /// The error text, once a limit is exceeded.
    pub(crate) fn exceeded(&self) -> Option<String> {
        let over = self.messages > MAX_MESSAGES || self.bytes > MAX_BYTES;
        let mib = MAX_BYTES >> 20;
        over.then(|| {
            format!(
                "the agent produced more than {MAX_MESSAGES} messages or {mib} MiB in one turn and was stopped"
            )
        })
    }
}
