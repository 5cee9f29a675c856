//! One case of the corpus: what the server does, and whether what must be true afterwards is true.

use std::collections::HashSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::server::{Act, Server, end, head, packed, packed_zeros, piece};
use crate::place::Place;

const KEY: &str = "sk-corpus-0123456789abcdef";
/// The words every good answer ends a run with.
pub(crate) const WORDS: &str = "I will do it.";
/// Nothing here takes longer.
const LONGEST: Duration = Duration::from_secs(90);

/// What a run of the binary came to.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
    /// From the interrupt to the end, when there was one.
    stopped_in: Option<Duration>,
    peak: u64,
}

/// Runs a case and says what does not hold.
pub(crate) fn failures(case: &Value) -> Vec<String> {
    let place = Place::new();
    fixture(&place);
    let case = &filled(case, &place);
    let input = &case["input"];
    let chat = input["format"] == "openai-chat-sse";
    let healthy = Arc::new(AtomicBool::new(false));
    let server = start(input.clone(), chat, healthy.clone());
    let folder = place.home().join(".config/windlass");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "idle_timeout_s = 1.5\n").unwrap();

    let posts = case["post"].as_array().unwrap();
    let interrupts = posts.iter().any(|post| post["check"] == "cancel_works_within_ms");
    let mode = case["mode"].as_str().unwrap();
    let mut args = vec!["--approval", mode];
    args.extend(input["args"].as_array().into_iter().flatten().filter_map(Value::as_str));
    if posts.iter().any(|post| post["check"] == "no_duplicate_text") {
        args.extend(["-o", "stream-json"]);
    }
    let ran = run(&place, &server, chat, &args, interrupts.then_some(&server));
    let asked = server.count();
    let mut wrong = Vec::new();
    let facts = Facts { ran: &ran, log: place.log(), server: &server, asked };
    for post in posts {
        if let Err(why) = facts.check(post, mode) {
            wrong.push(format!("{}: {why}", post["check"].as_str().unwrap()));
        }
    }
    healthy.store(true, Ordering::SeqCst);
    let again = run(&place, &server, chat, &["--approval", mode, "-c"], None);
    if again.code != 0 || !again.out.contains(WORDS) {
        wrong.push(format!("session_survives: {} {} {}", again.code, again.out, again.err));
    }
    if !paired(&server.seen.lock().unwrap().last().unwrap().body()) {
        wrong.push("every request: a call without its result, or a result without its call".to_owned());
    }
    let log: String = place.log().iter().map(Value::to_string).collect();
    if [&log, &ran.out, &ran.err, &again.out, &again.err].iter().any(|text| text.contains(KEY)) {
        wrong.push("every case: the key is in the log or the output".to_owned());
    }
    if !wrong.is_empty() {
        wrong.push(format!("(exit {}, {} requests, {:?}) {}", ran.code, asked, ran.took, ran.err.trim()));
    }
    wrong
}

