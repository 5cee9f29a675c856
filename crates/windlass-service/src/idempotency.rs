//! Remembers requests by their idempotency key for 24 hours, so that a request that is repeated after a lost reply starts
//! nothing twice, also after a crash of the server.
//!
//! The key is stored before the request takes effect, and the reply after it. A key without a reply belongs to a request
//! during which the server stopped: the operation then tells from the log whether it took effect.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use windlass::core::id::SessionId;

use crate::private_file;
use crate::problem::{Problem, ProblemCode};

/// Seconds for which a key is remembered.
const REMEMBERED: u64 = 24 * 3_600;
/// Maximum number of remembered keys.
const MAX_KEYS: usize = 100_000;
/// The file is rewritten when it has this many lines more than keys.
const SLACK: usize = 10_000;
/// Maximum length of a key.
const MAX_KEY: usize = 255;
/// Replies above this size are not stored; a repeated request is told to read the state instead.
const MAX_REPLY: usize = 256 << 10;

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct KeyLine {
    /// The hash of the key and the token.
    k: String,
    at: u64,
    /// The hash of the request.
    r: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<Box<RawValue>>,
}

#[derive(Clone)]
struct KeyState {
    at: u64,
    request: String,
    reply: Option<Arc<str>>,
    /// Wakes requests that wait for the reply; `None` if the server stopped during the request.
    running: Option<Arc<Notify>>,
}

/// The remembered keys.
pub(crate) struct IdempotencyKeys {
    path: PathBuf,
    state: Mutex<KeysState>,
}

struct KeysState {
    keys: HashMap<String, KeyState>,
    file: Option<File>,
    lines: usize,
}

/// The result of looking up a key.
pub(crate) enum Remembered {
    /// The request is new, and its key is stored.
    New(KeyInUse),
    /// The reply of the first attempt.
    Reply(Arc<str>),
    /// The server stopped during the first attempt.
    Interrupted(KeyInUse),
}

