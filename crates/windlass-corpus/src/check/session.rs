//! Checks of sessions: what became of a log, what the next request holds, and whether the work can go on.

use serde_json::Value;

use crate::facts::{Facts, Resumed};
use crate::holds;
use crate::kind::{self, paired};
use crate::product;
use crate::server::body;

pub(super) fn check(facts: &mut Facts<'_>, name: &str, post: &Value) -> Result<(), String> {
    match name {
        "session_survives" => return kind::survives(facts),
        "no_grant_from_log" => return kind::probe_grant(facts),
        "mode_is_not" => {
            let mode = post["mode"].as_str().ok_or("it gives no `mode`")?;
            return kind::probe_rights(facts, mode);
        }
        "log_lines_valid" => return log_lines_valid(facts),
        "times_not_negative" => return times_not_negative(facts),
        _ => {}
    }
    let resumed = facts.resumed.as_ref().ok_or("no session was resumed")?;
    let now = std::fs::read(&resumed.log).unwrap_or_default();
    let refused = facts.main.code != 0;
    let told = !facts.main.err.trim().is_empty();
    match name {
        "history_equals_prefix" => {
            holds(now.starts_with(&resumed.whole), || {
                "the lines that were whole are not as they were".to_owned()
            })?;
            sent(facts, "what was said before")
        }
        "history_complete" => {
            let whole = resumed
                .original
                .strip_suffix(b"\n")
                .unwrap_or(&resumed.original);
            holds(now.starts_with(whole), || {
                "the log has lost something".to_owned()
            })?;
            sent(facts, "what was said before")
        }
        "warning_shown" => {
            // Other warnings, as about a price, say nothing of the log.
            let about = |event: &&Value| {
                event["data"]["code"]
                    .as_str()
                    .is_some_and(|code| code.starts_with("log"))
            };
            let warned = product::of(&facts.events, "warned").find(about).is_some();
            holds(warned && facts.main.err.contains("warning"), || {
                format!("{:?}", facts.main.err)
            })
        }
        "next_append_on_new_line" => {
            holds(now.len() > resumed.original.len(), || {
                "nothing was added".to_owned()
            })?;
            log_lines_valid(facts)
        }
        "refuses_or_stops_at_damage" => stops_at_damage(facts, resumed, &now, refused),
        "original_file_kept" => original_kept(resumed, &now),
        "refuses_with_message" => holds(refused && told, || format!("exit {}", facts.main.code)),
        "request_valid_for_provider" => {
            let server = facts.server.as_ref().ok_or("there was no model server")?;
            let seen = server.received();
            holds(!seen.is_empty(), || "no request was made".to_owned())?;
            holds(seen.iter().all(|request| paired(&body(request))), || {
                "a call without its result, or a result without its call".to_owned()
            })
        }
        "interrupted_result_synthesised" => {
            let call = resumed
                .open_call
                .as_ref()
                .ok_or("no result was taken away")?;
            let server = facts.server.as_ref().ok_or("there was no model server")?;
            let seen = server.received();
            let body = seen
                .last()
                .map(|request| body(request)["messages"].to_string())
                .unwrap_or_default();
            let answered = body.contains(&format!("\"tool_use_id\":\"{call}\""));
            holds(answered, || format!("the call {call} has no result"))
        }
        "asks_or_refuses_workspace_change" => holds(refused && told, || {
            format!("exit {}: it went on", facts.main.code)
        }),
        "second_refused_or_forked" => together(facts, resumed),
        other => Err(format!("`{other}` is not a check that is known here")),
    }
}

/// The model was told what happened before the damage.
fn sent(facts: &Facts<'_>, what: &str) -> Result<(), String> {
    let server = facts.server.as_ref().ok_or("there was no model server")?;
    let seen = server.received();
    let body = seen
        .last()
        .map(|request| body(request)["messages"].to_string())
        .unwrap_or_default();
    // The first prompt and what the first call brought.
    holds(
        body.contains("hello world") && body.contains("\"go\""),
        || format!("the model did not hear {what}"),
    )
}

