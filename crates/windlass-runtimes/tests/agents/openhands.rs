//! OpenHands: recordings of a real session, and invalid behaviour.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::runtime::Stop;
use windlass_runtimes::agent::Metering;
use windlass_runtimes::dialect::Dialect;
use windlass_runtimes::openhands::{OpenHands, OpenHandsOptions};

use crate::harness::{AgentHarness, NoRequests};
use crate::script::recording;

const RECORDED: &str = include_str!("../fixtures/openhands.jsonl");
const ID: &str = "3f9d6f54-7fe9-4c87-92ec-2cf46fc55827";

fn options() -> OpenHandsOptions {
    OpenHandsOptions {
        python: "/env/bin/python".into(),
        model: Some("fake-model".into()),
        ..OpenHandsOptions::default()
    }
}

/// Plays a recording and compares the logged lines, without deltas.
#[track_caller]
fn check(
    text: &str,
    change: impl FnOnce(&mut AgentHarness, &mut OpenHandsOptions),
    expect: (&str, &[&str]),
) -> AgentHarness {
    let mut harness = AgentHarness::scripted(vec![(recording(text), 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let mut options = options();
    change(&mut harness, &mut options);
    let agent = OpenHands::new(options, Dialect::OpenAiChat).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(harness.run(agent, "SHELL:echo hi"));
    assert_eq!(harness.received().faults, Vec::<String>::new());
    let stop = format!("{stop:?}");
    assert!(stop.contains(expect.0), "{stop}");
    let lines: Vec<String> = harness
        .lines()
        .into_iter()
        .filter(|line| !line.starts_with("delta "))
        .collect();
    assert_eq!(lines, expect.1, "{lines:#?}");
    harness
}

fn line(dir: &str, msg: Value) -> String {
    format!("{}\n", json!({ "dir": dir, "msg": msg }))
}

/// An event of the conversation.
fn event(kind: &str, mut fields: Value) -> String {
    fields["kind"] = json!(kind);
    line("<", json!({ "event": fields }))
}

fn state(status: &str) -> String {
    let value = json!({ "execution_status": status, "stats": {} });
    event(
        "ConversationStateUpdateEvent",
        json!({ "key": "full_state", "value": value }),
    )
}

/// An action that waits for a confirmation.
fn action(id: &str, tool: &str, response: &str, action: Value) -> String {
    let fields = json!({ "tool_name": tool, "tool_call_id": id, "llm_response_id": response, "action": action });
    event("ActionEvent", fields)
}

fn terminal(id: &str, response: &str, command: &str) -> String {
    action(
        id,
        "terminal",
        response,
        json!({ "kind": "TerminalAction", "command": command }),
    )
}

/// A request to the conversation, and its response.
fn post(id: u64, what: &str, body: Value) -> String {
    let ask = json!({ "id": id, "method": "POST", "path": format!("/api/conversations/c1/{what}"), "body": body });
    [
        line(">", ask),
        line(
            "<",
            json!({ "id": id, "status": 200, "body": { "success": true } }),
        ),
    ]
    .concat()
}

/// The beginning of every conversation.
fn hello() -> String {
    [
        line("<", json!({ "ready": true })),
        line(
            ">",
            json!({ "id": 1, "method": "POST", "path": "/api/conversations" }),
        ),
        line(
            "<",
            json!({ "id": 1, "status": 201, "body": { "id": "c1" } }),
        ),
        line(">", json!({ "id": 2, "follow": "c1" })),
        state("idle"),
        line("<", json!({ "id": 2, "status": 200 })),
        post(3, "events", json!({ "role": "user", "run": true })),
    ]
    .concat()
}

#[test]
fn actions_are_judged_and_logged() {
    let harness = check(
        RECORDED,
        |_, _| {},
        (
            "Done",
            &[
                &format!("began openhands:{ID}"),
                r#"said <call_fake0004 terminal {"command":"echo hi > out.txt && cat out.txt","is_input":false,"reset":false}>"#,
                r#"judged call_fake0004 as Execute bash {"command":"echo hi > out.txt && cat out.txt"}"#,
                "reported call_fake0004 terminal: hi",
                r#"said <call_fake0007 file_editor {"command":"create","path":"/workspace/n.txt","file_text":"hello"}>"#,
                r#"judged call_fake0007 as Write write_file {"path":"/workspace/n.txt","content":"hello"}"#,
                "reported call_fake0007 file_editor: File created successfully at: /workspace/n.txt",
                "said Done. The fake model says hello.",
                "warned usage_differs: openhands reports 4920 tokens; 0 were metered and are charged",
            ],
        ),
    );
    let launch = harness.launches.lock()[0].clone();
    assert_eq!(
        launch.argv,
        [
            "/env/bin/python",
            "-I",
            "/home/agent/.openhands/agent-server.py"
        ]
    );
    let has = |name: &str| launch.env.iter().any(|(known, _)| known == name);
    assert!(
        has("OH_CONVERSATIONS_PATH")
            && has("LITELLM_LOCAL_MODEL_COST_MAP")
            && has("OH_ENABLE_BROWSER")
    );
    // Without this variable, the server needs a directory in `/tmp`, which commands without namespaces cannot write.
    assert!(has("TMUX_TMPDIR"));
    let put: Vec<String> = harness
        .put
        .lock()
        .iter()
        .map(|(path, _)| path.clone())
        .collect();
    assert_eq!(put, [".openhands/agent-server.py", ".inputrc"]);
}

#[test]
fn one_refusal_refuses_the_whole_step() {
    let no = "…[blocked] a rule says no…`terminal`…repeat the others…";
    let rejected = |id: &str| {
        event(
            "UserRejectObservation",
            json!({ "tool_name": "terminal", "tool_call_id": id }),
        )
    };
    let text = [
        &hello(),
        &terminal("a", "r1", "ls"),
        &terminal("b", "r1", "touch forbidden"),
        &terminal("c", "r1", "pwd"),
        &state("waiting_for_confirmation"),
        &post(
            4,
            "events/respond_to_confirmation",
            json!({ "accept": false, "reason": no }),
        ),
        &rejected("a"),
        &rejected("b"),
        &rejected("c"),
        &post(5, "run", Value::Null),
        &action(
            "d",
            "finish",
            "r2",
            json!({ "kind": "FinishAction", "message": "I could not." }),
        ),
        &state("finished"),
    ]
    .map(String::as_str)
    .concat();
    let not_run = "Error [interrupted]: not run, because another call of the same step was refused, and OpenHands accepts \
                   only one decision for a whole step";
    check(
        &text,
        |_, _| {},
        (
            "Done",
            &[
                "began openhands:c1",
                r#"said <a terminal {"command":"ls"}> | <b terminal {"command":"touch forbidden"}> | <c terminal {"command":"pwd"}>"#,
                r#"judged a as Execute bash {"command":"ls"}"#,
                r#"judged b as Execute bash {"command":"touch forbidden"}"#,
                &format!("reported a terminal: {not_run}"),
                &format!("reported c terminal: {not_run}"),
                "said I could not.",
            ],
        ),
    );
}

#[test]
fn a_call_without_a_question_is_logged_and_the_directory_is_tracked() {
    let observation = |id: &str, code: i64, dir: &str| {
        let observation = json!({ "content": [{ "text": "out" }], "exit_code": code, "metadata": { "working_dir": dir } });
        event(
            "ObservationEvent",
            json!({ "tool_name": "terminal", "tool_call_id": id, "observation": observation }),
        )
    };
    let text = [
        &hello(),
        &terminal("a", "r1", "cd sub"),
        &observation("a", 2, "/elsewhere"),
        &terminal("b", "r2", "ls"),
        &state("waiting_for_confirmation"),
        &post(4, "run", Value::Null),
        &event(
            "AgentErrorEvent",
            json!({ "tool_name": "terminal", "tool_call_id": "b", "error": "broken" }),
        ),
        &state("finished"),
    ]
    .map(String::as_str)
    .concat();
    check(
        &text,
        |_, _| {},
        (
            "Done",
            &[
                "began openhands:c1",
                r#"said <a terminal {"command":"cd sub"}>"#,
                "observed a terminal",
                "reported a terminal: exit code 2\nout",
                r#"said <b terminal {"command":"ls"}>"#,
                r#"judged b as Execute bash {"command":"ls","workdir":"/elsewhere"}"#,
                "reported b terminal: Error [exception]: broken",
            ],
        ),
    );
}

#[test]
fn a_resumed_conversation_has_no_pending_actions() {
    let body = json!({ "id": "c1", "execution_status": "waiting_for_confirmation", "stats": {},
        "tags": { "windlass": "terminal file_editor task_tracker ec0fc97790d1c3fb" } });
    let looked_up = |body: Value, status: u64| {
        [
            line("<", json!({ "ready": true })),
            line(
                ">",
                json!({ "id": 1, "method": "GET", "path": "/api/conversations/c1" }),
            ),
            line("<", json!({ "id": 1, "status": status, "body": body })),
        ]
        .concat()
    };
    let text = [
        looked_up(body.clone(), 200),
        post(
            2,
            "events/respond_to_confirmation",
            json!({ "accept": false }),
        ),
        post(
            3,
            "confirmation_policy",
            json!({ "policy": { "kind": "AlwaysConfirm" } }),
        ),
        post(
            4,
            "switch_llm",
            json!({ "llm": { "api_key": "placeholder" } }),
        ),
        line(">", json!({ "id": 5, "follow": "c1" })),
        line("<", json!({ "id": 5, "status": 200 })),
        post(
            6,
            "events",
            json!({ "content": [{ "text": "SHELL:echo hi" }] }),
        ),
        state("finished"),
    ];
    let continued = |harness: &mut AgentHarness, _: &mut OpenHandsOptions| {
        harness.session = Some("openhands:c1".into())
    };
    check(&text.concat(), continued, ("Done", &["began openhands:c1"]));

    // A conversation that is gone, or has other tools or another directory, is not resumed.
    let (mut other, mut elsewhere) = (body.clone(), body);
    other["tags"]["windlass"] = json!("terminal");
    elsewhere["tags"]["windlass"] = json!("terminal file_editor task_tracker 08f44b07b5901a25");
    for (body, status) in [(Value::Null, 404), (other, 200), (elsewhere, 200)] {
        let new_conversation = [
            looked_up(body, status),
            line(
                ">",
                json!({ "id": 2, "method": "POST", "path": "/api/conversations" }),
            ),
            line(
                "<",
                json!({ "id": 2, "status": 201, "body": { "id": "c2" } }),
            ),
            line(">", json!({ "id": 3, "follow": "c2" })),
            line("<", json!({ "id": 3, "status": 200 })),
            line(
                ">",
                json!({ "id": 4, "body": { "content": [{ "text": "…The task:\nSHELL:echo hi" }] } }),
            ),
            state("finished"),
        ];
        let lost = "warned session_lost: OpenHands no longer has the conversation that it was to resume, or that conversation \
                    has other tools or another directory; it starts a new one with a shortened copy of the log";
        check(
            &new_conversation.concat(),
            continued,
            ("Done", &["began openhands:c2", lost]),
        );
    }
}

#[test]
fn a_cancel_interrupts() {
    let text = [
        &hello(),
        &event("StreamingDeltaEvent", json!({ "content": "one two" })),
        &post(4, "interrupt", Value::Null),
        &line("hang", Value::Null),
    ]
    .map(String::as_str)
    .concat();
    check(
        &text,
        |harness, _| harness.cancel_at = Some("delta one"),
        ("Cancelled", &["began openhands:c1"]),
    );
}

#[test]
fn the_adapter_counts_steps_because_the_server_restarts_its_count() {
    let text = [
        &hello(),
        &terminal("a", "r1", "ls"),
        &state("waiting_for_confirmation"),
        &post(4, "run", Value::Null),
        &terminal("b", "r2", "ls"),
        &state("waiting_for_confirmation"),
        &line("hang", Value::Null),
    ]
    .map(String::as_str)
    .concat();
    let mut harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let agent = OpenHands::new(
        OpenHandsOptions {
            max_iterations: Some(1),
            ..options()
        },
        Dialect::Anthropic,
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(harness.run(agent, "x"));
    assert!(
        format!("{stop:?}").contains("the 1 steps of `max_iterations`"),
        "{stop:?}"
    );
}

#[track_caller]
fn check_end(text: &[&str], expect: &str) {
    let mut harness = AgentHarness::scripted(vec![(recording(&text.concat()), 3)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let agent = OpenHands::new(options(), Dialect::Gemini).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop: Stop = runtime.block_on(harness.run(agent, "x"));
    assert!(format!("{stop:?}").contains(expect), "{stop:?}");
}

#[test]
fn every_error_ends_the_turn() {
    let hello = hello();
    let error = |code: &str| {
        event(
            "ConversationErrorEvent",
            json!({ "code": code, "detail": "why", "classification": null }),
        ) + &state("error")
    };
    check_end(
        &[],
        "it exited before it responded; it exited with exit code 3",
    );
    check_end(
        &[&line("<", json!({ "failed": "no such module" }))],
        "no such module",
    );
    let refused = [
        line("<", json!({ "ready": true })),
        line(">", json!({ "id": 1 })),
        line(
            "<",
            json!({ "id": 1, "status": 422, "body": { "detail": "wrong" } }),
        ),
    ];
    check_end(
        &[&refused.concat()],
        "did not start a conversation: \\\"wrong\\\" (422)",
    );
    check_end(
        &[&hello],
        "the server exited without an answer, with exit code 3",
    );
    check_end(
        &[
            &hello,
            &line("<", json!({ "id": 2, "status": 0, "error": "closed" })),
        ],
        "the event stream of OpenHands was lost: closed",
    );
    check_end(
        &[&hello, &error("LLMServiceUnavailableError")],
        "Unavailable",
    );
    check_end(
        &[&hello, &error("KeyError")],
        "the turn failed with KeyError: why",
    );
    check_end(&[&hello, &state("stuck")], "repeats itself");
    check_end(
        &[
            &hello,
            "not json\n",
            &line("<", json!([1])),
            &state("paused"),
        ],
        "stopped in the middle of the turn",
    );
    check_end(
        &[
            &hello,
            &event("ServerErrorEvent", json!({ "detail": "oh" })),
        ],
        "the server failed: oh",
    );
    let waits = state("waiting_for_confirmation").repeat(200);
    check_end(&[&hello, &waits], "does not respond to requests");
}

#[test]
fn a_message_that_never_ends_is_logged_in_pieces() {
    let think = |text: &str| {
        action(
            "",
            "think",
            "r1",
            json!({ "kind": "ThinkAction", "thought": text }),
        )
    };
    let heavy = "x".repeat(1 << 20);
    for (thoughts, messages) in [
        (think("a").repeat(10), 1),
        (think("a").repeat(130), 3),
        (think(&heavy).repeat(2), 2),
    ] {
        let text = [hello(), thoughts, state("finished")].concat();
        let mut harness = AgentHarness::scripted(vec![(recording(&text), 0)]);
        harness.metering = Metering::Wire(Arc::new(NoRequests));
        let agent = OpenHands::new(options(), Dialect::OpenAiChat).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(harness.run(agent, "x"));
        assert_eq!(
            harness
                .lines()
                .iter()
                .filter(|line| line.starts_with("said "))
                .count(),
            messages
        );
    }
}

#[test]
fn a_server_that_never_starts_times_out() {
    let mut harness = AgentHarness::scripted(vec![(recording(&line("hang", Value::Null)), 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let clock = harness.clock.clone();
    let agent = OpenHands::new(options(), Dialect::Anthropic).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(async {
        let advance = async {
            for _ in 0..400 {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_secs(1));
            }
            std::future::pending::<Stop>().await
        };
        tokio::select! {
            stop = harness.run(agent, "x") => stop,
            stop = advance => stop,
        }
    });
    assert!(
        format!("{stop:?}").contains("did not start within 180 seconds"),
        "{stop:?}"
    );
}
