//! Deletes sessions with everything that belongs to them: the log, artifacts, cached titles and texts, and the bytes for undo
//! that no other session needs.
//!
//! The content store knows bytes only by their hash, and sessions share them. So the bytes that a deleted log names are
//! removed if no other log and no landing in progress names them. If the process dies before that, or if there are too many
//! sessions to read, the bytes stay until the store needs their space.
//!
//! ```
//! use windlass::Notices;
//! use windlass::machine::SessionLog;
//! use windlass::sessions::SessionDeletion;
//! use windlass::settings::Settings;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let places = Settings::none(dir.path()).places;
//! let store = SessionLog::new(places.sessions_dir());
//! let mut deletion: SessionDeletion = SessionDeletion::new(&places, &store);
//! let missing = "20261118-120000-abcdef".parse()?;
//! assert!(deletion.delete(&missing).await.is_err(), "there is no such session");
//! assert_eq!(deletion.delete_all(&[missing], &Notices::default()).await, 0);
//! assert_eq!(deletion.finish().await?, 0);
//! # Ok(())
//! # }
//! ```

use std::collections::HashSet;

use futures_util::StreamExt;
use windlass_core::event::EventKind;
use windlass_core::id::SessionId;
use windlass_core::image::{Image, Swap};
use windlass_core::store::{SessionStore, Skimmed};
use windlass_host::config::Places;
use windlass_host::session_log::SessionLog;
use windlass_transaction::isolated::{
    undo_contents, unlogged_calls, unlogged_run_landings, unlogged_undo_landings,
};

use crate::error::{Error, ErrorKind};
use crate::kept;
use crate::notices::Notices;

/// Maximum number of other sessions that are read to find shared bytes.
const MAX_SESSIONS: usize = 20_000;

/// Deletes sessions one by one, and then the bytes for undo that only they needed.
pub struct SessionDeletion<'a> {
    places: &'a Places,
    store: &'a SessionLog,
    /// The hashes that the deleted logs name.
    contents: HashSet<String>,
}

impl<'a> SessionDeletion<'a> {
    /// Begins a deletion.
    #[must_use]
    pub fn new(places: &'a Places, store: &'a SessionLog) -> Self {
        Self {
            places,
            store,
            contents: HashSet::new(),
        }
    }

    /// Deletes a session. A session in use is an error. Call [`Self::finish`] after the last one.
    pub async fn delete(&mut self, id: &SessionId) -> Result<(), Error> {
        let mut named = HashSet::new();
        visit_contents(self.store, id, |hash| {
            named.insert(hash.to_owned());
        })
        .await;
        self.store.delete(id).await?;
        self.contents.extend(named);
        Ok(())
    }

    /// Deletes sessions and returns the number of deleted ones. Sessions in use are kept and reported as warnings.
    pub async fn delete_all(&mut self, ids: &[SessionId], notices: &Notices) -> usize {
        let mut deleted = 0;
        for id in ids {
            match self.delete(id).await {
                Ok(()) => deleted += 1,
                Err(err) => notices.warn(err.message()),
            }
        }
        deleted
    }

    /// Removes the bytes for undo that only the deleted sessions named. Returns the number of removed bytes.
    pub async fn finish(self) -> Result<u64, Error> {
        let mut unused = self.contents;
        if unused.is_empty() {
            return Ok(0);
        }
        let others = self.store.ids_starting_with("")?;
        if others.len() > MAX_SESSIONS {
            return Ok(0);
        }
        for id in others {
            visit_contents(self.store, &id, |hash| {
                unused.remove(hash);
            })
            .await;
            if unused.is_empty() {
                return Ok(0);
            }
        }
        // Landings that are not in a log yet.
        let undo_dir = self.places.undo_dir();
        let calls = unlogged_calls(&undo_dir)
            .into_iter()
            .flat_map(|one| one.swaps);
        let undos = unlogged_undo_landings(&undo_dir)
            .into_iter()
            .flat_map(|one| one.swaps);
        let runs = unlogged_run_landings(&kept::shelf(self.places));
        let runs = runs.into_iter().flat_map(|(_, one)| one.landed.swaps);
        for swap in calls.chain(undos).chain(runs) {
            visit_swap(&swap, &mut |hash| {
                unused.remove(hash);
            });
        }
        let failed = |message: String| Error::new(ErrorKind::Failed, message);
        let contents = undo_contents(&undo_dir).map_err(|err| failed(err.to_string()))?;
        let removed = contents.remove_all(unused.iter().map(String::as_str));
        removed.map_err(|err| failed(err.to_string()))
    }
}

/// Visits the hashes of all bytes that undo may need for a session. The part of a log after damage is not read: its changes
/// cannot be undone either.
async fn visit_contents(store: &SessionLog, id: &SessionId, mut visit: impl FnMut(&str)) {
    let mut events = store.skim(id, 1, |kind| {
        matches!(kind, "file_changed" | "landed" | "undone" | "redone")
    });
    while let Some(Ok(event)) = events.next().await {
        let Skimmed::Event(event) = event else {
            continue;
        };
        let swaps = match &event.kind {
            EventKind::FileChanged { swap, .. } => swap.as_slice(),
            EventKind::Landed { landed, .. } => &landed.swaps,
            EventKind::Undone { swaps, .. } | EventKind::Redone { swaps, .. } => swaps,
            _ => &[],
        };
        for swap in swaps {
            visit_swap(swap, &mut visit);
        }
    }
}

fn visit_swap(swap: &Swap, visit: &mut impl FnMut(&str)) {
    for image in [&swap.before, &swap.after] {
        if let Image::File { hash, .. } = image {
            visit(hash);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::sync::Arc;

    use windlass_testing::{ScriptedProvider, call, says};

    use super::*;
    use crate::Windlass;

    /// Writes a file in a session of its own, and returns the session.
    async fn write(work: &std::path::Path, data: &std::path::Path, content: &str) -> SessionId {
        let args = serde_json::json!({ "path": "a.txt", "content": content });
        let model = ScriptedProvider::new([call("1", "write_file", &args), says("done")]);
        let windlass = Windlass::without_settings(work, data)
            .unwrap()
            .provider(Arc::new(model), "scripted")
            .validate("none");
        windlass.run("write it").await.unwrap().session
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn bytes_that_another_session_needs_stay() {
        let (work, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let settings = crate::settings::Settings::none(data.path());
        let store = SessionLog::new(settings.places.sessions_dir());
        let first = write(work.path(), data.path(), "one").await;
        let second = write(work.path(), data.path(), "two").await;
        let stored = || {
            let contents = undo_contents(&settings.places.undo_dir()).unwrap();
            ["one", "two"].map(|text| contents.has(&blake3::hash(text.as_bytes()).to_hex()))
        };
        assert_eq!(stored(), [true, true]);
        let mut deletion = SessionDeletion::new(&settings.places, &store);
        deletion.delete(&first).await.unwrap();
        assert_eq!(
            deletion.finish().await.unwrap(),
            0,
            "the second session replaced these bytes"
        );
        assert_eq!(stored(), [true, true]);
        let mut deletion = SessionDeletion::new(&settings.places, &store);
        assert!(deletion.delete(&first).await.is_err(), "it is gone");
        deletion.delete(&second).await.unwrap();
        assert_eq!(deletion.finish().await.unwrap(), 6);
        assert_eq!(stored(), [false, false]);
    }
}
