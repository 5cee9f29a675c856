//! The wire cases for protocols without server-sent events: Ollama sends lines, Converse sends messages with an event
//! type, and Bedrock wraps the events of the messages protocol.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::framing::tests::message;

/// Returns the lines of a case in Ollama's protocol; empty if the protocol cannot express it.
fn ollama(case: &str) -> &'static [&'static str] {
    const END: &str = r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#;
    match case {
        "text" => &[
            r#"{"message":{"content":"Hello "}}"#,
            r#"{"message":{"content":"w\u00f6rld"},"done":false}"#,
            END,
        ],
        "split call" => &[
            r#"{"message":{"tool_calls":[{"function":{"name":"read_file","arguments":{"path":"a\n"}}}]},"done":false}"#,
            END,
        ],
        "parallel calls" => &[
            r#"{"message":{"content":"both","tool_calls":[{"id":"1","function":{"index":0,"name":"a","arguments":{"n":1}}}]}}"#,
            r#"{"message":{"content":"","tool_calls":[{"id":"2","function":{"index":0,"name":"b","arguments":{}}}]}}"#,
            END,
        ],
        "length stop" => &[
            r#"{"message":{"content":"half"},"done":false}"#,
            r#"{"message":{"content":""},"done":true,"done_reason":"length"}"#,
        ],
        "error in a stream that began well" => &[
            r#"{"message":{"content":"par"}}"#,
            r#"{"error":"llama runner stopped"}"#,
        ],
        "keep-alives" => &[
            "",
            r#"{"message":{"content":"a"}}"#,
            " ",
            r#"{"message":{"content":"b"}}"#,
            END,
        ],
        "something unknown" => &[
            r#"{"message":{"content":"a"},"new":1}"#,
            r#"{"hologram":{}}"#,
            r#"{"message":{"content":"b"}}"#,
            END,
        ],
        // Ollama has no signed thoughts, no refusals and no cache counts.
        _ => &[],
    }
}

/// Returns event type and payload of each message of a case in Converse.
fn converse(case: &str) -> &'static [(&'static str, &'static str)] {
    const DELTA: &str = "contentBlockDelta";
    const DONE: (&str, &str) = ("messageStop", r#"{"stopReason":"end_turn"}"#);
    const CALLS: (&str, &str) = ("messageStop", r#"{"stopReason":"tool_use"}"#);
    const A: (&str, &str) = (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":"a"}}"#);
    const B: (&str, &str) = (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":"b"}}"#);
    match case {
        "text" => &[
            ("messageStart", r#"{"role":"assistant"}"#),
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"text":"Hello "},"p":"abc"}"#,
            ),
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"text":"wörld"},"p":"ab"}"#,
            ),
            ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
            DONE,
        ],
        "reasoning with state" => &[
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Let me "}}}"#,
            ),
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"think"}}}"#,
            ),
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"STATE-1/+="}}}"#,
            ),
            ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
            (DELTA, r#"{"contentBlockIndex":1,"delta":{"text":"42"}}"#),
            DONE,
        ],
        "split call" => &[
            (
                "contentBlockStart",
                r#"{"contentBlockIndex":0,"start":{"toolUse":{"name":"read_file","toolUseId":"c"}}}"#,
            ),
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"path\": \"a\\"}}}"#,
            ),
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"toolUse":{"input":"n\"}"}}}"#,
            ),
            CALLS,
        ],
        "parallel calls" => &[
            (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":"both"}}"#),
            (
                "contentBlockStart",
                r#"{"contentBlockIndex":1,"start":{"toolUse":{"name":"a","toolUseId":"1"}}}"#,
            ),
            (
                DELTA,
                r#"{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\"n\":1}"}}}"#,
            ),
            (
                "contentBlockStart",
                r#"{"contentBlockIndex":2,"start":{"toolUse":{"name":"b","toolUseId":"2"}}}"#,
            ),
            CALLS,
        ],
        "refusal" => &[
            (
                DELTA,
                r#"{"contentBlockIndex":0,"delta":{"text":"I cannot"}}"#,
            ),
            ("messageStop", r#"{"stopReason":"guardrail_intervened"}"#),
        ],
        "length stop" => &[
            (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":"half"}}"#),
            ("messageStop", r#"{"stopReason":"max_tokens"}"#),
        ],
        "usage with cache" => &[
            (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":"x"}}"#),
            DONE,
            (
                "metadata",
                r#"{"usage":{"inputTokens":80,"cacheReadInputTokens":20,"outputTokens":7,"totalTokens":107}}"#,
            ),
        ],
        "error in a stream that began well" => &[
            (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":"par"}}"#),
            ("!serviceUnavailableException", r#"{"message":"busy"}"#),
        ],
        "keep-alives" => &[
            A,
            (DELTA, r#"{"contentBlockIndex":0,"delta":{"text":""}}"#),
            B,
            DONE,
        ],
        "something unknown" => &[
            A,
            (DELTA, r#"{"contentBlockIndex":0,"delta":{"hologram":{}}}"#),
            B,
            DONE,
        ],
        other => panic!("no stream for {other}"),
    }
}

/// Encodes a message; a name that begins with `!` is an exception.
fn wrapped(name: &str, payload: &str) -> Vec<u8> {
    match name.strip_prefix('!') {
        Some(name) => message(
            &[(":message-type", "exception"), (":exception-type", name)],
            payload,
        ),
        None => message(
            &[(":message-type", "event"), (":event-type", name)],
            payload,
        ),
    }
}

#[track_caller]
fn check(protocol: Protocol, case: &WireCase, stream: &[u8]) {
    let whole = read(protocol, [stream]);
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
        let (head, tail) = stream.split_at(at);
        let split = read(protocol, [head, tail]);
        assert_eq!(
            (split.summary, split.reply),
            (expect.clone(), whole.reply.clone()),
            "{protocol:?} at {at}"
        );
    }
    assert_eq!(
        read(protocol, stream.chunks(1)).reply,
        whole.reply,
        "{protocol:?}: {}",
        case.name
    );
}

#[test]
fn every_case_decodes_the_same_in_the_other_framings() {
    for case in cases() {
        let lines = ollama(case.name);
        let known = !matches!(
            case.name,
            "reasoning with state" | "refusal" | "usage with cache"
        );
        assert_eq!(!lines.is_empty(), known, "{}", case.name);
        if known {
            let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
            check(Protocol::OllamaChat, &case, stream.as_bytes());
            check(
                Protocol::OllamaChat,
                &case,
                format!("\u{feff}{}", stream.replace('\n', "\r\n")).as_bytes(),
            );
        }
        let stream: Vec<u8> = converse(case.name)
            .iter()
            .flat_map(|(name, payload)| wrapped(name, payload))
            .collect();
        check(Protocol::BedrockConverse, &case, &stream);
        let events = case.streams[0].iter().filter(|line| !line.starts_with(':'));
        let chunk = |line: &&str| {
            wrapped(
                "chunk",
                &json!({ "bytes": STANDARD.encode(line) }).to_string(),
            )
        };
        check(
            Protocol::BedrockAnthropic,
            &case,
            &events.flat_map(chunk).collect::<Vec<u8>>(),
        );
    }
}
