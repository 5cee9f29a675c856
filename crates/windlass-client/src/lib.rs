//! A client of the Windlass server: requests about sessions, and the events of a session as typed values.
//!
//! [`RemoteEvents`] reconnects after a lost connection and continues after the last event, so its reader misses nothing that is
//! in the log. A request that changes something is repeated with the same idempotency key if its reply was lost.
//!
//! The crate knows the HTTP interface only: no settings, no views, no files.

mod events;

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use windlass_core::ask::{Answer, Ask};
use windlass_core::id::{AskId, RunId, SessionId};
use windlass_providers::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use windlass_providers::http::{Http, HttpError, HttpOptions, HttpResponse, Method, Url};

pub use self::events::{RemoteEvents, StreamItem};

/// The server sends a heartbeat every 15 seconds; without any byte for this long, the connection is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest life of one event stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Maximum size of a reply, in bytes.
const MAX_REPLY: usize = 64 << 20;
/// Attempts to send a request whose reply is lost.
const ATTEMPTS: u32 = 4;
/// The pause before the second attempt; each further pause is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// An error of a request or a stream.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The server could not be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The server refused the request.
    #[error("{detail}")]
    Refused {
        status: u16,
        detail: String,
        /// The next step of the user.
        hint: Option<String>,
    },
    /// The server sent something that is not part of the interface.
    #[error("the server sent an invalid reply: {0}; client and server may have different versions")]
    Invalid(String),
    /// The address or the token cannot be used.
    #[error("{0}")]
    Usage(String),
}

/// A problem as the server sends it (RFC 9457).
#[derive(Deserialize)]
struct ProblemReply {
    #[serde(default)]
    detail: String,
    #[serde(default)]
    hint: Option<String>,
}

impl ClientError {
    fn refused(status: u16, body: &[u8]) -> Self {
        let problem: Option<ProblemReply> = serde_json::from_slice(body).ok();
        let (detail, hint) = match problem {
            Some(problem) if !problem.detail.is_empty() => (problem.detail, problem.hint),
            _ => (format!("the server answered with HTTP {status}"), None),
        };
        Self::Refused {
            status,
            detail,
            hint,
        }
    }
}

impl From<HttpError> for ClientError {
    fn from(err: HttpError) -> Self {
        Self::Unreachable(err.message)
    }
}

/// An image of a prompt.
#[derive(Debug, Clone, Serialize)]
pub struct PromptImage {
    /// The MIME type, such as `image/png`.
    pub media_type: String,
    /// The bytes in base64.
    pub data: String,
}

/// A prompt with the options of its run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PromptRequest {
    pub prompt: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<PromptImage>,
    /// The fields of `RunRequest` of the interface; null for the settings of the server.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// A new session.
#[derive(Debug, Clone, Deserialize)]
pub struct CreatedSession {
    pub id: SessionId,
    pub workspace: String,
    pub queued: Option<AcceptedPrompt>,
}

/// A prompt that was accepted. Its `run_started` event names the same number.
#[derive(Debug, Clone, Deserialize)]
pub struct AcceptedPrompt {
    /// The number of the `queued` event.
    pub queued: u64,
}

/// The state of a session.
#[derive(Debug, Clone, Deserialize)]
pub struct SessionStatus {
    pub id: SessionId,
    pub workspace: String,
    /// `idle`, `queued`, `running`, `waiting`, `paused` or `interrupted`.
    pub state: String,
    /// The number of its last event.
    pub last_seq: u64,
    pub run: Option<RemoteRunItem>,
    #[serde(default)]
    pub asks: Vec<Ask>,
    #[serde(default)]
    pub queue: Vec<Value>,
}

/// The open run of a session.
#[derive(Debug, Clone, Deserialize)]
pub struct RemoteRunItem {
    pub id: RunId,
}

impl SessionStatus {
    /// Whether a run is open, or prompts wait for one.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.run.is_some() || !self.queue.is_empty()
    }
}

