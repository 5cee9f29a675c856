//! A table of answers with their streams in every protocol and the common expected result, and of options with their
//! encoding in every protocol.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use windlass_core::history::Entry;
use windlass_core::id::CallId;
use windlass_core::message::{Message, Part};
use windlass_core::provider::{Request, Sampling, ToolChoice};
use windlass_core::reply::{Reply, ReplyFold};

use super::tests::tools;
use super::*;
use crate::framing::Framer;

#[path = "framed_cases.rs"]
mod framed;

use Protocol::{AnthropicMessages, Gemini, OpenAiChat, OpenAiResponses};

const ALL: [Protocol; 4] = [AnthropicMessages, OpenAiChat, OpenAiResponses, Gemini];
/// The table expects that reasoning with state is sent back.
const QUIRKS: Quirks = Quirks {
    reasoning_back: ReasoningBack::Details,
    ..Quirks::NONE
};

/// An expected result, and the stream of each protocol that must decode to it. A line that begins with a colon is sent
/// unchanged, all others as the data of an event.
struct WireCase {
    name: &'static str,
    expect: Value,
    streams: [&'static [&'static str]; 4],
}

fn cases() -> Vec<WireCase> {
    let mut all = text_cases();
    all.extend(call_cases());
    all.extend(end_cases());
    all.extend(noise_cases());
    all
}

fn text_cases() -> Vec<WireCase> {
    vec![
        WireCase {
            name: "text",
            expect: json!({ "text": "Hello wörld", "end": "done" }),
            streams: [
                &[
                    r#"{"type":"message_start","message":{}}"#,
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello "}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"w\u00f6rld"}}"#,
                    r#"{"type":"content_block_stop","index":0}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hello "}}]}"#,
                    r#"{"choices":[{"index":0,"delta":{"content":"wörld"},"finish_reason":"stop"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.created","response":{}}"#,
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"Hello "}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"wörld"}"#,
                    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","content":[{"type":"output_text","text":"Hello wörld"}]}}"#,
                    r#"{"type":"response.completed","response":{"status":"completed"}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"Hello "}]}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[{"text":"wörld"}]},"finishReason":"STOP"}]}"#,
                ],
            ],
        },
        WireCase {
            name: "reasoning with state",
            expect: json!({ "reasoning": "Let me think", "text": "42", "end": "done", "state_goes_back": true }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"think"}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"STATE-1/+="}}"#,
                    r#"{"type":"content_block_stop","index":0}"#,
                    r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"42"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"reasoning":"Let me ","reasoning_details":[{"type":"reasoning.text","index":0,"text":"Let me "}]}}]}"#,
                    r#"{"choices":[{"delta":{"reasoning":"think","reasoning_details":[{"type":"reasoning.text","index":0,"text":"think","signature":"STATE-1/+="}]}}]}"#,
                    r#"{"choices":[{"delta":{"content":"42"},"finish_reason":"stop"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs","summary":[]}}"#,
                    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Let me "}"#,
                    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"think"}"#,
                    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"Let me think"}],"encrypted_content":"STATE-1/+="}}"#,
                    r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"m"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":1,"delta":"42"}"#,
                    r#"{"type":"response.completed","response":{}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"Let me ","thought":true}]}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[{"text":"think","thought":true},{"text":"42","thoughtSignature":"STATE-1/+="}]},"finishReason":"STOP"}]}"#,
                ],
            ],
        },
    ]
}

