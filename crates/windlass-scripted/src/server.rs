//! The server: finds the position of each request in the script, answers it, and records it.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::answers::{self, AnswerItem, ScriptedAnswer, plan_answers};
use crate::http::{self, Connections, Loopback, Request};
use crate::locked;
use crate::recorded_request::{MOST, MOST_BODY, RecordedRequest};
use crate::request::{ScriptedRequest, host_tools};
use crate::script::{ReportedUsage, Script};
use crate::text_edits;
use crate::tools::is_form;
use crate::wire::{WireAnswer, WireFormat};

/// The answer to a side question, and the answer after the end of the script.
const SIDE: &str = "A short title";
const END: &str = "Done.";

/// A running server. Dropping it stops it.
pub struct Server {
    /// The URL without a path.
    pub url: String,
    state: Arc<ScriptServerState>,
    _loopback: Loopback,
}

struct ScriptServerState {
    script: Script,
    seen: Mutex<Vec<RecordedRequest>>,
    /// The number of all requests, including those that are not recorded.
    requests: AtomicUsize,
    /// The number of answers that reported usage.
    answers: AtomicUsize,
    /// The number of failures so far, by move.
    failures: Mutex<HashMap<usize, usize>>,
}

impl Server {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::start_on(script, 0)
    }

    /// Listens on this port of loopback.
    ///
    /// # Errors
    /// Fails if the port is in use.
    pub fn start_on(script: Script, port: u16) -> io::Result<Self> {
        let state = Arc::new(ScriptServerState {
            script,
            seen: Mutex::default(),
            requests: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            failures: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let loopback = Loopback::start(port, move |out, request, connections| {
            shared.answer(out, request, connections)
        })?;
        Ok(Self {
            url: loopback.url.clone(),
            state,
            _loopback: loopback,
        })
    }

    /// The requests recorded so far.
    #[must_use]
    pub fn seen(&self) -> Vec<RecordedRequest> {
        locked(&self.state.seen).clone()
    }

    /// The number of requests, recorded or not.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// The usage that every answer reports.
    #[must_use]
    pub fn usage(&self) -> ReportedUsage {
        self.state.script.usage
    }

    /// The number of answers that reported usage: those to the work and to side questions, but no failures.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.state.answers.load(Ordering::Relaxed)
    }
}

/// The working directory that a request names, if it is an isolated copy of the workspace: a real model would use the
/// paths that it is told. A resumed conversation also names the copy of an earlier run, which no longer exists.
fn copy_root_in(request: &str, is_there: impl Fn(&str) -> bool) -> Option<String> {
    let path = |byte: char| byte.is_ascii_alphanumeric() || "/._-".contains(byte);
    request.match_indices(COPIES).find_map(|(at, _)| {
        let (before, after) = (&request[..at], &request[at + COPIES.len()..]);
        let (name, _) = after.split_once("/tree")?;
        let plain = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let above = before
            .rfind(|byte: char| !path(byte))
            .map_or(before, |at| &before[at + 1..]);
        let root = format!("{above}{COPIES}{name}/tree");
        (plain && above.starts_with('/') && is_there(&root)).then_some(root)
    })
}

/// The directory of isolated copies, as part of their paths.
const COPIES: &str = "/transactions/";

