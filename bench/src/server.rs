//! A model server for benchmarks: HTTP/1.1 with keep-alive on loopback, one thread per connection, plain blocking
//! sockets, so that it costs as little as possible. It limits the size of requests; otherwise it trusts its clients.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::{Flood, ModelAnswer, ModelProtocol, PIECE, answer};

/// The longest line of a request head, in bytes, and the most lines.
const MAX_LINE: u64 = 16 << 10;
const MAX_LINES: usize = 100;
/// The largest request body, in bytes.
const MAX_BODY: u64 = 64 << 20;
/// The number of request bytes that are reported as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// The name of the field that each result of a call has in the Messages protocol.
const RESULT: &[u8] = b"\"tool_use_id\"";

/// The answers that the server gives.
#[derive(Debug, Clone)]
pub enum ServerScenario {
    /// The same short text for every request.
    Answer(String),
    /// This number of `bash` calls, then a text, then the same from the beginning.
    Steps(u64),
    /// This number of `bash` calls in each of many conversations, which the results in a request count, then a text.
    StepsEach(u64),
    /// This number of bytes of text, in pieces of four.
    Flood(u64),
}

/// A model server with its scenario.
#[derive(Debug)]
pub struct ModelServer {
    scenario: ServerScenario,
    requests: AtomicU64,
    began: Instant,
    arrivals: Option<Mutex<File>>,
    /// The time from a request to its answer.
    delay: Duration,
}

struct Head {
    wire: Option<ModelProtocol>,
    body: u64,
}

impl ModelServer {
    /// Creates a server. It writes a line to `arrivals`, if given, for each request: the nanoseconds since the start,
    /// and the size in bytes. It waits for the delay before each answer.
    #[must_use]
    pub fn new(scenario: ServerScenario, arrivals: Option<File>, delay: Duration) -> Self {
        Self {
            scenario,
            requests: AtomicU64::new(0),
            began: Instant::now(),
            arrivals: arrivals.map(Mutex::new),
            delay,
        }
    }

    /// Serves until the process ends.
    pub fn serve(self, listener: &TcpListener) {
        let server = Arc::new(self);
        for stream in listener.incoming().flatten() {
            let server = server.clone();
            // A broken connection is not an error of the server.
            std::thread::spawn(move || server.connection(&stream));
        }
    }

    fn connection(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::with_capacity(256 << 10, stream);
        let mut writer = stream;
        let mut out = Vec::new();
        // A request arrives with its first bytes.
        while !reader.fill_buf()?.is_empty() {
            let at = self.began.elapsed();
            let Some(head) = read_head(&mut reader)? else {
                break;
            };
            let (read, results) = self.read_body(&mut reader, head.body)?;
            let Some(wire) = head.wire.filter(|_| read == head.body) else {
                writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
                continue;
            };
            let requests = self.requests.fetch_add(1, Ordering::Relaxed);
            let number = results.unwrap_or(requests);
            if let Some(file) = &self.arrivals {
                // Write the line before the answer, so that it is there when the client has read the answer.
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.write_all(format!("{} {}\n", at.as_nanos(), head.body).as_bytes())?;
            }
            if !self.delay.is_zero() {
                std::thread::sleep(self.delay);
            }
            self.answer(
                wire,
                number,
                head.body / BYTES_PER_TOKEN,
                &mut out,
                &mut writer,
            )?;
        }
        Ok(())
    }

    /// Reads a body. Returns its size, and the number of results of calls if the scenario needs it.
    fn read_body(&self, from: &mut impl io::Read, size: u64) -> io::Result<(u64, Option<u64>)> {
        let mut body = from.take(size);
        if !matches!(self.scenario, ServerScenario::StepsEach(_)) {
            return Ok((io::copy(&mut body, &mut io::sink())?, None));
        }
        let mut text = Vec::new();
        let read = body.read_to_end(&mut text)?;
        let results = text
            .windows(RESULT.len())
            .filter(|part| *part == RESULT)
            .count();
        Ok((read as u64, Some(results as u64)))
    }