fn call_cases() -> Vec<WireCase> {
    vec![
        WireCase {
            name: "split call",
            expect: json!({ "calls": [["read_file", { "path": "a\n" }]], "end": "tool_calls" }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"read_file","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"pa"}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"th\": \"a\\"}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"n\"}"}}"#,
                    r#"{"type":"content_block_stop","index":0}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"read_file","arguments":""}}]}}]}"#,
                    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": \"a\\"}}]}}]}"#,
                    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"n\"}"}}]},"finish_reason":"tool_calls"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"read_file","arguments":""}}"#,
                    r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"path\": \"a\\"}"#,
                    r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"n\"}"}"#,
                    r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"path\": \"a\\n\"}"}"#,
                    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"read_file","arguments":"{\"path\": \"a\\n\"}"}}"#,
                    r#"{"type":"response.completed","response":{}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"read_file","args":{"path":"a\n"}}}]}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[]},"finishReason":"STOP"}]}"#,
                ],
            ],
        },
        WireCase {
            name: "parallel calls",
            expect: json!({ "text": "both", "calls": [["a", { "n": 1 }], ["b", {}]], "end": "tool_calls" }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"both"}}"#,
                    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"1","name":"a","input":{"n":1}}}"#,
                    r#"{"type":"content_block_stop","index":1}"#,
                    r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"2","name":"b","input":{}}}"#,
                    r#"{"type":"content_block_stop","index":2}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"content":"both","tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":"{\"n\""}},{"index":1,"id":"2","function":{"name":"b","arguments":"{"}}]}}]}"#,
                    r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"both"}"#,
                    r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"f1","call_id":"1","name":"a"}}"#,
                    r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"f2","call_id":"2","name":"b"}}"#,
                    r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{}"}"#,
                    r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"n\":1}"}"#,
                    r#"{"type":"response.completed","response":{}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"both"},{"functionCall":{"name":"a","args":{"n":1}}},{"functionCall":{"name":"b"}}]},"finishReason":"STOP"}]}"#,
                ],
            ],
        },
    ]
}

fn end_cases() -> Vec<WireCase> {
    vec![
        WireCase {
            name: "refusal",
            expect: json!({ "text": "I cannot", "end": "refused" }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"I cannot"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"refusal":"I "}}]}"#,
                    r#"{"choices":[{"delta":{"refusal":"cannot"},"finish_reason":"stop"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}"#,
                    r#"{"type":"response.refusal.delta","output_index":0,"delta":"I "}"#,
                    r#"{"type":"response.refusal.delta","output_index":0,"delta":"cannot"}"#,
                    r#"{"type":"response.refusal.done","output_index":0,"refusal":"I cannot"}"#,
                    r#"{"type":"response.completed","response":{}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"I cannot"}]},"finishReason":"SAFETY"}]}"#,
                ],
            ],
        },
        WireCase {
            name: "length stop",
            expect: json!({ "text": "half", "end": "length", "truncated": true }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"half"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"content":"half"},"finish_reason":"length"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"half"}"#,
                    r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"half"}]},"finishReason":"MAX_TOKENS"}]}"#,
                ],
            ],
        },
        WireCase {
            name: "usage with cache",
            expect: json!({ "text": "x", "end": "done", "usage": [80, 20, 0, 7] }),
            streams: [
                &[
                    r#"{"type":"message_start","message":{"usage":{"input_tokens":80,"cache_read_input_tokens":20,"cache_creation_input_tokens":0,"output_tokens":1}}}"#,
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
                    r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":20}}}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","content":[{"type":"output_text","text":"x"}]}}"#,
                    r#"{"type":"response.completed","response":{"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":20},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":4}}}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":20,"candidatesTokenCount":3,"thoughtsTokenCount":4}}"#,
                ],
            ],
        },
        WireCase {
            name: "error in a stream that began well",
            expect: json!({ "text": "par", "error": "unavailable", "cut": true, "end": "done" }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"par"}}"#,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"content":"par"}}]}"#,
                    r#"{"error":{"code":503,"message":"busy"}}"#,
                ],
                &[
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"par"}"#,
                    r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"busy"}}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"par"}]}}]}"#,
                    r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#,
                ],
            ],
        },
    ]
}

