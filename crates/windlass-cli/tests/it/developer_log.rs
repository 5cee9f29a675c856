//! The developer log: its content, and the content that must never be in it.

use std::os::unix::fs::PermissionsExt as _;

use windlass_needs::{Need, lacks};

use crate::cli_fixture::CliFixture;
use crate::model_server::{events, serve};

/// Texts that nothing marks as secret: neither their shape nor the settings.
const PLANTED: [&str; 5] = [
    "planted-key-7d1f",
    "planted-prompt-7d1f",
    "planted-variable-7d1f",
    "planted-file-7d1f",
    "planted-command-7d1f",
];

#[test]
fn the_log_has_events_and_no_conversation_text() {
    let [key, prompt, variable, file, command] = PLANTED;
    let fixture = CliFixture::new();
    fixture.write("notes.txt", file);
    let line = format!("cat notes.txt; echo {command}; env; echo {file} > new.txt");
    let arguments = serde_json::json!({ "command": line }).to_string();
    let call = serde_json::json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [{
        "index": 0, "id": "t1", "function": { "name": "bash", "arguments": arguments },
    }] } }] });
    let ends = |why: &str| {
        format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{why}"}}]}}"#)
    };
    let server = serve(vec![
        events(&[&call.to_string(), &ends("tool_calls"), "[DONE]"]),
        events(&[
            r#"{"choices":[{"index":0,"delta":{"content":"done"}}]}"#,
            &ends("stop"),
            "[DONE]",
        ]),
    ]);
    let log = fixture.home().join("windlass.log");
    let mut run = fixture.command(&[
        "run",
        "--in-place",
        "--yes",
        "-m",
        "groq/some-model",
        "--base-url",
        &server.url,
        "--log-file",
        log.to_str().unwrap(),
        prompt,
    ]);
    run.env("WINDLASS_LOG", "trace")
        .env("GROQ_API_KEY", key)
        .env("SOME_VARIABLE", variable);
    let output = fixture.run_with(run, "");
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    assert_eq!(server.requests().len(), 2);
    let text = std::fs::read_to_string(&log).unwrap();
    for secret in PLANTED {
        assert!(!text.contains(secret), "{secret}:\n{text}");
    }
    let mut expected = vec!["kind=\"run_started\"", "kind=\"call_finished\""];
    if !lacks(Need::Namespaces) {
        expected.extend([
            "sandbox: open",
            "sandbox helper: command 1 is process",
            "landing: swap",
        ]);
    }
    for words in expected {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    assert!(text.lines().all(|line| line.contains("windlass")), "{text}");
    let mode = std::fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_invalid_log_file_or_filter_is_a_usage_error() {
    let fixture = CliFixture::new();
    let output = fixture.run(&["--log-file", "no/such/folder/log", "tools"]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(
        output
            .err
            .contains("the log file no/such/folder/log cannot be written"),
        "{}",
        output.err
    );
    let mut command = fixture.command(&["tools"]);
    command.env("WINDLASS_LOG", "hyper=trace");
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(
        output.err.contains("`hyper` is not a crate of windlass"),
        "{}",
        output.err
    );
}
