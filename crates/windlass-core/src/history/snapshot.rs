//! A history as bytes, so that a long session can be resumed without folding its whole log. A snapshot is a copy of what
//! the log says and never a second truth: the store checks that it fits the log, and without it everything is folded.

use std::io::{self, Read, Write};

use super::History;

/// Raised when a fold of the same events gives something else than before. Snapshots of other versions are not used.
const FOLD_VERSION: u32 = 1;

impl History {
    /// Whether a snapshot can be taken: no run, call or ask is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.run.is_none() && self.open.is_empty() && self.later.is_empty() && self.asks.is_empty()
    }

    /// Writes a snapshot. The history must be idle.
    pub fn save(&self, to: &mut dyn Write) -> io::Result<()> {
        if !self.is_idle() {
            return Err(io::Error::other("a run is open"));
        }
        Ok(serde_json::to_writer(to, &(FOLD_VERSION, self))?)
    }

    /// Reads a snapshot; `None` when another version wrote it.
    #[must_use]
    pub fn restore(from: &mut dyn Read) -> Option<Self> {
        let mut text = io::BufReader::with_capacity(1 << 16, from);
        let (version, history): (u32, Self) = serde_json::from_reader(&mut text).ok()?;
        (version == FOLD_VERSION).then_some(history)
    }
}
