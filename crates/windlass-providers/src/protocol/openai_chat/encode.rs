//! The body of a chat completion. Each message is encoded once and kept beside the history. It sends nothing.

use serde_json::Value;
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSet;

use crate::protocol::wire::{likely_size, write_field, write_json, write_key, write_messages};
use crate::protocol::{MaxTokensField, Quirks, ReasoningBack, openai_responses, wishes};

/// The body of a request. Everything that may change from step to step comes after the messages.
pub fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    // Messages encoded for a vendor that wants its reasoning back do not fit another one.
    let key = match quirks.reasoning_back {
        ReasoningBack::Never => "openai_chat",
        ReasoningBack::Content => "openai_chat+content",
        ReasoningBack::Details => "openai_chat+details",
    };
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    if !request.tools.is_empty() {
        write_key(&mut body, "tools");
        request
            .tools
            .wire()
            .append_to(&mut body, "openai_chat", || tool_list(request.tools));
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    let schema = request.options.output_schema.as_ref();
    let system = wishes::with_schema(request.system, schema.filter(|_| !quirks.json_schema));
    if !system.trim().is_empty() {
        body.extend_from_slice(br#"{"role":"system","content":"#);
        write_json(&mut body, &system);
        body.push(b'}');
    }
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
    let reasons = openai_responses::reasons(request.model);
    if let Some(temperature) = options.temperature.filter(|_| !reasons) {
        write_field(body, "temperature", &temperature.clamp(0.0, 2.0));
    }
    if let Some(effort) = wishes::effort(options) {
        write_field(body, "reasoning_effort", effort);
    }
    if !options.stop.is_empty() && !reasons {
        write_field(body, "stop", &options.stop);
    }
    if let Some(schema) = &options.output_schema {
        write_key(body, "response_format");
        if quirks.json_schema {
            body.extend_from_slice(br#"{"type":"json_schema","json_schema":{"name":"answer""#);
            write_field(body, "schema", schema);
            write_field(body, "strict", &wishes::is_strict(schema));
            body.extend_from_slice(b"}}");
        } else {
            body.extend_from_slice(br#"{"type":"json_object"}"#);
        }
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
                let function =
                    serde_json::json!({ "type": "function", "function": { "name": name } });
                write_field(body, "tool_choice", &function);
            }
        }
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
fn messages(message: &Message, back: ReasoningBack) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role {
        Role::User => user(&mut out, message),
        Role::Assistant => assistant(&mut out, message, back),
        Role::Tool => {
            for part in &message.parts {
                let Part::Result(result) = part else { continue };
                out.extend_from_slice(if out.is_empty() { b"{" } else { b",{" });
                write_field(&mut out, "role", "tool");
                write_field(&mut out, "tool_call_id", &result.id);
                write_field(&mut out, "content", &result.text);
                out.push(b'}');
            }
        }
    }
    out
}

fn user(out: &mut Vec<u8>, message: &Message) {
    out.push(b'{');
    write_field(out, "role", "user");
    write_key(out, "content");
    if !message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Image { .. }))
    {
        write_json(out, &message.text());
        out.push(b'}');
        return;
    }
    out.push(b'[');
    for part in &message.parts {
        let comma: &[u8] = if out.last() == Some(&b'}') { b"," } else { b"" };
        match part {
            Part::Text { text } => {
                out.extend_from_slice(comma);
                out.extend_from_slice(br#"{"type":"text","text":"#);
                write_json(out, text);
                out.push(b'}');
            }
            Part::Image { media_type, data } => {
                out.extend_from_slice(comma);
                out.extend_from_slice(br#"{"type":"image_url","image_url":{"url":"#);
                write_json(out, &format!("data:{media_type};base64,{data}"));
                out.extend_from_slice(b"}}");
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"]}");
}

fn assistant(out: &mut Vec<u8>, message: &Message, back: ReasoningBack) {
    let text = message.text();
    let has_calls = message.calls().next().is_some();
    if text.is_empty() && !has_calls {
        return; // only reasoning: nothing that this protocol could repeat
    }
    out.push(b'{');
    write_field(out, "role", "assistant");
    if text.is_empty() {
        write_field(out, "content", &Value::Null)
    } else {
        write_field(out, "content", &text)
    }
    match back {
        ReasoningBack::Never => {}
        ReasoningBack::Content => {
            let parts = message.parts.iter().filter_map(|part| match part {
                Part::Reasoning { text, .. } => Some(text.as_str()),
                _ => None,
            });
            write_field(out, "reasoning_content", &parts.collect::<String>());
        }
        ReasoningBack::Details => {
            let parts = message.parts.iter().filter_map(|part| match part {
                Part::Reasoning {
                    opaque: Some(opaque),
                    ..
                } => opaque.get("reasoning_details")?.as_array(),
                _ => None,
            });
            let details: Vec<&Value> = parts.flatten().collect();
            if !details.is_empty() {
                write_field(out, "reasoning_details", &details);
            }
        }
    }
    if has_calls {
        write_key(out, "tool_calls");
        out.push(b'[');
        for (at, call) in message.calls().enumerate() {
            out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
            write_field(out, "id", &call.id);
            write_field(out, "type", "function");
            write_key(out, "function");
            out.push(b'{');
            write_field(out, "name", &call.name);
            // Arguments that were not JSON stay out: several servers parse what they get back.
            write_field(out, "arguments", &call.args.to_string());
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
    out.push(b'}');
}
