//! The files of a session as they were at an event: a fold of the changes in its log. Files that the session did not change
//! are not recorded.
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass::Windlass;
//! use windlass::machine::SessionLog;
//! use windlass::recorded_files::{RecordedFiles, read_recorded};
//! # use windlass_testing::{ScriptedProvider, call, says};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let write = call("1", "write_file", &serde_json::json!({ "path": "a.txt", "content": "good\n" }));
//! # let model = ScriptedProvider::new([write, says("It is good now.")]);
//! let windlass = Windlass::without_settings(work.path(), data.path())?
//!     .provider(Arc::new(model), "scripted");
//! let result = windlass.run("make it good").await?;
//! let places = &windlass.settings().places;
//! let store = SessionLog::new(places.sessions_dir());
//! let recorded = RecordedFiles::of(&store, &result.session, None).await?;
//! let image = recorded.image("a.txt").unwrap();
//! assert!(recorded.is_stored(places, image));
//! assert_eq!(recorded.files().count(), 1);
//! assert_eq!(read_recorded(places, image, 0, 4)?, Some(b"good".to_vec()));
//! let before = RecordedFiles::of(&store, &result.session, Some(1)).await?;
//! assert!(before.image("a.txt").is_none());
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use futures_util::StreamExt;
use windlass_core::event::EventKind;
use windlass_core::id::SessionId;
use windlass_core::image::{Image, Swap};
use windlass_core::store::{SessionStore, Skimmed};
use windlass_host::config::Places;
use windlass_host::session_log::SessionLog;
use windlass_transaction::isolated::undo_contents;

use crate::error::{Error, ErrorKind};

/// The files that a session changed until an event.
#[derive(Debug, Clone, Default)]
pub struct RecordedFiles {
    files: HashMap<String, (Image, u64)>,
    /// The number of the last event that was folded.
    pub last_seq: u64,
}

impl RecordedFiles {
    /// Folds the changes of a session until an event, or all of them.
    pub async fn of(
        store: &SessionLog,
        session: &SessionId,
        at: Option<u64>,
    ) -> Result<Self, Error> {
        let mut recorded = Self::default();
        let mut events = store.skim(session, 1, |kind| {
            matches!(kind, "file_changed" | "landed" | "undone" | "redone")
        });
        while at.is_none_or(|at| recorded.last_seq < at)
            && let Some(event) = events.next().await
        {
            match event? {
                Skimmed::Passed { seq } => recorded.last_seq = seq,
                Skimmed::Event(event) => {
                    recorded.last_seq = event.order.seq().unwrap_or(recorded.last_seq);
                    recorded.apply(&event.kind);
                }
            }
        }
        Ok(recorded)
    }

    fn apply(&mut self, kind: &EventKind) {
        match kind {
            EventKind::FileChanged {
                swap: Some(swap), ..
            } => self.set(swap),
            EventKind::Landed { landed, .. } => landed.swaps.iter().for_each(|swap| self.set(swap)),
            EventKind::Undone { swaps, .. } | EventKind::Redone { swaps, .. } => {
                swaps.iter().for_each(|swap| self.set(swap));
            }
            _ => {}
        }
    }

    fn set(&mut self, swap: &Swap) {
        let recorded = (swap.after.clone(), self.last_seq);
        self.files.insert(swap.path.clone(), recorded);
    }

    /// The content at a path; `None` if it is not recorded.
    #[must_use]
    pub fn image(&self, path: &str) -> Option<&Image> {
        self.files.get(path).map(|(image, _)| image)
    }

    /// All recorded paths, with their content and the number of the event that recorded it.
    pub fn files(&self) -> impl Iterator<Item = (&str, (&Image, u64))> {
        let files = self.files.iter();
        files.map(|(path, (image, seq))| (path.as_str(), (image, *seq)))
    }

    /// Whether the bytes of a content are stored. The store keeps the newest ones.
    #[must_use]
    pub fn is_stored(&self, places: &Places, image: &Image) -> bool {
        match image {
            Image::File { hash, .. } => {
                undo_contents(&places.undo_dir()).is_ok_and(|contents| contents.has(hash))
            }
            Image::Absent | Image::Link { .. } => true,
        }
    }
}

/// Reads a part of a recorded file; `None` if its bytes are no longer stored.
pub fn read_recorded(
    places: &Places,
    image: &Image,
    offset: u64,
    length: u64,
) -> Result<Option<Vec<u8>>, Error> {
    let Image::File { hash, .. } = image else {
        return Ok(None);
    };
    let failed = |err: String| Error::new(ErrorKind::Failed, err);
    let contents = undo_contents(&places.undo_dir()).map_err(|err| failed(err.to_string()))?;
    if !contents.has(hash) {
        return Ok(None);
    }
    let mut file = contents.read(hash).map_err(|err| failed(err.to_string()))?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
