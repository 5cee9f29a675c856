//! The dispatch of keys: to the search, the completion list, vi or the table of keys.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::completion::{CompletionEdit, CompletionKind};
use super::edit_log::EditKind;
use super::folds::{FoldedText, clean};
use super::history::HistoryDirection;
use super::keys::{ComposerAction, action_of};
use super::motions::{big_word_backward, line_end, line_start, word_backward, word_forward};
use super::rows::{next_boundary, prev_boundary};
use super::submission::{SubmissionError, parse};
use super::vi::{ViMode, ViOutcome};
use super::{Composer, ComposerOutcome, TOO_LARGE};

/// Rows that page keys move in the completion list.
const POPUP_PAGE: isize = 8;
/// Bytes of a submitted text.
const MAX_SUBMITTED: usize = 64 << 20;

impl Composer {
    /// Handles a key. Releases of keys are ignored.
    pub fn key(&mut self, key: KeyEvent) -> ComposerOutcome {
        if key.kind == KeyEventKind::Release {
            return ComposerOutcome::Ignored;
        }
        let had_notice = self.notice.take().is_some();
        if self.search.is_some() {
            return self.search_key(key);
        }
        if self.popup_key(key) {
            return ComposerOutcome::Handled;
        }
        let before = (self.buffer.version(), self.buffer.cursor());
        let recalled = self.recalled;
        let mut outcome = self.text_key(key);
        if had_notice && key.code == KeyCode::Esc && outcome == ComposerOutcome::Ignored {
            // Esc closes the notice only; the application may stop a run with Esc.
            outcome = ComposerOutcome::Handled;
        }
        if let Some(vi) = &self.vi {
            vi.clamp(&mut self.buffer);
        }
        let has_changed = before != (self.buffer.version(), self.buffer.cursor());
        let is_recall = self.recalled != recalled;
        if has_changed && !is_recall && outcome == ComposerOutcome::Handled {
            self.refresh_completion(false);
        }
        outcome
    }

    /// Handles the keys of an open list. Returns whether the key is one of them.
    fn popup_key(&mut self, key: KeyEvent) -> bool {
        if !self.completion.is_open() {
            return false;
        }
        match (key.code, action_of(key)) {
            (_, Some(ComposerAction::Up | ComposerAction::HistoryPrevious)) => {
                self.completion.select(-1);
            }
            (_, Some(ComposerAction::Down | ComposerAction::HistoryNext)) => {
                self.completion.select(1);
            }
            (KeyCode::PageUp, _) => self.completion.select(-POPUP_PAGE),
            (KeyCode::PageDown, _) => self.completion.select(POPUP_PAGE),
            (_, Some(ComposerAction::Escape)) => self.completion.close(true),
            _ => return false,
        }
        true
    }

    fn text_key(&mut self, key: KeyEvent) -> ComposerOutcome {
        let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        let action = action_of(key);
        if let Some(vi) = &mut self.vi
            && vi.mode() == ViMode::Normal
        {
            let command = match key.code {
                KeyCode::Char(c) if plain => Some(c),
                KeyCode::Backspace if plain => Some('h'),
                KeyCode::Delete if plain => Some('x'),
                _ => None,
            };
            if let Some(command) = command {
                let outcome = vi.key(command, &mut self.buffer);
                return self.vi_outcome(outcome);
            }
            if action == Some(ComposerAction::HistorySearch) {
                vi.cancel();
                self.buffer.redo();
                return ComposerOutcome::Handled;
            }
            if action != Some(ComposerAction::Escape) {
                vi.cancel();
            }
        }
        if let Some(action) = action {
            return self.act(action);
        }
        match key.code {
            KeyCode::Char(c) if plain => {
                self.buffer.insert_char(c);
                ComposerOutcome::Handled
            }
            _ => ComposerOutcome::Ignored,
        }
    }

    fn vi_outcome(&mut self, outcome: ViOutcome) -> ComposerOutcome {
        match outcome {
            ViOutcome::Ignored => return ComposerOutcome::Ignored,
            ViOutcome::Handled => {}
            ViOutcome::HistoryOlder => {
                self.browse(HistoryDirection::Older, "");
            }
            ViOutcome::HistoryNewer => {
                self.browse(HistoryDirection::Newer, "");
            }
        }
        ComposerOutcome::Handled
    }

