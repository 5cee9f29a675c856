//! Sends requests to the HTTP server of the product: forged, oversized, slow, smuggled and concurrent ones. A model server
//! on loopback answers the runs that they start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_scripted::{Move, Script, Server};

use crate::case::Decision;
use crate::child::ChildWatch;
use crate::facts::{CaseFacts, HttpRound};
use crate::http_client::{HttpReply, exchange, request_head};
use crate::product;
use crate::product::http::{self as routes, RequestTarget};
use crate::server::{Act, packed_zeros};
use crate::web_server::WebServer;

/// Time for a response. Slow requests are sent for longer than a server should wait.
const REPLY_TIMEOUT: Duration = Duration::from_secs(75);
/// Time for the responses to a request whose end is unclear.
const RAW_TIMEOUT: Duration = Duration::from_secs(3);
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(10);
/// The length that a slow request announces, in bytes.
const SLOW_LENGTH: usize = 4096;
const FIRST_FILE: &str = "first.txt";
const PIECE: usize = 64 << 10;
/// Races are repeated, because the order of two requests differs.
const RACES: usize = 2;

pub(super) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let (case, fixture) = (facts.case, facts.fixture);
    let endpoint = case.input["endpoint"].as_str().unwrap_or_default();
    let model = start_model(facts)?;
    let settings = routes::model_settings(&model.url);
    facts.product.settings(fixture, case, &settings, &[])?;
    let mut roots: Vec<PathBuf> = crate::words(&case.rules["server_roots"])
        .map(|root| fixture.path(root))
        .collect();
    if roots.is_empty() {
        roots.push(fixture.workspace());
    }
    let other = fixture.base.join("other-workspace");
    if case.input["target"] == "session_b" {
        std::fs::create_dir_all(&other)
            .map_err(|err| format!("{} cannot be made: {err}", other.display()))?;
        roots.push(other.clone());
    }
    let server = WebServer::start(facts.product, fixture, &case.mode, &roots)?;
    let requests = CaseRequests {
        facts,
        server: &server,
        input: &case.input,
        endpoint,
    };
    let survives = case.wants("session_survives").is_some();
    let session = match survives || !matches!(endpoint, "create_session" | "list_sessions") {
        true => requests.new_session(None)?,
        false => String::new(),
    };
    let began = Instant::now();
    let rounds = match endpoint {
        "listen_check" => Vec::new(),
        "approve" => requests.approvals()?,
        _ if case.input["target"] == "session_b" => vec![requests.foreign_session(&other)?],
        _ if case.input["note_only"] == true => vec![requests.similar_tokens()?],
        _ => vec![requests.plain(&session)?],
    };
    let took = began.elapsed();
    let survived = survives.then(|| requests.check_session(&session));
    facts.listening = server.listening();
    let mut ran = server.stop();
    ran.took = took;
    let stopped = ran.code == 0;
    facts.reached = reached(&rounds);
    for reply in rounds.iter().flat_map(|round| &round.replies) {
        facts.said.push(reply.body.clone());
        let headers = reply.headers.iter().map(|(_, value)| value.clone());
        facts.said.extend(headers);
    }
    facts.rounds = rounds;
    facts.survived = survived;
    facts.set_checked_run(ran);
    crate::holds(stopped, || "the server did not stop in order".to_owned())
}

/// Starts the server on an address that other machines could reach.
pub(super) fn bind(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let bind = facts.case.input["bind"].as_str().unwrap_or_default();
    let bind: SocketAddr = bind
        .parse()
        .map_err(|_| format!("`{bind}` is not an address"))?;
    crate::holds(facts.case.input["token"].is_null(), || {
        "the product generates its tokens itself".to_owned()
    })?;
    let watch = ChildWatch {
        deadline: Duration::from_secs(20),
        ..ChildWatch::default()
    };
    let args = routes::bind_args(&bind);
    let mode = &facts.case.mode;
    let ran = facts.product.run(facts.fixture, mode, &args, &watch)?;
    facts.reached = vec![if ran.code == 0 || ran.overdue {
        Decision::Allow
    } else {
        Decision::Deny
    }];
    facts.set_checked_run(ran);
    Ok(())
}

