//! Codex: recordings of real sessions, and invalid behaviour.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::runtime::Stop;
use windlass_runtimes::agent::{Metering, WantedOutput};
use windlass_runtimes::codex::{Codex, CodexOptions};

use crate::harness::{AgentHarness, NoRequests};
use crate::script::recording;

const APPROVALS: &str = include_str!("../fixtures/codex-approvals.jsonl");
const INTERRUPT: &str = include_str!("../fixtures/codex-interrupt.jsonl");
const BEGAN: &str = "began codex:01a1dccb-53ba-7570-be40-82efc663d892";

/// The beginning of every conversation.
const HELLO: &str = r#"{"dir":">","msg":{"id":1,"method":"initialize"}}
{"dir":"<","msg":{"id":1,"result":{"userAgent":"x"}}}
{"dir":">","msg":{"method":"initialized"}}
{"dir":">","msg":{"id":2,"method":"thread/start"}}
{"dir":"<","msg":{"id":2,"result":{"thread":{"id":"t1"}}}}
{"dir":">","msg":{"id":3,"method":"turn/start"}}
{"dir":"<","msg":{"id":3,"result":{"turn":{"id":"u1","status":"inProgress"}}}}
"#;
const DONE: &str = r#"{"dir":"<","msg":{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1","status":"completed","error":null}}}}
"#;

async fn run(harness: &AgentHarness) -> Stop {
    let options = CodexOptions {
        model: Some("gpt-5.5".into()),
        ..CodexOptions::default()
    };
    let stop = harness
        .run(Codex::new(options).unwrap(), "SHELL:echo hi")
        .await;
    let received = harness.received();
    assert_eq!(received.faults, Vec::<String>::new());
    // Each request gets exactly one response.
    let answers = received
        .lines
        .iter()
        .filter(|line| line.get("method").is_none());
    let mut answered: Vec<String> = answers.map(|line| line["id"].to_string()).collect();
    let all = answered.len();
    answered.sort_unstable();
    answered.dedup();
    assert_eq!(answered.len(), all, "{:?}", received.lines);
    stop
}

fn block_on(harness: &AgentHarness) -> Stop {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(run(harness))
}

/// Plays a recording and compares the logged lines, without deltas.
#[track_caller]
fn check(text: &str, exit: i32, change: impl FnOnce(&mut AgentHarness), expect: (&str, &[&str])) {
    let mut harness = AgentHarness::scripted(vec![(recording(text), exit)]);
    change(&mut harness);
    let stop = block_on(&harness);
    assert_eq!(format!("{stop:?}"), expect.0);
    let lines: Vec<String> = harness
        .lines()
        .into_iter()
        .filter(|line| !line.starts_with("delta "))
        .collect();
    assert_eq!(lines, expect.1, "{lines:#?}");
}

/// A notification about an item.
fn item(what: &str, item: Value) -> String {
    let msg = json!({"method": format!("item/{what}"), "params": {"item": item, "threadId": "t1", "turnId": "u1"}});
    format!("{}\n", json!({"dir": "<", "msg": msg}))
}

/// A request, and the response that it must get.
fn asks(id: Value, method: &str, params: Value, answer: Value) -> String {
    let ask = json!({"dir": "<", "msg": {"id": id, "method": method, "params": params}});
    let mut answer = answer;
    answer["id"] = id;
    format!("{ask}\n{}\n", json!({"dir": ">", "msg": answer}))
}

