//! Undo and redo: the edits of a text, in groups that the user undoes at once.

use std::collections::VecDeque;

/// Edits that can be undone.
const MAX_EDITS: usize = 20_000;
/// Bytes of all edits that can be undone or redone.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of typed text in one group.
const MAX_GROUP_BYTES: usize = 256;

/// Typed characters are grouped by words, erased ones by runs; every other edit is a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditKind {
    Typed,
    Erased,
    Other,
}

/// A replaced range. The cursor positions are those before and after the edit.
#[derive(Debug, Clone)]
pub(super) struct TextEdit {
    pub(super) at: usize,
    pub(super) removed: String,
    pub(super) inserted: String,
    pub(super) cursor_before: usize,
    pub(super) cursor_after: usize,
    pub(super) kind: EditKind,
    group: u64,
}

impl TextEdit {
    pub(super) fn new(
        at: usize,
        removed: String,
        inserted: String,
        cursors: (usize, usize),
        kind: EditKind,
    ) -> Self {
        Self {
            at,
            removed,
            inserted,
            cursor_before: cursors.0,
            cursor_after: cursors.1,
            kind,
            group: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.removed.len() + self.inserted.len()
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct EditLog {
    done: VecDeque<TextEdit>,
    undone: Vec<TextEdit>,
    bytes: usize,
    next_group: u64,
    /// All edits belong to this group until it is closed.
    open_group: Option<u64>,
    /// The newest group takes no further edits.
    is_sealed: bool,
}

impl EditLog {
    pub(super) fn push(&mut self, mut edit: TextEdit) {
        for undone in self.undone.drain(..) {
            self.bytes = self.bytes.saturating_sub(undone.bytes());
        }
        self.bytes += edit.bytes();
        let may_merge = self.open_group.is_none() && !self.is_sealed;
        if may_merge && self.done.back_mut().is_some_and(|last| merge(last, &edit)) {
            return;
        }
        self.is_sealed = false;
        edit.group = self.open_group.unwrap_or_else(|| self.new_group());
        self.done.push_back(edit);
        while self.done.len() > MAX_EDITS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.done.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
    }

    /// Puts all following edits into one group.
    pub(super) fn open_group(&mut self) {
        if self.open_group.is_none() {
            self.open_group = Some(self.new_group());
        }
    }

    pub(super) fn close_group(&mut self) {
        self.open_group = None;
        self.is_sealed = true;
    }

    /// The edits to revert, newest first.
    pub(super) fn undo(&mut self) -> Vec<TextEdit> {
        self.close_group();
        let mut reverted = Vec::new();
        let Some(group) = self.done.back().map(|edit| edit.group) else {
            return reverted;
        };
        while let Some(edit) = self.done.pop_back_if(|edit| edit.group == group) {
            reverted.push(edit.clone());
            self.undone.push(edit);
        }
        reverted
    }

    /// The edits to repeat, oldest first.
    pub(super) fn redo(&mut self) -> Vec<TextEdit> {
        self.close_group();
        let mut repeated = Vec::new();
        let Some(group) = self.undone.last().map(|edit| edit.group) else {
            return repeated;
        };
        while let Some(edit) = self.undone.pop_if(|edit| edit.group == group) {
            repeated.push(edit.clone());
            self.done.push_back(edit);
        }
        repeated
    }

    fn new_group(&mut self) -> u64 {
        self.next_group += 1;
        self.next_group
    }
}

/// Adds `edit` to `last` if both belong to the same word.
fn merge(last: &mut TextEdit, edit: &TextEdit) -> bool {
    if last.kind != edit.kind
        || last.cursor_after != edit.cursor_before
        || last.bytes() + edit.bytes() > MAX_GROUP_BYTES
    {
        return false;
    }
    match edit.kind {
        EditKind::Typed => {
            let continues = last.removed.is_empty()
                && edit.removed.is_empty()
                && edit.at == last.at + last.inserted.len();
            let begins_word = last.inserted.ends_with(char::is_whitespace)
                && !edit.inserted.starts_with(char::is_whitespace);
            if !continues || begins_word || edit.inserted.contains('\n') {
                return false;
            }
            last.inserted.push_str(&edit.inserted);
        }
        EditKind::Erased => {
            let continues = last.inserted.is_empty()
                && edit.inserted.is_empty()
                && edit.at + edit.removed.len() == last.at;
            if !continues {
                return false;
            }
            last.at = edit.at;
            last.removed.insert_str(0, &edit.removed);
        }
        EditKind::Other => return false,
    }
    last.cursor_after = edit.cursor_after;
    true
}
