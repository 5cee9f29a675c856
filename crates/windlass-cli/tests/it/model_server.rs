//! The binary with a model server on loopback, with both protocols.

use windlass_scripted::{Act, ByteServer, http};

use crate::cli_fixture::CliFixture;

/// Serves these bodies in order, one per request.
pub(crate) fn serve(bodies: Vec<String>) -> ByteServer {
    let answer = move |number: usize, _: &str| match bodies.get(number) {
        Some(body) => vec![Act::Say(http::whole(200, http::EVENT_STREAM, body))],
        None => vec![Act::Close],
    };
    ByteServer::start(answer).unwrap()
}

pub(crate) fn events(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| format!("data: {line}\n\n"))
        .collect()
}

#[track_caller]
fn check(
    vendor: &str,
    variable: &str,
    bodies: Vec<String>,
    key_header: &str,
    max_first_request: usize,
) {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "the file's words");
    let server = serve(bodies);
    let model = format!("{vendor}/some-model");
    let mut command = fixture.command(&[
        "run",
        "--in-place",
        "-m",
        &model,
        "--base-url",
        &server.url,
        "--json",
        "read a.txt",
    ]);
    command.env(variable, "sk-secret-1234567890");
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    let result: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(result["text"], "It says: the file's words");
    assert_eq!(result["totals"]["usage"]["input"], 30, "{result}");
    assert_eq!(result["totals"]["usage"]["output"], 12);
    let asked = server.requests();
    assert!(asked[0].to_lowercase().contains(key_header), "{}", asked[0]);
    let body = asked[0].split_once("\r\n\r\n").unwrap().1;
    assert!(
        body.len() <= max_first_request,
        "the first request has {} bytes",
        body.len()
    );
    assert!(
        asked[1].contains("the file's words"),
        "the result went back to the model"
    );
    let log = std::fs::read_to_string(fixture.sessions()[0].join("events.jsonl")).unwrap();
    assert!(!log.contains("sk-secret"));
}

#[test]
fn messages_over_http() {
    let first = events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"read_file","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\": "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"a.txt\"}"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let second = events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":20,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It says: the "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"file's words"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    check(
        "anthropic",
        "ANTHROPIC_API_KEY",
        vec![first, second],
        "x-api-key: sk-secret-1234567890",
        8_000,
    );
}

#[test]
fn chat_completions_over_http() {
    let first = events(&[
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"t1","function":{"name":"read_file","arguments":"{\"path\""}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":": \"a.txt\"}"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}"#,
        "[DONE]",
    ]);
    let second = events(&[
        r#"{"choices":[{"index":0,"delta":{"content":"It says: the "}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"file's words"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7}}"#,
        "[DONE]",
    ]);
    check(
        "openai-chat",
        "OPENAI_API_KEY",
        vec![first, second],
        "authorization: bearer sk-secret-1234567890",
        // This protocol nests each tool one level deeper.
        8_700,
    );
}
