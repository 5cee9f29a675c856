//! What was said, in the form the conventions give it. Used only where content may be told; it is told as the log has it,
//! which is without secrets, and shortened.

use serde_json::{Value as Json, json};
use windlass_core::message::{Message, Part, ToolResult};

/// The longest text of one part, in bytes.
const MAX_TEXT: usize = 8 << 10;
/// The longest attribute, in bytes.
const MAX_ATTRIBUTE: usize = 64 << 10;

/// A message with its parts.
#[must_use]
pub fn message(message: &Message) -> Json {
    json!({ "role": message.role, "parts": message.parts.iter().map(part).collect::<Vec<_>>() })
}

/// The result of a call, as a message.
#[must_use]
pub fn result(result: &ToolResult) -> Json {
    json!({ "role": "tool", "parts": [response(result)] })
}

fn part(part: &Part) -> Json {
    match part {
        Part::Text { text } => json!({ "type": "text", "content": clip(text, MAX_TEXT) }),
        // What a vendor needs back unchanged is of no use to anybody else.
        Part::Reasoning { text, .. } => {
            json!({ "type": "reasoning", "content": clip(text, MAX_TEXT) })
        }
        Part::Image { media_type, data } => {
            json!({ "type": "image", "mime_type": media_type, "bytes": data.len() })
        }
        Part::Call(call) => {
            json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments(&call.args) })
        }
        Part::Result(result) => response(result),
    }
}

fn response(result: &ToolResult) -> Json {
    json!({ "type": "tool_call_response", "id": result.id, "response": clip(&result.text, MAX_TEXT) })
}

/// Arguments as they are, or their beginning as a text.
fn arguments(args: &Json) -> Json {
    let text = args.to_string();
    if text.len() <= MAX_TEXT {
        args.clone()
    } else {
        clip(&text, MAX_TEXT).into()
    }
}

/// The arguments of a call as a text.
#[must_use]
pub fn arguments_text(args: &Json) -> String {
    clip(&args.to_string(), MAX_TEXT)
}

/// A text, shortened.
#[must_use]
pub fn text(text: &str) -> String {
    clip(text, MAX_TEXT)
}

/// Messages as one attribute: the newest that fit.
#[must_use]
pub fn messages(all: &[Json]) -> String {
    let mut from = all.len();
    let mut bytes = 2;
    for message in all.iter().rev() {
        bytes += message.to_string().len() + 1;
        if bytes > MAX_ATTRIBUTE {
            break;
        }
        from -= 1;
    }
    Json::from(all.get(from..).unwrap_or_default()).to_string()
}

fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!(
        "{}… [{} bytes in all]",
        &text[..text.floor_char_boundary(most)],
        text.len()
    )
}
