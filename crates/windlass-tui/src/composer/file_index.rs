//! The files of the workspace for the picker behind `@`: a thread finds them, and each key ranks them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::WalkBuilder;

/// Files and directories that the index contains at most.
const MAX_INDEXED: usize = 200_000;
/// Entries that the thread passes on together.
const BATCH: usize = 256;
/// Bytes of a path; longer ones are skipped.
const MAX_PATH: usize = 1_024;
const MAX_DEPTH: usize = 64;

/// A path below the workspace. Directories end with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexedPath {
    pub(super) path: Box<str>,
    /// The set of characters in the path, to skip paths that lack one of the query.
    pub(super) letters: u64,
    /// The same set for the name without the directories.
    pub(super) name_letters: u64,
    /// The position of the name in the path.
    pub(super) name_start: u16,
    /// Orders equal scores: the number of directories, then the length.
    pub(super) distance: u32,
}

impl IndexedPath {
    pub(super) fn new(path: &str) -> Self {
        let depth = path.trim_end_matches('/').matches('/').count();
        let distance = (depth.min(0xffff) << 16) | path.len().min(0xffff);
        let name_start = path
            .trim_end_matches('/')
            .rfind('/')
            .and_then(|slash| u16::try_from(slash + 1).ok())
            .unwrap_or(0);
        Self {
            path: path.into(),
            letters: letter_set(path),
            name_letters: letter_set(&path[usize::from(name_start)..]),
            name_start,
            distance: u32::try_from(distance).unwrap_or(u32::MAX),
        }
    }
}

/// A set of the letters, digits and common punctuation in a path. Two other ASCII characters may share a bit.
fn letter_set(path: &str) -> u64 {
    // The matcher reads accents as plain letters, which the set cannot know.
    if !path.is_ascii() {
        return u64::MAX;
    }
    needed_letters(path)
}

/// The set of the ASCII characters in a query.
pub(super) fn needed_letters(query: &str) -> u64 {
    query
        .bytes()
        .filter(u8::is_ascii)
        .fold(0, |set, byte| set | 1 << (byte.to_ascii_lowercase() & 63))
}

/// The thread that walks the workspace. Dropping it stops the thread soon.
#[derive(Debug)]
struct FileWalk {
    inbox: Arc<Mutex<Vec<IndexedPath>>>,
    is_done: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for FileWalk {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// The files and directories of a workspace that git would show: neither ignored nor inside `.git`. Symlinks are not
/// followed.
#[derive(Debug, Default)]
pub struct FileIndex {
    root: PathBuf,
    entries: Vec<IndexedPath>,
    walk: Option<FileWalk>,
    /// Results of a walk that replaces earlier results when it is complete.
    next: Option<Vec<IndexedPath>>,
    /// Changes when positions of entries change.
    epoch: u64,
}

impl FileIndex {
    /// Starts to walk `root` in a thread.
    #[must_use]
    pub fn start(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            walk: start_walk(root),
            ..Self::default()
        }
    }

    /// An index of known paths; directories end with a slash.
    #[must_use]
    pub fn from_paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let paths = paths.into_iter().take(MAX_INDEXED);
        Self {
            entries: paths.map(IndexedPath::new).collect(),
            ..Self::default()
        }
    }

    /// Walks the workspace again, for example after a run changed files. The present results are used meanwhile.
    pub fn refresh(&mut self) {
        if self.root.as_os_str().is_empty() {
            return;
        }
        self.next = Some(Vec::new());
        self.walk = start_walk(&self.root);
    }

    /// Takes over the files found since the last call. Returns whether the index changed.
    pub fn poll(&mut self) -> bool {
        let Some(walk) = &self.walk else {
            return false;
        };
        // Read before the inbox, so that no entry is missed.
        let is_done = walk.is_done.load(Ordering::Acquire);
        let found = std::mem::take(&mut *walk.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        if is_done {
            self.walk = None;
        }
        let mut has_changed = !found.is_empty() && self.next.is_none();
        self.next
            .as_mut()
            .unwrap_or(&mut self.entries)
            .extend(found);
        if is_done && let Some(next) = self.next.take() {
            has_changed = next != self.entries;
            self.entries = next;
            self.epoch += 1;
        }
        has_changed || is_done
    }

    /// Whether the thread found everything and [`Self::poll`] took it over.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.walk.is_none()
    }

