//! The text of the composer with its cursor, which is always between two grapheme clusters.
//!
//! All changes go through [`TextBuffer::replace`]; nothing else changes the text. Positions are bytes.

use std::ops::Range;

use super::edit_log::{EditKind, EditLog, TextEdit};
use super::folds::{FoldedText, PasteFolds, clean, is_allowed, is_mark};
use super::kill_ring::KillRing;
use super::rows::{RowLayout, TextRow, boundary_at, next_boundary, prev_boundary};

/// Bytes of the text, without folded pastes.
pub(super) const MAX_TEXT: usize = 16 << 20;

/// An editable text of several lines with undo, a kill ring and movement by rows of the screen.
#[derive(Debug, Clone, Default)]
pub struct TextBuffer {
    pub(super) text: String,
    pub(super) cursor: usize,
    pub(super) folds: PasteFolds,
    pub(super) kills: KillRing,
    pub(super) layout: RowLayout,
    edits: EditLog,
    /// Counts changes of the text.
    version: u64,
    /// The column that moving up and down keeps, valid for one cursor position.
    goal_column: Option<(usize, usize)>,
}

impl TextBuffer {
    /// The text, in which folded pastes are single characters.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The cursor, in bytes.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Whether there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// A number that changes with every change of the text.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Replaces everything by `text`, as an edit that can be undone.
    pub fn set_text(&mut self, text: String) {
        let text = clean(text);
        self.close_group();
        self.replace(0..self.text.len(), &text, EditKind::Other);
        self.move_to(self.text.len());
    }

    /// Types one character; a control character is ignored.
    pub fn insert_char(&mut self, c: char) {
        if is_allowed(c) {
            let mut bytes = [0; 4];
            let typed = c.encode_utf8(&mut bytes);
            self.replace(self.cursor..self.cursor, typed, EditKind::Typed);
        }
    }

    /// Inserts a text as one edit. Control characters are lost.
    pub fn insert_text(&mut self, text: String) {
        let text = clean(text);
        self.replace(self.cursor..self.cursor, &text, EditKind::Other);
    }

    /// Deletes the cluster before the cursor.
    pub fn delete_backward(&mut self) {
        let start = prev_boundary(&self.text, self.cursor);
        self.replace(start..self.cursor, "", EditKind::Erased);
    }

    /// Deletes the cluster after the cursor.
    pub fn delete_forward(&mut self) {
        let end = next_boundary(&self.text, self.cursor);
        self.replace(self.cursor..end, "", EditKind::Other);
    }

    /// Exchanges the clusters before and after the cursor and moves behind both. At the end of a line, it exchanges the
    /// last two.
    pub fn transpose(&mut self) {
        let at_end =
            self.text[self.cursor..].is_empty() || self.text[self.cursor..].starts_with('\n');
        let middle = if at_end {
            prev_boundary(&self.text, self.cursor)
        } else {
            self.cursor
        };
        let start = prev_boundary(&self.text, middle);
        let end = next_boundary(&self.text, middle);
        if start == middle || middle == end || self.text[start..end].contains('\n') {
            return;
        }
        let exchanged = [&self.text[middle..end], &self.text[start..middle]].concat();
        self.replace(start..end, &exchanged, EditKind::Other);
    }

    /// Reverts the newest group of edits. Returns whether there was one.
    pub fn undo(&mut self) -> bool {
        let reverted = self.edits.undo();
        for edit in &reverted {
            let range = edit.at..edit.at + edit.inserted.len();
            self.text.replace_range(range, &edit.removed);
            self.cursor = edit.cursor_before;
        }
        self.changed();
        !reverted.is_empty()
    }

    /// Repeats the newest reverted group of edits. Returns whether there was one.
    pub fn redo(&mut self) -> bool {
        let repeated = self.edits.redo();
        for edit in &repeated {
            let range = edit.at..edit.at + edit.removed.len();
            self.text.replace_range(range, &edit.inserted);
            self.cursor = edit.cursor_after;
        }
        self.changed();
        !repeated.is_empty()
    }

    /// Makes one undo step of all edits until [`Self::close_group`].
    pub(super) fn open_group(&mut self) {
        self.edits.open_group();
    }

    pub(super) fn close_group(&mut self) {
        self.edits.close_group();
    }

