//! The history as a file: one JSON object per line, for this user only.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use super::files::{create_parent, open_regular, read_tail, replace_file};
use super::folds::FoldedText;
use super::history::{HistoryStore, MAX_ENTRIES, MAX_HISTORY_BYTES};

/// Attempts to lock the file that is at the path, while others replace it.
const LOCK_ATTEMPTS: u32 = 8;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Appends each entry as one line with one write, so that several processes can append at the same time. Loading
/// rewrites the file if it is above the limits.
#[derive(Debug)]
pub struct FileHistoryStore {
    path: PathBuf,
}

impl FileHistoryStore {
    /// A store in this file, which is created with the first entry.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Opens the file at the path with a shared lock, which keeps others from replacing it. Without a lock after some
    /// attempts, the file is used anyway: then a replacement at the same moment can lose this entry.
    fn open_locked(&self) -> io::Result<File> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut options = OpenOptions::new();
            options.append(true).read(true).create(true).mode(0o600);
            let file = open_regular(&self.path, &mut options)?;
            let is_locked = match file.try_lock_shared() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Ok(file),
            };
            let is_current = fs::metadata(&self.path)
                .is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
            if (is_locked && is_current) || attempt >= LOCK_ATTEMPTS {
                return Ok(file);
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// Rewrites the file with the newest entries, unless another process uses it.
    fn shorten(&self) -> io::Result<()> {
        let file = open_regular(&self.path, OpenOptions::new().read(true))?;
        if file.try_lock().is_err() {
            return Ok(());
        }
        let entries = self.read()?;
        let mut lines = Vec::new();
        for entry in &entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        replace_file(&self.path, &lines)
    }

    /// The newest entries, at most half of the limits, so that the file is not rewritten at every start.
    fn read(&self) -> io::Result<Vec<FoldedText>> {
        let limit = u64::try_from(MAX_HISTORY_BYTES).unwrap_or(u64::MAX);
        let bytes = read_tail(&self.path, limit)?;
        let mut size = 0;
        let mut newest: Vec<FoldedText> = bytes
            .rsplit(|byte| *byte == b'\n')
            .take_while(|line| {
                size += line.len() + 1;
                size <= MAX_HISTORY_BYTES / 4 * 3
            })
            // A line that a crash cut, or that another program wrote.
            .filter_map(|line| serde_json::from_slice(line).ok())
            .take(MAX_ENTRIES / 4 * 3)
            .collect();
        newest.reverse();
        Ok(newest)
    }
}

impl HistoryStore for FileHistoryStore {
    fn load(&mut self) -> io::Result<Vec<FoldedText>> {
        let limit = u64::try_from(MAX_HISTORY_BYTES).unwrap_or(u64::MAX);
        let bytes = read_tail(&self.path, limit + 1)?;
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        if bytes.len() > MAX_HISTORY_BYTES || lines > MAX_ENTRIES {
            self.shorten()?;
            return self.read();
        }
        Ok(bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    fn append(&mut self, entry: &FoldedText) -> io::Result<()> {
        create_parent(&self.path)?;
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = self.open_locked()?;
        // A crash in the middle of a line must not spoil this entry, too.
        if read_tail(&self.path, 1)?
            .last()
            .is_some_and(|byte| *byte != b'\n')
        {
            line.insert(0, b'\n');
        }
        file.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn store() -> (tempfile::TempDir, FileHistoryStore) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new/history.jsonl");
        (dir, FileHistoryStore::new(path))
    }

    fn texts(store: &mut FileHistoryStore) -> Vec<String> {
        let loaded = store.load().expect("the history loads");
        loaded.into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn entries_are_there_after_a_restart_for_this_user_only() {
        let (_dir, mut store) = store();
        assert_eq!(texts(&mut store), [""; 0]);
        for text in ["one", "two\nlines"] {
            store.append(&text.to_owned().into()).expect("appended");
        }
        assert_eq!(texts(&mut store), ["one", "two\nlines"]);
        let mode = fs::metadata(&store.path)
            .expect("the file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_line_costs_only_itself() {
        let (_dir, mut store) = store();
        store.append(&"one".to_owned().into()).expect("appended");
        let mut file = OpenOptions::new()
            .append(true)
            .open(&store.path)
            .expect("open");
        file.write_all(b"{\"text\":\"cut").expect("written");
        store.append(&"two".to_owned().into()).expect("appended");
        assert_eq!(texts(&mut store), ["one", "two"]);
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let (_dir, store) = store();
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let mut store = FileHistoryStore::new(store.path.clone());
                std::thread::spawn(move || {
                    for entry in 0..50 {
                        let text = format!("{writer} {entry} {}", "x".repeat(5_000));
                        store.append(&text.into()).expect("appended");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        let mut store = store;
        let found: std::collections::HashSet<String> = texts(&mut store).into_iter().collect();
        assert_eq!(found.len(), 400);
    }

    #[test]
    fn a_file_above_the_limit_is_shortened() {
        let (_dir, mut store) = store();
        create_parent(&store.path).expect("a directory");
        let line = |n: usize| format!("{{\"text\":\"{n} {}\"}}\n", "y".repeat(1_000));
        let lines: String = (0..5_000).map(line).collect();
        fs::write(&store.path, lines).expect("written");
        let loaded = texts(&mut store);
        assert!(loaded.last().is_some_and(|text| text.starts_with("4999 ")));
        let size = fs::metadata(&store.path).expect("the file").len();
        assert!(size < 4 << 20, "{size}");
        assert_eq!(texts(&mut store), loaded);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn any_bytes_can_be_loaded(bytes in proptest::collection::vec(0_u8..=255, 0..400)) {
            let (_dir, mut store) = store();
            create_parent(&store.path).expect("a directory");
            fs::write(&store.path, &bytes).expect("written");
            let before = texts(&mut store).len();
            store.append(&"new".to_owned().into()).expect("appended");
            assert_eq!(texts(&mut store).len(), before + 1);
        }
    }
}
