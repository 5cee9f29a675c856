//! Claude Code: recordings of real sessions, and invalid behaviour.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::runtime::Stop;
use windlass_runtimes::agent::{Metering, WantedOutput};
use windlass_runtimes::claude_code::{ClaudeCode, ClaudeOptions};

use crate::harness::{AgentHarness, NoRequests};
use crate::script::{PeerStep, recording};

const APPROVALS: &str = include_str!("../fixtures/claude-approvals.jsonl");
const INTERRUPT: &str = include_str!("../fixtures/claude-interrupt.jsonl");
const API_500: &str = include_str!("../fixtures/claude-api-500.jsonl");
const MAX_TURNS: &str = include_str!("../fixtures/claude-max-turns.jsonl");
const JSON_SCHEMA: &str = include_str!("../fixtures/claude-json-schema.jsonl");
const DENIED: &str = include_str!("../fixtures/claude-denied.jsonl");
const PARTIAL: &str = include_str!("../fixtures/claude-partial.jsonl");

/// The beginning of every conversation.
const HELLO: &str = r#"{"dir":">","msg":{"type":"control_request","request_id":"windlass-1"}}
{"dir":"<","msg":{"type":"control_response","response":{"subtype":"success","request_id":"windlass-1","response":{}}}}
{"dir":">","msg":{"type":"user"}}
{"dir":"<","msg":{"type":"system","subtype":"init","session_id":"s1","model":"m"}}
"#;
const DONE: &str = r#"{"dir":"<","msg":{"type":"result","subtype":"success","is_error":false,"result":"Done.","usage":{"input_tokens":5,"output_tokens":2}}}"#;

async fn run(harness: &AgentHarness) -> Stop {
    let adapter = ClaudeCode::new(ClaudeOptions {
        model: Some("m".into()),
        ..ClaudeOptions::default()
    })
    .unwrap();
    let stop = harness.run(adapter, "SHELL:echo hi > out.txt").await;
    let received = harness.received();
    assert_eq!(received.faults, Vec::<String>::new());
    // Each request gets exactly one response.
    let mut answered: Vec<&str> = received
        .lines
        .iter()
        .filter_map(|line| line["response"]["request_id"].as_str())
        .collect();
    let all = answered.len();
    answered.sort_unstable();
    answered.dedup();
    assert_eq!(answered.len(), all, "{:?}", received.lines);
    stop
}

/// Plays a recording and compares the logged lines, without deltas.
#[track_caller]
fn check(text: &str, exit: i32, change: impl FnOnce(&mut AgentHarness), expect: (&str, &[&str])) {
    let mut harness = AgentHarness::scripted(vec![(recording(text), exit)]);
    change(&mut harness);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(run(&harness));
    assert_eq!(format!("{stop:?}"), expect.0);
    let lines: Vec<String> = harness
        .lines()
        .into_iter()
        .filter(|line| !line.starts_with("delta "))
        .collect();
    assert_eq!(lines, expect.1, "{lines:#?}");
}

#[test]
fn calls_are_judged_once_and_windlass_tools_answer_in_the_pipe() {
    let began = "began claude-code:3e581522-b2f8-4804-8e8e-b2bb2ffc70c8";
    check(
        APPROVALS,
        0,
        |_| {},
        (
            "Done",
            &[
                began,
                r#"said <toolu_fake0002 Bash {"command":"echo hi > out.txt && cat out.txt","description":"run it"}>"#,
                r#"judged toolu_fake0002 as Execute bash {"command":"echo hi > out.txt && cat out.txt"}"#,
                "reported toolu_fake0002 Bash: hi",
                r#"said <toolu_fake0004 Bash {"command":"echo forbidden > /workspace/f.txt","description":"run it"}>"#,
                r#"judged toolu_fake0004 as Execute bash {"command":"echo forbidden > /workspace/f.txt"}"#,
                r#"said <toolu_fake0006 lookup {"key":"k1"}>"#,
                r#"ran toolu_fake0006 lookup {"key":"k1"}"#,
                "said Done. The fake model says hello.",
                "spent 4800+4000+0 in, 120 out by claude-sonnet-4-5",
            ],
        ),
    );
}

