//! Checks that apply to every run of every scenario: one terminal event, equal events in log and output, no leaked
//! secrets, and no processes left behind. Each check returns a message about the violation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::child::processes_with;
use crate::holds;
use crate::product::{FinishedRun, events};
use crate::runtime::KitRuntime;
use crate::scratch_dir::{CREDENTIAL, KEY, ScratchDir};
use windlass_scripted::Server;

/// The time in which all processes of a run must exit after its end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks a run against the contract.
pub(crate) fn check(
    run: &FinishedRun,
    runtime: &KitRuntime,
    scratch: &ScratchDir,
    server: &Server,
) -> Result<(), String> {
    one_end(&run.log)?;
    paired(&run.log)?;
    same_events(run)?;
    terms(run, runtime)?;
    keys(run, scratch, server)?;
    no_processes_left(scratch)
}

/// Checks that each run has exactly one terminal event, that no event of the run follows it, and that the sequence
/// numbers have no gaps.
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
                "the event {} follows the end of run {run}",
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
        format!("the sequence numbers of the log have gaps: {numbers:?}")
    })
}

/// Checks that every requested or started call has a result, and that every result has a call. An agent may repeat a
/// call with the same id, also after a denial.
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
            format!("there is a result of `{id}`, but no call")
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
        format!("a call is not followed by its own result (started S, finished F): {odd:?}")
    })
}

/// Checks that the printed events equal those in the log.
fn same_events(run: &FinishedRun) -> Result<(), String> {
    let printed: Vec<Value> = events(&run.child.out)
        .into_iter()
        .filter(|event| event["seq"].is_u64())
        .collect();
    holds(!printed.is_empty(), || "no events were printed".to_owned())?;
    for event in &printed {
        let logged = run.log.iter().find(|known| known["seq"] == event["seq"]);
        holds(logged == Some(event), || {
            format!("event {} differs between output and log", event["seq"])
        })?;
    }
    Ok(())
}

/// Checks that the terms of the run (sandbox tier, metering, gate) are logged before its first iteration.
fn terms(run: &FinishedRun, runtime: &KitRuntime) -> Result<(), String> {
    let at = |kind: &str| run.log.iter().position(|event| event["kind"] == kind);
    let Some(opened) = at("transaction_opened") else {
        return Err("the terms of the run are not in the log".to_owned());
    };
    holds(
        at("iteration_started").is_none_or(|began| opened < began),
        || "the terms are logged after the start of the run".to_owned(),
    )?;
    let terms = &run.log[opened]["data"];
    holds(
        terms["tier"] == "namespaces" || terms["tier"] == "broker",
        || format!("the kernel does not confine the run: {terms}"),
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

/// Checks that the real key is only in the headers of requests to the vendor, and that credentials appear nowhere.
fn keys(run: &FinishedRun, scratch: &ScratchDir, server: &Server) -> Result<(), String> {
    for secret in [KEY, CREDENTIAL] {
        for folder in ["data", "cache", "state"] {
            let found = scratch.files_with(folder, secret);
            holds(found.is_empty(), || {
                format!("`{secret}` is in {}", found.join(", "))
            })?;
        }
        let tree = scratch.tree();
        let found = tree
            .iter()
            .find(|(name, bytes)| *name != ".env" && crate::child::contains(bytes, secret));
        holds(found.is_none(), || {
            format!("`{secret}` landed in {:?}", found.map(|(name, _)| name))
        })?;
        let printed = run.child.out.contains(secret) || run.child.err.contains(secret);
        holds(!printed, || format!("`{secret}` was printed"))?;
    }
    for seen in server.seen() {
        holds(seen.key.as_deref() == Some(KEY), || {
            format!(
                "{} {} was sent to the vendor with the key {:?}",
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

fn no_processes_left(scratch: &ScratchDir) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let left = processes_with(&scratch.mark());
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > EXIT_TIMEOUT {
            return Err(format!(
                "still running {EXIT_TIMEOUT:?} after the end: {}",
                left.join("; ")
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that the totals equal the bill of the vendor for all its answers.
pub(crate) fn billed(run: &FinishedRun, server: &Server) -> Result<(), String> {
    let (answers, usage) = (server.answers() as u64, server.usage());
    let totals = &run.end()["totals"];
    let expect = [
        ("input", usage.fresh),
        ("cache_read", usage.cached),
        ("output", usage.output),
    ];
    for (name, each) in expect {
        let (found, expect) = (totals["usage"][name].as_u64(), each * answers);
        holds(found == Some(expect), || {
            format!(
                "the vendor billed {answers} answers with {expect} {name} tokens, but the totals are {totals}"
            )
        })?;
    }
    holds(totals["estimated"] == false, || {
        format!("the totals are estimated: {totals}")
    })?;
    holds(
        totals["cost_micros"].as_u64().is_some_and(|cost| cost > 0),
        || format!("the totals have no cost: {totals}"),
    )
}

/// Checks that the repository is unchanged.
pub(crate) fn untouched(scratch: &ScratchDir) -> Result<(), String> {
    let names: Vec<String> = scratch.tree().into_keys().collect();
    holds(names == [".env", ".gitignore", "a.txt", "gone.txt"], || {
        format!("the repository contains {names:?}")
    })?;
    let same = scratch
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
        let error = one_end(&log).err().unwrap_or_default();
        assert!(
            if says.is_empty() {
                error.is_empty()
            } else {
                error.contains(says)
            },
            "{says}: {error}"
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
            "follows the end of run",
        );
    }

    #[test]
    fn a_gap_in_the_sequence_numbers_is_an_error() {
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
        check_paired(&["a"], &[], &["a", "b"], "but no call");
    }

    #[test]
    fn a_process_is_found_until_it_exits() {
        let scratch = ScratchDir::new().unwrap_or_else(|why| panic!("{why}"));
        let mut command = std::process::Command::new("sleep");
        command.arg("60").current_dir(scratch.work());
        let Ok(mut child) = command.spawn() else {
            panic!("sleep cannot be started")
        };
        let left = no_processes_left(&scratch);
        let _ = child.kill().and_then(|()| child.wait());
        assert!(left.is_err_and(|why| why.contains("sleep 60")));
        assert_eq!(no_processes_left(&scratch), Ok(()));
    }
}
