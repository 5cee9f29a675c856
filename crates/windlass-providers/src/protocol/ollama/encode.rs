//! The body of a request in Ollama's own protocol. Each message is encoded once and kept beside the history.
//! It sends nothing.

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role, ToolCall};
use windlass_core::provider::{Request, Sampling, ToolChoice};

use crate::protocol::Quirks;
use crate::protocol::wire::{
    function, joined, likely_size, object_args, results, thoughts, write_field, write_key,
    write_messages, write_sampling, write_system, write_tools,
};

const KEY: &str = "ollama";

/// The body of a request. Everything that may change from step to step comes after the messages.
pub(in crate::protocol) fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    // The server knows no choice between tools; without any it calls none.
    if request.options.tool_choice != Some(ToolChoice::None) {
        write_tools(&mut body, "tools", request.tools, KEY, function);
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    write_system(&mut body, request.system);
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
    write_sampling(body, options, 2.0, "stop");
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

/// One message of ours: none, one or (for results) several of the protocol's, joined by commas.
fn messages(message: &Message) -> Vec<u8> {
    match message.role {
        Role::User => {
            let mut out = json!({ "role": "user", "content": message.text() });
            let images = message.parts.iter().filter_map(|part| match part {
                Part::Image { data, .. } => Some(data.as_str()),
                _ => None,
            });
            let images: Vec<&str> = images.collect();
            if !images.is_empty() {
                out["images"] = images.into();
            }
            joined([out])
        }
        Role::Assistant => joined(assistant(message)),
        Role::Tool => joined(results(message).map(|result| {
            json!({ "role": "tool", "tool_name": result.name, "tool_call_id": result.id, "content": result.text })
        })),
    }
}

fn assistant(message: &Message) -> Option<Value> {
    let text = message.text();
    let calls: Vec<Value> = message.calls().map(call).collect();
    if text.is_empty() && calls.is_empty() {
        return None; // a thought alone is nothing to go on from
    }
    let mut out = json!({ "role": "assistant", "content": text });
    let thoughts = thoughts(message);
    if !thoughts.is_empty() {
        out["thinking"] = thoughts.into();
    }
    if !calls.is_empty() {
        out["tool_calls"] = calls.into();
    }
    Some(out)
}

fn call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "function": { "name": call.name, "arguments": object_args(call) } })
}
