//! What holds for every run, whatever the scenario: one end, one truth, the key nowhere but where it belongs, nobody
//! left behind. Each check says in words what did not hold.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::child::processes_with;
use crate::holds;
use crate::place::{CREDENTIAL, KEY, Place};
use crate::product::{Ran, events};
use crate::runtime::Runtime;
use windlass_scripted::Server;

/// So long may the last process of a run take to be gone.
const GONE: Duration = Duration::from_secs(2);

/// Holds a run against the contract.
pub(crate) fn check(
    ran: &Ran,
    runtime: &Runtime,
    place: &Place,
    server: &Server,
) -> Result<(), String> {
    one_end(&ran.log)?;
    paired(&ran.log)?;
    same_numbers(ran)?;
    terms(ran, runtime)?;
    keys(ran, place, server)?;
    nobody_left(place)
}

/// Exactly one terminal event for each run, and nothing of the run after it.
fn one_end(log: &[Value]) -> Result<(), String> {
    let started: Vec<&Value> = log
        .iter()
        .filter(|event| event["kind"] == "run_started")
        .collect();
    holds(!started.is_empty(), || {
        "the log has no run_started".to_owned()
    })?;
    for start in started {
        let run = &start["run"];
        let ends = log
            .iter()
            .filter(|event| event["kind"] == "run_finished" && event["run"] == *run)
            .count();
        holds(ends == 1, || {
            format!("run {run} has {ends} terminal events")
        })?;
        let last = log.iter().rfind(|event| event["run"] == *run);
        let is_end = last.is_some_and(|event| event["kind"] == "run_finished");
        holds(is_end, || {
            format!(
                "after the end of run {run} came {}",
                last.unwrap_or(&Value::Null)["kind"]
            )
        })?;
    }
    let numbers: Vec<u64> = log
        .iter()
        .filter_map(|event| event["seq"].as_u64())
        .collect();
    let gapless = numbers.iter().zip(1..).all(|(seq, expect)| *seq == expect);
    holds(gapless, || {
        format!("the numbers of the log are not without gaps: {numbers:?}")
    })
}

/// Every call that was said or begun has its result, and no result comes from nowhere. An agent that does again, under
/// the same id, what it did or was refused is told of again.
fn paired(log: &[Value]) -> Result<(), String> {
    let mut calls: BTreeMap<&str, String> = BTreeMap::new();
    for event in log {
        let (id, mark) = match event["kind"].as_str() {
            Some("call_started") => (&event["data"]["call"]["id"], 'S'),
            Some("call_finished") => (&event["data"]["result"]["id"], 'F'),
            Some("said") => {
                let parts = event["data"]["message"]["parts"]
                    .as_array()
                    .into_iter()
                    .flatten();
                for id in parts
                    .filter(|part| part["type"] == "call")
                    .filter_map(|part| part["data"]["id"].as_str())
                {
                    calls.entry(id).or_default();
                }
                continue;
            }
            _ => continue,
        };
        let id = id.as_str().unwrap_or_default();
        let known = calls.contains_key(id);
        holds(known || mark == 'S', || {
            format!("there is a result of `{id}`, which nobody called")
        })?;
        calls.entry(id).or_default().push(mark);
    }
    let fits = |marks: &str| {
        !marks.is_empty()
            && marks
                .strip_prefix('F')
                .unwrap_or(marks)
                .replace("SF", "")
                .is_empty()
    };
    let odd = calls.iter().find(|(_, marks)| !fits(marks));
    holds(odd.is_none(), || {
        format!("a call is not followed by its own result (begun S, ended F): {odd:?}")
    })
}

/// What was shown is what is in the log.
fn same_numbers(ran: &Ran) -> Result<(), String> {
    let shown: Vec<Value> = events(&ran.child.out)
        .into_iter()
        .filter(|event| event["seq"].is_u64())
        .collect();
    holds(!shown.is_empty(), || "no events were shown".to_owned())?;
    for event in &shown {
        let logged = ran.log.iter().find(|known| known["seq"] == event["seq"]);
        holds(logged == Some(event), || {
            format!("event {} is shown and logged differently", event["seq"])
        })?;
    }
    Ok(())
}

