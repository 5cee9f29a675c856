//! Runs `windlass serve` with a scripted model, and speaks HTTP with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli_fixture::CliFixture;

/// Time for a reply or an event.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(5);

/// Polls until a condition gives a value.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < TIMEOUT, "{what} did not come");
        std::thread::sleep(TICK);
    }
}

/// Writes settings with a model on loopback.
pub(crate) fn use_model(fixture: &CliFixture, url: &str) {
    let dir = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&dir).unwrap();
    let text = format!(
        "approval = \"auto\"\nmodel = \"anthropic/some-model\"\n[providers.anthropic]\nbase_url = \"{url}\"\n"
    );
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

/// The command that starts a server, or lines with `--stdio`.
pub(crate) fn serve_command(fixture: &CliFixture, args: &[&str]) -> Command {
    let mut command = fixture.command(&["serve"]);
    command
        .args(args)
        .env("ANTHROPIC_API_KEY", "sk-test-0123456789");
    command
}

/// A running server. Dropping it kills it.
pub(crate) struct TestServer {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

/// A reply to a request.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

impl TestServer {
    pub(crate) fn start(fixture: &CliFixture) -> Self {
        Self::start_with(fixture, &[])
    }

    pub(crate) fn start_with(fixture: &CliFixture, more: &[&str]) -> Self {
        let mut args = vec!["--port", "0", "--max-requests", "100000"];
        args.extend(more);
        let mut child = serve_command(fixture, &args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("listening on http://")
                .map(|address| address.parse().unwrap())
        });
        // The pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        let token = fixture.home().join(".local/share/windlass/server/token");
        Self {
            address: address.expect("the server did not start"),
            token: std::fs::read_to_string(token).unwrap().trim().to_owned(),
            child,
        }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Kills the server as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the server with SIGTERM and waits for its end.
    pub(crate) fn terminate(mut self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
        let status = wait_for("the end of the server", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }

    fn reply_text(&self, bytes: &[u8]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(bytes)?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends raw bytes and returns the head of the reply: the status line and the headers.
    pub(crate) fn raw_head(&self, bytes: &[u8]) -> String {
        let text = self.reply_text(bytes).unwrap();
        text.split_once("\r\n\r\n").unwrap().0.to_owned()
    }

    /// Sends raw bytes and reads the reply until the connection ends.
    pub(crate) fn raw(&self, bytes: &[u8]) -> std::io::Result<Response> {
        let text = self.reply_text(bytes)?;
        let (head, body) = text
            .split_once("\r\n\r\n")
            .ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok(Response {
            status: status.ok_or(std::io::ErrorKind::InvalidData)?,
            body: body.to_owned(),
        })
    }

    /// Sends a request with these headers. Fails if the server ends meanwhile.
    pub(crate) fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<Response> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let address = self.address.to_string();
        let bearer = format!("Bearer {}", self.token);
        let length = body.len().to_string();
        let mut all = vec![
            ("host", address.as_str()),
            ("authorization", bearer.as_str()),
        ];
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
            all.push(("content-length", length.as_str()));
        }
        all.retain(|(name, _)| !headers.iter().any(|(own, _)| own == name));
        for (name, value) in all.iter().chain(headers) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.raw(text.as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.try_request("GET", path, &[], "").unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.try_request("POST", path, &[], &body.to_string())
            .unwrap()
    }

    /// Creates a session, which runs in place if it has a prompt. Returns its id.
    #[track_caller]
    pub(crate) fn create(&self, body: &Value) -> String {
        let reply = self.post("/v1/sessions", body);
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a request that creates a session with a run in place.
pub(crate) fn prompt(text: &str) -> Value {
    json!({ "prompt": text, "options": { "in_place": true } })
}

/// The events of one kind in a log.
pub(crate) fn of<'a>(log: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |event| event["kind"] == kind)
}

/// The complete events of a session so far.
pub(crate) fn log_so_far(fixture: &CliFixture, id: &str) -> Vec<Value> {
    let sessions = fixture.home().join(".local/share/windlass/sessions");
    let text = std::fs::read_to_string(sessions.join(id).join("events.jsonl")).unwrap_or_default();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Waits until a session has this many events of a kind, and returns its log.
#[track_caller]
pub(crate) fn wait_for_events(
    fixture: &CliFixture,
    id: &str,
    kind: &str,
    count: usize,
) -> Vec<Value> {
    wait_for(kind, || {
        let log = log_so_far(fixture, id);
        (of(&log, kind).count() >= count).then_some(log)
    })
}

/// The events of a stream of server-sent events that arrived completely.
pub(crate) fn streamed(bytes: &[u8]) -> Vec<Value> {
    let mut found = Vec::new();
    let text = String::from_utf8_lossy(bytes);
    // The last part is not complete: an event ends with an empty line.
    let Some((whole, _)) = text.rsplit_once("\n\n") else {
        return found;
    };
    for block in whole.split("\n\n") {
        let field = |name: &str| {
            block
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        if let (Some(id), Some(data)) = (field("id"), field("data")) {
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!(event["seq"].to_string(), id);
            found.push(event);
        }
    }
    found
}
