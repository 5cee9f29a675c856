//! The optional vi mode: normal mode with counts, operators and motions. Insert mode uses the keys of the table.

use std::ops::Range;

use super::edit_log::EditKind;
use super::folds::{PasteFolds, has_mark};
use super::motions::{WordKind, first_nonblank, left_in_line, line_end, line_start, right_in_line};
use super::rows::next_boundary;
use super::text_buffer::TextBuffer;
use super::vi_edits::{
    before_line_break, changed_words, join_lines, lines_below, repeated, replace_chars, toggle_case,
};
use super::vi_motions::{MotionReach, PendingFind, ViMotion, motion};

/// The highest count; larger ones are cut.
pub(super) const MAX_COUNT: usize = 9_999;
/// Bytes of the register that are kept in full after their folded pastes are gone.
const MAX_UNFOLDED: usize = 1 << 20;

/// The modes of vi that the composer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ViMode {
    #[default]
    Insert,
    Normal,
}

/// An operator that waits for a motion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViOperator {
    Delete,
    Change,
    Yank,
}

/// The command that waits for one more character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedChar {
    Find(PendingFind),
    Replacement,
    /// The second letter after `g`.
    AfterG,
}

/// The effect of a key in normal mode that the composer must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViOutcome {
    Handled,
    Ignored,
    /// The cursor is in the first row and the user moved up.
    HistoryOlder,
    HistoryNewer,
}

/// The text that was deleted or copied last.
#[derive(Debug, Clone, Default)]
struct ViRegister {
    text: String,
    /// Whole lines, without the last line break.
    is_linewise: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ViState {
    mode: ViMode,
    count: Option<usize>,
    operator: Option<(ViOperator, usize)>,
    awaited: Option<AwaitedChar>,
    register: ViRegister,
    last_find: Option<(PendingFind, char)>,
}

impl ViState {
    pub(super) fn mode(&self) -> ViMode {
        self.mode
    }

    /// Begins a new prompt in insert mode.
    pub(super) fn reset(&mut self) {
        self.mode = ViMode::Insert;
        self.cancel();
    }

    /// Puts the contents of pastes in the place of marks, before the pastes are dropped.
    pub(super) fn unfold(&mut self, folds: &PasteFolds) {
        let text = &mut self.register.text;
        if has_mark(text) {
            *text = match folds.expanded_size(text) {
                ..=MAX_UNFOLDED => folds.expanded(text),
                _ => String::new(),
            };
        }
    }

    /// Handles Esc. Returns whether it had an effect.
    pub(super) fn escape(&mut self, buffer: &mut TextBuffer) -> bool {
        if self.mode == ViMode::Insert {
            self.mode = ViMode::Normal;
            buffer.close_group();
            let left = left_in_line(buffer.text(), buffer.cursor());
            buffer.move_to(left);
            return true;
        }
        let was_pending = self.count.is_some() || self.operator.is_some() || self.awaited.is_some();
        self.cancel();
        was_pending
    }

    /// Handles a character in normal mode.
    pub(super) fn key(&mut self, c: char, buffer: &mut TextBuffer) -> ViOutcome {
        let outcome = self.normal_key(c, buffer);
        self.clamp(buffer);
        outcome
    }

    /// In normal mode, the cursor is on a character, not behind the last one.
    pub(super) fn clamp(&self, buffer: &mut TextBuffer) {
        if self.mode == ViMode::Normal
            && buffer.cursor() == line_end(buffer.text(), buffer.cursor())
        {
            let left = left_in_line(buffer.text(), buffer.cursor());
            buffer.move_to(left);
        }
    }

    /// Forgets the count, the operator and the awaited character.
    pub(super) fn cancel(&mut self) {
        self.count = None;
        self.operator = None;
        self.awaited = None;
    }

    fn normal_key(&mut self, c: char, buffer: &mut TextBuffer) -> ViOutcome {
        if let Some(awaited) = self.awaited.take() {
            return self.awaited_char(awaited, c, buffer);
        }
        if let Some(digit) = c.to_digit(10)
            && (digit > 0 || self.count.is_some())
        {
            let count = self.count.unwrap_or(0) * 10 + digit as usize;
            self.count = Some(count.min(MAX_COUNT));
            return ViOutcome::Handled;
        }
        self.awaited = match c {
            'f' | 'F' | 't' | 'T' => Some(AwaitedChar::Find(PendingFind::new(c))),
            'g' => Some(AwaitedChar::AfterG),
            'r' if self.operator.is_none() => Some(AwaitedChar::Replacement),
            _ => None,
        };
        if self.awaited.is_some() {
            return ViOutcome::Handled;
        }
        let repeated = self.last_find.map(|(find, target)| match c {
            ',' => ViMotion::Find(find.repeated().reversed(), target),
            _ => ViMotion::Find(find.repeated(), target),
        });
        match c {
            ';' | ',' => match repeated {
                Some(find) => self.moved(find, buffer),
                None => self.finish(ViOutcome::Handled),
            },
            _ if self.operator.is_some() => self.after_operator(c, buffer),
            'j' | 'k' => self.row(c, buffer),
            _ => match ViMotion::of_key(c) {
                Some(motion) => self.moved(motion, buffer),
                None => self.command(c, buffer),
            },
        }
    }