fn noise_cases() -> Vec<WireCase> {
    vec![
        WireCase {
            name: "keep-alives",
            expect: json!({ "text": "ab", "end": "done" }),
            streams: [
                &[
                    r#"{"type":"ping"}"#,
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#,
                    ": keep-alive",
                    r#"{"type":"ping"}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    ": OPENROUTER PROCESSING",
                    r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                    ":",
                    r#"{"choices":[]}"#,
                    r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}"#,
                    "[DONE]",
                ],
                &[
                    ": keepalive",
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"a"}"#,
                    r#"{"type":"keepalive","sequence_number":3}"#,
                    r#"{"type":"ping","cost":"0"}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"b"}"#,
                    r#"{"type":"response.completed","response":{}}"#,
                ],
                &[
                    ": hold on",
                    r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#,
                    r#"{"candidates":[{"content":{}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}"#,
                ],
            ],
        },
        WireCase {
            name: "something unknown",
            expect: json!({ "text": "ab", "end": "done", "unknown": 1 }),
            streams: [
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#,
                    r#"{"type":"hologram_started","index":{"x":[1]}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
                &[
                    r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"hologram"}]}}],"new_field":{}}"#,
                    r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}"#,
                    "[DONE]",
                ],
                &[
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"a"}"#,
                    r#"{"type":"response.hologram.started","output_index":[]}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"b"}"#,
                    r#"{"type":"response.completed","response":{}}"#,
                ],
                &[
                    r#"{"candidates":[{"content":{"parts":[{"text":"a"},{"hologram":{}}]}}],"newField":1}"#,
                    r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}"#,
                ],
            ],
        },
    ]
}

struct DecodedCase {
    reply: Reply,
    summary: Value,
}

/// Decodes a stream in pieces. The summary omits empty values.
fn read<'a>(protocol: Protocol, pieces: impl IntoIterator<Item = &'a [u8]>) -> DecodedCase {
    let (mut framer, mut decoder) = (Framer::new(protocol.framing()), protocol.decoder(&QUIRKS));
    let (mut batch, mut error) = (Batch::default(), None);
    for piece in pieces {
        error = error.or(framer
            .push(piece, |event| decoder.event(&event, &mut batch))
            .err());
    }
    error = error.or(framer
        .finish(|event| decoder.event(&event, &mut batch))
        .err());
    let cut = !decoder.finish(&mut batch);
    let (mut fold, mut unknown) = (ReplyFold::default(), 0);
    while let Some(chunk) = batch.pop() {
        unknown += u32::from(matches!(chunk, Chunk::Unknown(_)));
        fold.push(chunk);
    }
    let reply = fold.finish(|| CallId("fresh".into()));
    let message = &reply.message;
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let usage = reply.usage.map(|usage| {
        json!([
            usage.input,
            usage.cache_read,
            usage.cache_write,
            usage.output
        ])
    });
    let Value::Object(all) = json!({
        "text": message.text(),
        "reasoning": thoughts.collect::<String>(),
        "calls": message.calls().map(|call| json!([call.name, call.args])).collect::<Vec<_>>(),
        "end": reply.end,
        "truncated": reply.truncated,
        "usage": usage,
        "unknown": unknown,
        "error": error.map(|err| err.kind.word()),
        "cut": cut,
    }) else {
        unreachable!()
    };
    let nothing = [json!(""), json!([]), json!(0), json!(false), Value::Null];
    let summary = Value::Object(
        all.into_iter()
            .filter(|(_, value)| !nothing.contains(value))
            .collect(),
    );
    DecodedCase { reply, summary }
}

fn body(protocol: Protocol, history: &[Entry], options: &Sampling) -> Value {
    let tools = tools(&["read_file"]);
    let request = Request {
        model: "m",
        system: "be brief",
        history,
        tools: &tools,
        max_output: 20_000,
        options,
    };
    serde_json::from_slice(&protocol.encode(&request, &QUIRKS)).unwrap()
}

