//! Encodes requests of Ollama's own protocol. The encoded form of each message is cached with the history.

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role, ToolCall};
use windlass_core::provider::{Request, Sampling, ToolChoice};

use crate::protocol::Quirks;
use crate::protocol::wire::{
    function, joined, likely_size, object_args, results, thoughts, write_field, write_key,
    write_messages, write_sampling, write_system, write_tools,
};

const KEY: &str = "ollama";

/// Encodes a request. Fields that may change between steps follow the messages.
pub(in crate::protocol) fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    // The protocol has no tool choice; without tools the model makes no calls.
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
    // With these fields a newer server rejects a prompt that does not fit instead of dropping its beginning.
    write_field(body, "truncate", &false);
    write_field(body, "shift", &false);
    if let Some(schema) = &options.output_schema {
        write_field(body, "format", schema);
    }
    think(body, options);
}

/// Writes the thinking option only if the user set one, because models without thinking reject the field.
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

/// Encodes one message as none, one or (for results) several messages of the protocol, joined by commas.
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
        return None; // a thought alone is not a message
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