    fn awaited_char(
        &mut self,
        awaited: AwaitedChar,
        c: char,
        buffer: &mut TextBuffer,
    ) -> ViOutcome {
        match awaited {
            AwaitedChar::Find(find) => {
                self.last_find = Some((find, c));
                self.moved(ViMotion::Find(find, c), buffer)
            }
            AwaitedChar::AfterG if c == 'g' => self.moved(ViMotion::FirstLine, buffer),
            AwaitedChar::AfterG => self.finish(ViOutcome::Handled),
            AwaitedChar::Replacement => {
                let count = self.take_count();
                replace_chars(buffer, count, c);
                self.finish(ViOutcome::Handled)
            }
        }
    }

    /// The count, at least 1.
    fn take_count(&mut self) -> usize {
        self.count.take().unwrap_or(1).max(1)
    }

    fn finish(&mut self, outcome: ViOutcome) -> ViOutcome {
        self.cancel();
        outcome
    }

    /// Moves by rows of the screen.
    fn row(&mut self, c: char, buffer: &mut TextBuffer) -> ViOutcome {
        for step in 0..self.take_count() {
            let has_moved = if c == 'j' {
                buffer.move_down()
            } else {
                buffer.move_up()
            };
            if !has_moved {
                return match (step, c) {
                    (0, 'j') => ViOutcome::HistoryNewer,
                    (0, _) => ViOutcome::HistoryOlder,
                    _ => ViOutcome::Handled,
                };
            }
        }
        ViOutcome::Handled
    }

    fn after_operator(&mut self, c: char, buffer: &mut TextBuffer) -> ViOutcome {
        let Some((operator, outer)) = self.operator else {
            return ViOutcome::Handled;
        };
        let letter = match operator {
            ViOperator::Delete => 'd',
            ViOperator::Change => 'c',
            ViOperator::Yank => 'y',
        };
        if c == letter {
            let lines = (outer * self.take_count()).min(MAX_COUNT);
            let end = lines_below(buffer.text(), buffer.cursor(), lines - 1);
            let start = line_start(buffer.text(), buffer.cursor());
            self.apply(operator, start..end, true, buffer);
            return self.finish(ViOutcome::Handled);
        }
        let is_word = matches!(c, 'w' | 'W');
        if operator == ViOperator::Change && is_word {
            let count = outer * self.take_count();
            let kind = if c == 'w' {
                WordKind::Small
            } else {
                WordKind::Big
            };
            let end = changed_words(buffer.text(), buffer.cursor(), kind, count);
            self.apply(operator, buffer.cursor()..end, false, buffer);
            return self.finish(ViOutcome::Handled);
        }
        match ViMotion::of_key(c) {
            Some(motion) => self.moved(motion, buffer),
            None => self.finish(ViOutcome::Handled),
        }
    }

    /// Moves the cursor, or applies the waiting operator to the text up to the target.
    fn moved(&mut self, to: ViMotion, buffer: &mut TextBuffer) -> ViOutcome {
        let operator = self.operator.take();
        let count = match (operator, self.count.take()) {
            (Some((_, 1)), None) => None,
            (Some((_, outer)), inner) => Some((outer * inner.unwrap_or(1)).min(MAX_COUNT)),
            (None, count) => count,
        };
        let cursor = buffer.cursor();
        let Some((target, reach)) = motion(buffer.text(), cursor, to, count) else {
            return self.finish(ViOutcome::Handled);
        };
        let Some((operator, _)) = operator else {
            buffer.move_to(target);
            return self.finish(ViOutcome::Handled);
        };
        let text = buffer.text();
        let (low, high) = (cursor.min(target), cursor.max(target));
        match reach {
            MotionReach::Lines => {
                let range = line_start(text, low)..line_end(text, high);
                self.apply(operator, range, true, buffer);
            }
            MotionReach::Inclusive => {
                let range = low..next_boundary(text, high);
                self.apply(operator, range, false, buffer);
            }
            MotionReach::Exclusive => {
                let end = if to.is_word_start() {
                    before_line_break(text, low, high)
                } else {
                    high
                };
                self.apply(operator, low..end, false, buffer);
            }
        }
        self.finish(ViOutcome::Handled)
    }

    fn apply(
        &mut self,
        operator: ViOperator,
        range: Range<usize>,
        is_linewise: bool,
        buffer: &mut TextBuffer,
    ) {
        let Some(text) = buffer.text().get(range.clone()) else {
            return;
        };
        self.register = ViRegister {
            text: text.to_owned(),
            is_linewise,
        };
        match operator {
            ViOperator::Yank => {
                if !is_linewise {
                    buffer.move_to(range.start);
                }
            }
            ViOperator::Change => {
                self.insert(buffer);
                buffer.replace(range, "", EditKind::Other);
            }
            ViOperator::Delete if is_linewise => {
                let is_last = range.end == buffer.text().len();
                let whole = match (is_last, range.start) {
                    (false, start) => start..range.end + 1,
                    (true, 0) => 0..range.end,
                    (true, start) => start - 1..range.end,
                };
                buffer.replace(whole, "", EditKind::Other);
                let first = first_nonblank(buffer.text(), buffer.cursor());
                buffer.move_to(first);
            }
            ViOperator::Delete => buffer.replace(range, "", EditKind::Other),
        }
    }

