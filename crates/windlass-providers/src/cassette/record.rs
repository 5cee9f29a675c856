//! Records each exchange when its stream ends or is dropped, with the bytes received until then. This file does not
//! buffer across exchanges, retry or write files; the sink does the writing.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use reqwest::{Method, Url};
use secrecy::{ExposeSecret, SecretString};
use windlass_core::workspace::Redactor;

use super::{RecordedExchange, RecordedRequest, RecordedResponse, to_base64};

/// The maximum recorded length of a body, in bytes.
const MAX_BODY: usize = 16 << 20;
/// The replacement for a secret in an address.
const HIDDEN: &str = "REDACTED";
/// Query parameters whose values are always secret.
const SECRET_FIELDS: [&str; 9] = [
    "key",
    "api_key",
    "api-key",
    "apikey",
    "access_token",
    "token",
    "code",
    "sig",
    "signature",
];

type Sink = dyn Fn(String) + Send + Sync;

/// Records every exchange of an [`Http`](crate::Http). Clones write to the same cassette.
#[derive(Clone)]
pub struct Recorder {
    sink: Arc<Sink>,
    redactor: Arc<dyn Redactor>,
    count: Arc<AtomicU64>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Describes the destination of a request, for the recorded exchange.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExchangeLabel {
    pub(crate) provider: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) framing: &'static str,
    /// The key that is sent. It is redacted from the response as well, because an upstream may repeat it.
    pub(crate) key: Option<SecretString>,
}

/// Applies the caller's redactor and removes the key.
struct ExchangeRedactor<'a>(&'a dyn Redactor, Option<&'a SecretString>);

impl Redactor for ExchangeRedactor<'_> {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = self.0.redact(text);
        let key = self
            .1
            .map(|key| key.expose_secret().trim())
            .filter(|key| key.len() >= 4);
        match key.filter(|key| text.contains(*key)) {
            Some(key) => text.replace(key, HIDDEN).into(),
            None => text,
        }
    }
}

impl Recorder {
    /// Creates a recorder that passes each redacted exchange to `sink`, as one line without its line ending.
    #[must_use]
    pub fn new(redactor: Arc<dyn Redactor>, sink: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self {
            sink: Arc::new(sink),
            redactor,
            count: Arc::default(),
        }
    }

    /// Starts to record an exchange whose response headers have arrived.
    pub(crate) fn start(
        &self,
        label: &ExchangeLabel,
        sent: &SentRequest<'_>,
        status: u16,
        content_type: &str,
    ) -> Recording {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let row = RecordedExchange {
            id: format!("{}#{number}", label.provider),
            provider: label.provider.to_owned(),
            protocol: label.protocol.to_owned(),
            framing: label.framing.to_owned(),
            streaming: ["event-stream", "eventstream", "ndjson"]
                .iter()
                .any(|word| content_type.contains(word)),
            request: sent.recorded(&ExchangeRedactor(
                self.redactor.as_ref(),
                label.key.as_ref(),
            )),
            response: RecordedResponse {
                status,
                content_type: content_type.to_owned(),
                body: None,
                body_b64: None,
            },
            tags: if status >= 400 {
                vec!["error".to_owned()]
            } else {
                Vec::new()
            },
        };
        let key = label.key.clone();
        Recording {
            recorder: self.clone(),
            key,
            row: Some(Box::new(row)),
            body: Vec::new(),
            complete: false,
            too_long: false,
        }
    }
}

/// The parts of a request that are recorded or compared.
pub(crate) struct SentRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    pub(crate) body: &'a Bytes,
}

impl SentRequest<'_> {
    /// Returns the request without host, headers and secrets.
    pub(crate) fn recorded(&self, redactor: &dyn Redactor) -> RecordedRequest {
        let mut path = self.url.path().to_owned();
        for (nth, (name, value)) in self.url.query_pairs().enumerate() {
            let secret = SECRET_FIELDS.contains(&name.to_ascii_lowercase().as_str())
                || name.starts_with("X-Amz-");
            path.push_str(&format!(
                "{}{name}={}",
                if nth == 0 { '?' } else { '&' },
                if secret { HIDDEN } else { &value }
            ));
        }
        let body = String::from_utf8_lossy(self.body);
        RecordedRequest {
            method: self.method.to_string(),
            path: redactor.redact(&path).into_owned(),
            body: redactor.redact(&body).into_owned(),
        }
    }
}

/// An exchange in progress. It is passed to the sink on drop, even if the stream was not read to its end.
pub(crate) struct Recording {
    recorder: Recorder,
    key: Option<SecretString>,
    row: Option<Box<RecordedExchange>>,
    body: Vec<u8>,
    complete: bool,
    too_long: bool,
}

impl Recording {
    pub(crate) fn append(&mut self, piece: &[u8]) {
        let space = MAX_BODY.saturating_sub(self.body.len());
        self.too_long |= piece.len() > space;
        self.body
            .extend_from_slice(&piece[..piece.len().min(space)]);
    }

    /// Marks the body as complete; without this call the exchange is tagged `cut`.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(mut row) = self.row.take() else {
            return;
        };
        for (tag, applies) in [
            ("truncated", self.too_long),
            ("cut", !self.complete && !self.too_long),
        ] {
            if applies {
                row.tags.push(tag.to_owned());
            }
        }
        let redactor = ExchangeRedactor(self.recorder.redactor.as_ref(), self.key.as_ref());
        match String::from_utf8(std::mem::take(&mut self.body)) {
            Ok(text) => row.response.body = Some(redactor.redact(&text).into_owned()),
            Err(err) => {
                let bytes = err.into_bytes();
                // Binary framings carry checksums, which a redaction would break, so a body with a secret is not
                // recorded.
                let text = String::from_utf8_lossy(&bytes);
                let clean = redactor.redact(&text) == text;
                row.response.body_b64 = Some(if clean {
                    to_base64(&bytes)
                } else {
                    String::new()
                });
                if !clean {
                    row.tags.push("withheld".to_owned());
                }
            }
        }
        // Serializing this struct cannot fail.
        if let Ok(line) = serde_json::to_string(&row) {
            (self.recorder.sink)(line);
        }
    }
}
