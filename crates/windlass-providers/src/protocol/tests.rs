//! Tests of the encoders: the content of bodies, that each message is encoded once, and that a body extends a stable
//! prefix.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::budget::Usage;
use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, Message, Part, Role, ToolCall, ToolResult};
use windlass_core::provider::{Request, Sampling};
use windlass_core::tool::{
    Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSet, ToolSpec, Touch,
};

use super::*;

#[path = "hosted_tests.rs"]
mod hosted;

struct EncoderTool(ToolSpec);

impl Tool for EncoderTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }
    fn touches(&self, _: &Value, _: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }
    fn run<'a>(
        &'a self,
        _: Value,
        _: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async {
            Err(ToolFailure::new(
                ErrorCategory::Exception,
                "not in this test",
            ))
        })
    }
}

pub(super) fn tools(names: &[&str]) -> ToolSet {
    let tool = |name: &&str| -> Arc<dyn Tool> {
        let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
        Arc::new(EncoderTool(ToolSpec::new(
            name,
            "does it",
            schema,
            Effect::Read,
        )))
    };
    ToolSet::new(names.iter().map(tool).collect())
}

fn call(id: &str, args: Value) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: "read_file".into(),
        args,
        malformed: None,
    }
}

fn assistant(parts: Vec<Part>) -> Entry {
    Entry::new(Message {
        parts,
        ..Message::assistant("")
    })
}

fn results(ids: &[(&str, &str, bool)]) -> Entry {
    let result = |(id, text, failed): &(&str, &str, bool)| ToolResult {
        text: (*text).to_owned(),
        error: failed.then_some(ErrorCategory::Exception),
        ..ToolResult::failed(&call(id, json!({})), ErrorCategory::Exception, "")
    };
    Entry::new(Message::results(ids.iter().map(result).collect()))
}

/// A session with a text, an image, thoughts, parallel calls, results, and an empty answer.
fn session() -> Vec<Entry> {
    let image = Part::Image {
        media_type: "image/png".into(),
        data: "aGk=".into(),
    };
    let mut prompt = Message::user("fix \"it\"\n");
    prompt.parts.push(image);
    vec![
        Entry::new(prompt),
        assistant(vec![
            Part::Reasoning {
                text: "hm".into(),
                opaque: Some(json!({ "signature": "sig" })),
            },
            Part::Reasoning {
                text: String::new(),
                opaque: Some(json!({ "redacted": "xyz" })),
            },
            Part::Reasoning {
                text: "unsigned".into(),
                opaque: None,
            },
            Part::Text {
                text: "reading".into(),
            },
            Part::Call(call("call:1", json!({ "path": "a" }))),
            Part::Call(ToolCall {
                malformed: Some("{path".into()),
                ..call("c2", json!({}))
            }),
        ]),
        results(&[("call:1", "text of a", false), ("c2", " ", true)]),
        assistant(vec![Part::Reasoning {
            text: "nothing to say".into(),
            opaque: None,
        }]),
        Entry::new(Message::internal("go on")),
    ]
}

fn encode(
    protocol: Protocol,
    quirks: &Quirks,
    history: &[Entry],
    tools: &ToolSet,
    options: &Sampling,
) -> String {
    let request = Request {
        model: "m-1",
        system: "be brief",
        history,
        tools,
        max_output: 4_096,
        options,
    };
    String::from_utf8(protocol.encode(&request, quirks)).unwrap()
}

#[test]
fn the_messages_body_contains_blocks_signatures_and_cache_marks() {
    let body = encode(
        Protocol::AnthropicMessages,
        &Quirks::NONE,
        &session(),
        &tools(&["a", "b"]),
        &Sampling::default(),
    );
    let mark = json!({ "type": "ephemeral" });
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let expect = json!({
        "model": "m-1",
        "tools": [
            { "name": "a", "description": "does it", "input_schema": schema },
            { "name": "b", "description": "does it", "input_schema": schema },
        ],
        "system": [{ "type": "text", "text": "be brief", "cache_control": mark }],
        "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": "fix \"it\"\n" },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } },
            ] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hm", "signature": "sig" },
                { "type": "redacted_thinking", "data": "xyz" },
                { "type": "text", "text": "reading" },
                { "type": "tool_use", "id": "call_1", "name": "read_file", "input": { "path": "a" } },
                { "type": "tool_use", "id": "c2", "name": "read_file", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "call_1", "content": "text of a" },
                { "type": "tool_result", "tool_use_id": "c2", "content": "(no output)", "is_error": true },
            ] },
            { "role": "user", "content": [{ "type": "text", "text": "go on", "cache_control": mark }] },
        ],
        "max_tokens": 4096,
        "stream": true,
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expect);
}