    /// Forgets the text, its undo steps and its pastes. The kill ring stays.
    pub(super) fn reset(&mut self) {
        let mut kills = std::mem::take(&mut self.kills);
        kills.unfold(&self.folds);
        let layout = std::mem::take(&mut self.layout);
        let version = self.version;
        *self = Self {
            kills,
            layout,
            version,
            ..Self::default()
        };
        self.changed();
    }

    /// Inserts a paste as one character that stands for all of it. Returns whether the limit allowed it.
    pub(super) fn insert_fold(&mut self, content: String) -> bool {
        let Some(mark) = self.folds.add(content) else {
            return false;
        };
        let mut bytes = [0; 4];
        let mark = mark.encode_utf8(&mut bytes);
        self.replace(self.cursor..self.cursor, mark, EditKind::Other);
        true
    }

    /// Replaces the folded paste at or before the cursor, or the last one, by its content.
    pub(super) fn unfold(&mut self) -> bool {
        let after = self.text[self.cursor..].chars().next();
        let before = self.text[..self.cursor].char_indices().next_back();
        let found = match (after, before) {
            (Some(mark), _) if is_mark(mark) => Some((self.cursor, mark)),
            (_, Some((at, mark))) if is_mark(mark) => Some((at, mark)),
            _ => self.text.char_indices().rfind(|(_, c)| is_mark(*c)),
        };
        let Some((at, mark)) = found else {
            return false;
        };
        let Some(content) = self.folds.content(mark).map(str::to_owned) else {
            return false;
        };
        self.replace(at..at + mark.len_utf8(), &content, EditKind::Other);
        true
    }

    /// Replaces the text by a stored one, as an edit that can be undone.
    pub(super) fn set_folded(&mut self, stored: &FoldedText) {
        let text = self.folds.import(stored);
        self.close_group();
        self.replace(0..self.text.len(), &text, EditKind::Other);
        self.move_to(self.text.len());
    }

    pub(super) fn folded(&self) -> FoldedText {
        self.folds.export(&self.text)
    }

    /// Replaces a range, moves the cursor behind the new text and records the edit. The range is cut to the text and
    /// widened to characters; a text above the limit stays as it is.
    pub(super) fn replace(&mut self, range: Range<usize>, new: &str, kind: EditKind) {
        let end = range.end.min(self.text.len());
        let start = range.start.min(end);
        if (start == end && new.is_empty())
            || !self.text.is_char_boundary(start)
            || !self.text.is_char_boundary(end)
            || self.text.len() - (end - start) + new.len() > MAX_TEXT
        {
            return;
        }
        let removed = self.text[start..end].to_owned();
        self.text.replace_range(start..end, new);
        let before = self.cursor;
        // A combining character after the edit can belong to the new text.
        self.cursor = boundary_at(&self.text, start + new.len());
        let cursors = (before, self.cursor);
        let edit = TextEdit::new(start, removed, new.to_owned(), cursors, kind);
        self.edits.push(edit);
        self.changed();
    }

    /// Moves the cursor to the boundary at or after `pos`.
    pub(super) fn move_to(&mut self, pos: usize) {
        self.cursor = boundary_at(&self.text, pos);
    }

    /// Moves to the row above and keeps the column. Returns whether there is one.
    pub fn move_up(&mut self) -> bool {
        let row = self.cursor_row();
        let target = self.layout.prev_row(&self.text, &self.folds, row);
        self.move_to_row(row, target)
    }

    /// Moves to the row below and keeps the column. Returns whether there is one.
    pub fn move_down(&mut self) -> bool {
        let row = self.cursor_row();
        let target = self.layout.next_row(&self.text, &self.folds, row);
        self.move_to_row(row, target)
    }

    pub(super) fn cursor_row(&mut self) -> TextRow {
        self.layout.row_at(&self.text, &self.folds, self.cursor)
    }

    fn move_to_row(&mut self, row: TextRow, target: Option<TextRow>) -> bool {
        let goal = match self.goal_column {
            Some((cursor, goal)) if cursor == self.cursor => goal,
            _ => self
                .layout
                .column_of(&self.text, &self.folds, row, self.cursor),
        };
        let Some(target) = target else {
            return false;
        };
        self.cursor = self
            .layout
            .position_at(&self.text, &self.folds, target, goal);
        self.goal_column = Some((self.cursor, goal));
        true
    }

    fn changed(&mut self) {
        self.version += 1;
        self.layout.invalidate();
        self.goal_column = None;
    }
}