#[test]
fn every_case_decodes_the_same_in_every_protocol_and_every_split() {
    for case in cases() {
        for (protocol, lines) in ALL.into_iter().zip(case.streams) {
            let raw = |line: &&str| {
                if line.starts_with(':') {
                    format!("{line}\n\n")
                } else {
                    format!("data: {line}\n\n")
                }
            };
            let stream: String = lines.iter().map(raw).collect();
            let whole = read(protocol, [stream.as_bytes()]);
            let mut expect = case.expect.clone();
            if expect
                .as_object_mut()
                .unwrap()
                .remove("state_goes_back")
                .is_some()
            {
                let history = [
                    Entry::new(Message::user("q")),
                    Entry::new(whole.reply.message.clone()),
                ];
                let body = body(protocol, &history, &Sampling::default()).to_string();
                assert!(body.contains("STATE-1/+="), "{protocol:?}: {body}");
            }
            assert_eq!(whole.summary, expect, "{protocol:?}: {}", case.name);
            for at in 0..stream.len() {
                let (head, tail) = stream.as_bytes().split_at(at);
                let split = read(protocol, [head, tail]);
                assert_eq!(
                    (split.summary, split.reply),
                    (expect.clone(), whole.reply.clone()),
                    "{protocol:?} at {at}"
                );
            }
            let windows = format!("\u{feff}{}", stream.replace('\n', "\r\n"));
            assert_eq!(
                read(protocol, windows.as_bytes().chunks(1)).reply,
                whole.reply,
                "{protocol:?}: {}",
                case.name
            );
        }
    }
}

#[track_caller]
fn check_stream(protocol: Protocol, lines: &[&str], expect: Value) {
    let stream: String = lines
        .iter()
        .map(|line| format!("data: {line}\n\n"))
        .collect();
    assert_eq!(read(protocol, [stream.as_bytes()]).summary, expect);
}

#[test]
fn an_answer_inside_message_start_is_decoded() {
    let start = r#"{"type":"message_start","message":{"content":[{"type":"text","text":"Hello"},
        {"type":"tool_use","id":"a","name":"read","input":{"path":"x"}}],"stop_reason":"tool_use",
        "usage":{"input_tokens":3,"output_tokens":4}}}"#
        .replace('\n', "");
    check_stream(
        AnthropicMessages,
        &[&start, r#"{"type":"message_stop"}"#],
        json!({ "text": "Hello", "calls": [["read", { "path": "x" }]], "end": "tool_calls", "usage": [3, 0, 0, 4] }),
    );
}

#[test]
fn a_second_message_start_is_reported_and_billed() {
    let start =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#;
    let block =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#;
    check_stream(
        AnthropicMessages,
        &[start, block, start, block, r#"{"type":"message_stop"}"#],
        json!({ "text": "aa", "end": "done", "unknown": 1, "usage": [6, 0, 0, 2] }),
    );
}

fn gemini_call(call: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{call}}}]}}}}]}}"#)
}

