//! Lists the sessions of a directory, in descending order of their last write. A session whose log did not change since
//! the last list is read from the cache.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::SessionId;
use windlass_core::session_state::{STATE_TAIL, SessionState, StateFold};
use windlass_core::store::{SessionHead, Skimmed, StoreError};

use super::cache::{CacheReader, LogStamp, SessionCache, put_bytes};
use super::events::Events;
use super::lines::LogLines;
use super::{LOG, SessionLog, failed, lease, open_log, tail};

/// The name of the cache for lists.
pub(super) const CACHE: &str = "list";
/// The number of bytes that are read of a log for its title, and the number if those are not enough.
const HEAD_BYTES: u64 = 64 * 1024;
const LONG_HEAD_BYTES: u64 = 4 << 20;
/// The maximum length of a title in characters.
pub(super) const TITLE_CHARS: usize = 120;
/// From this number of sessions on, several threads are used.
const MANY_SESSIONS: usize = 1_000;
const MAX_THREADS: usize = 4;

/// A session on disk.
pub(super) struct FoundSession {
    pub(super) id: SessionId,
    pub(super) stamp: LogStamp,
    /// The session is a real directory, and not a symlink to one. The caches contain no others.
    pub(super) is_plain: bool,
}

impl SessionLog {
    /// Returns the sessions whose id starts with `start`, in descending order of their last write. A directory without
    /// a log, or with an empty one, is not a session.
    pub(super) fn find(&self, start: &str) -> Result<Vec<FoundSession>, StoreError> {
        let fail = |err: io::Error| failed("list", &self.dir, &err);
        let dir = match File::open(&self.dir) {
            Ok(dir) => dir,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(fail(err)),
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            let id = name.to_str().filter(|name| name.starts_with(start));
            if let Some(id) = id.and_then(|name| name.parse::<SessionId>().ok()) {
                names.push((id, entry.file_type().is_ok_and(|kind| kind.is_dir())));
            }
        }
        let process = |names: &[(SessionId, bool)]| -> Vec<FoundSession> {
            let found = names.iter().filter_map(|(id, is_plain)| {
                let stat =
                    rustix::fs::statat(&dir, format!("{id}/{LOG}"), AtFlags::SYMLINK_NOFOLLOW)
                        .ok()?;
                let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                (is_file && stat.st_size > 0).then(|| FoundSession {
                    id: id.clone(),
                    stamp: LogStamp::of(&stat),
                    is_plain: *is_plain,
                })
            });
            found.collect()
        };
        let mut found = in_threads(&names, process);
        found.sort_unstable_by(|a, b| (b.stamp.modified, &b.id).cmp(&(a.stamp.modified, &a.id)));
        Ok(found)
    }

    /// Returns the facts for a list, from the logs or from the cache.
    pub(super) fn heads(&self) -> Result<Heads<'_>, StoreError> {
        Ok(Heads {
            log: self,
            found: self.find("")?.into_iter(),
            cache: SessionCache::open(&self.disk, &self.dir, CACHE),
        })
    }

    /// Reads the facts for a list from the beginning and the end of the log.
    pub(super) fn head(&self, session: &SessionId) -> Result<SessionHead, StoreError> {
        let path = self.log_path(session);
        let (file, len) = open_log(&path, session)?;
        let last = tail::inspect(&file, len, &path, session)?.last;
        let mut begin = LogStart::read(file, &path, HEAD_BYTES)?;
        if begin.title.is_none() && len > HEAD_BYTES {
            // The first prompt is long.
            begin = LogStart::read(open_log(&path, session)?.0, &path, LONG_HEAD_BYTES)?;
        }
        let LogStart {
            opened,
            workspace,
            title,
        } = begin;
        let epoch = Timestamp::from_millis(0);
        let opened = opened.or(last.map(|last| last.at)).unwrap_or(epoch);
        let events = last.map_or(0, |last| last.seq);
        Ok(SessionHead {
            id: session.clone(),
            opened,
            last: last.map_or(opened, |last| last.at),
            workspace,
            title: first_line(&title.unwrap_or_default()),
            events,
            state: self.state(session, path, events)?,
        })
    }

    /// Computes the state from the last events. Ignores whether a process is writing the session.
    fn state(
        &self,
        session: &SessionId,
        path: PathBuf,
        events: u64,
    ) -> Result<SessionState, StoreError> {
        let (file, _) = open_log(&path, session)?;
        let from = events.saturating_sub(STATE_TAIL).max(1);
        let mut events =
            Events::new(file, path, session.clone(), |_| true).starting(from, &self.disk)?;
        let mut state = StateFold::default();
        while let Some(line) = events.next() {
            match line {
                Ok(Skimmed::Event(event)) => state.add(&event),
                Ok(Skimmed::Passed { .. }) => {}
                Err(_) => return Ok(SessionState::Damaged),
            }
        }
        Ok(state.state())
    }

    /// Returns the current stamp of a log.
    pub(super) fn stamp(&self, session: &SessionId) -> Option<LogStamp> {
        rustix::fs::lstat(self.log_path(session))
            .ok()
            .map(|stat| LogStamp::of(&stat))
    }

    /// Returns whether a process is writing the session. Tests the lock without keeping it.
    pub fn is_written(&self, session: &SessionId) -> bool {
        let lock = self.home(session).join(lease::LOCK);
        let Ok(lock) = rustix::fs::open(
            &lock,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return false;
        };
        let tested = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared);
        // A process that another thread starts has a copy of the file until it executes its program.
        let _ = rustix::fs::flock(&lock, FlockOperation::Unlock);
        tested == Err(rustix::io::Errno::WOULDBLOCK)
    }
}

