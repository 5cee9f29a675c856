//! The kill ring: texts that were cut, newest first, and the commands that fill and insert them.

use std::collections::VecDeque;
use std::ops::Range;

use super::edit_log::EditKind;
use super::folds::{PasteFolds, has_mark};
use super::text_buffer::TextBuffer;

/// Entries of the ring.
const MAX_KILLS: usize = 60;
/// Bytes of all entries.
const MAX_KILL_BYTES: usize = 32 << 20;
/// Bytes of an entry that is kept in full after its folded pastes are gone.
const MAX_UNFOLDED: usize = 1 << 20;

/// The last command, valid while neither the text nor the cursor changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastKillCommand {
    version: u64,
    cursor: usize,
    /// The inserted range and the index of its entry, if the command was a yank.
    yank: Option<(usize, usize)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct KillRing {
    entries: VecDeque<String>,
    last: Option<LastKillCommand>,
}

impl KillRing {
    /// Puts the contents of pastes in the place of marks, before the pastes are dropped.
    pub(super) fn unfold(&mut self, folds: &PasteFolds) {
        self.last = None;
        self.entries
            .retain(|entry| folds.expanded_size(entry) <= MAX_UNFOLDED || !has_mark(entry));
        for entry in &mut self.entries {
            if has_mark(entry) {
                *entry = folds.expanded(entry);
            }
        }
    }
}

impl TextBuffer {
    /// Cuts a range into the kill ring. Consecutive cuts become one entry.
    pub(super) fn kill(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let Some(cut) = self.text().get(range.clone()).map(str::to_owned) else {
            return;
        };
        let continues = self
            .last_kill_command()
            .is_some_and(|last| last.yank.is_none());
        let is_backward = range.end == self.cursor() && range.start < self.cursor();
        self.replace(range, "", EditKind::Other);
        let entries = &mut self.kills.entries;
        match entries.front_mut() {
            Some(front) if continues && is_backward => front.insert_str(0, &cut),
            Some(front) if continues => front.push_str(&cut),
            _ => entries.push_front(cut),
        }
        while entries.len() > 1
            && (entries.len() > MAX_KILLS
                || entries.iter().map(String::len).sum::<usize>() > MAX_KILL_BYTES)
        {
            entries.pop_back();
        }
        self.remember_kill_command(None);
    }

    /// Inserts the newest cut text.
    pub(super) fn yank(&mut self) {
        let Some(text) = self.kills.entries.front().cloned() else {
            return;
        };
        let start = self.cursor();
        self.replace(start..start, &text, EditKind::Other);
        self.remember_kill_command(Some((start, 0)));
    }

    /// Replaces the text that was just inserted by the next older cut text.
    pub(super) fn yank_pop(&mut self) {
        let Some((start, index)) = self.last_kill_command().and_then(|last| last.yank) else {
            return;
        };
        let next = (index + 1) % self.kills.entries.len().max(1);
        let Some(text) = self.kills.entries.get(next).cloned() else {
            return;
        };
        self.replace(start..self.cursor(), &text, EditKind::Other);
        self.remember_kill_command(Some((start, next)));
    }

    fn last_kill_command(&self) -> Option<LastKillCommand> {
        self.kills
            .last
            .filter(|last| last.version == self.version() && last.cursor == self.cursor())
    }

    fn remember_kill_command(&mut self, yank: Option<(usize, usize)>) {
        self.kills.last = Some(LastKillCommand {
            version: self.version(),
            cursor: self.cursor(),
            yank,
        });
    }
}
