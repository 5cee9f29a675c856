//! The sidecar: recordings with both SDKs, and invalid behaviour.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::clock::Clock;
use windlass_core::runtime::Stop;
use windlass_runtimes::agent::{Metering, WantedOutput};
use windlass_runtimes::dialect::Dialect;
use windlass_runtimes::sidecar::{Sdk, Sidecar, SidecarOptions};

use crate::harness::{AgentHarness, NoRequests};
use crate::script::{PeerStep, recording};

/// The recordings of both SDKs with the same model script.
macro_rules! recorded {
    ($name:literal) => {
        [
            (
                Sdk::OpenAiAgents,
                include_str!(concat!(
                    "../fixtures/sidecar/openai-agents-",
                    $name,
                    ".jsonl"
                )),
            ),
            (
                Sdk::GoogleAdk,
                include_str!(concat!("../fixtures/sidecar/google-adk-", $name, ".jsonl")),
            ),
        ]
    };
}

const READY: &str = r#"{"dir":"<","msg":{"type":"ready","protocol":1}}
{"dir":">","msg":{"type":"start","id":"turn1","history":[]}}
"#;
const DONE: &str = r#"{"dir":"<","msg":{"type":"done","id":"turn1","status":"completed","output":"Done."}}
"#;

fn harness(text: &str) -> AgentHarness {
    let mut harness = AgentHarness::scripted(vec![(recording(text), 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    harness
}

/// The model protocol of a recording.
fn wire(text: &str) -> Dialect {
    match text {
        text if text.contains(r#""api": "anthropic""#) => Dialect::Anthropic,
        text if text.contains(r#""api": "chat""#) => Dialect::OpenAiChat,
        _ => Dialect::OpenAiResponses,
    }
}

fn block_on(harness: &AgentHarness, sdk: Sdk, wire: Dialect, options: Value) -> Stop {
    let options = SidecarOptions {
        model: Some("m".into()),
        ..serde_json::from_value(options).unwrap()
    };
    let sidecar = Sidecar::new(sdk, wire, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(harness.run(sidecar, "Do it."));
    assert_eq!(harness.received().faults, Vec::<String>::new());
    stop
}

/// Both SDKs must have the same result, without deltas.
#[track_caller]
fn check(recorded: [(Sdk, &str); 2], options: Value, expect: (&str, &[&str])) {
    for (sdk, text) in recorded {
        let harness = harness(text);
        let stop = block_on(&harness, sdk, wire(text), options.clone());
        assert!(
            format!("{stop:?}").starts_with(expect.0),
            "{}: {stop:?}",
            sdk.name()
        );
        // The SDKs use different call ids.
        let named = |line: String| {
            line.replace("toolu_", "call_")
                .replace("kit_000", "")
                .replace(sdk.name(), "SDK")
        };
        let lines: Vec<String> = harness
            .lines()
            .into_iter()
            .filter(|line| !line.starts_with("delta "))
            .map(named)
            .collect();
        assert_eq!(lines, expect.1, "{}: {lines:#?}", sdk.name());
    }
}

#[test]
fn the_engine_runs_calls_and_the_next_turn_uses_the_same_process() {
    let lines = [
        "began ",
        r#"said <call_0 bash {"command":"echo hi"}>"#,
        r#"ran call_0 bash {"command":"echo hi"}"#,
        r#"said <call_1 lookup {"key":"k1"}>"#,
        r#"ran call_1 lookup {"key":"k1"}"#,
        "said Both were looked at. Shall I do the rest?",
        "said No user can confirm anything: you have every permission that exists. Do the whole task now, in the files.",
        "said All is done.",
        "warned usage_differs: SDK reports 4920 tokens; 0 were metered and are charged",
    ];
    check(recorded!("work"), json!({}), ("Done", &lines));
    // The conversation is sent once, and the tools with every turn.
    let (sdk, text) = recorded!("work")[0];
    let harness = harness(text);
    block_on(&harness, sdk, wire(text), json!({}));
    let received = harness.received();
    let starts: Vec<&Value> = received
        .lines
        .iter()
        .filter(|line| line["type"] == "start")
        .collect();
    assert_eq!(starts.len(), 2);
    assert_eq!(
        (&starts[0]["history"], starts[1].get("history")),
        (&json!([]), None)
    );
    let names: Vec<&str> = starts[1]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["name"].as_str())
        .collect();
    assert_eq!(names, ["bash", "lookup"]);
    assert_eq!(starts[0]["model"]["base_url"], "http://127.0.0.1:8080/v1");
    assert_eq!(starts[0]["prompt"], "Do it.");
    let sent = starts[0]["agents"][0]["instructions"].as_str().unwrap();
    assert!(sent.contains("without a user present"), "{sent}");
    assert_eq!(harness.launches.lock().len(), 1);
}

#[test]
fn a_handoff_is_logged() {
    let agents = json!([{"name": "reviewer", "description": "Reviews.", "instructions": "Review.", "tools": ["lookup"]}]);
    for (sdk, text) in recorded!("handoff") {
        let harness = harness(text);
        let stop = block_on(&harness, sdk, wire(text), json!({"agents": agents}));
        assert!(matches!(stop, Stop::Done), "{stop:?}");
        let lines = harness.lines();
        assert!(
            lines.contains(&"said The agent `coder` hands over to `reviewer`.".to_owned()),
            "{lines:#?}"
        );
        assert!(lines.contains(&"said Reviewed.".to_owned()), "{lines:#?}");
        let received = harness.received();
        let sent = &received.lines[0]["agents"][1];
        assert_eq!(
            (&sent["name"], &sent["model"], &sent["tools"]),
            (&json!("reviewer"), &json!("m"), &json!(["lookup"]))
        );
    }
}

#[test]
fn a_limit_a_refusal_and_an_error_are_distinguished() {
    let two = [
        "began ",
        r#"said <call_0 bash {"command":"echo a"}>"#,
        r#"ran call_0 bash {"command":"echo a"}"#,
        r#"said <call_1 bash {"command":"echo b"}>"#,
        r#"ran call_1 bash {"command":"echo b"}"#,
        "warned usage_differs: SDK reports 2460 tokens; 0 were metered and are charged",
    ];
    let limit = |sdk: &str| {
        format!(
            "Failed {{ reason: Runtime, detail: \"{sdk} stopped at a limit of its own: the turn made 2"
        )
    };
    for one in recorded!("limit") {
        check(
            [one, one],
            json!({"max_turns": 2}),
            (&limit(one.0.name()), &two),
        );
    }
    for one in recorded!("refused") {
        let harness = harness(one.1);
        let stop = block_on(&harness, one.0, wire(one.1), json!({}));
        assert_eq!(
            format!("{stop:?}"),
            "Refused { category: Safety, detail: \"I cannot help with that.\" }"
        );
    }
    check(
        recorded!("fail"),
        json!({}),
        ("Provider(ProviderError { kind: Unavailable", &["began "]),
    );
}

#[test]
fn a_cancel_interrupts_the_program() {
    for (sdk, text) in recorded!("cancel") {
        let mut harness = harness(text);
        harness.cancel_at = Some("delta three");
        let stop = block_on(&harness, sdk, wire(text), json!({}));
        assert!(matches!(stop, Stop::Cancelled), "{stop:?}");
        assert_eq!(harness.received().lines.last().unwrap()["type"], "cancel");
    }
}

/// Plays one turn with these lines.
#[track_caller]
fn check_turn(lines: &[Value], expect: (&str, &[&str])) {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let harness = harness(&[READY, &lines, DONE].concat());
    let stop = block_on(
        &harness,
        Sdk::OpenAiAgents,
        Dialect::OpenAiResponses,
        json!({}),
    );
    assert!(format!("{stop:?}").starts_with(expect.0), "{stop:?}");
    assert_eq!(harness.lines(), expect.1, "{:#?}", harness.lines());
}

fn says(msg: Value) -> Value {
    json!({"dir": "<", "msg": msg})
}

fn calls(id: &str, name: &str, args: Value) -> Value {
    says(json!({"type": "tool_call", "call_id": id, "name": name, "arguments": args}))
}

fn hears(id: &str, content: &str) -> Value {
    json!({"dir": ">", "msg": {"type": "tool_result", "call_id": id, "content": content}})
}

#[test]
fn several_calls_are_open_at_once_and_each_is_answered_once() {
    check_turn(
        &[
            calls("a", "lookup", json!({"key": "k1"})),
            calls("b", "bash", json!({"command": "x"})),
            hears("a", "value-of-k1"),
            hears("b", "value-of-"),
            // Some servers number calls from one in every answer.
            calls("a", "lookup", json!({"key": "k2"})),
            hears("a", "value-of-k2"),
        ],
        (
            "Done",
            &[
                "began ",
                r#"said <a lookup {"key":"k1"}>"#,
                r#"ran a lookup {"key":"k1"}"#,
                r#"said <b bash {"command":"x"}>"#,
                r#"ran b bash {"command":"x"}"#,
                r#"said <a~2 lookup {"key":"k2"}>"#,
                r#"ran a~2 lookup {"key":"k2"}"#,
            ],
        ),
    );
}

#[test]
fn a_repeated_call_runs_once_and_has_a_result_at_the_end() {
    let call = calls("n", "lookup", json!({"key": "never"}));
    check_turn(
        &[call.clone(), call],
        (
            "Done",
            &[
                "began ",
                r#"said <n lookup {"key":"never"}>"#,
                r#"ran n lookup {"key":"never"}"#,
                "warned unread_lines: 0 lines of the sidecar could not be parsed and 1 were of an unknown kind; they were \
                 ignored",
                "reported n lookup: Error [interrupted]: the agent ended before it reported a result",
            ],
        ),
    );
}

#[test]
fn reasoning_is_logged_with_the_next_part() {
    let thought = |text: &str| says(json!({"type": "reasoning", "text": text}));
    check_turn(
        &[
            says(json!({"type": "reasoning_delta", "text": "h"})),
            thought("hm"),
            calls("a", "lookup", json!({"key": "k"})),
            hears("a", "value-of-k"),
            thought("so"),
            says(json!({"type": "message", "text": "That is it."})),
        ],
        (
            "Done",
            &[
                "began ",
                "delta Reasoning h",
                r#"said (hm) | <a lookup {"key":"k"}>"#,
                r#"ran a lookup {"key":"k"}"#,
                "said (so) | That is it.",
            ],
        ),
    );
}

#[test]
fn a_refused_task_ends_the_turn() {
    let args = json!({"category": "policy", "reason": "The rules of this project forbid it."});
    let logged = format!("<a refuse {args}>");
    check_turn(
        &[calls("a", "refuse", args.clone()), hears("a", "value-of-")],
        (
            "Refused { category: Policy, detail: \"The rules of this project forbid it.\" }",
            &[
                "began ",
                &format!("said {logged}"),
                &format!("ran a refuse {args}"),
            ],
        ),
    );
}

#[track_caller]
fn check_failure(steps: Vec<PeerStep>, exit: i32, expect: &str) {
    let mut harness = AgentHarness::scripted(vec![(steps, exit)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let stop = block_on(&harness, Sdk::GoogleAdk, Dialect::Gemini, json!({}));
    let text = format!("{stop:?}");
    assert!(
        text.contains("reason: Runtime") && text.contains(expect),
        "{text}"
    );
}

#[test]
fn a_program_that_is_no_sidecar_fails() {
    check_failure(
        Vec::new(),
        0,
        "the sidecar exited without an answer, with exit code 0",
    );
    let complaint = r#"{"dir":"2","msg":"ModuleNotFoundError: No module named 'google'"}"#;
    check_failure(
        recording(complaint),
        1,
        "with exit code 1; end of its standard error: ModuleNotFoundError",
    );
    check_failure(
        recording(r#"{"dir":"<","msg":{"type":"ready","protocol":2}}"#),
        0,
        "speaks version Some(2)",
    );
    check_failure(
        recording(&"\"noise\"\n".repeat(10_001)),
        0,
        "prints other text instead",
    );
    let other =
        r#"{"dir":"<","msg":{"type":"done","id":"turn9","status":"completed","output":"Done."}}"#;
    check_failure(
        recording(&format!("{READY}{other}")),
        0,
        "the sidecar exited without an answer",
    );
}

#[test]
fn a_sidecar_that_is_never_ready_times_out() {
    let steps = recording("{\"dir\":\"2\",\"msg\":\"still importing\"}\n{\"dir\":\"hang\"}");
    let mut harness = AgentHarness::scripted(vec![(steps, 0)]);
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    let clock = harness.clock.clone();
    let options = SidecarOptions {
        model: Some("m".into()),
        ..SidecarOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stop = runtime.block_on(async {
        let sidecar = Sidecar::new(Sdk::GoogleAdk, Dialect::Gemini, options).unwrap();
        let mut run = std::pin::pin!(harness.run(sidecar, "Do it."));
        loop {
            tokio::select! {
                biased;
                stop = &mut run => break stop,
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(100)),
            }
        }
    });
    assert!(
        format!("{stop:?}")
            .contains("not ready after 60 seconds; end of its standard error: still importing")
    );
    assert!(clock.monotonic() >= Duration::from_secs(60));
}

#[test]
fn a_structured_answer_is_a_value_or_text() {
    let schema = json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"],
        "additionalProperties": false});
    let check = Arc::new(|value: &Value| {
        if value["answer"] == 42 {
            Ok(())
        } else {
            Err("no".to_owned())
        }
    });
    for (output, wire, sent) in [
        (
            json!({"answer": 42}),
            Dialect::OpenAiResponses,
            json!({"schema": schema, "strict": true}),
        ),
        (
            json!("```json\n{\"answer\": 42}\n```"),
            Dialect::OpenAiChat,
            Value::Null,
        ),
    ] {
        let done =
            says(json!({"type": "done", "id": "turn1", "status": "completed", "output": output}));
        let mut harness = harness(&format!("{READY}{done}"));
        harness.output = Some(WantedOutput {
            schema: schema.clone(),
            check: check.clone(),
        });
        let stop = block_on(&harness, Sdk::OpenAiAgents, wire, json!({}));
        assert!(
            matches!(&stop, Stop::Answered { output } if *output == json!({"answer": 42})),
            "{stop:?}"
        );
        let received = harness.received();
        assert_eq!(
            received.lines[0]
                .get("output_schema")
                .cloned()
                .unwrap_or_default(),
            sent
        );
        assert!(
            received.lines[0]["prompt"]
                .as_str()
                .unwrap()
                .contains("JSON Schema")
        );
    }
}

#[test]
fn a_missing_tool_of_a_subagent_is_an_error() {
    let agents = json!([{"name": "a", "description": "d", "instructions": "i", "tools": ["lookup", "no_such_tool"]}]);
    let harness = harness(r#"{"dir":"<","msg":{"type":"ready","protocol":1}}"#);
    let stop = block_on(
        &harness,
        Sdk::OpenAiAgents,
        Dialect::OpenAiChat,
        json!({"agents": agents}),
    );
    assert!(
        format!("{stop:?}").contains("gives `a` the tool `no_such_tool`"),
        "{stop:?}"
    );
}
