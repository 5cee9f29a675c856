//! The HTTP client of a floor: the product's HTTP stack and nothing above it.

use std::future::poll_fn;

use anyhow::{Result, ensure};
use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use windlass_providers::endpoint::VendorEndpoint;
use windlass_providers::protocol::Protocol;
use windlass_providers::{Http, HttpOptions};

/// A keep-alive client of one server.
#[derive(Debug)]
pub struct Exchange {
    http: Http,
    url: Url,
    headers: HeaderMap,
}

impl Exchange {
    /// Creates a client of the server at `base`, with the path of a protocol.
    pub fn new(base: &str, protocol: Protocol) -> Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let http = Http::new(&HttpOptions::default())?;
        Ok(Self {
            http,
            url: VendorEndpoint::new(base, protocol)?.url("bench"),
            headers,
        })
    }

    /// Sends a body and reads the whole answer; returns its size.
    pub async fn post(&self, body: Vec<u8>) -> Result<u64> {
        let answer = self
            .http
            .send(&self.url, self.headers.clone(), Some(Bytes::from(body)))
            .await?;
        ensure!(
            answer.status == 200,
            "the server answered with status {}",
            answer.status
        );
        let (mut body, mut read) = (answer.body, 0);
        while let Some(piece) = poll_fn(|cx| body.poll_piece(cx)).await {
            read += piece?.len() as u64;
        }
        Ok(read)
    }
}

/// Runs a future on one thread, which is the least a program with this HTTP stack needs.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Returns a request of about `bytes` bytes whose list of messages is still open: append more messages, then call
/// [`closed`].
#[must_use]
pub fn open_request(bytes: usize) -> Vec<u8> {
    let mut body =
        br#"{"model":"scripted-bench","max_tokens":4000000,"stream":true,"messages":["#.to_vec();
    let padding = bytes.saturating_sub(body.len() + 32);
    append(&mut body, padding);
    body
}

/// Appends one message of about `bytes` bytes.
pub fn append(body: &mut Vec<u8>, bytes: usize) {
    if body.ends_with(b"}") {
        body.push(b',');
    }
    body.extend_from_slice(br#"{"role":"user","content":""#);
    body.resize(body.len() + bytes.saturating_sub(30), b'x');
    body.extend_from_slice(br#""}"#);
}

/// Returns the request with its end, as it is sent.
#[must_use]
pub fn closed(open: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(open.len() + 2);
    body.extend_from_slice(open);
    body.extend_from_slice(b"]}");
    body
}
