//! The course and the end of turns, and the setup of a conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::event::EventKind;
use windlass_core::outcome::{FailReason, RefusalCategory};
use windlass_core::runtime::Stop;
use windlass_core::workspace::ProcessEnd;
use windlass_runtimes::acp::options::{AcpOptions, AcpSetting};
use windlass_runtimes::acp::profile::{AcpProfile, GENERIC};
use windlass_runtimes::agents::{ANY_ACP, AgentSpec, agent};
use windlass_runtimes::mcp_server::McpServer;

use crate::harness::{AcpHarness, ScriptedAgent};

fn stop_text(stop: &Stop) -> String {
    match stop {
        Stop::Failed {
            reason: FailReason::Runtime,
            detail,
        } => format!("broken: {detail}"),
        Stop::Refused {
            category: RefusalCategory::Safety,
            detail,
        } => format!("refused: {detail}"),
        Stop::Provider(err) => format!("provider {}: {}", err.kind.word(), err.message),
        other => format!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_become_messages_and_calls_have_results() {
    let (stop, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            assert!(prompt["params"]["prompt"][0]["text"].as_str().unwrap().ends_with("do it"), "{prompt}");
            let chunk = |of: &str, id: &str, text: &str| {
                let content = json!({ "type": "text", "text": text });
                json!({ "sessionUpdate": of, "messageId": id, "content": content })
            };
            agent.update(chunk("agent_thought_chunk", "m1", "hm")).await;
            agent.update(chunk("agent_message_chunk", "m1", "I ")).await;
            agent.update(chunk("agent_message_chunk", "m1", "look\u{1b}[2J.")).await;
            agent.update(chunk("agent_message_chunk", "m2", "Then")).await;
            let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Read a.txt", "kind": "read",
                "status": "completed", "locations": [{ "path": "a.txt" }], "rawInput": { "path": "a.txt" },
                "content": [{ "type": "content", "content": { "type": "text", "text": "aaa" } }] });
            agent.update(call.clone()).await;
            // The same id again is a new call. A late update of a completed call is ignored.
            agent.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "failed" })).await;
            agent.update(call).await;
            agent.update(json!({ "sessionUpdate": "plan", "entries": [] })).await;
            agent.update(json!({ "sessionUpdate": "brand_new", "x": 1 })).await;
            // This call starts and is never reported as completed.
            agent
                .update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c2", "title": "x", "kind": "execute",
                "status": "in_progress", "rawInput": { "command": "x" }, "rawOutput": "so far" }))
                .await;
            agent.says("Done.").await;
            agent.done(&prompt).await;
            assert!(agent.next().await.is_none());
        })
        .await;
    assert_eq!(stop, Stop::Done);
    let messages = [
        "thought:hm",
        "text:I look[2J.",
        "text:Then",
        r#"call:read {"path":"a.txt"}"#,
        r#"call:read {"path":"a.txt"}"#,
        r#"call:x {"command":"x"}"#,
        "text:Done.",
    ];
    assert_eq!(record.messages(), messages);
    let results = record.results.lock();
    let results: Vec<String> = results
        .iter()
        .map(|result| format!("{}: {}", result.id, result.text))
        .collect();
    let ended = "c2#1: Error [interrupted]: the agent reported no result";
    assert_eq!(results, ["c1: aaa", "c1#1: aaa", ended]);
    assert_eq!(record.observed.lock().len(), 3);
    assert_eq!(
        record.warnings(),
        ["not_understood: 1 messages of toy were not understood and were ignored"]
    );
    assert_eq!(*record.killed.lock(), 1);
}

async fn check_end(result: Value, end: &str) {
    let (stop, _) = AcpHarness::default()
        .play(move |mut agent| {
            let result = result.clone();
            async move {
                let prompt = agent.open().await;
                agent.says("I would rather not.").await;
                match result.get("code") {
                    Some(_) => agent.fail(&prompt, result).await,
                    None => agent.reply(&prompt, result).await,
                }
                agent.next().await;
            }
        })
        .await;
    let stop_text = stop_text(&stop);
    assert!(stop_text.contains(end), "{stop_text}");
}