#[test]
fn a_call_without_a_question_is_logged() {
    check(
        PARTIAL,
        0,
        |_| {},
        (
            "Done",
            &[
                "began claude-code:3165c509-f66f-41c8-bf1a-39be6d81d000",
                r#"said <toolu_fake0055 Bash {"command":"echo hi > out.txt && cat out.txt","description":"run it"}>"#,
                "observed toolu_fake0055 Bash",
                "reported toolu_fake0055 Bash: hi",
                "said Done. The fake model says hello.",
                "spent 2400+2000+0 in, 60 out by claude-sonnet-4-5",
            ],
        ),
    );
    // A call that the program itself refused did not run.
    check(
        DENIED,
        0,
        |_| {},
        (
            "Done",
            &[
                "began claude-code:479ec4b6-5cbf-415e-ac06-812cba84b3ad",
                r#"said <toolu_fake0017 Bash {"command":"touch denied.txt","description":"run it"}>"#,
                "reported toolu_fake0017 Bash: Error [exception]: touch in '/workspace/denied.txt' needs approval. The path is \
             inside the working directories for this session ('/workspace'), and Claude Code asks before a shell \
             command creates, changes or removes files there.",
                "said Done. The fake model says hello.",
                "spent 2400+2000+0 in, 60 out by claude-sonnet-4-5",
            ],
        ),
    );
}

#[test]
fn a_cancel_interrupts_the_program() {
    check(
        INTERRUPT,
        1,
        |harness| harness.cancel_at = Some("eight"),
        (
            "Cancelled",
            &[
                "began claude-code:3e581522-b2f8-4804-8e8e-b2bb2ffc70c8",
                "said one two three four five six seven eight ",
            ],
        ),
    );
}

#[test]
fn model_errors_and_own_limits_are_distinguished() {
    let provider = "Provider(ProviderError { kind: Unavailable { retry_after: None }, message: \"API Error: 500 fake 500. \
        This is a server-side issue, usually temporary — try again in a moment. If it persists, check your inference \
        gateway (127.0.0.1:8791).\", status: Some(500) })";
    check(
        API_500,
        1,
        |_| {},
        (
            provider,
            &["began claude-code:46c5e883-1a17-4d1c-a830-bf1f9db88f0e"],
        ),
    );
    let limit = "Failed { reason: Runtime, detail: \"claude-code stopped at a limit of its own: Reached maximum number of \
        turns (1)\" }";
    check(
        MAX_TURNS,
        1,
        |_| {},
        (
            limit,
            &[
                "began claude-code:e7ba380f-5c7a-462f-8e03-cb61d34ef3d5",
                r#"said <toolu_fake0013 Bash {"command":"echo one","description":"run it"}>"#,
                "observed toolu_fake0013 Bash",
                "reported toolu_fake0013 Bash: one",
                "spent 1200+1000+0 in, 30 out by claude-sonnet-4-5",
            ],
        ),
    );
}

fn wants_answer(harness: &mut AgentHarness) {
    let check = |value: &Value| {
        if value["answer"].is_i64() {
            Ok(())
        } else {
            Err("no answer in it".to_owned())
        }
    };
    harness.output = Some(WantedOutput {
        schema: json!({"type": "object"}),
        check: Arc::new(check),
    });
}

#[test]
fn a_structured_answer_is_taken_from_its_field() {
    check(
        JSON_SCHEMA,
        0,
        wants_answer,
        (
            "Answered { output: Object {\"answer\": Number(42)} }",
            &[
                "began claude-code:532f8606-2376-449c-bf76-24d1774269bd",
                r#"said <toolu_fake0011 StructuredOutput {"answer":42}>"#,
                "observed toolu_fake0011 StructuredOutput",
                "reported toolu_fake0011 StructuredOutput: Structured output provided successfully",
                "spent 1200+1000+0 in, 30 out by claude-sonnet-4-5",
            ],
        ),
    );
}