/// A key whose request is in progress. If it is dropped without a reply, the key is forgotten.
pub(crate) struct KeyInUse {
    keys: Arc<IdempotencyKeys>,
    key: String,
    /// A later process must treat the request as interrupted.
    keep: bool,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl IdempotencyKeys {
    pub(crate) fn open(dir: &Path) -> Result<Self, Problem> {
        let path = dir.join("idempotency.jsonl");
        let mut keys = HashMap::new();
        let oldest = now().saturating_sub(REMEMBERED);
        for line in private_file::read(&path)?.unwrap_or_default().lines() {
            // The last line may be incomplete after a crash: its request had no effect yet, or its reply was not sent.
            let Ok(line) = serde_json::from_str::<KeyLine>(line) else {
                continue;
            };
            if line.at < oldest {
                continue;
            }
            let state = KeyState {
                at: line.at,
                request: line.r,
                reply: line.reply.map(|reply| reply.get().into()),
                running: None,
            };
            keys.insert(line.k, state);
        }
        let keys = Self {
            path,
            state: Mutex::new(KeysState {
                keys,
                file: None,
                lines: 0,
            }),
        };
        keys.rewrite(&mut keys.state.lock())?;
        Ok(keys)
    }

    /// Stores a key before its request takes effect. Waits for the reply if the same request is in progress.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        token: &str,
        key: &str,
        request: &str,
    ) -> Result<Remembered, Problem> {
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|b| (0x20..0x7f).contains(&b))
        {
            return Err(Problem::invalid(format!(
                "an idempotency key has 1 to {MAX_KEY} printable ASCII characters"
            ))
            .hint("use a new UUID for each request"));
        }
        let hashed = blake3::hash(format!("{token}\n{key}").as_bytes())
            .to_hex()
            .to_string();
        let request = blake3::hash(request.as_bytes()).to_hex().to_string();
        loop {
            let waits = {
                let mut state = self.state.lock();
                let found = state.keys.get(&hashed).cloned();
                let found = found.filter(|one| one.at >= now().saturating_sub(REMEMBERED));
                match found {
                    Some(one) if one.request != request => {
                        return Err(Problem::new(
                            ProblemCode::KeyReused,
                            "this idempotency key was used for another request",
                        )
                        .hint("use a new key for each request"));
                    }
                    Some(KeyState {
                        reply: Some(reply), ..
                    }) => return Ok(Remembered::Reply(reply)),
                    Some(KeyState {
                        running: Some(notify),
                        ..
                    }) => notify,
                    Some(_) => {
                        if let Some(one) = state.keys.get_mut(&hashed) {
                            one.running = Some(Arc::default());
                        }
                        return Ok(Remembered::Interrupted(self.in_use(hashed)));
                    }
                    None => {
                        self.store(&mut state, &hashed, &request, None, true)?;
                        return Ok(Remembered::New(self.in_use(hashed)));
                    }
                }
            };
            let mut notified = std::pin::pin!(waits.notified());
            notified.as_mut().enable();
            let still = self
                .state
                .lock()
                .keys
                .get(&hashed)
                .is_some_and(|one| one.running.is_some());
            if still {
                notified.await;
            }
        }
    }

    /// Forgets the replies about a session that was deleted.
    pub(crate) fn forget_session(&self, session: &SessionId) {
        let mut state = self.state.lock();
        let before = state.keys.len();
        state.keys.retain(|_, one| {
            one.reply
                .as_ref()
                .is_none_or(|reply| !reply.contains(session.as_str()))
        });
        if state.keys.len() != before {
            // If the file cannot be written, it still has no more than the id of the session.
            let _ = self.rewrite(&mut state);
        }
    }

    /// Forgets the replies about sessions that do not exist any more.
    pub(crate) fn forget_missing(&self, exists: impl Fn(&SessionId) -> bool) {
        let named: Vec<SessionId> = {
            let state = self.state.lock();
            let replies = state.keys.values().filter_map(|one| one.reply.as_deref());
            replies.filter_map(session_of).collect()
        };
        for session in named {
            if !exists(&session) {
                self.forget_session(&session);
            }
        }
    }

    fn in_use(self: &Arc<Self>, key: String) -> KeyInUse {
        KeyInUse {
            keys: self.clone(),
            key,
            keep: false,
        }
    }

    fn store(
        &self,
        state: &mut KeysState,
        key: &str,
        request: &str,
        reply: Option<&str>,
        sync: bool,
    ) -> Result<(), Problem> {
        if state.keys.len() >= MAX_KEYS {
            let oldest = now().saturating_sub(REMEMBERED);
            state.keys.retain(|_, one| one.at >= oldest);
            if state.keys.len() >= MAX_KEYS {
                return Err(Problem::new(
                    ProblemCode::TooManyRequests,
                    format!("{MAX_KEYS} idempotency keys were used in the last 24 hours"),
                )
                .retry_after(600));
            }
        }
        if state.lines > state.keys.len() * 2 + SLACK {
            self.rewrite(state)?;
        }
        let line = KeyLine {
            k: key.to_owned(),
            at: now(),
            r: request.to_owned(),
            reply: reply.and_then(|reply| RawValue::from_string(reply.to_owned()).ok()),
        };
        let mut bytes = serde_json::to_vec(&line)
            .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
        bytes.push(b'\n');
        let file = match &mut state.file {
            Some(file) => file,
            None => state.file.insert(open_for_append(&self.path)?),
        };
        file.write_all(&bytes)?;
        if sync {
            file.sync_data()?;
        }
        state.lines += 1;
        let running = reply.is_none().then(Arc::default);
        let one = KeyState {
            at: line.at,
            request: line.r,
            reply: reply.map(Into::into),
            running,
        };
        state.keys.insert(line.k, one);
        Ok(())
    }

    /// Writes the file anew, without lines that are no longer needed.
    fn rewrite(&self, state: &mut KeysState) -> Result<(), Problem> {
        let mut bytes = Vec::new();
        for (key, one) in &state.keys {
            let line = KeyLine {
                k: key.clone(),
                at: one.at,
                r: one.request.clone(),
                reply: one
                    .reply
                    .as_deref()
                    .and_then(|reply| RawValue::from_string(reply.to_owned()).ok()),
            };
            serde_json::to_writer(&mut bytes, &line)
                .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
            bytes.push(b'\n');
        }
        private_file::write(&self.path, &bytes)?;
        state.lines = state.keys.len();
        state.file = None;
        Ok(())
    }
}

