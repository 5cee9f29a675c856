//! A model server that misbehaves on command: it cuts, resets, hangs, drips and floods, byte for byte as told.
//! It knows just enough HTTP to read a request; everything it says is given.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::locked;
use crate::product::WORDS;

/// The largest request that is read.
const MAX_REQUEST: u64 = 256 << 20;

/// One thing the server does with a connection.
#[derive(Clone)]
pub(crate) enum Act {
    /// Says these bytes in one go.
    Say(Vec<u8>),
    /// Says these bytes so many times.
    Repeat(Vec<u8>, usize),
    Pause(Duration),
    /// Ends the connection in order.
    Close,
    /// Tears it down.
    Reset,
    /// Says nothing more.
    Hang,
}

/// One request.
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) fn body(&self) -> Value {
        self.text
            .split_once("\r\n\r\n")
            .and_then(|(_, body)| serde_json::from_str(body).ok())
            .unwrap_or_default()
    }
}

/// The server; it ends when this is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
}

type Answer = dyn Fn(usize, &str) -> Vec<Act> + Send + Sync;

impl Server {
    /// `answer` gets the number of the request, from 0.
    pub(crate) fn start(
        answer: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let cannot = |err: std::io::Error| format!("the model server cannot listen: {err}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot)?;
        let url = format!("http://{}", listener.local_addr().map_err(cannot)?);
        listener.set_nonblocking(true).map_err(cannot)?;
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let server = Self {
            url,
            seen: seen.clone(),
            stop: stop.clone(),
        };
        let answer: Arc<Answer> = Arc::new(answer);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                let (seen, answer, stop) = (seen.clone(), answer.clone(), stop.clone());
                std::thread::spawn(move || serve(stream, &seen, answer.as_ref(), &stop));
            }
        });
        Ok(server)
    }

    pub(crate) fn count(&self) -> usize {
        locked(&self.seen).len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>, answer: &Answer, stop: &AtomicBool) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    while let Some(text) = read_request(&mut stream) {
        let number = {
            let mut seen = locked(seen);
            seen.push(Seen {
                at: Instant::now(),
                text: text.clone(),
            });
            seen.len() - 1
        };
        for act in answer(number, &text) {
            let out = stream.get_mut();
            let said = match act {
                Act::Say(bytes) => out.write_all(&bytes),
                Act::Repeat(bytes, times) => (0..times).try_for_each(|_| out.write_all(&bytes)),
                Act::Pause(time) => {
                    std::thread::sleep(time);
                    Ok(())
                }
                Act::Close => return,
                Act::Reset => {
                    // What was said is on its way before the connection is torn down.
                    std::thread::sleep(Duration::from_millis(30));
                    let _ = rustix::net::sockopt::set_socket_linger(&*out, Some(Duration::ZERO));
                    return;
                }
                Act::Hang => {
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    return;
                }
            };
            if said.is_err() {
                return;
            }
        }
    }
}

fn read_request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut head, mut length) = (String::new(), 0_u64);
    loop {
        let mut line = String::new();
        if stream.by_ref().take(1 << 20).read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value
                .trim()
                .parse()
                .ok()
                .filter(|length| *length <= MAX_REQUEST)?;
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}

/// The head of an answer in chunked encoding.
pub(crate) fn head(status: u64, headers: &[(String, String)]) -> Act {
    let mut text = format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n");
    if !headers.iter().any(|(name, _)| name == "content-type") {
        text.push_str("content-type: text/event-stream\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    Act::Say(format!("{text}\r\n").into_bytes())
}

/// One piece of a chunked body.
pub(crate) fn piece(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new(); // an empty piece would be the end
    }
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The end of a chunked body.
pub(crate) fn end() -> Act {
    Act::Say(b"0\r\n\r\n".to_vec())
}

/// A whole answer, cut into pieces of that size; 0 is one piece.
pub(crate) fn whole(
    status: u64,
    headers: &[(String, String)],
    body: &[u8],
    split: usize,
) -> Vec<Act> {
    let mut acts = vec![head(status, headers)];
    let size = if split == 0 { body.len().max(1) } else { split };
    acts.extend(body.chunks(size).map(|bytes| Act::Say(piece(bytes))));
    acts.push(end());
    acts
}

/// An answer that ends a run well.
pub(crate) fn good(chat: bool) -> Vec<Act> {
    let text = match chat {
        true => format!(
            "data: {}\n\ndata: [DONE]\n\n",
            json!({ "choices": [{ "index": 0, "delta": { "content": WORDS }, "finish_reason": "stop" }] })
        ),
        false => [
            json!({ "type": "message_start", "message": { "usage": { "input_tokens": 3, "output_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": WORDS } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 4 } }),
            json!({ "type": "message_stop" }),
        ]
        .map(|event| format!("data: {event}\n\n"))
        .concat(),
    };
    whole(200, &[], text.as_bytes(), 0)
}

/// Much of nothing, packed: a gzip stream of that many zeros without its final checksum.
pub(crate) fn packed_zeros(bytes: usize) -> Vec<Act> {
    const BLOCK: usize = 1 << 20;
    // One flushed block of zeros may follow another: it only refers back to zeros.
    let first = flushed(1, BLOCK);
    let block = flushed(2, BLOCK).split_off(first.len());
    vec![
        Act::Say(piece(&first)),
        Act::Repeat(piece(&block), (bytes / BLOCK).saturating_sub(1)),
    ]
}

fn flushed(blocks: usize, size: usize) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..blocks {
        // Writing to memory does not fail.
        let _ = gzip.write_all(&vec![0; size]).and_then(|()| gzip.flush());
    }
    gzip.get_ref().clone()
}

/// The bytes, packed.
pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}