#[test]
fn silence_and_a_crash_are_failures() {
    let broken = |detail: &str| {
        format!(
            "Failed {{ reason: Runtime, detail: \"Claude Code exited without an answer, {detail}\" }}"
        )
    };
    check("", 0, |_| {}, (&broken("with exit code 0"), &[]));
    let crash = format!("{HELLO}{}", r#"{"dir":"2","msg":"panic: out of luck\n"}"#);
    let detail = broken("with exit code 139; end of its standard error: panic: out of luck");
    check(&crash, 139, |_| {}, (&detail, &["began claude-code:s1"]));
    let refused = r#"{"dir":">","msg":{"type":"control_request","request_id":"windlass-1"}}
{"dir":"<","msg":{"type":"control_response","response":{"subtype":"error","request_id":"windlass-1","error":"what?"}}}"#;
    let why = "Failed { reason: Runtime, detail: \"Claude Code did not accept the Windlass hook, without which its calls \
        cannot be judged: what?\" }";
    check(refused, 0, |_| {}, (why, &[]));
}

#[test]
fn other_lines_are_counted_and_unknown_requests_are_answered() {
    let other_lines = r#"Loading…
{"dir":"<","msg":{"type":"brand_new"}}
{"dir":"<","msg":[1,2]}
{"dir":"<","msg":{"type":"control_request","request_id":"q1","request":{"subtype":"launch_rocket"}}}
{"dir":">","msg":{"type":"control_response","response":{"subtype":"error","request_id":"q1","error":"…launch_rocket…"}}}
{"dir":"<","msg":{"type":"control_request","request_id":"q2","request":{"subtype":"elicitation","message":"?"}}}
{"dir":">","msg":{"type":"control_response","response":{"subtype":"success","request_id":"q2","response":{"action":"decline"}}}}
{"dir":"<","msg":{"type":"control_request","request_id":"q3","request":{"subtype":"mcp_message","server_name":"windlass","message":{"jsonrpc":"2.0","id":7,"method":"prompts/list"}}}}
{"dir":">","msg":{"type":"control_response","response":{"subtype":"success","request_id":"q3","response":{"mcp_response":{"id":7,"error":{"code":-32601}}}}}}
{"dir":"<","msg":{"type":"control_request","request_id":"q4","request":{"subtype":"mcp_message","server_name":"windlass","message":{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"bash","arguments":{"command":"id"}}}}}}
{"dir":">","msg":{"type":"control_response","response":{"subtype":"success","request_id":"q4","response":{"mcp_response":{"id":8,"error":{"code":-32602}}}}}}
{"dir":"<","msg":{"type":"control_request","request_id":"q5","request":{"subtype":"mcp_message","server_name":"other","message":{"jsonrpc":"2.0","id":9,"method":"ping"}}}}
{"dir":">","msg":{"type":"control_response","response":{"subtype":"error","request_id":"q5"}}}
"#;
    let warned = "warned unread_lines: 1 lines of Claude Code could not be parsed and 3 were of an unknown kind; they were \
        ignored";
    let expect = ["began claude-code:s1", warned, "spent 5+0+0 in, 2 out by m"];
    check(
        &format!("{HELLO}{other_lines}{DONE}"),
        0,
        |_| {},
        ("Done", &expect),
    );
}

