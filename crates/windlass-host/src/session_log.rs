//! Sessions as append-only JSONL files, `sessions/<id>/events.jsonl`, one writer each by lock.
//! A line that was not written whole is set aside and told; any other damage is an error that leaves the file
//! as it is. Paths are only ever built from ids that core has checked.

mod disk;
mod events;
mod index;
mod lease;
mod lines;
mod salvage;
mod snapshot;
mod tail;
mod writer;

pub use self::salvage::Salvaged;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};
use rustix::fs::FileType;
use rustix::io::Errno;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind, VERSION};
use windlass_core::id::SessionId;
use windlass_core::store::{
    OpenLog, OpenedLog, SessionHead, SessionStore, Skimmed, Snapshot, StoreError, StoreErrorKind,
};
use windlass_core::workspace::{FileError, FileErrorKind};
use windlass_core::{BoxFuture, BoxStream};

use self::disk::Disk;
use self::events::Events;
use self::lines::Lines;
use self::writer::Writer;
use crate::artifact::ArtifactDir;
use crate::workspace::open_regular_itself;

const LOG: &str = "events.jsonl";
/// The longest line that is written or read: an event with an image in it is large.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// How much of a log is looked at for its title, and how much where that was not enough.
const HEAD_BYTES: u64 = 64 * 1024;
const LONG_HEAD_BYTES: u64 = 4 << 20;
/// What to do where nothing may be written.
const MAKE_WRITABLE: &str = "make it writable, or set XDG_DATA_HOME to a directory that is";
/// How many times a name for what is set aside is tried.
const NAME_TRIES: u32 = 1000;
/// The longest title, in characters.
const TITLE_CHARS: usize = 120;
/// Reading gives others a turn after this many events.
const READ_TURN: usize = 256;

/// The sessions below one directory.
#[derive(Debug, Clone)]
pub struct SessionLog {
    dir: PathBuf,
    disk: Disk,
}

