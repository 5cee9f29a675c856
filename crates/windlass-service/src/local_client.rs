//! The other end of a local channel: a session that another process of the same user holds.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass::machine::SessionLog;

use crate::json_lines::{ReadLine, RpcMessage, read_line, write_message};
use crate::local::{LocalRequest, SocketPlace};
use crate::problem::{Problem, ProblemCode};

/// Time that the other process has to reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the process that holds a session.
pub(crate) struct RemoteSession {
    stream: BufReader<UnixStream>,
}

impl RemoteSession {
    /// Connects; `None` if no process serves the session.
    pub(crate) async fn connect(store: &Arc<SessionLog>, session: &SessionId) -> Option<Self> {
        let place = SocketPlace::of(store, session).ok()?;
        let stream = UnixStream::connect(&place.path).await.ok()?;
        let own = rustix::process::getuid().as_raw();
        let peer = stream.peer_cred().ok()?.uid();
        (peer == own).then(|| Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn call(&mut self, request: &LocalRequest) -> Result<Value, Problem> {
        let replied = tokio::time::timeout(REPLY_TIMEOUT, self.exchange(request)).await;
        match replied {
            Ok(Ok(reply)) => reply,
            Ok(Err(err)) => Err(unreachable(&err.to_string())),
            Err(_) => Err(unreachable("it did not reply in time")),
        }
    }

    async fn exchange(
        &mut self,
        request: &LocalRequest,
    ) -> std::io::Result<Result<Value, Problem>> {
        let request = serde_json::to_value(request).unwrap_or_default();
        let method = request["method"].as_str().unwrap_or_default();
        let message = RpcMessage::request(1, method, request["params"].clone());
        write_message(&mut self.stream, &message).await?;
        let ReadLine::Line(line) = read_line(&mut self.stream).await? else {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        };
        let reply: RpcMessage = serde_json::from_str(&line)?;
        if let Some(error) = reply.error {
            return Ok(Err(match error.data {
                Some(problem) => *problem,
                None => Problem::new(ProblemCode::Internal, error.message),
            }));
        }
        let value = reply
            .result
            .and_then(|value| serde_json::from_str(value.get()).ok());
        Ok(Ok(value.unwrap_or_default()))
    }

    /// Reads the next event after a request for events; `None` at the end.
    pub(crate) async fn next_event(&mut self) -> Option<Event> {
        loop {
            let ReadLine::Line(line) = read_line(&mut self.stream).await.ok()? else {
                return None;
            };
            let message: RpcMessage = serde_json::from_str(&line).ok()?;
            if message.method.as_deref() == Some("event") {
                return serde_json::from_value(message.params?).ok();
            }
        }
    }
}

fn unreachable(why: &str) -> Problem {
    Problem::new(
        ProblemCode::Locked,
        format!("the process that holds the session cannot be reached: {why}"),
    )
    .hint("wait until its run has ended; nothing was changed")
}
