//! The body of a request in the Messages protocol. Each message is encoded once and kept beside the history.
//! It sends nothing.

use serde_json::Value;
use windlass_core::message::{Message, Part, Role, ToolResult};
use windlass_core::provider::Request;
use windlass_core::tool::ToolSet;

use crate::protocol::Quirks;
use crate::protocol::wire::{likely_size, write_field, write_json, write_key, write_messages};

const KEY: &str = "anthropic";
const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;
/// The least the vendor accepts as a thinking budget.
const LEAST_THINKING: u64 = 1_024;

/// The body of a request. Messages come before everything that may change from step to step, so that the bytes up
/// to the last cache mark are the same in the next request.
pub fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    let system = !request.system.trim().is_empty();
    if !request.tools.is_empty() {
        write_key(&mut body, "tools");
        request.tools.wire().append_to(&mut body, KEY, || tool_list(request.tools));
        // Tools stand before the system prompt in the vendor's cache, so the mark on the latter covers both.
        mark(&mut body, b"}]", quirks.cache_marks && !system);
    }
    if system {
        write_key(&mut body, "system");
        body.extend_from_slice(br#"[{"type":"text","text":"#);
        write_json(&mut body, request.system);
        body.extend_from_slice(b"}]");
        mark(&mut body, b"}]", quirks.cache_marks);
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    write_messages(&mut body, request.history, KEY, message);
    mark(&mut body, b"}]}", quirks.cache_marks);
    body.push(b']');
    settings(&mut body, request);
    body.push(b'}');
    body
}

/// Puts a cache mark before the closing brackets that the body ends with, if it is wanted.
fn mark(body: &mut Vec<u8>, closing: &[u8], wanted: bool) {
    if wanted && body.ends_with(closing) {
        body.truncate(body.len() - closing.len());
        body.extend_from_slice(MARK);
        body.extend_from_slice(closing);
    }
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>) {
    write_field(body, "max_tokens", &request.max_output);
    write_field(body, "stream", &true);
    let options = request.options;
    if !options.stop.is_empty() {
        write_field(body, "stop_sequences", &options.stop);
    }
    let thinking = thinking_tokens(request);
    if let Some(tokens) = thinking {
        write_key(body, "thinking");
        body.extend_from_slice(format!(r#"{{"type":"enabled","budget_tokens":{tokens}}}"#).as_bytes());
    } else if let Some(temperature) = options.temperature {
        // The vendor accepts no temperature beside thinking.
        write_field(body, "temperature", &temperature.clamp(0.0, 1.0));
    }
}

/// The thinking budget: as asked, or what an effort amounts to; it has to leave room for the answer.
fn thinking_tokens(request: &Request<'_>) -> Option<u64> {
    let asked = request.options.thinking_tokens.or_else(|| match request.options.reasoning_effort.as_deref()? {
        "minimal" | "low" => Some(2_048),
        "medium" => Some(8_192),
        "high" | "xhigh" | "max" => Some(24_576),
        _ => None,
    })?;
    let room = request.max_output.saturating_sub(LEAST_THINKING);
    (asked > 0 && room >= LEAST_THINKING).then(|| asked.clamp(LEAST_THINKING, room))
}

fn tool_list(tools: &ToolSet) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, tool) in tools.iter().enumerate() {
        let spec = tool.spec();
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        write_field(&mut out, "name", &spec.name);
        write_field(&mut out, "description", &spec.description);
        write_field(&mut out, "input_schema", &spec.schema);
        out.push(b'}');
    }
    out.push(b']');
    out
}

/// One message; nothing at all when no part of it can be said in this protocol.
fn message(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    out.extend_from_slice(format!(r#"{{"role":"{role}","content":["#).as_bytes());
    let empty = out.len();
    for part in &message.parts {
        block(&mut out, part);
    }
    if out.len() == empty {
        return Vec::new();
    }
    out.extend_from_slice(b"]}");
    out
}

fn block(out: &mut Vec<u8>, part: &Part) {
    let start = |out: &mut Vec<u8>, kind: &str| {
        if out.last() == Some(&b'}') {
            out.push(b',');
        }
        out.push(b'{');
        write_field(out, "type", kind);
    };
    match part {
        // The vendor refuses blank text blocks.
        Part::Text { text } if text.trim().is_empty() => return,
        Part::Text { text } => {
            start(out, "text");
            write_field(out, "text", text);
        }
        Part::Reasoning { text, opaque } => {
            let state = |name: &str| opaque.as_ref().and_then(|opaque| opaque.get(name)).and_then(Value::as_str);
            if let Some(data) = state("redacted") {
                start(out, "redacted_thinking");
                write_field(out, "data", data);
            } else if let Some(signature) = state("signature") {
                start(out, "thinking");
                write_field(out, "thinking", text);
                write_field(out, "signature", signature);
            } else {
                return; // unsigned reasoning is not accepted back
            }
        }
        Part::Image { media_type, data } => {
            start(out, "image");
            write_key(out, "source");
            out.extend_from_slice(br#"{"type":"base64""#);
            write_field(out, "media_type", media_type);
            write_field(out, "data", data);
            out.push(b'}');
        }
        Part::Call(call) => {
            start(out, "tool_use");
            write_field(out, "id", &safe_id(&call.id.0));
            write_field(out, "name", &call.name);
            let object = call.args.is_object();
            if object {
                write_field(out, "input", &call.args)
            } else {
                write_field(out, "input", &serde_json::Map::new())
            }
        }
        Part::Result(result) => {
            start(out, "tool_result");
            tool_result(out, result);
        }
    }
    out.push(b'}');
}

fn tool_result(out: &mut Vec<u8>, result: &ToolResult) {
    write_field(out, "tool_use_id", &safe_id(&result.id.0));
    let blank = result.text.trim().is_empty();
    write_field(out, "content", if blank { "(no output)" } else { &result.text });
    if result.error.is_some() {
        write_field(out, "is_error", &true);
    }
}

/// Ids of other vendors may hold characters that this one refuses; the same id always becomes the same text.
fn safe_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}
