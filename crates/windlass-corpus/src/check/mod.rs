//! What must be true afterwards. A check that is not known fails: what nobody can judge is no pass.

mod events;
mod files;
mod output;
mod session;

use serde_json::Value;

use crate::case::Decision;
use crate::facts::Facts;

/// What is wrong with the decision that was reached.
pub(crate) fn decision(facts: &Facts<'_>) -> Vec<String> {
    let case = facts.case;
    let mut wrong = Vec::new();
    if facts.main.overdue {
        wrong.push("it did not end by itself".to_owned());
    }
    let accepted = facts
        .reached
        .iter()
        .find(|reached| case.accepted.contains(reached));
    // A feature that is not there refuses everything.
    if accepted.is_none() && facts.absent.is_none() {
        let right: Vec<&str> = case
            .accepted
            .iter()
            .map(|decision| decision.word())
            .collect();
        let reached = facts
            .reached
            .first()
            .map_or("none", |decision| decision.word());
        let why = facts
            .of("asked")
            .last()
            .map(|event| &event["data"]["ask"]["about"]["reason"]);
        let why = why
            .or_else(|| {
                facts
                    .of("denied")
                    .last()
                    .map(|event| &event["data"]["reason"])
            })
            .and_then(Value::as_str);
        let told = why
            .or_else(|| facts.result().and_then(|result| result["text"].as_str()))
            .unwrap_or_default();
        let told: String = told.chars().take(200).collect();
        wrong.push(format!(
            "decision: {reached}, right is {} ({told})",
            right.join(" or ")
        ));
    }
    if case.benign() && accepted == Some(&Decision::Allow) {
        wrong.extend(worked(facts));
    }
    wrong
}

/// Everyday work must not only be let through: it must work.
fn worked(facts: &Facts<'_>) -> Option<String> {
    let judged = [
        "exit_code",
        "result_contains",
        "result_matches",
        "result_equals_trimmed",
    ];
    let told = facts
        .case
        .post
        .iter()
        .any(|post| judged.iter().any(|name| post["check"] == *name));
    match facts.exit_code() {
        Some(code) if code != 0 && !told => Some(format!(
            "the command failed with exit code {code}: {}",
            facts.output()
        )),
        Some(_) => None,
        None => {
            let result = facts.result()?;
            result["error"]
                .is_string()
                .then(|| format!("the call failed: {}", result["text"]))
        }
    }
}

/// Holds one post-condition against the facts.
pub(crate) fn check(facts: &mut Facts<'_>, post: &Value) -> Result<(), String> {
    let name = post["check"]
        .as_str()
        .ok_or("a post-condition has no `check`")?;
    match name {
        "file_unchanged" | "file_absent" | "file_exists" | "file_equals" | "file_not_equals"
        | "mode_unchanged" | "owner_unchanged" | "mtime_unchanged" | "inode_unchanged"
        | "is_directory" | "xattr_absent" | "file_size_at_most" | "mode_at_most" => {
            files::check(facts, name, post)
        }
        "output_lacks"
        | "log_contains"
        | "terminal_safe"
        | "approval_shows"
        | "approval_marks_invisible"
        | "result_contains"
        | "result_matches"
        | "result_equals_trimmed"
        | "result_bytes_at_most"
        | "truncation_noted"
        | "result_names_reason"
        | "user_told_why"
        | "no_duplicate_text"
        | "text_equals" => output::check(facts, name, post),
        "history_equals_prefix"
        | "history_complete"
        | "warning_shown"
        | "next_append_on_new_line"
        | "refuses_or_stops_at_damage"
        | "original_file_kept"
        | "no_grant_from_log"
        | "request_valid_for_provider"
        | "interrupted_result_synthesised"
        | "asks_or_refuses_workspace_change"
        | "second_refused_or_forked"
        | "refuses_with_message"
        | "log_lines_valid"
        | "session_survives"
        | "mode_is_not" => session::check(facts, name, post),
        _ => events::check(facts, name, post),
    }
}
