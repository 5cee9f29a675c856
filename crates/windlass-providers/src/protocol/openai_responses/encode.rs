//! Encodes requests of the responses protocol. The vendor stores nothing: each request contains the whole history, with
//! the unchanged reasoning items. The encoded form of each message is cached with the history.

use std::borrow::Cow;

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSpec;

use crate::protocol::wire::{
    fingerprint, joined, likely_size, results, tool_choice, user_content, write_field, write_key,
    write_messages, write_system, write_tools,
};
use crate::protocol::{Quirks, output_options};

const KEY: &str = "openai_responses";
/// The longest id that the vendor accepts, in bytes.
const MAX_ID: usize = 64;

/// Encodes a request. Fields that may change between steps follow the input.
pub(in crate::protocol) fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    write_tools(&mut body, "tools", request.tools, KEY, tool);
    write_key(&mut body, "input");
    body.push(b'[');
    // The system prompt is a message, because not every server of this protocol supports `instructions`.
    write_system(&mut body, request.system);
    write_messages(&mut body, request.history, KEY, items);
    body.push(b']');
    settings(&mut body, request);
    if quirks.cache_marks {
        // The key is the same for all steps of a session, and different for most sessions.
        let encoded = request
            .history
            .iter()
            .map(|entry| entry.wire().get_or_encode(KEY, || items(entry)));
        let first = encoded.into_iter().find(|bytes| !bytes.is_empty());
        let first = first.as_deref().unwrap_or_default();
        let key = fingerprint(&[request.model.as_bytes(), request.system.as_bytes(), first]);
        write_field(
            &mut body,
            "prompt_cache_key",
            &format!("windlass-{key:016x}"),
        );
    }
    body.push(b'}');
    body
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>) {
    let options = request.options;
    write_field(body, "max_output_tokens", &request.max_output);
    write_field(body, "stream", &true);
    write_field(body, "store", &false);
    let reasons = is_reasoning_model(request.model);
    if reasons || request.model.contains("grok") {
        // The vendor stores nothing, so the answer must contain the reasoning state. Models without reasoning reject
        // this field.
        write_field(body, "include", &["reasoning.encrypted_content"]);
    }
    if let Some(effort) = output_options::effort(options) {
        write_key(body, "reasoning");
        body.push(b'{');
        write_field(body, "effort", effort);
        write_field(body, "summary", "auto");
        body.push(b'}');
    }
    if let Some(temperature) = options.temperature.filter(|_| !reasons) {
        write_field(body, "temperature", &temperature.clamp(0.0, 2.0));
    }
    if let Some(schema) = &options.output_schema {
        write_key(body, "text");
        body.extend_from_slice(br#"{"format":{"type":"json_schema","name":"answer""#);
        write_field(body, "schema", schema);
        write_field(body, "strict", &output_options::is_strict(schema));
        body.extend_from_slice(b"}}");
    }
    if let Some(choice) = tool_choice(request) {
        let choice = match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({ "type": "function", "name": name }),
        };
        write_field(body, "tool_choice", &choice);
    }
}

/// Returns whether this is one of OpenAI's reasoning models, which accept no temperature and no stop sequences.
#[must_use]
pub fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let digits = |text: &str| {
        text.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse::<u32>()
            .ok()
    };
    let by_number = name
        .strip_prefix("gpt-")
        .and_then(digits)
        .is_some_and(|number| number >= 5);
    let by_letter = name.strip_prefix('o').and_then(digits).is_some();
    (by_number || by_letter || name.starts_with("codex-")) && !name.contains("-chat")
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.schema,
        // The default of this protocol is strict mode, which forbids optional arguments.
        "strict": false,
    })
}

/// Encodes one message as none, one or several items, joined by commas.
fn items(message: &Message) -> Vec<u8> {
    match message.role {
        Role::User => {
            let image = |url| json!({ "type": "input_image", "image_url": url });
            let content = user_content(message, "input_text", image);
            joined([json!({ "role": "user", "content": content })])
        }
        Role::Assistant => joined(assistant(message)),
        Role::Tool => joined(results(message).map(|result| {
            let id = short_id(&result.id.0);
            json!({ "type": "function_call_output", "call_id": id, "output": result.text })
        })),
    }
}

fn assistant(message: &Message) -> Vec<Value> {
    let mut out = Vec::new();
    // A reasoning item is accepted only before the item that it led to.
    let mut reasoning = Vec::new();
    let mut phase = None;
    for part in &message.parts {
        match part {
            Part::Reasoning {
                opaque: Some(opaque),
                ..
            } => {
                let item = opaque.get("item").filter(|item| carries_state(item));
                reasoning.extend(item.cloned());
                phase = opaque.get("phase").and_then(Value::as_str).or(phase);
            }
            Part::Text { text } if !text.is_empty() => {
                out.append(&mut reasoning);
                // The type is optional in the protocol, but llama.cpp rejects an answer without it.
                let mut item = json!({ "type": "message", "role": "assistant", "content": text });
                if let Some(phase) = phase.take() {
                    item["phase"] = phase.into();
                }
                out.push(item);
            }
            Part::Call(call) => {
                out.append(&mut reasoning);
                out.push(json!({
                    "type": "function_call",
                    "call_id": short_id(&call.id.0),
                    "name": call.name,
                    "arguments": call.args.to_string(),
                }));
            }
            _ => {}
        }
    }
    out
}

/// Returns whether a reasoning item contains its state. An item that only refers to stored state cannot be sent back.
fn carries_state(item: &Value) -> bool {
    item["encrypted_content"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
        || item["content"]
            .as_array()
            .is_some_and(|parts| !parts.is_empty())
}

/// Shortens an id of another vendor that is too long for this one. The mapping is deterministic.
fn short_id(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID {
        return Cow::Borrowed(id);
    }
    let start: String = id.chars().take(32).filter(char::is_ascii).collect();
    Cow::Owned(format!("{start}-{:016x}", fingerprint(&[id.as_bytes()])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_models_are_known_by_their_names() {
        for (model, expect) in [
            ("gpt-5", true),
            ("openai/gpt-5.6-sol", true),
            ("gpt-12-mini", true),
            ("o3", true),
            ("o4-mini-2025-04-16", true),
            ("codex-mini-latest", true),
            ("gpt-5-chat-latest", false),
            ("gpt-4o", false),
            ("gpt-4.1-mini", false),
            ("gpt-oss-20b", false),
            ("omni", false),
        ] {
            assert_eq!(is_reasoning_model(model), expect, "{model}");
        }
    }

    #[test]
    fn a_long_id_is_shortened_to_the_same_text_each_time() {
        let long = "x".repeat(100);
        assert_eq!(short_id(&long), short_id(&long));
        assert_ne!(short_id(&long), short_id(&"x".repeat(101)));
        assert!(short_id(&"ü".repeat(90)).len() <= MAX_ID);
        assert_eq!(short_id("call_1"), "call_1");
    }
}
