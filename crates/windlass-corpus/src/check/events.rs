//! Checks of events and of the machine: calls, approvals, processes, connections, times, requests.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::facts::CaseFacts;
use crate::holds;
use crate::kind::paired;
use crate::processes;
use crate::product::{self, named};
use crate::server::body;

pub(super) fn check(facts: &mut CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    match name {
        "no_connection"
        | "no_header_at_listener"
        | "canary_alive"
        | "no_process_with_marker"
        | "process_peak_at_most"
        | "engine_rss_at_most"
        | "no_argv_contains"
        | "no_controlling_tty" => machine(facts, name, post),
        "finishes_within_ms"
        | "idle_timeout_fires_within_ms"
        | "cancel_works_within_ms"
        | "waited_at_least_ms" => times(facts, name, post),
        _ if facts.rounds.is_empty() => calls(facts, name, post),
        // The check must hold each time that the requests were sent.
        _ => {
            let rounds = std::mem::take(&mut facts.rounds);
            let held = rounds.iter().try_for_each(|round| {
                facts.events.clone_from(&round.events);
                calls(facts, name, post)
            });
            facts.rounds = rounds;
            held
        }
    }
}

fn number(post: &Value, key: &str) -> Result<u64, String> {
    post[key]
        .as_u64()
        .ok_or_else(|| format!("the check has no `{key}`"))
}

