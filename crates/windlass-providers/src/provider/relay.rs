//! Requests that somebody else has encoded: an agent that is not ours speaks the vendor's protocol itself. Only the
//! address and the key are ours. What is in them is not read here, and nothing is tried again.

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use windlass_core::provider::ProviderError;

use super::WireProvider;
use crate::errors;
use crate::http::HttpResponse;
use crate::protocol::Protocol;
use crate::vendors::Vendor;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// Where it goes.
    pub url: Url,
    /// What its sender says beside the key.
    pub headers: HeaderMap,
    /// What is asked; a question without a body is a `GET`.
    pub body: Option<Bytes>,
}

impl WireProvider {
    /// Who is asked.
    #[must_use]
    pub fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// Where a request for this model goes when it is about something else than a stream: the last word of the path
    /// is `verb` instead.
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

    /// Sends it with the key of this vendor, and waits for the head of the answer.
    pub async fn relay(&self, parcel: Parcel) -> Result<HttpResponse, ProviderError> {
        let Parcel {
            url,
            mut headers,
            body,
        } = parcel;
        let method = if body.is_some() { "POST" } else { "GET" };
        for (name, value) in &self.signed(method, &url, body.as_deref().unwrap_or_default())? {
            // The key is ours and nobody else's; what else the sender says stands.
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

    /// What an answer with an error status means.
    #[must_use]
    pub fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> ProviderError {
        self.hide_key(errors::from_status(status, headers, body, (self.now)()))
    }

    /// Overwrites every key in a piece of an answer. Gives how many bytes at its end may be the beginning of a key.
    #[must_use]
    pub fn mask_keys(&self, piece: &mut [u8]) -> usize {
        let mut held = 0;
        for secret in self.secrets().filter(|secret| secret.len() >= 4) {
            let secret = secret.as_bytes();
            let found: Vec<_> = memchr::memmem::find_iter(piece, secret).collect();
            for at in found {
                piece[at..at + secret.len()].fill(b'*');
            }
            let longest = piece.len().min(secret.len() - 1);
            let begun = (1..=longest)
                .rev()
                .find(|size| piece.ends_with(&secret[..*size]));
            held = held.max(begun.unwrap_or(0));
        }
        held
    }

    /// The text without anything that proves to the vendor who asks.
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
