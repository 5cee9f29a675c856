//! Tests of the protocols without server-sent events: synthetic answers, decoded whole, split in two at every position,
//! byte by byte and truncated at every position; and recorded Converse streams, if they are available.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_providers::protocol::{Protocol, Quirks};

use super::fixtures::{document, summary};
use super::{read, shared};

/// Encodes a binary message with text headers.
fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        bytes.push(u8::try_from(name.len()).unwrap());
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(7);
        bytes.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(value.as_bytes());
    }
    let total = u32::try_from(bytes.len() + payload.len() + 16).unwrap();
    let mut out = [
        total.to_be_bytes(),
        u32::try_from(bytes.len()).unwrap().to_be_bytes(),
    ]
    .concat();
    out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
    out.extend_from_slice(&bytes);
    out.extend_from_slice(payload.as_bytes());
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

fn event(name: &str, payload: Value) -> Vec<u8> {
    message(
        &[
            (":event-type", name),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ],
        &payload.to_string(),
    )
}

/// Encodes an event of the messages protocol as Bedrock wraps it.
fn chunk(payload: Value) -> Vec<u8> {
    event(
        "chunk",
        json!({ "bytes": STANDARD.encode(payload.to_string()), "p": "abcdef" }),
    )
}

fn exception(name: &str, text: &str) -> Vec<u8> {
    let headers = [(":exception-type", name), (":message-type", "exception")];
    message(&headers, &json!({ "message": text }).to_string())
}

fn lines(lines: &[Value]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect()
}

/// Checks the result of an answer: it is the same in every split, and a truncated answer gives a prefix of it.
#[track_caller]
fn check(protocol: Protocol, body: &[u8], expect: Value) {
    let whole = read(protocol, &Quirks::NONE, [body]);
    let mut got = summary(&whole);
    if expect.get("ids").is_none() {
        got.as_object_mut().unwrap().remove("ids");
    }
    if whole.cut {
        got.as_object_mut().unwrap().remove("end"); // a cut answer has no end
    }
    assert_eq!(got, expect);
    for at in 0..=body.len() {
        let (head, tail) = body.split_at(at);
        assert_eq!(
            read(protocol, &Quirks::NONE, [head, tail]),
            whole,
            "split at {at}"
        );
        let part = read(protocol, &Quirks::NONE, [head]);
        assert!(
            part.error.is_none() || part.error == whole.error,
            "cut at {at}: {:?}",
            part.error
        );
        assert!(
            whole
                .reply
                .message
                .text()
                .starts_with(&part.reply.message.text()),
            "cut at {at}"
        );
        if !part.cut {
            assert_eq!(part.reply.message, whole.reply.message, "cut at {at}");
        }
    }
    for size in [1, 2, 3, 64] {
        assert_eq!(
            read(protocol, &Quirks::NONE, body.chunks(size)),
            whole,
            "in pieces of {size}"
        );
    }
}

#[test]
fn ollama_sends_thoughts_text_complete_calls_and_counts() {
    let line = |message: Value| json!({ "model": "m", "message": message, "done": false });
    let body = lines(&[
        line(json!({ "role": "assistant", "content": "", "thinking": "hm " })),
        line(json!({ "role": "assistant", "content": "", "thinking": "\u{1f914}" })),
        line(json!({ "role": "assistant", "content": "Hel" })),
        json!({ "keep": "alive" }),
        line(json!({ "role": "assistant", "content": "lo" })),
        line(json!({ "role": "assistant", "content": "", "tool_calls": [
            { "id": "c1", "function": { "index": 0, "name": "add", "arguments": { "x": 1 } } },
            { "function": { "index": 0, "name": "now", "arguments": {} } } ] })),
        line(
            json!({ "tool_calls": [{ "function": { "name": "raw", "arguments": "{\"y\":2}" } }, { "id": 7 }] }),
        ),
        json!({ "message": { "content": "" }, "done": true, "done_reason": "stop", "prompt_eval_count": 12, "eval_count": 7 }),
        json!({ "message": { "content": "too late" }, "done": false }),
    ]);
    let expect = json!({
        "text": "Hello", "reasoning": "hm \u{1f914}", "end": "tool_calls", "usage": [12, 0, 0, 7],
        "calls": [["add", { "x": 1 }], ["now", {}], ["raw", { "y": 2 }]], "ids": ["c1", "fresh-1", "fresh-2"],
        "unknown": ["unknown line `without a message`"],
    });
    check(Protocol::OllamaChat, &body, expect);
}