#[test]
fn arguments_in_pieces_become_one_call() {
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    let first = gemini_call(
        r#"{"name":"read","partialArgs":[{"jsonPath":"$.path","stringValue":"a/"}],"willContinue":true}"#,
    );
    let more = gemini_call(
        r#"{"partialArgs":[{"jsonPath":"$.path","stringValue":"b"}],"willContinue":true}"#,
    );
    let last = gemini_call("{}");
    check_stream(
        Gemini,
        &[&first, &more, &last, stop],
        json!({ "calls": [["read", { "path": "a/b" }]], "end": "tool_calls" }),
    );
    let half = json!({ "end": "tool_calls", "truncated": true });
    check_stream(Gemini, &[&first, &more, stop], half);
    let nameless = json!({ "end": "done", "unknown": 1 });
    check_stream(Gemini, &[&gemini_call(r#"{"args":{}}"#), stop], nameless);
}

/// Checks the encoding of an option: for each protocol the JSON pointer in the body and the value there, or `null`.
#[track_caller]
fn check_option(options: Sampling, expect: [(&str, Value); 4]) {
    for (protocol, (pointer, value)) in ALL.into_iter().zip(expect) {
        let body = body(protocol, &[Entry::new(Message::user("q"))], &options);
        assert_eq!(
            body.pointer(pointer).cloned().unwrap_or_default(),
            value,
            "{protocol:?} at {pointer}: {body}"
        );
    }
}

#[test]
fn every_protocol_encodes_the_options() {
    let default = Sampling::default;
    let schema =
        json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 1 } } });
    let closed = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "additionalProperties": false });
    let named = |strict: &Value| json!({ "name": "answer", "schema": strict, "strict": false });
    check_option(
        Sampling {
            output_schema: Some(schema.clone()),
            ..default()
        },
        [
            (
                "/output_config",
                json!({ "format": { "type": "json_schema", "schema": closed } }),
            ),
            (
                "/response_format",
                json!({ "type": "json_schema", "json_schema": named(&schema) }),
            ),
            (
                "/text/format",
                json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": false }),
            ),
            ("/generationConfig/responseJsonSchema", Value::Null), // beside tools, in words: see below
        ],
    );
    for (choice, a, c, r, g) in [
        (
            ToolChoice::Auto,
            json!({ "type": "auto" }),
            json!("auto"),
            json!("auto"),
            json!({ "mode": "AUTO" }),
        ),
        (
            ToolChoice::None,
            json!({ "type": "none" }),
            json!("none"),
            json!("none"),
            json!({ "mode": "NONE" }),
        ),
        (
            ToolChoice::Required,
            json!({ "type": "any" }),
            json!("required"),
            json!("required"),
            json!({ "mode": "ANY" }),
        ),
        (
            ToolChoice::Named("read_file".into()),
            json!({ "type": "tool", "name": "read_file" }),
            json!({ "type": "function", "function": { "name": "read_file" } }),
            json!({ "type": "function", "name": "read_file" }),
            json!({ "mode": "ANY", "allowedFunctionNames": ["read_file"] }),
        ),
    ] {
        check_option(
            Sampling {
                tool_choice: Some(choice),
                ..default()
            },
            [
                ("/tool_choice", a),
                ("/tool_choice", c),
                ("/tool_choice", r),
                ("/toolConfig/functionCallingConfig", g),
            ],
        );
    }
    check_option(
        Sampling {
            temperature: Some(0.5),
            ..default()
        },
        [
            ("/temperature", json!(0.5)),
            ("/temperature", json!(0.5)),
            ("/temperature", json!(0.5)),
            ("/generationConfig/temperature", json!(0.5)),
        ],
    );
    check_option(
        Sampling {
            stop: vec!["END".into()],
            ..default()
        },
        [
            ("/stop_sequences", json!(["END"])),
            ("/stop", json!(["END"])),
            ("/stop", Value::Null),
            ("/generationConfig/stopSequences", json!(["END"])),
        ],
    );
    check_option(
        Sampling {
            reasoning_effort: Some("medium".into()),
            ..default()
        },
        [
            (
                "/thinking",
                json!({ "type": "enabled", "budget_tokens": 8192 }),
            ),
            ("/reasoning_effort", json!("medium")),
            (
                "/reasoning",
                json!({ "effort": "medium", "summary": "auto" }),
            ),
            (
                "/generationConfig/thinkingConfig",
                json!({ "includeThoughts": true, "thinkingBudget": 8192 }),
            ),
        ],
    );
    check_option(
        Sampling {
            thinking_tokens: Some(2_000),
            ..default()
        },
        [
            ("/thinking/budget_tokens", json!(2000)),
            ("/reasoning_effort", json!("low")),
            ("/reasoning/effort", json!("low")),
            (
                "/generationConfig/thinkingConfig/thinkingBudget",
                json!(2000),
            ),
        ],
    );
    check_option(
        default(),
        [
            ("/max_tokens", json!(20_000)),
            ("/max_tokens", json!(20_000)),
            ("/max_output_tokens", json!(20_000)),
            ("/generationConfig/maxOutputTokens", json!(20_000)),
        ],
    );
}

