//! The pipes to a program that speaks JSON-RPC, one message a line. It is read one message at a time, so that a program
//! that says more than we take is held up by its own pipe; what it does not read is kept up to a bound, and then it is
//! not listened to before it does. Nothing here knows what the messages mean.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use windlass_core::BoxFuture;
use windlass_core::enclosure::{Inmate, Life};

use crate::lines::{Lines, Tail};

/// Bytes that wait for the program to read them before it is not listened to any more.
const MAX_UNREAD: usize = 4 << 20;
/// Bytes of its complaints that are read at once.
const PIECE: usize = 8 << 10;

/// What JSON-RPC calls an error.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    /// What to match on.
    pub code: i64,
    /// In words.
    pub message: String,
    /// Whatever else was said.
    pub data: Value,
}

impl RpcError {
    /// There is no such method.
    pub(super) const NO_METHOD: i64 = -32601;
    /// What was sent does not fit the method.
    pub(super) const BAD_PARAMS: i64 = -32602;
    /// It was refused, or did not work.
    pub(super) const FAILED: i64 = -32603;
    /// It was called off.
    pub(super) const CANCELLED: i64 = -32800;
    /// What is named is not there.
    pub(super) const NOT_FOUND: i64 = -32002;

    /// An error of ours.
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }
}

/// One message of the program.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// It wants an answer.
    Request {
        /// To be given back as it is.
        id: Value,
        /// What it wants.
        method: String,
        /// With what.
        params: Value,
    },
    /// It says something.
    Told {
        /// What about.
        method: String,
        /// What.
        params: Value,
    },
    /// It answers.
    Response {
        /// Which request of ours; `None` where it names none that we could have made.
        id: Option<u64>,
        /// What.
        result: Result<Value, RpcError>,
    },
    /// JSON, but no message.
    Odd,
    /// It says nothing more.
    End,
}

/// A running program and its pipes.
pub(super) struct Peer {
    lines: Lines<Box<dyn AsyncRead + Send + Unpin>>,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// What is to be written, how much of it was, and whether it may still be in a buffer.
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    piece: Vec<u8>,
    tail: Tail,
    life: Box<dyn Life>,
    next_id: u64,
}

impl Peer {
    /// Over the pipes of this program.
    pub(super) fn new(inmate: Inmate) -> Self {
        let Inmate { stdin, stdout, stderr, life } = inmate;
        Self {
            lines: Lines::new(stdout),
            stdin: Some(stdin),
            out: Vec::new(),
            written: 0,
            unflushed: false,
            stderr: Some(stderr),
            piece: vec![0; PIECE],
            tail: Tail::default(),
            life,
            next_id: 0,
        }
    }

    /// Lines that were passed over: too long, or no JSON.
    pub(super) fn passed_over(&self) -> u64 {
        self.lines.too_long + self.lines.not_json
    }

    /// Puts a request of ours on its way; its id.
    pub(super) fn request(&mut self, method: &str, params: &impl serde::Serialize) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Puts something that needs no answer on its way.
    pub(super) fn tell(&mut self, method: &str, params: &impl serde::Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Puts an answer on its way.
    pub(super) fn answer(&mut self, id: &Value, result: &Result<Value, RpcError>) {
        self.send(&match result {
            Ok(value) => json!({ "jsonrpc": "2.0", "id": id, "result": value }),
            Err(RpcError { code, message, data: Value::Null }) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
            }
            Err(RpcError { code, message, data }) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message, "data": data } })
            }
        });
    }

    fn send(&mut self, message: &Value) {
        if self.stdin.is_none() {
            return;
        }
        self.out.drain(..std::mem::take(&mut self.written));
        self.out.extend_from_slice(message.to_string().as_bytes());
        self.out.push(b'\n');
    }

    /// The next message; writes what is to be written meanwhile. With `listen` off it only writes, and never ends. May
    /// be dropped while it waits: nothing is lost.
    pub(super) async fn hear(&mut self, listen: bool) -> Heard {
        loop {
            let Self { lines, stdin, out, written, unflushed, stderr, piece, tail, .. } = self;
            let unread = out.len() - *written;
            // Whoever does not read what was answered is not asked what else they want.
            let listening = listen && unread < MAX_UNREAD;
            tokio::select! {
                sent = write(stdin.as_mut(), &out[*written..]), if unread > 0 || *unflushed => match sent {
                    Ok(0) => *unflushed = false,
                    Ok(n) => (*written, *unflushed) = (*written + n, true),
                    Err(_) => {
                        // It reads no more; what it still says counts.
                        (*stdin, *unflushed) = (None, false);
                        out.clear();
                        *written = 0;
                    }
                },
                n = read(stderr.as_mut(), piece), if stderr.is_some() => match n {
                    0 => *stderr = None,
                    n => tail.push(&piece[..n]),
                },
                line = lines.next(), if listening => return match line {
                    Ok(Some(value)) => understood(value),
                    Ok(None) | Err(_) => Heard::End,
                },
                else => std::future::pending().await,
            }
            if self.written == self.out.len() && !self.out.is_empty() {
                self.out = Vec::new();
                self.written = 0;
            }
        }
    }

    /// How the program ended, in words, with what it complained about last. What still runs is killed after `patience`.
    pub(super) async fn obituary(&mut self, patience: BoxFuture<'_, ()>) -> String {
        self.stdin = None;
        let Self { stderr, tail, life, .. } = self;
        let over = async {
            if let Some(stderr) = stderr.as_mut() {
                tail.follow(stderr).await;
            }
            life.wait().await
        };
        let how = tokio::select! {
            biased;
            end = over => match end {
                Ok(end) => end.in_words(),
                Err(err) => err.0,
            },
            () = patience => "it closed its output and went on running".to_owned(),
        };
        self.life.kill();
        match self.tail.text() {
            said if said.is_empty() => format!("{how}, and nothing on standard error"),
            said => format!("{how}, and last on standard error: {said}"),
        }
    }
}

async fn write(to: Option<&mut Box<dyn AsyncWrite + Send + Unpin>>, bytes: &[u8]) -> std::io::Result<usize> {
    let Some(to) = to else { return Ok(0) };
    if bytes.is_empty() {
        to.flush().await?;
        return Ok(0);
    }
    match to.write(bytes).await? {
        0 => Err(std::io::ErrorKind::WriteZero.into()),
        n => Ok(n),
    }
}

/// The next bytes; an error is an end.
async fn read(from: Option<&mut Box<dyn AsyncRead + Send + Unpin>>, piece: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(piece).await.unwrap_or(0),
        None => 0,
    }
}

fn understood(value: Value) -> Heard {
    let Value::Object(mut fields) = value else { return Heard::Odd };
    let id = fields.shift_remove("id");
    if let Some(Value::String(method)) = fields.shift_remove("method") {
        let params = fields.shift_remove("params").unwrap_or_default();
        return match id {
            // An id that is null is as good as none: nobody waits for its answer.
            None | Some(Value::Null) => Heard::Told { method, params },
            Some(id @ (Value::Number(_) | Value::String(_))) => Heard::Request { id, method, params },
            Some(_) => Heard::Odd,
        };
    }
    let id = id.and_then(|id| id.as_u64());
    if let Some(error) = fields.shift_remove("error") {
        let code = error["code"].as_i64().unwrap_or_default();
        let message = error["message"].as_str().unwrap_or("no reason given").to_owned();
        return Heard::Response { id, result: Err(RpcError { code, message, data: error["data"].clone() }) };
    }
    match fields.shift_remove("result") {
        Some(result) => Heard::Response { id, result: Ok(result) },
        None => Heard::Odd,
    }
}
