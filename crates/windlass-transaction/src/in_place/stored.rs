//! Undo for commands where the kernel has no layers: the system's record of every source file, and the bytes of as
//! many as fit, from before the command. What is not kept is named when a command has changed it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use windlass_core::image::Image;

use super::tracked::{Print, prints};
use super::undo::Undo;
use crate::landing::Contents;

/// The most files whose bytes are kept before a command, and the largest of them.
const MAX_FILES: usize = 5_000;
const MAX_BYTES: u64 = 1024 * 1024;

/// What is known of the tree; nothing before the first command.
#[derive(Default)]
pub(super) struct Stored(Mutex<Option<Index>>);

type Index = BTreeMap<PathBuf, Known>;

struct Known {
    print: Print,
    /// Its image, when its bytes are kept.
    image: Option<Image>,
}

impl Stored {
    /// Looks at the tree before a command; the first time at every file, then at those that somebody changed since.
    pub(super) fn before(&self, undo: &Undo) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = MAX_FILES;
        let Some(now) = prints(&undo.root) else {
            return;
        };
        let mut old = index.take().unwrap_or_default();
        let mut known = Index::new();
        for (path, print) in now {
            let same = old.remove(&path).filter(|one| one.print == print);
            let image = match same {
                Some(same) => same.image,
                None if room > 0 && print.size <= MAX_BYTES => {
                    room -= 1;
                    path.to_str()
                        .and_then(|path| undo.image(path, Contents::put_soon).ok())
                }
                None => None,
            };
            known.insert(path, Known { print, image });
        }
        *index = Some(known);
    }

    /// Notes what a command changed.
    pub(super) fn after(&self, undo: &Undo) {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(known), Some(now)) = (&*index, prints(&undo.root)) else {
            undo.lose(
                ".",
                "a command ran, and the workspace is too large to see what it changed",
            );
            return;
        };
        for path in now.keys().filter(|path| !known.contains_key(*path)) {
            note(undo, path, Some(&Image::Absent));
        }
        for (path, before) in known
            .iter()
            .filter(|(path, before)| now.get(*path) != Some(&before.print))
        {
            note(undo, path, before.image.as_ref());
        }
    }
}

fn note(undo: &Undo, path: &Path, before: Option<&Image>) {
    match (path.to_str(), before) {
        (Some(path), Some(before)) => undo.note(path, before.clone()),
        (Some(path), None) => undo.lose(
            path,
            "its bytes were not kept before the command: it was too large, or there were too many",
        ),
        (None, _) => undo.lose(&path.to_string_lossy(), "its name is not UTF-8"),
    }
}