    /// Whether the workspace has more files than the index contains.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.entries.len() >= MAX_INDEXED
    }

    /// The number of files that were found so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no file was found so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entries(&self) -> &[IndexedPath] {
        &self.entries
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Starts the thread, or returns nothing if the system has no thread left.
fn start_walk(root: &Path) -> Option<FileWalk> {
    let walk = FileWalk {
        inbox: Arc::default(),
        is_done: Arc::default(),
        is_stopped: Arc::default(),
    };
    let inbox = Arc::clone(&walk.inbox);
    let is_done = Arc::clone(&walk.is_done);
    let is_stopped = Arc::clone(&walk.is_stopped);
    let root = root.to_owned();
    let thread = std::thread::Builder::new()
        .name("file index".to_owned())
        .spawn(move || {
            walk_files(&root, &inbox, &is_stopped);
            is_done.store(true, Ordering::Release);
        });
    thread.ok().map(|_| walk)
}

fn walk_files(root: &Path, inbox: &Mutex<Vec<IndexedPath>>, is_stopped: &AtomicBool) {
    let walker = WalkBuilder::new(root)
        .hidden(false)
        .ignore(false)
        .require_git(false)
        .follow_links(false)
        .max_depth(Some(MAX_DEPTH))
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    let mut batch = Vec::with_capacity(BATCH);
    let mut found = 0;
    let send = |batch: &mut Vec<IndexedPath>| {
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.append(batch);
    };
    for entry in walker.flatten() {
        if is_stopped.load(Ordering::Relaxed) || found >= MAX_INDEXED {
            break;
        }
        let Some(path) = relative_path(root, &entry) else {
            continue;
        };
        found += 1;
        batch.push(IndexedPath::new(&path));
        if batch.len() >= BATCH {
            send(&mut batch);
        }
    }
    send(&mut batch);
}

/// The path with slashes, or nothing for the root and for names that a prompt cannot contain.
fn relative_path(root: &Path, entry: &ignore::DirEntry) -> Option<String> {
    let path = entry.path().strip_prefix(root).ok()?.to_str()?;
    if path.is_empty() || path.len() > MAX_PATH || path.contains(char::is_control) {
        return None;
    }
    let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
    Some(if is_dir {
        format!("{path}/")
    } else {
        path.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn complete(index: &mut FileIndex) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !index.is_complete() && Instant::now() < deadline {
            index.poll();
            std::thread::yield_now();
        }
        assert!(index.is_complete());
    }

    fn paths(index: &FileIndex) -> Vec<&str> {
        let mut paths: Vec<&str> = index.entries().iter().map(|e| e.path.as_ref()).collect();
        paths.sort_unstable();
        paths
    }

    #[test]
    fn the_index_contains_what_git_would_show() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("created");
            std::fs::write(file, text).expect("written");
        };
        write(".gitignore", "target\n*.log\n");
        write(".github/ci.yml", "");
        write(".git/config", "");
        write("target/x", "");
        write("a.log", "");
        write("src/a b.rs", "");
        write("src/bad\nname", "");
        write("sub/.gitignore", "!keep.log\n");
        write("sub/keep.log", "");
        let mut index = FileIndex::start(dir.path());
        complete(&mut index);
        let expected = [
            ".github/",
            ".github/ci.yml",
            ".gitignore",
            "src/",
            "src/a b.rs",
            "sub/",
            "sub/.gitignore",
            "sub/keep.log",
        ];
        assert_eq!(paths(&index), expected);

        write("new.rs", "");
        index.refresh();
        assert_eq!(
            index.len(),
            expected.len(),
            "earlier results stay meanwhile"
        );
        complete(&mut index);
        assert!(paths(&index).contains(&"new.rs"));
    }

    #[test]
    fn a_missing_directory_is_an_empty_index() {
        let mut index = FileIndex::start(Path::new("/nonexistent/windlass"));
        complete(&mut index);
        assert!(index.is_empty() && !index.is_truncated());
    }
}
