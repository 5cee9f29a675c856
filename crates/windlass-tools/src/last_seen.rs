//! Remembers the content of each file as the model last saw it, so that an edit of a file that has changed on disk
//! since is refused as stale.
//!
//! It stores one hash per path, for a limited number of paths, and never the content.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use windlass_core::message::ErrorCategory;
use windlass_core::tool::ToolFailure;
use windlass_core::workspace::Files;
use windlass_edit::nearest::numbered;
use windlass_edit::text::{DecodedText, lines};

/// Maximum number of paths. Beyond it the map is cleared, which only makes the check more lenient.
const MAX_PATHS: usize = 10_000;
/// Maximum lines of the current content that a refusal shows.
const MAX_OFFERED: usize = 200;

/// Hashes of files as the model last saw them.
#[derive(Debug, Default)]
pub(crate) struct LastSeenFiles(Mutex<HashMap<(PathBuf, String), u64>>);

impl LastSeenFiles {
    /// Records that the model has seen or written this content.
    pub(crate) fn note(&self, files: &dyn Files, path: &str, bytes: &[u8]) {
        let mut map = self.0.lock();
        if map.len() >= MAX_PATHS {
            map.clear();
        }
        map.insert(key(files, path), hash(bytes));
    }

    /// Removes a path that no longer exists.
    pub(crate) fn forget(&self, files: &dyn Files, path: &str) {
        self.0.lock().remove(&key(files, path));
    }

    /// Refuses an edit if the model last saw other content. The refusal shows the current text, which then counts as
    /// seen.
    pub(crate) fn check(
        &self,
        files: &dyn Files,
        path: &str,
        bytes: &[u8],
    ) -> Result<(), ToolFailure> {
        let known = self.0.lock().get(&key(files, path)).copied();
        if known.is_none_or(|known| known == hash(bytes)) {
            return Ok(());
        }
        self.note(files, path, bytes);
        let text = format!(
            "{path} changed on disk since it was last read; nothing was written. {}",
            offer(bytes)
        );
        Err(ToolFailure::new(ErrorCategory::Stale, text))
    }
}

fn key(files: &dyn Files, path: &str) -> (PathBuf, String) {
    let resolved = files
        .resolve(path)
        .map_or_else(|_| path.to_owned(), |resolved| resolved.path);
    (files.root().to_owned(), resolved)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn offer(bytes: &[u8]) -> String {
    match DecodedText::decode(bytes) {
        Ok(text) => {
            let all = lines(&text.content);
            let shown = numbered(&all[..all.len().min(MAX_OFFERED)], 1);
            let rest = match all.len() {
                0..=MAX_OFFERED => String::new(),
                count => format!("\n[{count} lines in all; read_file shows the rest]"),
            };
            format!("It reads now:\n{shown}{rest}")
        }
        Err(err) => format!("Now {err}"),
    }
}
