//! Compares the decoders with the vendors' own libraries on real recorded streams. The recordings are not in the
//! repository: the directory is `WINDLASS_STREAMS`, else `../shared/streams`. Without it the tests are listed as not
//! run.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_core::message::Part;
use windlass_core::provider::EndReason;
use windlass_providers::protocol::{Protocol, Quirks};

use super::{DecodedStream, read};

const REFUSAL: &str = "a refusal is displayed as text, and the answer ends as refused";

/// The ids of streams that are decoded differently from the library on purpose, and the reason.
const ON_PURPOSE: &[(&str, &str)] = &[
    (
        "rig:tests/cassettes/openai/refusal_matrix/chat_streaming_agent_surfaces_refusal.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openai/refusal_matrix/chat_streaming_and_blocking_each_deliver_their_refusal_in_full.yaml#1",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openai/refusal_matrix/chat_streaming_raw_model_surfaces_refusal.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openai/refusal_matrix/chat_streaming_terminal_carries_usage.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openai/refusal_matrix/responses_agent_streaming_refusal_surfaces.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openai/refusal_matrix/responses_streaming_refusal_delta_surfaces.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openrouter/refusal_matrix/streaming_agent_surfaces_refusal.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openrouter/refusal_matrix/streaming_azure_routed_refusal.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openrouter/refusal_matrix/streaming_raw_model_surfaces_refusal.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openrouter/refusal_matrix/streaming_refusal_emits_no_tool_calls.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openrouter/refusal_matrix/streaming_terminal_carries_usage_and_reason.yaml#0",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/openrouter/refusal_matrix/transports_agree_on_the_refusal_text.yaml#1",
        REFUSAL,
    ),
    (
        "rig:tests/cassettes/anthropic/streaming/gateway_message_delta_metadata.yaml#0",
        "a gateway ends this stream with `[DONE]`, on which the library fails; our decoder reads the whole answer",
    ),
    (
        "opencode:packages/llm/test/fixtures/recordings/openai-chat/streams-tool-call.json#0",
        "the finish reason is `stop` although there is a call; our decoder ends with tool calls",
    ),
];

pub(crate) fn folder() -> Option<PathBuf> {
    let given = std::env::var_os("WINDLASS_STREAMS").map(PathBuf::from);
    let folder = given
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/streams"));
    folder.join("recorded.jsonl.gz").is_file().then_some(folder)
}

