//! `windlass serve` as its clients see it: streams that are cut, restarts, both transports, and bad input.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_scripted::{Move, Script, Server};

use crate::cli_fixture::CliFixture;
use crate::server_fixture::{
    TestServer, log_so_far, of, prompt, serve_command, streamed, use_model, wait_for,
    wait_for_events,
};

fn write_file(path: &str) -> Move {
    Move::Write {
        path: path.to_owned(),
        text: "written\n".to_owned(),
    }
}

fn start_model(fixture: &CliFixture, moves: Vec<Move>) -> Server {
    let model = Server::start(Script::new(&fixture.work(), moves)).unwrap();
    use_model(fixture, &model.url);
    model
}

/// Clients that follow the stream at the same time.
const CLIENTS: usize = 8;

/// A proxy that passes on a number of bytes of each reply and then ends the connection.
struct CuttingProxy {
    address: std::net::SocketAddr,
    /// The number of bytes of the next reply that pass.
    passes: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl CuttingProxy {
    fn start(to: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (passes, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (limit, stopped) = (passes.clone(), stop.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let limit = limit.load(Ordering::SeqCst);
                std::thread::spawn(move || Self::pass(client, to, limit));
            }
        });
        Self {
            address,
            passes,
            stop,
        }
    }

    fn pass(mut client: TcpStream, to: std::net::SocketAddr, limit: usize) {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|read| read > 0) {
            request.push(byte[0]);
        }
        let mut server = TcpStream::connect(to).unwrap();
        server.write_all(&request).unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        client.set_nonblocking(true).unwrap();
        let mut passed = 0;
        let mut piece = [0; 16 << 10];
        while passed < limit {
            let most = piece.len().min(limit - passed);
            match server.read(&mut piece[..most]) {
                Ok(read) if read > 0 && client.write_all(&piece[..read]).is_ok() => passed += read,
                // The client may have gone.
                Err(err) if err.kind() == ErrorKind::WouldBlock => match client.peek(&mut [0]) {
                    Err(err) if err.kind() == ErrorKind::WouldBlock => {}
                    _ => break,
                },
                _ => break,
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    /// Follows a session from an event on, until the connection ends or the last event has come.
    fn follow(
        &self,
        server: &TestServer,
        session: &str,
        after: u64,
        last: u64,
        bytes: usize,
    ) -> Vec<Value> {
        self.passes.store(bytes, Ordering::SeqCst);
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = format!(
            "GET /v1/sessions/{session}/events HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: \
             text/event-stream\r\nlast-event-id: {after}\r\n\r\n",
            server.address, server.token
        );
        stream.write_all(request.as_bytes()).unwrap();
        let (mut all, mut piece) = (Vec::new(), [0; 16 << 10]);
        let mut events = Vec::new();
        while events
            .last()
            .is_none_or(|event: &Value| event["seq"] != last)
        {
            match stream.read(&mut piece) {
                Ok(read) if read > 0 => all.extend_from_slice(&piece[..read]),
                _ => break,
            }
            if let Some(head) = all.windows(4).position(|window| window == b"\r\n\r\n") {
                events = streamed(&all[head + 4..]);
            }
        }
        events
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// The numbers of all durable events of a session, as a client collects them whose first connection is cut.
fn collect(
    proxy: &CuttingProxy,
    server: &TestServer,
    session: &str,
    cut: usize,
    last: u64,
) -> Vec<u64> {
    let number = |event: &Value| event["seq"].as_u64().unwrap();
    let mut numbers = Vec::new();
    for bytes in [cut, usize::MAX] {
        let after = numbers.last().copied().unwrap_or(0);
        if after < last {
            let got = proxy.follow(server, session, after, last, bytes);
            numbers.extend(got.iter().map(number));
        }
    }
    numbers
}

#[test]
fn a_stream_that_is_cut_at_any_byte_loses_and_repeats_nothing() {
    let fixture = CliFixture::new();
    let _model = start_model(&fixture, Vec::new());
    let server = TestServer::start(&fixture);
    let session = server.create(&prompt("go"));
    let log = wait_for_events(&fixture, &session, "run_finished", 1);
    let last = log.last().unwrap()["seq"].as_u64().unwrap();
    let expect: Vec<u64> = (1..=last).collect();
    // The events with their fields and the head of the reply are shorter than this.
    let whole = log
        .iter()
        .map(|event| event.to_string().len() + 32)
        .sum::<usize>()
        + 1024;
    std::thread::scope(|scope| {
        for first in 1..=CLIENTS {
            let (server, session, expect) = (&server, &session, &expect);
            scope.spawn(move || {
                let proxy = CuttingProxy::start(server.address);
                for cut in (first..whole).step_by(CLIENTS) {
                    let numbers = collect(&proxy, server, session, cut, last);
                    assert_eq!(numbers, *expect, "cut after {cut} bytes");
                }
            });
        }
    });
}

#[test]
fn content_that_is_no_session_is_refused_without_the_path_of_the_server() {
    let fixture = CliFixture::new();
    let server = TestServer::start(&fixture);
    for content in ["", "hello", "{\"hello\":1}", "{\"v\":99,\"seq\":1}\n"] {
        let reply = server.post("/v1/sessions/import", &json!({ "content": content }));
        assert_eq!(reply.status, 422, "{reply:?}");
        let problem = reply.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with("`content`: "), "{detail}");
        assert!(!reply.body.contains("upload") && !reply.body.contains("--from"));
    }
    assert!(fixture.sessions().is_empty());
}

#[test]
fn a_wrong_method_is_answered_with_the_methods_of_the_route() {
    let fixture = CliFixture::new();
    let server = TestServer::start(&fixture);
    let check = |method: &str, path: &str, expect: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
            server.address, server.token
        );
        let head = server.raw_head(request.as_bytes());
        assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
        let allow = head.lines().find_map(|line| line.strip_prefix("allow: "));
        assert_eq!(allow, Some(expect), "{method} {path}");
    };
    check("OPTIONS", "/v1/sessions/import", "POST");
    check("GET", "/v1/sessions/import", "POST");
    check("PUT", "/v1/sessions/s1", "GET, DELETE");
    check("DELETE", "/v1/sessions", "POST, GET");
    check("POST", "/v1/settings/keys", "GET");
    // Routes that are not operations.
    check("PUT", "/healthz", "GET,HEAD");
    check("GET", "/chat", "POST");
}

#[test]
fn a_session_whose_run_waits_refuses_what_needs_its_end() {
    let fixture = CliFixture::new();
    let _model = start_model(&fixture, vec![write_file("a.txt")]);
    let server = TestServer::start(&fixture);
    let session = server
        .create(&json!({ "prompt": "go", "options": { "in_place": true, "approval": "ask" } }));
    wait_for_events(&fixture, &session, "asked", 1);
    let reply = wait_for("a conflict", || {
        let reply = server.post(&format!("/v1/sessions/{session}/clear"), &json!({}));
        (reply.status == 409).then_some(reply)
    });
    assert!(reply.body.contains("conflict"), "{reply:?}");
}

#[test]
fn images_without_a_prompt_start_a_run() {
    let fixture = CliFixture::new();
    let _model = start_model(&fixture, Vec::new());
    let server = TestServer::start(&fixture);
    let image = json!({ "media_type": "image/png", "data": "aGVsbG8=" });
    let session = server.create(&json!({ "images": [image], "options": { "in_place": true } }));
    wait_for_events(&fixture, &session, "run_started", 1);
}

/// More steps than a run takes before the signal arrives.
const STEPS: usize = 40;

#[test]
fn a_server_that_is_terminated_pauses_its_run_and_the_next_one_resumes_it() {
    let fixture = CliFixture::new();
    let files: Vec<String> = (0..STEPS).map(|number| format!("{number}.txt")).collect();
    let _model = start_model(
        &fixture,
        files.iter().map(|name| write_file(name)).collect(),
    );
    let server = TestServer::start(&fixture);
    let session = server.create(&prompt("go"));
    wait_for_events(&fixture, &session, "call_finished", 1);
    server.terminate();
    let log = log_so_far(&fixture, &session);
    assert_eq!(of(&log, "paused").count(), 1, "{:?}", log.last());
    assert_eq!(of(&log, "run_finished").count(), 0);
    let server = TestServer::start(&fixture);
    let log = wait_for_events(&fixture, &session, "run_finished", 1);
    assert_eq!(of(&log, "run_started").count(), 1, "the same run goes on");
    assert_eq!(
        of(&log, "call_started").count(),
        STEPS,
        "each call starts once"
    );
    let end = of(&log, "run_finished").next().unwrap();
    assert_eq!(end["data"]["outcome"]["is"], "completed", "{end}");
    drop(server);
}

/// A pseudo-random sequence with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// The number of kills; `WINDLASS_SERVER_KILLS` overrides it.
fn kills() -> u64 {
    let given = std::env::var("WINDLASS_SERVER_KILLS").ok();
    given.map_or(20, |kills| kills.parse().unwrap())
}

#[test]
fn a_killed_server_loses_no_acknowledged_prompt_and_starts_nothing_twice() {
    let fixture = CliFixture::new();
    let _model = start_model(&fixture, Vec::new());
    let mut random = Random(0x5eed_0001);
    let mut prompts: Vec<(String, String, bool)> = Vec::new();
    for round in 0..kills() {
        let server = TestServer::start(&fixture);
        let until = Duration::from_millis(20 + random.below(400));
        let sent = std::thread::scope(|scope| {
            let server = &server;
            let clients: Vec<_> = (0..3)
                .map(|client| {
                    let first: Vec<_> = prompts.iter().filter(|one| !one.2).cloned().collect();
                    scope.spawn(move || send_prompts(server, round, client, first))
                })
                .collect();
            std::thread::sleep(until);
            let pid = server.pid();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            clients
                .into_iter()
                .flat_map(|client| client.join().unwrap())
                .collect::<Vec<_>>()
        });
        for (key, text, acknowledged) in sent {
            match prompts.iter_mut().find(|one| one.0 == key) {
                Some(known) => known.2 |= acknowledged,
                None => prompts.push((key, text, acknowledged)),
            }
        }
        server.kill();
    }
    let holding = |text: &str| -> Vec<(String, usize)> {
        let found = fixture.sessions().into_iter().filter_map(|path| {
            let id = path.file_name()?.to_str()?.to_owned();
            let log = log_so_far(&fixture, &id);
            let queued = of(&log, "queued").filter(|event| text_of(event) == text);
            Some((id, queued.count())).filter(|(_, queued)| *queued > 0)
        });
        found.collect()
    };
    for (_, text, _) in prompts.iter().filter(|one| one.2) {
        assert_eq!(holding(text).len(), 1, "`{text}` was acknowledged");
    }
    // The last server continues everything that was accepted, and accepts the rest.
    let server = TestServer::start(&fixture);
    for (key, text, _) in &prompts {
        let reply = create_with_key(&server, key, text).unwrap();
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    for (_, text, _) in &prompts {
        let found = holding(text);
        assert_eq!(found.len(), 1, "`{text}` is in {found:?}");
        assert_eq!(found[0].1, 1, "`{text}` was queued twice");
        // A run that a kill interrupted is not started again; the next prompt closes it.
        let route = format!("/v1/sessions/{}", found[0].0);
        wait_for(&format!("the end of `{text}`"), || {
            let state = server.get(&route).json()["state"].as_str()?.to_owned();
            matches!(state.as_str(), "idle" | "interrupted").then_some(())
        });
        let log = log_so_far(&fixture, &found[0].0);
        let started = of(&log, "run_started").filter(|event| text_of(event) == *text);
        assert_eq!(started.count(), 1, "`{text}` was started twice");
    }
    assert!(
        prompts.len() as u64 > kills(),
        "only {} prompts were sent",
        prompts.len()
    );
    eprintln!("{} prompts, {} kills", prompts.len(), kills());
}

fn text_of(event: &Value) -> String {
    let parts = &event["data"]["prompt"]["parts"];
    parts[0]["data"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn create_with_key(
    server: &TestServer,
    key: &str,
    text: &str,
) -> std::io::Result<crate::server_fixture::Response> {
    let body = prompt(text).to_string();
    server.try_request("POST", "/v1/sessions", &[("idempotency-key", key)], &body)
}

/// Repeats the requests that got no reply, and then sends new ones until the server is gone. Returns key, prompt and
/// whether the server acknowledged it.
fn send_prompts(
    server: &TestServer,
    round: u64,
    client: usize,
    first: Vec<(String, String, bool)>,
) -> Vec<(String, String, bool)> {
    let mut sent = Vec::new();
    let new = (0..10_000).map(|number| {
        let name = format!("prompt {round}-{client}-{number}.");
        (format!("key-{name}").replace(' ', "-"), name, false)
    });
    for (key, text, _) in first.into_iter().chain(new) {
        let reply = create_with_key(server, &key, &text);
        let acknowledged = reply.as_ref().is_ok_and(|reply| reply.status == 201);
        if let Ok(reply) = &reply {
            assert!(acknowledged, "{reply:?}");
        }
        sent.push((key, text, acknowledged));
        if reply.is_err() {
            break;
        }
    }
    sent
}

/// The events of a log without what differs between two runs of the same work.
fn comparable(log: &[Value]) -> Vec<Value> {
    let mut events = log.to_vec();
    for event in &mut events {
        let fields = event.as_object_mut().unwrap();
        for name in ["at", "session", "trace"] {
            fields.remove(name);
        }
        // The main token has a name; the user at the other end of a pipe has none.
        fields["data"].as_object_mut().unwrap().remove("by");
        for name in ["totals", "ms", "first_token_ms"] {
            fields["data"].as_object_mut().unwrap().remove(name);
        }
    }
    events
}

#[test]
fn both_transports_give_the_same_replies_and_events() {
    let fixture = CliFixture::new();
    let _model = start_model(&fixture, Vec::new());
    let server = TestServer::start(&fixture);
    let session = server.create(&prompt("go"));
    let log = wait_for_events(&fixture, &session, "run_finished", 1);
    let mut lines = serve_command(&fixture, &["--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = lines.stdin.take().unwrap();
    let mut output = BufReader::new(lines.stdout.take().unwrap());
    let mut call = |method: &str, params: Value| -> Value {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(input, "{line}").unwrap();
        let mut reply = String::new();
        output.read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap()
    };
    let path = |rest: &str| format!("/v1/sessions/{session}{rest}");
    for (method, route, params) in [
        ("sessions.get", path(""), json!({ "session": session })),
        (
            "events.list",
            path("/events"),
            json!({ "session": session }),
        ),
        (
            "events.list",
            path("/events?after=3&limit=2"),
            json!({ "session": session, "after": 3, "limit": 2 }),
        ),
        (
            "conversation.get",
            path("/conversation"),
            json!({ "session": session }),
        ),
        ("queue.get", path("/queue"), json!({ "session": session })),
        ("sessions.list", "/v1/sessions".to_owned(), json!({})),
    ] {
        let reply = server.get(&route);
        assert_eq!(reply.status, 200, "{route}: {reply:?}");
        assert_eq!(call(method, params)["result"], reply.json(), "{method}");
    }
    let listed = server.get(&path("/events")).json();
    assert_eq!(listed["events"], json!(log));
    for (method, route, params) in [
        (
            "sessions.get",
            path("?at=999"),
            json!({ "session": session, "at": 999 }),
        ),
        (
            "events.list",
            path("/events?limit=0"),
            json!({ "session": session, "limit": 0 }),
        ),
    ] {
        let problem = server.get(&route).json();
        assert!(problem["status"].as_u64().unwrap() >= 400, "{problem}");
        assert_eq!(call(method, params)["error"]["data"], problem, "{method}");
    }
    let created = call("sessions.create", prompt("go"));
    let other = created["result"]["id"].as_str().unwrap();
    let other = wait_for_events(&fixture, other, "run_finished", 1);
    assert_eq!(comparable(&other), comparable(&log));
    drop(input);
    lines.wait().unwrap();
}

#[test]
fn bad_input_is_answered_with_a_problem_and_starts_nothing() {
    let fixture = CliFixture::new();
    let _model = start_model(&fixture, Vec::new());
    let server = TestServer::start(&fixture);
    let session = server.create(&json!({}));
    let body = json!({ "name": "reader", "scopes": ["read"] });
    let reader = server.post("/v1/tokens", &body).json()["secret"].clone();
    let reader = format!("Bearer {}", reader.as_str().unwrap());
    let before = fixture.sessions().len();
    let check = |method: &str, path: &str, headers: &[(&str, &str)], body: &str, expect: &[u16]| {
        let reply = server.try_request(method, path, headers, body).unwrap();
        let problem = reply.json();
        assert!(
            expect.contains(&reply.status),
            "{method} {path} {body}: {reply:?}"
        );
        assert_eq!(
            problem["status"], reply.status,
            "{method} {path} {body}: {reply:?}"
        );
        assert!(
            problem["detail"].is_string() && problem["type"].is_string(),
            "{problem}"
        );
    };
    let at = |rest: &str| format!("/v1/sessions/{session}{rest}");
    let post = |path: &str, body: &str, expect: &[u16]| check("POST", path, &[], body, expect);
    let get = |path: &str, expect: &[u16]| check("GET", path, &[], "", expect);
    post("/v1/sessions", r#"{"wish":"x"}"#, &[400]);
    post("/v1/sessions", r#"{"prompt":7}"#, &[400]);
    post(
        "/v1/sessions",
        r#"{"prompt":"x","options":{"consent":"ask"}}"#,
        &[400],
    );
    post(
        "/v1/sessions",
        r#"{"prompt":"x","workspace":"/"}"#,
        &[403, 422],
    );
    post(
        "/v1/sessions",
        r#"{"prompt":"x","workspace":"work"}"#,
        &[400],
    );
    post("/v1/sessions", r#"["prompt"]"#, &[400]);
    post("/v1/sessions", r#"{"prompt":"x""#, &[400]);
    post(&at("/runs"), r#"{"prompt":" "}"#, &[400]);
    post(&at("/runs?prompt=x"), r#"{"prompt":"x"}"#, &[400]);
    post(&at("/asks/a1-00000000"), r#"{"answer":"once"}"#, &[404]);
    post(&at("/asks/a1-00000000"), r#"{"answer":"maybe"}"#, &[400]);
    post(
        "/v1/sessions/no-such-session/runs",
        r#"{"prompt":"x"}"#,
        &[404],
    );
    post(
        "/v1/sessions/..%2f..%2fx/runs",
        r#"{"prompt":"x"}"#,
        &[400, 404],
    );
    post("/v1/sessions", r#"{"prompt":" "}"#, &[400]);
    post(
        "/v1/sessions",
        r#"{"images":[{"media_type":"image/png","data":"?"}]}"#,
        &[400],
    );
    post(&at("/findings"), r#"{"comments":[]}"#, &[400]);
    post(
        &at("/findings"),
        r#"{"comments":[{"path":"a","line":0,"text":"x"}]}"#,
        &[400],
    );
    // An array with the values of the fields is not an object.
    post("/v1/sessions", r#"{"options":[null]}"#, &[400]);
    post(
        &at("/runs"),
        r#"{"prompt":"x","images":[["image/png","aGVsbG8="]]}"#,
        &[400],
    );
    post(
        "/v1/tokens",
        r#"{"name":"t","scopes":["read"],"ceiling":[null]}"#,
        &[400],
    );
    post(
        "/v1/tokens",
        r#"{"name":"t","scopes":["read"],"ceiling":{"sandbox":"read_only"}}"#,
        &[400],
    );
    post(
        &at("/runs"),
        r#"{"prompt":"x","options":{"sandbox":"readonly"}}"#,
        &[400],
    );
    post(&at("/fork"), r#"{"at":99999}"#, &[404]);
    check("PUT", &at("/queue"), &[], r#"{"order":[7]}"#, &[409]);
    post(
        "/v1/tokens",
        r#"{"name":"t","scopes":["read"],"workspaces":["work"]}"#,
        &[400],
    );
    post(
        "/v1/tokens",
        r#"{"name":"t","scopes":["read"],"ceiling":{"max_budget_usd":-1}}"#,
        &[400],
    );
    post(
        "/v1/policy/explain",
        r#"{"tool":"bash","arguments":7}"#,
        &[400],
    );
    get("/v1/sessions?cursor=!", &[422]);
    get("/v1/sessions?cursor=Zm9v", &[422]);
    get("/v1/sessions?limit=-1", &[400]);
    get("/v1/sessions?unknown=1", &[400]);
    get("/v1/sessions/%00", &[400, 404]);
    get(&at("/file?path=../../x&at=1"), &[400, 404]);
    get(&at("/events?after=x"), &[400]);
    check(
        "GET",
        &at("/events"),
        &[("accept", "text/event-stream"), ("last-event-id", "x")],
        "",
        &[400],
    );
    check("PUT", "/v1/sessions", &[], "{}", &[405]);
    let runs = r#"{"prompt":"x"}"#;
    check(
        "POST",
        &at("/runs"),
        &[("authorization", &reader)],
        runs,
        &[403],
    );
    check("DELETE", &at(""), &[("authorization", &reader)], "", &[403]);
    check(
        "GET",
        "/v1/tokens",
        &[("authorization", &reader)],
        "",
        &[403],
    );
    check(
        "POST",
        &at("/runs"),
        &[("idempotency-key", &"k".repeat(300))],
        runs,
        &[400],
    );
    check(
        "POST",
        &at("/runs"),
        &[("content-type", "text/plain")],
        runs,
        &[415],
    );
    // A client that announces more than it sends.
    let cut = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{runs}",
        at("/runs"),
        server.address,
        server.token
    );
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(cut.as_bytes()).unwrap();
    drop(stream);
    assert_eq!(fixture.sessions().len(), before, "no session was created");
    assert_eq!(
        of(&log_so_far(&fixture, &session), "queued").count(),
        0,
        "no prompt was queued"
    );
    // Two prompts at once run one after the other.
    std::thread::scope(|scope| {
        for text in ["one", "two"] {
            let (server, path) = (&server, at("/runs"));
            scope.spawn(move || assert_eq!(server.post(&path, &prompt(text)).status, 202));
        }
    });
    let log = wait_for_events(&fixture, &session, "run_finished", 2);
    let order: Vec<&str> = log
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .filter(|kind| matches!(*kind, "run_started" | "run_finished"))
        .collect();
    assert_eq!(
        order,
        ["run_started", "run_finished", "run_started", "run_finished"]
    );
}