fn calls(facts: &CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let asked = || facts.of("asked").next().is_some();
    let started = facts.started().count() as u64;
    match name {
        "no_prompt" => holds(!asked(), || "the user was asked".to_owned()),
        "approval_requested" => {
            let refused = facts.of("denied").next().is_some();
            holds(asked() || refused, || "the user was not asked".to_owned())
        }
        "not_executed" => holds(started == 0, || "a call was started".to_owned()),
        "executed_exactly" => holds(started == number(post, "times")?, || started.to_string()),
        "executed_at_most" => holds(started <= number(post, "times")?, || started.to_string()),
        "exit_code" => {
            let wanted = post["code"].as_i64().ok_or("the check has no `code`")?;
            holds(facts.exit_code() == Some(wanted), || {
                format!("{:?}: {}", facts.exit_code(), facts.output())
            })
        }
        "exit_code_documented" => holds(product::CODES.contains(&facts.main.code), || {
            format!("exit {}", facts.main.code)
        }),
        "exit_nonzero" => holds(facts.main.code != 0, || "exit 0".to_owned()),
        "no_session_created" => holds(product::sessions(facts.fixture).is_empty(), || {
            "there is a session".to_owned()
        }),
        "tool_calls_equal" => {
            let calls: Vec<Value> = facts
                .started()
                .map(|call| json!({ "name": call["name"], "args": call["args"] }))
                .collect();
            let wanted: Value =
                serde_json::from_str(&named(&post["calls"].to_string())).unwrap_or_default();
            holds(json!(calls) == wanted, || {
                format!("{calls:?} instead of {wanted}")
            })
        }
        "outcome" => {
            let found = outcomes(facts);
            holds(
                crate::words(&post["one_of"]).any(|wanted| found.contains(wanted)),
                || format!("{found:?}"),
            )
        }
        "requests_made" => holds(facts.requests as u64 == number(post, "count")?, || {
            facts.requests.to_string()
        }),
        "requests_at_most" => holds(facts.requests as u64 <= number(post, "count")?, || {
            facts.requests.to_string()
        }),
        "budget_not_negative" => budget_not_negative(facts),
        "output_tokens_booked_at_least" => {
            let booked = facts
                .of("run_finished")
                .last()
                .and_then(|event| event["data"]["totals"]["usage"]["output"].as_u64())
                .ok_or("no total was booked")?;
            holds(booked >= number(post, "tokens")?, || {
                format!("{booked} tokens")
            })
        }
        "stopped_by_guard" => {
            let end = facts.of("run_finished").last();
            let outcome = end.map(|event| &event["data"]["outcome"]);
            holds(
                outcome.is_some_and(|outcome| outcome["reason"] == "repetition"),
                || format!("the run ended with {outcome:?}"),
            )
        }
        "landed" | "not_landed" => {
            let landed = facts.of("landed").next().is_some();
            holds(landed == (name == "landed"), || match landed {
                true => "it landed".to_owned(),
                false => "it did not land".to_owned(),
            })
        }
        "verdict_is" => {
            let validator = post["validator"]
                .as_str()
                .ok_or("the check has no `validator`")?;
            let verdict = facts
                .of("validated")
                .filter(|event| event["data"]["validator"] == validator)
                .last()
                .and_then(|event| event["data"]["report"]["verdict"].as_str())
                .ok_or_else(|| format!("no check `{validator}` was run"))?;
            holds(
                crate::words(&post["one_of"]).any(|wanted| wanted == verdict),
                || verdict.to_owned(),
            )
        }
        "findings_name" => {
            let text = facts
                .fixture
                .filled(post["text"].as_str().ok_or("the check has no `text`")?);
            let ending = facts.of("run_finished").last();
            let ending = ending
                .map(|event| event["data"].to_string())
                .unwrap_or_default();
            holds(ending.contains(&text), || {
                ending.chars().take(400).collect()
            })
        }
        "judge_changed_names" => {
            let ending = facts.of("run_finished").last();
            let judges = ending.map(|event| &event["data"]["judge_changed"]);
            let named = judges
                .is_some_and(|judges| crate::words(judges).any(|judge| post["path"] == judge));
            holds(named, || format!("{judges:?}"))
        }
        // The product must ignore impossible counts and use its own.
        "spending_is_sane" => {
            let spent = facts.of("spent").next().cloned().unwrap_or_default();
            let tokens = spent["data"]["total"]["usage"]["output"]
                .as_u64()
                .unwrap_or(u64::MAX);
            holds(tokens < 100_000 && !spent["data"]["call"].is_null(), || {
                spent.to_string()
            })
        }
        "results_pair_with_calls" => {
            let server = facts.server.as_ref().ok_or("there was no model server")?;
            let seen = server.received();
            holds(
                seen.len() > 1 && seen.iter().all(|request| paired(&body(request))),
                || "a call without its result, or a result without its call".to_owned(),
            )
        }
        "approval_matches_execution" => {
            let shown = facts
                .of("asked")
                .map(|event| &event["data"]["ask"]["about"]["call"]["args"]);
            let said = facts.of("said").find_map(|event| {
                event["data"]["message"]["parts"]
                    .as_array()?
                    .last()
                    .cloned()
            });
            let said = said.unwrap_or_default()["data"]["args"].clone();
            let all: Vec<&Value> = shown
                .chain(facts.started().map(|call| &call["args"]))
                .collect();
            holds(
                !all.is_empty() && all.iter().all(|args| **args == said),
                || format!("{all:?} {said}"),
            )
        }
        "mode_unchanged_session" => {
            let changed = facts.of("answered").next().is_some() || started > 0;
            holds(!changed, || "something was approved".to_owned())
        }
        "concurrency_at_most" => {
            let (mut running, mut most) = (0_i64, 0);
            for event in &facts.events {
                running += match event["kind"].as_str() {
                    Some("call_started") => 1,
                    Some("call_finished") => -1,
                    _ => 0,
                };
                most = most.max(running);
            }
            holds(most as u64 <= number(post, "count")?, || most.to_string())
        }
        "child_rights_subset" => holds(facts.absent.is_some(), || {
            "there are agents below agents, and no check exists for them yet".to_owned()
        }),
        // Both were checked while the case ran; a violation ended it there.
        "engine_argv_uses_separator" | "no_predictable_temp_paths" => Ok(()),
        other => Err(format!("`{other}` is not a known check")),
    }
}

/// Checks that no count of what was spent is negative, and that no total decreases.
fn budget_not_negative(facts: &CaseFacts<'_>) -> Result<(), String> {
    holds(facts.of("spent").next().is_some(), || {
        "nothing was booked".to_owned()
    })?;
    let mut last = 0;
    for event in facts.of("spent") {
        let data = &event["data"];
        let counts = [&data["call"], &data["total"]["usage"]];
        let numbers = counts
            .iter()
            .filter_map(|counts| counts.as_object())
            .flatten();
        let wrong = numbers
            .chain(
                data.as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| *name == "cost_micros"),
            )
            .find(|(_, count)| count.is_number() && count.as_u64().is_none());
        holds(wrong.is_none(), || format!("{wrong:?}"))?;
        let total = data["total"]["usage"]["output"].as_u64().unwrap_or(0);
        holds(total >= last, || {
            format!("the total fell from {last} to {total}")
        })?;
        last = total;
    }
    Ok(())
}

