#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

/// Events as a log file has them, each with the seconds at which it was written.
fn log(lines: &[(f64, Value)]) -> Vec<Event> {
    let line = |(at, (seconds, kind)): (usize, &(f64, Value))| {
        let at_ms = Timestamp::from_millis((seconds * 1_000.0) as i64);
        let mut data = kind.as_object().unwrap().clone();
        let kind = data.remove("kind").unwrap();
        let line = json!({ "v": 2, "seq": at + 1, "at": at_ms, "session": "s", "run": "r1", "trace": "t", "kind": kind,
                           "data": data });
        serde_json::from_value(line).unwrap()
    };
    lines.iter().enumerate().map(line).collect()
}

fn stats(lines: &[(f64, Value)]) -> Stats {
    let mut stats = Stats::default();
    log(lines).iter().for_each(|event| stats.apply(event));
    stats
}

fn opened() -> Value {
    json!({ "kind": "session_opened", "workspace": "/w", "runtime": "native", "program": "0" })
}

fn started() -> Value {
    json!({ "kind": "run_started", "prompt": { "role": "user", "parts": [] } })
}

fn spent(model: &str, cost: Option<u64>) -> Value {
    let usage = json!({ "input": 25, "cache_read": 75, "cache_write": 0, "output": 10 });
    json!({ "kind": "spent", "model": model, "call": usage, "cost_micros": cost, "total":
            { "iterations": 0, "steps": 0, "usage": usage, "cost_micros": 0 } })
}

fn finished(id: &str, error: Option<&str>, ms: u64) -> Value {
    json!({ "kind": "call_finished", "ms": ms, "result": { "id": id, "name": "bash", "text": "", "error": error } })
}

fn ended(ms: u64) -> Value {
    json!({ "kind": "run_finished", "outcome": { "is": "completed" }, "files": [], "ms": ms,
            "totals": { "iterations": 1, "steps": 1, "usage": { "input": 0, "output": 0 }, "cost_micros": 0 } })
}

fn said() -> Value {
    json!({ "kind": "said", "message": { "role": "assistant", "parts": [] } })
}

#[test]
fn times_tokens_calls_asks_and_checks_are_counted() {
    let ask = json!({ "id": "a1", "about": { "is": "question", "text": "which?" } });
    let report = json!({ "judgement": "fail" });
    let file = |path: &str, added: u32| json!({ "path": path, "change": "modified", "added": added, "removed": 1 });
    let end = json!({ "kind": "run_finished", "outcome": { "is": "completed" }, "files": [file("a", 2), file("b", 3)],
                      "totals": { "iterations": 1, "steps": 2, "usage": { "input": 0, "output": 0 }, "cost_micros": 0 },
                      "ms": 9_000 });
    let stats = stats(&[
        (0.0, opened()),
        (0.0, started()),
        (0.0, json!({ "kind": "iteration_started", "iteration": 1 })),
        (
            1.0,
            json!({ "kind": "waited", "reason": "", "error": { "is": "network" }, "ms": 2_000, "attempt": 2 }),
        ),
        (4.5, said()),
        (4.5, spent("m", Some(7))),
        (4.5, finished("c1", None, 100)),
        (4.5, finished("c2", Some("denied"), 0)),
        (4.5, finished("c3", Some("timeout"), 300)),
        (5.0, json!({ "kind": "asked", "ask": ask })),
        (
            8.0,
            json!({ "kind": "answered", "ask": "a1", "answer": { "is": "text", "text": "x" }, "by": "person" }),
        ),
        (9.0, said()),
        (9.0, spent("n", None)),
        (
            9.0,
            json!({ "kind": "command_finished", "call": "c", "end": { "is": "exited", "code": 1 }, "bytes": 5, "ms": 4 }),
        ),
        (
            9.0,
            json!({ "kind": "validation_started", "validator": "cargo test" }),
        ),
        (
            9.5,
            json!({ "kind": "validated", "validator": "cargo test", "blocking": true, "report": report }),
        ),
        (9.6, end),
    ]);
    let sum = stats.total;
    assert_eq!(
        (stats.sessions, stats.runs.len(), stats.steps.len()),
        (1, 1, 2)
    );
    assert_eq!(stats.runs[0].sum, sum);
    assert_eq!((sum.ms, sum.model_ms), (9_000, 1_500 + 1_000));
    assert_eq!(
        sum.calls,
        CallStats {
            count: 3,
            failed: 1,
            denied: 1,
            interrupted: 0,
            ms: 400,
            longest_ms: 300
        }
    );
    assert_eq!(stats.steps[0].calls, sum.calls);
    assert_eq!(
        sum.waits,
        WaitStats {
            count: 1,
            ms: 2_000
        }
    );
    assert_eq!(
        sum.asks,
        AskStats {
            count: 1,
            by_person: 1,
            open: 0,
            ms: 3_000
        }
    );
    assert_eq!(
        sum.commands,
        CommandStats {
            count: 1,
            failed: 1,
            bytes: 5,
            ms: 4
        }
    );
    assert_eq!(
        stats.validators["cargo test"],
        CheckStats {
            count: 1,
            passed: 0,
            failed: 1,
            unverifiable: 0,
            ms: 500
        }
    );
    assert_eq!((sum.files, sum.added, sum.removed), (2, 5, 2));
    assert_eq!(
        (sum.spent.steps, sum.spent.cost_micros, sum.spent.unpriced),
        (2, 7, true)
    );
    assert_eq!(
        (stats.models["m"].unpriced, stats.models["n"].unpriced),
        (0, 1)
    );
    assert_eq!(cache_hits(&sum.spent.usage), Some(0.75));
    assert_eq!(cache_hits(&Usage::default()), None);
    let mut twice = stats.clone();
    twice.add(stats.clone());
    assert_eq!(
        (
            twice.sessions,
            twice.total.spent.steps,
            twice.tools["bash"].count
        ),
        (2, 4, 6)
    );
    assert_eq!(
        (twice.tools["bash"].longest_ms, twice.files.len()),
        (300, 2)
    );
}