#[test]
fn ollama_reports_early_ends() {
    let body = lines(&[
        json!({ "message": { "content": "half" }, "done": false }),
        json!({ "message": { "content": "" }, "done": true, "done_reason": "length", "prompt_eval_count": 1, "eval_count": -4 }),
    ]);
    check(
        Protocol::OllamaChat,
        &body,
        json!({ "text": "half", "end": "length", "truncated": true, "usage": [1, 0, 0, u64::MAX] }),
    );
    let body = lines(&[
        json!({ "message": { "content": "half" }, "done": false }),
        json!({ "error": "model runner has unexpectedly stopped" }),
    ]);
    check(
        Protocol::OllamaChat,
        &body,
        json!({ "text": "half", "error": "unavailable", "cut": true }),
    );
    let body = lines(&[json!({ "error": "the input length exceeds the context length" })]);
    check(
        Protocol::OllamaChat,
        &body,
        json!({ "error": "context_length", "cut": true }),
    );
    let body =
        lines(&[json!({ "message": { "content": "x" }, "done": true, "done_reason": "unload" })]);
    check(
        Protocol::OllamaChat,
        &body,
        json!({ "text": "x", "end": "done", "unknown": ["unknown done reason `unload`"] }),
    );
    check(
        Protocol::OllamaChat,
        &lines(&[json!({ "message": { "content": "x" } })]),
        json!({ "text": "x", "cut": true }),
    );
    check(
        Protocol::OllamaChat,
        b"<html>\n",
        json!({ "error": "invalid_response", "cut": true }),
    );
}

#[test]
fn bedrock_wraps_the_messages_protocol() {
    let body = [
        chunk(json!({ "type": "message_start", "message": { "usage": { "input_tokens": 9, "output_tokens": 1 } } })),
        chunk(json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } })),
        chunk(json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "h\u{e9}llo" } })),
        event("other", json!({ "p": "no bytes" })),
        chunk(json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "tool_use", "id": "t", "name": "n", "input": {} } })),
        chunk(json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "{\"a\":" } })),
        chunk(json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "1}" } })),
        chunk(json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 5 } })),
        chunk(json!({ "type": "message_stop", "amazon-bedrock-invocationMetrics": { "inputTokenCount": 9 } })),
    ]
    .concat();
    let expect = json!({ "text": "h\u{e9}llo", "calls": [["n", { "a": 1 }]], "end": "tool_calls", "usage": [9, 0, 0, 5] });
    check(Protocol::BedrockAnthropic, &body, expect);
    check(
        Protocol::BedrockAnthropic,
        &event("chunk", json!({ "bytes": "?" })),
        json!({ "error": "invalid_response", "cut": true }),
    );
}

#[test]
fn exceptions_keep_the_text_before_them() {
    let delta = event(
        "contentBlockDelta",
        json!({ "contentBlockIndex": 0, "delta": { "text": "half" } }),
    );
    for (name, text, kind) in [
        ("throttlingException", "slow down", "rate_limited"),
        (
            "validationException",
            "Input is too long for requested model.",
            "context_length",
        ),
        ("validationException", "bad field", "invalid_request"),
        ("modelStreamErrorException", "oops", "unavailable"),
        ("accessDeniedException", "no", "authentication"),
        (
            "resourceNotFoundException",
            "no such model",
            "model_not_found",
        ),
    ] {
        let body = [delta.clone(), exception(name, text)].concat();
        check(
            Protocol::BedrockConverse,
            &body,
            json!({ "text": "half", "error": kind, "cut": true }),
        );
    }
}

#[test]
fn converse_sends_thoughts_text_calls_and_counts() {
    let delta = |index: u32, delta: Value| {
        event(
            "contentBlockDelta",
            json!({ "contentBlockIndex": index, "delta": delta }),
        )
    };
    let stop = |index: u32| event("contentBlockStop", json!({ "contentBlockIndex": index }));
    let start = |index: u32, id: &str| {
        let tool = json!({ "toolUse": { "toolUseId": id, "name": "n" } });
        event(
            "contentBlockStart",
            json!({ "contentBlockIndex": index, "start": tool }),
        )
    };
    let body = [
        event("messageStart", json!({ "role": "assistant" })),
        delta(0, json!({ "reasoningContent": { "text": "hm" } })),
        delta(0, json!({ "reasoningContent": { "signature": "sig" } })),
        stop(0),
        delta(1, json!({ "text": "Hi" })),
        stop(1),
        start(2, "a"),
        start(3, "b"),
        start(3, "b"),
        delta(2, json!({ "toolUse": { "input": "{\"x\":" } })),
        delta(3, json!({ "toolUse": { "input": "{}" } })),
        delta(2, json!({ "toolUse": { "input": "1}" } })),
        stop(2),
        event("novelty", json!({})),
        event("messageStop", json!({ "stopReason": "tool_use" })),
        event(
            "metadata",
            json!({ "usage": { "inputTokens": 4, "outputTokens": 2, "cacheReadInputTokens": 3 }, "metrics": {} }),
        ),
        delta(1, json!({ "text": "late" })),
    ]
    .concat();
    let expect = json!({
        "text": "Hi", "reasoning": "hm", "states": [{ "signature": "sig" }], "calls": [["n", { "x": 1 }], ["n", {}]],
        "ids": ["a", "b"], "unknown": ["unknown event `novelty`"], "end": "tool_calls", "usage": [4, 3, 0, 2],
    });
    check(Protocol::BedrockConverse, &body, expect);
    let body = [
        delta(0, json!({ "text": "x" })),
        event("messageStop", json!({ "stopReason": "content_filtered" })),
    ];
    check(
        Protocol::BedrockConverse,
        &body.concat(),
        json!({ "text": "x", "end": "refused" }),
    );
}

