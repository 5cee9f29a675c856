//! Recorded exchanges: recording, replay without a server, and decoding.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli_fixture::CliFixture;
use crate::model_server::{events, serve};

const SECRET: &str = "sk-secret-1234567890";

fn answers() -> Vec<String> {
    let first = events(&[
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","function":{"name":"read_file","arguments":"{\"path\": \"a.txt\"}"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]);
    let second = events(&[
        r#"{"choices":[{"index":0,"delta":{"content":"your key is sk-secret-1234567890"},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]);
    vec![first, second]
}

fn recorded(fixture: &CliFixture) -> PathBuf {
    let tape = fixture.home().join("tape.jsonl");
    let server = serve(answers());
    let file = tape.display().to_string();
    let args = [
        "run",
        "--in-place",
        "-m",
        "groq/some-model",
        "--base-url",
        &server.url,
        "--record",
        &file,
        "read a.txt",
    ];
    let mut command = fixture.command(&args);
    command.env("GROQ_API_KEY", SECRET);
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    assert_eq!(server.requests().len(), answers().len());
    tape
}

#[test]
fn a_run_is_recorded_without_its_key_and_replayed_without_a_server() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "the file's words");
    let tape = recorded(&fixture);
    let text = std::fs::read_to_string(&tape).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(
        !text.contains(SECRET) && !text.to_lowercase().contains("authorization"),
        "{text}"
    );
    let row: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&row["provider"], &row["protocol"]),
        (&"groq".into(), &"openai.chat".into())
    );
    assert!(
        row["request"]["body"]
            .as_str()
            .unwrap()
            .contains("read a.txt")
    );

    // The recorded path is that of the server on loopback; no key, no server.
    let file = tape.display().to_string();
    let play = [
        "run",
        "--in-place",
        "--cassette",
        &file,
        "--base-url",
        "http://127.0.0.1:9",
        "--json",
        "read a.txt",
    ];
    let output = fixture.run(&play);
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(result["text"], "your key is [redacted by windlass: secret]");
    assert_eq!(
        fixture
            .log()
            .iter()
            .filter(|event| event["kind"] == "call_finished")
            .count(),
        1
    );

    fixture.write("a.txt", "other words");
    let output = fixture.run(&play);
    assert_eq!(output.code, 7, "{}", output.err);
    assert!(
        output.err.contains("exchange 2 of 2") || output.out.contains("exchange 2 of 2"),
        "{}",
        output.err
    );
    assert!(
        output.out.contains("/messages/3/content") || output.err.contains("/messages/3/content"),
        "{}",
        output.out
    );
}

#[test]
fn an_unusable_cassette_is_an_error_with_the_reason() {
    let fixture = CliFixture::new();
    let check = |text: &str, says: &str| {
        let tape = fixture.home().join("bad.jsonl");
        std::fs::write(&tape, text).unwrap();
        let output = fixture.run(&[
            "run",
            "--in-place",
            "--cassette",
            &tape.display().to_string(),
            "go",
        ]);
        assert_eq!(output.code, 2);
        assert!(output.err.contains(says), "{}", output.err);
    };
    check("", "no exchange");
    check("what", "line 1");
    check(
        "{\"id\":\"a\",\"response\":{\"status\":200}}",
        "the name of its model",
    );
}

fn decode(fixture: &CliFixture, args: &[&str], stdin: &str) -> Vec<Value> {
    let mut all = vec!["debug", "decode"];
    all.extend_from_slice(args);
    let output = fixture.run_with(fixture.command(&all), stdin);
    assert_eq!(output.code, 0, "{}", output.err);
    output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn recordings_are_decoded_line_by_line() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "the file's words");
    let tape = recorded(&fixture);
    let rows = decode(&fixture, &[&tape.display().to_string()], "");
    assert_eq!(
        rows[0]["tool_calls"],
        serde_json::json!([{ "name": "read_file", "arguments": { "path": "a.txt" } }])
    );
    assert_eq!(
        (&rows[0]["stop"], &rows[1]["stop"]),
        (&"tool_calls".into(), &"done".into())
    );
    assert_eq!(
        rows[1]["text"],
        "your key is [redacted by windlass: secret]"
    );
    assert_eq!(
        (&rows[1]["error"], &rows[1]["usage"]),
        (&Value::Null, &Value::Null)
    );
    let text = std::fs::read_to_string(&tape).unwrap();
    let packed = fixture.home().join("tape.jsonl.gz");
    let mut gzip = flate2::write::GzEncoder::new(
        std::fs::File::create(&packed).unwrap(),
        flate2::Compression::fast(),
    );
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap();
    assert_eq!(
        decode(
            &fixture,
            &[
                &packed.display().to_string(),
                "--split",
                "1",
                "--bom",
                "--crlf"
            ],
            ""
        ),
        rows
    );
    assert_eq!(decode(&fixture, &["-"], &text), rows);
    let odd = "{\"id\":\"x\",\"protocol\":\"morse\",\"response\":{\"status\":200,\"body\":\"-.-\"}}\n\nnot a row\n";
    let rows = decode(&fixture, &["-"], odd);
    assert!(
        rows[0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`morse` is unknown"),
        "{}",
        rows[0]
    );
    assert!(
        rows[1]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("line 3"),
        "{}",
        rows[1]
    );
    assert_eq!(fixture.run(&["debug", "decode", "/nowhere"]).code, 2);
}

/// Decodes recordings from outside the repository, if they exist.
#[test]
fn every_shared_recording_is_decoded() {
    let given = std::env::var_os("WINDLASS_STREAMS").map(PathBuf::from);
    let folder = given
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/streams"));
    let file = folder.join("recorded.jsonl.gz");
    if !file.is_file() {
        windlass_needs::not_run("needs recorded streams (set WINDLASS_STREAMS to their folder)");
        return;
    }
    let fixture = CliFixture::new();
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let file = file.display().to_string();
    let whole = decode(&fixture, &[&file], "");
    let unknown = whole.iter().filter(|row| {
        row["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("is unknown"))
    });
    eprintln!(
        "{} recordings decoded, {} of protocols we do not speak",
        whole.len(),
        unknown.count()
    );
    assert_eq!(
        decode(&fixture, &[&file, "--split", "7", "--bom", "--crlf"], ""),
        whole
    );

    // Cut in the middle: an error that keeps the text so far.
    let half = text.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        if let Some(body) = row["response"]["body"]
            .as_str()
            .filter(|_| row["framing"] != "aws-eventstream")
        {
            let half = body
                .chars()
                .take(body.chars().count() / 2)
                .collect::<String>();
            row["response"]["body"] = half.into();
        }
        format!("{row}\n")
    });
    let file = fixture.home().join("half.jsonl");
    std::fs::write(&file, half.collect::<String>()).unwrap();
    let rows = decode(&fixture, &[&file.display().to_string()], "");
    let cut = rows.iter().zip(&whole).filter(|(half, whole)| {
        let text = |row: &Value| row["text"].as_str().unwrap().to_owned();
        assert!(text(whole).starts_with(&text(half)), "{half}");
        half["error"]["kind"] == "network" && half["stop"].is_null()
    });
    let cut = cut.count();
    eprintln!("{cut} of them are cut in their middle");
    assert!(cut > whole.len() * 8 / 10);
}
