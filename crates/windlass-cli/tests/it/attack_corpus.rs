//! Runs the corpus of attacks and everyday work with the real binary, and checks that the driver detects breaches.

use std::path::PathBuf;

use windlass_corpus::{Options, Report, Row, State, run};

use crate::cli_fixture::{BINARY, CliFixture, CliOutput};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../windlass-corpus/corpus");

/// Runs cases with the binary under test. `WINDLASS_CASE` names one.
pub(crate) fn drive(path: &str, ids: &[&str]) -> Report {
    let mut ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
    ids.extend(std::env::var("WINDLASS_CASE"));
    let options = Options {
        binary: BINARY.into(),
        paths: vec![path.into()],
        ids,
        jobs: 2,
        ..Options::default()
    };
    run(&options, &|row: &Row| eprintln!("{}", row.line())).unwrap()
}

#[test]
fn attacks_are_stopped_and_everyday_work_succeeds() {
    let report = drive(CORPUS, &[]);
    eprintln!("\n{}", report.summary());
    // Only a program missing on this machine may skip a case.
    let ours = |row: &&Row| {
        row.state == State::NotRun && row.why.iter().any(|why| why.contains("kernel sandbox"))
    };
    let failed = report
        .rows
        .iter()
        .filter(|row| row.state == State::Failed || ours(row));
    let failed: Vec<String> = failed.map(Row::line).collect();
    assert!(
        failed.is_empty(),
        "{} cases do not hold:\n{}",
        failed.len(),
        failed.join("\n")
    );
    let ran = report
        .rows
        .iter()
        .filter(|row| row.state == State::Passed)
        .count();
    assert!(
        ran > 320 || std::env::var_os("WINDLASS_CASE").is_some(),
        "only {ran} cases ran"
    );
}

/// A valid case; the argument overrides its fields.
fn case(id: &str, change: serde_json::Value) -> serde_json::Value {
    let mut case = serde_json::json!({
        "id": id, "category": "paths", "class": "x", "title": "x", "mode": "auto", "setup": [],
        "input": { "kind": "tool_call", "tool": "read", "args": { "path": "README.md" } },
        "expect": { "decision": "allow" }, "post": [{ "check": "no_prompt" }], "source": "x",
    });
    case.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    case
}

fn written(fixture: &CliFixture, lines: &[String]) -> PathBuf {
    fixture.write("cases.jsonl", &lines.join("\n"));
    fixture.work().join("cases.jsonl")
}

/// Each case is invalid in one way, and the row must name it.
#[track_caller]
fn check_breaches(breaches: &[(serde_json::Value, &str)]) {
    let fixture = CliFixture::new();
    let lines: Vec<String> = breaches
        .iter()
        .enumerate()
        .map(|(at, (change, _))| case(&format!("b-{at}"), change.clone()).to_string())
        .collect();
    let report = drive(written(&fixture, &lines).to_str().unwrap(), &[]);
    assert!(!report.passed());
    for (row, (change, says)) in report.rows.iter().zip(breaches) {
        assert_eq!(row.state, State::Failed, "{change}: {}", row.line());
        assert!(
            row.why.join("; ").contains(says),
            "{change}: {}",
            row.line()
        );
    }
}

#[test]
fn unknown_fields_and_values_of_a_case_are_failures() {
    use serde_json::json;
    check_breaches(&[
        (
            json!({ "post": [{ "check": "all_is_well" }] }),
            "`all_is_well` is not a check",
        ),
        (
            json!({ "setup": [{ "op": "levitate" }] }),
            "`levitate` is not a setup operation",
        ),
        (
            json!({ "post": [{ "check": "no_prompt", "unless": "tired" }] }),
            "`unless` is not a field of `no_prompt`",
        ),
        (
            json!({ "input": { "kind": "telepathy" } }),
            "`telepathy` is not a kind",
        ),
        (
            json!({ "rules": { "maybe": ["x"] } }),
            "`maybe` is not a rule",
        ),
        (
            json!({ "input": { "kind": "text", "where": "sky", "text": "x" } }),
            "`sky` is not a known source",
        ),
        (
            json!({ "input": { "kind": "resume", "log_edit": "eat" } }),
            "`eat` is not a known edit",
        ),
        (
            json!({ "input": { "kind": "stream", "format": "raw", "chunks": [], "shout": 1 } }),
            "`shout` is not a field of `stream`",
        ),
        (
            json!({ "setup": [{ "op": "file", "path": "/etc/x", "text": "x" }] }),
            "not in the scratch directory",
        ),
        (
            json!({ "setup": [{ "op": "file", "path": "../../../x", "text": "x" }] }),
            "not in the scratch directory",
        ),
        (
            json!({ "post": [{ "check": "output_lacks", "text": "x", "where": "dreams" }] }),
            "`dreams` is not a known source",
        ),
        (json!({ "mode": "yolo" }), "`yolo`"),
    ]);
}

