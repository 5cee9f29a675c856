//! Telemetry: off by default, complete if enabled, and never an obstacle to a run.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_scripted::{Act, ByteServer, http};

use crate::cli_fixture::{CliFixture, HELLO, id_of};

const WORK: &str = r#"
[[step]]
usage = { input = 100, cache_read = 300, output = 20 }
calls = [{ name = "bash", args = { command = "echo WORDS" } }]
[[step]]
usage = { input = 50, output = 5 }
text = "ANSWER"
"#;

/// A collector on loopback that gives this response to every request.
fn collector(status: u16) -> ByteServer {
    ByteServer::saying(vec![Act::Say(http::whole(status, "", "{}"))]).unwrap()
}

/// Returns the requests since the last call.
fn taken(collector: &ByteServer) -> Vec<String> {
    let mut received = collector.received();
    received.drain(..).map(|request| request.text).collect()
}

fn play(fixture: &CliFixture, script: &str, env: &[(&str, &str)]) -> crate::cli_fixture::CliOutput {
    let script = fixture.script(script);
    let mut command: Command =
        fixture.command(&["run", "--in-place", "--yes", "--script", &script, "PROMPT"]);
    command.envs(env.iter().copied());
    fixture.run_with(command, "")
}

/// The spans of requests or of lines, by name.
fn spans(texts: &[String]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for text in texts {
        let json: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        for span in json["resourceSpans"][0]["scopeSpans"][0]["spans"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let mut span = span.clone();
            let attributes = span["attributes"].take();
            for one in attributes.as_array().into_iter().flatten() {
                span[one["key"].as_str().unwrap()] = one["value"].clone();
            }
            all.insert(span["name"].as_str().unwrap().to_owned(), span);
        }
    }
    all
}

#[test]
fn without_a_setting_nothing_is_sent() {
    let fixture = CliFixture::new();
    let collector = collector(200);
    // The standard variables of OpenTelemetry alone do not enable it.
    let told = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("WINDLASS_OTEL_CONTENT", "true"),
    ];
    assert_eq!(play(&fixture, HELLO, &told).code, 0);
    let off = [
        ("WINDLASS_OTEL_ENDPOINT", collector.url.as_str()),
        ("WINDLASS_OTEL_ENABLED", "false"),
    ];
    assert_eq!(play(&fixture, HELLO, &off).code, 0);
    // An untrusted project cannot enable it.
    fixture.write(
        ".windlass/config.toml",
        &format!(
            "otel.endpoint = \"{}\"\notel.enabled = true\n",
            collector.url
        ),
    );
    let output = play(&fixture, HELLO, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.err.contains("`otel.endpoint` is ignored"),
        "{}",
        output.err
    );
    assert!(collector.requests().is_empty(), "something was sent");
}

