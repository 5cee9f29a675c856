//! A raw HTTP/1.1 client for loopback that sends exactly the given bytes. Times and sizes are bounded, and a response is
//! also read while the request is still being sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::Act;

/// The most bytes that are read from one connection.
const MAX_READ: usize = 16 << 20;
const TICK: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A response.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl HttpReply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the values of a header; the name must be in lower case.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON, or null.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Returns the head of a request.
pub(crate) fn request_head(
    method: &str,
    path: &str,
    headers: impl IntoIterator<Item = (String, String)>,
) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// Sends a request in pieces and returns the responses of the connection: none if the server closed it without one.
pub(crate) fn exchange(
    address: SocketAddr,
    pieces: &[Act],
    deadline: Duration,
) -> Result<Vec<HttpReply>, String> {
    crate::holds(address.ip().is_loopback(), || {
        format!("{address} is not on loopback")
    })?;
    let io = |err: std::io::Error| format!("{address}: {err}");
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    stream.set_read_timeout(Some(TICK)).map_err(io)?;
    stream.set_write_timeout(Some(TICK)).map_err(io)?;
    let ended = AtomicBool::new(false);
    let read = std::thread::scope(|scope| {
        scope.spawn(|| send(&stream, pieces, &ended));
        let read = read(&stream, Instant::now() + deadline);
        ended.store(true, Ordering::SeqCst);
        read
    });
    Ok(parse(&read))
}

/// Sends the pieces until the connection ends. A server may refuse a request before it has read all of it.
fn send(stream: &TcpStream, pieces: &[Act], ended: &AtomicBool) {
    for piece in pieces {
        let sent = match piece {
            Act::Say(bytes) => write(stream, bytes, ended),
            Act::Repeat(bytes, times) => (0..*times).all(|_| write(stream, bytes, ended)),
            Act::Pause(pause) => {
                let until = Instant::now() + *pause;
                while Instant::now() < until && !ended.load(Ordering::SeqCst) {
                    std::thread::sleep(TICK.min(*pause));
                }
                true
            }
            _ => false,
        };
        if !sent {
            return;
        }
    }
}

fn write(mut stream: &TcpStream, mut bytes: &[u8], ended: &AtomicBool) -> bool {
    while !bytes.is_empty() {
        if ended.load(Ordering::SeqCst) {
            return false;
        }
        match stream.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = &bytes[written..],
            Err(err) if is_timeout(&err) => {}
            Err(_) => return false,
        }
    }
    true
}

fn read(mut stream: &TcpStream, until: Instant) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while all.len() < MAX_READ && Instant::now() < until {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(&piece[..length]),
            Err(err) if is_timeout(&err) => {}
            Err(_) => break,
        }
    }
    all
}

fn is_timeout(err: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(err.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Parses the responses of a connection. A body without a length extends to the end.
fn parse(bytes: &[u8]) -> Vec<HttpReply> {
    let mut replies = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines
            .next()
            .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0);
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
            .collect();
        let body = &rest[end + 4..];
        let length = headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .and_then(|(_, value)| value.parse::<usize>().ok())
            .unwrap_or(body.len())
            .min(body.len());
        replies.push(HttpReply {
            status,
            headers,
            body: String::from_utf8_lossy(&body[..length]).into_owned(),
        });
        rest = &body[length..];
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_replies_of_a_connection_are_read() {
        let text = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nX: a\r\n\r\nrest";
        let replies = parse(text);
        let seen: Vec<_> = replies
            .iter()
            .map(|reply| (reply.status, reply.body.as_str()))
            .collect();
        assert_eq!(seen, [(404, "{}"), (200, "rest")]);
        assert!(replies[1].values("x").eq(["a"]));
        assert!(parse(b"HTTP/1.1 200").is_empty());
    }
}
