//! Encodes requests of the messages protocol. The encoded form of each message is cached with the history.

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role, ToolResult};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSpec;

use crate::protocol::wire::{
    joined, likely_size, object_args, result_text, tool_choice, write_field, write_key,
    write_messages, write_tools,
};
use crate::protocol::{Quirks, output_options};

const KEY: &str = "anthropic";
const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;
/// The smallest thinking budget that the vendor accepts, in tokens.
const MIN_THINKING: u64 = 1_024;

/// Encodes a request. Fields that may change between steps follow the messages, so that the bytes up to the last cache
/// mark are the same in the next request. `hosted` is the protocol version of a cloud that hosts the models: its
/// address contains the model and, in some clouds, that the answer is a stream.
pub(in crate::protocol) fn encode(
    request: &Request<'_>,
    quirks: &Quirks,
    hosted: Option<&str>,
    stream: bool,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    match hosted {
        Some(version) => write_field(&mut body, "anthropic_version", version),
        None => write_field(&mut body, "model", request.model),
    }
    let system = !request.system.trim().is_empty();
    if !request.tools.is_empty() {
        write_tools(&mut body, "tools", request.tools, KEY, tool);
        // In the vendor's cache the tools precede the system prompt, so a mark on the system prompt covers both.
        mark(&mut body, b"}]", quirks.cache_marks && !system);
    }
    if system {
        let text = json!([{ "type": "text", "text": request.system }]);
        write_field(&mut body, "system", &text);
        mark(&mut body, b"}]", quirks.cache_marks);
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    write_messages(&mut body, request.history, KEY, message);
    mark(&mut body, b"}]}", quirks.cache_marks);
    body.push(b']');
    settings(&mut body, request, stream);
    body.push(b'}');
    body
}

/// Inserts a cache mark before the closing brackets at the end of the body, if it is wanted.
fn mark(body: &mut Vec<u8>, closing: &[u8], wanted: bool) {
    if wanted && body.ends_with(closing) {
        body.truncate(body.len() - closing.len());
        body.extend_from_slice(MARK);
        body.extend_from_slice(closing);
    }
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>, stream: bool) {
    write_field(body, "max_tokens", &request.max_output);
    if stream {
        write_field(body, "stream", &true);
    }
    let options = request.options;
    if !options.stop.is_empty() {
        write_field(body, "stop_sequences", &options.stop);
    }
    let thinking = thinking(request);
    let mut output = serde_json::Map::new();
    match thinking {
        Some(Thinking::Budget(tokens)) => {
            let enabled = json!({ "type": "enabled", "budget_tokens": tokens });
            write_field(body, "thinking", &enabled);
        }
        Some(Thinking::Effort(effort)) => {
            // Newer models return empty thoughts unless a summary is requested.
            let adaptive = json!({ "type": "adaptive", "display": "summarized" });
            write_field(body, "thinking", &adaptive);
            output.insert("effort".to_owned(), effort.into());
        }
        None => {}
    }
    if let Some(temperature) = options.temperature.filter(|_| accepts_temperature(request)) {
        write_field(body, "temperature", &temperature.clamp(0.0, 1.0));
    }
    if let Some(choice) = tool_choice(request) {
        let choice = match choice {
            ToolChoice::Auto => json!({ "type": "auto" }),
            ToolChoice::None => json!({ "type": "none" }),
            ToolChoice::Required => json!({ "type": "any" }),
            ToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
        };
        write_field(body, "tool_choice", &choice);
    }
    if let Some(schema) = &options.output_schema {
        let format = json!({ "type": "json_schema", "schema": output_options::closed(schema) });
        output.insert("format".to_owned(), format);
    }
    if !output.is_empty() {
        write_field(body, "output_config", &output);
    }
}

/// The thinking setting of a request.
enum Thinking<'a> {
    /// At most this many tokens.
    Budget(u64),
    /// The model chooses the amount, guided by this effort.
    Effort(&'a str),
}

fn thinking<'a>(request: &Request<'a>) -> Option<Thinking<'a>> {
    let options = request.options;
    // The vendor rejects thinking together with a forced call.
    if let Some(ToolChoice::Required | ToolChoice::Named(_)) = tool_choice(request) {
        return None;
    }
    if version(request.model).is_some_and(|version| version >= (4, 6)) {
        return match output_options::effort(options)? {
            "none" => None,
            "minimal" => Some(Thinking::Effort("low")),
            effort => Some(Thinking::Effort(effort)),
        };
    }
    // The output limit must cover the thinking budget and the answer.
    let wanted = output_options::thinking_tokens(options)?;
    let available = request.max_output.saturating_sub(MIN_THINKING);
    (wanted > 0 && available >= MIN_THINKING)
        .then(|| Thinking::Budget(wanted.clamp(MIN_THINKING, available)))
}

