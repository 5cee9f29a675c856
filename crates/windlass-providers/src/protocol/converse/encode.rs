//! Encodes requests of the Converse protocol. The encoded form of each message is cached with the history.

use serde_json::{Value, json};
use windlass_core::history::Entry;
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSpec;

use crate::protocol::wire::{
    joined, likely_size, object_args, result_text, write_field, write_key, write_sampling,
    write_tools,
};
use crate::protocol::{Quirks, output_options};

const KEY: &str = "converse";

/// Encodes a request; the model is in the address.
pub(in crate::protocol) fn encode(request: &Request<'_>, _: &Quirks) -> Vec<u8> {
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    // No field for a schema works with all models, so the schema is added to the prompt.
    let system =
        output_options::with_schema(request.system, request.options.output_schema.as_ref());
    if !system.trim().is_empty() {
        write_field(&mut body, "system", &json!([{ "text": system }]));
    }
    if !request.tools.is_empty() {
        write_key(&mut body, "toolConfig");
        body.push(b'{');
        write_tools(&mut body, "tools", request.tools, KEY, tool);
        match &request.options.tool_choice {
            Some(ToolChoice::Required) => {
                write_field(&mut body, "toolChoice", &json!({ "any": {} }));
            }
            Some(ToolChoice::Named(name)) => {
                let named = json!({ "tool": { "name": name } });
                write_field(&mut body, "toolChoice", &named);
            }
            // The protocol cannot forbid calls, and the list of tools is required if the history contains calls.
            Some(ToolChoice::Auto | ToolChoice::None) | None => {}
        }
        body.push(b'}');
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    write_turns(&mut body, request.history);
    body.push(b']');
    write_key(&mut body, "inferenceConfig");
    body.push(b'{');
    write_field(&mut body, "maxTokens", &request.max_output);
    write_sampling(&mut body, request.options, 1.0, "stopSequences");
    body.extend_from_slice(b"}}");
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({ "toolSpec": {
        "name": spec.name, "description": spec.description, "inputSchema": { "json": spec.schema },
    } })
}

/// Appends every message. The vendor rejects consecutive messages of one role, so they are merged.
fn write_turns(out: &mut Vec<u8>, history: &[Entry]) {
    let mut last = None;
    for entry in history {
        let head = head(entry.role);
        let joins = last == Some(head);
        if joins {
            out.truncate(out.len() - TAIL.len());
        }
        if last.is_some() {
            out.push(b',');
        }
        let start = out.len();
        if entry.wire().append_to(out, KEY, || message(entry)) > 0 {
            if joins {
                out.drain(start..start + head.len());
            }
            last = Some(head);
            continue;
        }
        if last.is_some() {
            out.pop();
        }
        if joins {
            out.extend_from_slice(TAIL);
        }
    }
}

/// Returns the bytes of a message up to its first block.
fn head(role: Role) -> &'static str {
    match role {
        Role::Assistant => r#"{"role":"assistant","content":["#,
        Role::User | Role::Tool => r#"{"role":"user","content":["#,
    }
}

/// The bytes of a message after its last block.
const TAIL: &[u8] = b"]}";

/// Encodes one message; empty if the protocol can express no part of it.
fn message(message: &Message) -> Vec<u8> {
    let blocks = joined(message.parts.iter().filter_map(block));
    if blocks.is_empty() {
        return blocks;
    }
    [head(message.role).as_bytes(), &blocks, TAIL].concat()
}

fn block(part: &Part) -> Option<Value> {
    Some(match part {
        Part::Text { text } if text.trim().is_empty() => return None,
        Part::Text { text } => json!({ "text": text }),
        Part::Reasoning { text, opaque } => {
            let state = |name: &str| opaque.as_ref()?.get(name)?.as_str();
            if let Some(data) = state("redacted") {
                json!({ "reasoningContent": { "redactedContent": data } })
            } else {
                let signature = state("signature")?; // the vendor rejects unsigned reasoning
                json!({ "reasoningContent": { "reasoningText": { "text": text, "signature": signature } } })
            }
        }
        Part::Image { media_type, data } => {
            let format = media_type.rsplit('/').next().unwrap_or_default();
            json!({ "image": { "format": format, "source": { "bytes": data } } })
        }
        Part::Call(call) => {
            json!({ "toolUse": { "toolUseId": call.id, "name": call.name, "input": object_args(call) } })
        }
        Part::Result(result) => {
            let text = result_text(result);
            let status = if result.error.is_some() {
                "error"
            } else {
                "success"
            };
            json!({
                "toolResult": { "toolUseId": result.id, "content": [{ "text": text }], "status": status }
            })
        }
    })
}