#[test]
fn every_protocol_encodes_images() {
    let mut prompt = Message::user("what is this");
    prompt.parts.push(Part::Image {
        media_type: "image/png".into(),
        data: "aGk=".into(),
    });
    let url = "data:image/png;base64,aGk=";
    for (protocol, place, expect) in [
        (
            AnthropicMessages,
            "/messages/0/content/1/source",
            json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" }),
        ),
        (
            OpenAiChat,
            "/messages/1/content/1",
            json!({ "type": "image_url", "image_url": { "url": url } }),
        ),
        (
            OpenAiResponses,
            "/input/1/content/1",
            json!({ "type": "input_image", "image_url": url }),
        ),
        (
            Gemini,
            "/contents/0/parts/1",
            json!({ "inlineData": { "mimeType": "image/png", "data": "aGk=" } }),
        ),
    ] {
        // A second message, because the Anthropic protocol adds a cache mark to the last block.
        let history = [
            Entry::new(prompt.clone()),
            Entry::new(Message::user("answer")),
        ];
        assert_eq!(
            body(protocol, &history, &Sampling::default()).pointer(place),
            Some(&expect),
            "{protocol:?}"
        );
    }
}

/// Checks a value in the body that depends on the name of the model.
#[track_caller]
fn check_model(
    protocol: Protocol,
    model: &str,
    options: Sampling,
    quirks: Quirks,
    place: &str,
    expect: Value,
) {
    let (history, tools) = ([Entry::new(Message::user("q"))], tools(&["t"]));
    let request = Request {
        model,
        system: "",
        history: &history,
        tools: &tools,
        max_output: 9_000,
        options: &options,
    };
    let body: Value = serde_json::from_slice(&protocol.encode(&request, &quirks)).unwrap();
    assert_eq!(
        body.pointer(place).cloned().unwrap_or_default(),
        expect,
        "{model} at {place}: {body}"
    );
}

