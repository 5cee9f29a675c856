//! Sessions as append-only JSONL files, `sessions/<id>/events.jsonl`, one writer each by lock.
//! A line that was not written whole is set aside and told; any other damage is an error that leaves the file
//! as it is. Paths are only ever built from ids that core has checked.

mod lines;
mod tail;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::stream;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind, Order, VERSION};
use windlass_core::id::SessionId;
use windlass_core::store::{OpenLog, OpenedLog, SessionHead, SessionStore, StoreError, StoreErrorKind};
use windlass_core::workspace::{FileError, FileErrorKind};
use windlass_core::{BoxFuture, BoxStream};

use self::lines::Lines;
use self::writer::Writer;
use crate::artifact::ArtifactDir;
use crate::workspace::open_regular_itself;

const LOG: &str = "events.jsonl";
const LOCK: &str = "writer.lock";
/// The longest line that is written or read: an event with an image in it is large.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// How much of a log is looked at for its title.
const HEAD_BYTES: u64 = 64 * 1024;
/// The longest title, in characters.
const TITLE_CHARS: usize = 120;
/// Reading gives others a turn after this many events.
const READ_TURN: usize = 256;

/// The sessions below one directory.
#[derive(Debug, Clone)]
pub struct SessionLog {
    dir: PathBuf,
}

impl SessionLog {
    /// Sessions in `dir` (the data directory's `sessions`), which is made when the first session is.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
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

    fn home(&self, session: &SessionId) -> PathBuf {
        self.dir.join(session.as_str())
    }

    fn create(&self, session: &SessionId) -> Result<OpenedLog, StoreError> {
        crate::private::create_dir(&self.dir).map_err(store_error)?;
        let home = self.home(session);
        match rustix::fs::mkdir(&home, Mode::from_raw_mode(0o700)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return Err(StoreError::new(StoreErrorKind::Exists, format!("session {session} exists already")));
            }
            Err(errno) => return Err(failed("create", &home, &errno.into())),
        }
        let lease = lock(&home, session)?;
        let path = home.join(LOG);
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failed("create", &path, &errno.into()))?;
        let writer = Writer::new(File::from(fd), path, 0, lease, true);
        Ok(OpenedLog { writer: Box::new(writer), notices: Vec::new() })
    }

    fn reopen(&self, session: &SessionId) -> Result<OpenedLog, StoreError> {
        let home = self.home(session);
        let path = home.join(LOG);
        // Look before the lock is made, so that a wrong id leaves no trace.
        open_log(&path, session)?;
        let lease = lock(&home, session)?;
        let (file, len) = open_log(&path, session)?;
        let found = tail::inspect(&file, len, &path)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| failed("open", &path, &errno.into()))?;
        let log = File::from(fd);
        let (mut notices, mut end) = (Vec::new(), found.end);
        if let Some(whole) = tail::whole_without_end(&file, &found, &path)? {
            notices.push(tail::give_end(&log, whole, &path)?);
            end = whole + 1;
        } else if found.end < len {
            notices.push(tail::set_aside(&file, &log, found.end, len, &path)?);
        }
        let writer = Writer::new(log, path, end, lease, false);
        Ok(OpenedLog { writer: Box::new(writer), notices })
    }

    fn remove(&self, session: &SessionId) -> Result<(), StoreError> {
        let home = self.home(session);
        check_home(&home, session)?;
        let _lease = lock(&home, session)?;
        std::fs::remove_dir_all(&home).map_err(|err| failed("delete", &home, &err))
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
            let id = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok());
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
        let last = tail::inspect(&file, len, &path)?.last;
        let mut lines = Lines::new(file, path.clone(), Some(HEAD_BYTES));
        let (mut opened, mut workspace, mut title) = (None, String::new(), None);
        while title.is_none() {
            let Some(line) = lines.next()? else { break };
            // What is wrong inside a line is for reading it in full to say.
            let Ok(event) = serde_json::from_slice::<Event>(line) else { continue };
            opened.get_or_insert(event.at);
            match event.kind {
                EventKind::SessionOpened { workspace: at, .. } => workspace = at,
                EventKind::RunStarted { prompt, .. } | EventKind::Queued { prompt, .. } => title = Some(prompt.text()),
                _ => {}
            }
        }
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
    fn open_writer<'a>(&'a self, session: &'a SessionId, how: OpenLog) -> BoxFuture<'a, Result<OpenedLog, StoreError>> {
        Box::pin(async move {
            match how {
                OpenLog::New => self.create(session),
                OpenLog::Existing => self.reopen(session),
            }
        })
    }

    fn read<'a>(&'a self, session: &'a SessionId, from_seq: u64) -> BoxStream<'a, Result<Event, StoreError>> {
        let path = self.log_path(session);
        let events = match open_log(&path, session) {
            Ok((file, _)) => Ok(Events { lines: Lines::new(file, path, None), from_seq, next_seq: 1, failed: false }),
            Err(err) => Err(Some(err)),
        };
        Box::pin(stream::unfold((events, 0_usize), |(mut events, count)| async move {
            if count % READ_TURN == READ_TURN - 1 {
                tokio::task::yield_now().await;
            }
            let item = match &mut events {
                Ok(events) => events.next(),
                Err(err) => err.take().map(Err),
            };
            item.map(|item| (item, (events, count + 1)))
        }))
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
}