    fn answer(
        &self,
        wire: ModelProtocol,
        number: u64,
        input: u64,
        out: &mut Vec<u8>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let say = match &self.scenario {
            ServerScenario::Answer(text) => ModelAnswer::Text(text.clone()),
            ServerScenario::Steps(steps) | ServerScenario::StepsEach(steps) => {
                match number % (steps + 1) {
                    step if step < *steps => ModelAnswer::Bash {
                        command: format!(": {step}"),
                        number: step,
                    },
                    _ => ModelAnswer::Text("All done.".to_owned()),
                }
            }
            ServerScenario::Flood(bytes) => return flood(wire, input, *bytes / PIECE, out, to),
        };
        out.clear();
        out.extend_from_slice(HEAD);
        chunk(out, &answer(wire, &say, input));
        out.extend_from_slice(END);
        to.write_all(out)
    }
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const END: &[u8] = b"0\r\n\r\n";

/// Writes one prepared block again and again, so that the benchmark does not measure the server.
fn flood(
    wire: ModelProtocol,
    input: u64,
    pieces: u64,
    out: &mut Vec<u8>,
    to: &mut impl Write,
) -> io::Result<()> {
    let blocks = pieces / Flood::BLOCK;
    let flood = Flood::new(wire, input, blocks * Flood::BLOCK);
    out.clear();
    out.extend_from_slice(HEAD);
    chunk(out, &flood.start);
    to.write_all(out)?;
    out.clear();
    chunk(out, &flood.block);
    for _ in 0..blocks {
        to.write_all(out)?;
    }
    out.clear();
    chunk(out, &flood.end);
    out.extend_from_slice(END);
    to.write_all(out)
}

fn chunk(out: &mut Vec<u8>, body: &str) {
    out.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Reads the head of a request; `None` if it cannot be parsed.
fn read_head(reader: &mut impl io::BufRead) -> io::Result<Option<Head>> {
    let mut head = Head {
        wire: None,
        body: 0,
    };
    for number in 0..MAX_LINES {
        let mut line = Vec::new();
        reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        let Some(line) = std::str::from_utf8(&line)
            .ok()
            .and_then(|line| line.strip_suffix("\r\n"))
        else {
            return Ok(None);
        };
        if line.is_empty() {
            return Ok((head.body <= MAX_BODY).then_some(head));
        }
        if number == 0 {
            let mut words = line.split(' ');
            head.wire = (words.next() == Some("POST"))
                .then(|| ModelProtocol::at(words.next().unwrap_or_default()))
                .flatten();
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            let Ok(length) = value.trim().parse() else {
                return Ok(None);
            };
            head.body = length;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check_head(request: &str, expect: Option<(Option<ModelProtocol>, u64)>) {
        let head = read_head(&mut request.as_bytes()).unwrap();
        assert_eq!(head.map(|head| (head.wire, head.body)), expect);
    }

    #[test]
    fn a_head_says_the_wire_and_the_size() {
        check_head(
            "POST /v1/messages HTTP/1.1\r\nContent-Length: 12\r\n\r\n",
            Some((Some(ModelProtocol::Messages), 12)),
        );
        check_head(
            "POST /v1/chat/completions HTTP/1.1\r\n\r\n",
            Some((Some(ModelProtocol::Chat), 0)),
        );
        check_head("GET /v1/messages HTTP/1.1\r\n\r\n", Some((None, 0)));
        check_head(
            "POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n",
            None,
        );
        check_head(
            "POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
            None,
        );
        check_head("POST /v1/mess", None);
        check_head(
            &format!("POST /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000)),
            None,
        );
        check_head(&"x: y\r\n".repeat(200), None);
    }

    #[test]
    fn the_calls_differ_and_then_a_text_ends_the_run() {
        let server = ModelServer::new(ServerScenario::Steps(2), None, Duration::ZERO);
        let said = |number| {
            let (mut out, mut to) = (Vec::new(), Vec::new());
            server
                .answer(ModelProtocol::Messages, number, 1, &mut out, &mut to)
                .unwrap();
            String::from_utf8(to).unwrap()
        };
        assert!(said(0).contains(": 0") && said(1).contains(": 1") && said(3).contains(": 0"));
        assert!(said(2).contains("All done.") && said(5).contains("All done."));
    }
}
