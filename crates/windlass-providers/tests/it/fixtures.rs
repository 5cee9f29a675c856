//! Tests with small synthetic recordings. The first line of each has the expected result. Each is decoded whole, split
//! in two at every position, byte by byte, and with other line endings.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_core::message::Part;
use windlass_providers::protocol::{Protocol, Quirks};

use super::{DecodedStream, read};

/// Name, protocol and content of every recording.
fn recordings() -> Vec<(String, Protocol, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let protocol = match name.split('_').next() {
                Some("anthropic") => Protocol::AnthropicMessages,
                Some("chat") => Protocol::OpenAiChat,
                Some("responses") => Protocol::OpenAiResponses,
                Some("gemini") => Protocol::Gemini,
                _ => panic!("{name} begins with no protocol"),
            };
            (name, protocol, std::fs::read(path).unwrap())
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(all.len() >= 31);
    all
}

fn expectation(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes)
        .unwrap()
        .trim_start_matches('\u{feff}');
    serde_json::from_str(
        text.lines()
            .next()
            .unwrap()
            .strip_prefix(": expect ")
            .unwrap(),
    )
    .unwrap()
}

/// Returns a decoded stream in the form of the expectation, without empty values.
pub(crate) fn summary(read: &DecodedStream) -> Value {
    let message = &read.reply.message;
    let reasoning = |part: &Part| match part {
        Part::Reasoning { text, opaque } => Some((text.clone(), opaque.clone())),
        _ => None,
    };
    let (thoughts, states): (Vec<String>, Vec<Option<Value>>) =
        message.parts.iter().filter_map(reasoning).unzip();
    let calls: Vec<Value> = message
        .calls()
        .map(|call| json!([call.name, call.args]))
        .collect();
    let usage = read.reply.usage.map(|usage| {
        json!([
            usage.input,
            usage.cache_read,
            usage.cache_write,
            usage.output
        ])
    });
    let error = read.error.as_ref().map(|err| err.kind.word());
    let all = json!({
        "text": message.text(),
        "reasoning": thoughts.concat(),
        "states": states.into_iter().flatten().collect::<Vec<_>>(),
        "calls": calls,
        "ids": message.calls().map(|call| call.id.0.clone()).collect::<Vec<_>>(),
        "cut_calls": read.calls.len() - calls.len(),
        "truncated": read.reply.truncated,
        "unknown": read.unknown,
        "error": error,
        "cut": read.cut,
        "end": read.reply.end,
        "usage": usage,
    });
    let Value::Object(all) = all else {
        unreachable!()
    };
    let is_empty = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false))
            || *value == json!(0)
            || *value == json!("")
            || *value == json!([])
    };
    Value::Object(
        all.into_iter()
            .filter(|(_, value)| !is_empty(value))
            .collect(),
    )
}

#[test]
fn every_recording_decodes_as_expected() {
    for (name, protocol, bytes) in recordings() {
        let expect = expectation(&bytes);
        let mut got = summary(&read(protocol, &Quirks::NONE, [bytes.as_slice()]));
        if expect.get("ids").is_none() {
            got.as_object_mut().unwrap().remove("ids");
        }
        assert_eq!(got, expect, "{name}");
    }
}

#[test]
fn every_recording_decodes_the_same_in_every_split() {
    for (name, protocol, bytes) in recordings() {
        let whole = read(protocol, &Quirks::NONE, [bytes.as_slice()]);
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(
                read(protocol, &Quirks::NONE, [head, tail]),
                whole,
                "{name} split at {at}"
            );
        }
        for size in [1, 2, 3, 5, 64] {
            assert_eq!(
                read(protocol, &Quirks::NONE, bytes.chunks(size)),
                whole,
                "{name} in pieces of {size}"
            );
        }
        let text = String::from_utf8(bytes).unwrap().replace("\r\n", "\n");
        for line_end in ["\n", "\r\n", "\r"] {
            let changed = text.replace('\n', line_end);
            assert_eq!(
                read(protocol, &Quirks::NONE, [changed.as_bytes()]),
                whole,
                "{name} with {line_end:?}"
            );
        }
    }
}