impl ScriptServerState {
    fn answer(
        &self,
        out: &mut TcpStream,
        request: &Request,
        connections: &Connections,
    ) -> io::Result<()> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let mut seen = RecordedRequest {
            at: Instant::now(),
            method: request.method.clone(),
            path: request.path.clone(),
            key: request.key(),
            bytes: request.body.len(),
            body: String::from_utf8_lossy(&request.body[..request.body.len().min(MOST_BODY)])
                .into_owned(),
            tools: Vec::new(),
            work: false,
            status: 200,
            unmapped: None,
        };
        let Some(wire) = WireFormat::of(&request.path).filter(|_| request.method == "POST") else {
            let (status, value) = non_model_response(&request.method, &request.path);
            seen.status = status;
            self.keep(seen);
            return whole(out, status, &value);
        };
        if request
            .header("content-encoding")
            .is_some_and(|how| how != "identity")
            || !body.is_object()
        {
            seen.status = 400;
            self.keep(seen);
            return whole(
                out,
                400,
                &json!({ "error": { "message": "the scripted model reads plain JSON" } }),
            );
        }
        let mut asked = wire.read(&body);
        asked.named = host_tools(&seen.body);
        asked.whole = seen.body.clone();
        seen.tools = asked.tools.iter().map(|tool| tool.name.clone()).collect();
        // A request that offers only a tool for structured output is a side question.
        seen.work = self.script.without_tools || asked.tools.iter().any(|tool| !is_form(tool));
        let (next, missing) = self.next(&asked, seen.work);
        seen.unmapped = missing;
        if let ScriptedAnswer::Fail { status, .. } = next {
            seen.status = status;
        }
        self.keep(seen);
        match next {
            ScriptedAnswer::Item(item) => self.say(out, wire, &asked, &item, number),
            ScriptedAnswer::Fail { status, .. } => whole(out, status, &wire.failure(status)),
            ScriptedAnswer::Hang | ScriptedAnswer::Heard(_) => connections.hang(out),
        }
    }

    fn keep(&self, seen: RecordedRequest) {
        let mut all = locked(&self.seen);
        if all.len() < MOST {
            all.push(seen);
        }
    }

    /// The answer at the position that follows from the history.
    fn next(&self, asked: &ScriptedRequest, work: bool) -> (ScriptedAnswer, Option<String>) {
        if !work {
            return (
                ScriptedAnswer::Item(answers::side_answer(asked, SIDE)),
                None,
            );
        }
        let script = match copy_root_in(&asked.whole, |root| std::path::Path::new(root).is_dir()) {
            Some(root) => &Script {
                root,
                ..self.script.clone()
            },
            None => &self.script,
        };
        let (all, missing) = plan_answers(script, asked);
        let mut left = place(&all, asked);
        for played in all {
            match played {
                // A refusal is repeated, because agents ask a second time.
                ScriptedAnswer::Item(AnswerItem::Refusal(_)) => return (played, missing),
                ScriptedAnswer::Item(_) if left > 0 => left -= 1,
                ScriptedAnswer::Fail {
                    number,
                    times: Some(times),
                    ..
                } if left > 0 || self.failed(number) >= times => {}
                ScriptedAnswer::Fail { number, .. } => {
                    *locked(&self.failures).entry(number).or_default() += 1;
                    return (played, missing);
                }
                ScriptedAnswer::Hang if left > 0 => {}
                ScriptedAnswer::Heard(_) => {}
                played => return (played, missing),
            }
        }
        (
            ScriptedAnswer::Item(AnswerItem::Text {
                text: END.to_owned(),
                pause_ms: 0,
            }),
            missing,
        )
    }

    fn failed(&self, number: usize) -> usize {
        locked(&self.failures)
            .get(&number)
            .copied()
            .unwrap_or_default()
    }

    fn say(
        &self,
        out: &mut TcpStream,
        wire: WireFormat,
        asked: &ScriptedRequest,
        item: &AnswerItem,
        number: usize,
    ) -> io::Result<()> {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let answer = WireAnswer {
            model: &asked.model,
            item,
            usage: self.script.usage,
            number,
        };
        if !asked.stream {
            return whole(out, 200, &wire.whole(&answer));
        }
        out.write_all(&http::stream_head(200, http::EVENT_STREAM))?;
        for frame in wire.stream(&answer) {
            if frame.pause_ms > 0 {
                std::thread::sleep(Duration::from_millis(frame.pause_ms));
            }
            let name = frame
                .event
                .map(|event| format!("event: {event}\n"))
                .unwrap_or_default();
            out.write_all(&http::chunk(format!("{name}data: {}\n\n", frame.data)))?;
        }
        out.write_all(http::LAST_CHUNK)
    }
}

/// The number of the script's answers before this request: those in its history, and for an agent without history all
/// those before a `Heard` text that the request contains.
fn place(all: &[ScriptedAnswer], asked: &ScriptedRequest) -> usize {
    let words = all.iter().filter_map(|played| match played {
        ScriptedAnswer::Item(AnswerItem::Text { text, .. } | AnswerItem::Refusal(text)) => {
            Some(text.as_str())
        }
        _ => None,
    });
    let seen = asked
        .place(&words.collect::<Vec<_>>())
        .saturating_sub(text_edits::rejected_answers(asked));
    let heard = |played: &ScriptedAnswer| matches!(played, ScriptedAnswer::Heard(words) if asked.whole.contains(words.as_str()));
    let before = all.iter().rposition(heard).map_or(0, |at| {
        all[..at]
            .iter()
            .filter(|played| matches!(played, ScriptedAnswer::Item(_)))
            .count()
    });
    if seen < before { before + seen } else { seen }
}

/// The response to a request that is not for a model: a list of models, a count of tokens, a probe.
fn non_model_response(method: &str, path: &str) -> (u16, Value) {
    match path {
        path if path.contains("count_tokens") => (200, json!({ "input_tokens": 42 })),
        path if path.contains(":countTokens") => (200, json!({ "totalTokens": 42 })),
        path if path.contains("/models") => (
            200,
            json!({ "object": "list", "data": [], "models": [], "has_more": false }),
        ),
        _ if method == "HEAD" => (200, json!({})),
        _ => (
            404,
            json!({ "error": { "type": "not_found_error", "message": "the scripted model has no such path" } }),
        ),
    }
}

fn whole(out: &mut TcpStream, status: u16, value: &Value) -> io::Result<()> {
    let kind = "content-type: application/json\r\n";
    out.write_all(&http::whole(status, kind, value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_that_an_agent_names_is_the_root() {
        let told = |text: &str| copy_root_in(text, |root| !root.contains("gone"));
        let request = r#"{"text":"was /d/w/transactions/gone-1/tree, is /d/w/transactions/a-b-1/tree\nmore"}"#;
        assert_eq!(
            told(request).as_deref(),
            Some("/d/w/transactions/a-b-1/tree")
        );
        assert_eq!(told("see /transactions/x"), None);
        assert_eq!(told("no copy"), None);
    }
}
