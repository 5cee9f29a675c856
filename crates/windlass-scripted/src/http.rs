//! A minimal HTTP/1.1 server on loopback: requests with a content length or in chunks, responses whole or in chunks.
//! Each connection has its own thread, because clients open few and some of them hang for long. Everything that is read
//! has a limit.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum bytes of a line of the head, and maximum number of lines.
const MAX_LINE: u64 = 1 << 20;
const MAX_LINES: usize = 200;
/// Maximum size of a body in bytes.
const MAX_BODY: usize = 256 << 20;
/// Maximum number of open connections; further ones are closed.
const MAX_CONNECTIONS: usize = 256;
const TICK: Duration = Duration::from_millis(20);

/// A listener on loopback with its connections. Dropping it ends them.
#[derive(Debug)]
pub struct Loopback {
    /// The URL without a path.
    pub url: String,
    state: Arc<Connections>,
}

/// The state that a server shares with its connections.
#[derive(Debug, Default)]
pub struct Connections {
    stop: AtomicBool,
    open: AtomicUsize,
    accepted: AtomicUsize,
}

impl Loopback {
    /// Listens on this port (0 for a free one) and answers every request. An error of `answer` ends the connection.
    ///
    /// # Errors
    /// Fails if the port cannot be bound.
    pub fn start(
        port: u16,
        answer: impl Fn(&mut TcpStream, &Request, &Connections) -> io::Result<()>
        + Send
        + Sync
        + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let url = format!("http://{}", listener.local_addr()?);
        listener.set_nonblocking(true)?;
        let state = Arc::new(Connections::default());
        let server = Self {
            url,
            state: Arc::clone(&state),
        };
        std::thread::spawn(move || accept(&listener, &state, &Arc::new(answer)));
        Ok(server)
    }

    /// The number of connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
    }
}

impl Connections {
    /// Whether the server was dropped.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends nothing until the client disconnects or the server stops; then ends the connection.
    ///
    /// # Errors
    /// Always fails, because the connection has ended.
    pub fn hang(&self, out: &TcpStream) -> io::Result<()> {
        out.set_read_timeout(Some(TICK))?;
        while !self.stopped() {
            match out.peek(&mut [0]) {
                Ok(0) => break,
                Ok(_) => std::thread::sleep(TICK),
                Err(err)
                    if matches!(
                        err.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => break,
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

fn accept(
    listener: &TcpListener,
    state: &Arc<Connections>,
    answer: &Arc<
        impl Fn(&mut TcpStream, &Request, &Connections) -> io::Result<()> + Send + Sync + 'static,
    >,
) {
    while !state.stopped() {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        state.accepted.fetch_add(1, Ordering::SeqCst);
        if state.open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            state.open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (state, answer) = (Arc::clone(state), Arc::clone(answer));
        std::thread::spawn(move || {
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_nodelay(true);
            let mut stream = BufReader::new(stream);
            while let Some(request) = read(&mut stream) {
                let answered = answer(stream.get_mut(), &request, &state).is_ok();
                let last = request
                    .header("connection")
                    .is_some_and(|how| how.eq_ignore_ascii_case("close"));
                if !answered || last || state.stopped() {
                    break;
                }
            }
            state.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// A request as it was received.
#[derive(Debug)]
pub struct Request {
    /// The method, such as `POST`.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The request line and the headers, byte for byte, including the blank line after them.
    pub head: String,
    /// The headers with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body with its chunks joined.
    pub body: Vec<u8>,
}

impl Request {
    /// The head and the body as text.
    #[must_use]
    pub fn text(&self) -> String {
        self.head.clone() + &String::from_utf8_lossy(&self.body)
    }

    /// The first value of a header; the name must be in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The API key, from any of the headers or parameters that vendors use.
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

/// Reads the next request of a connection; `None` at its end, or if it is not HTTP.
fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = line(stream)?;
    let mut words = head.trim_end().split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    for _ in 0..MAX_LINES {
        let line = line(stream)?;
        head.push_str(&line);
        let Some((name, value)) = line.split_once(':') else {
            let mut request = Request {
                method,
                path,
                head,
                headers,
                body: Vec::new(),
            };
            request.body = line
                .trim_end()
                .is_empty()
                .then(|| body(stream, &request))??;
            return Some(request);
        };
        headers.push((name.trim().to_lowercase(), value.trim().to_owned()));
    }
    None
}

/// Reads one line with its line ending.
fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.by_ref().take(MAX_LINE).read_line(&mut line).ok()?;
    line.ends_with('\n').then_some(line)
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

/// The bytes of a complete response. Each line of `headers` ends in `\r\n`.
pub fn whole(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} {}\r\n{headers}content-length: {}\r\n\r\n",
        reason(status),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The head of a chunked response. Each line of `headers` ends in `\r\n`.
#[must_use]
pub fn stream_head(status: u16, headers: &str) -> Vec<u8> {
    let reason = reason(status);
    format!("HTTP/1.1 {status} {reason}\r\n{headers}transfer-encoding: chunked\r\n\r\n")
        .into_bytes()
}

/// The header of an event stream.
pub const EVENT_STREAM: &str = "content-type: text/event-stream\r\ncache-control: no-cache\r\n";

/// One chunk of a body. No bytes give no chunk, because an empty chunk would end the body.
pub fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    match bytes.len() {
        0 => Vec::new(),
        length => [format!("{length:x}\r\n").as_bytes(), bytes, b"\r\n"].concat(),
    }
}

/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not OfferedTool",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        _ => "Status",
    }
}
