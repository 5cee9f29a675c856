//! The formats of Claude Code's lines: content blocks, deltas, tool results, and the two forms of a verdict about a
//! call.

use crate::json;
use serde_json::{Value, json};
use windlass_core::event::DeltaOf;
use windlass_core::message::{Part, ToolCall};
use windlass_core::tool::Admitted;

/// The parts of a message.
pub(super) fn blocks(message: &Value) -> Vec<Part> {
    json::items(message, "content").filter_map(part).collect()
}

fn part(block: &Value) -> Option<Part> {
    let text = |key: &str| json::text(block, key).to_owned();
    match json::some_text(block, "type")? {
        "text" => Some(Part::Text { text: text("text") }).filter(|_| !text("text").is_empty()),
        // Only the program needs the signature, and it stores the signature itself.
        "thinking" => Some(Part::reasoning(text("thinking"))),
        "tool_use" => {
            let args = block.get("input").cloned().unwrap_or_else(|| json!({}));
            Some(Part::Call(ToolCall::new(
                text("id").as_str(),
                text("name"),
                args,
            )))
        }
        _ => None,
    }
}

/// The piece of an answer in a stream event.
pub(super) fn delta_of(event: &Value) -> Option<(DeltaOf, &str)> {
    let delta = event.get("delta")?;
    let text = |key: &str| json::some_text(delta, key);
    match json::some_text(delta, "type")? {
        "text_delta" => Some((DeltaOf::Text, text("text")?)),
        "thinking_delta" => Some((DeltaOf::Reasoning, text("thinking")?)),
        "input_json_delta" => {
            let index = event
                .get("index")
                .and_then(Value::as_u64)
                .and_then(|index| u32::try_from(index).ok())?;
            Some((DeltaOf::Arguments(index), text("partial_json")?))
        }
        _ => None,
    }
}

/// The result of a tool as text.
pub(super) fn result_text(content: &Value) -> String {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks
                .iter()
                .map(|block| match json::some_text(block, "text") {
                    Some(text) => text.to_owned(),
                    None => format!("[{}]", json::some_text(block, "type").unwrap_or("content")),
                });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    json::clipped(text)
}

/// A verdict as the response of a hook.
pub(super) fn hook_answer(verdict: &Admitted) -> Value {
    let (decision, reason) = match verdict {
        Admitted::Yes { rule, .. } => ("allow", rule.clone()),
        Admitted::No { category, text } => ("deny", format!("[{}] {text}", category.word())),
    };
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    } })
}

/// A verdict as the response to a permission request.
pub(super) fn permission_answer(verdict: &Admitted, input: Value) -> Value {
    match verdict {
        Admitted::Yes { .. } => json!({ "behavior": "allow", "updatedInput": input }),
        Admitted::No { category, text } => {
            json!({ "behavior": "deny", "message": format!("[{}] {text}", category.word()) })
        }
    }
}