#[tokio::test(start_paused = true)]
async fn the_stop_reason_determines_the_end_of_a_turn() {
    check_end(json!({ "stopReason": "end_turn" }), "Done").await;
    check_end(
        json!({ "stopReason": "max_tokens" }),
        "broken: toy stopped at a limit of its own",
    )
    .await;
    check_end(
        json!({ "stopReason": "max_turn_requests" }),
        "broken: toy stopped at a limit of its own",
    )
    .await;
    check_end(
        json!({ "stopReason": "refusal" }),
        "refused: I would rather not.",
    )
    .await;
    check_end(json!({ "stopReason": "cancelled" }), "Cancelled").await;
    check_end(
        json!({ "stopReason": "boredom" }),
        "unknown stop reason: \"boredom\"",
    )
    .await;
    check_end(json!(null), "unknown stop reason").await;
    check_end(
        json!({ "code": -32603, "message": "Internal error" }),
        "broken: toy reports: Internal error (-32603)",
    )
    .await;
    check_end(
        json!({ "code": -1, "message": "x", "data": "429 Too Many Requests" }),
        "provider rate_limited",
    )
    .await;
    check_end(
        json!({ "code": -1, "message": "invalid x-api-key" }),
        "provider authentication",
    )
    .await;
    check_end(
        json!({ "code": -1, "message": "x", "data": { "details": "Overloaded" } }),
        "provider unavailable",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_program_is_kept_for_the_next_turn() {
    let (stop, record) = AcpHarness {
        steers: 1,
        ..AcpHarness::default()
    }
    .play(|mut agent| async move {
        let prompt = agent.open().await;
        agent.says("one").await;
        agent.done(&prompt).await;
        let again = agent.expect("session/prompt").await;
        assert_eq!(again["params"]["sessionId"], "s1");
        agent.says("two").await;
        agent.done(&again).await;
    })
    .await;
    assert_eq!(stop, Stop::Done);
    assert_eq!(record.messages(), ["text:one", "text:two"]);
    assert_eq!(record.launched.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reported_usage_is_booked_without_a_meter() {
    let harness = AcpHarness {
        metering_none: true,
        port: None,
        ..AcpHarness::default()
    };
    let (_, record) = harness
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let usage = json!({ "inputTokens": 7, "outputTokens": 5, "cachedReadTokens": 3, "totalTokens": 15 });
            agent.reply(&prompt, json!({ "stopReason": "end_turn", "usage": usage })).await;
        })
        .await;
    let settled = record.settled.lock();
    assert_eq!(
        (settled[0].input, settled[0].cache_read, settled[0].output),
        (7, 3, 5)
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_exits_without_an_answer_fails_with_any_exit_code() {
    for (end, code) in [
        (ProcessEnd::Exited { code: 0 }, "exit code 0"),
        (ProcessEnd::Signalled { signal: 11 }, "signal 11"),
    ] {
        let (stop, record) = AcpHarness {
            end,
            ..AcpHarness::default()
        }
        .play(|mut agent| async move {
            use tokio::io::AsyncWriteExt;
            agent.open().await;
            agent.says("so").await;
            agent
                .stderr
                .write_all(b"\x1b[31mout of luck\n")
                .await
                .unwrap();
        })
        .await;
        let stop_text = stop_text(&stop);
        assert!(
            stop_text.contains(code)
                && stop_text.contains("end of its standard error: [31mout of luck"),
            "{stop_text}"
        );
        assert_eq!(record.messages(), ["text:so"]);
    }
    let (stop, record) = AcpHarness::default()
        .play(|agent| async move { drop(agent) })
        .await;
    assert!(
        stop_text(&stop).contains("exited before it answered `initialize`, with exit code 0"),
        "{stop:?}"
    );
    let began = matches!(record.events.lock()[0], EventKind::IterationStarted { .. });
    assert!(began, "{:?}", record.events);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_answers_times_out() {
    let (stop, _) = AcpHarness::default()
        .play(|agent| async move {
            std::future::pending::<()>().await;
            drop(agent);
        })
        .await;
    assert!(
        stop_text(&stop).contains("did not answer `initialize` in time"),
        "{stop:?}"
    );
}

/// Plays an agent with these capabilities and this session, and records the requests before the prompt.
async fn begin(
    harness: AcpHarness,
    can: Value,
    session: Value,
) -> (String, Vec<String>, Vec<String>) {
    let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let received = Arc::clone(&asked);
    let (stop, record) = harness
        .play(move |agent| follow(agent, can.clone(), session.clone(), Arc::clone(&received)))
        .await;
    let asked = asked.lock().clone();
    (stop_text(&stop), asked, record.warnings())
}

async fn follow(
    mut agent: ScriptedAgent,
    can: Value,
    session: Value,
    received: Arc<parking_lot::Mutex<Vec<String>>>,
) {
    while let Some(message) = agent.next().await {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let params = &message["params"];
        let result = match method.as_str() {
            "initialize" => can.clone(),
            "session/new" | "session/load" | "session/resume" => {
                received.lock().push(format!(
                    "{method} {} {}",
                    params["sessionId"], params["mcpServers"]
                ));
                if params["sessionId"] == "gone" {
                    agent
                        .fail(
                            &message,
                            json!({ "code": -32002, "message": "no such session" }),
                        )
                        .await;
                    continue;
                }
                // A message about an earlier turn.
                agent.says("before").await;
                session.clone()
            }
            // One conversation in the requested directory, and one in another directory.
            "session/list" => {
                received.lock().push(method);
                json!({ "sessions": [{ "sessionId": "here", "cwd": params["cwd"] }, { "sessionId": "there", "cwd": "/gone" }] })
            }
            "session/prompt" => {
                received
                    .lock()
                    .push(format!("prompt {}", params["sessionId"]));
                json!({ "stopReason": "end_turn" })
            }
            _ => {
                received.lock().push(format!("{method} {params}"));
                json!({})
            }
        };
        agent.reply(&message, result).await;
    }
}

fn with(options: AcpOptions) -> AcpHarness {
    let options = AcpOptions {
        name: Some("toy".into()),
        command: Some("toy".into()),
        ..options
    };
    AcpHarness {
        options,
        ..AcpHarness::default()
    }
}

fn hello() -> Value {
    json!({ "protocolVersion": 1, "agentCapabilities": {}, "authMethods": [{ "id": "key", "name": "Key" }] })
}

fn session() -> Value {
    json!({ "sessionId": "s1",
        "modes": { "currentModeId": "auto", "availableModes": [{ "id": "auto", "name": "Auto" }, { "id": "ask", "name": "Ask First" }] },
        "models": { "currentModelId": "a", "availableModels": [{ "modelId": "a", "name": "A" }, { "modelId": "b", "name": "B" }] },
        "configOptions": [
            { "id": "thought", "name": "Thinking", "category": "thought_level", "type": "select", "currentValue": "low",
              "options": [{ "value": "low", "name": "Low" }, { "value": "high", "name": "High" }] },
            { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
            { "id": "odd", "name": "Odd", "type": "slider", "currentValue": 3 },
        ] })
}

#[tokio::test(start_paused = true)]
async fn modes_models_and_settings_are_set_before_the_first_turn() {
    let config_options = BTreeMap::from([
        ("thought".to_owned(), AcpSetting::Choice("High".into())),
        ("fast".to_owned(), AcpSetting::Switch(true)),
    ]);
    let options = AcpOptions {
        mode: Some("ask first".into()),
        model: Some("b".into()),
        config_options,
        auth_method: Some("key".into()),
        ..AcpOptions::default()
    };
    let (stop, asked, _) = begin(with(options), hello(), session()).await;
    assert_eq!(stop, "Done");
    let expected = [
        r#"authenticate {"methodId":"key"}"#,
        "session/new null []",
        r#"session/set_config_option {"sessionId":"s1","configId":"fast","type":"boolean","value":true}"#,
        r#"session/set_config_option {"sessionId":"s1","configId":"thought","value":"high"}"#,
        r#"session/set_model {"sessionId":"s1","modelId":"b"}"#,
        r#"session/set_mode {"sessionId":"s1","modeId":"ask"}"#,
        r#"prompt "s1""#,
    ];
    assert_eq!(asked, expected);
}

async fn check_refused(options: AcpOptions, can: Value, session: Value, why: &str) {
    let (stop, asked, _) = begin(with(options), can, session).await;
    assert!(stop.contains(why), "{stop}");
    assert!(
        !asked.iter().any(|asked| asked.starts_with("prompt")),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_choice_of_models_works_with_a_warning() {
    let model = AcpOptions {
        model: Some("c".into()),
        ..AcpOptions::default()
    };
    let (stop, asked, warned) = begin(with(model), hello(), json!({ "sessionId": "s1" })).await;
    assert_eq!(
        (stop.as_str(), asked.last().map(String::as_str)),
        ("Done", Some(r#"prompt "s1""#))
    );
    let warning =
        "model_not_chosen: the model of toy cannot be selected; it may use another one than `c`";
    assert!(
        warned.iter().any(|messages| messages == warning),
        "{warned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_option_is_an_error_before_the_first_prompt() {
    let own = AcpOptions::default;
    let setting = |id: &str, value| AcpOptions {
        config_options: BTreeMap::from([(id.to_owned(), value)]),
        ..own()
    };
    let mode = AcpOptions {
        mode: Some("yolo".into()),
        ..own()
    };
    check_refused(
        mode.clone(),
        hello(),
        session(),
        "toy has no mode `yolo`; available: `auto`, `ask`",
    )
    .await;
    check_refused(
        mode,
        hello(),
        json!({ "sessionId": "s1" }),
        "toy has no modes, so that mode `yolo` is not available",
    )
    .await;
    let model = AcpOptions {
        model: Some("c".into()),
        ..own()
    };
    check_refused(
        model,
        hello(),
        session(),
        "toy has no model `c`; available: `a`, `b`",
    )
    .await;
    let choice = |text: &str| AcpSetting::Choice(text.into());
    check_refused(
        setting("thought", choice("max")),
        hello(),
        session(),
        "no thought `max`; available: `low`, `high`",
    )
    .await;
    check_refused(
        setting("thought", AcpSetting::Switch(true)),
        hello(),
        session(),
        "needs the name of a value",
    )
    .await;
    check_refused(
        setting("fast", choice("yes")),
        hello(),
        session(),
        "must be true or false",
    )
    .await;
    check_refused(
        setting("none", choice("x")),
        hello(),
        session(),
        "no setting `none`; available: `thought`, `fast`",
    )
    .await;
    let auth = AcpOptions {
        auth_method: Some("sso".into()),
        ..own()
    };
    check_refused(
        auth,
        hello(),
        session(),
        "no login method `sso`; available: `key`",
    )
    .await;
    let remote = McpServer {
        url: Some("http://127.0.0.1:1".into()),
        ..McpServer::default()
    };
    let servers = BTreeMap::from([("docs".into(), remote)]);
    check_refused(
        AcpOptions {
            mcp_servers: servers,
            ..own()
        },
        hello(),
        session(),
        "`docs` cannot be used",
    )
    .await;
    let newer = json!({ "protocolVersion": 2 });
    check_refused(
        own(),
        newer,
        session(),
        "speaks version 2 of the protocol; Windlass supports version 1",
    )
    .await;
    check_refused(
        own(),
        json!("what?"),
        session(),
        "the answer of toy to `initialize` is invalid",
    )
    .await;
    check_refused(
        own(),
        hello(),
        json!({}),
        "answered `session/new` without an id",
    )
    .await;
    let needs = AcpOptions {
        args: Some(vec!["--model={model}".into()]),
        ..own()
    };
    check_refused(needs, hello(), session(), "needs a model").await;
}

#[tokio::test(start_paused = true)]
async fn mcp_servers_are_passed_on() {
    let server = McpServer {
        command: Some("/bin/docs".into()),
        args: vec!["-v".into()],
        env: BTreeMap::from([("A".into(), "1".into())]),
        ..McpServer::default()
    };
    let options = AcpOptions {
        mcp_servers: BTreeMap::from([("docs".into(), server)]),
        ..AcpOptions::default()
    };
    let (stop, asked, _) = begin(with(options), hello(), session()).await;
    assert_eq!(stop, "Done");
    let passed =
        r#"[{"name":"docs","command":"/bin/docs","args":["-v"],"env":[{"name":"A","value":"1"}]}]"#;
    assert_eq!(asked[0], format!("session/new null {passed}"));
}

async fn check_resume(id: &str, can: Value, asked: &[&str], warned: &str) {
    let harness = AcpHarness {
        resume: Some(format!("toy:{id}")),
        ..AcpHarness::default()
    };
    let (stop, received, warnings) = begin(
        harness,
        json!({ "protocolVersion": 1, "agentCapabilities": can }),
        session(),
    )
    .await;
    assert_eq!(stop, "Done");
    assert_eq!(received, asked);
    assert!(warnings.concat().contains(warned), "{warnings:?}");
    assert_eq!(warnings.is_empty(), warned.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_conversation_is_resumed_if_possible() {
    let both = json!({ "loadSession": true, "sessionCapabilities": { "resume": {} } });
    check_resume(
        "old",
        both,
        &[r#"session/resume "old" null"#, r#"prompt "old""#],
        "",
    )
    .await;
    let load = json!({ "loadSession": true });
    check_resume(
        "old",
        load.clone(),
        &[r#"session/load "old" []"#, r#"prompt "old""#],
        "",
    )
    .await;
    check_resume(
        "old",
        json!({}),
        &["session/new null []", r#"prompt "s1""#],
        "it cannot resume",
    )
    .await;
    let replaced = [
        r#"session/load "gone" []"#,
        "session/new null []",
        r#"prompt "s1""#,
    ];
    check_resume(
        "gone",
        load,
        &replaced,
        "the agent reports: no such session",
    )
    .await;
    let other = AcpHarness {
        resume: Some("other:old".into()),
        ..AcpHarness::default()
    };
    let (_, received, _) = begin(other, hello(), session()).await;
    assert_eq!(received[0], "session/new null []");
}

/// Checks an agent whose conversations stay in their directory, by its profile and by the settings.
async fn check_resume_in_directory(id: &str, asked: &[&str], warned: &str) {
    static KEEPS: AgentSpec = AgentSpec {
        acp: AcpProfile {
            keeps_directory: true,
            ..GENERIC
        },
        ..ANY_ACP
    };
    let by_row = AcpHarness {
        spec: &KEEPS,
        ..AcpHarness::default()
    };
    let by_settings = with(AcpOptions {
        keeps_directory: Some(true),
        ..AcpOptions::default()
    });
    for harness in [by_row, by_settings] {
        check_resume_of(harness, id, asked, warned).await;
    }
}

async fn check_resume_of(harness: AcpHarness, id: &str, asked: &[&str], warned: &str) {
    let harness = AcpHarness {
        resume: Some(format!("toy:{id}")),
        ..harness
    };
    let can = json!({ "sessionCapabilities": { "list": {}, "resume": {} } });
    let (stop, received, warnings) = begin(
        harness,
        json!({ "protocolVersion": 1, "agentCapabilities": can }),
        session(),
    )
    .await;
    assert_eq!(stop, "Done");
    assert_eq!(received, asked);
    assert!(warnings.concat().contains(warned), "{warnings:?}");
    assert_eq!(warnings.is_empty(), warned.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_conversation_of_another_directory_is_not_resumed() {
    check_resume_in_directory(
        "here",
        &[
            "session/list",
            r#"session/resume "here" null"#,
            r#"prompt "here""#,
        ],
        "",
    )
    .await;
    let new_session = ["session/list", "session/new null []", r#"prompt "s1""#];
    check_resume_in_directory("there", &new_session, "belongs to another directory").await;
    check_resume_in_directory("unknown", &new_session, "belongs to another directory").await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_uses_the_meter() {
    let options = AcpOptions {
        env: BTreeMap::from([
            ("HERE".into(), "{workspace}".into()),
            ("OPENAI_API_KEY".into(), "own".into()),
        ]),
        home_files: BTreeMap::from([(".toy/config".into(), "url={url} key={key}".into())]),
        ..AcpOptions::default()
    };
    let harness = with(options.clone());
    let root = harness.folder.path().to_string_lossy().into_owned();
    let (_, record) = harness
        .play(|mut agent| async move { drop(agent.open().await) })
        .await;
    let launched = record.launched.lock().clone();
    let value = |name: &str| {
        launched[0]
            .env
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    };
    assert_eq!(
        value("ANTHROPIC_BASE_URL").as_deref(),
        Some("http://127.0.0.1:9")
    );
    assert_eq!(
        value("OPENAI_BASE_URL").as_deref(),
        Some("http://127.0.0.1:9/v1")
    );
    assert_eq!(value("GEMINI_API_KEY").as_deref(), Some("placeholder"));
    assert_eq!(value("OPENAI_API_KEY").as_deref(), Some("own"));
    assert_eq!(value("HERE"), Some(root));
    assert_eq!(
        record.put.lock()[".toy/config"],
        "url=http://127.0.0.1:9 key=placeholder"
    );

    // With the agent's own login, these variables and files are not set.
    let harness = AcpHarness {
        metering_none: true,
        port: None,
        ..with(options)
    };
    let (_, record) = harness
        .play(|mut agent| async move { drop(agent.open().await) })
        .await;
    let launched = record.launched.lock();
    let names: Vec<&str> = launched[0]
        .env
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["HERE", "OPENAI_API_KEY"]);
    assert!(record.put.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn opencode_has_one_provider_and_asks_about_everything() {
    let options = AcpOptions {
        model: Some("m-1".into()),
        ..AcpOptions::default()
    };
    let harness = AcpHarness {
        options,
        spec: agent("opencode").unwrap(),
        ..AcpHarness::default()
    };
    let (_, record) = harness
        .play(|mut agent| async move { drop(agent.open().await) })
        .await;
    let launched = record.launched.lock();
    assert_eq!(launched[0].argv, ["opencode", "acp"]);
    let config = launched[0]
        .env
        .iter()
        .find(|(name, _)| name == "OPENCODE_CONFIG_CONTENT")
        .unwrap();
    let config: Value = serde_json::from_str(&config.1).unwrap();
    assert_eq!(config["model"], "windlass/m-1");
    assert_eq!(config["permission"]["*"], "ask");
    assert_eq!(
        config["provider"]["windlass"]["npm"],
        "@ai-sdk/openai-compatible"
    );
    assert_eq!(
        config["provider"]["windlass"]["options"]["baseURL"],
        "http://127.0.0.1:9/v1"
    );
}
