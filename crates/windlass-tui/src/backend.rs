//! The operations that the interface calls: of a service in this process, or of a remote server. Both are the same table, so
//! that every screen works with both.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass_client::{Client, ClientError, RemoteEvents, StreamItem};
use windlass_service::{
    Caller, EventReader, FeedItem, Input, Problem, Reply, Request, Service, operation,
};

/// Access to the operations on sessions.
#[derive(Clone)]
pub enum Backend {
    /// A service in this process.
    Local(Service),
    /// A server over HTTP.
    Remote(Box<Client>),
}

/// The reason why an operation failed, with the next step of the user.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct OperationError {
    pub detail: String,
    pub hint: Option<String>,
}

impl OperationError {
    pub(crate) fn new(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            hint: None,
        }
    }
}

impl From<Problem> for OperationError {
    fn from(problem: Problem) -> Self {
        Self {
            detail: problem.detail,
            hint: problem.hint,
        }
    }
}

impl From<ClientError> for OperationError {
    fn from(err: ClientError) -> Self {
        match err {
            ClientError::Refused { detail, hint, .. } => Self { detail, hint },
            err => Self::new(err.to_string()),
        }
    }
}

impl Backend {
    /// Calls an operation whose result is JSON.
    pub async fn call<T: DeserializeOwned>(
        &self,
        name: &'static str,
        params: Value,
    ) -> Result<T, OperationError> {
        let bytes = self.call_bytes(name, params).await?;
        serde_json::from_slice(&bytes).map_err(|err| {
            OperationError::new(format!(
                "the reply of `{name}` cannot be read: {err}; client and server may have different versions"
            ))
        })
    }

    /// Calls an operation whose result is text.
    pub async fn call_text(
        &self,
        name: &'static str,
        params: Value,
    ) -> Result<String, OperationError> {
        let bytes = self.call_bytes(name, params).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn call_bytes(
        &self,
        name: &'static str,
        params: Value,
    ) -> Result<Vec<u8>, OperationError> {
        let params = match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        let Some(operation) = operation(name) else {
            return Err(OperationError::new(format!(
                "there is no operation `{name}`"
            )));
        };
        match self {
            Self::Local(service) => {
                let request = Request {
                    caller: Caller::terminal(),
                    input: Input::Json(params),
                    key: None,
                };
                Ok(match service.call(operation, request).await? {
                    Reply::Json(text) => text.into_bytes(),
                    Reply::Bytes(bytes) => bytes.bytes,
                })
            }
            Self::Remote(client) => {
                let (method, path) = (operation.method.word(), operation.path);
                Ok(client.call(method, path, params).await?)
            }
        }
    }

    /// Follows the events of a session after a sequence number.
    pub async fn events(
        &self,
        session: &SessionId,
        after: u64,
    ) -> Result<EventSource, OperationError> {
        Ok(match self {
            Self::Local(service) => {
                let reader = service
                    .events(&Caller::terminal(), session, after, true)
                    .await?;
                EventSource::Local(Box::new(reader))
            }
            Self::Remote(client) => EventSource::Remote(client.events(session, after)),
        })
    }

    /// Whether the sessions are on another machine or in another process.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

/// The events of one session.
pub enum EventSource {
    Local(Box<EventReader>),
    Remote(RemoteEvents),
    /// The events of a recorded session, at the pace of its player.
    Recorded(mpsc::Receiver<Box<Event>>),
}

/// An item of the events of a session.
#[derive(Debug)]
pub enum SourceItem {
    Event(Box<Event>),
    /// Live events were lost, because this process was too slow. The log has everything durable.
    Gap,
}

impl EventSource {
    /// Waits for the next item; `None` at the end of the stream. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<SourceItem>, OperationError> {
        match self {
            Self::Local(reader) => Ok(Some(match reader.next().await? {
                FeedItem::Gap { .. } => SourceItem::Gap,
                FeedItem::Event(line) => SourceItem::Event(Box::new(line.event().clone())),
            })),
            Self::Recorded(events) => Ok(events.recv().await.map(SourceItem::Event)),
            Self::Remote(events) => Ok(match events.next().await.transpose()? {
                None => None,
                Some(StreamItem::Gap { .. }) => Some(SourceItem::Gap),
                Some(StreamItem::Event(event)) => Some(SourceItem::Event(event)),
            }),
        }
    }
}
