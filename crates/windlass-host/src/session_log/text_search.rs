//! Searches for a text in all sessions, in descending order of their last write. A session that cannot contain the
//! text, according to its cached filter, is not read. A session that is read to its end gets a filter.

use windlass_core::event::Event;
use windlass_core::id::SessionId;
use windlass_core::search_text::visit_texts;
use windlass_core::store::{Skimmed, StoreError};

use super::cache::SessionCache;
use super::events::Events;
use super::listing::FoundSession;
use super::text_filter::{FilterBuilder, NeedleHashes};
use super::{SessionLog, open_log};

/// The name of the cache for searches.
pub(super) const CACHE: &str = "search";

/// Iterates over the events of the sessions that may contain a text.
pub struct TextSearch<'a> {
    log: &'a SessionLog,
    sessions: usize,
    candidates: std::vec::IntoIter<FoundSession>,
    cache: SessionCache,
    filter: FilterBuilder,
    current: Option<(FoundSession, Result<Events, Option<StoreError>>)>,
}

impl SessionLog {
    /// Starts a case-insensitive search in the texts that [`visit_texts`] visits.
    pub fn search(&self, text: &str) -> Result<TextSearch<'_>, StoreError> {
        let (needle, mut cache) = (
            NeedleHashes::new(text),
            SessionCache::open(&self.disk, &self.dir, CACHE),
        );
        let found = self.find("")?;
        let sessions = found.len();
        let stamps: Vec<_> = found
            .iter()
            .map(|found| (&found.id, &found.stamp))
            .collect();
        let mut is_candidate = vec![true; sessions];
        cache.visit(&stamps, |place, filter| {
            is_candidate[place] = !found[place].is_plain || needle.may_be_in(filter);
        });
        let candidates: Vec<_> = found
            .into_iter()
            .zip(is_candidate)
            .filter_map(|(found, is_candidate)| is_candidate.then_some(found))
            .collect();
        Ok(TextSearch {
            log: self,
            sessions,
            candidates: candidates.into_iter(),
            cache,
            filter: FilterBuilder::new(),
            current: None,
        })
    }
}

impl TextSearch<'_> {
    /// Returns the number of all sessions, including those that are not read.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    /// Advances to the next session that may contain the text.
    pub fn next_session(&mut self) -> Option<SessionId> {
        let session = self.candidates.next()?;
        self.filter.clear();
        let path = self.log.log_path(&session.id);
        let events = open_log(&path, &session.id)
            .map(|(file, _)| Events::new(file, path, session.id.clone(), |_| true))
            .map_err(Some);
        let id = session.id.clone();
        self.current = Some((session, events));
        Some(id)
    }

    /// Returns the next event of the current session; `None` after an error.
    pub fn next_event(&mut self) -> Option<Result<Event, StoreError>> {
        let (session, events) = self.current.as_mut()?;
        let item = match events {
            Ok(events) => events.next(),
            Err(err) => err.take().map(Err),
        };
        match item {
            Some(Ok(Skimmed::Event(event))) => {
                visit_texts(&event.kind, &mut |_, text| self.filter.add(text));
                return Some(Ok(event));
            }
            Some(Err(err)) => {
                self.current = None;
                return Some(Err(err));
            }
            Some(Ok(Skimmed::Passed { .. })) | None => {}
        }
        // The log may have grown since its stamp was taken.
        if session.is_plain && self.log.stamp(&session.id) == Some(session.stamp) {
            let filter = self.filter.finish();
            self.cache.set(&session.id, session.stamp, filter);
        }
        self.current = None;
        None
    }
}