#[test]
fn commands_patches_and_windlass_tools_are_judged_and_logged() {
    let patch = r#"{"path":"/workspace/new2.txt","content":"hello patch\n"}"#;
    let changes = r#"{"changes":[{"path":"/workspace/new2.txt","kind":{"type":"add"},"diff":"hello patch\n"}]}"#;
    check(
        APPROVALS,
        0,
        |_| {},
        (
            "Done",
            &[
                BEGAN,
                r#"said <call_fake0039 exec_command {"command":"touch hi.txt && cat out.txt","cwd":"/workspace"}>"#,
                r#"judged call_fake0039 as Execute bash {"command":"touch hi.txt && cat out.txt"}"#,
                "reported call_fake0039 exec_command: hi\n",
                r#"said <call_fake0042 exec_command {"command":"touch forbidden.txt","cwd":"/workspace"}>"#,
                r#"judged call_fake0042 as Execute bash {"command":"touch forbidden.txt"}"#,
                &format!("said <call_fake0045 apply_patch {changes}>"),
                &format!("judged call_fake0045 as Write write_file {patch}"),
                "reported call_fake0045 apply_patch: completed",
                r#"said <call_fake0048 lookup {"key":"k1"}>"#,
                r#"ran call_fake0048 lookup {"key":"k1"}"#,
                "said Done. The fake model says hello.",
                "spent 1000+5000+0 in, 150 out by gpt-5.5",
            ],
        ),
    );
}

#[test]
fn a_cancel_interrupts_the_program() {
    let expect = [BEGAN, "spent 200+1000+0 in, 30 out by gpt-5.5"];
    check(
        INTERRUPT,
        0,
        |harness| harness.cancel_at = Some("delta six"),
        ("Cancelled", &expect),
    );
}

#[test]
fn a_call_without_a_question_is_logged() {
    let command = json!({"type": "commandExecution", "id": "c1", "command": "ls", "cwd": "/workspace",
        "status": "failed", "aggregatedOutput": "no such file", "exitCode": 2});
    let text = [
        HELLO,
        &item("started", command.clone()),
        &item("completed", command),
        DONE,
    ]
    .concat();
    check(
        &text,
        0,
        |_| {},
        (
            "Done",
            &[
                "began codex:t1",
                r#"said <c1 exec_command {"command":"ls","cwd":"/workspace"}>"#,
                "observed c1 exec_command",
                "reported c1 exec_command: Error [exception]: exit code 2\nno such file",
            ],
        ),
    );
}

#[test]
fn tools_of_mcp_servers_are_judged_and_other_questions_declined() {
    let tool = json!({"type": "mcpToolCall", "id": "c1", "server": "db", "tool": "query", "arguments": {"q": 1}});
    let other = json!({"type": "mcpToolCall", "id": "c2", "server": "db", "tool": "drop", "arguments": {"q": "forbidden"}});
    let asked = |q: Value| json!({"serverName": "db", "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_params": {"q": q}}});
    let elicit = "mcpServer/elicitation/request";
    let action = |word: &str| json!({"result": {"action": word}});
    let text = [
        HELLO,
        &item("started", tool),
        &asks(json!(0), elicit, asked(json!(1)), action("accept")),
        &item("started", other),
        &asks(
            json!(1),
            elicit,
            asked(json!("forbidden")),
            action("decline"),
        ),
        // A tool that was not announced, and a plain question.
        &asks(json!(2), elicit, asked(json!(9)), action("decline")),
        &asks(
            json!(3),
            elicit,
            json!({"serverName": "db", "message": "name?"}),
            action("decline"),
        ),
        &asks(
            json!(4),
            "item/permissions/requestApproval",
            json!({}),
            json!({"result": {"permissions": {}}}),
        ),
        &asks(
            json!(5),
            "item/tool/requestUserInput",
            json!({}),
            json!({"result": {"answers": {}}}),
        ),
        &asks(
            json!(6),
            "execCommandApproval",
            json!({}),
            json!({"result": {"decision": "denied"}}),
        ),
        &asks(
            json!("seven"),
            "attestation/generate",
            json!({}),
            json!({"error": {"code": -32601}}),
        ),
        &asks(
            json!(8),
            "item/tool/call",
            json!({"callId": "c3", "tool": "bash", "arguments": {}}),
            json!({"result": {"success": false}}),
        ),
        &item(
            "completed",
            json!({"type": "agentMessage", "id": "m", "text": "Done."}),
        ),
        DONE,
    ]
    .concat();
    let harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
    assert_eq!(block_on(&harness), Stop::Done);
    let judged: Vec<String> = harness
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("judged "))
        .collect();
    assert_eq!(judged, ["judged c1 as Execute ", "judged c2 as Execute "]);
    assert!(harness.lines().iter().all(|line| !line.starts_with("ran ")));
}

