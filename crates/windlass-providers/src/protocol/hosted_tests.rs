//! Tests of the encoders of Ollama, Bedrock and Vertex: the content of bodies, and that they extend a stable prefix.
#![allow(clippy::unwrap_used)]

use windlass_core::provider::ToolChoice;

use super::*;

fn body(protocol: Protocol, quirks: &Quirks, options: &Sampling) -> Value {
    serde_json::from_str(&encode(
        protocol,
        quirks,
        &session(),
        &tools(&["a"]),
        options,
    ))
    .unwrap()
}

#[test]
fn the_ollama_body_contains_images_thoughts_and_calls_as_objects() {
    let options = Sampling {
        temperature: Some(0.5),
        stop: vec!["END".into()],
        reasoning_effort: Some("high".into()),
        output_schema: Some(json!({ "type": "object" })),
        ..Sampling::default()
    };
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let expect = json!({
        "model": "m-1",
        "tools": [{ "type": "function", "function": { "name": "a", "description": "does it", "parameters": schema } }],
        "messages": [
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": "fix \"it\"\n", "images": ["aGk="] },
            { "role": "assistant", "content": "reading", "thinking": "hmunsigned", "tool_calls": [
                { "id": "call:1", "function": { "name": "read_file", "arguments": { "path": "a" } } },
                { "id": "c2", "function": { "name": "read_file", "arguments": {} } },
            ] },
            { "role": "tool", "tool_name": "read_file", "tool_call_id": "call:1", "content": "text of a" },
            { "role": "tool", "tool_name": "read_file", "tool_call_id": "c2", "content": " " },
            { "role": "user", "content": "go on" },
        ],
        "options": { "num_predict": 4096, "num_ctx": 8192, "temperature": 0.5, "stop": ["END"] },
        "stream": true,
        "truncate": false,
        "shift": false,
        "format": { "type": "object" },
        "think": "high",
    });
    assert_eq!(
        body(
            Protocol::OllamaChat,
            &Quirks {
                window: Some(8_192),
                ..Quirks::NONE
            },
            &options
        ),
        expect
    );
    let plain = body(
        Protocol::OllamaChat,
        &Quirks {
            window: Some(512),
            ..Quirks::NONE
        },
        &Sampling::default(),
    );
    assert_eq!(
        plain["options"],
        json!({ "num_predict": 512, "num_ctx": 512 })
    );
    assert_eq!((plain.get("think"), plain.get("format")), (None, None));
    let none = Sampling {
        tool_choice: Some(ToolChoice::None),
        thinking_tokens: Some(0),
        ..Sampling::default()
    };
    let none = body(Protocol::OllamaChat, &Quirks::NONE, &none);
    assert_eq!(
        (
            none.get("tools"),
            &none["think"],
            none["options"].get("num_ctx")
        ),
        (None, &json!(false), None)
    );
}

#[test]
fn hosted_messages_contain_a_version_and_no_model() {
    let bedrock = body(
        Protocol::BedrockAnthropic,
        &Quirks::NONE,
        &Sampling::default(),
    );
    assert_eq!((bedrock.get("model"), bedrock.get("stream")), (None, None));
    assert_eq!(
        (&bedrock["anthropic_version"], &bedrock["max_tokens"]),
        (&json!("bedrock-2023-05-31"), &json!(4096))
    );
    let vertex = body(
        Protocol::VertexAnthropic,
        &Quirks::NONE,
        &Sampling::default(),
    );
    assert_eq!(
        (vertex.get("model"), &vertex["stream"]),
        (None, &json!(true))
    );
    assert_eq!(vertex["anthropic_version"], "vertex-2023-10-16");
    let direct = body(
        Protocol::AnthropicMessages,
        &Quirks::NONE,
        &Sampling::default(),
    );
    assert_eq!(
        (direct.get("anthropic_version"), &direct["messages"]),
        (None, &bedrock["messages"])
    );
}

#[test]
fn the_converse_body_contains_blocks() {
    let options = Sampling {
        temperature: Some(2.0),
        stop: vec!["END".into()],
        tool_choice: Some(ToolChoice::Named("a".into())),
        ..Sampling::default()
    };
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let expect = json!({
        "system": [{ "text": "be brief" }],
        "toolConfig": {
            "tools": [{ "toolSpec": { "name": "a", "description": "does it", "inputSchema": { "json": schema } } }],
            "toolChoice": { "tool": { "name": "a" } },
        },
        "messages": [
            { "role": "user", "content": [
                { "text": "fix \"it\"\n" },
                { "image": { "format": "png", "source": { "bytes": "aGk=" } } },
            ] },
            { "role": "assistant", "content": [
                { "reasoningContent": { "reasoningText": { "text": "hm", "signature": "sig" } } },
                { "reasoningContent": { "redactedContent": "xyz" } },
                { "text": "reading" },
                { "toolUse": { "toolUseId": "call:1", "name": "read_file", "input": { "path": "a" } } },
                { "toolUse": { "toolUseId": "c2", "name": "read_file", "input": {} } },
            ] },
            { "role": "user", "content": [
                { "toolResult": { "toolUseId": "call:1", "content": [{ "text": "text of a" }], "status": "success" } },
                { "toolResult": { "toolUseId": "c2", "content": [{ "text": "(no output)" }], "status": "error" } },
                { "text": "go on" },
            ] },
        ],
        "inferenceConfig": { "maxTokens": 4096, "temperature": 1.0, "stopSequences": ["END"] },
    });
    assert_eq!(
        body(Protocol::BedrockConverse, &Quirks::NONE, &options),
        expect
    );
}

#[test]
fn consecutive_messages_of_one_role_are_merged_for_converse() {
    let only_reasoning = || {
        assistant(vec![Part::Reasoning {
            text: "hm".into(),
            opaque: None,
        }])
    };
    let user = |text: &str| Entry::new(Message::user(text));
    let history = [
        only_reasoning(),
        user("a"),
        only_reasoning(),
        user("b"),
        user(" "),
        assistant(vec![Part::Text { text: "c".into() }]),
        user("d"),
        user("e"),
    ];
    let text = encode(
        Protocol::BedrockConverse,
        &Quirks::NONE,
        &history,
        &tools(&[]),
        &Sampling::default(),
    );
    let body: Value = serde_json::from_str(&text).unwrap();
    let expect = json!([
        { "role": "user", "content": [{ "text": "a" }, { "text": "b" }] },
        { "role": "assistant", "content": [{ "text": "c" }] },
        { "role": "user", "content": [{ "text": "d" }, { "text": "e" }] },
    ]);
    assert_eq!(body["messages"], expect);
}

#[test]
fn each_body_begins_with_the_messages_of_the_one_before() {
    for protocol in [
        Protocol::OllamaChat,
        Protocol::BedrockAnthropic,
        Protocol::BedrockConverse,
    ] {
        let (tools, mut history) = (tools(&["a", "b"]), session());
        let unmarked = Quirks {
            cache_marks: false,
            ..Quirks::NONE
        };
        let before = encode(protocol, &unmarked, &history, &tools, &Sampling::default());
        history.push(assistant(vec![Part::Text {
            text: "more".into(),
        }]));
        let body = encode(protocol, &unmarked, &history, &tools, &Sampling::default());
        let settings = ["],\"options\"", "],\"max_tokens\"", "],\"inferenceConfig\""];
        let end = settings.iter().find_map(|mark| before.rfind(mark)).unwrap();
        assert!(
            end > 200 && body.starts_with(&before[..end]),
            "{protocol:?}"
        );
    }
}
