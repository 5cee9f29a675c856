//! The keys of the history: browsing with the arrow keys, and the search with Ctrl-R.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::folds::is_allowed;
use super::history::HistoryDirection;
use super::keys::{ComposerAction, action_of};
use super::text_buffer::TextBuffer;
use super::{Composer, ComposerOutcome};

/// Characters of a search.
const MAX_QUERY: usize = 256;

/// The incremental search. The text of the composer does not change until the user accepts an entry.
#[derive(Debug, Default)]
pub(super) struct HistorySearch {
    pub(super) query: String,
    /// The number of the entry that is shown.
    pub(super) found: Option<usize>,
    /// The entry, as text that can be drawn.
    pub(super) preview: TextBuffer,
}

impl Composer {
    /// Shows the next entry in a direction. The prefix matters for the first step only.
    pub(super) fn browse(&mut self, direction: HistoryDirection, prefix: &str) -> bool {
        if self.recalled != Some(self.buffer.version()) {
            self.history.stop_browsing();
        }
        let buffer = &self.buffer;
        let entry = self.history.browse(direction, prefix, || buffer.folded());
        let Some(entry) = entry else {
            return false;
        };
        self.buffer.set_folded(&entry);
        self.recalled = Some(self.buffer.version());
        self.completion.close(false);
        true
    }

    /// Moves up, or to an older entry in the first row. An entry that was not changed is left at once.
    pub(super) fn up(&mut self) {
        if self.shows_unchanged_entry() || !self.buffer.move_up() {
            let prefix = self.buffer.text()[..self.buffer.cursor()].to_owned();
            self.browse(HistoryDirection::Older, &prefix);
        }
    }

    pub(super) fn down(&mut self) {
        if self.shows_unchanged_entry() || !self.buffer.move_down() {
            self.browse(HistoryDirection::Newer, "");
        }
    }

    pub(super) fn start_search(&mut self) {
        self.completion.close(false);
        self.search = Some(HistorySearch::default());
        self.find_older(usize::MAX);
    }

    /// Handles a key during the search. Keys that are no part of it accept the entry and have their own effect.
    pub(super) fn search_key(&mut self, key: KeyEvent) -> ComposerOutcome {
        let Some(search) = &mut self.search else {
            return ComposerOutcome::Ignored;
        };
        let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        match (key.code, action_of(key)) {
            (KeyCode::Char(c), None) if plain => {
                if is_allowed(c) && search.query.chars().count() < MAX_QUERY {
                    search.query.push(c);
                }
                let from = search.found.map_or(usize::MAX, |found| found + 1);
                self.find_older(from);
            }
            (_, Some(ComposerAction::DeleteBackward)) => {
                search.query.pop();
                self.find_older(usize::MAX);
            }
            (
                _,
                Some(
                    ComposerAction::HistorySearch
                    | ComposerAction::HistoryPrevious
                    | ComposerAction::Up,
                ),
            ) => {
                let older = search
                    .found
                    .and_then(|found| self.history.search(&search.query, found));
                if older.is_some() {
                    self.show_found(older);
                }
            }
            (_, Some(ComposerAction::HistoryNext | ComposerAction::Down)) => {
                let newer = search
                    .found
                    .and_then(|found| self.history.search_newer(&search.query, found));
                if newer.is_some() {
                    self.show_found(newer);
                }
            }
            (_, Some(ComposerAction::Interrupt | ComposerAction::OpenEditor)) => {
                self.search = None;
            }
            (
                _,
                Some(ComposerAction::Submit | ComposerAction::Escape | ComposerAction::Complete),
            ) => {
                self.accept_search();
            }
            _ => {
                self.accept_search();
                return self.key(key);
            }
        }
        ComposerOutcome::Handled
    }

    /// Adds pasted text to the query.
    pub(super) fn search_paste(&mut self, text: &str) {
        if let Some(search) = &mut self.search {
            let room = MAX_QUERY.saturating_sub(search.query.chars().count());
            let line = text.lines().next().unwrap_or_default();
            search.query.extend(line.chars().take(room));
            self.find_older(usize::MAX);
        }
    }

    fn shows_unchanged_entry(&self) -> bool {
        self.history.is_browsing()
            && self.recalled == Some(self.buffer.version())
            && self.buffer.cursor() == self.buffer.text().len()
    }

    /// Shows the newest entry older than `before` that contains the query.
    fn find_older(&mut self, before: usize) {
        let query = self.search.as_ref().map(|search| search.query.as_str());
        let found = query
            .filter(|query| !query.is_empty())
            .and_then(|query| self.history.search(query, before));
        self.show_found(found);
    }

    fn show_found(&mut self, found: Option<usize>) {
        let Some(search) = &mut self.search else {
            return;
        };
        search.found = found;
        search.preview.reset();
        if let Some(entry) = found.and_then(|found| self.history.entry(found)) {
            search.preview.set_folded(entry);
            search.preview.move_to(0);
        }
    }

    fn accept_search(&mut self) {
        let Some(search) = self.search.take() else {
            return;
        };
        if let Some(entry) = search.found.and_then(|found| self.history.entry(found)) {
            self.buffer.set_folded(entry);
            self.recalled = None;
            self.history.stop_browsing();
        }
    }
}
