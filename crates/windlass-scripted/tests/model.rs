//! Tests of the scripted model over real sockets: each wire format requests the same work, and the position in the
//! script follows from the history alone.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use windlass_scripted::{Move, Script, Server};

fn server(moves: Vec<Move>) -> Server {
    Server::start(Script {
        moves,
        root: "/w".into(),
        ..Script::default()
    })
    .unwrap()
}

/// Sends a request. Returns the status and the body of the response.
fn post(server: &Server, path: &str, body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nx-api-key: k1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}\r\n0\r\n\r\n").as_bytes())
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

const BASH: &str =
    r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}"#;

/// A request in one of the wire formats, with this many calls and these texts in its history.
fn question(path: &str, stream: bool, calls: usize, said: &[&str]) -> Value {
    let schema: Value = serde_json::from_str(BASH).unwrap();
    let mut body = json!({ "model": "m", "stream": stream });
    let user = json!({ "role": "user", "content": "go" });
    match path {
        "/v1/messages" => {
            body["tools"] = json!([{ "name": "Bash", "input_schema": schema }]);
            let mut all = vec![user];
            let call = json!({ "type": "tool_use", "id": "t", "name": "Bash", "input": {} });
            all.extend((0..calls).map(|_| json!({ "role": "assistant", "content": [call] })));
            all.extend(
                said.iter()
                    .map(|text| json!({ "role": "assistant", "content": text })),
            );
            body["messages"] = json!(all);
        }
        "/v1/responses" => {
            body["tools"] = json!([{ "type": "function", "name": "bash", "parameters": schema }]);
            let mut all = vec![user];
            all.extend(
                (0..calls)
                    .map(|_| json!({ "type": "function_call", "name": "bash", "arguments": "{}" })),
            );
            let part = |text: &&str| json!([{ "type": "output_text", "text": text }]);
            all.extend(said.iter().map(
                |text| json!({ "role": "assistant", "type": "message", "content": part(text) }),
            ));
            body["input"] = json!(all);
        }
        "/v1/chat/completions" => {
            body["tools"] = json!([{ "type": "function", "function": { "name": "bash", "parameters": schema } }]);
            let mut all = vec![user];
            all.extend(
                (0..calls).map(|_| json!({ "role": "assistant", "tool_calls": [{ "id": "c" }] })),
            );
            all.extend(
                said.iter()
                    .map(|text| json!({ "role": "assistant", "content": text })),
            );
            body["messages"] = json!(all);
        }
        _ => {
            let declared = json!({ "name": "run_shell_command", "parameters": schema });
            body["tools"] = json!([{ "functionDeclarations": [declared] }]);
            let mut all = vec![json!({ "role": "user", "parts": [{ "text": "go" }] })];
            let call = json!({ "functionCall": { "name": "run_shell_command" } });
            all.extend((0..calls).map(|_| json!({ "role": "model", "parts": [call] })));
            all.extend(
                said.iter()
                    .map(|text| json!({ "role": "model", "parts": [{ "text": text }] })),
            );
            body["contents"] = json!(all);
        }
    }
    body
}

const WIRES: &[&str] = &[
    "/v1/messages",
    "/v1/responses",
    "/v1/chat/completions",
    "/v1beta/models/m:streamGenerateContent?alt=sse",
    "/v1beta/models/m:generateContent",
];

/// Checks on every wire format, streamed and whole, that the answer at this position contains this text.
#[track_caller]
fn check_all(moves: &[Move], calls: usize, said: &[&str], holds: &str) {
    for path in WIRES {
        for stream in [true, false] {
            let (status, body) = post(
                &server(moves.to_vec()),
                path,
                &question(path, stream, calls, said),
            );
            let plain = body.replace(['\\', '\r', '\n'], "");
            assert!(
                status == 200 && plain.contains(holds),
                "{path} stream {stream}: {holds} is not in {status} {body}"
            );
        }
    }
}

#[test]
fn the_position_follows_from_the_history_on_every_wire() {
    let moves = [
        Move::Shell("ls one".into()),
        Move::Say("half".into()),
        Move::Shell("ls two".into()),
    ];
    check_all(&moves, 0, &[], "ls");
    check_all(&moves, 1, &[], "ha");
    check_all(&moves, 1, &["half", "words of somebody else"], "ls");
    check_all(&moves, 2, &["half"], "Do");
}

#[test]
fn usage_is_what_the_script_says_in_each_vendors_words() {
    for (path, words) in [
        (
            "/v1/messages",
            r#""input_tokens":200,"cache_read_input_tokens":1000"#,
        ),
        (
            "/v1/responses",
            r#""input_tokens":1200,"input_tokens_details":{"cached_tokens":1000}"#,
        ),
        (
            "/v1/chat/completions",
            r#""prompt_tokens":1200,"prompt_tokens_details":{"cached_tokens":1000}"#,
        ),
        (
            "/v1beta/models/m:generateContent",
            r#""promptTokenCount":1200,"cachedContentTokenCount":1000"#,
        ),
    ] {
        let server = server(Vec::new());
        let (_, body) = post(&server, path, &question(path, true, 0, &[]));
        assert!(body.contains(words), "{words} is not in {body}");
        assert_eq!(server.answers(), 1);
    }
}

