//! Encodes requests of the `generateContent` protocol. The encoded form of each message is cached with the history.

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSet;

use crate::protocol::wire::{
    joined, likely_size, object_args, tool_choice, write_field, write_key, write_messages,
    write_sampling,
};
use crate::protocol::{Quirks, output_options};

const KEY: &str = "gemini";
/// The cache key of messages for models that require a signature on every call.
const SIGNED_KEY: &str = "gemini+signed";
/// The placeholder that the vendor accepts as the signature of a call by another model.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// Encodes a request; the model is in the address. Fields that may change between steps follow the contents.
pub(in crate::protocol) fn encode(request: &Request<'_>, _: &Quirks) -> Vec<u8> {
    let third_generation = generation(request.model) >= 3;
    let key = if third_generation { SIGNED_KEY } else { KEY };
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    // Models before the third generation accept either tools or a schema. With tools, the schema goes into the prompt.
    let schema = request.options.output_schema.as_ref();
    let in_prompt = schema.filter(|_| !third_generation && !request.tools.is_empty());
    let system = output_options::with_schema(request.system, in_prompt);
    if !system.trim().is_empty() {
        let system = json!({ "parts": [{ "text": system }] });
        write_field(&mut body, "systemInstruction", &system);
    }
    if !request.tools.is_empty() {
        write_key(&mut body, "tools");
        request
            .tools
            .wire()
            .append_to(&mut body, KEY, || tool_list(request.tools));
    }
    write_key(&mut body, "contents");
    body.push(b'[');
    write_messages(&mut body, request.history, key, |message| {
        content(message, third_generation)
    });
    body.push(b']');
    if let Some(choice) = tool_choice(request) {
        let config = match choice {
            ToolChoice::Auto => json!({ "mode": "AUTO" }),
            ToolChoice::None => json!({ "mode": "NONE" }),
            ToolChoice::Required => json!({ "mode": "ANY" }),
            ToolChoice::Named(name) => json!({ "mode": "ANY", "allowedFunctionNames": [name] }),
        };
        let config = json!({ "functionCallingConfig": config });
        write_field(&mut body, "toolConfig", &config);
    }
    settings(
        &mut body,
        request,
        schema.filter(|_| in_prompt.is_none()),
        third_generation,
    );
    body.push(b'}');
    body
}

fn settings(
    body: &mut Vec<u8>,
    request: &Request<'_>,
    schema: Option<&Value>,
    third_generation: bool,
) {
    let options = request.options;
    write_key(body, "generationConfig");
    body.push(b'{');
    write_field(body, "maxOutputTokens", &request.max_output);
    write_sampling(body, options, 2.0, "stopSequences");
    // The third generation accepts a level or a number of tokens; the second only a number.
    let level = options
        .reasoning_effort
        .as_deref()
        .filter(|_| third_generation && options.thinking_tokens.is_none());
    if let Some(level) = level {
        let level = match level {
            "none" => "minimal",
            "xhigh" | "max" => "high",
            other => other,
        };
        write_field(
            body,
            "thinkingConfig",
            &json!({ "includeThoughts": true, "thinkingLevel": level }),
        );
    } else if let Some(tokens) = output_options::thinking_tokens(options) {
        write_field(
            body,
            "thinkingConfig",
            &json!({ "includeThoughts": tokens > 0, "thinkingBudget": tokens }),
        );
    }
    if let Some(schema) = schema {
        write_field(body, "responseMimeType", "application/json");
        write_field(
            body,
            "responseJsonSchema",
            output_options::without_dialect(schema).as_ref(),
        );
    }
    body.push(b'}');
}

/// Returns the generation in a model's name. A name without a number is an alias for a recent model.
fn generation(model: &str) -> u32 {
    let Some((_, rest)) = model.split_once("gemini-") else {
        return 2;
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(3)
}

fn tool_list(tools: &ToolSet) -> Vec<u8> {
    let declared = tools.iter().map(|tool| {
        let spec = tool.spec();
        let schema = output_options::without_dialect(&spec.schema);
        json!({ "name": spec.name, "description": spec.description, "parametersJsonSchema": schema })
    });
    let declared: Value = declared.collect();
    joined([json!([{ "functionDeclarations": declared }])])
}

/// Encodes one message; empty if the protocol can express no part of it.
fn content(message: &Message, signed: bool) -> Vec<u8> {
    let role = match message.role {
        Role::Assistant => "model",
        Role::User | Role::Tool => "user",
    };
    let mut parts = Vec::new();
    let mut unsigned_calls = signed && message.role == Role::Assistant;
    for (at, part) in message.parts.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| message.parts.get(at));
        let signature = match part {
            Part::Call(_) => signature(before, "call"),
            Part::Text { .. } => signature(message.parts.get(at + 1), "text"),
            Part::Reasoning { .. } => signature(Some(part), "thought").or_else(|| {
                // This signature has no text of its own; with a text before it, that text gets the signature.
                signature(Some(part), "text").filter(|_| !matches!(before, Some(Part::Text { .. })))
            }),
            _ => None,
        };
        // Only the first of several parallel calls has a signature.
        let is_call = matches!(part, Part::Call(_));
        let signature =
            signature.or_else(|| (is_call && unsigned_calls).then_some(FOREIGN_SIGNATURE));
        unsigned_calls &= !is_call;
        let empty_text = Part::Text {
            text: String::new(),
        };
        let part = if is_text_signature(part) {
            &empty_text
        } else {
            part
        };
        let Some(mut encoded) = encode_part(part, signature) else {
            continue;
        };
        if let Some(signature) = signature {
            encoded["thoughtSignature"] = signature.into();
        }
        parts.push(encoded);
    }
    let encoded = (!parts.is_empty()).then(|| json!({ "role": role, "parts": parts }));
    joined(encoded)
}