fn stops_at_damage(
    facts: &Facts<'_>,
    resumed: &Resumed,
    now: &[u8],
    refused: bool,
) -> Result<(), String> {
    if refused {
        return holds(!facts.main.err.trim().is_empty(), || {
            "it refuses without a word".to_owned()
        });
    }
    let at = resumed
        .damaged_at
        .ok_or("nothing was damaged in the middle")?;
    let kept: Vec<&[u8]> = resumed
        .original
        .split(|byte| *byte == b'\n')
        .take(at)
        .collect();
    holds(now.starts_with(&kept.join(&b'\n')), || {
        "the lines before the damage are not as they were".to_owned()
    })?;
    let after: Vec<&[u8]> = resumed
        .original
        .split(|byte| *byte == b'\n')
        .skip(at)
        .filter(|line| !line.is_empty())
        .collect();
    let silent = after
        .iter()
        .any(|line| now.windows(line.len()).any(|window| window == *line));
    holds(!silent, || {
        "what stood behind the damage is still used".to_owned()
    })
}

/// The bytes that were there are still there: in the log, or set aside beside it.
fn original_kept(resumed: &Resumed, now: &[u8]) -> Result<(), String> {
    if now.starts_with(&resumed.damaged) {
        return Ok(());
    }
    let folder = resumed.log.parent().ok_or("the log has no folder")?;
    let aside = crate::fixture::Fixture::files(folder);
    let found = aside
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .any(|bytes| bytes.starts_with(&resumed.damaged));
    holds(found, || "the damaged log is nowhere".to_owned())
}

/// Of several engines on one session one went on; the others said why not, or went on with a copy.
fn together(facts: &Facts<'_>, resumed: &Resumed) -> Result<(), String> {
    let well = resumed.together.iter().filter(|ran| ran.code == 0).count();
    let refused = resumed
        .together
        .iter()
        .filter(|ran| ran.code != 0 && !ran.err.trim().is_empty())
        .count();
    let made = product::sessions(facts.place).len()
        - resumed
            .sessions_before
            .min(product::sessions(facts.place).len());
    holds(resumed.together.len() > 1, || {
        "only one engine ran".to_owned()
    })?;
    holds(well >= 1, || "nobody could go on".to_owned())?;
    holds(
        well + refused == resumed.together.len() && well <= 1 + made,
        || format!("{well} went on, {refused} were refused, {made} sessions were made"),
    )
}

/// Every line of every log is an event, numbered without gaps.
fn log_lines_valid(facts: &Facts<'_>) -> Result<(), String> {
    let sessions = product::sessions(facts.place);
    holds(!sessions.is_empty(), || "there is no session".to_owned())?;
    for session in sessions {
        let text =
            std::fs::read_to_string(product::log_file(&session)).map_err(|err| err.to_string())?;
        for (at, line) in text.lines().enumerate() {
            let event: Value =
                serde_json::from_str(line).map_err(|err| format!("line {}: {err}", at + 1))?;
            let (kind, seq) = (event["kind"].is_string(), event["seq"].as_u64());
            holds(kind && seq == Some(at as u64 + 1), || {
                format!("line {} is no event in its place", at + 1)
            })?;
        }
    }
    Ok(())
}

/// No duration in any log is negative or longer than the case ran, whatever the clock said.
fn times_not_negative(facts: &Facts<'_>) -> Result<(), String> {
    const LONGEST_MS: u64 = 3_600_000;
    for event in product::log(facts.place) {
        let ms = &event["data"]["ms"];
        let sound = ms.is_null() || ms.as_u64().is_some_and(|ms| ms <= LONGEST_MS);
        holds(sound, || format!("{} took {ms} ms", event["kind"]))?;
    }
    Ok(())
}