#[test]
fn a_clock_that_was_set_back_counts_as_no_time() {
    let stats = stats(&[
        (9.0, opened()),
        (9.0, started()),
        (2.0, said()),
        (1.0, spent("m", Some(0))),
    ]);
    assert_eq!(stats.total.model_ms, 0);
    assert_eq!(stats.runs[0].outcome, None);
}

#[test]
fn a_model_call_between_two_runs_is_counted_once_and_in_no_run() {
    let stats = stats(&[
        (0.0, opened()),
        (0.0, started()),
        (1.0, said()),
        (1.0, spent("m", Some(7))),
        (1.0, ended(5)),
        (90_000.0, spent("m", Some(11))),
        (90_000.0, started()),
        (90_001.0, spent("m", Some(13))),
    ]);
    assert_eq!(
        stats.total.model_ms, 2_000,
        "the day between two runs is not part of the duration of a model call"
    );
    assert_eq!(
        (stats.total.spent.cost_micros, stats.total.spent.steps),
        (31, 3)
    );
    assert_eq!(
        (stats.models["m"].calls, stats.models["m"].cost_micros),
        (3, 31)
    );
    let of_runs: Vec<u64> = stats
        .runs
        .iter()
        .map(|run| run.sum.spent.cost_micros)
        .collect();
    assert_eq!((of_runs, stats.steps.len()), (vec![7, 13], 2));
}

#[test]
fn numbers_of_a_hostile_log_saturate() {
    let waited = json!({ "kind": "waited", "reason": "", "error": { "is": "network" }, "ms": u64::MAX, "attempt": 2 });
    let lines = [
        (0.0, opened()),
        (0.0, started()),
        (0.0, waited.clone()),
        (0.0, waited),
        (0.0, ended(u64::MAX)),
        (0.0, started()),
        (0.0, ended(u64::MAX)),
    ];
    assert_eq!(stats(&lines).total.ms, u64::MAX);
}

#[test]
fn an_ask_of_a_run_that_ended_is_not_open() {
    let asked = json!({ "kind": "asked", "ask": { "id": "a1", "about": { "is": "question", "text": "which?" } } });
    let lines = [
        (0.0, opened()),
        (0.0, started()),
        (0.0, asked),
        (0.0, ended(1)),
    ];
    assert_eq!(stats(&lines[..3]).total.asks.open, 1);
    let stats = stats(&lines);
    assert_eq!(
        (
            stats.total.asks.count,
            stats.total.asks.open,
            stats.runs[0].sum.asks.open
        ),
        (1, 0, 0)
    );
}

#[test]
fn runs_are_grouped_by_day_and_agent_and_totals_have_the_share_of_the_cache() {
    let mut with_codex = started();
    with_codex["flags"] = json!({ "runtime": "codex" });
    let mut with_auto = started();
    with_auto["flags"] = json!({ "runtime": "auto" });
    let stats = stats(&[
        (0.0, opened()),
        (1.0, with_codex),
        (2.0, ended(10)),
        (3.0, with_auto),
        (4.0, spent("m", Some(5))),
        (86_401.0, started()),
        (86_402.0, ended(20)),
    ]);
    let names = |by: StatsBy| {
        let rows = stats.rows(by).into_iter();
        rows.filter_map(|row| match row {
            StatRow::Runs(group) => Some((group.name, group.runs)),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    let row = |name: &str, runs: u64| (name.to_owned(), runs);
    assert_eq!(
        names(StatsBy::Day),
        [row("1970-01-01", 2), row("1970-01-02", 1)]
    );
    assert_eq!(names(StatsBy::Agent), [row("codex", 1), row("native", 2)]);
    assert_eq!(json!(stats)["total"]["cache_hits"], 0.75);
}
