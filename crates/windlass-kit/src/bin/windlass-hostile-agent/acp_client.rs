//! The connection to the ACP client: JSON-RPC over lines, written by hand. A thread reads the messages and puts
//! requests and answers into queues; a cancel sets a flag.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The timeout of a request to the client.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The ACP client of this agent.
pub(crate) struct AcpClient {
    requests: Receiver<Value>,
    answers: Receiver<Value>,
    cancelled: Arc<AtomicBool>,
    next_id: u64,
    /// The id of the current session.
    pub(crate) session: String,
}

impl AcpClient {
    pub(crate) fn open() -> Self {
        let ((to_requests, requests), (to_answers, answers)) = (channel(), channel());
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancelled);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                let sent = match (message["method"].as_str(), message.get("id")) {
                    (Some("session/cancel"), None) => {
                        flag.store(true, Ordering::Relaxed);
                        Ok(())
                    }
                    (Some(_), Some(_)) => to_requests.send(message),
                    (None, Some(_)) => to_answers.send(message),
                    _ => Ok(()),
                };
                if sent.is_err() {
                    return;
                }
            }
        });
        Self {
            requests,
            answers,
            cancelled,
            next_id: 0,
            session: String::new(),
        }
    }

    /// Returns the next request, or `None` after the client closed stdin.
    pub(crate) fn next(&mut self) -> Option<Value> {
        self.requests.recv().ok()
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn answer(&mut self, id: &Value, result: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    pub(crate) fn fail(&mut self, id: &Value, why: &str) {
        self.send(
            &json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": why } }),
        );
    }

    /// Sends a session update.
    pub(crate) fn update(&mut self, update: &Value) {
        let params = json!({ "sessionId": self.session, "update": update });
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    /// Sends text as a message of the agent.
    pub(crate) fn say(&mut self, text: &str) {
        let content = json!({ "type": "text", "text": text });
        self.update(&json!({ "sessionUpdate": "agent_message_chunk", "content": content }));
    }

    /// Sends a request to the client. Returns the answer or the error, or null after a timeout.
    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        params["sessionId"] = json!(self.session);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let until = Instant::now() + TIMEOUT;
        loop {
            match self
                .answers
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(answer) if answer["id"] == id => return answer,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Value::Null;
                }
            }
        }
    }

    /// Asks for permission to make a call.
    pub(crate) fn may(&mut self, call: &Value) -> bool {
        let options = json!([
            { "optionId": "go", "kind": "allow_once", "name": "Allow once" },
            { "optionId": "go-on", "kind": "allow_always", "name": "Always allow" },
            { "optionId": "no", "kind": "reject_once", "name": "Reject" },
        ]);
        let answer = self.ask(
            "session/request_permission",
            json!({ "toolCall": call, "options": options }),
        );
        let chosen = &answer["result"]["outcome"]["optionId"];
        chosen == "go" || chosen == "go-on"
    }

    fn send(&mut self, message: &Value) {
        raw(format!("{message}\n").as_bytes());
    }
}

/// Writes bytes unchanged. Exits if the client has closed stdout.
pub(crate) fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