#[test]
fn a_run_is_exported_and_the_log_yields_the_same_telemetry() {
    let fixture = CliFixture::new();
    let collector = collector(200);
    let env = [
        ("WINDLASS_OTEL_ENDPOINT", collector.url.as_str()),
        ("WINDLASS_OTEL_HEADERS", "x-key=COLLECTOR"),
        ("COLLECTOR", "s3cr3t-of-the-collector"),
        ("WINDLASS_OTEL_SERVICE_NAME", "mine"),
    ];
    let output = play(&fixture, WORK, &env);
    assert_eq!(output.code, 0, "{}", output.err);
    let requests: Vec<String> = taken(&collector);
    assert!(
        requests[0].starts_with("POST /v1/traces ") && requests[1].starts_with("POST /v1/metrics "),
        "{requests:?}"
    );
    assert!(
        requests
            .iter()
            .all(|request| request.contains("x-key: s3cr3t-of-the-collector"))
    );
    for word in ["PROMPT", "ANSWER", "WORDS"] {
        assert!(!requests.concat().contains(word), "{word} was sent");
    }
    assert!(requests[0].contains(r#"{"stringValue":"mine"}"#));
    let live = spans(&requests[..1]);
    let run = &live["invoke_agent windlass"];
    assert_eq!(run["traceId"], fixture.log().last().unwrap()["trace"]);
    for (name, span) in live
        .iter()
        .filter(|(name, _)| *name != "invoke_agent windlass")
    {
        assert_eq!(
            (&span["parentSpanId"], &span["traceId"]),
            (&run["spanId"], &run["traceId"]),
            "{name}"
        );
    }
    assert_eq!(run["gen_ai.usage.input_tokens"]["intValue"], "450");
    assert_eq!(
        live["execute_tool bash"]["gen_ai.tool.type"]["stringValue"],
        "function"
    );
    assert_eq!(
        live["chat scripted"]["gen_ai.provider.name"]["stringValue"],
        "scripted"
    );

    let id = id_of(&fixture.sessions()[0]);
    let lines = |args: &[&str]| {
        fixture
            .run(args)
            .out
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(spans(&lines(&["debug", "otel", &id])), live);
    let content = lines(&["debug", "otel", &id, "--content"]).concat();
    for word in ["PROMPT", "ANSWER", "WORDS"] {
        assert!(content.contains(word), "{word}");
    }
    assert!(!content.contains("s3cr3t"));
    assert_eq!(fixture.run(&["debug", "otel", "no-such-session"]).code, 2);
}

#[test]
fn a_paused_run_is_one_span_of_two_processes() {
    let fixture = CliFixture::new();
    let collector = collector(200);
    let script = fixture
        .script("[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch a\" } }]\n");
    let on = |args: &[&str]| {
        let mut command = fixture.command(args);
        command.env("WINDLASS_OTEL_ENDPOINT", &collector.url);
        fixture.run_with(command, "")
    };
    let paused = on(&[
        "run",
        "--in-place",
        "--approval",
        "ask",
        "--on-ask",
        "pause",
        "--script",
        &script,
        "go",
    ]);
    assert_eq!(paused.code, 5, "{}", paused.err);
    let first = spans(&taken(&collector));
    assert!(
        first.contains_key("chat scripted") && !first.contains_key("invoke_agent windlass"),
        "{first:?}"
    );
    let ask: Value = serde_json::from_str(&paused.out).unwrap();
    // The model continues after the answer.
    fixture.script(HELLO);
    let answered = on(&["answer", ask["id"].as_str().unwrap(), "yes"]);
    assert_eq!(answered.code, 0, "{}", answered.err);
    let second = spans(&taken(&collector));
    let run = &second["invoke_agent windlass"];
    assert_eq!(first["chat scripted"]["parentSpanId"], run["spanId"]);
    assert_eq!(first["chat scripted"]["traceId"], run["traceId"]);
    assert_eq!(second["execute_tool bash"]["parentSpanId"], run["spanId"]);
    let nanos = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    assert!(
        nanos(&run["startTimeUnixNano"]) <= nanos(&first["chat scripted"]["startTimeUnixNano"])
    );
}

#[test]
fn the_spans_of_a_dead_process_are_exported_by_the_next() {
    let fixture = CliFixture::new();
    assert_eq!(play(&fixture, WORK, &[]).code, 0);
    let log = fixture.sessions()[0].join("events.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let cut = text
        .lines()
        .position(|line| line.contains("\"call_finished\""))
        .unwrap();
    let whole: String = text
        .lines()
        .take(cut)
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&log, whole).unwrap();
    let collector = collector(200);
    let script = fixture.script(HELLO);
    let id = id_of(&fixture.sessions()[0]);
    let mut command = fixture.command(&["resume", "--script", &script, &id, "go on"]);
    command.env("WINDLASS_OTEL_ENDPOINT", &collector.url);
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}", output.err);
    let requests: Vec<String> = taken(&collector);
    let json: Value = serde_json::from_str(&requests[0][requests[0].find('{').unwrap()..]).unwrap();
    let told = json["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap()
        .iter();
    let told: Vec<(&str, &Value)> = told
        .map(|span| (span["name"].as_str().unwrap(), &span["status"]["message"]))
        .collect();
    let died = Value::from("interrupted");
    assert_eq!(
        told,
        [
            ("execute_tool bash", &died),
            ("invoke_agent windlass", &died),
            ("chat scripted", &Value::Null),
            ("invoke_agent windlass", &Value::Null)
        ]
    );
}

#[test]
fn an_unreachable_failing_or_slow_collector_causes_one_warning_and_no_failure() {
    let fixture = CliFixture::new();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let ill = collector(503);
    let asleep = TcpListener::bind("127.0.0.1:0").unwrap();
    let asleep_url = format!("http://{}", asleep.local_addr().unwrap());
    for (url, says) in [
        (format!("http://{closed}"), "refused the connection"),
        (ill.url.clone(), "HTTP 503"),
        (asleep_url, "did not answer within 2 s"),
        ("nonsense".to_owned(), "`otel.endpoint` is not an address"),
    ] {
        let began = Instant::now();
        let output = play(&fixture, HELLO, &[("WINDLASS_OTEL_ENDPOINT", url.as_str())]);
        assert_eq!(
            (output.code, output.out.as_str()),
            (0, "hello there\n"),
            "{url}: {}",
            output.err
        );
        assert_eq!(
            output.err.matches("telemetry").count(),
            1,
            "{url}: {}",
            output.err
        );
        assert!(output.err.contains(says), "{url}: {}", output.err);
        // Much more than the limit of two seconds, for a busy machine; the timeout of one request is ten seconds.
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{url}: {:?}",
            began.elapsed()
        );
    }
}
