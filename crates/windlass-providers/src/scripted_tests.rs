//! Tests of scripts: playback, checks of requests, and error messages for invalid scripts.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::provider::{EndReason, Sampling};
use windlass_core::tool::ToolSet;

use super::*;

async fn ask(
    provider: &ScriptedModelProvider,
    history: &[Entry],
) -> Vec<Result<Chunk, ProviderError>> {
    let (tools, options) = (ToolSet::default(), Sampling::default());
    let request = Request {
        model: "any",
        system: "be good",
        history,
        tools: &tools,
        max_output: 100,
        options: &options,
    };
    provider.stream(request).collect().await
}

fn toml(text: &str) -> ScriptedModelProvider {
    ScriptedModelProvider::parse("test.toml", text, ScriptFormat::Toml).unwrap()
}

fn text_of(chunks: &[Result<Chunk, ProviderError>]) -> String {
    let texts = chunks.iter().filter_map(|chunk| match chunk {
        Ok(Chunk::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn a_step_plays_reasoning_text_calls_usage_and_end_in_pieces() {
    let provider = toml(
        r#"
        [[step]]
        reasoning = "hm"
        text = "I will read the file and then think about it."
        calls = [{ name = "read_file", args = { path = "a.rs" } }, { name = "grep", id = "mine" }]
        usage = { input = 10, output = 3, cache_read = 7 }
        [[step]]
        text = "done"
        "#,
    );
    let chunks = ask(&provider, &[]).await;
    assert_eq!(chunks[0], Ok(Chunk::Reasoning("hm".into())));
    assert_eq!(
        text_of(&chunks),
        "I will read the file and then think about it."
    );
    assert!(
        chunks
            .iter()
            .filter(|chunk| matches!(chunk, Ok(Chunk::Text(_))))
            .count()
            >= 3
    );
    assert!(chunks.contains(&Ok(Chunk::CallStart {
        index: 0,
        id: "call-1-1".into(),
        name: "read_file".into()
    })));
    assert!(chunks.contains(&Ok(Chunk::CallStart {
        index: 1,
        id: "mine".into(),
        name: "grep".into()
    })));
    assert_eq!(chunks.last(), Some(&Ok(Chunk::End(EndReason::ToolCalls))));
    assert_eq!(
        ask(&provider, &[]).await.last(),
        Some(&Ok(Chunk::End(EndReason::Done)))
    );
    assert_eq!(provider.facts("x").price, Some(Price::FREE));
    let err = ask(&provider, &[]).await.pop().unwrap().unwrap_err();
    assert!(
        err.message
            .contains("has 2 steps, but the request needs step 3"),
        "{err}"
    );
}

#[tokio::test]
async fn json_lines_are_parsed_like_toml() {
    let text = "{\"text\": \"a\", \"pieces\": 1}\n\n{\"refusal\": \"no\", \"repeat\": 2}\n";
    let provider = ScriptedModelProvider::parse("s.jsonl", text, ScriptFormat::JsonLines).unwrap();
    assert_eq!(
        ask(&provider, &[]).await,
        [Ok(Chunk::Text("a".into())), Ok(Chunk::End(EndReason::Done))]
    );
    for _ in 0..2 {
        assert_eq!(
            ask(&provider, &[]).await,
            [
                Ok(Chunk::Text("no".into())),
                Ok(Chunk::End(EndReason::Refused))
            ]
        );
    }
    assert_eq!(provider.played(), 3);
}

#[tokio::test]
async fn a_cut_call_never_parses() {
    for args in [
        "{}",
        "{ path = \"a\" }",
        "{ path = \"some/longer/path\", lines = [1, 2] }",
    ] {
        let provider = toml(&format!(
            "[[step]]\ncut = true\ncalls = [{{ name = \"read_file\", args = {args} }}]"
        ));
        let chunks = ask(&provider, &[]).await;
        let json: String = chunks
            .iter()
            .filter_map(|chunk| match chunk {
                Ok(Chunk::CallArgs { json, .. }) => Some(json.as_str()),
                _ => None,
            })
            .collect();
        assert!(
            serde_json::from_str::<serde_json::Value>(&json)
                .unwrap_err()
                .is_eof(),
            "{json}"
        );
    }
}

#[tokio::test]
async fn errors_happen_at_the_scripted_position() {
    let provider = toml(
        r#"
        [[step]]
        error = { kind = "rate_limited", retry_after = 2, status = 429 }
        [[step]]
        text = "one two"
        pieces = 2
        error = { kind = "network", after = 1, message = "gone" }
        "#,
    );
    let err = ask(&provider, &[]).await.pop().unwrap().unwrap_err();
    let limited = ProviderErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(2)),
    };
    assert_eq!((err.kind, err.status), (limited, Some(429)));
    let chunks = ask(&provider, &[]).await;
    assert_eq!(text_of(&chunks), "one ");
    assert_eq!(chunks.last().unwrap().as_ref().unwrap_err().message, "gone");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_step_never_ends() {
    let provider = toml("[[step]]\ntext = \"wait\"\nhang = true");
    let waited = tokio::time::timeout(Duration::from_secs(3_600), ask(&provider, &[])).await;
    assert!(waited.is_err());
}

#[tokio::test]
async fn a_request_without_the_expected_text_is_an_error() {
    let script = "[[step]]\nexpect = [\"be good\", \"old\"]\nexpect_new = \"FAILED\"\ntext = \"x\"";
    let call = ToolCall {
        id: "c".into(),
        name: "bash".into(),
        args: serde_json::json!({}),
        malformed: None,
    };
    let history = |text: &str| {
        let result = ToolResult::failed(&call, ErrorCategory::Exception, text);
        [
            Message::user("old FAILED"),
            Message::assistant("ok"),
            Message::results(vec![result]),
        ]
        .map(Entry::new)
    };
    assert_eq!(
        text_of(&ask(&toml(script), &history("test FAILED")).await),
        "x"
    );
    let err = ask(&toml(script), &history("all passed"))
        .await
        .pop()
        .unwrap()
        .unwrap_err();
    assert_eq!(err.kind, ProviderErrorKind::InvalidRequest);
    assert!(
        err.message
            .contains("expects the new part of the request to contain `FAILED`"),
        "{err}"
    );
    assert!(err.message.contains("all passed"), "{err}");
}

/// Continues a conversation with a new provider, as a resumed process does. `results` has the id of each call and its
/// result.
async fn follow(results: &[(&str, Option<ErrorCategory>, &str)]) -> Vec<String> {
    let provider = toml(
        r#"
        follow = "history"
        [[step]]
        text = "append"
        calls = [
          { name = "bash", args = { command = "echo 1 >> log" }, check = { name = "grep", args = { pattern = "1" }, shows = "log" } },
          { name = "read_file", args = { path = "log" } },
        ]
        [[step]]
        text = "done"
        "#,
    );
    let mut history = vec![Entry::new(Message::user("go"))];
    for (id, error, text) in results {
        let call = ToolCall {
            id: (*id).into(),
            name: "bash".into(),
            args: serde_json::json!({}),
            malformed: None,
        };
        let mut reply = Message::assistant("append");
        reply.parts.push(Part::Call(call.clone()));
        history.push(Entry::new(reply));
        let mut result = ToolResult::failed(&call, error.unwrap_or(ErrorCategory::Exception), text);
        result.error = *error;
        history.push(Entry::new(Message::results(vec![result])));
        history.push(Entry::new(Message::user("go on")));
    }
    let starts = |chunk: Result<Chunk, ProviderError>| match chunk {
        Ok(Chunk::CallStart { id, name, .. }) => Some(format!("{name} {id}")),
        Ok(Chunk::Text(text)) if text == "done" => Some(text),
        Err(err) => Some(err.to_string()),
        Ok(_) => None,
    };
    ask(&provider, &history)
        .await
        .into_iter()
        .filter_map(starts)
        .collect()
}

#[tokio::test]
async fn a_script_that_follows_the_history_continues_the_conversation() {
    const CUT: Option<ErrorCategory> = Some(ErrorCategory::Interrupted);
    let (first, second) = (("call-1-1", None, ""), ("call-1-2", None, "1"));
    assert_eq!(follow(&[]).await, ["bash call-1-1", "read_file call-1-2"]);
    assert_eq!(follow(&[first, second]).await, ["done"]);
    // An interrupted call with a check is checked; one without a check is repeated.
    assert_eq!(
        follow(&[("call-1-1", CUT, "may have"), second]).await,
        ["grep look-1-1-1"]
    );
    assert_eq!(
        follow(&[first, ("call-1-2", CUT, "may have")]).await,
        ["read_file call-1-2-1"]
    );
    // A call that took effect is not repeated; one that did not is repeated. Failed calls are checked in the same way.
    let cut = ("call-1-1", CUT, "may have");
    assert_eq!(
        follow(&[cut, second, ("look-1-1-1", None, "log:1")]).await,
        ["done"]
    );
    assert_eq!(
        follow(&[cut, second, ("look-1-1-1", None, "nothing")]).await,
        ["bash call-1-1-2"]
    );
    assert_eq!(
        follow(&[cut, second, ("look-1-1-1", CUT, "cut")]).await,
        ["grep look-1-1-2"]
    );
    let full = ("call-1-1", Some(ErrorCategory::Exception), "no space");
    assert_eq!(follow(&[full, second]).await, ["grep look-1-1-1"]);
    // A failed call without a check is not repeated, and no call is repeated without limit.
    assert_eq!(
        follow(&[first, ("call-1-2", Some(ErrorCategory::NotFound), "no")]).await,
        ["done"]
    );
    assert_eq!(
        follow(&[[cut; 9].as_slice(), &[second]].concat()).await,
        ["done"]
    );
}

#[tokio::test]
async fn a_script_that_follows_the_history_repeats_its_final_answer() {
    let provider = toml("follow = \"history\"\n[[step]]\ntext = \"a\"\n[[step]]\ntext = \"b\"");
    let history = [
        Message::user("go"),
        Message::assistant("a"),
        Message::user("go on"),
    ]
    .map(Entry::new);
    assert_eq!(text_of(&ask(&provider, &history).await), "b");
    let history = ["a", "other words", "b"].map(|text| Entry::new(Message::assistant(text)));
    assert_eq!(text_of(&ask(&provider, &history).await), "b");
}

#[track_caller]
fn check_error(format: ScriptFormat, text: &str, expect: &str) {
    let err = ScriptedModelProvider::parse("demo.script", text, format)
        .unwrap_err()
        .to_string();
    assert_eq!(err, expect);
}

#[test]
fn errors_show_the_line_and_a_caret() {
    check_error(
        ScriptFormat::Toml,
        "[[step]]\ntext = \"a\"\ntxet = \"b\"\n",
        "demo.script:3:1: unknown field `txet`, expected one of `expect`, `expect_new`, `reasoning`, `text`, `refusal`, \
         `calls`, `pieces`, `usage`, `end`, `cut`, `hang`, `error`, `repeat`\n  |\n3 | txet = \"b\"\n  | ^",
    );
    check_error(
        ScriptFormat::Toml,
        "[[step]]\ntext = \n",
        "demo.script:2:8: string values must be quoted, expected literal string\n  |\n2 | text = \n  |        ^",
    );
    check_error(
        ScriptFormat::JsonLines,
        "{\"text\": \"a\"}\n{\"text\": 5}\n",
        "demo.script:2:10: invalid type: integer `5`, expected a string\n  |\n2 | {\"text\": 5}\n  |          ^",
    );
    check_error(
        ScriptFormat::Toml,
        "",
        "demo.script:1:1: the script has no step; begin one with `[[step]]`\n  |\n1 | \n  | ^",
    );
    check_error(
        ScriptFormat::Toml,
        "follow = \"history\"\n[[step]]\ncalls = [{ name = \"bash\", id = \"mine\" }]",
        "demo.script:1:1: step 1: remove `id`: with `follow = \"history\"` the ids of calls are generated\n  |\n1 | \
         follow = \"history\"\n  | ^",
    );
    check_error(
        ScriptFormat::JsonLines,
        "{}\n",
        "demo.script:1:1: step 1: it is empty; add text, calls, refusal, end, error or hang\n  |\n1 | {}\n  | ^",
    );
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "[\\[\\]{}\"'=a-z0-9,:\n\u{e9} ]{0,80}") {
        let _ = ModelScript::parse("x", &text, ScriptFormat::Toml);
        let _ = ModelScript::parse("x", &text, ScriptFormat::JsonLines);
    }
}
