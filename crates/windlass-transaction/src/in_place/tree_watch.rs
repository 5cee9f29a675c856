//! Watches the workspace for changes while background jobs run, with inotify on every directory of the source set. If
//! the kernel allows too few watches, the caller compares whole trees from time to time.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use windlass_host::search::IgnoreRules;
use windlass_host::workspace::Root;

/// Maximum number of watched directories.
const MAX_WATCHES: usize = 50_000;
/// Maximum number of events that are read at once; the rest is left for the next call.
const MAX_EVENTS: usize = 100_000;

/// Paths that changed, parents first.
#[derive(Debug, Default)]
pub(super) struct TreeChanges {
    /// Whether a directory at the path was moved or replaced.
    pub(super) paths: BTreeMap<PathBuf, bool>,
    /// More may have changed: the whole tree has to be compared.
    pub(super) unknown: bool,
}

/// Inotify watches on the workspace.
#[derive(Debug)]
pub(super) struct TreeWatch {
    root: Arc<Root>,
    /// `None` if the kernel allows no watches, or not enough.
    inotify: Option<OwnedFd>,
    directories: HashMap<i32, PathBuf>,
}

impl TreeWatch {
    pub(super) fn new(root: Arc<Root>) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        let mut watch = Self {
            root,
            inotify,
            directories: HashMap::new(),
        };
        watch.add(Path::new(""));
        // Commits and checkouts replace the index and HEAD.
        watch.add_one(Path::new(".git"));
        watch
    }

    /// A handle that becomes readable on changes; `None` if trees have to be compared.
    pub(super) fn handle(&self) -> Option<OwnedFd> {
        self.inotify.as_ref()?.try_clone().ok()
    }

    /// The changes since the last call.
    pub(super) fn take(&mut self) -> TreeChanges {
        let mut changes = TreeChanges::default();
        let Some(handle) = self.handle() else {
            changes.unknown = true;
            return changes;
        };
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = Reader::new(handle, &mut buffer);
        let mut new = Vec::new();
        for _ in 0..MAX_EVENTS {
            let Ok(event) = reader.next() else { break };
            let flags = event.events();
            changes.unknown |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            let directory = self.directories.get(&event.wd());
            if flags.contains(ReadFlags::IGNORED) {
                self.directories.remove(&event.wd());
                continue;
            }
            let (Some(directory), Some(name)) = (directory, event.file_name()) else {
                continue;
            };
            let path = directory.join(OsStr::from_bytes(name.to_bytes()));
            let is_directory = flags.contains(ReadFlags::ISDIR);
            let replaced = ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            if is_directory && flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                new.push(path.clone());
            }
            *changes.paths.entry(path).or_default() |= is_directory && flags.intersects(replaced);
        }
        for path in new {
            self.add(&path);
        }
        changes
    }

    /// Watches a directory and the directories below it, except ignored ones.
    fn add(&mut self, top: &Path) {
        let mut rules = IgnoreRules::of(&self.root);
        let mut above = PathBuf::new();
        for part in top {
            above.push(part);
            if part == ".git" || rules.ignores(&above, true) {
                return;
            }
            rules = rules.inside(&self.root, &above);
        }
        let mut open = vec![(top.to_owned(), rules)];
        while let Some((directory, rules)) = open.pop() {
            if !self.add_one(&directory) {
                return;
            }
            let Ok((_, entries)) = self.root.entries(&directory) else {
                continue;
            };
            for (name, kind) in entries {
                let path = directory.join(&name);
                if kind == FileType::Directory && name != ".git" && !rules.ignores(&path, true) {
                    let inside = rules.inside(&self.root, &path);
                    open.push((path, inside));
                }
            }
        }
    }

    /// Watches one directory. Returns whether more can be watched.
    fn add_one(&mut self, directory: &Path) -> bool {
        let Some(inotify) = &self.inotify else {
            return false;
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        // Use a handle that was opened below the root, because the path may become a symlink.
        let place = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        let Ok(handle) = self.root.open_dir(place) else {
            return true;
        };
        let place = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
        match inotify::add_watch(inotify, place, flags) {
            Ok(number) => {
                self.directories.insert(number, directory.to_owned());
            }
            // The directory is gone already.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return true,
            Err(_) => self.inotify = None,
        }
        if self.directories.len() > MAX_WATCHES {
            self.inotify = None;
        }
        self.inotify.is_some()
    }
}