/// A question about a call through the hook.
fn hook(request: &str, call: &str, command: &str) -> String {
    let input =
        json!({"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call});
    let request = json!({"type": "control_request", "request_id": request, "request":
        {"subtype": "hook_callback", "callback_id": "windlass", "input": input, "tool_use_id": call}});
    format!("{}\n", json!({"dir": "<", "msg": request}))
}

fn decided(request: &str, decision: &str) -> String {
    let response = json!({"hookSpecificOutput": {"permissionDecision": decision}});
    let response = json!({"subtype": "success", "request_id": request, "response": response});
    format!(
        "{}\n",
        json!({"dir": ">", "msg": {"type": "control_response", "response": response}})
    )
}

#[test]
fn a_verdict_is_for_one_call_only() {
    let text = [
        HELLO,
        &hook("q1", "c1", "make"),
        &decided("q1", "allow"),
        // The same call again, and another command with the same id.
        &hook("q2", "c1", "make"),
        &decided("q2", "allow"),
        &hook("q3", "c1", "rm x"),
        &decided("q3", "deny"),
        DONE,
    ];
    let expect = [
        "began claude-code:s1",
        r#"said <c1 Bash {"command":"make"}>"#,
        r#"judged c1 as Execute bash {"command":"make"}"#,
        "spent 5+0+0 in, 2 out by m",
        "reported c1 Bash: Error [interrupted]: the agent ended before it reported a result",
    ];
    check(&text.concat(), 0, |_| {}, ("Done", &expect));
}

#[test]
fn a_cancel_answers_all_open_requests() {
    let call = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params":
        {"name": "lookup", "arguments": {"key": "never"}, "_meta": {"claudecode/toolUseId": "c2"}}});
    let request = json!({"dir": "<", "msg": {"type": "control_request", "request_id": "q2", "request":
        {"subtype": "mcp_message", "server_name": "windlass", "message": call}}});
    let text = [
        HELLO,
        &hook("q1", "c1", "never"),
        &format!("{request}\n"),
        // The order may vary. Each test checks that each response is sent once.
        "{\"dir\":\">\",\"msg\":{\"type\":\"control_response\"}}\n",
        "{\"dir\":\">\",\"msg\":{\"type\":\"control_response\"}}\n",
        "{\"dir\":\">\",\"msg\":{\"type\":\"control_request\",\"request\":{\"subtype\":\"interrupt\"}}}\n",
        // Later requests are refused at once.
        &hook("q3", "c3", "make"),
        &decided("q3", "deny"),
        &DONE.replace("success", "error_during_execution"),
    ];
    let mut harness = AgentHarness::scripted(vec![(recording(&text.concat()), 1)]);
    harness.cancel_at = Some("ran c2");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(run(&harness));
    assert_eq!(stop, Stop::Cancelled);
    let lines = harness.lines();
    for id in ["c1", "c2"] {
        let results = lines
            .iter()
            .filter(|line| line.starts_with(&format!("reported {id} ")))
            .count();
        assert_eq!(results, 1, "{lines:#?}");
    }
}

#[test]
fn a_program_that_ignores_a_cancel_is_killed_after_its_grace_period() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let text = format!("{HELLO}{}", r#"{"dir":"hang"}"#);
    let mut harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
    harness.cancel_at = Some("began");
    let clock = harness.clock.clone();
    let stop = runtime.block_on(async {
        let mut run = std::pin::pin!(run(&harness));
        loop {
            tokio::select! {
                biased;
                stop = &mut run => break stop,
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(1)),
            }
        }
    });
    assert_eq!(stop, Stop::Cancelled);
    assert!(windlass_core::clock::Clock::monotonic(&clock) <= Duration::from_millis(700));
}

#[test]
fn a_lost_conversation_is_replaced_by_a_new_one_with_a_warning() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let lost = "{\"dir\":\">\",\"msg\":{}}\n{\"dir\":\"2\",\"msg\":\"No conversation found with session ID: s0\\n\"}";
    let retold_prompt = HELLO.replace(
        r#"{"type":"user"}"#,
        r#"{"type":"user","message":{"content":"…work without a user present…The task:…SHELL:echo…"}}"#,
    );
    let mut harness = AgentHarness::scripted(vec![
        (recording(lost), 1),
        (recording(&format!("{retold_prompt}{DONE}")), 0),
    ]);
    harness.session = Some("claude-code:s0".into());
    assert_eq!(runtime.block_on(run(&harness)), Stop::Done);
    let lines = harness.lines();
    assert!(
        lines[0].starts_with("warned session_lost") && lines[1] == "began claude-code:s1",
        "{lines:#?}"
    );
    let resumed: Vec<Option<String>> = harness
        .launches
        .lock()
        .iter()
        .map(|launch| after(&launch.argv, "--resume"))
        .collect();
    assert_eq!(resumed, [Some("s0".to_owned()), None]);
}

