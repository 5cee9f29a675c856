//! Encodes the content of messages as the conventions specify. It is used only if exporting content is enabled. The
//! content comes from the log, so secrets are removed already; long texts are cut.

use serde_json::{Value as Json, json};
use windlass_core::message::{Message, Part, ToolResult};

/// The maximum length of the text of one part, in bytes.
const MAX_TEXT: usize = 8 << 10;
/// The maximum length of an attribute, in bytes.
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
        // Only the text is exported: the other fields are opaque state of the vendor.
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

/// The arguments unchanged, or the beginning of their JSON text if they are too long.
fn arguments(args: &Json) -> Json {
    let text = args.to_string();
    if text.len() <= MAX_TEXT {
        args.clone()
    } else {
        clip(&text, MAX_TEXT).into()
    }
}

/// The arguments of a call as JSON text, cut at 8 KiB.
#[must_use]
pub fn arguments_text(args: &Json) -> String {
    clip(&args.to_string(), MAX_TEXT)
}

/// A text, cut at 8 KiB.
#[must_use]
pub fn text(text: &str) -> String {
    clip(text, MAX_TEXT)
}

/// The newest messages that fit into one attribute.
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