pub(crate) fn rows(path: &Path) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn recorded_streams_decode_as_with_the_vendors_own_libraries() {
    let Some(folder) = folder() else {
        windlass_needs::not_run("needs recorded streams (set WINDLASS_STREAMS to their folder)");
        return;
    };
    let expected: HashMap<String, Value> = rows(&folder.join("expected.jsonl.gz"))
        .into_iter()
        .map(|row| (row["id"].as_str().unwrap().to_owned(), row))
        .collect();
    let (mut checked, mut on_purpose, mut wrong) = (0, 0, Vec::new());
    for row in rows(&folder.join("recorded.jsonl.gz")) {
        let protocol = match row["protocol"].as_str() {
            Some("openai.chat") => Protocol::OpenAiChat,
            Some("anthropic.messages") => Protocol::AnthropicMessages,
            Some("openai.responses") => Protocol::OpenAiResponses,
            Some("gemini.generate") => Protocol::Gemini,
            Some("ollama.chat") => Protocol::OllamaChat,
            _ => continue,
        };
        let id = row["id"].as_str().unwrap();
        // An answer with an error status is not a stream.
        let Some(expect) = expected
            .get(id)
            .filter(|_| row["response"]["status"] == 200)
        else {
            continue;
        };
        let body = row["response"]["body"].as_str().unwrap().as_bytes();
        let whole = read(protocol, &Quirks::NONE, [body]);
        for size in [1, 7, 64, 4096] {
            assert_eq!(
                read(protocol, &Quirks::NONE, body.chunks(size)),
                whole,
                "{id} in pieces of {size}"
            );
        }
        let windows = format!(
            "\u{feff}{}",
            row["response"]["body"]
                .as_str()
                .unwrap()
                .replace("\r\n", "\n")
                .replace('\n', "\r\n")
        );
        assert_eq!(
            read(protocol, &Quirks::NONE, [windows.as_bytes()]),
            whole,
            "{id} with a mark and CRLF"
        );
        checked += 1;
        let differences = differences(protocol, &whole, expect, unreported(protocol, body));
        match ON_PURPOSE.iter().find(|(known, _)| id == *known) {
            Some((_, why)) if differences.is_empty() => {
                wrong.push(format!("{id}: no longer differs ({why})"))
            }
            Some(_) => on_purpose += 1,
            None if differences.is_empty() => {}
            None => wrong.push(format!("{id}: {}", differences.join("; "))),
        }
    }
    eprintln!("{checked} recorded streams checked, {on_purpose} differ on purpose");
    assert!(
        wrong.is_empty(),
        "{} of {checked} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Returns the billed tokens that the library does not report: input of the vendor's own tools, and thoughts.
fn unreported(protocol: Protocol, body: &[u8]) -> (u64, u64) {
    if protocol != Protocol::Gemini {
        return (0, 0);
    }
    let last = |name: &str| {
        let all = std::str::from_utf8(body)
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let mut counts = all.filter_map(|data| {
            serde_json::from_str::<Value>(data).ok()?["usageMetadata"][name].as_u64()
        });
        counts.next_back().unwrap_or(0)
    };
    (last("toolUsePromptTokenCount"), last("thoughtsTokenCount"))
}

fn differences(
    protocol: Protocol,
    read: &DecodedStream,
    expect: &Value,
    unreported: (u64, u64),
) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, ours: Value, theirs: &Value| {
        if ours != *theirs {
            found.push(format!("{what}: ours {ours}, theirs {theirs}"));
        }
    };
    let parts = &read.reply.message.parts;
    let reasoning: String = parts
        .iter()
        .filter_map(|part| match part {
            Part::Reasoning { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let calls: Vec<Value> = read
        .calls
        .iter()
        .map(|(name, json)| serde_json::json!({ "name": name, "args": expected_args(json) }))
        .collect();
    let cut_off = read
        .calls
        .iter()
        .filter(|(_, json)| expected_args(json).get("_raw").is_some())
        .count();
    compare(
        "calls kept",
        read.reply.message.calls().count().into(),
        &(read.calls.len() - cut_off).into(),
    );
    compare(
        "truncated",
        read.reply.truncated.into(),
        &(cut_off > 0 || expected_stop(read, expect) == EndReason::Length).into(),
    );
    let usage = read.reply.usage.unwrap_or_default();
    let input = if protocol == Protocol::AnthropicMessages {
        usage.input
    } else {
        usage.total_input()
    };
    let stop = expected_stop(read, expect);
    compare(
        "error",
        read.error
            .as_ref()
            .map_or(Value::Null, |err| err.to_string().into()),
        &Value::Null,
    );
    compare("cut", read.cut.into(), &Value::Bool(false));
    compare("text", read.reply.message.text().into(), &expect["text"]);
    compare("reasoning", reasoning.into(), &expect["reasoning"]);
    compare("calls", calls.into(), &expect["tool_calls"]);
    compare(
        "stop",
        format!("{:?}", read.reply.end).into(),
        &format!("{stop:?}").into(),
    );
    compare(
        "usage",
        serde_json::json!({ "in": input - unreported.0, "out": usage.output - unreported.1 }),
        &expect["usage"],
    );
    found
}

/// Returns the expected end reason. Three of the protocols have no end reason for calls.
fn expected_stop(read: &DecodedStream, expect: &Value) -> EndReason {
    let ollama = expect["by"] == "ollama";
    match expect["stop"].as_str() {
        Some("stop") if ollama && !read.calls.is_empty() => EndReason::ToolCalls,
        Some("tool_calls" | "tool_use") => EndReason::ToolCalls,
        Some("length" | "max_tokens" | "MAX_TOKENS" | "incomplete:max_output_tokens") => {
            EndReason::Length
        }
        Some("STOP" | "completed") if !read.calls.is_empty() => EndReason::ToolCalls,
        _ => EndReason::Done,
    }
}

/// Returns arguments as the expectations contain them; invalid JSON is a text under `_raw`.
fn expected_args(json: &str) -> Value {
    if json.is_empty() {
        return serde_json::json!({});
    }
    serde_json::from_str(json).unwrap_or_else(|_| serde_json::json!({ "_raw": json }))
}