#[test]
fn the_driver_sees_a_breach() {
    use serde_json::json;
    let write = |path: &str| json!({ "kind": "tool_call", "tool": "write", "args": { "path": path, "content": "pwned\n" } });
    let read =
        |path: &str| json!({ "kind": "tool_call", "tool": "read", "args": { "path": path } });
    let post = |post: serde_json::Value| json!([post]);
    let listen = json!([{ "op": "listen", "proto": "tcp" }]);
    let knock = json!({ "kind": "startup", "prompt": "hi", "base_url": "http://127.0.0.1:@PORT@" });
    let refused = json!({ "decision": "deny" });
    let http = |endpoint: &str, method: &str| json!({ "kind": "http", "endpoint": endpoint, "method": method, "headers": {}, "auth": "valid" });
    check_breaches(&[
        (
            json!({ "expect": { "decision": "deny" } }),
            "decision: allow, right is deny",
        ),
        (
            json!({ "input": read("no-such-file"), "category": "benign" }),
            "decision: deny, right is allow",
        ),
        (
            json!({ "input": write("new.txt"), "post": post(json!({ "check": "file_unchanged", "path": "new.txt" })) }),
            "was made",
        ),
        (
            json!({ "input": write("new.txt"), "post": post(json!({ "check": "file_absent", "path": "@WS@/new.txt" })) }),
            "is there",
        ),
        (
            json!({ "post": post(json!({ "check": "mode_equals", "path": "README.md", "mode": "0400" })) }),
            "has mode",
        ),
        (
            json!({ "setup": [{ "op": "symlink", "path": "l", "target": "README.md" }], "post": post(json!({ "check": "is_not_symlink", "path": "l" })) }),
            "is a symlink",
        ),
        (
            json!({ "setup": [{ "op": "symlink", "path": "l", "target": "README.md" }], "post": post(json!({ "check": "link_target_equals", "path": "l", "target": "x" })) }),
            "leads to",
        ),
        (
            json!({ "post": post(json!({ "check": "git_config_unchanged", "path": "@WS@" })) }),
            "was not a repository",
        ),
        (
            json!({ "post": post(json!({ "check": "stopped_by_guard" })) }),
            "the run ended with",
        ),
        (
            json!({ "post": post(json!({ "check": "output_tokens_booked_at_least", "tokens": 1_000_000 })) }),
            "tokens",
        ),
        (
            json!({
                "input": { "kind": "run", "steps": [{ "tool": "write", "args": { "path": "v", "content": "x" } }], "validate": ["true"] },
                "post": post(json!({ "check": "not_landed" })),
            }),
            "it landed",
        ),
        (
            json!({
                "input": { "kind": "run", "steps": [{ "tool": "write", "args": { "path": "v", "content": "x" } }], "validate": ["false"] },
                "expect": { "decision": "allow" }, "post": post(json!({ "check": "landed" })),
            }),
            "it did not land",
        ),
        (
            json!({ "post": post(json!({ "check": "http_status", "one_of": [200] })) }),
            "no request was sent over HTTP",
        ),
        (
            json!({ "post": post(json!({ "check": "file_exists", "path": "@OUT@/none" })) }),
            "is not there",
        ),
        (
            json!({ "post": post(json!({ "check": "file_equals", "path": "README.md", "text": "x" })) }),
            "holds",
        ),
        (
            json!({ "post": post(json!({ "check": "output_lacks", "text": "hello world", "where": "everything" })) }),
            "in everything",
        ),
        (
            json!({ "post": post(json!({ "check": "output_lacks", "text": "hello world", "where": "result" })) }),
            "in result",
        ),
        (
            json!({ "post": post(json!({ "check": "output_lacks", "text": "hello world", "where": "log" })) }),
            "in log",
        ),
        (
            json!({ "post": post(json!({ "check": "result_contains", "text": "goodbye" })) }),
            "the result is",
        ),
        (
            json!({ "post": post(json!({ "check": "approval_requested" })) }),
            "the user was not asked",
        ),
        (
            json!({ "post": post(json!({ "check": "not_executed" })) }),
            "a call was started",
        ),
        (
            json!({ "post": post(json!({ "check": "finishes_within_ms", "ms": 0 })) }),
            "finishes_within_ms",
        ),
        (
            json!({ "post": post(json!({ "check": "engine_rss_at_most", "bytes": 1 })) }),
            "MiB",
        ),
        (
            json!({ "post": post(json!({ "check": "no_connection", "proto": "tcp" })) }),
            "nothing listens",
        ),
        (
            json!({ "post": post(json!({ "check": "canary_alive" })) }),
            "there is no canary",
        ),
        (
            json!({ "post": post(json!({ "check": "mode_at_most", "path": "@WS@/README.md", "mode": "0400" })) }),
            "has mode",
        ),
        (
            json!({ "post": post(json!({ "check": "log_contains", "text": "goodbye" })) }),
            "no log has",
        ),
        (
            json!({ "input": { "kind": "startup", "prompt": "hi" }, "post": post(json!({ "check": "no_argv_contains", "text": "some-model" })) }),
            "arguments of a process contain it",
        ),
        (
            json!({ "input": { "kind": "text", "where": "model_text", "text": "nothing hidden" }, "post": post(json!({ "check": "approval_marks_invisible" })) }),
            "hides nothing",
        ),
        (
            json!({ "input": knock, "setup": listen, "expect": refused, "post": post(json!({ "check": "no_connection", "proto": "tcp" })) }),
            " came",
        ),
        (
            json!({ "input": knock, "setup": listen, "expect": refused, "post": post(json!({ "check": "no_header_at_listener", "name": "X-Api-Key" })) }),
            "was sent",
        ),
        (
            json!({ "category": "benign", "input": { "kind": "shell", "command": "true" }, "rules": { "allow": ["true"] }, "post": post(json!({ "check": "exit_code", "code": 7 })) }),
            "Some(0)",
        ),
        (
            json!({ "category": "benign", "input": { "kind": "shell", "command": "sleep 0.3" }, "rules": { "allow": ["sleep"] }, "post": post(json!({ "check": "process_peak_at_most", "count": 0 })) }),
            "at once",
        ),
        (
            json!({ "input": { "kind": "resume" }, "post": post(json!({ "check": "refuses_with_message" })) }),
            "exit 0",
        ),
        (
            json!({ "input": { "kind": "resume" }, "post": post(json!({ "check": "warning_shown" })) }),
            "warning_shown",
        ),
        (
            json!({ "input": { "kind": "argv", "argv": ["--version"] }, "expect": { "decision": "deny" } }),
            "decision: allow",
        ),
        (
            json!({ "input": http("list_sessions", "GET"), "expect": { "decision": "deny" } }),
            "decision: allow",
        ),
        (
            json!({ "input": http("list_sessions", "GET"), "post": post(json!({ "check": "http_status", "one_of": [403] })) }),
            "status 200",
        ),
        (
            json!({ "input": http("list_sessions", "GET"), "post": post(json!({ "check": "header_not", "name": "Content-Type", "one_of": ["application/json"] })) }),
            "status 200",
        ),
        (
            json!({ "input": http("create_session", "POST"), "post": post(json!({ "check": "no_session_created" })) }),
            "there is a session",
        ),
        (
            json!({ "input": http("listen_check", "POST"), "post": post(json!({ "check": "listens_only_on", "addresses": ["::1"] })) }),
            "it listens on",
        ),
    ]);
}