#[test]
fn newer_models_get_the_options_that_they_support() {
    let effort = |effort: &str| Sampling {
        reasoning_effort: Some(effort.into()),
        ..Sampling::default()
    };
    let with_temperature = || Sampling {
        temperature: Some(1.0),
        ..Sampling::default()
    };
    let schema = || Sampling {
        output_schema: Some(json!({ "$schema": "x", "type": "string" })),
        ..Sampling::default()
    };
    let n = Quirks::NONE;
    let adaptive = json!({ "type": "adaptive", "display": "summarized" });
    check_model(
        AnthropicMessages,
        "claude-opus-4-7",
        effort("xhigh"),
        n,
        "/thinking",
        adaptive,
    );
    check_model(
        AnthropicMessages,
        "claude-opus-4-7",
        effort("xhigh"),
        n,
        "/output_config/effort",
        json!("xhigh"),
    );
    check_model(
        AnthropicMessages,
        "claude-opus-4-5",
        effort("low"),
        n,
        "/thinking/budget_tokens",
        json!(2048),
    );
    check_model(
        AnthropicMessages,
        "claude-opus-4-7",
        with_temperature(),
        n,
        "/temperature",
        Value::Null,
    );
    check_model(
        AnthropicMessages,
        "claude-sonnet-4-5",
        with_temperature(),
        n,
        "/temperature",
        json!(1.0),
    );
    let forced = Sampling {
        tool_choice: Some(ToolChoice::Required),
        ..effort("high")
    };
    check_model(
        AnthropicMessages,
        "claude-sonnet-4-5",
        forced,
        n,
        "/thinking",
        Value::Null,
    );
    check_model(
        OpenAiResponses,
        "gpt-5.4",
        with_temperature(),
        n,
        "/temperature",
        Value::Null,
    );
    check_model(
        OpenAiResponses,
        "gpt-5.4",
        with_temperature(),
        n,
        "/include",
        json!(["reasoning.encrypted_content"]),
    );
    check_model(
        OpenAiResponses,
        "gpt-4o",
        with_temperature(),
        n,
        "/include",
        Value::Null,
    );
    check_model(
        OpenAiChat,
        "o3",
        with_temperature(),
        n,
        "/temperature",
        Value::Null,
    );
    let level = json!({ "includeThoughts": true, "thinkingLevel": "high" });
    check_model(
        Gemini,
        "gemini-3-flash-preview",
        effort("max"),
        n,
        "/generationConfig/thinkingConfig",
        level,
    );
    check_model(
        Gemini,
        "gemini-2.5-pro",
        effort("none"),
        n,
        "/generationConfig/thinkingConfig/thinkingBudget",
        json!(0),
    );
    // Only the third generation accepts tools together with a schema; for earlier models the schema is in the prompt.
    let plain = json!({ "type": "string" });
    check_model(
        Gemini,
        "gemini-3-flash-preview",
        schema(),
        n,
        "/generationConfig/responseJsonSchema",
        plain,
    );
    let prompt = "\n\nWhen you give your final answer, give only JSON that fits this JSON Schema, without any words or \
                marks around it:\n{\"$schema\":\"x\",\"type\":\"string\"}";
    check_model(
        Gemini,
        "gemini-2.5-pro",
        schema(),
        n,
        "/systemInstruction/parts/0/text",
        json!(prompt),
    );
    let no_schema = Quirks {
        json_schema: false,
        ..n
    };
    check_model(
        OpenAiChat,
        "m",
        schema(),
        no_schema,
        "/response_format",
        json!({ "type": "json_object" }),
    );
    check_model(
        OpenAiChat,
        "m",
        schema(),
        no_schema,
        "/messages/0/content",
        json!(prompt),
    );
}

#[test]
fn an_unsupported_option_is_a_warning_at_the_start_of_a_session() {
    let options = Sampling {
        stop: vec!["END".into()],
        temperature: Some(0.5),
        ..Sampling::default()
    };
    let begin = vec![Entry::new(Message::user("q"))];
    let later = vec![
        Entry::new(Message::user("q")),
        Entry::new(Message::assistant("a")),
    ];
    let warnings = |protocol: Protocol, model, history: &[Entry]| {
        let tools = tools(&[]);
        let request = Request {
            model,
            system: "",
            history,
            tools: &tools,
            max_output: 9,
            options: &options,
        };
        protocol.unsupported(&request).len()
    };
    assert_eq!(warnings(OpenAiResponses, "gpt-5", &begin), 2);
    assert_eq!(warnings(OpenAiResponses, "gpt-5", &later), 0);
    assert_eq!(warnings(OpenAiResponses, "gpt-4o", &begin), 1);
    assert_eq!(warnings(OpenAiChat, "gpt-5", &begin), 2);
    assert_eq!(warnings(AnthropicMessages, "claude-opus-4-7", &begin), 1);
    for protocol in [
        AnthropicMessages,
        OpenAiChat,
        Gemini,
        Protocol::OllamaChat,
        Protocol::BedrockConverse,
    ] {
        assert_eq!(warnings(protocol, "m", &begin), 0);
    }
    let options = Sampling {
        tool_choice: Some(ToolChoice::Required),
        output_schema: Some(json!({})),
        thinking_tokens: Some(1),
        ..Sampling::default()
    };
    for (protocol, expect) in [
        (Protocol::OllamaChat, 1),
        (Protocol::BedrockConverse, 2),
        (Gemini, 0),
    ] {
        let tools = tools(&["t"]);
        let request = Request {
            model: "m",
            system: "",
            history: &begin,
            tools: &tools,
            max_output: 9,
            options: &options,
        };
        assert_eq!(protocol.unsupported(&request).len(), expect, "{protocol:?}");
    }
}