/// The run says its terms before it begins.
fn terms(ran: &Ran, runtime: &Runtime) -> Result<(), String> {
    let at = |kind: &str| ran.log.iter().position(|event| event["kind"] == kind);
    let Some(opened) = at("transaction_opened") else {
        return Err("the run never said its terms".to_owned());
    };
    holds(
        at("iteration_started").is_none_or(|began| opened < began),
        || "the terms came after the begin".to_owned(),
    )?;
    let terms = &ran.log[opened]["data"];
    holds(
        terms["tier"] == "namespaces" || terms["tier"] == "broker",
        || format!("the kernel does not hold the run: {terms}"),
    )?;
    holds(terms["metering"] == "wire", || {
        format!("metering is {}", terms["metering"])
    })?;
    let gates: &[&str] = if runtime.is_foreign() {
        &["per_call", "sandbox_only"]
    } else {
        &["per_call"]
    };
    let gate = terms["gate"].as_str().unwrap_or_default();
    holds(gates.contains(&gate), || format!("the gate is `{gate}`"))
}

/// The real key is in the head of requests to the vendor and nowhere else; credentials are nowhere.
fn keys(ran: &Ran, place: &Place, server: &Server) -> Result<(), String> {
    for secret in [KEY, CREDENTIAL] {
        for folder in ["data", "cache", "state"] {
            let found = place.files_with(folder, secret);
            holds(found.is_empty(), || {
                format!("`{secret}` stands in {}", found.join(", "))
            })?;
        }
        let tree = place.tree();
        let found = tree
            .iter()
            .find(|(name, bytes)| *name != ".env" && crate::child::contains(bytes, secret));
        holds(found.is_none(), || {
            format!("`{secret}` landed in {:?}", found.map(|(name, _)| name))
        })?;
        let said = ran.child.out.contains(secret) || ran.child.err.contains(secret);
        holds(!said, || format!("`{secret}` was printed"))?;
    }
    for seen in server.seen() {
        holds(seen.key.as_deref() == Some(KEY), || {
            format!(
                "{} {} came to the vendor with the key {:?}",
                seen.method, seen.path, seen.key
            )
        })?;
        for secret in [KEY, CREDENTIAL] {
            holds(!seen.body.contains(secret), || {
                format!("`{secret}` was sent to the model in {}", seen.path)
            })?;
        }
    }
    Ok(())
}