#[test]
fn hostile_commands_run_only_with_a_sandbox() {
    let fixture = CliFixture::new();
    let shell = serde_json::json!({ "input": { "kind": "shell", "command": "true" }, "expect": { "decision": "ask" } });
    let report = drive(
        written(&fixture, &[case("h-1", shell).to_string()])
            .to_str()
            .unwrap(),
        &[],
    );
    let walled = fixture.run(&["run", "--help"]).out.contains("--sandbox");
    assert_eq!(
        report.rows[0].state == State::NotRun,
        !walled,
        "{}",
        report.rows[0].line()
    );
}

/// Runs the command line of the driver on the binary under test.
fn attacks(args: &[&str]) -> CliOutput {
    let args: Vec<String> = ["--windlass", BINARY]
        .iter()
        .chain(args)
        .map(|&arg| arg.to_owned())
        .collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = windlass_corpus::command(&args, &mut out, &mut err);
    CliOutput {
        code: i32::from(code),
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
    }
}

#[test]
fn the_driver_prints_each_case_and_the_totals_and_sets_its_exit_code() {
    let fixture = CliFixture::new();
    let good = case("g-1", serde_json::json!({}));
    let pending = case(
        "g-2",
        serde_json::json!({ "input": { "kind": "mcp", "steps": [] } }),
    );
    let needs = case("g-3", serde_json::json!({ "needs": ["no-such-program"] }));
    let file = written(
        &fixture,
        &[good.to_string(), pending.to_string(), needs.to_string()],
    );
    let path = file.to_str().unwrap();
    let output = attacks(&[path]);
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    for line in [
        "g-1         passed   allow",
        "pending (1): g-2",
        "not run (1): g-3",
        "attacks stopped 1 of 1",
    ] {
        assert!(output.out.contains(line), "{line}:\n{}", output.out);
    }
    assert!(
        output.out.contains("needs no-such-program"),
        "{}",
        output.out
    );
    let output = attacks(&[path, "--json", "--id", "g-1"]);
    let rows: Vec<serde_json::Value> = output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["state"], &rows[1]["passed"]),
        (&"passed".into(), &true.into())
    );
    // If no case ran, that is not a success; if no case matched, that is a usage error.
    assert_eq!(attacks(&[path, "--id", "g-2"]).code, 1);
    assert_eq!(attacks(&["no/such/path"]).code, 2);
    for more in [["--id", "g-9"], ["--category", "pahts"]] {
        let output = attacks(&[path, more[0], more[1]]);
        let says = format!("no case matches {}; the categories are paths", more[1]);
        assert!(
            output.code == 2 && output.err.contains(&says),
            "{} {}",
            output.code,
            output.err
        );
    }
}
