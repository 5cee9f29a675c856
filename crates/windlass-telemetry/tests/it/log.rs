//! Builds logs for the tests and renders spans as text.

use serde_json::{Value, json};
use windlass_core::clock::Timestamp;
use windlass_core::event::Event;
use windlass_telemetry::span::Attribute;
use windlass_telemetry::{AttributeValue as Attr, Finished, Options, Point, Span, Spans};

/// A log from lines of run `r1`, each with its time in seconds.
pub(crate) fn log(lines: &[(f64, Value)]) -> Vec<Event> {
    lines
        .iter()
        .enumerate()
        .map(|(at, (seconds, kind))| event(at as u64 + 1, "r1", *seconds, kind))
        .collect()
}

pub(crate) fn event(seq: u64, run: &str, seconds: f64, kind: &Value) -> Event {
    let at = Timestamp::from_millis(1_000_000 + (seconds * 1_000.0) as i64);
    let trace = "000000000000000a000000000000000b";
    let mut data = kind.as_object().unwrap().clone();
    let kind = data.remove("kind").unwrap();
    let run = (kind != "session_opened").then_some(run);
    let line = json!({ "v": 2, "seq": seq, "at": at, "session": "s1", "run": run, "trace": trace, "kind": kind,
                       "data": data });
    serde_json::from_value(line).unwrap()
}

/// Folds a whole log.
pub(crate) fn fold(events: &[Event], content: bool) -> Finished {
    let mut spans = Spans::new(Options {
        content,
        provider: Some("bedrock".into()),
    });
    let mut all = Finished::default();
    let mut take = |one: Finished| {
        all.spans.extend(one.spans);
        all.points.extend(one.points);
    };
    events.iter().for_each(|event| take(spans.apply(event)));
    take(spans.finish());
    all
}

/// Renders each span on a line, with its events and attributes below it.
pub(crate) fn shown(finished: &Finished) -> String {
    let name = |id| {
        finished
            .spans
            .iter()
            .find(|span| span.id == id)
            .map_or("?", |span| span.name.as_str())
    };
    let mut text = String::new();
    for span in &finished.spans {
        let Span {
            name: own,
            start,
            end,
            ..
        } = span;
        let below = span
            .parent
            .map_or_else(String::new, |parent| format!(" < {}", name(parent)));
        let error = span
            .error
            .as_ref()
            .map_or_else(String::new, |error| format!(" ! {error}"));
        text.push_str(&format!(
            "{own}{below} {}..{}{error}\n",
            start - 1_000_000,
            end - 1_000_000
        ));
        text.push_str(&attributes(&span.attributes, "    "));
        for event in &span.events {
            text.push_str(&format!("    @{} {}\n", event.at - 1_000_000, event.name));
            text.push_str(&attributes(&event.attributes, "        "));
        }
    }
    for Point {
        measure,
        value,
        attributes: told,
        ..
    } in &finished.points
    {
        let told = attributes(told, "").trim_end().replace('\n', ", ");
        text.push_str(&format!("{} {value} {told}\n", measure.name()));
    }
    text
}

fn attributes(all: &[Attribute], indent: &str) -> String {
    let line = |(name, value): &Attribute| {
        let value = match value {
            Attr::Text(text) => text.clone(),
            Attr::Int(number) => number.to_string(),
            Attr::Bool(yes) => yes.to_string(),
            Attr::Texts(texts) => format!("{texts:?}"),
        };
        format!("{indent}{name} = {value}\n")
    };
    all.iter().map(line).collect()
}

pub(crate) fn opened() -> Value {
    json!({ "kind": "session_opened", "workspace": "/w", "runtime": "native", "model": "m", "program": "0.1.0" })
}

pub(crate) fn started() -> Value {
    let parts = json!([{ "type": "text", "data": { "text": "PROMPT" } }]);
    json!({ "kind": "run_started", "prompt": { "role": "user", "parts": parts } })
}

pub(crate) fn spent(cost: Option<u64>) -> Value {
    let usage = json!({ "input": 25, "cache_read": 75, "cache_write": 0, "output": 10 });
    json!({ "kind": "spent", "model": "m", "call": usage, "cost_micros": cost, "total":
            { "iterations": 0, "steps": 0, "usage": usage, "cost_micros": 0 } })
}

