//! The body of a request in the Responses protocol. Nothing is kept at the vendor: the whole history goes along, with
//! the reasoning items as they came. Each message is encoded once and kept beside the history. It sends nothing.

use std::borrow::Cow;

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSpec;

use crate::protocol::wire::{
    fingerprint, joined, likely_size, results, tool_choice, user_content, write_field, write_key,
    write_messages, write_system, write_tools,
};
use crate::protocol::{Quirks, wishes};

const KEY: &str = "openai_responses";
/// The longest id the vendor takes.
const LONGEST_ID: usize = 64;

/// The body of a request. Everything that may change from step to step comes after the input.
pub(in crate::protocol) fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    write_tools(&mut body, "tools", request.tools, KEY, tool);
    write_key(&mut body, "input");
    body.push(b'[');
    // As a message, because not every server of this protocol knows `instructions`.
    write_system(&mut body, request.system);
    write_messages(&mut body, request.history, KEY, items);
    body.push(b']');
    settings(&mut body, request);
    if quirks.cache_marks {
        // The same for all steps of a session, and hardly ever the same for two sessions.
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
    let reasons = reasons(request.model);
    if reasons || request.model.contains("grok") {
        // Without storage the state of the reasoning has to come to us; models without any refuse to be asked.
        write_field(body, "include", &["reasoning.encrypted_content"]);
    }
    if let Some(effort) = wishes::effort(options) {
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
        write_field(body, "strict", &wishes::is_strict(schema));
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

/// Whether this is one of the vendor's models that reason; they take no temperature and no stop sequences.
#[must_use]
pub fn reasons(model: &str) -> bool {
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
        // Strict is this protocol's default, and it refuses optional arguments.
        "strict": false,
    })
}

/// One message of ours: none, one or several items, joined by commas.
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
    // Reasoning is only accepted in front of what it led to.
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
                // The protocol lets the type be left out, but llama.cpp refuses an answer that does not name it.
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

/// A reasoning item that only names what the vendor would have stored cannot be sent back.
fn carries_state(item: &Value) -> bool {
    item["encrypted_content"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
        || item["content"]
            .as_array()
            .is_some_and(|parts| !parts.is_empty())
}

/// Ids of other vendors may be longer than this one takes; the same id always becomes the same text.
fn short_id(id: &str) -> Cow<'_, str> {
    if id.len() <= LONGEST_ID {
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
            assert_eq!(reasons(model), expect, "{model}");
        }
    }

    #[test]
    fn a_long_id_is_shortened_to_the_same_text_each_time() {
        let long = "x".repeat(100);
        assert_eq!(short_id(&long), short_id(&long));
        assert_ne!(short_id(&long), short_id(&"x".repeat(101)));
        assert!(short_id(&"ü".repeat(90)).len() <= LONGEST_ID);
        assert_eq!(short_id("call_1"), "call_1");
    }
}