fn fixture(place: &Place) {
    place.write("README.md", "hello world");
    place.write("src/main.rs", "fn main() {}\n");
    let out = place.home().with_file_name("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("victim.txt"), "original").unwrap();
}

/// The case with real paths in the places of their names.
fn filled(case: &Value, place: &Place) -> Value {
    let text = case.to_string();
    let text = text.replace("@WS@", &place.work().display().to_string());
    serde_json::from_str(&text.replace("@OUT@", &place.home().with_file_name("out").display().to_string())).unwrap()
}

/// The names the corpus uses, as our tools are called.
fn named(text: &str) -> String {
    ["read", "write", "edit"].iter().fold(text.to_owned(), |text, name| {
        text.replace(&format!(r#""name":"{name}""#), &format!(r#""name":"{name}_file""#))
    })
}

fn start(input: Value, chat: bool, healthy: Arc<AtomicBool>) -> Server {
    let lasting = input["lasting"] == true;
    Server::start(move |number, request| {
        let well = healthy.load(Ordering::SeqCst);
        match (number, input.get("then")) {
            _ if well => good(chat),
            (_, _) if lasting => acts(&input, request),
            (0, _) => acts(&input, request),
            (1, Some(then)) => stream(200, &[], &bytes_of(then), 0),
            _ => good(chat),
        }
    })
}

fn good(chat: bool) -> Vec<Act> {
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
    stream(200, &[], text.as_bytes(), 0)
}

fn stream(status: u64, headers: &[(String, String)], body: &[u8], split: usize) -> Vec<Act> {
    let mut acts = vec![head(status, headers)];
    acts.extend(body.chunks(if split == 0 { body.len().max(1) } else { split }).map(|bytes| Act::Say(piece(bytes))));
    acts.push(end());
    acts
}

fn bytes_of(chunks: &Value) -> Vec<u8> {
    let mut all = Vec::new();
    for chunk in chunks.as_array().into_iter().flatten() {
        match chunk {
            Value::String(text) => all.extend_from_slice(named(text).as_bytes()),
            coded => match String::from_utf8(from_base64(coded["b64"].as_str().unwrap())) {
                Ok(text) => all.extend_from_slice(named(&text).as_bytes()),
                Err(raw) => all.extend_from_slice(raw.as_bytes()),
            },
        }
    }
    all
}

/// What the server does for a case, in order.
fn acts(input: &Value, request: &str) -> Vec<Act> {
    if let Some(wire) = input.get("wire") {
        // Raw bytes in the place of an answer; `@HOST@` is this server.
        let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let mut acts = vec![Act::Say(wire.as_str().unwrap().replace("@HOST@", host).into_bytes())];
        let times = input["headers_times"].as_u64().unwrap_or(0);
        if times > 0 {
            acts.push(Act::Repeat(b"x-filler: 0123456789abcdef\r\n".to_vec(), times as usize));
            acts.push(Act::Say(b"\r\n".to_vec()));
        }
        acts.push(match input["end"].as_str() {
            Some("reset") => Act::Reset,
            Some("hang") => Act::Hang,
            _ => Act::Close,
        });
        return acts;
    }
    let status = input["status"].as_u64().unwrap_or(200);
    let headers: Vec<(String, String)> = input["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    let mut body = bytes_of(&input["chunks"]);
    if input["gzip"] == true {
        body = packed(&body);
    }
    if let Some(most) = input["max_bytes"].as_u64() {
        body.truncate(most as usize);
    }
    let inside = input["split_at_utf8"] == true;
    let split = if inside { 1 } else { input["split"].as_u64().unwrap_or(0) as usize };
    let mut acts = vec![head(status, &headers)];
    for bytes in body.chunks(if split == 0 { body.len().max(1) } else { split }) {
        acts.push(Act::Say(piece(bytes)));
        if let Some(ms) = input["delay_ms"].as_u64() {
            acts.push(Act::Pause(Duration::from_millis(ms)));
        }
    }
    if let Some(bytes) = input["then_bytes"].as_u64() {
        acts.push(Act::Say(piece(b"data: ")));
        acts.push(Act::Repeat(piece(&[b'x'; 1 << 16]), bytes as usize >> 16));
    }
    if let Some(repeat) = input.get("repeat") {
        let times = repeat["times"].as_u64().unwrap() as usize;
        let event = repeat["event"].as_str().unwrap();
        acts.push(Act::Repeat(piece(event.repeat(1000).as_bytes()), times / 1000));
    }
    if let Some(bytes) = input["gzip_zeros"].as_u64() {
        acts.extend(packed_zeros(bytes as usize));
    }
    if let Some(call) = input.get("repeat_tool_call") {
        acts.push(Act::Say(piece(many_calls(call).as_bytes())));
    }
    if let Some(tail) = input["tail"].as_str() {
        acts.push(Act::Say(piece(tail.as_bytes())));
    }
    match input["end"].as_str() {
        Some("reset") => acts.push(Act::Reset),
        Some("hang") => acts.push(Act::Hang),
        _ => acts.push(end()),
    }
    acts
}

fn many_calls(call: &Value) -> String {
    let mut all = String::new();
    for index in 0..call["times"].as_u64().unwrap() {
        let block = json!({ "type": "tool_use", "id": format!("t{index}"), "name": call["name"], "input": {} });
        let delta = json!({ "type": "input_json_delta", "partial_json": call["args"].to_string() });
        for event in [
            json!({ "type": "content_block_start", "index": index, "content_block": block }),
            json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            json!({ "type": "content_block_stop", "index": index }),
        ] {
            all.push_str(&format!("data: {event}\n\n"));
        }
    }
    named(&all)
}

/// Starts the binary, watches how large it gets, and interrupts it when asked to.
fn run(place: &Place, server: &Server, chat: bool, more: &[&str], interrupt: Option<&Server>) -> Ran {
    let model = if chat { "openai-compatible/some-model" } else { "anthropic/some-model" };
    let mut args = vec!["run", "--in-place", "-m", model, "--base-url", &server.url];
    args.extend_from_slice(more);
    args.push("go");
    let mut command: Command = place.command(&args);
    command.env("ANTHROPIC_API_KEY", KEY);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().unwrap();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (out, err) = (std::thread::spawn(|| all_of(out)), std::thread::spawn(|| all_of(err)));
    let (mut peak, mut told) = (0, None);
    let status = loop {
        peak = peak.max(resident(child.id()));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // Some bytes are there, and the next will take long.
        if interrupt.is_some_and(|server| server.count() > 0) && told.is_none() && started.elapsed().as_millis() > 600 {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            told = Some(Instant::now());
        }
        if started.elapsed() > LONGEST {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ran {
        code: status.code().unwrap_or(-1),
        out: out.join().unwrap(),
        err: err.join().unwrap(),
        took: started.elapsed(),
        stopped_in: told.map(|told| told.elapsed()),
        peak,
    }
}

fn all_of(mut pipe: impl Read) -> String {
    let mut all = Vec::new();
    pipe.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

/// The most memory a process has had, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Every call of a request has its result and the other way round; no id stands twice.
fn paired(body: &Value) -> bool {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for message in body["messages"].as_array().into_iter().flatten() {
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("tool_use") => calls.push(block["id"].to_string()),
                Some("tool_result") => results.push(block["tool_use_id"].to_string()),
                _ => {}
            }
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            calls.push(call["id"].to_string());
        }
        if message["role"] == "tool" {
            results.push(message["tool_call_id"].to_string());
        }
    }
    let unique: HashSet<&String> = calls.iter().collect();
    unique.len() == calls.len() && calls == results && calls.iter().all(|id| id != "null" && id != "\"\"")
}

/// What can be known after a run.
struct Facts<'a> {
    ran: &'a Ran,
    log: Vec<Value>,
    server: &'a Server,
    asked: usize,
}

impl Facts<'_> {
    fn of<'l>(&'l self, kind: &'l str) -> impl Iterator<Item = &'l Value> {
        self.log.iter().filter(move |event| event["kind"] == kind)
    }

    fn outcomes(&self) -> HashSet<&'static str> {
        let mut all = HashSet::new();
        all.insert(if self.ran.code == 0 { "ok" } else { "error" });
        let failed = self.of("call_finished").any(|event| !event["result"]["error"].is_null());
        if failed {
            all.insert("tool_error");
        }
        // Asked again after a fault, or after an answer that was cut off.
        if self.asked > 1 && self.of("call_started").next().is_none() && !failed {
            all.insert("retried");
        }
        all
    }

    fn check(&self, post: &Value, mode: &str) -> Result<(), String> {
        let ms = Duration::from_millis(post["ms"].as_u64().unwrap_or(0));
        let at_most = |what: Duration| holds(what <= ms, || format!("{what:?}"));
        let started = || self.of("call_started").map(|event| &event["call"]);
        match post["check"].as_str().unwrap() {
            "tool_calls_equal" => {
                let calls: Vec<Value> =
                    started().map(|call| json!({ "name": call["name"], "args": call["args"] })).collect();
                let wanted = named(&post["calls"].to_string());
                holds(json!(calls).to_string() == wanted, || format!("{} instead of {wanted}", json!(calls)))
            }
            "executed_exactly" => {
                holds(started().count() as u64 == post["times"].as_u64().unwrap(), || started().count().to_string())
            }
            "executed_at_most" => {
                holds(started().count() as u64 <= post["times"].as_u64().unwrap(), || started().count().to_string())
            }
            // Counts that cannot be are not believed: our own stand in their place.
            "spending_is_sane" => {
                let spent = self.of("spent").next().cloned().unwrap_or_default();
                let tokens = spent["total"]["usage"]["output"].as_u64().unwrap_or(u64::MAX);
                holds(tokens < 100_000 && !spent["call"].is_null(), || spent.to_string())
            }
            "not_executed" => holds(started().next().is_none(), || "a call was started".to_owned()),
            "text_equals" => {
                let mut said = self.of("said").filter(|event| event["message"]["role"] == "assistant");
                let text = said.next().map(|event| event["message"]["parts"][0]["text"].clone()).unwrap_or_default();
                holds(text == post["text"], || text.to_string())
            }
            "outcome" => {
                let wanted: Vec<&str> = post["one_of"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                let found = self.outcomes();
                holds(wanted.iter().any(|wanted| found.contains(wanted)), || format!("{found:?}"))
            }
            "file_absent" => {
                let path = post["path"].as_str().unwrap();
                holds(!std::path::Path::new(path).exists(), || path.to_owned())
            }
            "requests_made" => holds(self.asked as u64 == post["count"].as_u64().unwrap(), || self.asked.to_string()),
            "waited_at_least_ms" => {
                let seen = self.server.seen.lock().unwrap();
                let gap = seen[1].at - seen[0].at;
                holds(gap >= ms, || format!("{gap:?}"))
            }
            "finishes_within_ms" => at_most(self.ran.took),
            "idle_timeout_fires_within_ms" => {
                at_most(self.ran.took)?;
                let idle = |event: &Value| event["reason"].as_str().is_some_and(|text| text.contains("no byte"));
                holds(self.of("waited").any(idle), || "nothing says that no byte came".to_owned())
            }
            "cancel_works_within_ms" => at_most(self.ran.stopped_in.unwrap_or(Duration::MAX)),
            "engine_rss_at_most" => {
                let most = post["bytes"].as_u64().unwrap();
                holds(self.ran.peak <= most && self.ran.peak > 0, || format!("{} MiB", self.ran.peak >> 20))
            }
            "no_duplicate_text" => {
                let lines = self.ran.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                let shown: String = lines
                    .filter(|event| event["kind"] == "delta" && event["of"] == "text")
                    .filter_map(|event| event["text"].as_str().map(str::to_owned))
                    .collect();
                holds(shown == WORDS, || format!("shown: {shown:?}"))
            }
            "terminal_safe" => {
                let unsafe_char =
                    |c: char| (c.is_control() && c != '\n' && c != '\t') || ('\u{202a}'..='\u{202e}').contains(&c);
                let found = [&self.ran.out, &self.ran.err].iter().any(|text| text.contains(unsafe_char));
                holds(!found, || format!("{:?}", self.ran.err))
            }
            "results_pair_with_calls" => {
                let seen = self.server.seen.lock().unwrap();
                holds(seen.len() > 1 && seen.iter().all(|request| paired(&request.body())), || {
                    seen.last().unwrap().body()["messages"].to_string()
                })
            }
            "approval_matches_execution" => {
                let shown = self.of("asked").map(|event| &event["ask"]["about"]["call"]["args"]);
                let said = self.of("said").find_map(|event| event["message"]["parts"].as_array()?.last().cloned());
                let said = said.unwrap_or_default()["args"].clone();
                let all: Vec<&Value> = shown.chain(started().map(|call| &call["args"])).collect();
                holds(!all.is_empty() && all.iter().all(|args| **args == said), || format!("{all:?} {said}"))
            }
            "mode_unchanged_session" => {
                let changed = self.of("answered").next().is_some() || self.of("call_started").next().is_some();
                holds(!changed && mode == "auto", || "something was approved".to_owned())
            }
            "concurrency_at_most" => {
                let (mut running, mut most) = (0_i64, 0);
                for event in &self.log {
                    running += match event["kind"].as_str() {
                        Some("call_started") => 1,
                        Some("call_finished") => -1,
                        _ => 0,
                    };
                    most = most.max(running);
                }
                holds(most <= post["count"].as_i64().unwrap(), || most.to_string())
            }
            "user_told_why" => {
                let says = post["says"].as_str().unwrap_or("429");
                let shown = format!("{}{}", self.ran.out, self.ran.err);
                holds(shown.contains(says), || shown.clone())
            }
            // Checked for every case, at its end.
            "session_survives" => Ok(()),
            other => Err(format!("`{other}` is not a check that is known here")),
        }
    }
}

fn holds(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut have) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | LETTERS.iter().position(|letter| *letter == byte).unwrap() as u32;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    out
}
