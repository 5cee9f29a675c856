//! Encodes chat completion requests. The encoded form of each message is cached with the history.

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role, ToolCall};
use windlass_core::provider::{Request, ToolChoice};

use crate::protocol::wire::{
    function, joined, likely_size, results, thoughts, tool_choice, user_content, write_field,
    write_key, write_messages, write_sampling, write_system, write_tools,
};
use crate::protocol::{MaxTokensField, Quirks, ReasoningBack, openai_responses, output_options};

/// Encodes a request. Fields that may change between steps follow the messages.
pub(in crate::protocol) fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    // The encoded messages differ by the form of the reasoning, so each form has its own cache key.
    let key = match quirks.reasoning_back {
        ReasoningBack::Never => "openai_chat",
        ReasoningBack::Content => "openai_chat+content",
        ReasoningBack::Details => "openai_chat+details",
    };
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    write_tools(&mut body, "tools", request.tools, "openai_chat", function);
    write_key(&mut body, "messages");
    body.push(b'[');
    let schema = request.options.output_schema.as_ref();
    let system =
        output_options::with_schema(request.system, schema.filter(|_| !quirks.json_schema));
    write_system(&mut body, &system);
    write_messages(&mut body, request.history, key, |message| {
        messages(message, quirks.reasoning_back)
    });
    body.push(b']');
    settings(&mut body, request, quirks);
    body.push(b'}');
    body
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>, quirks: &Quirks) {
    let limit = match quirks.max_tokens {
        MaxTokensField::MaxTokens => "max_tokens",
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
    };
    write_field(body, limit, &request.max_output);
    write_field(body, "stream", &true);
    if quirks.stream_usage {
        write_key(body, "stream_options");
        body.extend_from_slice(br#"{"include_usage":true}"#);
    }
    let options = request.options;
    let reasons = openai_responses::is_reasoning_model(request.model);
    if !reasons {
        write_sampling(body, options, 2.0, "stop");
    }
    if let Some(effort) = output_options::effort(options) {
        write_field(body, "reasoning_effort", effort);
    }
    if let Some(schema) = &options.output_schema {
        write_key(body, "response_format");
        if quirks.json_schema {
            body.extend_from_slice(br#"{"type":"json_schema","json_schema":{"name":"answer""#);
            write_field(body, "schema", schema);
            write_field(body, "strict", &output_options::is_strict(schema));
            body.extend_from_slice(b"}}");
        } else {
            body.extend_from_slice(br#"{"type":"json_object"}"#);
        }
    }
    if let Some(choice) = tool_choice(request) {
        let choice = match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({ "type": "function", "function": { "name": name } }),
        };
        write_field(body, "tool_choice", &choice);
    }
}

/// Encodes one message as none, one or (for results) several messages of the protocol, joined by commas.
fn messages(message: &Message, back: ReasoningBack) -> Vec<u8> {
    match message.role {
        Role::User => {
            let image = |url| json!({ "type": "image_url", "image_url": { "url": url } });
            joined([json!({ "role": "user", "content": user_content(message, "text", image) })])
        }
        Role::Assistant => joined(assistant(message, back)),
        Role::Tool => joined(results(message).map(
            |result| json!({ "role": "tool", "tool_call_id": result.id, "content": result.text }),
        )),
    }
}

fn assistant(message: &Message, back: ReasoningBack) -> Option<Value> {
    let text = Some(message.text()).filter(|text| !text.is_empty());
    let calls: Vec<Value> = message.calls().map(call).collect();
    if text.is_none() && calls.is_empty() {
        return None; // the protocol has no message with only reasoning
    }
    let mut out = json!({ "role": "assistant", "content": text });
    match back {
        ReasoningBack::Never => {}
        ReasoningBack::Content => out["reasoning_content"] = thoughts(message).into(),
        ReasoningBack::Details => {
            let parts = message.parts.iter().filter_map(|part| match part {
                Part::Reasoning {
                    opaque: Some(opaque),
                    ..
                } => opaque.get("reasoning_details")?.as_array(),
                _ => None,
            });
            let details: Vec<Value> = parts.flatten().cloned().collect();
            if !details.is_empty() {
                out["reasoning_details"] = details.into();
            }
        }
    }
    if !calls.is_empty() {
        out["tool_calls"] = calls.into();
    }
    Some(out)
}

/// Encodes a call without malformed arguments, because several servers parse them again.
fn call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.args.to_string() });
    json!({ "id": call.id, "type": "function", "function": function })
}
