//! The prompts for an agent: the contract, the information that it lacks, and the user's prompt; and the prompts after
//! a pause or for an agent without the conversation.

use windlass_core::message::{ErrorCategory, Part, Role, ToolResult};
use windlass_core::runtime::{EventSink, RuntimeError};

use super::AgentAttempt;
use crate::contract::CONTRACT;

/// Bytes of the earlier conversation in the prompt of an agent that does not have it.
const MAX_DIGEST: usize = 20_000;
/// Bytes of one message in that conversation.
const MAX_MESSAGE: usize = 4_000;

/// Prompt after a user's answer for a stateless agent. The log contains the rest.
const ANSWERED: &str = "\
You were stopped while the user was asked about a call of yours. The user has answered, and the conversation has the result \
of the call. Continue with the task.";

/// The words before the last message of the user, for an agent whose run was paused in the middle of an iteration.
const STOPPED: &str = "\
You were stopped in the middle of your work, because the run was paused. A call of yours that was running may have happened in \
part. Continue with the task. The last message of the user was:";

/// The first prompt of an attempt. A stateless agent has the contract and the conversation already.
pub(super) async fn first_prompt(
    attempt: &AgentAttempt<'_>,
    stateless: bool,
) -> Result<String, RuntimeError> {
    let job = attempt.job;
    let picture = |part: &Part| matches!(part, Part::Image { .. });
    if job.prompt.parts.iter().any(picture) {
        let text = format!(
            "{} does not receive images from Windlass; name the file in the prompt instead",
            attempt.name
        );
        attempt.warn("not_passed_on", text).await?;
    }
    if !job.pending.is_empty() && stateless {
        // These are calls of Windlass tools. The engine runs them here, with the answers from the log.
        for call in &job.pending {
            attempt.call(call.clone()).await?;
        }
        return Ok(ANSWERED.to_owned());
    }
    if !job.pending.is_empty() {
        return resume_prompt(attempt).await;
    }
    let mut text = match job.resumed {
        true => format!("{STOPPED}\n\n{}", last_user_message(job.sink)),
        false => job.prompt.text(),
    };
    if let Some(wanted) = attempt.output {
        text.push_str(&format!(
            "\n\nWhen the task is done, answer with one JSON value and nothing around it. It must fit this JSON \
             Schema:\n{}",
            wanted.schema
        ));
    }
    Ok(if attempt.resume.is_none() && !stateless {
        full_prompt(attempt, &text)
    } else {
        text
    })
}

/// The prompt for an agent that was stopped while the user was asked about its call. The toolbox answers the repeated
/// call with the user's answer.
async fn resume_prompt(attempt: &AgentAttempt<'_>) -> Result<String, RuntimeError> {
    let mut text = String::from(
        "You were stopped while the user was asked about a call of yours; now the user has answered. Make the call again \
         if you still need it, then continue with the task:\n",
    );
    for call in &attempt.job.pending {
        text.push_str(&format!(
            "- {} {}\n",
            call.name,
            clip(&call.args.to_string(), 500)
        ));
        let why = "the agent was stopped while the user was asked; it may make the call again";
        let result = ToolResult::failed(call, ErrorCategory::Interrupted, why);
        attempt.job.toolbox.reported(result, Vec::new()).await?;
    }
    if attempt.resume.is_none() {
        text = full_prompt(attempt, &format!("{}\n\n{text}", attempt.job.prompt.text()));
    }
    Ok(text)
}

/// The prompt for an agent that does not have the conversation, or has lost it.
#[must_use]
pub fn full_prompt(attempt: &AgentAttempt<'_>, say: &str) -> String {
    let mut text = format!("{CONTRACT}\n\n");
    if !attempt.instructions.is_empty() {
        text.push_str(&format!("{}\n\n", attempt.instructions));
    }
    let digest = digest(attempt.job.sink);
    if !digest.is_empty() {
        text.push_str(&format!(
            "The conversation so far, shortened:\n{digest}\n\n"
        ));
    }
    text.push_str(&format!("The task:\n{say}"));
    text
}

/// The user's last message.
pub(super) fn last_user_message(sink: &dyn EventSink) -> String {
    let history = sink.history();
    let last = history.iter().rev().find(|entry| entry.role == Role::User);
    last.map(|entry| entry.text()).unwrap_or_default()
}

/// The end of the conversation so far, without the prompt that is sent now.
fn digest(sink: &dyn EventSink) -> String {
    let history = sink.history();
    let mut parts: Vec<String> = Vec::new();
    let mut budget = MAX_DIGEST;
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
        if line.len() > budget {
            break;
        }
        budget -= line.len();
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