#[test]
fn a_side_question_gets_a_short_answer_and_does_not_advance_the_script() {
    let server = server(vec![Move::Fail {
        status: 500,
        times: None,
    }]);
    let (status, body) = post(
        &server,
        "/v1/messages",
        &json!({ "model": "m", "messages": [] }),
    );
    assert!(
        status == 200 && body.contains("A short title"),
        "{status} {body}"
    );
    assert!(!server.seen()[0].work);
}

#[test]
fn a_side_question_may_offer_the_form_of_its_answer() {
    let server = server(vec![Move::Shell("ls".into())]);
    let form = json!({ "type": "function", "function": { "name": "respond_in_schema", "parameters": {} } });
    let (_, body) = post(
        &server,
        "/v1/chat/completions",
        &json!({ "tools": [form], "messages": [] }),
    );
    assert!(body.contains("A short title"), "{body}");
    let schema = json!({ "type": "OBJECT", "properties": { "ok": { "type": "BOOLEAN" } }, "required": ["ok"] });
    let asked = json!({ "contents": [], "generationConfig": { "responseSchema": schema } });
    let (_, body) = post(&server, "/v1beta/models/m:generateContent", &asked);
    assert!(body.contains(r#"{\"ok\":false}"#), "{body}");
    assert!(
        server
            .seen()
            .iter()
            .all(|seen| !seen.work && seen.unmapped.is_none())
    );
}

#[test]
fn an_agent_without_history_continues_after_the_text_it_sent() {
    let say = |text: &str| Move::Say(text.into());
    let moves = [
        Move::Shell("ls one".into()),
        say("half"),
        Move::Heard("go".into()),
        Move::Shell("ls two".into()),
    ];
    // Every request contains the text, so all moves before it are done, with or without a history.
    check_all(&moves, 0, &[], "two");
    check_all(&moves, 1, &["half"], "two");
    check_all(&moves, 1, &[], "Do");
    let moves = [
        Move::Shell("ls one".into()),
        say("half"),
        Move::Heard("not said".into()),
        Move::Shell("ls two".into()),
    ];
    check_all(&moves, 0, &[], "one");
    check_all(&moves, 1, &["half"], "two");
}

#[test]
fn a_limited_number_of_failures_ends() {
    let server = server(vec![
        Move::Fail {
            status: 529,
            times: Some(2),
        },
        Move::Say("at last".into()),
    ]);
    let ask = || {
        post(
            &server,
            "/v1/messages",
            &question("/v1/messages", false, 0, &[]),
        )
        .0
    };
    assert_eq!([ask(), ask(), ask()], [529, 529, 200]);
    assert_eq!((server.requests(), server.answers()), (3, 1));
}

#[test]
fn requests_are_recorded_with_their_key() {
    let server = server(Vec::new());
    post(
        &server,
        "/v1/messages?beta=true",
        &question("/v1/messages", false, 0, &[]),
    );
    let seen = server.seen();
    assert_eq!(
        (seen[0].key.as_deref(), seen[0].tools.join(" ").as_str()),
        (Some("k1"), "Bash")
    );
    assert!(seen[0].body.contains("\"go\"") && seen[0].work);
}

#[test]
fn requests_that_are_not_for_a_model_get_no_answer_of_the_script() {
    let server = server(Vec::new());
    assert_eq!(
        post(&server, "/v1/messages/count_tokens", &json!({})).0,
        200
    );
    assert_eq!(post(&server, "/v1/files", &json!({})).0, 404);
    assert_eq!(post(&server, "/v1/messages", &json!([1])).0, 400);
    assert_eq!(server.answers(), 0);
}

#[test]
fn a_gemini_tool_has_its_schema_in_any_of_three_fields() {
    for field in [
        "parameters",
        "parametersJsonSchema",
        "parameters_json_schema",
    ] {
        let server = server(vec![Move::Shell("true".into())]);
        // The argument does not have its usual name, so it has to be looked up in the schema.
        let schema = json!({ "type": "object", "properties": { "cmd": { "type": "string" } }, "required": ["cmd"] });
        let mut tool = json!({ "name": "bash" });
        tool[field] = schema;
        let asked = json!({ "contents": [], "tools": [{ "functionDeclarations": [tool] }] });
        let (_, body) = post(&server, "/v1beta/models/m:generateContent", &asked);
        assert!(body.contains(r#""args":{"cmd":"true"}"#), "{field}: {body}");
    }
}