    /// Changes to insert mode. Everything up to Esc is one undo step.
    fn insert(&mut self, buffer: &mut TextBuffer) {
        self.mode = ViMode::Insert;
        buffer.open_group();
    }

    fn command(&mut self, c: char, buffer: &mut TextBuffer) -> ViOutcome {
        let (text, cursor) = (buffer.text(), buffer.cursor());
        match c {
            'd' | 'c' | 'y' => {
                let operator = match c {
                    'd' => ViOperator::Delete,
                    'c' => ViOperator::Change,
                    _ => ViOperator::Yank,
                };
                self.operator = Some((operator, self.take_count()));
                return ViOutcome::Handled;
            }
            'i' => self.insert(buffer),
            'a' => self.insert_at(right_in_line(text, cursor), buffer),
            'I' => self.insert_at(first_nonblank(text, cursor), buffer),
            'A' => self.insert_at(line_end(text, cursor), buffer),
            'o' | 'O' => self.open_line(c == 'o', buffer),
            'x' | 's' => {
                let end = repeated(text, cursor, self.count.take(), right_in_line);
                let operator = if c == 'x' {
                    ViOperator::Delete
                } else {
                    ViOperator::Change
                };
                self.apply(operator, cursor..end, false, buffer);
            }
            'X' => {
                let start = repeated(text, cursor, self.count.take(), left_in_line);
                self.apply(ViOperator::Delete, start..cursor, false, buffer);
            }
            'D' | 'C' => {
                let range = cursor..line_end(text, cursor);
                let operator = if c == 'D' {
                    ViOperator::Delete
                } else {
                    ViOperator::Change
                };
                self.apply(operator, range, false, buffer);
            }
            'Y' | 'S' => {
                let end = lines_below(text, cursor, self.count.take().unwrap_or(1).max(1) - 1);
                let operator = if c == 'Y' {
                    ViOperator::Yank
                } else {
                    ViOperator::Change
                };
                self.apply(operator, line_start(text, cursor)..end, true, buffer);
            }
            'p' | 'P' => self.put(c == 'p', buffer),
            'u' => {
                for _ in 0..self.take_count() {
                    if !buffer.undo() {
                        break;
                    }
                }
            }
            'J' => join_lines(buffer),
            '~' => toggle_case(buffer, self.count.take().unwrap_or(1)),
            _ => return self.finish(ViOutcome::Ignored),
        }
        self.finish(ViOutcome::Handled)
    }

    fn insert_at(&mut self, pos: usize, buffer: &mut TextBuffer) {
        buffer.move_to(pos);
        self.insert(buffer);
    }

    fn open_line(&mut self, is_below: bool, buffer: &mut TextBuffer) {
        self.insert(buffer);
        let (start, end) = (
            line_start(buffer.text(), buffer.cursor()),
            line_end(buffer.text(), buffer.cursor()),
        );
        if is_below {
            buffer.replace(end..end, "\n", EditKind::Other);
        } else {
            buffer.replace(start..start, "\n", EditKind::Other);
            buffer.move_to(start);
        }
    }

    fn put(&mut self, is_after: bool, buffer: &mut TextBuffer) {
        let count = self.take_count();
        let ViRegister { text, is_linewise } = self.register.clone();
        let (start, end) = (
            line_start(buffer.text(), buffer.cursor()),
            line_end(buffer.text(), buffer.cursor()),
        );
        // The limit of the text applies before the copies are made.
        let count = count
            .min(super::text_buffer::MAX_TEXT / text.len().max(1))
            .max(1);
        match (is_linewise, is_after) {
            (true, true) => {
                buffer.replace(
                    end..end,
                    &format!("\n{text}").repeat(count),
                    EditKind::Other,
                );
                let line = (end + 1).min(buffer.text().len());
                let first = first_nonblank(buffer.text(), line);
                buffer.move_to(first);
            }
            (true, false) => {
                buffer.replace(
                    start..start,
                    &format!("{text}\n").repeat(count),
                    EditKind::Other,
                );
                let first = first_nonblank(buffer.text(), start);
                buffer.move_to(first);
            }
            (false, _) if text.is_empty() => {}
            (false, _) => {
                if is_after {
                    let right = right_in_line(buffer.text(), buffer.cursor());
                    buffer.move_to(right);
                }
                let at = buffer.cursor();
                buffer.replace(at..at, &text.repeat(count), EditKind::Other);
                let last = left_in_line(buffer.text(), buffer.cursor());
                buffer.move_to(last);
            }
        }
    }
}

#[cfg(test)]
#[path = "vi_tests.rs"]
mod tests;
