//! Relays requests that a foreign agent has encoded in the vendor's protocol. The provider replaces only the address
//! and the key. It does not parse the body and never retries.

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use windlass_core::provider::ProviderError;

use super::WireProvider;
use crate::errors;
use crate::http::HttpResponse;
use crate::protocol::Protocol;
use crate::vendors::Vendor;

/// A request of a foreign agent.
#[derive(Debug, Clone)]
pub struct RelayedRequest {
    /// The address at the vendor.
    pub url: Url,
    /// The agent's headers without its key.
    pub headers: HeaderMap,
    /// A request without a body is a `GET`.
    pub body: Option<Bytes>,
}

impl WireProvider {
    /// Returns the vendor of this provider.
    #[must_use]
    pub fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// Returns the address of a request for this model that does not ask for a stream: the last word of the path is
    /// replaced by `verb`.
    #[must_use]
    pub fn url_for(&self, model: &str, verb: &str) -> Url {
        let mut url = self.endpoint.url(model);
        let mark = if self.vendor.protocol == Protocol::BedrockAnthropic {
            '/'
        } else {
            ':'
        };
        let path = url
            .path()
            .rsplit_once(mark)
            .map(|(before, _)| format!("{before}{mark}{verb}"));
        if let Some(path) = path {
            url.set_path(&path);
        }
        let rest: Vec<_> = url
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| *pair != "alt=sse")
            .collect();
        let rest = rest.join("&");
        url.set_query(Some(rest.as_str()).filter(|rest| !rest.is_empty()));
        url
    }

    /// Sends the request with the vendor's key, and waits for the response headers.
    pub async fn relay(&self, request: RelayedRequest) -> Result<HttpResponse, ProviderError> {
        let RelayedRequest {
            url,
            mut headers,
            body,
        } = request;
        let method = if body.is_some() { "POST" } else { "GET" };
        for (name, value) in &self.signed(method, &url, body.as_deref().unwrap_or_default())? {
            // The provider's key always replaces the agent's; other headers of the agent are kept.
            if value.is_sensitive() || !headers.contains_key(name) {
                headers.insert(name, value.clone());
            }
        }
        if self.signer.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let sent = self.http.send(&url, headers, body).await;
        sent.map_err(|err| self.hide_key(err.into()))
    }

    /// Maps an answer with an error status, and removes keys from the message.
    #[must_use]
    pub fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> ProviderError {
        self.hide_key(errors::from_status(status, headers, body, (self.now)()))
    }

    /// Overwrites every key in a piece of an answer. Returns the number of bytes at its end that may be the beginning
    /// of a key; the caller must hold them back until the next piece.
    #[must_use]
    pub fn mask_keys(&self, piece: &mut [u8]) -> usize {
        let mut held_back = 0;
        for secret in self.secrets().filter(|secret| secret.len() >= 4) {
            let secret = secret.as_bytes();
            let found: Vec<_> = memchr::memmem::find_iter(piece, secret).collect();
            for at in found {
                piece[at..at + secret.len()].fill(b'*');
            }
            let longest = piece.len().min(secret.len() - 1);
            let prefix = (1..=longest)
                .rev()
                .find(|size| piece.ends_with(&secret[..*size]));
            held_back = held_back.max(prefix.unwrap_or(0));
        }
        held_back
    }

    /// Removes all keys from a body. A body that is not UTF-8 is replaced by a message.
    #[must_use]
    pub fn without_keys(&self, body: Vec<u8>) -> Vec<u8> {
        let Ok(mut text) = String::from_utf8(body) else {
            return b"the answer was not text".to_vec();
        };
        for secret in self.secrets().filter(|secret| secret.len() >= 4) {
            if text.contains(secret) {
                text = text.replace(secret, "***");
            }
        }
        text.into_bytes()
    }
}
