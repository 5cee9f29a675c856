//! Drafts: the text of the composer survives a crash.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::files::{read_tail, replace_file};
use super::folds::FoldedText;

/// Time between two writes of a draft.
const SAVE_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of a stored draft. A larger one is not stored.
const MAX_DRAFT: usize = 64 << 20;

/// The place where the draft of one workspace is stored.
pub trait DraftStore: Send {
    /// The stored draft, if there is one.
    fn load(&mut self) -> io::Result<Option<FoldedText>>;
    /// Stores a draft in the place of the earlier one. An empty draft removes it.
    fn save(&mut self, draft: &FoldedText) -> io::Result<()>;
}

/// Decides when the draft is written.
#[derive(Default)]
pub(super) struct DraftSaver {
    store: Option<Box<dyn DraftStore>>,
    saved_version: u64,
    last_save: Option<Instant>,
}

impl DraftSaver {
    pub(super) fn new(store: Box<dyn DraftStore>) -> Self {
        Self {
            store: Some(store),
            ..Self::default()
        }
    }

    pub(super) fn load(&mut self) -> io::Result<Option<FoldedText>> {
        self.store.as_mut().map_or(Ok(None), |store| store.load())
    }

    pub(super) fn is_changed(&self, version: u64) -> bool {
        self.store.is_some() && self.saved_version != version
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last_save
            .is_none_or(|last| now.saturating_duration_since(last) >= SAVE_INTERVAL)
    }

    /// A failed write is repeated after the interval.
    pub(super) fn save(
        &mut self,
        version: u64,
        draft: &FoldedText,
        now: Instant,
    ) -> io::Result<()> {
        self.last_save = Some(now);
        if let Some(store) = &mut self.store {
            store.save(draft)?;
        }
        self.saved_version = version;
        Ok(())
    }

    pub(super) fn mark_saved(&mut self, version: u64) {
        self.saved_version = version;
    }
}

#[derive(Serialize, Deserialize)]
struct StoredDraft {
    workspace: PathBuf,
    draft: FoldedText,
}

/// A file for each workspace, for this user only, replaced atomically.
#[derive(Debug)]
pub struct FileDraftStore {
    path: PathBuf,
    workspace: PathBuf,
}

impl FileDraftStore {
    /// Drafts of `workspace` in `directory`, which is created if it is missing.
    #[must_use]
    pub fn new(directory: &Path, workspace: &Path) -> Self {
        let hash = fnv1a(workspace.as_os_str().as_encoded_bytes());
        Self {
            path: directory.join(format!("{hash:016x}.json")),
            workspace: workspace.to_owned(),
        }
    }
}

impl DraftStore for FileDraftStore {
    fn load(&mut self) -> io::Result<Option<FoldedText>> {
        let bytes = read_tail(&self.path, u64::try_from(MAX_DRAFT).unwrap_or(u64::MAX))?;
        // A damaged file, or the file of another workspace with the same hash, is no draft.
        let stored: Option<StoredDraft> = serde_json::from_slice(&bytes).ok();
        Ok(stored
            .filter(|stored| stored.workspace == self.workspace)
            .map(|stored| stored.draft))
    }

    fn save(&mut self, draft: &FoldedText) -> io::Result<()> {
        if draft.text.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
                _ => Ok(()),
            };
        }
        if draft.size() > MAX_DRAFT / 2 {
            return Err(io::Error::other("the draft is too large to be stored"));
        }
        let stored = StoredDraft {
            workspace: self.workspace.clone(),
            draft: draft.clone(),
        };
        replace_file(&self.path, &serde_json::to_vec(&stored)?)
    }
}

/// The 64-bit FNV-1a hash, which is the same in every release.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_workspace_has_its_own_draft_for_this_user_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let drafts = dir.path().join("drafts");
        let mut first = FileDraftStore::new(&drafts, Path::new("/project/a"));
        let mut second = FileDraftStore::new(&drafts, Path::new("/project/b"));
        let draft = FoldedText {
            text: "see \u{100000}".to_owned(),
            pastes: vec!["long".to_owned()],
        };
        first.save(&draft).expect("saved");
        assert_eq!(first.load().expect("loaded"), Some(draft));
        assert_eq!(second.load().expect("loaded"), None);
        let mode = std::fs::metadata(&first.path)
            .expect("the file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);

        first.save(&FoldedText::default()).expect("removed");
        first.save(&FoldedText::default()).expect("removed again");
        assert_eq!(first.load().expect("loaded"), None);
        let left = std::fs::read_dir(&drafts).expect("the directory").count();
        assert_eq!(left, 0, "a temporary file remains");
    }

    #[test]
    fn a_damaged_file_is_no_draft() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = FileDraftStore::new(dir.path(), Path::new("/w"));
        std::fs::write(&store.path, b"{\"workspace\":").expect("written");
        assert_eq!(store.load().expect("loaded"), None);
    }
}