/// Without a request, nothing was refused. A case is allowed as soon as one request was.
fn reached(rounds: &[HttpRound]) -> Vec<Decision> {
    let mut replies = rounds.iter().flat_map(|round| &round.replies);
    vec![if rounds.is_empty() || replies.any(HttpReply::is_success) {
        Decision::Allow
    } else {
        Decision::Deny
    }]
}

/// Starts the model. In cases about answers it makes calls that need one.
fn start_model(facts: &CaseFacts<'_>) -> Result<Server, String> {
    let write = |path: &str| Move::Write {
        path: path.to_owned(),
        text: "written\n".to_owned(),
    };
    let input = &facts.case.input;
    let mut moves = Vec::new();
    if input["endpoint"] == "approve" {
        moves.push(write(FIRST_FILE));
        if input.get("race").is_none() && input.get("repeat").is_none() {
            moves.push(write("second.txt"));
        }
    }
    let script = Script::new(&facts.fixture.workspace(), moves);
    Server::start(script).map_err(|err| format!("the model server cannot listen: {err}"))
}

/// Sends the requests of a case.
struct CaseRequests<'a> {
    facts: &'a CaseFacts<'a>,
    server: &'a WebServer,
    input: &'a Value,
    endpoint: &'a str,
}

impl CaseRequests<'_> {
    /// Sends the request of the case, in every form that it has.
    fn plain(&self, session: &str) -> Result<HttpRound, String> {
        let mut replies = Vec::new();
        if let Some(times) = self.input["repeat"].as_u64() {
            let body = self.fill(&self.input["body"]);
            let path = routes::path(self.endpoint, &RequestTarget::default())?;
            for _ in 0..times {
                replies.push(self.server.request(
                    &self.server.token,
                    "POST",
                    &path,
                    Some(&body),
                )?);
            }
            return Ok(HttpRound {
                replies,
                ..HttpRound::default()
            });
        }
        for target in self.targets(session) {
            let path = routes::path(self.endpoint, &target)?;
            for pieces in self.bodies(&path)? {
                let raw = self.input.get("raw_request").is_some();
                let deadline = if raw { RAW_TIMEOUT } else { REPLY_TIMEOUT };
                let sent = exchange(self.server.address, &pieces, deadline)?;
                // A connection that is closed without a response refused the request, too.
                let closed = sent.is_empty().then(HttpReply::default);
                replies.extend(sent.into_iter().chain(closed));
            }
        }
        Ok(HttpRound {
            replies,
            ..HttpRound::default()
        })
    }

    /// Returns the sessions of the requests. A path in an id is sent as it is and encoded.
    fn targets(&self, session: &str) -> Vec<RequestTarget> {
        let target = |session: String| RequestTarget {
            session,
            ask: String::new(),
        };
        match self.input["target"].as_str() {
            Some(id) => vec![
                target(id.to_owned()),
                target(id.replace('/', "%2f")),
                target(id.replace('/', "%2f").replace("..", "%2e%2e")),
            ],
            None => vec![target(session.to_owned())],
        }
    }

    fn fill_text(&self, text: &str) -> String {
        self.facts
            .fixture
            .filled(&text.replace("@TOKEN@", &self.server.token))
    }

    fn fill(&self, value: &Value) -> Value {
        self.facts.fixture.filled_value(value)
    }

    /// Returns the bytes of the requests of the case.
    fn bodies(&self, path: &str) -> Result<Vec<Vec<Act>>, String> {
        let input = self.input;
        if let Some(raw) = input["raw_request"].as_str() {
            let raw = raw.replacen(
                "\r\n",
                &format!("\r\nAuthorization: Bearer {}\r\n", self.server.token),
                1,
            );
            return Ok(vec![vec![Act::Say(raw.into_bytes())]]);
        }
        let whole = |body: Vec<u8>| -> Vec<Act> {
            let length = body.len();
            let mut head = self.head(path, Some(length));
            head.extend(body);
            vec![Act::Say(head)]
        };
        if let Some(raw) = input["raw_body"].as_str() {
            return Ok(vec![whole(self.fill_text(raw).into_bytes())]);
        }
        if let Some(depth) = input["raw_body_nested_arrays"].as_u64() {
            let depth = usize::try_from(depth).map_err(|err| err.to_string())?;
            let arrays = "[".repeat(depth) + &"]".repeat(depth);
            let inside = format!("{{\"prompt\":{arrays}}}");
            return Ok(vec![whole(arrays.into_bytes()), whole(inside.into_bytes())]);
        }
        if let Some(length) = input["body_bytes"].as_u64() {
            let length = usize::try_from(length).map_err(|err| err.to_string())?;
            let times = length / PIECE;
            let announced = Act::Say(self.head(path, Some(times * PIECE)));
            let body = Act::Repeat(vec![b'x'; PIECE], times);
            // Also in chunks, so that the server does not know the length.
            let mut chunk = format!("{PIECE:x}\r\n").into_bytes();
            chunk.extend([b'x'; PIECE]);
            chunk.extend(b"\r\n");
            let chunked = vec![
                Act::Say(self.head(path, None)),
                Act::Repeat(chunk, times),
                crate::server::end(),
            ];
            return Ok(vec![vec![announced, body], chunked]);
        }
        if let Some(rate) = input["drip_bytes_per_s"].as_u64() {
            let pause = Duration::from_secs(1)
                .checked_div(u32::try_from(rate).unwrap_or(1))
                .unwrap_or(TICK);
            let mut pieces = vec![Act::Say(self.head(path, Some(SLOW_LENGTH)))];
            for _ in 0..SLOW_LENGTH {
                pieces.extend([Act::Say(b"x".to_vec()), Act::Pause(pause)]);
            }
            return Ok(vec![pieces]);
        }
        if let Some(zeros) = input["body_gzip_zeros"].as_u64() {
            let zeros = usize::try_from(zeros).map_err(|err| err.to_string())?;
            let mut pieces = vec![Act::Say(self.head(path, None))];
            pieces.extend(packed_zeros(zeros));
            pieces.push(crate::server::end());
            return Ok(vec![pieces]);
        }
        Ok(vec![match &input["body"] {
            Value::Null if input["method"] == "POST" => whole(Vec::new()),
            Value::Null => vec![Act::Say(self.head(path, None))],
            body => whole(self.fill(body).to_string().into_bytes()),
        }])
    }

    /// Returns the head of a request with the headers of the case. Without a length, a body is sent in chunks.
    fn head(&self, path: &str, length: Option<usize>) -> Vec<u8> {
        let method = self.input["method"].as_str().unwrap_or("GET");
        let mut headers: Vec<(String, String)> = vec![
            ("host".to_owned(), self.server.address.to_string()),
            ("connection".to_owned(), "close".to_owned()),
        ];
        if self.input["auth"] == "valid" {
            headers.push((
                "authorization".to_owned(),
                format!("Bearer {}", self.server.token),
            ));
        }
        match length {
            Some(length) => headers.push(("content-length".to_owned(), length.to_string())),
            None if method == "POST" => {
                headers.push(("transfer-encoding".to_owned(), "chunked".to_owned()));
            }
            None => {}
        }
        if method == "POST" {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        let own = routes::headers(self.endpoint).iter();
        headers.extend(own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        for (name, value) in self.input["headers"].as_object().into_iter().flatten() {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            let value = value.as_str().unwrap_or_default();
            headers.push((name.clone(), self.fill_text(value)));
        }
        let flood = self.input["headers_count"].as_u64().unwrap_or(0);
        headers.extend((0..flood).map(|number| (format!("x-flood-{number}"), "x".to_owned())));
        let query: Vec<String> = self.input["query"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                format!(
                    "{name}={}",
                    self.fill_text(value.as_str().unwrap_or_default())
                )
            })
            .collect();
        let mark = if query.is_empty() { "" } else { "?" };
        request_head(method, &format!("{path}{mark}{}", query.join("&")), headers)
    }

    /// Creates a session in the workspace of the case, and starts a run if there is a prompt.
    fn new_session(&self, prompt: Option<&str>) -> Result<String, String> {
        self.new_session_in(&self.facts.fixture.workspace(), prompt)
    }

    fn new_session_in(
        &self,
        workspace: &std::path::Path,
        prompt: Option<&str>,
    ) -> Result<String, String> {
        let path = routes::path("create_session", &RequestTarget::default())?;
        let body = routes::new_session(workspace, prompt);
        let reply = self.server.call("POST", &path, Some(&body))?;
        let id = reply["id"].as_str().ok_or("the new session has no id")?;
        Ok(id.to_owned())
    }

    /// Reads a session of another workspace with a token for the own one.
    fn foreign_session(&self, other: &std::path::Path) -> Result<HttpRound, String> {
        let own = self.facts.fixture.workspace();
        let (path, body) = routes::new_token("session-a", &own);
        let added = self.server.call("POST", path, Some(&body))?;
        let token = added["secret"].as_str().ok_or("the token has no secret")?;
        let (own, other) = (
            self.new_session_in(&own, None)?,
            self.new_session_in(other, None)?,
        );
        let read = |session: String| {
            let target = RequestTarget {
                session,
                ..RequestTarget::default()
            };
            let path = routes::path(self.endpoint, &target)?;
            self.server.request(token, "GET", &path, None)
        };
        let mine = read(own)?;
        crate::holds(mine.is_success(), || {
            format!("the token cannot read its own session: {}", mine.body)
        })?;
        Ok(HttpRound {
            replies: vec![read(other)?],
            ..HttpRound::default()
        })
    }

    /// Sends tokens that differ from the right one in one place or in their length. The time of the comparison cannot be
    /// measured from outside; a test of the product checks how its source compares.
    fn similar_tokens(&self) -> Result<HttpRound, String> {
        let path = routes::path(self.endpoint, &RequestTarget::default())?;
        let token = &self.server.token;
        let mut tokens: Vec<String> = (1..token.len())
            .map(|end| token[..end].to_owned())
            .collect();
        tokens.extend((0..token.len()).map(|at| {
            let other = if token[at..].starts_with('A') {
                "B"
            } else {
                "A"
            };
            format!("{}{other}{}", &token[..at], &token[at + 1..])
        }));
        tokens.push(format!("{token}A"));
        let mut replies = Vec::new();
        for token in tokens {
            replies.push(self.server.request(&token, "GET", &path, None)?);
        }
        Ok(HttpRound {
            replies,
            ..HttpRound::default()
        })
    }

    /// Answers asks: unknown ones, answered ones, and one ask several times at once.
    fn approvals(&self) -> Result<Vec<HttpRound>, String> {
        match self.input["target"].as_str() {
            Some("call_B_with_token_of_A") => Ok(vec![self.replayed_answer()?]),
            Some(ask) => {
                let (session, _) = self.open_ask()?;
                let replies = vec![self.answer(&session, ask, "allow")?];
                Ok(vec![HttpRound {
                    replies,
                    ..HttpRound::default()
                }])
            }
            None => {
                let mut rounds = Vec::new();
                for paused in [false, true].repeat(RACES) {
                    rounds.push(self.race(paused)?);
                }
                Ok(rounds)
            }
        }
    }

    /// Starts a run and waits until it asks.
    fn open_ask(&self) -> Result<(String, String), String> {
        let session = self.new_session(Some("go"))?;
        let ask = self.wait_for_ask(&session, 1)?;
        Ok((session, ask))
    }

    /// Waits for this many asks of a session, and returns the id of the last one.
    fn wait_for_ask(&self, session: &str, count: usize) -> Result<String, String> {
        let began = Instant::now();
        while began.elapsed() < EVENT_TIMEOUT {
            let events = product::session_log(self.facts.fixture, session);
            if let Some(event) = product::of(&events, "asked").nth(count - 1) {
                let id = event["data"]["ask"]["id"].as_str();
                return Ok(id.ok_or("an ask has no id")?.to_owned());
            }
            std::thread::sleep(TICK);
        }
        Err("the run did not ask".to_owned())
    }

    fn answer(&self, session: &str, ask: &str, decision: &str) -> Result<HttpReply, String> {
        let target = RequestTarget {
            session: session.to_owned(),
            ask: ask.to_owned(),
        };
        let path = routes::path(self.endpoint, &target)?;
        let body = routes::answer(decision)?;
        self.server
            .request(&self.server.token, "POST", &path, Some(&body))
    }

    /// Answers one ask several times at the same time, while its run waits or after it has paused.
    fn race(&self, paused: bool) -> Result<HttpRound, String> {
        let (session, ask) = self.open_ask()?;
        if paused {
            self.server.wait_until_idle()?;
        }
        let decisions: Vec<String> = match self.input["race"].as_array() {
            Some(bodies) => bodies
                .iter()
                .filter_map(|body| body["decision"].as_str().map(str::to_owned))
                .collect(),
            None => {
                let times = self.input["repeat"].as_u64().unwrap_or(2);
                let decision = self.input["body"]["decision"].as_str().unwrap_or_default();
                (0..times).map(|_| decision.to_owned()).collect()
            }
        };
        let together = Barrier::new(decisions.len());
        let replies = std::thread::scope(|scope| {
            let (together, session, ask) = (&together, &session, &ask);
            let threads: Vec<_> = decisions
                .iter()
                .map(|decision| {
                    scope.spawn(move || {
                        together.wait();
                        self.answer(session, ask, decision)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a request panicked".to_owned())?)
                .collect::<Result<Vec<_>, String>>()
        })?;
        let events = self.wait_for_end(&session)?;
        // The next run creates the file again.
        let _ = std::fs::remove_file(self.facts.fixture.workspace().join(FIRST_FILE));
        Ok(HttpRound {
            replies,
            decisions,
            events,
        })
    }

    /// Sends an answer again for the next ask of the same run, and for an ask of another session.
    fn replayed_answer(&self) -> Result<HttpRound, String> {
        let (session, first) = self.open_ask()?;
        let allowed = self.answer(&session, &first, "allow")?;
        crate::holds(allowed.is_success(), || {
            format!("the first answer was refused: {}", allowed.body)
        })?;
        let second = self.wait_for_ask(&session, 2)?;
        let (other, _) = self.open_ask()?;
        let replies = vec![
            self.answer(&session, &first, "allow")?,
            self.answer(&other, &first, "allow")?,
            self.answer(&other, &second, "allow")?,
        ];
        self.server.wait_until_idle()?;
        let events = product::session_log(self.facts.fixture, &session);
        let later = events
            .into_iter()
            .skip_while(|event| event["data"]["ask"]["id"] != second.as_str());
        let events = later
            .chain(product::session_log(self.facts.fixture, &other))
            .collect();
        Ok(HttpRound {
            replies,
            events,
            ..HttpRound::default()
        })
    }

    /// Waits until the run of a session has finished, and returns all events.
    fn wait_for_end(&self, session: &str) -> Result<Vec<Value>, String> {
        let began = Instant::now();
        while began.elapsed() < EVENT_TIMEOUT {
            let events = product::session_log(self.facts.fixture, session);
            if product::of(&events, "run_finished").next().is_some() {
                return Ok(events);
            }
            std::thread::sleep(TICK);
        }
        Err("the run did not finish".to_owned())
    }

    /// Checks that the session still takes a prompt over HTTP, and that its run finishes.
    fn check_session(&self, session: &str) -> Result<(), String> {
        let target = RequestTarget {
            session: session.to_owned(),
            ..RequestTarget::default()
        };
        let path = routes::path("send_message", &target)?;
        let body = serde_json::json!({ "prompt": "go", "options": { "in_place": true } });
        self.server.call("POST", &path, Some(&body))?;
        let events = self.wait_for_end(session)?;
        let end = product::of(&events, "run_finished").last();
        let outcome = end.map(|event| &event["data"]["outcome"]["is"]);
        crate::holds(outcome.is_some_and(|is| is == "completed"), || {
            format!("afterwards, a run over HTTP ended with {outcome:?}")
        })
    }
}