fn outcomes(facts: &CaseFacts<'_>) -> HashSet<&'static str> {
    let mut all = HashSet::new();
    all.insert(if facts.main.code == 0 { "ok" } else { "error" });
    let failed = facts
        .of("call_finished")
        .any(|event| !event["data"]["result"]["error"].is_null());
    if failed {
        all.insert("tool_error");
    }
    // The product repeated a request after an error or a cut answer.
    if facts.requests > 1 && facts.started().next().is_none() && !failed {
        all.insert("retried");
    }
    all
}

fn times(facts: &CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let ms = Duration::from_millis(number(post, "ms")?);
    let at_most = |what: Duration| holds(what <= ms, || format!("{what:?}"));
    match name {
        "finishes_within_ms" => at_most(facts.main.took),
        "idle_timeout_fires_within_ms" => {
            at_most(facts.main.took)?;
            let idle = |event: &Value| {
                event["data"]["reason"]
                    .as_str()
                    .is_some_and(|text| text.contains("sent no data"))
            };
            holds(facts.of("waited").any(idle), || {
                "no event reports the idle timeout".to_owned()
            })
        }
        "cancel_works_within_ms" => at_most(facts.main.stopped_in.unwrap_or(Duration::MAX)),
        _ => {
            let server = facts.server.as_ref().ok_or("there was no model server")?;
            let seen = server.received();
            let gap = seen
                .get(1)
                .zip(seen.first())
                .map(|(second, first)| second.at - first.at);
            holds(gap.is_some_and(|gap| gap >= ms), || format!("{gap:?}"))
        }
    }
}

fn machine(facts: &CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let seen = &facts.main.seen;
    match name {
        "no_connection" => {
            let proto = post["proto"].as_str().ok_or("the check has no `proto`")?;
            let mut listeners = facts
                .fixture
                .listeners
                .iter()
                .filter(|listener| listener.proto == proto)
                .peekable();
            holds(listeners.peek().is_some(), || {
                format!("nothing listens for {proto}")
            })?;
            let hits: usize = listeners.map(|listener| listener.hits()).sum();
            holds(hits == 0, || format!("{hits} came"))
        }
        "no_header_at_listener" => {
            let header = post["name"]
                .as_str()
                .ok_or("the check has no `name`")?
                .to_lowercase();
            let visits = facts
                .fixture
                .listeners
                .iter()
                .flat_map(|listener| listener.visits());
            let carries = |visit: Vec<u8>| {
                String::from_utf8_lossy(&visit)
                    .to_lowercase()
                    .contains(&format!("\n{header}:"))
            };
            let found = visits.into_iter().any(carries);
            holds(!found, || format!("the header {header} was sent"))
        }
        "canary_alive" => {
            holds(!facts.fixture.canaries.is_empty(), || {
                "there is no canary".to_owned()
            })?;
            let alive = |id: u32| {
                let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
                stat.rsplit(')')
                    .next()
                    .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
            };
            holds(
                facts
                    .fixture
                    .canaries
                    .iter()
                    .all(|canary| alive(canary.id())),
                || "it is dead".to_owned(),
            )
        }
        "no_process_with_marker" => {
            let patience = Duration::from_secs(post["within_s"].as_u64().unwrap_or(3));
            let began = Instant::now();
            loop {
                let left = processes::with_argument(facts.fixture.value("@MARK@"));
                if left.is_empty() {
                    return Ok(());
                }
                holds(began.elapsed() < patience, || {
                    format!("{} are left", left.len())
                })?;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        "process_peak_at_most" => {
            let most = number(post, "count")?;
            holds(seen.processes as u64 <= most, || {
                format!("{} at once", seen.processes)
            })
        }
        "engine_rss_at_most" => {
            let most = number(post, "bytes")?;
            holds(seen.memory <= most && seen.memory > 0, || {
                format!("{} MiB", seen.memory >> 20)
            })
        }
        "no_argv_contains" => holds(!seen.argument, || {
            "the arguments of a process contain it".to_owned()
        }),
        _ => holds(seen.with_terminal.is_empty(), || {
            format!("{:?} had the terminal", seen.with_terminal)
        }),
    }
}
