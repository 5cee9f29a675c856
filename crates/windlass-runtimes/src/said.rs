//! How much an agent may say in one turn: its messages are kept, so somebody has to end them.

use windlass_core::message::Part;

/// Messages of one turn.
const MAX_MESSAGES: u64 = 20_000;
/// Bytes of them.
const MAX_BYTES: usize = 64 << 20;

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
        let bytes = parts.iter().map(|part| match part {
            Part::Text { text } | Part::Reasoning { text, .. } => text.len(),
            Part::Call(call) => call.args.to_string().len(),
            Part::Image { data, .. } => data.len(),
            Part::Result(result) => result.text.len(),
        });
        self.bytes = self.bytes.saturating_add(bytes.sum());
    }

    /// Why it has to end, when it has.
    pub(crate) fn too_much(&self) -> Option<String> {
        let over = self.messages > MAX_MESSAGES || self.bytes > MAX_BYTES;
        let mib = MAX_BYTES >> 20;
        over.then(|| format!("it said more than {MAX_MESSAGES} messages or {mib} MiB in one turn, and was ended"))
    }
}