/// The events of one log, in order. Ends after the first error.
struct Events {
    lines: Lines,
    from_seq: u64,
    next_seq: u64,
    failed: bool,
}

impl Events {
    fn next(&mut self) -> Option<Result<Event, StoreError>> {
        while !self.failed {
            match self.step() {
                Ok(None) => return None,
                Ok(Some(None)) => {}
                Ok(Some(Some(event))) => return Some(Ok(event)),
                Err(err) => {
                    self.failed = true;
                    return Some(Err(err));
                }
            }
        }
        None
    }

    /// One line: none at the end, none inside when it comes before what was asked for.
    fn step(&mut self) -> Result<Option<Option<Event>>, StoreError> {
        let (path, number) = (self.lines.path().to_owned(), self.lines.number() + 1);
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let damaged = |what: String| {
            let message = format!(
                "{}:{number}: {what}; the file is left as it is. Restore it from a copy, or delete the session",
                path.display()
            );
            StoreError::new(StoreErrorKind::Damaged, message)
        };
        let (seq, event) = if self.next_seq < self.from_seq {
            let header = tail::header(line, &path)?.ok_or_else(|| damaged("this line is not an event".to_owned()))?;
            (header.seq, None)
        } else {
            let event = serde_json::from_slice::<Event>(line).map_err(|err| {
                tail::newer(line, &path).unwrap_or_else(|| damaged(format!("this line is not an event: {err}")))
            })?;
            if event.v > VERSION {
                return Err(newer_error(&path, u64::from(event.v)));
            }
            match event.order {
                Order::Durable { seq } => (seq, Some(event)),
                Order::Live { .. } => return Err(damaged("a live event does not belong in a log".to_owned())),
            }
        };
        if seq != self.next_seq {
            return Err(damaged(format!("event {} is missing, here is event {seq}", self.next_seq)));
        }
        self.next_seq += 1;
        Ok(Some(event))
    }
}

/// Becomes the one writer. The lock is the kernel's and ends with its holder, however that ends; the number in
/// the file only says who it is.
fn lock(home: &Path, session: &SessionId) -> Result<File, StoreError> {
    let path = home.join(LOCK);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| failed("lock", &path, &errno.into()))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut said = [0; 16];
            let len = rustix::io::pread(&fd, &mut said, 0).unwrap_or(0);
            let pid = std::str::from_utf8(&said[..len]).ok().and_then(|said| said.trim().parse::<u32>().ok());
            let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            return Err(StoreError::new(
                StoreErrorKind::Locked,
                format!("session {session} is being written by {holder}; end that one first, or start a new session"),
            ));
        }
        Err(errno) => return Err(failed("lock", &path, &errno.into())),
    }
    // Who holds it is a courtesy; the lock holds without it.
    let _ = rustix::fs::ftruncate(&fd, 0);
    let _ = rustix::io::pwrite(&fd, format!("{}\n", std::process::id()).as_bytes(), 0);
    Ok(File::from(fd))
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
            let message = format!("{} is not a directory; it is left as it is. Move it away", home.display());
            Err(StoreError::new(StoreErrorKind::Damaged, message))
        }
        Err(Errno::NOENT) => Err(not_found(session)),
        Err(errno) => Err(failed("open", home, &errno.into())),
    }
}

fn first_line(text: &str) -> String {
    text.trim().lines().next().unwrap_or_default().chars().take(TITLE_CHARS).collect()
}

fn not_found(session: &SessionId) -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, format!("there is no session {session}; `sessions list` shows them"))
}

fn newer_error(path: &Path, found: u64) -> StoreError {
    let message = format!(
        "{} was written by a newer version (format {found}, this program knows {VERSION}); update this program. \
         The file is left as it is",
        path.display()
    );
    StoreError::new(StoreErrorKind::Newer, message)
}

fn store_error(err: FileError) -> StoreError {
    let kind = if err.kind == FileErrorKind::Full { StoreErrorKind::Full } else { StoreErrorKind::Io };
    StoreError::new(kind, err.message)
}

fn failed(what: &str, path: &Path, err: &io::Error) -> StoreError {
    let full = matches!(err.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let kind = if full { StoreErrorKind::Full } else { StoreErrorKind::Io };
    let hint = if full { "; free some space and try again" } else { "" };
    StoreError::new(kind, format!("cannot {what} {}: {err}{hint}", path.display()))
}

#[cfg(test)]
#[path = "session_log_tests.rs"]
mod tests;
