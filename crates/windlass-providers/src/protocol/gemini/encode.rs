//! The body of a generateContent request. Each message is encoded once and kept beside the history. It sends nothing;
//! the model's name is part of the address, not of the body.

use serde_json::{Value, json};
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSet;

use crate::protocol::wire::{
    joined, likely_size, object_args, tool_choice, write_field, write_key, write_messages,
    write_sampling,
};
use crate::protocol::{Quirks, wishes};

const KEY: &str = "gemini";
/// Messages for models that demand a signature on every call.
const SIGNED: &str = "gemini+signed";
/// What the vendor accepts in the place of the signature of a call that another model made.
const FOREIGN: &str = "skip_thought_signature_validator";

/// The body of a request. Everything that may change from step to step comes after the contents.
pub(in crate::protocol) fn encode(request: &Request<'_>, _: &Quirks) -> Vec<u8> {
    let third = generation(request.model) >= 3;
    let key = if third { SIGNED } else { KEY };
    let mut body = Vec::with_capacity(likely_size(request));
    body.push(b'{');
    // Models before the third generation take tools or a schema, not both: then the schema is told in words.
    let schema = request.options.output_schema.as_ref();
    let by_words = schema.filter(|_| !third && !request.tools.is_empty());
    let system = wishes::with_schema(request.system, by_words);
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
        content(message, third)
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
        schema.filter(|_| by_words.is_none()),
        third,
    );
    body.push(b'}');
    body
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>, schema: Option<&Value>, third: bool) {
    let options = request.options;
    write_key(body, "generationConfig");
    body.push(b'{');
    write_field(body, "maxOutputTokens", &request.max_output);
    write_sampling(body, options, 2.0, "stopSequences");
    // The third generation thinks by level and still takes a number; the second knows numbers only.
    let level = options
        .reasoning_effort
        .as_deref()
        .filter(|_| third && options.thinking_tokens.is_none());
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
    } else if let Some(tokens) = wishes::thinking_tokens(options) {
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
            wishes::without_dialect(schema).as_ref(),
        );
    }
    body.push(b'}');
}

/// The number in a model's name; a name without one is taken for the newest, because aliases move on.
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
        let schema = wishes::without_dialect(&spec.schema);
        json!({ "name": spec.name, "description": spec.description, "parametersJsonSchema": schema })
    });
    let declared: Value = declared.collect();
    joined([json!([{ "functionDeclarations": declared }])])
}

/// One message; nothing at all when no part of it can be said in this protocol.
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
                // A signature without a text of its own; otherwise the text before it has taken it.
                signature(Some(part), "text").filter(|_| !matches!(before, Some(Part::Text { .. })))
            }),
            _ => None,
        };
        // Only the first of several calls that were asked for together carries one.
        let is_call = matches!(part, Part::Call(_));
        let signature = signature.or_else(|| (is_call && unsigned_calls).then_some(FOREIGN));
        unsigned_calls &= !is_call;
        let lone = Part::Text {
            text: String::new(),
        };
        let part = if signature_is_lone(part) { &lone } else { part };
        let Some(mut said) = encoded(part, signature) else {
            continue;
        };
        if let Some(signature) = signature {
            said["thoughtSignature"] = signature.into();
        }
        parts.push(said);
    }
    let said = (!parts.is_empty()).then(|| json!({ "role": role, "parts": parts }));
    joined(said)
}

/// The signature in a reasoning part, if it belongs on such a part.
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

/// A signature of a text that was empty: it may have been kept behind a thought.
fn signature_is_lone(part: &Part) -> bool {
    matches!(part, Part::Reasoning { .. }) && signature(Some(part), "text").is_some()
}

fn encoded(part: &Part, signature: Option<&str>) -> Option<Value> {
    Some(match part {
        Part::Text { text } if text.is_empty() && signature.is_none() => return None,
        Part::Text { text } => json!({ "text": text }),
        // Thoughts alone are not asked for again.
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
            json!([{ "functionCall": function("1"), "thoughtSignature": FOREIGN }]),
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