impl SessionLog {
    /// Sessions in `dir` (the data directory's `sessions`), which is made when the first session is.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            disk: Disk::default(),
        }
    }

    /// The artifacts of a session.
    #[must_use]
    pub fn artifacts(&self, session: &SessionId) -> ArtifactDir {
        ArtifactDir::new(self.home(session).join("artifacts"))
    }

    /// The log file of a session, for showing where it is.
    #[must_use]
    pub fn log_path(&self, session: &SessionId) -> PathBuf {
        self.home(session).join(LOG)
    }

    /// The sessions whose id begins like this, last written first.
    pub fn ids_starting_with(&self, text: &str) -> Result<Vec<SessionId>, StoreError> {
        let mut ids = self.sessions()?;
        ids.retain(|id| id.as_str().starts_with(text));
        Ok(ids)
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
        let lease = lease::take(&self.disk, &home, session)?;
        let path = home.join(LOG);
        let file = self
            .disk
            .create(&path)
            .map_err(|err| failed("create", &path, &err))?;
        let writer = Writer::new(self.disk.clone(), (file, path), 0, true, lease);
        // What is not there yet cannot be lost.
        Ok(OpenedLog {
            writer: Box::new(writer),
            notices: Vec::new(),
            after_power_cut: false,
        })
    }

    fn reopen(&self, session: &SessionId) -> Result<OpenedLog, StoreError> {
        let home = self.home(session);
        let path = home.join(LOG);
        // Look before the lock is made, so that a wrong id leaves no trace.
        open_log(&path, session)?;
        let lease = lease::take(&self.disk, &home, session)?;
        let (file, size) = open_log(&path, session)?;
        let found = tail::inspect(&file, size, &path, session)?;
        let log = self
            .disk
            .open(&path)
            .map_err(|err| failed("open", &path, &err))?;
        let (mut notices, mut len) = (Vec::new(), found.end);
        if let Some(whole) = tail::whole_without_end(&file, &found, &path)? {
            notices.push(tail::give_end(&self.disk, &log, whole, &path)?);
            len = whole + 1;
        } else if found.end < size {
            notices.push(tail::set_aside(
                &self.disk,
                &file,
                &log,
                found.end..size,
                &path,
            )?);
        }
        let after_power_cut = lease.after_power_cut;
        let writer = Writer::new(self.disk.clone(), (log, path), len, false, lease);
        Ok(OpenedLog {
            writer: Box::new(writer),
            notices,
            after_power_cut,
        })
    }

    fn remove(&self, session: &SessionId) -> Result<(), StoreError> {
        let home = self.home(session);
        check_home(&home, session)?;
        let _lease = lease::take(&self.disk, &home, session)?;
        match std::fs::remove_dir_all(&home) {
            // Somebody who reads it just wrote its index.
            Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::fs::remove_dir_all(&home)
            }
            // An agent took the modes away in its home.
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
                crate::private::remove_tree(&home)
            }
            done => done,
        }
        .map_err(|err| failed("delete", &home, &err))
    }

    /// The sessions, last written first. What is no session is passed over.
    fn sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(failed("list", &self.dir, &err)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|err| failed("list", &self.dir, &err))?;
            let id = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<SessionId>().ok());
            let Some(id) = id else { continue };
            // A session whose log is missing or empty was never really begun.
            if let Ok(about) = std::fs::symlink_metadata(self.log_path(&id))
                && about.is_file()
                && about.len() > 0
            {
                found.push((about.modified().unwrap_or(std::time::UNIX_EPOCH), id));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// What a list shows, from the beginning and the end of the log alone.
    fn head(&self, session: &SessionId) -> Result<SessionHead, StoreError> {
        let path = self.log_path(session);
        let (file, len) = open_log(&path, session)?;
        let last = tail::inspect(&file, len, &path, session)?.last;
        let mut begin = Beginning::read(file, &path, HEAD_BYTES)?;
        if begin.title.is_none() && len > HEAD_BYTES {
            // The first prompt is a long one.
            begin = Beginning::read(open_log(&path, session)?.0, &path, LONG_HEAD_BYTES)?;
        }
        let Beginning {
            opened,
            workspace,
            title,
        } = begin;
        let epoch = Timestamp::from_millis(0);
        let opened = opened.or(last.map(|last| last.at)).unwrap_or(epoch);
        Ok(SessionHead {
            id: session.clone(),
            opened,
            last: last.map_or(opened, |last| last.at),
            workspace,
            title: first_line(&title.unwrap_or_default()),
            events: last.map_or(0, |last| last.seq),
        })
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
        Box::pin(async move { snapshot::load(&self.log_path(session)) })
    }

    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>> {
        match self.sessions() {
            Ok(sessions) => Box::pin(stream::iter(sessions.into_iter().map(|id| self.head(&id)))),
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

/// What the first lines of a log say.
#[derive(Default)]
struct Beginning {
    opened: Option<Timestamp>,
    workspace: String,
    title: Option<String>,
}

impl Beginning {
    fn read(file: File, path: &Path, most: u64) -> Result<Self, StoreError> {
        let mut lines = Lines::new(file, path.to_owned(), Some(most));
        let mut begin = Self::default();
        while begin.title.is_none() {
            let Some(line) = lines.next()? else { break };
            // What is wrong inside a line is for reading it in full to say.
            let Ok(event) = serde_json::from_slice::<Event>(line) else {
                continue;
            };
            begin.opened.get_or_insert(event.at);
            match event.kind {
                EventKind::SessionOpened { workspace, .. } => begin.workspace = workspace,
                EventKind::RunStarted { prompt, .. } | EventKind::Queued { prompt, .. } => {
                    begin.title = Some(prompt.text());
                }
                _ => {}
            }
        }
        Ok(begin)
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

/// A session is a directory of its own. A link in its place could make us write, or show, what is none.
fn check_home(home: &Path, session: &SessionId) -> Result<(), StoreError> {
    match rustix::fs::lstat(home) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
        Ok(_) => {
            let message = format!(
                "{} is not a directory; it is left as it is. Move it away",
                home.display()
            );
            Err(StoreError::new(StoreErrorKind::Damaged, message))
        }
        Err(Errno::NOENT) => Err(not_found(session)),
        Err(errno) => Err(failed("open", home, &errno.into())),
    }
}

fn first_line(text: &str) -> String {
    text.trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(TITLE_CHARS)
        .collect()
}

fn not_found(session: &SessionId) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotFound,
        format!("there is no session {session}; `sessions list` shows them"),
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
         The file is left as it is",
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
        _ => (
            StoreErrorKind::Io,
            "see that the disk is well and try again",
        ),
    };
    StoreError::new(
        kind,
        format!("cannot {what} {}: {err}; {hint}", path.display()),
    )
}

#[cfg(test)]
#[path = "session_log_tests.rs"]
mod tests;
