//! What an agent is told: the contract, what it cannot know, and the prompt; and what it is told again when it was stopped,
//! or has forgotten.

use windlass_core::message::{ErrorCategory, Part, Role, ToolResult};
use windlass_core::runtime::{Outlet, RuntimeError};

use super::AgentAttempt;
use crate::contract::CONTRACT;

/// Bytes of an earlier conversation that an agent is told which does not remember it.
const MAX_DIGEST: usize = 20_000;
/// Bytes of one message of it.
const MAX_MESSAGE: usize = 4_000;

/// What an agent that lives by the log is told after a person answered: the log has the rest.
const ANSWERED: &str = "\
You were stopped while a person was asked about a call of yours. They have answered, and the conversation has what came \
of the call. Go on with the task.";

/// What the agent is told first. One that lives by the log knows the contract and the conversation already.
pub(super) async fn opening(
    attempt: &AgentAttempt<'_>,
    by_the_log: bool,
) -> Result<String, RuntimeError> {
    let job = attempt.job;
    let picture = |part: &Part| matches!(part, Part::Image { .. });
    if job.prompt.parts.iter().any(picture) {
        let text = format!(
            "pictures are not passed on to {}; name the file in words instead",
            attempt.name
        );
        attempt.warn("not_passed_on", text).await?;
    }
    if !job.pending.is_empty() && by_the_log {
        // They are ours, so that they are run here, with the answers they have.
        for call in &job.pending {
            attempt.call(call.clone()).await?;
        }
        return Ok(ANSWERED.to_owned());
    }
    if !job.pending.is_empty() {
        return going_on(attempt).await;
    }
    let mut text = job.prompt.text();
    if let Some(wanted) = attempt.output {
        text.push_str(&format!(
            "\n\nWhen the task is done, answer with one JSON value and nothing around it. It must fit this JSON \
             Schema:\n{}",
            wanted.schema
        ));
    }
    Ok(if attempt.resume.is_none() && !by_the_log {
        told_anew(attempt, &text)
    } else {
        text
    })
}

/// What an agent is told that was stopped while a person was asked about its call. The call that it makes again is
/// answered as the person said; see the toolbox.
async fn going_on(attempt: &AgentAttempt<'_>) -> Result<String, RuntimeError> {
    let mut text = String::from(
        "You were stopped while a person was asked about a call of yours; now they have answered. Make the call again \
         where you still need it, then go on with the task:\n",
    );
    for call in &attempt.job.pending {
        text.push_str(&format!(
            "- {} {}\n",
            call.name,
            clip(&call.args.to_string(), 500)
        ));
        let why = "the agent was stopped while a person was asked, and makes the call again";
        let result = ToolResult::failed(call, ErrorCategory::Interrupted, why);
        attempt.job.toolbox.reported(result, Vec::new()).await?;
    }
    if attempt.resume.is_none() {
        text = told_anew(attempt, &format!("{}\n\n{text}", attempt.job.prompt.text()));
    }
    Ok(text)
}

/// What an agent is told that knows nothing of the conversation, or does not know it any more.
#[must_use]
pub fn told_anew(attempt: &AgentAttempt<'_>, say: &str) -> String {
    let mut text = format!("{CONTRACT}\n\n");
    if !attempt.instructions.is_empty() {
        text.push_str(&format!("{}\n\n", attempt.instructions));
    }
    let digest = digest(attempt.job.outlet);
    if !digest.is_empty() {
        text.push_str(&format!(
            "What was said and done before, shortened:\n{digest}\n\n"
        ));
    }
    text.push_str(&format!("The task:\n{say}"));
    text
}

/// What the person said last.
pub(super) fn last(outlet: &dyn Outlet) -> String {
    let history = outlet.history();
    let last = history.iter().rev().find(|entry| entry.role == Role::User);
    last.map(|entry| entry.text()).unwrap_or_default()
}

/// The conversation so far without the prompt that is to be said now; of a long one the end.
fn digest(outlet: &dyn Outlet) -> String {
    let history = outlet.history();
    let mut parts: Vec<String> = Vec::new();
    let mut room = MAX_DIGEST;
    for entry in history.iter().rev().skip(1) {
        let who = match entry.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => continue,
        };
        let text = entry.text();
        if text.trim().is_empty() {
            continue;
        }
        let line = format!("[{who}] {}", clip(text.trim(), MAX_MESSAGE));
        if line.len() > room {
            break;
        }
        room -= line.len();
        parts.push(line);
    }
    parts.reverse();
    parts.join("\n")
}

fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(most)])
}
