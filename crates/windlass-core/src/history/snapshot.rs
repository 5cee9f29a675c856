//! Snapshots of a history, so that a long session can be resumed without folding its whole log. A snapshot is a cache:
//! the store checks that it matches the log, and without one the whole log is folded.

use std::io::{self, Read, Write};

use super::History;

/// Increment this when folding the same events gives a different state. Snapshots of other versions are ignored.
const FOLD_VERSION: u32 = 2;

impl History {
    /// Whether a snapshot can be taken: no run, call or ask is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.run.is_none() && self.open.is_empty() && self.later.is_empty() && self.asks.is_empty()
    }

    /// Writes a snapshot. It is an error if the history is not idle.
    pub fn save(&self, to: &mut dyn Write) -> io::Result<()> {
        if !self.is_idle() {
            return Err(io::Error::other("a run is open"));
        }
        Ok(serde_json::to_writer(to, &(FOLD_VERSION, self))?)
    }

    /// Reads a snapshot; `None` if it is invalid or another version wrote it.
    #[must_use]
    pub fn restore(from: &mut dyn Read) -> Option<Self> {
        let mut text = io::BufReader::with_capacity(1 << 16, from);
        let (version, history): (u32, Self) = serde_json::from_reader(&mut text).ok()?;
        (version == FOLD_VERSION).then_some(history)
    }
}
