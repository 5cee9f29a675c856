//! The server: finds each request's place in the script, answers, and keeps what it was asked.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{self, Connections, Loopback, Request};
use crate::locked;
use crate::offer::{self, Item, Played, played};
use crate::prose;
use crate::request::{Asked, host_tools};
use crate::script::{Script, Usage};
use crate::seen::{MOST, MOST_BODY, Seen};
use crate::tools::is_form;
use crate::wire::{Answer, Wire};

/// What side questions get, and what comes after the script.
const SIDE: &str = "A short title";
const END: &str = "Done.";

/// A running server; it ends when this is dropped.
pub struct Server {
    /// Where it listens, without a path.
    pub url: String,
    state: Arc<State>,
    _loopback: Loopback,
}

struct State {
    script: Script,
    seen: Mutex<Vec<Seen>>,
    /// All requests, also those that are not kept.
    requests: AtomicUsize,
    /// Answers that were given and paid.
    answers: AtomicUsize,
    /// Failures so far, by move.
    failures: Mutex<HashMap<usize, usize>>,
}

impl Server {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// Where no port can be had.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::start_on(script, 0)
    }

    /// Listens on this port of loopback.
    ///
    /// # Errors
    /// Where it is taken.
    pub fn start_on(script: Script, port: u16) -> io::Result<Self> {
        let state = Arc::new(State {
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

    /// What it was asked so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        locked(&self.state.seen).clone()
    }

    /// How often it was asked, kept or not.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// What each answer says it used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.state.script.usage
    }

    /// How many answers it gave that cost something: the work and side questions, no failures.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.state.answers.load(Ordering::Relaxed)
    }
}

/// The working directory that an agent names in its request, where that is a copy of the workspace: a model uses the
/// paths that it is told. A conversation that is resumed also names the copy of an earlier run, which is gone.
fn told_root(request: &str, is_there: impl Fn(&str) -> bool) -> Option<String> {
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

/// The folder of copies in their paths.
const COPIES: &str = "/transactions/";

impl State {
    fn answer(
        &self,
        out: &mut TcpStream,
        request: &Request,
        connections: &Connections,
    ) -> io::Result<()> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let mut seen = Seen {
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
        let Some(wire) = Wire::of(&request.path).filter(|_| request.method == "POST") else {
            let (status, value) = aside(&request.method, &request.path);
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
        // Who offers nothing but the form of an answer asks something beside the work.
        seen.work = self.script.without_tools || asked.tools.iter().any(|tool| !is_form(tool));
        let (next, missing) = self.next(&asked, seen.work);
        seen.unmapped = missing;
        if let Played::Fail { status, .. } = next {
            seen.status = status;
        }
        self.keep(seen);
        match next {
            Played::Item(item) => self.say(out, wire, &asked, &item, number),
            Played::Fail { status, .. } => whole(out, status, &wire.failure(status)),
            Played::Hang | Played::Heard(_) => connections.hang(out),
        }
    }

    fn keep(&self, seen: Seen) {
        let mut all = locked(&self.seen);
        if all.len() < MOST {
            all.push(seen);
        }
    }

    /// The answer at the place that the history is at.
    fn next(&self, asked: &Asked, work: bool) -> (Played, Option<String>) {
        if !work {
            return (Played::Item(offer::aside(asked, SIDE)), None);
        }
        let script = match told_root(&asked.whole, |root| std::path::Path::new(root).is_dir()) {
            Some(root) => &Script {
                root,
                ..self.script.clone()
            },
            None => &self.script,
        };
        let (all, missing) = played(script, asked);
        let mut left = place(&all, asked);
        for played in all {
            match played {
                // Who declines once declines again: agents ask a second time.
                Played::Item(Item::Refusal(_)) => return (played, missing),
                Played::Item(_) if left > 0 => left -= 1,
                Played::Fail {
                    number,
                    times: Some(times),
                    ..
                } if left > 0 || self.failed(number) >= times => {}
                Played::Fail { number, .. } => {
                    *locked(&self.failures).entry(number).or_default() += 1;
                    return (played, missing);
                }
                Played::Hang if left > 0 => {}
                Played::Heard(_) => {}
                played => return (played, missing),
            }
        }
        (
            Played::Item(Item::Text {
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
        wire: Wire,
        asked: &Asked,
        item: &Item,
        number: usize,
    ) -> io::Result<()> {
        self.answers.fetch_add(1, Ordering::Relaxed);
        let answer = Answer {
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

/// How many answers of the script are behind this question: those of its history, and all that come before words that
/// it heard, for who has no history of them.
fn place(all: &[Played], asked: &Asked) -> usize {
    let words = all.iter().filter_map(|played| match played {
        Played::Item(Item::Text { text, .. } | Item::Refusal(text)) => Some(text.as_str()),
        _ => None,
    });
    let seen = asked
        .place(&words.collect::<Vec<_>>())
        .saturating_sub(prose::not_taken(asked));
    let heard = |played: &Played| matches!(played, Played::Heard(words) if asked.whole.contains(words.as_str()));
    let before = all.iter().rposition(heard).map_or(0, |at| {
        all[..at]
            .iter()
            .filter(|played| matches!(played, Played::Item(_)))
            .count()
    });
    if seen < before { before + seen } else { seen }
}

/// What is no question to a model: lists of models, counts of tokens, probes.
fn aside(method: &str, path: &str) -> (u16, Value) {
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
    fn a_copy_that_an_agent_names_is_where_files_are() {
        let told = |text: &str| told_root(text, |root| !root.contains("gone"));
        let request = r#"{"text":"was /d/w/transactions/gone-1/tree, is /d/w/transactions/a-b-1/tree\nmore"}"#;
        assert_eq!(
            told(request).as_deref(),
            Some("/d/w/transactions/a-b-1/tree")
        );
        assert_eq!(told("see /transactions/x"), None);
        assert_eq!(told("no copy"), None);
    }
}