/// An answer of the model with these calls of `bash`.
pub(crate) fn said(calls: &[&str]) -> Value {
    let mut parts = vec![json!({ "type": "text", "data": { "text": "ANSWER" } })];
    parts.extend(
        calls
            .iter()
            .map(|id| json!({ "type": "call", "data": { "id": id, "name": "bash", "args": { "command": "ARGS" } } })),
    );
    json!({ "kind": "said", "message": { "role": "assistant", "origin": "model", "parts": parts } })
}

pub(crate) fn call(id: &str) -> Value {
    let call = json!({ "id": id, "name": "bash", "args": { "command": "ARGS" } });
    json!({ "kind": "call_started", "call": call, "verdict": "allow", "rule": "RULE" })
}

pub(crate) fn result(id: &str, name: &str, error: Option<&str>) -> Value {
    json!({ "kind": "call_finished", "ms": 1, "result": { "id": id, "name": name, "text": "RESULT", "error": error } })
}

pub(crate) fn ended(outcome: Value) -> Value {
    let totals = json!({ "iterations": 1, "steps": 2, "usage": { "input": 50, "cache_read": 150, "output": 20 },
                         "cost_micros": 7, "estimated": false, "unpriced": false });
    json!({ "kind": "run_finished", "outcome": outcome, "files": [], "totals": totals, "ms": 9_000 })
}

/// A run with nearly every kind of event.
pub(crate) fn eventful() -> Vec<Event> {
    let ask = json!({ "id": "a1-00000001", "about": { "is": "question", "text": "WHICH" }, "call": "c1" });
    let report =
        |judgement: &str| json!({ "judgement": judgement, "findings": [{ "message": "FINDING" }] });
    log(&[
        (0.0, opened()),
        (0.0, started()),
        (0.0, json!({ "kind": "iteration_started", "iteration": 1 })),
        (
            1.0,
            json!({ "kind": "waited", "reason": "WHY", "error": { "is": "rate_limited" }, "ms": 2_000, "attempt": 2 }),
        ),
        (4.5, said(&["c1", "c2", "c3"])),
        (4.5, spent(Some(7))),
        (4.5, json!({ "kind": "budget_warned", "limit": "tokens" })),
        (5.0, json!({ "kind": "asked", "ask": ask })),
        (
            6.0,
            json!({ "kind": "answered", "ask": "a1-00000001", "answer": { "is": "text", "text": "THIS" }, "by": "person" }),
        ),
        (6.0, call("c1")),
        (
            6.0,
            json!({ "kind": "denied", "call": "c2", "rule": "RULE", "reason": "WHY" }),
        ),
        (6.0, result("c2", "bash", Some("denied"))),
        (6.1, result("c3", "MADE_UP", Some("unknown_tool"))),
        (7.5, result("c1", "bash", None)),
        (9.0, spent(None)),
        (
            9.0,
            json!({ "kind": "compacted", "kept_from": 5, "summary": "SUMMARY", "by": "window",
                      "left_out": [{ "what": "WHAT", "count": 3, "bytes": 9 }] }),
        ),
        (
            9.5,
            json!({ "kind": "warned", "code": "unknown_stream_event", "text": "TEXT" }),
        ),
        (11.0, said(&[])),
        (11.0, spent(Some(9))),
        (
            11.0,
            json!({ "kind": "iteration_finished", "iteration": 1, "stop": "done" }),
        ),
        (
            11.0,
            json!({ "kind": "validation_started", "validator": "cargo SECRET" }),
        ),
        (
            13.0,
            json!({ "kind": "validated", "validator": "cargo SECRET", "blocking": true, "report": report("fail") }),
        ),
        (
            13.0,
            json!({ "kind": "landed", "files": ["PATH"], "tree_hash": "ab" }),
        ),
        (
            14.0,
            ended(json!({ "is": "failed", "reason": "validation", "detail": "DETAIL" })),
        ),
    ])
}