    fn act(&mut self, action: ComposerAction) -> ComposerOutcome {
        match action {
            ComposerAction::Submit => return self.enter(),
            ComposerAction::Complete => return self.complete(),
            ComposerAction::Escape => return self.escape(),
            ComposerAction::Interrupt => return self.interrupt(),
            ComposerAction::OpenEditor => return self.open_editor(),
            ComposerAction::DeleteOrQuit if self.buffer.is_empty() => return ComposerOutcome::Quit,
            ComposerAction::Up => self.up(),
            ComposerAction::Down => self.down(),
            ComposerAction::HistoryPrevious => {
                self.browse(HistoryDirection::Older, "");
            }
            ComposerAction::HistoryNext => {
                self.browse(HistoryDirection::Newer, "");
            }
            ComposerAction::HistoryPrefix => {
                let prefix = self.buffer.text()[..self.buffer.cursor()].to_owned();
                self.browse(HistoryDirection::Older, &prefix);
            }
            ComposerAction::HistorySearch => self.start_search(),
            ComposerAction::Unfold => {
                if !self.buffer.unfold() {
                    self.notice = Some("there is no folded paste".to_owned());
                }
            }
            _ => self.edit(action),
        }
        ComposerOutcome::Handled
    }

    /// The actions that change only the text or the cursor.
    fn edit(&mut self, action: ComposerAction) {
        let buffer = &mut self.buffer;
        let (text, cursor) = (buffer.text(), buffer.cursor());
        match action {
            ComposerAction::LineBreak => buffer.replace(cursor..cursor, "\n", EditKind::Other),
            ComposerAction::Left => buffer.move_to(prev_boundary(text, cursor)),
            ComposerAction::Right => buffer.move_to(next_boundary(text, cursor)),
            ComposerAction::WordLeft => buffer.move_to(word_backward(text, cursor)),
            ComposerAction::WordRight => buffer.move_to(word_forward(text, cursor)),
            ComposerAction::LineStart => buffer.move_to(line_start(text, cursor)),
            ComposerAction::LineEnd => buffer.move_to(line_end(text, cursor)),
            ComposerAction::TextStart => buffer.move_to(0),
            ComposerAction::TextEnd => buffer.move_to(text.len()),
            ComposerAction::DeleteBackward => buffer.delete_backward(),
            ComposerAction::DeleteForward | ComposerAction::DeleteOrQuit => buffer.delete_forward(),
            ComposerAction::KillWordBackward => buffer.kill(word_backward(text, cursor)..cursor),
            ComposerAction::KillBigWordBackward => {
                buffer.kill(big_word_backward(text, cursor)..cursor);
            }
            ComposerAction::KillWordForward => buffer.kill(cursor..word_forward(text, cursor)),
            ComposerAction::KillToLineEnd => {
                // At the end of a line, the line break is cut.
                let end = line_end(text, cursor).max(next_boundary(text, cursor));
                let end = if line_end(text, cursor) > cursor {
                    line_end(text, cursor)
                } else {
                    end
                };
                buffer.kill(cursor..end);
            }
            ComposerAction::KillToLineStart => {
                let start = line_start(text, cursor);
                let start = if start == cursor {
                    prev_boundary(text, cursor)
                } else {
                    start
                };
                buffer.kill(start..cursor);
            }
            ComposerAction::Yank => buffer.yank(),
            ComposerAction::YankPop => buffer.yank_pop(),
            ComposerAction::Transpose => buffer.transpose(),
            ComposerAction::Undo => {
                buffer.undo();
            }
            ComposerAction::Redo => {
                buffer.redo();
            }
            _ => {}
        }
    }

    fn enter(&mut self) -> ComposerOutcome {
        if let Some(edit) = self.chosen_by_enter() {
            let submits = edit.is_complete && edit.kind != CompletionKind::Files;
            self.accept(&edit);
            if !submits {
                return ComposerOutcome::Handled;
            }
        }
        let (text, cursor) = (self.buffer.text(), self.buffer.cursor());
        if cursor == text.len() && text.ends_with('\\') {
            self.buffer
                .replace(cursor - 1..cursor, "\n", EditKind::Other);
            return ComposerOutcome::Handled;
        }
        self.submit()
    }