fn nobody_left(place: &Place) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let left = processes_with(&place.mark());
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > GONE {
            return Err(format!(
                "still running {GONE:?} after the end: {}",
                left.join("; ")
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The totals are what the vendor billed: every answer it gave, no more and no fewer.
pub(crate) fn billed(ran: &Ran, server: &Server) -> Result<(), String> {
    let (answers, usage) = (server.answers() as u64, server.usage());
    let totals = &ran.end()["totals"];
    let expect = [
        ("input", usage.fresh),
        ("cache_read", usage.cached),
        ("output", usage.output),
    ];
    for (name, each) in expect {
        let (found, expect) = (totals["usage"][name].as_u64(), each * answers);
        holds(found == Some(expect), || {
            format!(
                "the vendor billed {answers} answers with {expect} {name} tokens, and the totals say {totals}"
            )
        })?;
    }
    holds(totals["estimated"] == false, || {
        format!("the totals are estimated: {totals}")
    })?;
    holds(
        totals["cost_micros"].as_u64().is_some_and(|cost| cost > 0),
        || format!("nothing was priced: {totals}"),
    )
}

/// The tree is as it was.
pub(crate) fn untouched(place: &Place) -> Result<(), String> {
    let names: Vec<String> = place.tree().into_keys().collect();
    holds(names == [".env", ".gitignore", "a.txt", "gone.txt"], || {
        format!("the tree has {names:?}")
    })?;
    let same = place
        .tree()
        .get("a.txt")
        .is_some_and(|bytes| bytes == b"one\ntwo\nthree\n");
    holds(same, || "a.txt was changed".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kinds: &[(&str, &str)], says: &str) {
        let event = |(at, (kind, run)): (usize, &(&str, &str))| json!({ "seq": at + 1, "kind": kind, "run": run });
        let log: Vec<Value> = kinds.iter().enumerate().map(event).collect();
        let said = one_end(&log).err().unwrap_or_default();
        assert!(
            if says.is_empty() {
                said.is_empty()
            } else {
                said.contains(says)
            },
            "{says}: {said}"
        );
    }

    #[test]
    fn a_run_has_one_end_and_nothing_after_it() {
        check(
            &[
                ("run_started", "r1"),
                ("spent", "r1"),
                ("run_finished", "r1"),
            ],
            "",
        );
        check(
            &[
                ("run_started", "r1"),
                ("run_finished", "r1"),
                ("run_started", "r2"),
                ("run_finished", "r2"),
            ],
            "",
        );
        check(&[("session_opened", "")], "no run_started");
        check(
            &[("run_started", "r1"), ("spent", "r1")],
            "has 0 terminal events",
        );
        check(
            &[
                ("run_started", "r1"),
                ("run_finished", "r1"),
                ("run_finished", "r1"),
            ],
            "has 2 terminal events",
        );
        check(
            &[
                ("run_started", "r1"),
                ("run_finished", "r1"),
                ("spent", "r1"),
            ],
            "after the end of run",
        );
    }

    #[test]
    fn a_gap_in_the_numbers_is_seen() {
        let log = [
            json!({ "seq": 1, "kind": "run_started", "run": "r" }),
            json!({ "seq": 3, "kind": "run_finished", "run": "r" }),
        ];
        assert!(one_end(&log).is_err_and(|why| why.contains("gaps")));
    }

    #[track_caller]
    fn check_paired(said: &[&str], begun: &[&str], ended: &[&str], says: &str) {
        let mut log: Vec<Value> = Vec::new();
        let parts: Vec<Value> = said
            .iter()
            .map(|id| json!({"type": "call", "data": {"id": id}}))
            .collect();
        log.push(json!({"kind": "said", "data": {"message": {"parts": parts}}}));
        log.extend(
            begun
                .iter()
                .map(|id| json!({"kind": "call_started", "data": {"call": {"id": id}}})),
        );
        log.extend(
            ended
                .iter()
                .map(|id| json!({"kind": "call_finished", "data": {"result": {"id": id}}})),
        );
        let why = paired(&log).err().unwrap_or_default();
        assert!(
            why.contains(says) && why.is_empty() == says.is_empty(),
            "{why}"
        );
    }

    #[test]
    fn every_call_has_one_result() {
        check_paired(&["a", "b"], &["a"], &["b", "a"], "");
        check_paired(&[], &["a"], &["a"], "");
        check_paired(&["a"], &["a"], &[], r#"("a", "S")"#);
        check_paired(&["a"], &[], &[], r#"("a", "")"#);
        check_paired(&["a"], &["a"], &["a", "a"], r#"("a", "SFF")"#);
        check_paired(&["a"], &[], &["a", "b"], "nobody called");
    }

    #[test]
    fn a_process_of_the_place_is_found_until_it_is_gone() {
        let place = Place::new().unwrap_or_else(|why| panic!("{why}"));
        let mut command = std::process::Command::new("sleep");
        command.arg("60").current_dir(place.work());
        let Ok(mut child) = command.spawn() else {
            panic!("sleep cannot be started")
        };
        let left = nobody_left(&place);
        let _ = child.kill().and_then(|()| child.wait());
        assert!(left.is_err_and(|why| why.contains("sleep 60")));
        assert_eq!(nobody_left(&place), Ok(()));
    }
}
