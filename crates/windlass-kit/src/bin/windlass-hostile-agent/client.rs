//! The way to the model: whatever address and key the environment names, over HTTP written by hand, so that anything can
//! be sent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The most that is read of an answer.
const MOST: u64 = 16 << 20;

/// Where the model is, and the key that goes there.
pub(crate) struct Endpoint {
    /// `host:port`.
    pub(crate) authority: String,
    /// What stands before `/v1/messages`.
    pub(crate) path: String,
    pub(crate) key: String,
}

impl Endpoint {
    /// The one that the environment names.
    pub(crate) fn find() -> Option<Self> {
        let url = std::env::var("ANTHROPIC_BASE_URL").ok()?;
        let rest = url.strip_prefix("http://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = format!("/{path}").trim_end_matches('/').to_owned();
        let key =
            std::env::var("ANTHROPIC_API_KEY").or_else(|_| std::env::var("ANTHROPIC_AUTH_TOKEN"));
        Some(Self {
            authority: authority.to_owned(),
            path,
            key: key.unwrap_or_default(),
        })
    }

    /// A question to the model: the status and the answer.
    pub(crate) fn ask(&self, body: &Value) -> Option<(u16, Value)> {
        let body = body.to_string();
        let head = format!(
            "POST {}/v1/messages HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.path,
            self.authority,
            self.key,
            body.len()
        );
        let patience = Duration::from_secs(120);
        let (status, text) =
            self.exchange(&[head.as_bytes(), body.as_bytes()].concat(), patience)?;
        Some((status, serde_json::from_slice(&text).unwrap_or_default()))
    }

    /// Sends these bytes, and reads what comes until the other side closes or is silent for so long.
    pub(crate) fn exchange(&self, bytes: &[u8], patience: Duration) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(&self.authority).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.set_write_timeout(Some(patience)).ok()?;
        // What is refused half way is not sent to its end.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.take(MOST).read_to_end(&mut all);
        let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = &all[end + 4..];
        let chunked = head.contains("transfer-encoding: chunked");
        Some((status, if chunked { joined(body) } else { body.to_vec() }))
    }
}

/// The pieces of a chunked body in one.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..end])
            .ok()
            .and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let Some(piece) = size
            .filter(|size| *size > 0)
            .and_then(|size| body.get(end + 2..end + 2 + size))
        else {
            break;
        };
        all.extend_from_slice(piece);
        body = body.get(end + 2 + piece.len() + 2..).unwrap_or_default();
    }
    all
}