/// The word after an option.
fn after(argv: &[String], option: &str) -> Option<String> {
    argv.iter()
        .skip_while(|word| *word != option)
        .nth(1)
        .cloned()
}

#[test]
fn an_answer_is_repaired_in_the_same_conversation() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let bad = DONE.replace("Done.", "no json");
    let good = DONE.replace("Done.", "{\\\"answer\\\":1}");
    let again = r#"{"dir":">","msg":{"type":"user"}}"#;
    let same = vec![(recording(&format!("{HELLO}{bad}\n{again}\n{good}")), 0)];
    // A process that exited after its answer is spawned again.
    let ended = vec![
        (recording(&format!("{HELLO}{bad}")), 0),
        (recording(&format!("{HELLO}{good}")), 0),
    ];
    for plays in [same, ended] {
        let starts = plays.len();
        let mut harness = AgentHarness::scripted(plays);
        wants_answer(&mut harness);
        assert_eq!(
            runtime.block_on(run(&harness)),
            Stop::Answered {
                output: json!({"answer": 1})
            }
        );
        let launches = harness.launches.lock();
        assert_eq!(launches.len(), starts);
        if let Some(second) = launches.get(1) {
            assert_eq!(after(&second.argv, "--resume").as_deref(), Some("s1"));
        }
    }
}

