//! A model without tool calls does the same task with JSON in its text.

use serde_json::{Value, json};

use crate::cli_fixture::CliFixture;
use crate::model_server::{events, serve};

const NO_TOOLS: &str = "[models.scripted]\ntools = false\n[models.small]\ntools = false\n";

fn config(fixture: &CliFixture, text: &str) {
    let folder = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), text).unwrap();
}

#[test]
fn the_same_task_succeeds_without_tool_calls() {
    let fixture = CliFixture::new();
    config(&fixture, NO_TOOLS);
    fixture.write("a.txt", "the file's words");
    let output = fixture.play(
        r#"
        [[step]]
        text = '''
        I look first.
        ```json
        {"action": "read_file", "arguments": {"path": "a.txt"}}
        ```
        '''
        [[step]]
        expect_new = "Result of read_file:"
        text = '{"action": "write_file", "arguments": {"path": "b.txt", "content": "copied"}}'
        [[step]]
        text = '{"answer": "It is copied."}'
        "#,
        &["--json", "--approval", "edit"],
    );
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(result["text"], "It is copied.");
    assert_eq!(fixture.read("b.txt"), "copied");
    let log = fixture.log();
    let calls = log
        .iter()
        .filter(|event| event["kind"] == "call_finished")
        .count();
    assert_eq!(calls, 2);
    assert!(
        !output.out.contains("\"answer\"") && !output.err.contains("\"answer\""),
        "{}",
        output.out
    );
}

#[test]
fn a_model_without_tool_calls_gets_the_tools_as_text() {
    let fixture = CliFixture::new();
    config(&fixture, NO_TOOLS);
    fixture.write("a.txt", "the file's words");
    let says = |text: &str| {
        let half = text.len() / 2;
        let delta = |text: &str| {
            json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }).to_string()
        };
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] })
            .to_string();
        events(&[&delta(&text[..half]), &delta(&text[half..]), &end, "[DONE]"])
    };
    let server = serve(vec![
        says(r#"{"action": "read_file", "arguments": {"path": "a.txt"}}"#),
        says(r#"{"answer": "It says: the file's words"}"#),
    ]);
    let output = fixture.run(&[
        "run",
        "--in-place",
        "-m",
        "openai-compatible/small",
        "--base-url",
        &server.url,
        "--json",
        "read a.txt",
    ]);
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(result["text"], "It says: the file's words");
    let asked = server.requests();
    let body = |request: &str| -> Value {
        serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let (first, second) = (body(&asked[0]), body(&asked[1]));
    assert!(first.get("tools").is_none());
    assert!(
        first["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("- read_file: ")
    );
    assert_eq!(
        first["messages"][0], second["messages"][0],
        "the prefix is stable"
    );
    assert!(
        second["messages"][3]["content"]
            .as_str()
            .unwrap()
            .contains("the file's words")
    );
}