#[test]
fn a_truncated_recording_is_cut_or_complete_and_has_no_partial_call() {
    for (name, protocol, bytes) in recordings() {
        let whole = read(protocol, &Quirks::NONE, [bytes.as_slice()]);
        for at in 0..bytes.len() {
            let part = read(protocol, &Quirks::NONE, [&bytes[..at]]);
            assert!(
                part.error.is_none() || part.error == whole.error,
                "{name} cut at {at}: {:?}",
                part.error
            );
            assert!(
                whole
                    .reply
                    .message
                    .text()
                    .starts_with(&part.reply.message.text()),
                "{name} cut at {at}"
            );
            if !part.cut {
                assert_eq!(
                    part.reply.message, whole.reply.message,
                    "{name} cut at {at}"
                );
            }
        }
    }
}

const PROTOCOLS: [Protocol; 4] = [
    Protocol::AnthropicMessages,
    Protocol::OpenAiChat,
    Protocol::OpenAiResponses,
    Protocol::Gemini,
];

const WORDS: &[&str] = &[
    "type",
    "index",
    "output_index",
    "item",
    "item_id",
    "delta",
    "text",
    "name",
    "arguments",
    "call_id",
    "id",
    "content",
    "summary",
    "response",
    "usage",
    "output",
    "error",
    "code",
    "message",
    "candidates",
    "parts",
    "functionCall",
    "args",
    "thought",
    "thoughtSignature",
    "finishReason",
    "usageMetadata",
    "promptTokenCount",
    "candidatesTokenCount",
    "promptFeedback",
    "blockReason",
    "choices",
    "tool_calls",
    "function",
    "finish_reason",
    "content_block",
    "input",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.function_call_arguments.delta",
    "function_call",
    "reasoning",
    "response.reasoning_summary_text.delta",
    "custom_tool_call",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "tool_use",
    "text_delta",
    "STOP",
    "MAX_TOKENS",
    "incomplete_details",
    "reason",
    "input_tokens",
    "toolUse",
    "start",
    "thinking",
    "done",
    "done_reason",
    "reasoningContent",
    "signature",
    "stopReason",
    "contentBlockIndex",
];

pub(crate) fn document() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(WORDS).prop_map(str::to_owned);
    let leaf = prop_oneof![
        4 => word().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        2 => (0u64..3).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            3 => prop::collection::btree_map(word(), inner.clone(), 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Recordings with replaced bytes do not panic, and the result does not depend on the pieces.
    #[test]
    fn damaged_recordings_never_panic_and_decode_the_same_in_pieces(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        size in 1usize..200,
    ) {
        let recordings = recordings();
        let (_, protocol, bytes) = &recordings[which.index(recordings.len())];
        let mut bytes = bytes.clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for quirks in [Quirks::NONE, Quirks { think_tags: true, ..Quirks::NONE }] {
            let whole = read(*protocol, &quirks, [bytes.as_slice()]);
            prop_assert_eq!(read(*protocol, &quirks, bytes.chunks(size)), whole);
        }
    }

    #[test]
    fn arbitrary_events_never_panic(data in prop::collection::vec("[\\[\\]{}\":,a-z0-9\\\\ ]{0,60}", 0..6)) {
        let stream: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
        for protocol in PROTOCOLS {
            let whole = read(protocol, &Quirks::NONE, [stream.as_bytes()]);
            prop_assert_eq!(read(protocol, &Quirks::NONE, stream.as_bytes().chunks(1)), whole);
        }
    }

    /// Events with the field names of all protocols and values of any type do not panic.
    #[test]
    fn events_with_known_fields_in_wrong_places_never_panic(events in prop::collection::vec(document(), 0..8)) {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        for protocol in PROTOCOLS {
            let whole = read(protocol, &Quirks::NONE, [stream.as_bytes()]);
            prop_assert_eq!(read(protocol, &Quirks::NONE, stream.as_bytes().chunks(7)), whole);
        }
    }
}
