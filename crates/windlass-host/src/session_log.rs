//! Sessions as append-only JSONL files, `sessions/<id>/events.jsonl`, with one writer each, enforced by a lock. An
//! incomplete last line is moved to another file with a notice; any other damage is an error and leaves the file
//! unchanged. Paths are built only from ids that core has checked.

mod cache;
mod disk;
mod events;
mod index;
mod lease;
mod lines;
mod listing;
mod salvage;
mod snapshot;
mod tail;
mod text_filter;
mod text_search;
mod writer;

pub use self::salvage::Salvaged;
pub use self::text_search::TextSearch;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};
use rustix::fs::FileType;
use rustix::io::Errno;
use windlass_core::event::{Event, VERSION};
use windlass_core::id::SessionId;
use windlass_core::store::{
    OpenLog, OpenedLog, SessionHead, SessionStore, Skimmed, Snapshot, StoreError, StoreErrorKind,
};
use windlass_core::workspace::{FileError, FileErrorKind};
use windlass_core::{BoxFuture, BoxStream};

use self::cache::SessionCache;
use self::disk::LogDisk;
use self::events::Events;
use self::writer::LogFileWriter;
use crate::artifact::ArtifactDir;
use crate::workspace::open_regular_itself;

const LOG: &str = "events.jsonl";
/// The maximum length of a line in bytes. An event with an image is large.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// The advice for a directory that is not writable.
const MAKE_WRITABLE: &str = "make it writable, or set XDG_DATA_HOME to a directory that is";
/// The maximum number of attempts to find a free file name.
const MAX_NAME_ATTEMPTS: u32 = 1000;
/// A reader yields to other tasks after this many events.
const READ_TURN: usize = 256;

/// The store of all sessions below one directory.
#[derive(Debug, Clone)]
pub struct SessionLog {
    dir: PathBuf,
    disk: LogDisk,
}

impl SessionLog {
    /// Uses `dir` (`sessions` in the data directory), which is created with the first session.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            disk: LogDisk::default(),
        }
    }

    /// Returns the artifact store of a session.
    #[must_use]
    pub fn artifacts(&self, session: &SessionId) -> ArtifactDir {
        ArtifactDir::new(self.home(session).join("artifacts"))
    }

    /// Returns the path of a session's log file, for display.
    #[must_use]
    pub fn log_path(&self, session: &SessionId) -> PathBuf {
        self.home(session).join(LOG)
    }

    /// Returns the sessions whose id starts with `text`, in descending order of their last write.
    pub fn ids_starting_with(&self, text: &str) -> Result<Vec<SessionId>, StoreError> {
        let found = self.find(text)?.into_iter();
        Ok(found.map(|session| session.id).collect())
    }

    fn home(&self, session: &SessionId) -> PathBuf {
        self.dir.join(session.as_str())
    }

    fn create(&self, session: &SessionId) -> Result<OpenedLog, StoreError> {
        crate::private::create_dir(&self.dir).map_err(store_error)?;
        let home = self.home(session);
        match self.disk.make_dir(&home) {
            Ok(()) => {}
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StoreError::new(
                    StoreErrorKind::Exists,
                    format!("session {session} exists already"),
                ));
            }
            Err(err) => return Err(failed("create", &home, &err)),
        }
        let lease = lease::acquire(&self.disk, &home, session)?;
        let path = home.join(LOG);
        let file = self
            .disk
            .create(&path)
            .map_err(|err| failed("create", &path, &err))?;
        let writer = LogFileWriter::new(self.disk.clone(), (file, path), 0, true, lease);
        // A new log cannot have lost events.
        Ok(OpenedLog {
            writer: Box::new(writer),
            notices: Vec::new(),
            after_power_cut: false,
        })
    }

    fn reopen(&self, session: &SessionId) -> Result<OpenedLog, StoreError> {
        let home = self.home(session);
        let path = home.join(LOG);
        // Check that the log exists before the lock file is created, so that a wrong id leaves no trace.
        open_log(&path, session)?;
        let lease = lease::acquire(&self.disk, &home, session)?;
        let (file, size) = open_log(&path, session)?;
        // The listing must not consider the session idle, so change the times of its log before anything is written.
        let _ = self.disk.touch(&file);
        let found = tail::inspect(&file, size, &path, session)?;
        let log = self
            .disk
            .open(&path)
            .map_err(|err| failed("open", &path, &err))?;
        let (mut notices, mut len) = (Vec::new(), found.end);
        if let Some(whole) = tail::complete_without_line_end(&file, &found, &path)? {
            notices.push(tail::add_line_end(&self.disk, &log, whole, &path)?);
            len = whole + 1;
        } else if found.end < size {
            notices.push(tail::move_torn_end(
                &self.disk,
                &file,
                &log,
                found.end..size,
                &path,
            )?);
        }
        let after_power_cut = lease.after_power_cut;
        let writer = LogFileWriter::new(self.disk.clone(), (log, path), len, false, lease);
        Ok(OpenedLog {
            writer: Box::new(writer),
            notices,
            after_power_cut,
        })
    }

    fn remove(&self, session: &SessionId) -> Result<(), StoreError> {
        let home = self.home(session);
        check_home(&home, session)?;
        let _lease = lease::acquire(&self.disk, &home, session)?;
        match std::fs::remove_dir_all(&home) {
            // A concurrent reader may have written the index.
            Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::fs::remove_dir_all(&home)
            }
            // An agent may have removed permissions in its home.
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
                crate::private::remove_tree(&home)
            }
            done => done,
        }
        .map_err(|err| failed("delete", &home, &err))?;
        // Remove the session's title and text from the caches.
        for name in [listing::CACHE, text_search::CACHE] {
            SessionCache::open(&self.disk, &self.dir, name).remove(session);
        }
        Ok(())
    }
}

