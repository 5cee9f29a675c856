//! A list that the user filters by typing, for `/resume`, `/model`, `/agent`, `/rewind` and `/fork`.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use unicode_width::UnicodeWidthStr as _;
use windlass_text::{StyledLine, TextStyle, Tone};

use super::completion::{fuzzy_ranked, stepped};
use super::folds::{clean, is_allowed};
use super::glyphs::single_line;
use super::keys::{ComposerAction, action_of};
use super::popup_rows::{ListRow, column_widths, draw, hint, visible};

/// Characters of a filter.
const MAX_FILTER: usize = 256;
/// Items in one list; further ones are dropped.
const MAX_ITEMS: usize = 10_000;
/// Rows of the list above a preview.
const MIN_LIST_ROWS: usize = 3;

/// An item of a list. The filter looks at all columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickerItem<T> {
    pub value: T,
    /// The first column is the name; the others are muted.
    pub columns: Vec<String>,
    /// Shown below the list while the item is selected; may be empty.
    pub preview: Vec<StyledLine>,
}

/// The effect of a key on a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PickerOutcome<T> {
    Ignored,
    Handled,
    /// The user accepted an item.
    Chosen(T),
    /// The user closed the list.
    Cancelled,
}

/// A list with a title and a filter.
#[derive(Debug, Clone)]
pub struct ListPicker<T> {
    title: String,
    items: Vec<PickerItem<T>>,
    filter: String,
    /// The items that fit the filter, best first, with the matched characters of the first column.
    fitting: Vec<(usize, Vec<u32>)>,
    selected: usize,
    top: usize,
    /// Rows of the list in the last view, for the page keys.
    page: usize,
}

impl<T: Clone> ListPicker<T> {
    /// A list without a filter. Items after the 10,000th are left out.
    #[must_use]
    pub fn new(title: impl Into<String>, mut items: Vec<PickerItem<T>>) -> Self {
        items.truncate(MAX_ITEMS);
        let mut picker = Self {
            title: title.into(),
            items,
            filter: String::new(),
            fitting: Vec::new(),
            selected: 0,
            top: 0,
            page: 10,
        };
        picker.apply_filter();
        picker
    }

    /// Selects the first item for which `is_wanted` holds, for example the current model.
    pub fn select_where(&mut self, is_wanted: impl Fn(&T) -> bool) {
        let found = self.fitting.iter().position(|(index, _)| {
            self.items
                .get(*index)
                .is_some_and(|item| is_wanted(&item.value))
        });
        self.selected = found.unwrap_or(self.selected);
    }

    /// The text that the user typed to filter the list.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// The item that Enter would accept.
    #[must_use]
    pub fn selected(&self) -> Option<&T> {
        Some(&self.selected_item()?.value)
    }

    /// Handles a key. Releases of keys are ignored.
    pub fn key(&mut self, key: KeyEvent) -> PickerOutcome<T> {
        if key.kind == KeyEventKind::Release {
            return PickerOutcome::Ignored;
        }
        let page = isize::try_from(self.page.max(2)).unwrap_or(2);
        let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        match (key.code, action_of(key)) {
            (KeyCode::PageUp, _) => self.step(-page),
            (KeyCode::PageDown, _) => self.step(page),
            (KeyCode::Home, _) => self.selected = 0,
            (KeyCode::End, _) => self.selected = self.fitting.len().saturating_sub(1),
            (KeyCode::Char(c), None) if plain => {
                if is_allowed(c) && self.filter.chars().count() < MAX_FILTER {
                    self.filter.push(c);
                    self.apply_filter();
                }
            }
            (_, Some(action)) => return self.action(action),
            _ => return PickerOutcome::Ignored,
        }
        PickerOutcome::Handled
    }

    /// Adds the first line of a paste to the filter.
    pub fn paste(&mut self, text: String) {
        let text = clean(text);
        let room = MAX_FILTER.saturating_sub(self.filter.chars().count());
        let line = text.lines().next().unwrap_or_default();
        self.filter.extend(line.chars().take(room));
        self.apply_filter();
    }