/// Iterates over the heads of all sessions; each is read on demand.
pub(super) struct Heads<'a> {
    log: &'a SessionLog,
    found: std::vec::IntoIter<FoundSession>,
    cache: SessionCache,
}

impl Iterator for Heads<'_> {
    type Item = Result<SessionHead, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let session = self.found.next()?;
        Some(self.head(&session))
    }
}

impl Heads<'_> {
    fn head(&mut self, session: &FoundSession) -> Result<SessionHead, StoreError> {
        let cached = self.cache.get(&session.id, &session.stamp);
        let cached = cached.filter(|_| session.is_plain);
        let (mut head, is_new) = match cached.and_then(|bytes| decode(&session.id, bytes)) {
            // A writer changes the stamp when it opens the log, so there is none.
            Some((head, true)) => return Ok(head),
            Some((head, false)) => (head, false),
            None => (self.log.head(&session.id)?, true),
        };
        let written = self.log.is_written(&session.id);
        // The log may have grown since its stamp was taken.
        if session.is_plain
            && (is_new || !written)
            && self.log.stamp(&session.id) == Some(session.stamp)
        {
            let value = encode(&head, !written);
            self.cache.set(&session.id, session.stamp, value);
        }
        if written && head.state != SessionState::Damaged {
            head.state = SessionState::Running;
        }
        Ok(head)
    }
}

impl Drop for Heads<'_> {
    fn drop(&mut self) {
        if self.found.as_slice().is_empty() {
            self.cache.remove_others();
        }
    }
}

/// Encodes a value for the cache. `is_idle` means that no process was writing the session.
pub(super) fn encode(head: &SessionHead, is_idle: bool) -> Vec<u8> {
    let mut bytes = vec![u8::from(is_idle)];
    bytes.extend_from_slice(&head.opened.as_millis().to_le_bytes());
    bytes.extend_from_slice(&head.last.as_millis().to_le_bytes());
    bytes.extend_from_slice(&head.events.to_le_bytes());
    for text in [head.state.word(), &head.workspace, &head.title] {
        put_bytes(&mut bytes, text.as_bytes());
    }
    bytes
}

fn decode(id: &SessionId, bytes: &[u8]) -> Option<(SessionHead, bool)> {
    let mut from = CacheReader::new(bytes);
    let is_idle = from.u8()? == 1;
    let head = SessionHead {
        id: id.clone(),
        opened: Timestamp::from_millis(from.i64()?),
        last: Timestamp::from_millis(from.i64()?),
        events: from.u64()?,
        state: SessionState::from_word(from.text()?),
        workspace: from.text()?.to_owned(),
        title: from.text()?.to_owned(),
    };
    Some((head, is_idle))
}

/// Calls `process` with parts of `names`, in several threads if there are many.
pub(super) fn in_threads<N: Sync, F: Send>(
    names: &[N],
    process: impl Fn(&[N]) -> Vec<F> + Sync,
) -> Vec<F> {
    if names.len() < MANY_SESSIONS {
        return process(names);
    }
    let threads =
        std::thread::available_parallelism().map_or(1, |most| most.get().min(MAX_THREADS));
    let mut parts = names.chunks(names.len().div_ceil(threads));
    let first = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let process = &process;
        let others: Vec<_> = parts
            .map(|part| {
                // If no thread can be started, this thread does the work.
                let started =
                    std::thread::Builder::new().spawn_scoped(scope, move || process(part));
                (part, started)
            })
            .collect();
        let mut found = process(first);
        for (part, thread) in others {
            let theirs = thread.ok().and_then(|thread| thread.join().ok());
            found.extend(theirs.unwrap_or_else(|| process(part)));
        }
        found
    })
}

/// The facts in the first lines of a log.
#[derive(Default)]
struct LogStart {
    opened: Option<Timestamp>,
    workspace: String,
    title: Option<String>,
}

impl LogStart {
    fn read(file: File, path: &Path, most: u64) -> Result<Self, StoreError> {
        let mut lines = LogLines::new(file, path.to_owned(), Some(most));
        let mut begin = Self::default();
        while begin.title.is_none() {
            let Some(line) = lines.next()? else { break };
            // A damaged line is reported when the log is read completely.
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

fn first_line(text: &str) -> String {
    text.trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(TITLE_CHARS)
        .collect()
}