impl SessionStore for SessionLog {
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>> {
        Box::pin(async move {
            match how {
                OpenLog::New => self.create(session),
                OpenLog::Existing => self.reopen(session),
            }
        })
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
    ) -> BoxStream<'a, Result<Event, StoreError>> {
        let skimmed = self.skim(session, from_seq, |_| true);
        Box::pin(skimmed.filter_map(|line| {
            std::future::ready(match line {
                Ok(Skimmed::Event(event)) => Some(Ok(event)),
                Ok(Skimmed::Passed { .. }) => None,
                Err(err) => Some(Err(err)),
            })
        }))
    }

    fn skim<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
        wanted: fn(&str) -> bool,
    ) -> BoxStream<'a, Result<Skimmed, StoreError>> {
        let path = self.log_path(session);
        let events = open_log(&path, session)
            .and_then(|(file, _)| {
                Events::new(file, path, session.clone(), wanted).starting(from_seq, &self.disk)
            })
            .map_err(Some);
        Box::pin(stream::unfold(
            (events, 0_usize),
            |(mut events, count)| async move {
                if count % READ_TURN == READ_TURN - 1 {
                    tokio::task::yield_now().await;
                }
                let item = match &mut events {
                    Ok(events) => events.next(),
                    Err(err) => err.take().map(Err),
                };
                item.map(|item| (item, (events, count + 1)))
            },
        ))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Option<Snapshot>> {
        // Loading reads the whole log, which may be long.
        let path = self.log_path(session);
        Box::pin(async move {
            let loaded = tokio::task::spawn_blocking(move || snapshot::load(&path)).await;
            loaded.ok().flatten()
        })
    }

    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>> {
        match self.heads() {
            Ok(heads) => Box::pin(stream::iter(heads)),
            Err(err) => Box::pin(stream::iter([Err(err)])),
        }
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.remove(session) })
    }

    fn share_artifacts<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            check_home(&self.home(from), from)?;
            check_home(&self.home(to), to)?;
            self.artifacts(from)
                .share(&self.artifacts(to))
                .map_err(store_error)
        })
    }
}

fn open_log(path: &Path, session: &SessionId) -> Result<(File, u64), StoreError> {
    check_home(path.parent().unwrap_or(path), session)?;
    match open_regular_itself(path) {
        Ok((file, stat)) => Ok((file, stat.size)),
        Err(err) if err.kind == FileErrorKind::NotFound => Err(not_found(session)),
        Err(err) => Err(store_error(err)),
    }
}

/// Checks that a session is a real directory. With a symlink in its place, we could write or show files elsewhere.
fn check_home(home: &Path, session: &SessionId) -> Result<(), StoreError> {
    match rustix::fs::lstat(home) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
        Ok(_) => {
            let message = format!(
                "{} is not a directory; it was not changed. Move it away",
                home.display()
            );
            Err(StoreError::new(StoreErrorKind::Damaged, message))
        }
        Err(Errno::NOENT) => Err(not_found(session)),
        Err(errno) => Err(failed("open", home, &errno.into())),
    }
}

fn not_found(session: &SessionId) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotFound,
        format!("there is no session {session}; `windlass sessions list` shows all sessions"),
    )
}

fn version_error(path: &Path, found: u64) -> StoreError {
    let (age, advice) = match found > u64::from(VERSION) {
        true => ("a newer", "update this program"),
        false => (
            "an older",
            "read it with the version that wrote it, or start a new session",
        ),
    };
    let message = format!(
        "{} was written by {age} version (format {found}, this program reads {VERSION}); {advice}. \
         The file was not changed",
        path.display()
    );
    StoreError::new(StoreErrorKind::OtherVersion, message)
}

fn store_error(err: FileError) -> StoreError {
    match err.kind {
        FileErrorKind::Full => StoreError::new(StoreErrorKind::Full, err.message),
        FileErrorKind::Permission => StoreError::new(
            StoreErrorKind::Io,
            format!("{}; {MAKE_WRITABLE}", err.message),
        ),
        _ => StoreError::new(StoreErrorKind::Io, err.message),
    }
}

fn failed(what: &str, path: &Path, err: &io::Error) -> StoreError {
    let (kind, hint) = match err.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (StoreErrorKind::Full, "free some space and try again")
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            (StoreErrorKind::Io, MAKE_WRITABLE)
        }
        _ => (StoreErrorKind::Io, "check the disk and try again"),
    };
    StoreError::new(
        kind,
        format!("cannot {what} {}: {err}; {hint}", path.display()),
    )
}

#[cfg(test)]
#[path = "session_log_tests.rs"]
mod tests;
