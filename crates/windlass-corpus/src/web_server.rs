//! Runs the HTTP server of the product for a case, and stops it.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::child::{ChildResult, end_tree};
use crate::fixture::CaseFixture;
use crate::http_client::{HttpReply, exchange, request_head};
use crate::locked;
use crate::processes;
use crate::product::DrivenProduct;
use crate::product::http::{is_idle, listening_address, server_args, token_file};
use crate::server::Act;

/// The most bytes of standard error that are kept.
const MAX_KEPT: usize = 4 << 20;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(10);
/// The most repetitions of a request that the server asks to send later.
const MAX_RETRIES: usize = 100;

/// A running server. Dropping it kills it.
pub(crate) struct WebServer {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The main token.
    pub(crate) token: String,
    err: Arc<Mutex<String>>,
}

impl WebServer {
    /// Starts a server for workspaces in these directories, and waits until it listens.
    pub(crate) fn start(
        product: &DrivenProduct,
        fixture: &CaseFixture,
        mode: &str,
        roots: &[std::path::PathBuf],
    ) -> Result<Self, String> {
        let mut command: Command = product.command(fixture, mode, &server_args(roots));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .map_err(|err| format!("the server cannot be started: {err}"))?;
        let err = Arc::<Mutex<String>>::default();
        let (listening, address) = mpsc::channel();
        if let Some(pipe) = child.stderr.take() {
            let kept = err.clone();
            std::thread::spawn(move || keep_lines(pipe, &kept, &listening));
        }
        let address = address.recv_timeout(START_TIMEOUT);
        let mut server = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: String::new(),
            err,
        };
        server.address =
            address.map_err(|_| format!("the server did not start: {}", locked(&server.err)))?;
        let token = std::fs::read_to_string(token_file(fixture));
        server.token = token
            .map_err(|err| format!("the token cannot be read: {err}"))?
            .trim()
            .to_owned();
        Ok(server)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns the addresses on which the server listens.
    pub(crate) fn listening(&self) -> Vec<IpAddr> {
        processes::listening(self.pid())
    }

    /// Sends a request with a token. A request that the server asks to send later is repeated.
    pub(crate) fn request(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<HttpReply, String> {
        let mut headers = vec![
            ("host".to_owned(), self.address.to_string()),
            ("connection".to_owned(), "close".to_owned()),
            ("authorization".to_owned(), format!("Bearer {token}")),
        ];
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
            headers.push(("content-length".to_owned(), body.len().to_string()));
        }
        let mut bytes = request_head(method, path, headers);
        bytes.extend_from_slice(body.as_bytes());
        let pieces = [Act::Say(bytes)];
        for _ in 0..MAX_RETRIES {
            let replies = exchange(self.address, &pieces, REPLY_TIMEOUT)?;
            let reply = replies.into_iter().next();
            let reply = reply.ok_or_else(|| format!("{method} {path} got no response"))?;
            if reply.status != 429 {
                return Ok(reply);
            }
            std::thread::sleep(TICK);
        }
        Err(format!("{method} {path} was always refused for its rate"))
    }

    /// Like [`WebServer::request`] with the main token, for a request that must succeed. Returns the JSON of the response.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let reply = self.request(&self.token, method, path, body)?;
        crate::holds(reply.is_success(), || {
            format!("{method} {path}: {} {}", reply.status, reply.body)
        })?;
        Ok(reply.json())
    }

    /// Waits until no run is in progress.
    pub(crate) fn wait_until_idle(&self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < REPLY_TIMEOUT {
            if is_idle(&self.request(&self.token, "GET", "/metrics", None)?.body) {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
        Err("the run did not end or pause".to_owned())
    }

    /// Stops the server and returns its output.
    pub(crate) fn stop(mut self) -> ChildResult {
        let memory = processes::peak_memory(self.pid());
        let began = Instant::now();
        let _ = Pid::from_raw(self.pid()).map(|pid| kill_process(pid, Signal::TERM));
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if began.elapsed() < STOP_TIMEOUT => std::thread::sleep(TICK),
                _ => break None,
            }
        };
        let mut ran = ChildResult {
            code: status.and_then(|status| status.code()).unwrap_or(-1),
            err: locked(&self.err).clone(),
            overdue: status.is_none(),
            ..ChildResult::default()
        };
        ran.seen.memory = memory;
        ran
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            end_tree(self.pid());
        }
        let _ = self.child.wait();
    }
}

/// Keeps the standard error of the server, and sends the address that it names.
fn keep_lines(pipe: impl Read, kept: &Mutex<String>, listening: &mpsc::Sender<SocketAddr>) {
    let mut lines = BufReader::new(pipe);
    let mut line = Vec::new();
    while lines
        .by_ref()
        .take(MAX_KEPT as u64)
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        let text = String::from_utf8_lossy(&line).into_owned();
        if let Some(address) = listening_address(&text) {
            let _ = listening.send(address);
        }
        let mut kept = locked(kept);
        if kept.len() < MAX_KEPT {
            kept.push_str(&text);
        }
        line.clear();
    }
}
