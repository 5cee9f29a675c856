//! Just enough HTTP/1.1 to serve agents on loopback: requests with a length or in chunks, answers whole or in chunks.
//! Everything that is read has a bound.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The longest line of a head, and the most lines.
const MAX_LINE: u64 = 64 << 10;
const MAX_LINES: usize = 200;
/// The largest body.
const MAX_BODY: usize = 64 << 20;

/// A request as it came.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The key, as any of the vendors takes it.
    pub(crate) fn key(&self) -> Option<String> {
        let bearer = self
            .header("authorization")
            .map(|value| value.trim_start_matches("Bearer "));
        let given = self
            .header("x-api-key")
            .or(self.header("x-goog-api-key"))
            .or(self.header("api-key"))
            .or(bearer);
        let in_path = || {
            self.path
                .split(['?', '&'])
                .find_map(|part| part.strip_prefix("key="))
        };
        given.or_else(in_path).map(str::to_owned)
    }
}

/// The next request of a connection; none at its end, and none where it is no HTTP.
pub(crate) fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let first = line(stream)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    for _ in 0..MAX_LINES {
        let line = line(stream)?;
        if line.is_empty() {
            let mut request = Request {
                method,
                path,
                headers,
                body: Vec::new(),
            };
            request.body = body(stream, &request)?;
            return Some(request);
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.trim().to_lowercase(), value.trim().to_owned()));
    }
    None
}

fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = stream.by_ref().take(MAX_LINE).read_line(&mut line).ok()?;
    if read == 0 || !line.ends_with('\n') {
        return None;
    }
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Some(line)
}

fn body(stream: &mut BufReader<TcpStream>, request: &Request) -> Option<Vec<u8>> {
    if request.header("expect").is_some() {
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .ok()?;
    }
    if request
        .header("transfer-encoding")
        .is_some_and(|how| how.contains("chunked"))
    {
        return chunks(stream);
    }
    let length = request
        .header("content-length")
        .map_or(Some(0), |length| length.parse::<usize>().ok())?;
    exactly(stream, length)
}

fn chunks(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let size = line(stream)?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if all.len().checked_add(size)? > MAX_BODY {
            return None;
        }
        all.extend(exactly(stream, size)?);
        line(stream)?;
        if size == 0 {
            return Some(all);
        }
    }
}

fn exactly(stream: &mut BufReader<TcpStream>, length: usize) -> Option<Vec<u8>> {
    if length > MAX_BODY {
        return None;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// A whole answer.
pub(crate) fn whole(out: &mut TcpStream, status: u16, kind: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        reason(status),
        body.len()
    );
    out.write_all(&[head.as_bytes(), body].concat())
}

/// The head of an answer that comes piece by piece.
pub(crate) fn begin_stream(out: &mut TcpStream) -> io::Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
          transfer-encoding: chunked\r\n\r\n",
    )
}

/// One piece of it.
pub(crate) fn piece(out: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

/// The end of it.
pub(crate) fn end_stream(out: &mut TcpStream) -> io::Result<()> {
    out.write_all(b"0\r\n\r\n")
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        _ => "Status",
    }
}
