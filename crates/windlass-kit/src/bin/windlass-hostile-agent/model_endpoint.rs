//! Connects to the model with the address and key in the environment. HTTP is written by hand, so that invalid requests
//! can be sent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: u64 = 16 << 20;

/// The address of the model and the key.
pub(crate) struct ModelEndpoint {
    /// The address as `host:port`.
    pub(crate) authority: String,
    /// The path before `/v1/messages`.
    pub(crate) path: String,
    pub(crate) key: String,
}

impl ModelEndpoint {
    /// Reads the endpoint from the environment.
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

    /// Sends a model request. Returns the status and the answer.
    pub(crate) fn send(&self, body: &Value) -> Option<(u16, Value)> {
        let body = body.to_string();
        let head = format!(
            "POST {}/v1/messages HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.path,
            self.authority,
            self.key,
            body.len()
        );
        let timeout = Duration::from_secs(120);
        let (status, text) =
            self.exchange(&[head.as_bytes(), body.as_bytes()].concat(), timeout)?;
        Some((status, serde_json::from_slice(&text).unwrap_or_default()))
    }

    /// Sends bytes, and reads the response until the server closes the connection or sends nothing for the timeout.
    pub(crate) fn exchange(&self, bytes: &[u8], timeout: Duration) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(&self.authority).ok()?;
        stream.set_read_timeout(Some(timeout)).ok()?;
        stream.set_write_timeout(Some(timeout)).ok()?;
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.take(MAX_RESPONSE).read_to_end(&mut all);
        let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = &all[end + 4..];
        let chunked = head.contains("transfer-encoding: chunked");
        Some((status, if chunked { joined(body) } else { body.to_vec() }))
    }
}

/// Joins the pieces of a chunked body.
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
