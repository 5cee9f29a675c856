//! The sessions of a directory, last written first, with what a list shows of each. A session whose log did not change
//! since the last list is taken from the cache.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::SessionId;
use windlass_core::session_state::{STATE_TAIL, SessionState, StateFold};
use windlass_core::store::{SessionHead, Skimmed, StoreError};

use super::cache::{Bytes, Cache, Stamp, put_bytes};
use super::events::Events;
use super::lines::Lines;
use super::{LOG, SessionLog, failed, lease, open_log, tail};

/// The name of its cache.
pub(super) const CACHE: &str = "list";
/// Bytes of a log that are read for its title, and bytes that are read if the first are not enough.
const HEAD_BYTES: u64 = 64 * 1024;
const LONG_HEAD_BYTES: u64 = 4 << 20;
/// The longest title, in characters.
pub(super) const TITLE_CHARS: usize = 120;
/// Fewer sessions are looked at in one thread, and more in at most so many.
const MANY_SESSIONS: usize = 1_000;
const MAX_THREADS: usize = 4;

/// A session that is there.
pub(super) struct FoundSession {
    pub(super) id: SessionId,
    pub(super) stamp: Stamp,
    /// It is a directory of its own, and no symlink to one. The caches hold no others.
    pub(super) is_plain: bool,
}

impl SessionLog {
    /// The sessions whose id begins like this, last written first. A directory without a log, or with an empty one, is
    /// no session.
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
        let look = |names: &[(SessionId, bool)]| -> Vec<FoundSession> {
            let found = names.iter().filter_map(|(id, is_plain)| {
                let stat =
                    rustix::fs::statat(&dir, format!("{id}/{LOG}"), AtFlags::SYMLINK_NOFOLLOW)
                        .ok()?;
                let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                (is_file && stat.st_size > 0).then(|| FoundSession {
                    id: id.clone(),
                    stamp: Stamp::of(&stat),
                    is_plain: *is_plain,
                })
            });
            found.collect()
        };
        let mut found = in_threads(&names, look);
        found.sort_unstable_by(|a, b| (b.stamp.modified, &b.id).cmp(&(a.stamp.modified, &a.id)));
        Ok(found)
    }

    /// The beginning and the end of each log, or what was read from them before.
    pub(super) fn heads(&self) -> Result<Heads<'_>, StoreError> {
        Ok(Heads {
            log: self,
            found: self.find("")?.into_iter(),
            cache: Cache::open(&self.disk, &self.dir, CACHE),
        })
    }

    /// The facts that a list shows, read from the beginning and the end of the log alone.
    pub(super) fn head(&self, session: &SessionId) -> Result<SessionHead, StoreError> {
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

    /// The state by the last events, whether a process writes the session or not.
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

    /// The stamp of a log as it is now.
    pub(super) fn stamp(&self, session: &SessionId) -> Option<Stamp> {
        rustix::fs::lstat(self.log_path(session))
            .ok()
            .map(|stat| Stamp::of(&stat))
    }

    /// Whether a process writes the session now. The lock is looked at, never held.
    pub(super) fn is_written(&self, session: &SessionId) -> bool {
        let lock = self.home(session).join(lease::LOCK);
        let Ok(lock) = rustix::fs::open(
            &lock,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return false;
        };
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared)
            == Err(rustix::io::Errno::WOULDBLOCK)
    }
}

/// The heads of all sessions, each read when it is asked for.
pub(super) struct Heads<'a> {
    log: &'a SessionLog,
    found: std::vec::IntoIter<FoundSession>,
    cache: Cache,
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

/// The value of the cache. `is_idle`: no process wrote the session.
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
    let mut from = Bytes::new(bytes);
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

/// Calls `look` with parts of `names`, in threads where there are many.
pub(super) fn in_threads<N: Sync, F: Send>(
    names: &[N],
    look: impl Fn(&[N]) -> Vec<F> + Sync,
) -> Vec<F> {
    if names.len() < MANY_SESSIONS {
        return look(names);
    }
    let threads =
        std::thread::available_parallelism().map_or(1, |most| most.get().min(MAX_THREADS));
    let mut parts = names.chunks(names.len().div_ceil(threads));
    let first = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let look = &look;
        let others: Vec<_> = parts
            .map(|part| {
                // Where no thread can be started, this one does its work.
                let started = std::thread::Builder::new().spawn_scoped(scope, move || look(part));
                (part, started)
            })
            .collect();
        let mut found = look(first);
        for (part, thread) in others {
            let theirs = thread.ok().and_then(|thread| thread.join().ok());
            found.extend(theirs.unwrap_or_else(|| look(part)));
        }
        found
    })
}

/// The facts in the first lines of a log.
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
            // A damaged line is reported when the log is read in full.
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
