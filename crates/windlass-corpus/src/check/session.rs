//! Checks of sessions: the state of a log, the content of the next request, and whether the session can be resumed.

use serde_json::Value;

use crate::facts::{CaseFacts, Resumed};
use crate::holds;
use crate::kind::{self, paired};
use crate::product;
use crate::server::body;

pub(super) fn check(facts: &mut CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    match name {
        "session_survives" => {
            if let Some(survived) = &facts.survived {
                survived.clone()?;
            }
            return kind::check_session_works(facts);
        }
        "no_grant_from_log" => return kind::probe_grant(facts),
        "mode_is_not" => {
            let mode = post["mode"].as_str().ok_or("the check has no `mode`")?;
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
                "the complete lines were changed".to_owned()
            })?;
            sent(facts, "the earlier conversation")
        }
        "history_complete" => {
            let whole = resumed
                .original
                .strip_suffix(b"\n")
                .unwrap_or(&resumed.original);
            holds(now.starts_with(whole), || {
                "the log has lost something".to_owned()
            })?;
            sent(facts, "the earlier conversation")
        }
        "warning_shown" => {
            // Other warnings, for example about a price, are not about the log.
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
            let call = resumed.open_call.as_ref().ok_or("no result was removed")?;
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
            format!("exit {}: it resumed", facts.main.code)
        }),
        "second_refused_or_forked" => together(facts, resumed),
        other => Err(format!("`{other}` is not a known check")),
    }
}

/// Checks that the model got the conversation from before the damage.
fn sent(facts: &CaseFacts<'_>, what: &str) -> Result<(), String> {
    let server = facts.server.as_ref().ok_or("there was no model server")?;
    let seen = server.received();
    let body = seen
        .last()
        .map(|request| body(request)["messages"].to_string())
        .unwrap_or_default();
    // The first prompt, and the result of the first call.
    holds(
        body.contains("hello world") && body.contains("\"go\""),
        || format!("the model did not get {what}"),
    )
}

fn stops_at_damage(
    facts: &CaseFacts<'_>,
    resumed: &Resumed,
    now: &[u8],
    refused: bool,
) -> Result<(), String> {
    if refused {
        return holds(!facts.main.err.trim().is_empty(), || {
            "it refuses without a message".to_owned()
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
        "the lines before the damage were changed".to_owned()
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
        "lines after the damage are still used".to_owned()
    })
}

/// Checks that the original bytes still exist: in the log, or in another file of the session.
fn original_kept(resumed: &Resumed, now: &[u8]) -> Result<(), String> {
    if now.starts_with(&resumed.damaged) {
        return Ok(());
    }
    let folder = resumed.log.parent().ok_or("the log has no folder")?;
    let aside = crate::fixture::CaseFixture::files(folder);
    let found = aside
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .any(|bytes| bytes.starts_with(&resumed.damaged));
    holds(found, || "the damaged log was not kept".to_owned())
}

/// Checks that only one of several engines resumed the session, and that the others reported why not or resumed a copy.
fn together(facts: &CaseFacts<'_>, resumed: &Resumed) -> Result<(), String> {
    let well = resumed.together.iter().filter(|ran| ran.code == 0).count();
    let refused = resumed
        .together
        .iter()
        .filter(|ran| ran.code != 0 && !ran.err.trim().is_empty())
        .count();
    let made = product::sessions(facts.fixture).len()
        - resumed
            .sessions_before
            .min(product::sessions(facts.fixture).len());
    holds(resumed.together.len() > 1, || {
        "only one engine ran".to_owned()
    })?;
    holds(well >= 1, || "no engine resumed the session".to_owned())?;
    holds(
        well + refused == resumed.together.len() && well <= 1 + made,
        || format!("{well} resumed, {refused} were refused, {made} sessions were created"),
    )
}

/// Checks that every line of every log is an event, numbered without gaps.
fn log_lines_valid(facts: &CaseFacts<'_>) -> Result<(), String> {
    let sessions = product::sessions(facts.fixture);
    holds(!sessions.is_empty(), || "there is no session".to_owned())?;
    for session in sessions {
        let text =
            std::fs::read_to_string(product::log_file(&session)).map_err(|err| err.to_string())?;
        for (at, line) in text.lines().enumerate() {
            let event: Value =
                serde_json::from_str(line).map_err(|err| format!("line {}: {err}", at + 1))?;
            let (kind, seq) = (event["kind"].is_string(), event["seq"].as_u64());
            holds(kind && seq == Some(at as u64 + 1), || {
                format!("line {} is not an event with the right number", at + 1)
            })?;
        }
    }
    Ok(())
}

/// Checks that no duration in the log is negative or longer than an hour, whatever the clock said.
fn times_not_negative(facts: &CaseFacts<'_>) -> Result<(), String> {
    const LONGEST_MS: u64 = 3_600_000;
    for event in product::log(facts.fixture) {
        let ms = &event["data"]["ms"];
        let sound = ms.is_null() || ms.as_u64().is_some_and(|ms| ms <= LONGEST_MS);
        holds(sound, || format!("{} took {ms} ms", event["kind"]))?;
    }
    Ok(())
}
