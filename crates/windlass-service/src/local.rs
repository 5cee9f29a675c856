//! The local channel of a session: a socket in its directory, through which other processes of the same user reach the run
//! that holds the session. Only the owner can open it.
//!
//! The messages are those of `json_lines`, with the methods `queue`, `reorder`, `answer`, `cancel`, `pause` and
//! `events`.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass::core::ask::Answer;
use windlass::core::flags::SavedFlags;
use windlass::core::id::{AskId, SessionId};
use windlass::core::message::Message;
use windlass::core::pause::PauseReason;
use windlass::engine::{Delivery, QueueRequest};
use windlass::machine::SessionLog;

use crate::json_lines::{ReadLine, RpcMessage, read_line, write_message};
use crate::live::LiveSession;
use crate::problem::{Problem, ProblemCode};
use crate::reader::{EventReader, FeedItem};

/// The name of the socket in the directory of a session.
const SOCKET: &str = "control.sock";
/// Maximum number of connections to one session.
const MAX_CONNECTIONS: usize = 64;

/// A request to the process that holds a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case")]
pub(crate) enum LocalRequest {
    Queue {
        prompt: Message,
        steer: bool,
        #[serde(default)]
        flags: SavedFlags,
        #[serde(default)]
        by: Option<String>,
        #[serde(default)]
        key: Option<String>,
    },
    Reorder {
        order: Vec<u64>,
    },
    Answer {
        ask: AskId,
        answer: Answer,
        #[serde(default)]
        who: Option<String>,
    },
    Cancel {},
    Pause {
        reason: PauseReason,
    },
    /// Streams the events after a number as notifications, until the connection ends.
    Events {
        after: u64,
    },
}

/// The path of the socket of a session, through an open directory: the path of a socket has at most 108 bytes, and the path
/// of the data directory may be longer.
pub(crate) struct SocketPlace {
    _dir: std::fs::File,
    pub(crate) path: PathBuf,
}

impl SocketPlace {
    pub(crate) fn of(store: &SessionLog, session: &SessionId) -> io::Result<Self> {
        let log = store.log_path(session);
        let home = log.parent().unwrap_or(Path::new("/"));
        let dir = std::fs::File::open(home)?;
        let path = Path::new("/proc/self/fd")
            .join(dir.as_raw_fd().to_string())
            .join(SOCKET);
        Ok(Self { _dir: dir, path })
    }
}

/// Serves the local channel of a session until it is dropped. The socket stays in the directory of the session, as after a
/// crash; a connection to it then fails, and the next process that opens the session replaces it.
pub struct LocalChannel {
    _stop: DropGuard,
}

impl LocalChannel {
    /// Opens the channel. Without it, the session works as before, but other processes cannot reach it.
    pub fn open(store: &Arc<SessionLog>, live: &Arc<LiveSession>) -> io::Result<Self> {
        let place = SocketPlace::of(store, live.id())?;
        // This process holds the lease of the session, so no process serves a socket that exists.
        match std::fs::remove_file(&place.path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let listener = bind(&place.path)?;
        let stop = CancellationToken::new();
        let (store, live) = (store.clone(), Arc::downgrade(live));
        tokio::spawn(accept(listener, store, live, stop.clone()));
        Ok(Self {
            _stop: stop.drop_guard(),
        })
    }
}

/// Binds a socket that only its owner can open. The directory is private, so the moment before the change is safe, too.
fn bind(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn accept(
    listener: UnixListener,
    store: Arc<SessionLog>,
    live: Weak<LiveSession>,
    stop: CancellationToken,
) {
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => return,
            },
            () = stop.cancelled() => return,
        };
        // The mode of the socket keeps other users out; root is checked, too.
        let own = rustix::process::getuid().as_raw();
        if stream.peer_cred().map(|peer| peer.uid()).ok() != Some(own) {
            continue;
        }
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            continue;
        };
        let (store, live, stop) = (store.clone(), live.clone(), stop.clone());
        tokio::spawn(async move {
            let _slot = slot;
            tokio::select! {
                _ = serve(stream, &store, &live) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn serve(
    stream: UnixStream,
    store: &Arc<SessionLog>,
    live: &Weak<LiveSession>,
) -> io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    loop {
        let line = match read_line(&mut from).await? {
            ReadLine::Line(line) => line,
            ReadLine::TooLong => {
                let message = RpcMessage::failed(None, -32600, "the line is too long");
                write_message(&mut to, &message).await?;
                continue;
            }
            ReadLine::End => return Ok(()),
        };
        let message: RpcMessage = match serde_json::from_str(&line) {
            Ok(message) => message,
            Err(err) => {
                write_message(&mut to, &RpcMessage::failed(None, -32700, err.to_string())).await?;
                continue;
            }
        };
        let Some(id) = message.id else { continue };
        let request = serde_json::json!({
            "method": message.method,
            "params": message.params.unwrap_or_else(|| Value::Object(Default::default())),
        });
        let request: LocalRequest = match serde_json::from_value(request) {
            Ok(request) => request,
            Err(err) => {
                let problem = Problem::invalid(err.to_string());
                write_message(&mut to, &RpcMessage::problem(id, problem)).await?;
                continue;
            }
        };
        let Some(live) = live.upgrade() else {
            return Ok(());
        };
        if let LocalRequest::Events { after } = request {
            let events = live.events.clone();
            let after = after.min(live.session.with_history(|history| history.last_seq()));
            let reader = EventReader::new(store.clone(), live.id().clone(), events, after, true);
            drop(live);
            let empty = RawValue::NULL.to_owned();
            write_message(&mut to, &RpcMessage::result(id, empty)).await?;
            return stream_events(reader, &mut to).await;
        }
        let done = perform(&live, request).await;
        drop(live);
        let reply = match done {
            Ok(value) => {
                let value = serde_json::value::to_raw_value(&value)
                    .unwrap_or_else(|_| RawValue::NULL.to_owned());
                RpcMessage::result(id, value)
            }
            Err(problem) => RpcMessage::problem(id, problem),
        };
        write_message(&mut to, &reply).await?;
    }
}

async fn perform(live: &LiveSession, request: LocalRequest) -> Result<Value, Problem> {
    Ok(match request {
        LocalRequest::Queue {
            prompt,
            steer,
            flags,
            by,
            key,
        } => {
            let when = match steer {
                true => Delivery::Steer,
                false => Delivery::FollowUp,
            };
            let request = QueueRequest {
                flags,
                by,
                key,
                ..QueueRequest::new(prompt, when)
            };
            live.queue(request).await?.into()
        }
        LocalRequest::Reorder { order } => live.reorder_queue(order).await?.into(),
        LocalRequest::Answer { ask, answer, who } => {
            live.answer(&ask, answer, who)?;
            Value::Null
        }
        LocalRequest::Cancel {} => live.cancel().into(),
        LocalRequest::Pause { reason } => {
            live.pause(reason, false);
            Value::Null
        }
        LocalRequest::Events { .. } => {
            return Err(Problem::new(ProblemCode::Internal, "events are a stream"));
        }
    })
}

async fn stream_events(
    mut reader: EventReader,
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> io::Result<()> {
    while let Ok(item) = reader.next().await {
        let line = match &item {
            FeedItem::Event(line) => format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{}}}\n",
                line.json()
            ),
            FeedItem::Gap { live_lost } => {
                format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"gap\",\"params\":{{\"live_lost\":{live_lost}}}}}\n"
                )
            }
        };
        to.write_all(line.as_bytes()).await?;
        to.flush().await?;
    }
    Ok(())
}
