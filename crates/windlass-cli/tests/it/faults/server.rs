//! A model server that misbehaves on command: it cuts, resets, hangs, drips and floods, byte for byte as told.
//! It knows just enough HTTP to read a request; everything it says is given.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::wire::read_request;

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

pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) fn body(&self) -> serde_json::Value {
        serde_json::from_str(self.text.split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// `answer` gets the number of the request, from 0. The threads end with the test.
    pub(crate) fn start(answer: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (log, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &log, answer.as_ref()));
            }
        });
        Self { url, seen }
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Seen>>, answer: &dyn Fn(usize, &str) -> Vec<Act>) {
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::new(stream);
    while let Some(text) = read_request(&mut stream) {
        let number = {
            let mut log = log.lock().unwrap();
            log.push(Seen { at: Instant::now(), text: text.clone() });
            log.len() - 1
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
                    rustix::net::sockopt::set_socket_linger(&*out, Some(Duration::ZERO)).unwrap();
                    return;
                }
                Act::Hang => loop {
                    std::thread::park();
                },
            };
            if said.is_err() {
                return;
            }
        }
    }
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

/// Much of nothing, packed: a gzip stream of that many zeros without its final checksum.
pub(crate) fn packed_zeros(bytes: usize) -> Vec<Act> {
    const BLOCK: usize = 1 << 20;
    // One flushed block of zeros may follow another: it only refers back to zeros.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[0; BLOCK]).unwrap();
    gzip.flush().unwrap();
    let first = gzip.get_ref().clone();
    gzip.write_all(&[0; BLOCK]).unwrap();
    gzip.flush().unwrap();
    let block = gzip.get_ref()[first.len()..].to_vec();
    vec![Act::Say(piece(&first)), Act::Repeat(piece(&block), bytes / BLOCK - 1)]
}

/// The bytes, packed.
pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}