#[derive(Deserialize)]
struct SessionPage {
    items: Vec<SessionItem>,
}

#[derive(Deserialize)]
struct SessionItem {
    id: SessionId,
}

/// A connection to a server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: Http,
    base: Url,
    token: SecretString,
}

impl Client {
    /// A client of the server at this address. The options provide certificates and proxies.
    pub fn new(options: HttpOptions, url: &str, token: SecretString) -> Result<Self, ClientError> {
        let base = Url::parse(url.trim()).ok();
        let base =
            base.filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
        let base = base.ok_or_else(|| {
            ClientError::Usage("the server needs an address like http://127.0.0.1:8080".to_owned())
        })?;
        let options = HttpOptions {
            idle_timeout: IDLE_TIMEOUT,
            total_timeout: STREAM_TIMEOUT,
            max_body: u64::MAX,
            ..options
        };
        let http = Http::new(&options).map_err(|err| ClientError::Usage(err.message))?;
        Ok(Self { http, base, token })
    }

    /// The address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The newest session.
    pub async fn newest(&self) -> Result<Option<SessionId>, ClientError> {
        let page: SessionPage = self.get(&["sessions"], &[("limit", "1")]).await?;
        Ok(page.items.into_iter().next().map(|item| item.id))
    }

    /// The state of a session.
    pub async fn session(&self, id: &SessionId) -> Result<SessionStatus, ClientError> {
        self.get(&["sessions", id.as_str()], &[]).await
    }

    /// Creates a session with a first prompt. Without a workspace, the server uses its default one.
    pub async fn create(
        &self,
        workspace: Option<&str>,
        prompt: &PromptRequest,
    ) -> Result<CreatedSession, ClientError> {
        let mut body = json!(prompt);
        if let Some(workspace) = workspace {
            body["workspace"] = workspace.into();
        }
        self.post(&["sessions"], &body).await
    }

    /// Queues a prompt in a session.
    pub async fn queue(
        &self,
        id: &SessionId,
        prompt: &PromptRequest,
    ) -> Result<AcceptedPrompt, ClientError> {
        self.post(&["sessions", id.as_str(), "runs"], &json!(prompt))
            .await
    }

    /// Sends a message to the run in progress. Its options are ignored.
    pub async fn steer(&self, id: &SessionId, prompt: &PromptRequest) -> Result<(), ClientError> {
        let body = json!({ "prompt": prompt.prompt, "images": prompt.images });
        self.post::<Value>(&["sessions", id.as_str(), "steer"], &body)
            .await
            .map(drop)
    }

    /// Answers an open ask.
    pub async fn answer(
        &self,
        id: &SessionId,
        ask: &AskId,
        answer: &Answer,
    ) -> Result<(), ClientError> {
        let body = match answer {
            Answer::Once => json!({ "answer": "once" }),
            Answer::Always => json!({ "answer": "always" }),
            Answer::Text { text } => json!({ "answer": "text", "text": text }),
            Answer::No { note } => json!({ "answer": "no", "note": note }),
            _ => {
                return Err(ClientError::Usage(
                    "this is not an answer of a person".to_owned(),
                ));
            }
        };
        self.post::<Value>(&["sessions", id.as_str(), "asks", ask.as_str()], &body)
            .await
            .map(drop)
    }

    /// Makes a one-time login link for a browser, which is valid for five minutes.
    pub async fn login_link(&self) -> Result<String, ClientError> {
        let link: Value = self.post(&["logins"], &json!({})).await?;
        let path = link["path"].as_str().unwrap_or_default();
        Ok(format!("{}{path}", self.url()))
    }

    /// Cancels the run of a session and clears its queue.
    pub async fn cancel(&self, id: &SessionId) -> Result<(), ClientError> {
        self.post::<Value>(&["sessions", id.as_str(), "cancel"], &json!({}))
            .await
            .map(drop)
    }