/// Returns the signature in a reasoning part, if it belongs to a part of the kind `on`.
fn signature<'a>(part: Option<&'a Part>, on: &str) -> Option<&'a str> {
    match part? {
        Part::Reasoning {
            opaque: Some(opaque),
            ..
        } if opaque.get("on").and_then(Value::as_str) == Some(on) => {
            opaque.get("thought_signature")?.as_str()
        }
        _ => None,
    }
}

/// Returns whether the part is the signature of a text. If that text was empty, only the signature was kept, possibly
/// with a thought.
fn is_text_signature(part: &Part) -> bool {
    matches!(part, Part::Reasoning { .. }) && signature(Some(part), "text").is_some()
}

fn encode_part(part: &Part, signature: Option<&str>) -> Option<Value> {
    Some(match part {
        Part::Text { text } if text.is_empty() && signature.is_none() => return None,
        Part::Text { text } => json!({ "text": text }),
        // The vendor needs only thoughts with a signature.
        Part::Reasoning { .. } if signature.is_none() => return None,
        Part::Reasoning { text, .. } => json!({ "text": text, "thought": true }),
        Part::Image { media_type, data } => {
            json!({ "inlineData": { "mimeType": media_type, "data": data } })
        }
        Part::Call(call) => {
            let args = object_args(call);
            json!({ "functionCall": { "id": call.id, "name": call.name, "args": args } })
        }
        Part::Result(result) => {
            let name = if result.error.is_some() {
                "error"
            } else {
                "output"
            };
            let response = json!({ name: result.text });
            json!({ "functionResponse": { "id": result.id, "name": result.name, "response": response } })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_is_in_the_name() {
        for (model, expect) in [
            ("gemini-2.5-pro", 2),
            ("models/gemini-3.1-pro-preview", 3),
            ("gemini-12-flash", 12),
            ("gemini-flash-latest", 3),
            ("gemma-3-27b-it", 2),
        ] {
            assert_eq!(generation(model), expect, "{model}");
        }
    }

    #[test]
    fn signatures_go_back_on_the_part_they_came_on() {
        let state = |on: &str, signature: &str, text: &str| Part::Reasoning {
            text: text.into(),
            opaque: Some(json!({ "thought_signature": signature, "on": on })),
        };
        let call = |id: &str| {
            let call = json!({ "type": "call", "data": { "id": id, "name": "t", "args": {} } });
            serde_json::from_value::<Part>(call).expect("a call")
        };
        let text = |text: &str| Part::Text { text: text.into() };
        let check = |parts: Vec<Part>, signed, expect: Value| {
            let message = Message {
                parts,
                ..Message::assistant("")
            };
            let bytes = content(&message, signed);
            let parts = serde_json::from_slice::<Value>(&bytes)
                .map_or(Value::Null, |mut value| value["parts"].take());
            assert_eq!(parts, expect);
        };
        let function = |id: &str| json!({ "id": id, "name": "t", "args": {} });
        check(
            vec![
                text("a"),
                state("text", "s1", ""),
                state("call", "s2", "hidden"),
                call("1"),
                call("2"),
            ],
            true,
            json!([
                { "text": "a", "thoughtSignature": "s1" },
                { "functionCall": function("1"), "thoughtSignature": "s2" },
                { "functionCall": function("2") },
            ]),
        );
        check(
            vec![
                state("thought", "s1", "hm"),
                state("text", "s2", "not sent"),
            ],
            true,
            json!([{ "text": "hm", "thought": true, "thoughtSignature": "s1" }, { "text": "", "thoughtSignature": "s2" }]),
        );
        check(
            vec![call("1")],
            false,
            json!([{ "functionCall": function("1") }]),
        );
        check(
            vec![call("1")],
            true,
            json!([{ "functionCall": function("1"), "thoughtSignature": FOREIGN_SIGNATURE }]),
        );
        check(
            vec![Part::Reasoning {
                text: "x".into(),
                opaque: None,
            }],
            true,
            Value::Null,
        );
    }
}