/// Returns whether a temperature may be sent: not together with thinking, and not to models without one.
pub(in crate::protocol) fn accepts_temperature(request: &Request<'_>) -> bool {
    thinking(request).is_none() && version(request.model).is_none_or(|version| version < (4, 7))
}

/// Returns the version in the name of one of the vendor's own models (`claude-opus-4-6`, `claude-sonnet-4.5`,
/// `claude-3-7-sonnet`). Returns `None` for models of other vendors with this protocol.
fn version(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude-")?;
    let mut numbers = name
        .split(['-', '.', '@', ':'])
        .skip_while(|piece| piece.parse::<u32>().is_err());
    let Some(major) = numbers.next().and_then(|piece| piece.parse().ok()) else {
        return Some((5, 0)); // a newer name without a number
    };
    // The next number may be a date.
    let minor = numbers
        .next()
        .and_then(|piece| piece.parse().ok())
        .filter(|minor| *minor < 100);
    Some((major, minor.unwrap_or(0)))
}

fn tool(spec: &ToolSpec) -> Value {
    json!({ "name": spec.name, "description": spec.description, "input_schema": spec.schema })
}

/// Encodes one message; empty if the protocol can express no part of it.
fn message(message: &Message) -> Vec<u8> {
    let role = match message.role {
        Role::Assistant => "assistant",
        Role::User | Role::Tool => "user",
    };
    let blocks: Vec<Value> = message.parts.iter().filter_map(block).collect();
    let encoded = (!blocks.is_empty()).then(|| json!({ "role": role, "content": blocks }));
    joined(encoded)
}

fn block(part: &Part) -> Option<Value> {
    Some(match part {
        // The vendor rejects blank text blocks.
        Part::Text { text } if text.trim().is_empty() => return None,
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Reasoning { text, opaque } => {
            let state = |name: &str| opaque.as_ref()?.get(name)?.as_str();
            if let Some(data) = state("redacted") {
                json!({ "type": "redacted_thinking", "data": data })
            } else {
                let signature = state("signature")?; // the vendor rejects unsigned reasoning
                json!({ "type": "thinking", "thinking": text, "signature": signature })
            }
        }
        Part::Image { media_type, data } => {
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            json!({ "type": "image", "source": source })
        }
        Part::Call(call) => {
            let id = safe_id(&call.id.0);
            json!({ "type": "tool_use", "id": id, "name": call.name, "input": object_args(call) })
        }
        Part::Result(result) => tool_result(result),
    })
}

fn tool_result(result: &ToolResult) -> Value {
    let id = safe_id(&result.id.0);
    let mut out =
        json!({ "type": "tool_result", "tool_use_id": id, "content": result_text(result) });
    if result.error.is_some() {
        out["is_error"] = true.into();
    }
    out
}

/// Replaces the characters in ids of other vendors that this vendor rejects. The mapping is deterministic.
fn safe_id(id: &str) -> String {
    id.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_every_form_of_a_name() {
        for (model, expect) in [
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-opus-4-5-20251101", Some((4, 5))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("anthropic/claude-sonnet-4.5", Some((4, 5))),
            ("us.anthropic.claude-opus-4-6-v1:0", Some((4, 6))),
            ("claude-fable-5", Some((5, 0))),
            ("claude-mythos-preview", Some((5, 0))),
            ("glm-4.6", None),
        ] {
            assert_eq!(version(model), expect, "{model}");
        }
    }
}
