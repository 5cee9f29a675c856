//! The history of prompts: earlier entries by arrow keys, by prefix and by search. It keeps the draft while the user
//! looks at entries.

use std::collections::VecDeque;
use std::io;

use super::folds::FoldedText;

/// Entries that are kept.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// Bytes of all entries that are kept.
pub(super) const MAX_HISTORY_BYTES: usize = 4 << 20;
/// Bytes of one stored entry; a larger one is in the history of this process only.
const MAX_STORED_ENTRY: usize = 256 << 10;

/// The place where prompts are stored for later sessions.
pub trait HistoryStore: Send {
    /// All stored entries, oldest first.
    fn load(&mut self) -> io::Result<Vec<FoldedText>>;
    /// Adds an entry. Several processes may append at the same time.
    fn append(&mut self, entry: &FoldedText) -> io::Result<()>;
}

/// The direction in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryDirection {
    Older,
    Newer,
}

/// The user is looking at an entry.
#[derive(Debug)]
struct Browsing {
    index: usize,
    /// Only entries with this beginning are shown.
    prefix: String,
    draft: FoldedText,
}

/// The prompts of this and earlier sessions.
#[derive(Default)]
pub struct PromptHistory {
    entries: VecDeque<FoldedText>,
    bytes: usize,
    store: Option<Box<dyn HistoryStore>>,
    browsing: Option<Browsing>,
}

impl std::fmt::Debug for PromptHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PromptHistory")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl PromptHistory {
    /// A history with the entries of the application, oldest first, and without a store.
    #[must_use]
    pub fn with_entries(entries: impl IntoIterator<Item = String>) -> Self {
        let mut history = Self::default();
        for entry in entries {
            history.insert(FoldedText::from(entry));
        }
        history
    }

    /// A history that loads from `store` and appends to it. If loading fails, the history is empty and the error is
    /// returned with it.
    #[must_use]
    pub fn with_store(mut store: Box<dyn HistoryStore>) -> (Self, Option<io::Error>) {
        let mut history = Self::default();
        let failure = match store.load() {
            Ok(entries) => {
                for entry in entries {
                    history.insert(entry);
                }
                None
            }
            Err(failure) => Some(failure),
        };
        history.store = Some(store);
        (history, failure)
    }

    /// Appends later prompts to `store`, without loading it.
    pub fn set_store(&mut self, store: Box<dyn HistoryStore>) {
        self.store = Some(store);
    }

    /// Adds a prompt as the newest entry. Blank prompts and repetitions of the newest entry are ignored.
    pub fn add(&mut self, entry: FoldedText) -> io::Result<()> {
        self.browsing = None;
        if !self.insert(entry) {
            return Ok(());
        }
        match (&mut self.store, self.entries.back()) {
            (Some(store), Some(entry)) if entry.size() <= MAX_STORED_ENTRY => store.append(entry),
            _ => Ok(()),
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no earlier prompts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entry(&self, index: usize) -> Option<&FoldedText> {
        self.entries.get(index)
    }

    pub(super) fn is_browsing(&self) -> bool {
        self.browsing.is_some()
    }

    /// Ends the visit of entries, because the user edited or submitted the text.
    pub(super) fn stop_browsing(&mut self) {
        self.browsing = None;
    }

    /// The next entry in a direction that begins with the prefix. The first call stores `draft`, and moving newer than
    /// the newest entry returns it.
    pub(super) fn browse(
        &mut self,
        direction: HistoryDirection,
        prefix: &str,
        draft: impl FnOnce() -> FoldedText,
    ) -> Option<FoldedText> {
        let mut browsing = match self.browsing.take() {
            Some(browsing) => browsing,
            None if direction == HistoryDirection::Newer => return None,
            None => Browsing {
                index: self.entries.len(),
                prefix: prefix.to_owned(),
                draft: draft(),
            },
        };
        let fits = |index: &usize| {
            self.entries.get(*index).is_some_and(|entry| {
                entry.text.starts_with(&browsing.prefix) && *entry != browsing.draft
            })
        };
        let found = match direction {
            HistoryDirection::Older => (0..browsing.index).rev().find(fits),
            HistoryDirection::Newer => (browsing.index + 1..self.entries.len()).find(fits),
        };
        if let Some(index) = found {
            browsing.index = index;
            self.browsing = Some(browsing);
            return self.entries.get(index).cloned();
        }
        if direction == HistoryDirection::Newer {
            return Some(browsing.draft);
        }
        if browsing.index < self.entries.len() {
            self.browsing = Some(browsing);
        }
        None
    }

    /// The newest entry older than `before` that contains `query`. Upper and lower case differ only if the query has
    /// upper-case letters.
    pub(super) fn search(&self, query: &str, before: usize) -> Option<usize> {
        let lower = query.to_lowercase();
        (0..before.min(self.entries.len()))
            .rev()
            .find(|index| self.contains(*index, query, &lower))
    }

    /// The oldest entry newer than `after` that contains `query`.
    pub(super) fn search_newer(&self, query: &str, after: usize) -> Option<usize> {
        let lower = query.to_lowercase();
        (after.saturating_add(1)..self.entries.len())
            .find(|index| self.contains(*index, query, &lower))
    }

    fn contains(&self, index: usize, query: &str, lower: &str) -> bool {
        let is_exact = query.chars().any(char::is_uppercase);
        self.entries.get(index).is_some_and(|entry| {
            entry.text.contains(query) || (!is_exact && contains_lower(&entry.text, lower))
        })
    }

    fn insert(&mut self, entry: FoldedText) -> bool {
        let is_repeated = self.entries.back() == Some(&entry);
        if is_repeated || entry.text.trim().is_empty() {
            return false;
        }
        self.bytes += entry.size();
        self.entries.push_back(entry);
        while self.entries.len() > MAX_ENTRIES
            || (self.bytes > MAX_HISTORY_BYTES && self.entries.len() > 1)
        {
            if let Some(oldest) = self.entries.pop_front() {
                self.bytes = self.bytes.saturating_sub(oldest.size());
            }
        }
        true
    }
}

/// Whether the text contains the query, which is in lower case.
fn contains_lower(text: &str, query: &str) -> bool {
    if query.is_ascii() {
        // No copy of the text, because every key searches the whole history.
        let query = query.as_bytes();
        let mut windows = text.as_bytes().windows(query.len().max(1));
        return windows.any(|window| window.eq_ignore_ascii_case(query));
    }
    text.to_lowercase().contains(query)
}
