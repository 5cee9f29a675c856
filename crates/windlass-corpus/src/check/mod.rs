//! Evaluates the post-conditions. An unknown check fails.

mod events;
mod files;
mod output;
mod session;
mod surface;

use serde_json::Value;

use crate::case::Decision;
use crate::facts::CaseFacts;
use crate::schema::{self, Area};

/// Returns what is wrong with the decision.
pub(crate) fn decision(facts: &CaseFacts<'_>) -> Vec<String> {
    let case = facts.case;
    let mut wrong = Vec::new();
    if facts.main.overdue {
        wrong.push("it did not end before its deadline".to_owned());
    }
    let accepted = facts
        .reached
        .iter()
        .find(|reached| case.accepted.contains(reached));
    // A feature that does not exist refuses everything.
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

/// Everyday work must not only be allowed: it must succeed.
fn worked(facts: &CaseFacts<'_>) -> Option<String> {
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

/// Evaluates one post-condition; the error tells why it does not hold.
pub(crate) fn check(facts: &mut CaseFacts<'_>, post: &Value) -> Result<(), String> {
    let name = post["check"]
        .as_str()
        .ok_or("a post-condition has no `check`")?;
    match schema::area(name) {
        Some(Area::Files) => files::check(facts, name, post),
        Some(Area::Output) => output::check(facts, name, post),
        Some(Area::Session) => session::check(facts, name, post),
        Some(Area::Events) => events::check(facts, name, post),
        Some(Area::Surface) => surface::check(facts, name, post),
        None => Err(format!("`{name}` is not a known check")),
    }
}