    /// The item that Enter accepts. A command or file that is typed in full, and an argument that the user did not
    /// choose from the list, are submitted as they are.
    fn chosen_by_enter(&mut self) -> Option<CompletionEdit> {
        let edit = self.completion.selected_edit()?;
        let takes_item = match edit.kind {
            CompletionKind::Files => {
                let typed = self.buffer.text().get(edit.range.clone());
                self.completion.was_moved() || typed != Some(edit.text.trim_end())
            }
            CompletionKind::Arguments => self.completion.was_moved(),
            CompletionKind::Commands => {
                let typed = self.buffer.text().trim_start_matches('/');
                let mut commands = self.completion.commands.iter();
                self.completion.was_moved() || !commands.any(|command| command.name == typed)
            }
        };
        takes_item.then_some(edit)
    }

    fn complete(&mut self) -> ComposerOutcome {
        if let Some(edit) = self.completion.selected_edit() {
            self.accept(&edit);
            return ComposerOutcome::Handled;
        }
        self.refresh_completion(true);
        if self.completion.is_open() {
            ComposerOutcome::Handled
        } else {
            ComposerOutcome::Ignored
        }
    }

    fn accept(&mut self, edit: &CompletionEdit) {
        self.buffer.replace(
            edit.range.clone(),
            &clean(edit.text.clone()),
            EditKind::Other,
        );
        if edit.is_complete && edit.kind == CompletionKind::Commands {
            self.completion.close(true);
        } else {
            self.refresh_completion(true);
        }
    }

    fn escape(&mut self) -> ComposerOutcome {
        if let Some(vi) = &mut self.vi
            && vi.escape(&mut self.buffer)
        {
            return ComposerOutcome::Handled;
        }
        ComposerOutcome::Ignored
    }

    fn open_editor(&mut self) -> ComposerOutcome {
        if self.is_too_large() {
            return ComposerOutcome::Handled;
        }
        ComposerOutcome::OpenEditor(self.text())
    }

    /// Whether the text with all pastes is above the limit, which pastes that occur often can cause. Tells the user.
    fn is_too_large(&mut self) -> bool {
        let size = self.buffer.folds.expanded_size(self.buffer.text());
        if size > MAX_SUBMITTED {
            self.notice = Some(TOO_LARGE.to_owned());
        }
        size > MAX_SUBMITTED
    }

    fn interrupt(&mut self) -> ComposerOutcome {
        if self.buffer.is_empty() {
            return ComposerOutcome::Interrupt;
        }
        let folded = self.buffer.folded();
        self.remember(folded);
        self.buffer.set_text(String::new());
        self.recalled = None;
        self.completion.close(false);
        if let Some(vi) = &mut self.vi {
            vi.reset();
        }
        ComposerOutcome::Cleared
    }

    fn submit(&mut self) -> ComposerOutcome {
        if self.is_too_large() {
            return ComposerOutcome::Handled;
        }
        let folded = self.buffer.folded();
        let shown = self.buffer.folds.labelled(self.buffer.text());
        let names = self.completion.commands.iter();
        let names = names.map(|command| command.name.as_str());
        match parse(&folded, shown, names) {
            Ok(submission) => {
                self.remember(folded);
                if let Some(vi) = &mut self.vi {
                    vi.reset();
                    vi.unfold(&self.buffer.folds);
                }
                self.buffer.reset();
                self.top = 0;
                self.recalled = None;
                self.completion.close(false);
                // A crash after this must not bring the submitted text back as a draft.
                if let Err(err) = self.flush_draft(Instant::now()) {
                    self.notice = Some(format!("the draft could not be removed: {err}"));
                }
                ComposerOutcome::Submit(submission)
            }
            Err(SubmissionError::Empty) => ComposerOutcome::Handled,
            Err(SubmissionError::Invalid(reason)) => {
                self.notice = Some(reason);
                ComposerOutcome::Handled
            }
        }
    }

    /// Adds a text to the history.
    fn remember(&mut self, folded: FoldedText) {
        if let Err(err) = self.history.add(folded) {
            self.notice = Some(format!("the history could not be written: {err}"));
        }
    }
}
