//! How much an agent may say in one turn: its messages are kept, so somebody has to end them.

use windlass_core::message::Part;

/// Messages of one turn.
const MAX_MESSAGES: u64 = 20_000;
/// Bytes of them.
const MAX_BYTES: usize = 64 << 20;

/// Parts of one message, and bytes of them, that wait for the others.
const MAX_PARTS: usize = 64;
const MAX_WAITING: usize = 1 << 20;

/// How much a part is.
pub(crate) fn weigh(part: &Part) -> usize {
    match part {
        Part::Text { text } | Part::Reasoning { text, .. } => text.len(),
        Part::Call(call) => call.id.0.len() + call.name.len() + call.args.to_string().len(),
        Part::Image { data, .. } => data.len(),
        Part::Result(result) => result.text.len(),
    }
}

/// Whether parts that wait for others are said now: nobody has to end a message.
pub(crate) fn waits_no_more(parts: &[Part]) -> bool {
    parts.len() >= MAX_PARTS || parts.iter().map(weigh).sum::<usize>() >= MAX_WAITING
}

/// Counts what was said.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) messages: u64,
    bytes: usize,
}

impl Said {
    /// One more message.
    pub(crate) fn add(&mut self, parts: &[Part]) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(parts.iter().map(weigh).sum());
    }

    /// Why it has to end, when it has.
    pub(crate) fn too_much(&self) -> Option<String> {
        let over = self.messages > MAX_MESSAGES || self.bytes > MAX_BYTES;
        let mib = MAX_BYTES >> 20;
        over.then(|| {
            format!(
                "it said more than {MAX_MESSAGES} messages or {mib} MiB in one turn, and was ended"
            )
        })
    }
}