#[test]
fn a_verdict_is_for_one_call_only() {
    let approval = "item/commandExecution/requestApproval";
    let asked = |command: &str, more: Value| {
        let mut params =
            json!({"itemId": "c1", "command": command, "cwd": "/workspace", "kind": "command"});
        if let Value::Object(more) = more {
            params.as_object_mut().unwrap().extend(more);
        }
        params
    };
    let decision = |word: &str| json!({"result": {"decision": word}});
    let text = [
        HELLO,
        // The question itself announces the call.
        &asks(
            json!(0),
            approval,
            asked("make", json!({})),
            decision("accept"),
        ),
        &asks(
            json!(1),
            approval,
            asked("make", json!({})),
            decision("accept"),
        ),
        &asks(
            json!(2),
            approval,
            asked("rm x", json!({})),
            decision("decline"),
        ),
        &asks(
            json!(3),
            approval,
            asked(
                "make",
                json!({"approvalId": "a1", "networkApprovalContext": {"host": "h"}}),
            ),
            decision("decline"),
        ),
        &asks(
            json!(4),
            approval,
            asked("yes", json!({"approvalId": "a2", "kind": "writeStdin"})),
            decision("accept"),
        ),
        // A patch without known changes.
        &asks(
            json!(5),
            "item/fileChange/requestApproval",
            json!({"itemId": "c9"}),
            decision("decline"),
        ),
        DONE,
    ]
    .concat();
    let harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
    assert_eq!(block_on(&harness), Stop::Done);
    let judged: Vec<String> = harness
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("judged "))
        .collect();
    assert_eq!(
        judged,
        [
            r#"judged c1 as Execute bash {"command":"make"}"#,
            "judged a2 as Execute "
        ]
    );
}