    /// Calls any operation of the server's table: its method, its path with names in braces, and its parameters. Parameters
    /// that are not in the path go into the query of a `GET` or `DELETE`, else into the body.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        mut params: Map<String, Value>,
    ) -> Result<Vec<u8>, ClientError> {
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|err| ClientError::Usage(err.to_string()))?;
        let mut segments = Vec::new();
        for segment in path.trim_start_matches("/v1/").split('/') {
            let name = segment
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            segments.push(match name.and_then(|name| params.remove(name)) {
                Some(value) => text_of(&value),
                None => segment.to_owned(),
            });
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let mut url = self.address(&segments);
        if matches!(method, Method::GET | Method::DELETE) {
            if !params.is_empty() {
                let pairs = params.iter().filter(|(_, value)| !value.is_null());
                url.query_pairs_mut()
                    .extend_pairs(pairs.map(|(name, value)| (name, text_of(value))));
            }
            return self.change(method, &url, None).await;
        }
        self.change(method, &url, Some(Value::Object(params).to_string()))
            .await
    }

    /// Follows the events of a session after this number, on the tokio runtime of the caller.
    #[must_use]
    pub fn events(&self, id: &SessionId, after: u64) -> RemoteEvents {
        RemoteEvents::start(self.clone(), id.clone(), after)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let mut url = self.address(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let response = self.http.send(&url, self.headers()?, None).await?;
        read(response).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &Value,
    ) -> Result<T, ClientError> {
        let reply = self
            .change(Method::POST, &self.address(path), Some(body.to_string()))
            .await?;
        serde_json::from_slice(&reply).map_err(|err| ClientError::Invalid(err.to_string()))
    }

    /// Sends a request. If its reply is lost, it is sent again with the same key.
    async fn change(
        &self,
        method: Method,
        url: &Url,
        body: Option<String>,
    ) -> Result<Vec<u8>, ClientError> {
        let mut headers = self.headers()?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let key = HeaderValue::from_str(&random_key()?);
        let key = key.map_err(|err| ClientError::Usage(err.to_string()))?;
        if method != Method::GET {
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        let mut pause = RETRY_PAUSE;
        let mut attempt = 1;
        loop {
            let body = body.clone().map(Into::into);
            let sent = self
                .http
                .send_as(method.clone(), url, headers.clone(), body)
                .await;
            match sent {
                Ok(response) => return read_bytes(response).await,
                Err(err) if attempt == ATTEMPTS => return Err(err.into()),
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    /// Opens the event stream of a session.
    async fn open_events(&self, id: &SessionId, after: u64) -> Result<HttpResponse, ClientError> {
        let mut headers = self.headers()?;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(HeaderName::from_static("last-event-id"), after.into());
        let url = self.address(&["sessions", id.as_str(), "events"]);
        let response = self.http.send(&url, headers, None).await?;
        match response.status {
            200 => Ok(response),
            status => Err(ClientError::refused(
                status,
                &response.body.read_up_to(MAX_REPLY).await,
            )),
        }
    }

    fn address(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        url
    }

    fn headers(&self) -> Result<HeaderMap, ClientError> {
        let value = HeaderValue::from_str(&format!("Bearer {}", self.token.expose_secret()));
        let mut value = value
            .map_err(|_| ClientError::Usage("the token is not valid in a header".to_owned()))?;
        value.set_sensitive(true);
        Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
    }
}

async fn read<T: DeserializeOwned>(response: HttpResponse) -> Result<T, ClientError> {
    let body = read_bytes(response).await?;
    serde_json::from_slice(&body).map_err(|err| ClientError::Invalid(err.to_string()))
}

async fn read_bytes(response: HttpResponse) -> Result<Vec<u8>, ClientError> {
    let status = response.status;
    let body = response.body.read_up_to(MAX_REPLY).await;
    match status {
        200..300 => Ok(body),
        _ => Err(ClientError::refused(status, &body)),
    }
}

/// A parameter in a path or a query.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn random_key() -> Result<String, ClientError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|err| {
        ClientError::Usage(format!("the system random number generator failed: {err}"))
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