#[test]
fn options_become_arguments_and_variables() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut harness = AgentHarness::scripted(vec![(recording(&format!("{HELLO}{DONE}")), 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let options = json!({
        "program": "/opt/claude", "model": "opus", "fallback_models": ["a", "b"], "effort": "high",
        "thinking_tokens": 0, "allowed_tools": ["Bash", "Read"], "disallowed_tools": ["WebFetch"],
        "setting_sources": ["project"], "mcp_servers": {"db": {"command": "db-mcp", "env": {"KEY": "k"}}},
        "append_system_prompt": "Be brief.", "max_turns": 9, "args": ["--add-dir", "/lib"], "env": {"FOO": "1"}
    });
    let adapter = ClaudeCode::new(serde_json::from_value(options).unwrap()).unwrap();
    assert_eq!(runtime.block_on(harness.run(adapter, "x")), Stop::Done);
    let launches = harness.launches.lock();
    let (argv, env) = (&launches[0].argv, &launches[0].env);
    assert_eq!(argv[0], "/opt/claude");
    for (option, word) in [
        ("--model", "opus"),
        ("--fallback-model", "a,b"),
        ("--effort", "high"),
        ("--tools", "Bash,Read"),
        ("--setting-sources", "project"),
        ("--settings", "{\"disableAllHooks\":true}"),
        ("--mcp-config", "/home/agent/.windlass/mcp.json"),
        ("--append-system-prompt", "Be brief."),
        ("--max-turns", "9"),
    ] {
        assert_eq!(after(argv, option).as_deref(), Some(word), "{argv:?}");
    }
    assert!(after(argv, "--disallowedTools").is_some_and(|tools| tools.ends_with(",WebFetch")));
    let set = |name: &str| {
        env.iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(set("ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:8080"));
    assert_eq!(set("ANTHROPIC_API_KEY"), Some("placeholder"));
    assert_eq!(set("CLAUDE_CONFIG_DIR"), Some("/home/agent/.claude"));
    assert_eq!(set("MAX_THINKING_TOKENS"), Some("0"));
    assert_eq!(set("FOO"), Some("1"));
    let put = harness.put.lock();
    let servers: Value = serde_json::from_slice(&put[0].1).unwrap();
    assert_eq!(servers["mcpServers"]["db"]["command"], "db-mcp");
    assert_eq!(servers["mcpServers"]["windlass"]["type"], "sdk");
}

#[test]
fn calls_of_subagents_are_judged_and_their_text_is_progress() {
    let text = [
        HELLO,
        r#"{"dir":"<","msg":{"type":"assistant","parent_tool_use_id":null,"message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Task","input":{"prompt":"p"}}]}}}
{"dir":"<","msg":{"type":"assistant","parent_tool_use_id":"t1","message":{"id":"m2","content":[{"type":"text","text":"I look."}]}}}
"#,
        &hook("q1", "c1", "ls"),
        &decided("q1", "allow"),
        r#"{"dir":"<","msg":{"type":"user","parent_tool_use_id":"t1","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":"a.txt"}]}}}
{"dir":"<","msg":{"type":"user","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"found"}]}]}}}
"#,
        DONE,
    ];
    check(
        &text.concat(),
        0,
        |_| {},
        (
            "Done",
            &[
                "began claude-code:s1",
                r#"said <t1 Task {"prompt":"p"}>"#,
                "progress t1 I look.",
                r#"said <c1 Bash {"command":"ls"}>"#,
                r#"judged c1 as Execute bash {"command":"ls"}"#,
                "reported c1 Bash: a.txt",
                "observed t1 Task",
                "reported t1 Task: found",
                "spent 5+0+0 in, 2 out by m",
            ],
        ),
    );
}

#[test]
fn a_flood_of_other_lines_is_ignored() {
    let mut steps = recording(HELLO);
    steps.extend((0..20_000).map(|n| PeerStep::Write(format!("noise {n}"))));
    steps.extend(recording(DONE));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let harness = AgentHarness::scripted(vec![(steps, 0)]);
    assert_eq!(runtime.block_on(run(&harness)), Stop::Done);
    assert!(
        harness
            .lines()
            .iter()
            .any(|line| line.contains("20000 lines of Claude Code"))
    );
}

#[test]
fn the_output_of_a_program_that_does_not_read_is_still_read() {
    // The program writes everything before it reads the prompt, which is larger than a pipe.
    let says = HELLO
        .lines()
        .filter(|line| line.contains("\"<\""))
        .collect::<Vec<_>>()
        .join("\n");
    let harness = AgentHarness::scripted(vec![(recording(&format!("{says}\n{DONE}")), 0)]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let adapter = ClaudeCode::new(ClaudeOptions::default()).unwrap();
    assert_eq!(
        runtime.block_on(harness.run(adapter, &"x".repeat(100_000))),
        Stop::Done
    );
    assert_eq!(harness.received().lines.len(), 2);
}

#[test]
fn an_agent_with_its_own_login_gets_no_key() {
    let harness = AgentHarness::scripted(vec![(recording(&format!("{HELLO}{DONE}")), 0)]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(run(&harness)), Stop::Done);
    let launches = harness.launches.lock();
    let names: Vec<&str> = launches[0]
        .env
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(
        !names.iter().any(|name| name.starts_with("ANTHROPIC_")),
        "{names:?}"
    );
}

#[test]
fn a_model_that_refuses_is_no_provider_error() {
    let text = r#"{"dir":"<","msg":{"type":"assistant","message":{"id":"x","model":"<synthetic>","content":[{"type":"text","text":"API Error: it cannot help with this."}]}}}
{"dir":"<","msg":{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","stop_reason":"refusal","result":"it cannot help with this"}}
"#;
    let refused = "Refused { category: Safety, detail: \"it cannot help with this\" }";
    check(
        &format!("{HELLO}{text}"),
        1,
        |_| {},
        (refused, &["began claude-code:s1"]),
    );
}
