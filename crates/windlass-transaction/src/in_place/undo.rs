//! What each call changes in the user's own tree, kept so that it can be taken back: the image of every path before
//! the call touched it, with its bytes in the content store. Takes nothing back itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::BoxFuture;
use windlass_core::id::CallId;
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{
    CallChanges, FileError, FileErrorKind, FileKind, Files, Snapshots, WorkspaceError,
};

use crate::landing::{Contents, ContentsError, look};
use windlass_host::workspace::Root;

/// A directory that is moved by a tool is kept file by file, at most so many.
const MAX_MOVED: usize = 10_000;
/// The most paths of one call that are named because they cannot be taken back.
const MAX_LOST: usize = 200;

/// How bytes get into the store.
type Put = fn(&Contents, &File) -> Result<(String, u64), ContentsError>;

/// The store of a workspace's undo, and what the calls that are going on have changed.
pub(super) struct Undo {
    pub(super) root: Arc<Root>,
    pub(super) contents: Contents,
    /// Where a landing notes what it does.
    pub(super) journal: PathBuf,
    calls: Mutex<Vec<(CallId, Record)>>,
}

/// What a call changed.
#[derive(Default)]
struct Record {
    before: BTreeMap<String, Image>,
    lost: BTreeMap<String, String>,
}

impl Undo {
    pub(super) fn new(root: Arc<Root>, contents: Contents, journal: PathBuf) -> Self {
        Self {
            root,
            contents,
            journal,
            calls: Mutex::default(),
        }
    }

    /// Keeps what is at a path whose bytes, or whose name, are about to change.
    pub(super) fn keep(&self, path: &str) {
        if !self.is_new(path) {
            return;
        }
        match self.image(path, Contents::put) {
            Ok(image) => self.note(path, image),
            Err(err) if err.kind == FileErrorKind::WrongKind => self.keep_folder(path),
            Err(err) => self.lose(path, err.message),
        }
    }

    /// Keeps what is at two names of which one takes the place of the other.
    pub(super) fn keep_move(&self, from: &str, to: &str) {
        self.keep(from);
        self.keep(to);
        if let Some((_, record)) = self.lock().last_mut() {
            let below = record
                .before
                .keys()
                .filter_map(|path| path.strip_prefix(from)?.strip_prefix('/'));
            let new: Vec<String> = below.map(|rest| format!("{to}/{rest}")).collect();
            for path in new {
                record.before.entry(path).or_insert(Image::Absent);
            }
        }
    }

    /// Notes what was at a path before this call; the bytes are kept already.
    pub(super) fn note(&self, path: &str, before: Image) {
        if let Some((_, record)) = self.lock().last_mut()
            && !record.lost.contains_key(path)
        {
            record.before.entry(path.to_owned()).or_insert(before);
        }
    }

    /// Notes that what was at a path cannot be put back.
    pub(super) fn lose(&self, path: &str, why: impl Into<String>) {
        if let Some((_, record)) = self.lock().last_mut()
            && record.lost.len() < MAX_LOST
            && !record.before.contains_key(path)
        {
            record.lost.entry(path.to_owned()).or_insert(why.into());
        }
    }

    /// What is at a path, with its bytes in the store, where `put` puts them.
    pub(super) fn image(&self, path: &str, put: Put) -> Result<Image, FileError> {
        let image = look(&self.root, path)?;
        let Image::File { hash, mode, .. } = &image else {
            return Ok(image);
        };
        if self.contents.has(hash) {
            return Ok(image);
        }
        let (file, _) = self.root.open_file(Path::new(path))?;
        let full = |message: String| FileError {
            kind: FileErrorKind::Full,
            message,
        };
        let (hash, size) = put(&self.contents, &file).map_err(|err| full(err.to_string()))?;
        Ok(Image::File {
            hash,
            size,
            mode: *mode,
        })
    }

    fn is_new(&self, path: &str) -> bool {
        let calls = self.lock();
        let record = calls.last().map(|(_, record)| record);
        record.is_some_and(|record| {
            !record.before.contains_key(path) && !record.lost.contains_key(path)
        })
    }

    /// Every file below a directory that is about to go elsewhere.
    fn keep_folder(&self, top: &str) {
        let (mut folders, mut seen) = (vec![top.to_owned()], 0);
        while let Some(folder) = folders.pop() {
            let Ok(listing) = self.root.list(&folder, MAX_MOVED) else {
                continue;
            };
            for (name, kind, _) in listing.entries {
                seen += 1;
                if seen > MAX_MOVED {
                    return self.lose(top, format!("it holds more than {MAX_MOVED} files"));
                }
                let path = format!("{folder}/{name}");
                match kind {
                    FileKind::Directory => folders.push(path),
                    _ => match self.image(&path, Contents::put) {
                        Ok(image) => self.note(&path, image),
                        Err(err) => self.lose(&path, err.message),
                    },
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(CallId, Record)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn changes(self, root: &Root) -> CallChanges {
        let mut lost = self.lost;
        let mut swaps = Vec::new();
        for (path, before) in self.before {
            match look(root, &path) {
                Ok(after) if after == before => {}
                Ok(after) => swaps.push(Swap {
                    path,
                    before,
                    after,
                }),
                // A directory is there now, whose files are noted by themselves, or a parent is a file.
                Err(err) if err.kind == FileErrorKind::WrongKind => {
                    if before.is_there() {
                        swaps.push(Swap {
                            path,
                            before,
                            after: Image::Absent,
                        });
                    }
                }
                Err(err) => drop(lost.insert(path, err.message)),
            }
        }
        CallChanges {
            swaps,
            lost: lost.into_iter().collect(),
        }
    }
}

impl Snapshots for Undo {
    fn begin(&self, call: &CallId) {
        self.lock().push((call.clone(), Record::default()));
    }

    fn end<'a>(&'a self, call: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let record = {
            let mut calls = self.lock();
            let at = calls.iter().position(|(known, _)| known == call);
            at.map(|at| calls.remove(at).1)
        };
        let root = Arc::clone(&self.root);
        Box::pin(async move {
            let Some(record) = record else {
                return Ok(CallChanges::default());
            };
            if record.before.is_empty() {
                return Ok(record.changes(&root));
            }
            // Most calls change a few files; a checkout of another branch changes thousands.
            let looked = tokio::task::spawn_blocking(move || record.changes(&root)).await;
            looked.map_err(|err| {
                WorkspaceError::other(format!("what the call changed cannot be seen: {err}"))
            })
        })
    }
}
