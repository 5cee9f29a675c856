//! Replays recordings of real agents: each message of the agent is sent again, and the answers of the client must match
//! those of the recording.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use windlass_core::runtime::Stop;
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::agents::agent;
use windlass_runtimes::dialect::Dialect;

use crate::harness::{AcpHarness, ScriptedAgent};

/// Sends the recorded messages of an agent, and checks the messages of the client.
async fn replay(mut agent: ScriptedAgent, recording: String, set_up: bool) {
    let mut ids: HashMap<String, Value> = HashMap::new();
    let mut permissions: Vec<Value> = Vec::new();
    for line in recording.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let mut message = line["msg"].clone();
        if line["dir"] == "<" {
            if message["method"] == "session/request_permission" {
                permissions.push(message["id"].clone());
            }
            if message.get("method").is_none() {
                message["id"] = ids[&message["id"].to_string()].clone();
            }
            agent.send(message).await;
            continue;
        }
        let received = agent.next().await.unwrap_or_default();
        if message.get("method").is_some() {
            assert_eq!(received["method"], message["method"], "{received}");
            if set_up
                && !["initialize", "session/prompt"].contains(&received["method"].as_str().unwrap())
            {
                assert_eq!(received["params"], message["params"]);
            }
            ids.insert(message["id"].to_string(), received["id"].clone());
            continue;
        }
        assert_eq!(received["id"], message["id"], "{received}");
        assert_eq!(
            received["error"]["code"], message["error"]["code"],
            "{received}"
        );
        if permissions.contains(&message["id"]) {
            assert_eq!(received["result"], message["result"], "{received}");
        }
    }
    // An agent that stopped at a refused call is told to continue.
    while let Some(more) = agent.next().await {
        agent.done(&more).await;
    }
}

/// The expectation for one recording: the Windlass calls of the questions, the logged messages, and parts of the
/// results.
struct ExpectedReplay<'a> {
    likes: &'a [&'a str],
    messages: &'a [&'a str],
    results: &'a [&'a str],
}

async fn check(recording: &'static str, auth_method: Option<&str>, expected: ExpectedReplay<'_>) {
    let auth_method = auth_method.map(str::to_owned);
    let options = AcpOptions {
        name: Some("toy".into()),
        command: Some("toy".into()),
        auth_method,
        ..AcpOptions::default()
    };
    let harness = AcpHarness {
        options,
        judge: Arc::new(|call| Some(!call.call.args.to_string().contains("forbidden"))),
        ..AcpHarness::default()
    };
    let folder = harness
        .folder
        .path()
        .canonicalize()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let here = recording.replace("/workspace", &folder);
    let (stop, record) = harness
        .play(move |agent| replay(agent, here.clone(), false))
        .await;
    assert_eq!(stop, Stop::Done, "{:?}", record.messages());
    let plain = |text: String| text.replace(&folder, "/w");
    let asked = record.asked.lock();
    let likes: Vec<String> = asked
        .iter()
        .flat_map(|call| &call.like)
        .map(|like| plain(format!("{} {}", like.tool, like.args)))
        .collect();
    assert_eq!(likes, expected.likes);
    let messages = record
        .messages()
        .into_iter()
        .filter(|messages| !messages.starts_with("text:That call was refused"));
    assert_eq!(messages.map(plain).collect::<Vec<_>>(), expected.messages);
    let results = record.results.lock();
    let results: Vec<String> = results
        .iter()
        .map(|result| plain(result.text.clone()))
        .collect();
    for (result, expected) in results.iter().zip(expected.results) {
        assert!(result.contains(expected), "{result} has no {expected}");
    }
    assert_eq!(results.len(), expected.results.len(), "{results:?}");
}

/// The calls of all agents but one: a command, a file, and a forbidden command.
const HI: &str = r#"bash {"command":"echo hi > out.txt && cat out.txt"}"#;
const NEW: &str = r#"write_file {"path":"/w/new.txt","content":"hello acp"}"#;
const FORBIDDEN: &str = r#"bash {"command":"echo forbidden > f.txt"}"#;
const DONE: &str = "text:Done. The fake model says hello.";