/// Extracts the payloads of a body without the decoder.
fn payloads(mut body: &[u8]) -> Vec<Value> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let mut all = Vec::new();
    while !body.is_empty() {
        let (total, headers) = (number(&body[..4]), number(&body[4..8]));
        all.push(serde_json::from_slice(&body[12 + headers..total - 4]).unwrap());
        body = &body[total..];
    }
    all
}

#[test]
fn recorded_converse_streams_decode_to_their_payloads() {
    let Some(folder) = shared::folder() else {
        windlass_needs::not_run("needs recorded streams (set WINDLASS_STREAMS to their folder)");
        return;
    };
    let mut checked = 0;
    for row in shared::rows(&folder.join("recorded.jsonl.gz")) {
        if row["protocol"] != "bedrock.converse" || row["response"]["status"] != 200 {
            continue;
        }
        let response = &row["response"];
        let encoded = response["body_b64"]
            .as_str()
            .or_else(|| response["body"].as_str())
            .unwrap();
        let body = STANDARD.decode(encoded).unwrap();
        let id = row["id"].as_str().unwrap();
        let whole = read(Protocol::BedrockConverse, &Quirks::NONE, [body.as_slice()]);
        for size in [1, 7, 64, 4096] {
            let pieces = read(Protocol::BedrockConverse, &Quirks::NONE, body.chunks(size));
            assert_eq!(pieces, whole, "{id} in pieces of {size}");
        }
        let payloads = payloads(&body);
        let all = |pointer: &str| {
            payloads
                .iter()
                .filter_map(|it| it.pointer(pointer)?.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            whole.reply.message.text(),
            all("/delta/text").concat(),
            "{id}"
        );
        let calls: Vec<&str> = whole.calls.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(calls, all("/start/toolUse/name"), "{id}");
        let arguments: String = whole.calls.iter().map(|(_, json)| json.as_str()).collect();
        assert_eq!(arguments, all("/delta/toolUse/input").concat(), "{id}");
        let usage = &payloads.last().unwrap()["usage"];
        let ours = whole.reply.usage.unwrap();
        assert_eq!(
            json!([ours.input, ours.output]),
            json!([usage["inputTokens"], usage["outputTokens"]]),
            "{id}"
        );
        assert_eq!(
            (whole.cut, &whole.error, whole.unknown.len()),
            (false, &None, 0),
            "{id}"
        );
        assert_eq!(
            all("/stopReason") == ["tool_use"],
            !calls.is_empty(),
            "{id}"
        );
        checked += 1;
    }
    eprintln!("{checked} recorded Converse streams checked");
    assert!(checked >= 13);
}

const NAMES: &[&str] = &[
    "chunk",
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Events with the field names of all protocols and values of any type do not panic.
    #[test]
    fn events_with_known_fields_in_wrong_places_never_panic(
        events in prop::collection::vec((prop::sample::select(NAMES), document()), 0..8),
    ) {
        let documents: Vec<Value> = events.iter().map(|(_, document)| document.clone()).collect();
        let plain: Vec<u8> = events.iter().flat_map(|(name, document)| event(name, document.clone())).collect();
        let nested: Vec<u8> = documents.iter().flat_map(|document| chunk(document.clone())).collect();
        for (protocol, body) in [
            (Protocol::OllamaChat, lines(&documents)),
            (Protocol::BedrockConverse, plain.clone()),
            (Protocol::BedrockAnthropic, plain),
            (Protocol::BedrockAnthropic, nested),
        ] {
            for quirks in [Quirks::NONE, Quirks { think_tags: true, ..Quirks::NONE }] {
                let whole = read(protocol, &quirks, [body.as_slice()]);
                prop_assert_eq!(read(protocol, &quirks, body.chunks(7)), whole);
            }
        }
    }
}