#[test]
fn the_chat_body_contains_calls_and_one_message_per_result() {
    let options = Sampling {
        temperature: Some(0.5),
        stop: vec!["END".into()],
        ..Sampling::default()
    };
    let body = encode(
        Protocol::OpenAiChat,
        &Quirks::NONE,
        &session(),
        &tools(&["a"]),
        &options,
    );
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let expect = json!({
        "model": "m-1",
        "tools": [{ "type": "function", "function": { "name": "a", "description": "does it", "parameters": schema } }],
        "messages": [
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": [
                { "type": "text", "text": "fix \"it\"\n" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } },
            ] },
            { "role": "assistant", "content": "reading", "tool_calls": [
                { "id": "call:1", "type": "function", "function": { "name": "read_file", "arguments": "{\"path\":\"a\"}" } },
                { "id": "c2", "type": "function", "function": { "name": "read_file", "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": "call:1", "content": "text of a" },
            { "role": "tool", "tool_call_id": "c2", "content": " " },
            { "role": "user", "content": "go on" },
        ],
        "max_tokens": 4096,
        "stream": true,
        "stream_options": { "include_usage": true },
        "temperature": 0.5,
        "stop": ["END"],
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expect);
}

#[test]
fn quirks_change_fields_and_reasoning_and_have_separate_caches() {
    let details = json!([{ "type": "reasoning.text", "text": "hm" }]);
    let thought = Part::Reasoning {
        text: "hm".into(),
        opaque: Some(json!({ "reasoning_details": details })),
    };
    let history = [assistant(vec![thought, Part::Text { text: "x".into() }])];
    let none = ToolSet::default();
    let body = |quirks: Quirks| -> Value {
        serde_json::from_str(&encode(
            Protocol::OpenAiChat,
            &quirks,
            &history,
            &none,
            &Sampling::default(),
        ))
        .unwrap()
    };
    let plain = body(Quirks {
        max_tokens: MaxTokensField::MaxCompletionTokens,
        stream_usage: false,
        ..Quirks::NONE
    });
    assert_eq!(
        (&plain["max_completion_tokens"], plain.get("max_tokens")),
        (&json!(4096), None)
    );
    assert_eq!(
        (plain.get("stream_options"), plain.get("tools")),
        (None, None)
    );
    assert_eq!(
        plain["messages"][1],
        json!({ "role": "assistant", "content": "x" })
    );
    let content = body(Quirks {
        reasoning_back: ReasoningBack::Content,
        ..Quirks::NONE
    });
    assert_eq!(content["messages"][1]["reasoning_content"], "hm");
    let details_back = body(Quirks {
        reasoning_back: ReasoningBack::Details,
        ..Quirks::NONE
    });
    assert_eq!(details_back["messages"][1]["reasoning_details"], details);
}

#[test]
fn thinking_leaves_tokens_for_the_answer_and_excludes_temperature() {
    let thinking = |options: Sampling| -> Value {
        let body = encode(
            Protocol::AnthropicMessages,
            &Quirks::NONE,
            &session(),
            &ToolSet::default(),
            &options,
        );
        serde_json::from_str(&body).unwrap()
    };
    let body = thinking(Sampling {
        thinking_tokens: Some(90_000),
        temperature: Some(1.0),
        ..Sampling::default()
    });
    assert_eq!(
        body["thinking"],
        json!({ "type": "enabled", "budget_tokens": 3072 })
    );
    assert_eq!(body.get("temperature"), None);
    let body = thinking(Sampling {
        reasoning_effort: Some("low".into()),
        ..Sampling::default()
    });
    assert_eq!(body["thinking"]["budget_tokens"], 2048);
}

#[test]
fn the_responses_body_contains_items_and_each_reasoning_before_its_result() {
    let item = |id: &str| json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": "gAAA" });
    let state = |value: Value| Part::Reasoning {
        text: "shown".into(),
        opaque: Some(value),
    };
    let history = [
        Entry::new(Message::user("go")),
        assistant(vec![
            state(json!({ "item": item("rs_1") })),
            state(json!({ "item": { "type": "reasoning", "id": "stored_only", "summary": [] } })),
            state(json!({ "phase": "commentary" })),
            Part::Text {
                text: "reading".into(),
            },
            Part::Call(call("c1", json!({ "path": "a" }))),
            state(json!({ "item": item("rs_led_to_nothing") })),
        ]),
        results(&[("c1", "text of a", false)]),
    ];
    let body = encode(
        Protocol::OpenAiResponses,
        &Quirks::NONE,
        &history,
        &tools(&["a"]),
        &Sampling::default(),
    );
    let mut body: Value = serde_json::from_str(&body).unwrap();
    let key = body
        .as_object_mut()
        .unwrap()
        .remove("prompt_cache_key")
        .unwrap();
    assert!(
        key.as_str().unwrap().starts_with("windlass-") && key.as_str().unwrap().len() == 25,
        "{key}"
    );
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let expect = json!({
        "model": "m-1",
        "tools": [{ "type": "function", "name": "a", "description": "does it", "parameters": schema, "strict": false }],
        "input": [
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": "go" },
            item("rs_1"),
            { "type": "message", "role": "assistant", "content": "reading", "phase": "commentary" },
            { "type": "function_call", "call_id": "c1", "name": "read_file", "arguments": "{\"path\":\"a\"}" },
            { "type": "function_call_output", "call_id": "c1", "output": "text of a" },
        ],
        "max_output_tokens": 4096,
        "stream": true,
        "store": false,
    });
    assert_eq!(body, expect);
}

#[test]
fn the_gemini_body_contains_contents_calls_and_responses() {
    let body = encode(
        Protocol::Gemini,
        &Quirks::NONE,
        &session(),
        &tools(&["a"]),
        &Sampling::default(),
    );
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let expect = json!({
        "systemInstruction": { "parts": [{ "text": "be brief" }] },
        "tools": [{ "functionDeclarations": [
            { "name": "a", "description": "does it", "parametersJsonSchema": schema },
        ] }],
        "contents": [
            { "role": "user", "parts": [
                { "text": "fix \"it\"\n" },
                { "inlineData": { "mimeType": "image/png", "data": "aGk=" } },
            ] },
            { "role": "model", "parts": [
                { "text": "reading" },
                { "functionCall": { "id": "call:1", "name": "read_file", "args": { "path": "a" } } },
                { "functionCall": { "id": "c2", "name": "read_file", "args": {} } },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "id": "call:1", "name": "read_file", "response": { "output": "text of a" } } },
                { "functionResponse": { "id": "c2", "name": "read_file", "response": { "error": " " } } },
            ] },
            { "role": "user", "parts": [{ "text": "go on" }] },
        ],
        "generationConfig": { "maxOutputTokens": 4096 },
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expect);
}