#[tokio::test(start_paused = true)]
async fn opencode_writes_an_allowed_file_through_the_client() {
    let diff = "Index: /w/new.txt\\n===================================================================\\n--- /w/new.txt\\n\
        +++ /w/new.txt\\n@@ -0,0 +1,1 @@\\n+hello acp\\n\\\\ No newline at end of file\\n";
    let write = format!(
        r#"call:write {{"filePath":"/w/new.txt","content":"hello acp","filepath":"/w/new.txt","diff":"{diff}"}}"#
    );
    let expected = ExpectedReplay {
        likes: &[HI, NEW, FORBIDDEN],
        messages: &[
            r#"call:bash {"cwd":"/w","command":"echo hi > out.txt && cat out.txt","description":"run it"}"#,
            &write,
            r#"call:bash {"cwd":"/w","command":"echo forbidden > f.txt"}"#,
        ],
        results: &["hi\n", "Wrote file successfully."],
    };
    check(
        include_str!("../fixtures/acp/opencode.jsonl"),
        None,
        expected,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn goose_runs_an_allowed_command_through_the_client() {
    let expected = ExpectedReplay {
        likes: &[HI, FORBIDDEN],
        messages: &[
            r#"call:shell {"command":"echo hi > out.txt && cat out.txt"}"#,
            r#"call:shell {"command":"echo forbidden > f.txt"}"#,
            DONE,
        ],
        results: &["ran: export AGENT_SESSION_ID=20261115_2; echo hi > out.txt && cat out.txt\n"],
    };
    check(include_str!("../fixtures/acp/goose.jsonl"), None, expected).await;
}

#[tokio::test(start_paused = true)]
async fn qwen_offers_two_options_to_allow_once_and_sends_an_unknown_request() {
    let expected = ExpectedReplay {
        likes: &[
            HI,
            r#"write_file {"path":"new.txt","content":"hello acp"}"#,
            FORBIDDEN,
        ],
        messages: &[
            r#"call:run_shell_command {"command":"echo hi > out.txt && cat out.txt","description":"run it","is_background":false}"#,
            r#"call:fs/write_text_file {"path":"new.txt","content":"hello acp"}"#,
            r#"call:write_file {"file_path":"/w/new.txt","content":"hello acp"}"#,
            r#"call:run_shell_command {"command":"echo forbidden > f.txt","description":"run it","is_background":false}"#,
        ],
        results: &["Output: hi", "9 bytes written", "hello acp"],
    };
    check(include_str!("../fixtures/acp/qwen.jsonl"), None, expected).await;
}

#[tokio::test(start_paused = true)]
async fn gemini_has_its_command_only_in_the_title() {
    let expected = ExpectedReplay {
        likes: &[HI, NEW, FORBIDDEN],
        messages: &[
            r#"call:execute {"title":"echo hi > out.txt && cat out.txt"}"#,
            r#"call:edit {"title":"Writing to new.txt","paths":["/w/new.txt"],"changes":[{"path":"/w/new.txt","text":"hello acp"}]}"#,
            r#"call:execute {"title":"echo forbidden > f.txt"}"#,
            DONE,
        ],
        results: &["", ""],
    };
    check(
        include_str!("../fixtures/acp/gemini.jsonl"),
        Some("gemini-api-key"),
        expected,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn claude_agent_acp_writes_files_itself() {
    let expected = ExpectedReplay {
        likes: &[HI, NEW, FORBIDDEN],
        messages: &[
            r#"call:Bash {"command":"echo hi > out.txt && cat out.txt","description":"run it"}"#,
            r#"call:Write {"file_path":"/w/new.txt","content":"hello acp"}"#,
            r#"call:Bash {"command":"echo forbidden > f.txt","description":"run it"}"#,
            DONE,
        ],
        results: &["hi", "File created successfully at: /w/new.txt"],
    };
    check(
        include_str!("../fixtures/acp/claude-agent-acp.jsonl"),
        None,
        expected,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn codex_acp_runs_without_asking() {
    let expected = ExpectedReplay {
        likes: &[],
        messages: &[
            "text:Warning: Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\n\n",
            r#"call:exec_command {"command":"echo hi > out.txt && cat out.txt","cwd":"/w"}"#,
            DONE,
        ],
        results: &["hi\n"],
    };
    check(
        include_str!("../fixtures/acp/codex-acp.jsonl"),
        None,
        expected,
    )
    .await;
}

/// The calls of the agents with their profiles: an edit, a new file, a command, and a forbidden command.
const COUNTED: &str = r#"bash {"command":"wc -l < a.txt > out.txt"}"#;
const TOUCH: &str = r#"bash {"command":"touch forbidden.txt"}"#;

/// Checks an agent that was recorded with its profile: logged in, in its mode, and with a question about every call.
async fn check_set_up(name: &str, dialect: Dialect, recording: &'static str, likes: &[&str]) {
    let options = AcpOptions {
        model: Some("m-1".into()),
        ..AcpOptions::default()
    };
    let harness = AcpHarness {
        options,
        spec: agent(name).unwrap(),
        dialect,
        judge: Arc::new(|call| Some(!call.call.args.to_string().contains("forbidden"))),
        ..AcpHarness::default()
    };
    let folder = harness
        .folder
        .path()
        .canonicalize()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let here = recording.replace("/workspace", &folder);
    let (stop, record) = harness
        .play(move |agent| replay(agent, here.clone(), true))
        .await;
    assert_eq!(stop, Stop::Done, "{:?}", record.messages());
    let asked = record.asked.lock();
    let plain = |text: String| text.replace(&folder, "/w");
    let found: Vec<String> = asked
        .iter()
        .flat_map(|call| &call.like)
        .map(|like| plain(format!("{} {}", like.tool, like.args)))
        .collect();
    assert_eq!(found, likes, "{name}");
    assert_eq!(
        record.messages().last().map(String::as_str),
        Some("text:All done.")
    );
    assert_eq!(
        record.observed.lock().len(),
        0,
        "{name} did something without asking"
    );
    // The meter counted nothing in this test, which causes a warning.
    let warned = record
        .warnings()
        .into_iter()
        .filter(|warned| !warned.starts_with("usage_differs"));
    assert_eq!(warned.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn each_agent_asks_about_everything_with_its_profile() {
    const READ: &str = r#"read_file {"path":"/w/a.txt"}"#;
    const CHANGED: &str = r#"write_file {"path":"/w/a.txt","content":"one\nTWO\nthree\n"}"#;
    const PIECE: &str = r#"edit_file {"path":"/w/a.txt","old":"two","new":"TWO"}"#;
    const MADE: &str = r#"write_file {"path":"/w/new.txt","content":"hello\n"}"#;
    let gemini = include_str!("../fixtures/acp/set-up/gemini-cli.jsonl");
    check_set_up(
        "gemini-cli",
        Dialect::Gemini,
        gemini,
        &[READ, CHANGED, MADE, COUNTED, TOUCH],
    )
    .await;
    let codex = include_str!("../fixtures/acp/set-up/codex-acp.jsonl");
    check_set_up(
        "codex-acp",
        Dialect::OpenAiResponses,
        codex,
        &[CHANGED, MADE, COUNTED, TOUCH],
    )
    .await;
    let qwen = include_str!("../fixtures/acp/set-up/qwen-code.jsonl");
    check_set_up(
        "qwen-code",
        Dialect::OpenAiChat,
        qwen,
        &[READ, CHANGED, MADE, COUNTED, TOUCH],
    )
    .await;
    let claude = include_str!("../fixtures/acp/set-up/claude-agent-acp.jsonl");
    check_set_up(
        "claude-agent-acp",
        Dialect::Anthropic,
        claude,
        &[READ, PIECE, MADE, COUNTED, TOUCH],
    )
    .await;
    let goose = include_str!("../fixtures/acp/set-up/goose.jsonl");
    let relative = |like: &str| like.replace("/w/", "");
    let likes = [
        relative(PIECE),
        relative(MADE),
        COUNTED.to_owned(),
        TOUCH.to_owned(),
    ];
    let likes: Vec<&str> = likes.iter().map(String::as_str).collect();
    check_set_up("goose", Dialect::Anthropic, goose, &likes).await;
}