#[test]
fn a_cancel_answers_all_open_requests() {
    let approval = json!({"itemId": "c1", "command": "never", "cwd": "/workspace"});
    let call = json!({"callId": "c2", "tool": "lookup", "arguments": {"key": "never"}});
    let say = |msg: Value| format!("{}\n", json!({"dir": "<", "msg": msg}));
    let hear = |msg: Value| format!("{}\n", json!({"dir": ">", "msg": msg}));
    let text = [
        HELLO,
        &say(
            json!({"id": 0, "method": "item/commandExecution/requestApproval", "params": approval}),
        ),
        &say(json!({"id": 1, "method": "item/tool/call", "params": call})),
        // The order may vary. Each test checks that each response is sent once.
        &hear(json!({"result": {}})),
        &hear(json!({"result": {}})),
        &hear(json!({"method": "turn/interrupt"})),
        &asks(
            json!(2),
            "item/commandExecution/requestApproval",
            json!({"itemId": "c3", "command": "x"}),
            json!({"result": {"decision": "cancel"}}),
        ),
        &DONE.replace("completed\",\"error", "interrupted\",\"error"),
    ]
    .concat();
    let mut harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
    harness.cancel_at = Some("ran c2");
    assert_eq!(block_on(&harness), Stop::Cancelled);
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
    let text = format!("{HELLO}{}", r#"{"dir":"hang"}"#);
    let mut harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
    harness.cancel_at = Some("began");
    let clock = harness.clock.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(async {
        let options = CodexOptions::default();
        let mut run = std::pin::pin!(harness.run(Codex::new(options).unwrap(), "x"));
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
fn errors_silence_and_other_lines_are_distinguished() {
    let failed = |info: Value| {
        let error = json!({"message": "high demand", "codexErrorInfo": info});
        let turn = json!({"id": "u1", "status": "failed", "error": error});
        let msg = json!({"method": "turn/completed", "params": {"threadId": "t1", "turn": turn}});
        format!("{HELLO}{}\n", json!({"dir": "<", "msg": msg}))
    };
    let began: &[&str] = &["began codex:t1"];
    let provider = "Provider(ProviderError { kind: Unavailable { retry_after: None }, message: \"high demand\", status: ";
    check(
        &failed(json!("internalServerError")),
        0,
        |_| {},
        (&format!("{provider}None }})"), began),
    );
    let stream = json!({"responseStreamConnectionFailed": {"httpStatusCode": 503}});
    check(
        &failed(stream),
        0,
        |_| {},
        (&format!("{provider}Some(503) }})"), began),
    );
    let refused = "Refused { category: Safety, detail: \"high demand\" }";
    check(&failed(json!("cyberPolicy")), 0, |_| {}, (refused, began));
    let broken = |detail: &str| format!("Failed {{ reason: Runtime, detail: \"{detail}\" }}");
    check(
        "",
        0,
        |_| {},
        (
            &broken("Codex exited without an answer, with exit code 0"),
            &[],
        ),
    );
    let no = r#"{"dir":">","msg":{"id":1}}
{"dir":"<","msg":{"id":1,"error":{"code":-1,"message":"too old"}}}"#;
    check(
        no,
        0,
        |_| {},
        (&broken("Codex refused `initialize`: too old (-1)"), &[]),
    );
    let other_lines = [
        HELLO,
        "hello there\n",
        "{\"dir\":\"<\",\"msg\":{\"method\":\"brandNew/thing\"}}\n",
        "{\"dir\":\"<\",\"msg\":{\"method\":\"thread/brandNew\"}}\n",
        "{\"dir\":\"<\",\"msg\":{\"id\":77,\"result\":{}}}\n",
        "{\"dir\":\"<\",\"msg\":{\"method\":\"configWarning\",\"params\":{\"summary\":\"no such key\"}}}\n",
        DONE,
    ];
    check(
        &other_lines.concat(),
        0,
        |_| {},
        (
            "Done",
            &[
                "began codex:t1",
                "warned agent_warning: Codex warns: no such key",
                "warned unread_lines: 1 lines of Codex could not be parsed and 2 were of an unknown kind; they were \
         ignored",
            ],
        ),
    );
}

#[test]
fn a_conversation_is_resumed_or_replaced_with_a_warning() {
    let resumed = HELLO.replace(
        "\"method\":\"thread/start\"",
        "\"method\":\"thread/resume\",\"params\":{\"threadId\":\"t0\"}",
    );
    let continued = format!("{}{DONE}", resumed.replace("t1", "t0")).replace("t1", "t0");
    let mut harness = AgentHarness::scripted(vec![(recording(&continued), 0)]);
    harness.session = Some("codex:t0".into());
    assert_eq!(block_on(&harness), Stop::Done);
    assert_eq!(harness.lines(), ["began codex:t0"]);

    let lost: String = resumed
        .lines()
        .take(4)
        .map(|line| format!("{line}\n"))
        .collect();
    let lost = format!(
        "{lost}{}",
        r#"{"dir":"<","msg":{"id":2,"error":{"code":-32600,"message":"no rollout found for thread id t0"}}}"#
    );
    let new_turn = r#"{"id":3,"method":"turn/start","params":{"input":[{"text":"…work without a user present…The task:…SHELL:echo…"}]}}"#;
    let new_turn = HELLO.replace(r#"{"id":3,"method":"turn/start"}"#, new_turn);
    let mut harness = AgentHarness::scripted(vec![
        (recording(&lost), 0),
        (recording(&format!("{new_turn}{DONE}")), 0),
    ]);
    harness.session = Some("codex:t0".into());
    assert_eq!(block_on(&harness), Stop::Done);
    let lines = harness.lines();
    assert!(
        lines[0].starts_with("warned session_lost") && lines[1] == "began codex:t1",
        "{lines:#?}"
    );
}

#[test]
fn options_become_arguments_and_settings() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let text = HELLO
        .replace(
            r#""method":"thread/start""#,
            r#""method":"thread/start","params":{"cwd":"/workspace","model":"gpt-6","modelProvider":"windlass","approvalPolicy":"untrusted","sandbox":"danger-full-access","developerInstructions":"Be brief.","config":{"tools.view_image":false,"mcp_servers":{"db":{"command":"db-mcp"}}},"dynamicTools":[{"type":"function","name":"lookup","description":"a tool for tests"}]}"#,
        )
        .replace(
            r#""method":"turn/start""#,
            &format!(r#""method":"turn/start","params":{{"threadId":"t1","effort":"high","outputSchema":{schema}}}"#),
        );
    let answer = item(
        "completed",
        json!({"type": "agentMessage", "id": "m", "text": "{\"a\": 1}"}),
    );
    let mut harness =
        AgentHarness::scripted(vec![(recording(&format!("{text}{answer}{DONE}")), 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    harness.output = Some(WantedOutput {
        schema,
        check: Arc::new(|_| Ok(())),
    });
    let options = json!({
        "program": "/opt/codex", "model": "gpt-6", "effort": "high", "developer_instructions": "Be brief.",
        "mcp_servers": {"db": {"command": "db-mcp"}}, "config": {"tools.view_image": false},
        "args": ["--enable", "x"], "env": {"FOO": "1"}
    });
    let adapter = Codex::new(serde_json::from_value(options).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(harness.run(adapter, "x"));
    assert_eq!(harness.received().faults, Vec::<String>::new());
    assert_eq!(
        stop,
        Stop::Answered {
            output: json!({"a": 1})
        }
    );
    let launches = harness.launches.lock();
    assert_eq!(
        launches[0].argv,
        ["/opt/codex", "--enable", "x", "app-server"]
    );
    let env: Vec<String> = launches[0]
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        env,
        [
            "FOO=1",
            "CODEX_HOME=/home/agent/.codex",
            "WINDLASS_MODEL_KEY=placeholder"
        ]
    );
    let put = harness.put.lock();
    assert_eq!(put[0].0, ".codex/config.toml");
    let config = String::from_utf8(put[0].1.clone()).unwrap();
    assert!(
        config.contains("base_url = \"http://127.0.0.1:8080/v1\"")
            && !config.contains("placeholder"),
        "{config}"
    );
}

#[test]
fn an_agent_with_its_own_login_gets_no_key() {
    let harness = AgentHarness::scripted(vec![(recording(&format!("{HELLO}{DONE}")), 0)]);
    assert_eq!(block_on(&harness), Stop::Done);
    let launches = harness.launches.lock();
    let env: Vec<&str> = launches[0]
        .env
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(env, ["CODEX_HOME"]);
    let put = harness.put.lock();
    assert!(
        !String::from_utf8(put[0].1.clone())
            .unwrap()
            .contains("provider")
    );
    assert!(
        harness
            .received()
            .lines
            .iter()
            .all(|line| line["params"].get("modelProvider").is_none())
    );
}

#[test]
fn a_refusing_and_an_unreachable_model_are_detected() {
    let incomplete = item(
        "started",
        json!({"type": "agentMessage", "id": "m", "text": ""}),
    );
    let why = "Refused { category: Safety, detail: \"the model started an answer without completing it, which indicates \
        a refusal\" }";
    check(
        &format!("{HELLO}{incomplete}{DONE}"),
        0,
        |_| {},
        (why, &["began codex:t1"]),
    );
    // Codex retries without a limit. The adapter stops after six notices.
    let error = json!({"message": "waiting for network",
        "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": null}}});
    let msg =
        json!({"method": "error", "params": {"threadId": "t1", "error": error, "willRetry": true}});
    let again = format!("{}\n", json!({"dir": "<", "msg": msg}));
    let network = "Provider(ProviderError { kind: Network { transient: true, sent: false }, message: \"waiting for network\", \
        status: None })";
    check(
        &format!("{HELLO}{}", again.repeat(7)),
        0,
        |_| {},
        (network, &["began codex:t1"]),
    );
    check(
        &format!("{HELLO}{}{DONE}", again.repeat(6)),
        0,
        |_| {},
        ("Done", &["began codex:t1"]),
    );
}
