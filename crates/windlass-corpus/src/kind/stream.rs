//! A model server that answers byte for byte as the case says, and the reaction of the product.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::case::Decision;
use crate::child::{ChildResult, ChildWatch};
use crate::facts::{CaseFacts, Screen};
use crate::product::{self, WORDS, named};
use crate::server::{
    Act, Server, body, chunk, end, good, head, packed, packed_zeros, start_server, whole,
};

pub(super) const KEY: &str = "sk-corpus-0123456789abcdef";

pub(super) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let (case, fixture) = (facts.case, facts.fixture);
    let input = fixture.filled_value(&case.input);
    let chat = input["format"] == "openai-chat-sse";
    let healthy = Arc::new(AtomicBool::new(false));
    let server = start(input.clone(), chat, healthy.clone())?;
    let mut args: Vec<&str> = crate::words(&input["args"]).collect();
    // Use the output for a user, unless the case is about single events.
    let pieces = case.wants("no_duplicate_text").is_some();
    args.extend(["-o", if pieces { "stream-json" } else { "text" }]);
    let interrupts = case.wants("cancel_works_within_ms").is_some();
    let began = Instant::now();
    // Wait until some bytes have arrived; the next ones take long.
    let ready = || !server.received().is_empty() && began.elapsed() > Duration::from_millis(600);
    let signal: Option<(Signal, &dyn Fn() -> bool)> = if interrupts {
        Some((Signal::INT, &ready))
    } else {
        None
    };
    let watch = ChildWatch {
        deadline: Duration::from_secs(90),
        signal,
        ..ChildWatch::default()
    };
    let ran = run(facts, &server, chat, &args, &watch)?;
    facts.requests = server.received().len();
    facts.events = product::log(fixture);
    facts.reached = reached(facts, &ran);
    let screen = |view: &str, text: &String| Screen {
        view: view.to_owned(),
        text: text.clone(),
        colour: false,
    };
    facts.screens.push(screen("standard error", &ran.err));
    if !pieces {
        facts.screens.push(screen("standard output", &ran.out));
    }
    facts.set_checked_run(ran);

    // The session must always work again once the server answers well, and its requests must be valid.
    healthy.store(true, Ordering::SeqCst);
    let again = run(facts, &server, chat, &["-c"], &ChildWatch::default())?;
    facts.keep_output(&again);
    let well = again.code == 0 && again.out.contains(WORDS);
    crate::holds(well, || {
        format!(
            "session_survives: exit {}, {}",
            again.code,
            again.err.trim()
        )
    })?;
    let whole = server
        .received()
        .last()
        .is_some_and(|request| paired(&body(request)));
    crate::holds(whole, || {
        "a request has a call without its result, or a result without its call".to_owned()
    })?;
    facts.server = Some(server);
    let told = facts.everything().iter().any(|text| text.contains(KEY));
    crate::holds(!told, || "the key is in the log or the output".to_owned())
}

fn run(
    facts: &CaseFacts<'_>,
    server: &Server,
    chat: bool,
    more: &[&str],
    watch: &ChildWatch<'_>,
) -> Result<ChildResult, String> {
    let model = if chat {
        "openai-compatible/some-model"
    } else {
        "anthropic/some-model"
    };
    let mut args: Vec<String> = ["run", "--in-place", "-m", model, "--base-url", &server.url]
        .map(str::to_owned)
        .into();
    args.extend(facts.product.mode(&facts.case.mode));
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    args.push("go".to_owned());
    facts
        .product
        .run(facts.fixture, &facts.case.mode, &args, watch)
}

/// A stream that ends in an error, a refused call or a retry counts as refused; all others were allowed.
fn reached(facts: &CaseFacts<'_>, ran: &ChildResult) -> Vec<Decision> {
    let asked = facts.of("asked").next().is_some();
    let failed = facts
        .of("call_finished")
        .any(|event| event["data"]["result"]["error"].is_string());
    let started = facts.started().next().is_some();
    match ran.code {
        product::ASKED => vec![Decision::Ask],
        0 if failed || asked || facts.requests > 1 && !started => {
            vec![Decision::Deny, Decision::Allow]
        }
        0 if !started => vec![Decision::Allow, Decision::Deny],
        0 => vec![Decision::Allow],
        _ => vec![Decision::Deny],
    }
}

pub(super) fn start(input: Value, chat: bool, healthy: Arc<AtomicBool>) -> Result<Server, String> {
    let lasting = input["lasting"] == true;
    start_server(move |number, request| {
        let well = healthy.load(Ordering::SeqCst);
        match (number, input.get("then")) {
            _ if well => good(chat),
            (_, _) if lasting => acts(&input, request),
            (0, _) => acts(&input, request),
            (1, Some(then)) => whole(200, &[], &bytes_of(then), 0),
            _ => good(chat),
        }
    })
}

