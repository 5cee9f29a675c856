//! The body of a request in the Responses protocol. Nothing is kept at the vendor: the whole history goes along, with
//! the reasoning items as they came. Each message is encoded once and kept beside the history. It sends nothing.

use std::borrow::Cow;
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSet;

use crate::protocol::wire::{
    fingerprint, likely_size, write_field, write_json, write_key, write_messages,
};
use crate::protocol::{Quirks, wishes};

const KEY: &str = "openai_responses";
/// The longest id the vendor takes.
const LONGEST_ID: usize = 64;

/// The body of a request. Everything that may change from step to step comes after the input.
pub fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    if !request.tools.is_empty() {
        write_key(&mut body, "tools");
        request
            .tools
            .wire()
            .append_to(&mut body, KEY, || tool_list(request.tools));
    }
    write_key(&mut body, "input");
    body.push(b'[');
    // As a message, because not every server of this protocol knows `instructions`.
    if !request.system.trim().is_empty() {
        body.extend_from_slice(br#"{"role":"system","content":"#);
        write_json(&mut body, request.system);
        body.push(b'}');
    }
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
    if let Some(choice) = options
        .tool_choice
        .as_ref()
        .filter(|_| !request.tools.is_empty())
    {
        match choice {
            ToolChoice::Auto => write_field(body, "tool_choice", "auto"),
            ToolChoice::None => write_field(body, "tool_choice", "none"),
            ToolChoice::Required => write_field(body, "tool_choice", "required"),
            ToolChoice::Named(name) => {
                write_field(
                    body,
                    "tool_choice",
                    &serde_json::json!({ "type": "function", "name": name }),
                );
            }
        }
    }
}

/// Whether this is one of the vendor's models that reason; they take no temperature and no stop sequences.
pub(in crate::protocol) fn reasons(model: &str) -> bool {
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

fn tool_list(tools: &ToolSet) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, tool) in tools.iter().enumerate() {
        let spec = tool.spec();
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        write_field(&mut out, "type", "function");
        write_field(&mut out, "name", &spec.name);
        write_field(&mut out, "description", &spec.description);
        write_field(&mut out, "parameters", &spec.schema);
        // Strict is this protocol's default, and it refuses optional arguments.
        write_field(&mut out, "strict", &false);
        out.push(b'}');
    }
    out.push(b']');
    out
}

/// One message of ours: none, one or several items, joined by commas.
fn items(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role {
        Role::User => user(&mut out, message),
        Role::Assistant => assistant(&mut out, message),
        Role::Tool => {
            for part in &message.parts {
                let Part::Result(result) = part else { continue };
                start(&mut out);
                write_field(&mut out, "type", "function_call_output");
                write_field(&mut out, "call_id", short_id(&result.id.0).as_ref());
                write_field(&mut out, "output", &result.text);
                out.push(b'}');
            }
        }
    }
    out
}

fn start(out: &mut Vec<u8>) {
    out.extend_from_slice(if out.is_empty() { b"{" } else { b",{" });
}

fn user(out: &mut Vec<u8>, message: &Message) {
    start(out);
    write_field(out, "role", "user");
    if !message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Image { .. }))
    {
        write_field(out, "content", &message.text());
        out.push(b'}');
        return;
    }
    write_key(out, "content");
    out.push(b'[');
    for part in &message.parts {
        let comma: &[u8] = if out.last() == Some(&b'}') { b"," } else { b"" };
        match part {
            Part::Text { text } => {
                out.extend_from_slice(comma);
                out.extend_from_slice(br#"{"type":"input_text","text":"#);
                write_json(out, text);
                out.push(b'}');
            }
            Part::Image { media_type, data } => {
                out.extend_from_slice(comma);
                out.extend_from_slice(br#"{"type":"input_image","image_url":"#);
                write_json(out, &format!("data:{media_type};base64,{data}"));
                out.push(b'}');
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"]}");
}

fn assistant(out: &mut Vec<u8>, message: &Message) {
    // Reasoning is only accepted in front of what it led to.
    let mut reasoning = Vec::new();
    let mut phase = None;
    for part in &message.parts {
        match part {
            Part::Reasoning {
                opaque: Some(opaque),
                ..
            } => {
                if let Some(item) = opaque.get("item").filter(|item| carries_state(item)) {
                    reasoning.push(item);
                }
                phase = opaque
                    .get("phase")
                    .and_then(|phase| phase.as_str())
                    .or(phase);
            }
            Part::Text { text } if !text.is_empty() => {
                repeat(out, &mut reasoning);
                start(out);
                // The protocol lets it be left out, but llama.cpp refuses an answer that does not name its type.
                write_field(out, "type", "message");
                write_field(out, "role", "assistant");
                write_field(out, "content", text);
                if let Some(phase) = phase.take() {
                    write_field(out, "phase", phase);
                }
                out.push(b'}');
            }
            Part::Call(call) => {
                repeat(out, &mut reasoning);
                start(out);
                write_field(out, "type", "function_call");
                write_field(out, "call_id", short_id(&call.id.0).as_ref());
                write_field(out, "name", &call.name);
                write_field(out, "arguments", &call.args.to_string());
                out.push(b'}');
            }
            _ => {}
        }
    }
}

/// A reasoning item that only names what the vendor would have stored cannot be sent back.
fn carries_state(item: &serde_json::Value) -> bool {
    let encrypted = item
        .get("encrypted_content")
        .and_then(|text| text.as_str())
        .is_some_and(|text| !text.is_empty());
    encrypted
        || item
            .get("content")
            .and_then(|content| content.as_array())
            .is_some_and(|parts| !parts.is_empty())
}

fn repeat(out: &mut Vec<u8>, reasoning: &mut Vec<&serde_json::Value>) {
    for item in reasoning.drain(..) {
        if !out.is_empty() {
            out.push(b',');
        }
        write_json(out, item);
    }
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
