//! Makes a row of each exchange as it happens. What was received when a stream ended or was dropped is what the row
//! holds; nothing is kept back, retried or written by this file itself.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use reqwest::{Method, Url};
use secrecy::{ExposeSecret, SecretString};
use windlass_core::workspace::Redactor;

use super::{Row, RowRequest, RowResponse, to_base64};

/// The most of one body that a row holds.
const MOST_BODY: usize = 16 << 20;
/// What stands in the place of a secret in an address.
const HIDDEN: &str = "REDACTED";
/// Parts of an address that are keys, whatever their value.
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

/// Takes down every exchange of an [`Http`](crate::Http). Clones write to the same cassette.
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

/// Who is asked, for the rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Label {
    pub(crate) provider: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) framing: &'static str,
    /// The key that is sent; an upstream may repeat it.
    pub(crate) key: Option<SecretString>,
}

/// The caller's redactor, and the key on top of it.
struct Clean<'a>(&'a dyn Redactor, Option<&'a SecretString>);

impl Redactor for Clean<'_> {
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
    /// Rows go to `sink`, one line each without its line end, after `redactor` has seen them.
    #[must_use]
    pub fn new(redactor: Arc<dyn Redactor>, sink: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self {
            sink: Arc::new(sink),
            redactor,
            count: Arc::default(),
        }
    }

    /// The head of an answer is here; the body follows.
    pub(crate) fn start(
        &self,
        label: &Label,
        asked: &Asked<'_>,
        status: u16,
        content_type: &str,
    ) -> Recording {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let row = Row {
            id: format!("{}#{number}", label.provider),
            provider: label.provider.to_owned(),
            protocol: label.protocol.to_owned(),
            framing: label.framing.to_owned(),
            streaming: ["event-stream", "eventstream", "ndjson"]
                .iter()
                .any(|word| content_type.contains(word)),
            request: asked.row(&Clean(self.redactor.as_ref(), label.key.as_ref())),
            response: RowResponse {
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
            whole: false,
            too_long: false,
        }
    }
}

/// A request, as a row sees it.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    pub(crate) body: &'a Bytes,
}

impl Asked<'_> {
    /// Without host, headers and secrets.
    pub(crate) fn row(&self, redactor: &dyn Redactor) -> RowRequest {
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
        RowRequest {
            method: self.method.to_string(),
            path: redactor.redact(&path).into_owned(),
            body: redactor.redact(&body).into_owned(),
        }
    }
}

/// One exchange that is going on. Its row is written when it ends, also when it is dropped half way.
pub(crate) struct Recording {
    recorder: Recorder,
    key: Option<SecretString>,
    row: Option<Box<Row>>,
    body: Vec<u8>,
    whole: bool,
    too_long: bool,
}

impl Recording {
    pub(crate) fn take(&mut self, piece: &[u8]) {
        let room = MOST_BODY.saturating_sub(self.body.len());
        self.too_long |= piece.len() > room;
        self.body.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// The body came to its end.
    pub(crate) fn end(&mut self) {
        self.whole = true;
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(mut row) = self.row.take() else {
            return;
        };
        for (tag, applies) in [
            ("truncated", self.too_long),
            ("cut", !self.whole && !self.too_long),
        ] {
            if applies {
                row.tags.push(tag.to_owned());
            }
        }
        let redactor = Clean(self.recorder.redactor.as_ref(), self.key.as_ref());
        match String::from_utf8(std::mem::take(&mut self.body)) {
            Ok(text) => row.response.body = Some(redactor.redact(&text).into_owned()),
            Err(err) => {
                let bytes = err.into_bytes();
                // Binary framings carry checksums: taking a secret out would break them, so nothing is kept.
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
        // Plain data without maps of our own always has a JSON form.
        if let Ok(line) = serde_json::to_string(&row) {
            (self.recorder.sink)(line);
        }
    }
}
