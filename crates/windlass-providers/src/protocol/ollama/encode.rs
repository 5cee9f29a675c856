//! The body of a request in Ollama's own protocol. Each message is encoded once and kept beside the history.
//! It sends nothing.

use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, Sampling, ToolChoice};
use windlass_core::tool::ToolSet;

use crate::protocol::Quirks;
use crate::protocol::wire::{likely_size, write_field, write_json, write_key, write_messages};

const KEY: &str = "ollama";

/// The body of a request. Everything that may change from step to step comes after the messages.
pub fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    // The server knows no choice between tools; without any it calls none.
    if !request.tools.is_empty() && request.options.tool_choice != Some(ToolChoice::None) {
        write_key(&mut body, "tools");
        request
            .tools
            .wire()
            .append_to(&mut body, KEY, || tool_list(request.tools));
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    if !request.system.trim().is_empty() {
        body.extend_from_slice(br#"{"role":"system","content":"#);
        write_json(&mut body, request.system);
        body.push(b'}');
    }
    write_messages(&mut body, request.history, KEY, messages);
    body.push(b']');
    settings(&mut body, request, quirks);
    body.push(b'}');
    body
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>, quirks: &Quirks) {
    let options = request.options;
    write_key(body, "options");
    body.push(b'{');
    let limit = quirks
        .window
        .map_or(request.max_output, |window| request.max_output.min(window));
    write_field(body, "num_predict", &limit);
    if let Some(window) = quirks.window {
        write_field(body, "num_ctx", &window);
    }
    if let Some(temperature) = options.temperature {
        write_field(body, "temperature", &temperature.clamp(0.0, 2.0));
    }
    if !options.stop.is_empty() {
        write_field(body, "stop", &options.stop);
    }
    body.push(b'}');
    write_field(body, "stream", &true);
    // A server that knows these words refuses what does not fit instead of dropping the beginning of it.
    write_field(body, "truncate", &false);
    write_field(body, "shift", &false);
    if let Some(schema) = &options.output_schema {
        write_field(body, "format", schema);
    }
    think(body, options);
}

/// Models that cannot think refuse to be asked, so nothing is said unless somebody wishes it.
fn think(body: &mut Vec<u8>, options: &Sampling) {
    match (options.reasoning_effort.as_deref(), options.thinking_tokens) {
        (Some(effort @ ("low" | "medium" | "high")), _) => write_field(body, "think", effort),
        (Some("none"), _) | (None, Some(0)) => write_field(body, "think", &false),
        (Some("minimal"), _) => write_field(body, "think", "low"),
        (Some("xhigh" | "max"), _) => write_field(body, "think", "high"),
        (Some(_), _) | (None, Some(_)) => write_field(body, "think", &true),
        (None, None) => {}
    }
}

fn tool_list(tools: &ToolSet) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, tool) in tools.iter().enumerate() {
        let spec = tool.spec();
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        out.extend_from_slice(br#"{"type":"function","function":{"#);
        write_field(&mut out, "name", &spec.name);
        write_field(&mut out, "description", &spec.description);
        write_field(&mut out, "parameters", &spec.schema);
        out.extend_from_slice(b"}}");
    }
    out.push(b']');
    out
}

/// One message of ours: none, one or (for results) several of the protocol's, joined by commas.
fn messages(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role {
        Role::User => {
            out.push(b'{');
            write_field(&mut out, "role", "user");
            write_field(&mut out, "content", &message.text());
            let images = message.parts.iter().filter_map(|part| match part {
                Part::Image { data, .. } => Some(data.as_str()),
                _ => None,
            });
            let images: Vec<&str> = images.collect();
            if !images.is_empty() {
                write_field(&mut out, "images", &images);
            }
            out.push(b'}');
        }
        Role::Assistant => assistant(&mut out, message),
        Role::Tool => {
            for part in &message.parts {
                let Part::Result(result) = part else { continue };
                out.extend_from_slice(if out.is_empty() { b"{" } else { b",{" });
                write_field(&mut out, "role", "tool");
                write_field(&mut out, "tool_name", &result.name);
                write_field(&mut out, "tool_call_id", &result.id);
                write_field(&mut out, "content", &result.text);
                out.push(b'}');
            }
        }
    }
    out
}

fn assistant(out: &mut Vec<u8>, message: &Message) {
    let text = message.text();
    let has_calls = message.calls().next().is_some();
    if text.is_empty() && !has_calls {
        return; // a thought alone is nothing to go on from
    }
    out.push(b'{');
    write_field(out, "role", "assistant");
    write_field(out, "content", &text);
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let thoughts: String = thoughts.collect();
    if !thoughts.is_empty() {
        write_field(out, "thinking", &thoughts);
    }
    if has_calls {
        write_key(out, "tool_calls");
        out.push(b'[');
        for (at, call) in message.calls().enumerate() {
            out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
            write_field(out, "id", &call.id);
            write_key(out, "function");
            out.push(b'{');
            write_field(out, "name", &call.name);
            if call.args.is_object() {
                write_field(out, "arguments", &call.args)
            } else {
                write_field(out, "arguments", &serde_json::Map::new())
            }
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
    out.push(b'}');
}