    /// Draws the title with the filter, the list, the preview of the selected item and a hint, at most `max_rows` rows.
    pub fn view(&mut self, width: usize, max_rows: usize) -> Vec<StyledLine> {
        if max_rows == 0 {
            return Vec::new();
        }
        let mut lines = vec![self.title_line(width)];
        let has_hint = max_rows > 3;
        let room = max_rows - 1 - usize::from(has_hint);
        let preview = self
            .selected_item()
            .map(|item| item.preview.clone())
            .unwrap_or_default();
        let list_room = if preview.is_empty() || room <= MIN_LIST_ROWS {
            room
        } else {
            // An empty row separates the list from the preview.
            room.saturating_sub(preview.len() + 1)
                .max(room / 2)
                .max(MIN_LIST_ROWS)
        };
        self.page = list_room.max(1);
        let range = visible(self.fitting.len(), self.selected, list_room, self.top);
        self.top = range.start;
        let rows: Vec<ListRow> = self.fitting[range.clone()]
            .iter()
            .filter_map(|(index, matched)| Some((self.items.get(*index)?, matched)))
            .map(|(item, matched)| list_row(item, matched))
            .collect();
        let widths = column_widths(&rows, width);
        for (row, number) in rows.iter().zip(range) {
            lines.push(draw(row, &widths, width, number == self.selected));
        }
        let end = max_rows - usize::from(has_hint);
        if !preview.is_empty() && lines.len() + 1 < end {
            lines.push(StyledLine::default());
            let left = end - lines.len();
            let shown = preview.iter().take(left);
            lines.extend(shown.map(|line| cut(line, width)));
        }
        if has_hint {
            let position = match self.fitting.len() {
                0 => "no match".to_owned(),
                count => format!("{} of {count}", self.selected + 1),
            };
            let text = format!("{position} · enter chooses · type to filter · esc closes");
            lines.push(hint(&text, width));
        }
        lines
    }

    fn action(&mut self, action: ComposerAction) -> PickerOutcome<T> {
        match action {
            ComposerAction::Up | ComposerAction::HistoryPrevious => self.step(-1),
            ComposerAction::Down | ComposerAction::HistoryNext => self.step(1),
            ComposerAction::DeleteBackward => {
                self.filter.pop();
                self.apply_filter();
            }
            ComposerAction::KillToLineStart
            | ComposerAction::KillBigWordBackward
            | ComposerAction::KillWordBackward => {
                self.filter.clear();
                self.apply_filter();
            }
            ComposerAction::Submit => {
                return match self.selected() {
                    Some(value) => PickerOutcome::Chosen(value.clone()),
                    None => PickerOutcome::Handled,
                };
            }
            ComposerAction::Escape | ComposerAction::Interrupt => return PickerOutcome::Cancelled,
            _ => return PickerOutcome::Ignored,
        }
        PickerOutcome::Handled
    }

    fn step(&mut self, step: isize) {
        self.selected = stepped(self.selected, step, self.fitting.len());
    }

    fn selected_item(&self) -> Option<&PickerItem<T>> {
        self.items.get(self.fitting.get(self.selected)?.0)
    }

    fn apply_filter(&mut self) {
        let texts: Vec<String> = self
            .items
            .iter()
            .map(|item| item.columns.join(" "))
            .collect();
        self.fitting = fuzzy_ranked(&self.filter, texts.iter().map(String::as_str), MAX_ITEMS);
        self.selected = 0;
        self.top = 0;
    }

    fn title_line(&self, width: usize) -> StyledLine {
        let title = single_line(&format!(" {}", self.title), width);
        let bold = TextStyle {
            bold: true,
            ..TextStyle::default()
        };
        let room = width.saturating_sub(title.width());
        let filter = match self.filter.is_empty() {
            true => String::new(),
            false => single_line(&format!("  {}", self.filter), room),
        };
        StyledLine::of(title, bold).with(filter, Tone::Accent)
    }
}

fn list_row<T>(item: &PickerItem<T>, matched: &[u32]) -> ListRow {
    let mut columns = item.columns.iter().cloned();
    ListRow {
        label: columns.next().unwrap_or_default(),
        matched: matched.to_vec(),
        details: columns.collect(),
    }
}

/// Cuts a styled line to the width.
fn cut(line: &StyledLine, width: usize) -> StyledLine {
    let mut cut = StyledLine::default();
    let mut left = width;
    for span in &line.spans {
        let text = single_line(&span.text, left);
        left = left.saturating_sub(text.width());
        cut = cut.with(text, span.style);
    }
    cut
}

#[cfg(test)]
#[path = "list_picker_tests.rs"]
mod tests;