fn bytes_of(chunks: &Value) -> Vec<u8> {
    let mut all = Vec::new();
    for chunk in chunks.as_array().into_iter().flatten() {
        match chunk {
            Value::String(text) => all.extend_from_slice(named(text).as_bytes()),
            coded => {
                let bytes = STANDARD
                    .decode(coded["b64"].as_str().unwrap_or_default())
                    .unwrap_or_default();
                match String::from_utf8(bytes) {
                    Ok(text) => all.extend_from_slice(named(&text).as_bytes()),
                    Err(raw) => all.extend_from_slice(raw.as_bytes()),
                }
            }
        }
    }
    all
}

/// Replaces `@HOST@` by the server's own address.
fn fill_host(text: &str, request: &str) -> String {
    let host = request
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or_default();
    text.replace("@HOST@", host)
}

/// Returns raw bytes instead of a well-formed answer.
fn wire(input: &Value, wire: &str, request: &str) -> Vec<Act> {
    let mut acts = vec![Act::Say(fill_host(wire, request).into_bytes())];
    let times = input["headers_times"].as_u64().unwrap_or(0);
    if times > 0 {
        acts.push(Act::Repeat(
            b"x-filler: 0123456789abcdef\r\n".to_vec(),
            times as usize,
        ));
        acts.push(Act::Say(b"\r\n".to_vec()));
    }
    acts.push(match input["end"].as_str() {
        Some("reset") => Act::Reset,
        Some("hang") => Act::Hang,
        _ => Act::Close,
    });
    acts
}

/// Returns the actions of the server for a case, in order.
fn acts(input: &Value, request: &str) -> Vec<Act> {
    if let Some(text) = input["wire"].as_str() {
        return wire(input, text, request);
    }
    let status = input["status"].as_u64().unwrap_or(200) as u16;
    let headers = input["headers"].as_object().into_iter().flatten();
    let headers: Vec<(String, String)> = headers
        .filter_map(|(name, value)| Some((name.clone(), fill_host(value.as_str()?, request))))
        .collect();
    let mut body = bytes_of(&input["chunks"]);
    if input["gzip"] == true {
        body = packed(&body);
    }
    if let Some(most) = input["max_bytes"].as_u64() {
        body.truncate(most as usize);
    }
    let inside = input["split_at_utf8"] == true;
    let split = if inside {
        1
    } else {
        input["split"].as_u64().unwrap_or(0) as usize
    };
    let mut acts = vec![head(status, &headers)];
    for bytes in body.chunks(if split == 0 { body.len().max(1) } else { split }) {
        acts.push(Act::Say(chunk(bytes)));
        if let Some(ms) = input["delay_ms"].as_u64() {
            acts.push(Act::Pause(Duration::from_millis(ms)));
        }
    }
    add_floods(input, &mut acts);
    acts.push(match input["end"].as_str() {
        Some("reset") => Act::Reset,
        Some("hang") => Act::Hang,
        _ => end(),
    });
    acts
}

/// Adds floods of several kinds behind the chunks.
fn add_floods(input: &Value, acts: &mut Vec<Act>) {
    if let Some(bytes) = input["then_bytes"].as_u64() {
        acts.push(Act::Say(chunk(b"data: ")));
        acts.push(Act::Repeat(chunk([b'x'; 1 << 16]), bytes as usize >> 16));
    }
    if let Some(repeat) = input.get("repeat") {
        let times = repeat["times"].as_u64().unwrap_or(1) as usize;
        let event = repeat["event"].as_str().unwrap_or_default();
        let together = times.clamp(1, 1000);
        acts.push(Act::Repeat(
            chunk(event.repeat(together).as_bytes()),
            times / together,
        ));
    }
    if let Some(bytes) = input["gzip_zeros"].as_u64() {
        acts.extend(packed_zeros(bytes as usize));
    }
    if let Some(call) = input.get("repeat_tool_call") {
        acts.push(Act::Say(chunk(many_calls(call).as_bytes())));
    }
    if let Some(tail) = input["tail"].as_str() {
        acts.push(Act::Say(chunk(tail.as_bytes())));
    }
}

fn many_calls(call: &Value) -> String {
    let mut all = String::new();
    for index in 0..call["times"].as_u64().unwrap_or(1).min(100_000) {
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

/// Returns whether every call of a request has its result and every result its call, and no id occurs twice.
pub(crate) fn paired(body: &Value) -> bool {
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
    unique.len() == calls.len()
        && calls == results
        && calls.iter().all(|id| id != "null" && id != "\"\"")
}
