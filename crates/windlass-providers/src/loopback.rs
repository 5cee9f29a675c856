//! A tiny HTTP server on loopback for tests: it says exactly the bytes it was told to, in the pieces it was told to.
//! Test code only; it knows just enough HTTP to read a request with a content length.
#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One thing the server does with a connection.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Writes these bytes in one go.
    Send(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Says nothing more and keeps the connection.
    Hang,
}

/// What came in, as text: head and body.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) seen: Seen,
    pub(crate) connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// `answer` gets the number of the request (from 0) and its text.
    pub(crate) async fn start(
        answer: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, connections) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
        let (log, count, answer) = (seen.clone(), connections.clone(), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, log.clone(), answer.clone()));
            }
        });
        Self {
            url,
            seen,
            connections,
            task,
        }
    }

    /// The same acts for every request.
    pub(crate) async fn saying(acts: Vec<Act>) -> Self {
        Self::start(move |_, _| acts.clone()).await
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

async fn serve(mut stream: TcpStream, log: Seen, answer: Arc<impl Fn(usize, &str) -> Vec<Act>>) {
    stream.set_nodelay(true).unwrap();
    while let Some(request) = read_request(&mut stream).await {
        let number = {
            let mut log = log.lock();
            log.push(request.clone());
            log.len() - 1
        };
        for act in answer(number, &request) {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                Act::Close => return,
                Act::Hang => std::future::pending().await,
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = all
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map(|at| at + 4);
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&all[..head]).to_ascii_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            if all.len() >= head + length.unwrap_or(0) {
                return Some(String::from_utf8_lossy(&all).into_owned());
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => all.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A whole answer with a content length.
pub(crate) fn whole(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Act {
    let body = body.as_ref();
    let mut bytes = format!(
        "HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    Act::Send(bytes)
}

/// The head of an event stream in chunked encoding.
pub(crate) fn stream_head() -> Act {
    Act::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    )
}

/// One chunk of a chunked body.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Act {
    let bytes = bytes.as_ref();
    Act::Send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

/// The end of a chunked body.
pub(crate) fn last_chunk() -> Act {
    Act::Send(b"0\r\n\r\n".to_vec())
}

/// A whole event stream: head, one chunk a piece, end.
pub(crate) fn event_stream(pieces: &[&str]) -> Vec<Act> {
    let mut acts = vec![stream_head()];
    acts.extend(pieces.iter().map(chunk));
    acts.push(last_chunk());
    acts
}