/// The session that a reply is about.
fn session_of(reply: &str) -> Option<SessionId> {
    #[derive(Deserialize)]
    struct NamedSession {
        session: Option<SessionId>,
        id: Option<SessionId>,
    }
    let named: NamedSession = serde_json::from_str(reply).ok()?;
    named.session.or(named.id)
}

fn open_for_append(path: &Path) -> Result<File, Problem> {
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    file.map_err(|err| Problem::from(err).hint(format!("{} must be writable", path.display())))
}

impl KeyInUse {
    /// Stores the reply. Requests that wait for it get it, too.
    pub(crate) fn finish(self, reply: &str) {
        let reply = if reply.len() <= MAX_REPLY {
            reply
        } else {
            "null"
        };
        let mut state = self.keys.state.lock();
        let Some(one) = state.keys.get(&self.key).cloned() else {
            return;
        };
        // The reply need not survive a power cut: without it, the log tells whether the request took effect.
        let stored = self
            .keys
            .store(&mut state, &self.key, &one.request, Some(reply), false);
        if stored.is_err()
            && let Some(one) = state.keys.get_mut(&self.key)
        {
            (one.reply, one.running) = (Some(reply.into()), None);
        }
        drop(state);
        if let Some(running) = one.running {
            running.notify_waiters();
        }
    }

    /// Leaves the key without a reply, because the effect of the request is unknown.
    pub(crate) fn keep_interrupted(mut self) {
        self.keep = true;
    }
}

impl Drop for KeyInUse {
    fn drop(&mut self) {
        let mut state = self.keys.state.lock();
        let Some(one) = state.keys.get_mut(&self.key) else {
            return;
        };
        let Some(running) = one.running.take() else {
            return;
        };
        // A request that was refused had no effect, so it may be sent again with the same key.
        if !self.keep {
            state.keys.remove(&self.key);
        }
        drop(state);
        running.notify_waiters();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_repeated_request_gets_the_first_reply_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Arc::new(IdempotencyKeys::open(dir.path()).unwrap());
        let Remembered::New(used) = keys.begin("t", "k1", "request").await.unwrap() else {
            panic!("it is new")
        };
        used.finish(r#"{"ok":1}"#);
        let Remembered::Reply(reply) = keys.begin("t", "k1", "request").await.unwrap() else {
            panic!("it is known")
        };
        assert_eq!(&*reply, r#"{"ok":1}"#);
        assert!(keys.begin("t", "k1", "another").await.is_err());
        assert!(matches!(
            keys.begin("u", "k1", "request").await.unwrap(),
            Remembered::New(_)
        ));
        let Remembered::New(used) = keys.begin("t", "k2", "request").await.unwrap() else {
            panic!("it is new")
        };
        std::mem::forget(used);
        let next = Arc::new(IdempotencyKeys::open(dir.path()).unwrap());
        assert!(matches!(
            next.begin("t", "k1", "request").await.unwrap(),
            Remembered::Reply(_)
        ));
        assert!(matches!(
            next.begin("t", "k2", "request").await.unwrap(),
            Remembered::Interrupted(_)
        ));
    }

    #[tokio::test]
    async fn a_refused_request_may_be_repeated_and_waiting_ones_get_the_reply() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Arc::new(IdempotencyKeys::open(dir.path()).unwrap());
        drop(keys.begin("t", "k", "r").await.unwrap());
        let Remembered::New(used) = keys.begin("t", "k", "r").await.unwrap() else {
            panic!("it is new again")
        };
        let waiting = {
            let keys = keys.clone();
            tokio::spawn(async move { keys.begin("t", "k", "r").await })
        };
        tokio::task::yield_now().await;
        used.finish("1");
        assert!(matches!(
            waiting.await.unwrap().unwrap(),
            Remembered::Reply(_)
        ));
        assert!(keys.begin("t", "", "r").await.is_err());
    }
}