#[test]
fn without_a_system_prompt_the_cache_mark_is_on_the_tools() {
    let (history, tools, options) = (session(), tools(&["a", "b"]), Sampling::default());
    let request = |system| Request {
        model: "m",
        system,
        history: &history,
        tools: &tools,
        max_output: 1,
        options: &options,
    };
    let body: Value =
        serde_json::from_slice(&anthropic::encode(&request(""), &Quirks::NONE, None, true))
            .unwrap();
    assert_eq!(body.get("system"), None);
    assert_eq!(
        (
            body["tools"][0].get("cache_control"),
            body["tools"][1].get("cache_control").is_some()
        ),
        (None, true)
    );
    let unmarked = Quirks {
        cache_marks: false,
        ..Quirks::NONE
    };
    let body = String::from_utf8(anthropic::encode(&request("s"), &unmarked, None, true)).unwrap();
    assert!(!body.contains("cache_control"));
}

#[test]
fn each_message_is_encoded_once() {
    for (protocol, key) in [
        (Protocol::AnthropicMessages, "anthropic"),
        (Protocol::OpenAiChat, "openai_chat"),
        (Protocol::OpenAiResponses, "openai_responses"),
        (Protocol::Gemini, "gemini"),
    ] {
        let (history, tools) = (session(), tools(&["a"]));
        encode(
            protocol,
            &Quirks::NONE,
            &history,
            &tools,
            &Sampling::default(),
        );
        let kept = |slot: &windlass_core::tool::WireSlot| {
            slot.get_or_encode(key, || panic!("it was not cached"))
        };
        assert!(
            history
                .iter()
                .filter(|entry| entry.role != Role::Assistant)
                .all(|entry| !kept(entry.wire()).is_empty())
        );
        assert!(!kept(tools.wire()).is_empty());
    }
}

#[test]
fn each_body_begins_with_the_messages_of_the_one_before() {
    for (protocol, behind) in [
        (Protocol::AnthropicMessages, ""),
        (Protocol::OpenAiChat, "],\"max_tokens\""),
        (Protocol::OpenAiResponses, "],\"max_output_tokens\""),
        (Protocol::Gemini, "],\"generationConfig\""),
    ] {
        let (tools, mut history) = (tools(&["a", "b"]), vec![Entry::new(Message::user("start"))]);
        let mut before: Option<String> = None;
        for step in 0..20 {
            let body = encode(
                protocol,
                &Quirks::NONE,
                &history,
                &tools,
                &Sampling::default(),
            );
            if let Some(before) = before {
                // All bytes up to the end of the last message, or up to its cache mark, are the same.
                let marked = before.rfind(",\"cache_control\"");
                let end = marked.unwrap_or_else(|| before.rfind(behind).unwrap());
                assert!(
                    end > 200 && body.as_bytes().starts_with(&before.as_bytes()[..end]),
                    "{protocol:?} step {step}"
                );
            }
            before = Some(body);
            let id = format!("c{step}");
            history.push(assistant(vec![
                Part::Text {
                    text: format!("step {step}"),
                },
                Part::Call(call(&id, json!({ "path": id }))),
            ]));
            history.push(results(&[(&id, "output", false)]));
        }
    }
}

#[test]
fn consecutive_pieces_in_a_batch_become_one_chunk() {
    let mut batch = Batch::default();
    batch.text("a");
    batch.text("");
    batch.text("b");
    batch.reasoning("c");
    batch.args(0, "{");
    batch.args(0, "}");
    batch.args(1, "{}");
    assert_eq!((batch.len(), batch.bytes()), (4, 7));
    let args = |index, json: &str| Chunk::CallArgs {
        index,
        json: json.into(),
    };
    let all: Vec<Chunk> = std::iter::from_fn(|| batch.pop()).collect();
    assert_eq!(
        all,
        [
            Chunk::Text("ab".into()),
            Chunk::Reasoning("c".into()),
            args(0, "{}"),
            args(1, "{}")
        ]
    );
}

#[test]
fn counts_with_every_piece_of_text_leave_one_text() {
    let usage = |input| {
        Chunk::Usage(Usage {
            input,
            ..Usage::default()
        })
    };
    let mut batch = Batch::default();
    for (count, piece) in [(1, "a"), (2, "b"), (3, "c")] {
        batch.push(usage(count));
        batch.text(piece);
    }
    batch.call(0, "id", "name");
    batch.push(usage(4));
    let chunks: Vec<_> = std::iter::from_fn(|| batch.pop()).collect();
    let call = Chunk::CallStart {
        index: 0,
        id: "id".into(),
        name: "name".into(),
    };
    assert_eq!(
        chunks,
        [usage(3), Chunk::Text("abc".into()), call, usage(4)]
    );
}
