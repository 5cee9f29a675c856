//! The selection of the runtime: missing capabilities are reported before the first token, and `--fallback` uses a lesser
//! kind of work. The conformance kit tests foreign agents.

use crate::cli_fixture::{CliFixture, CliOutput};

/// A patch proposal for the tree of [`project`].
const PROPOSAL: &str = r##"
[[step]]
text = '''{"summary": "two is loud", "files": [{"path": "a.txt", "operation": "update", "to": null, "patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"}], "tests": [], "risks": [], "read": []}'''
"##;

const ANSWER: &str = "[[step]]\ntext = \"an answer\"\n";

fn project() -> CliFixture {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\ntwo\nthree\n");
    fixture
}

fn run(fixture: &CliFixture, script: &str, more: &[&str]) -> CliOutput {
    let script = fixture.script(script);
    fixture.run(&[&["run", "--script", script.as_str(), "go"], more].concat())
}

#[track_caller]
fn check_refused(settings: &[(&str, &str)], flags: &[&str], says: &str) {
    let fixture = project();
    for (key, value) in settings {
        let set = fixture.run(&["config", "set", key, value]);
        assert_eq!(set.code, 0, "{}", set.err);
    }
    let output = run(&fixture, ANSWER, flags);
    assert!(
        output.code == 2 && output.err.contains(says),
        "{}: {}",
        output.code,
        output.err
    );
    assert!(fixture.sessions().is_empty(), "nothing was begun");
}

#[test]
fn a_missing_capability_is_reported_before_the_run_starts() {
    check_refused(
        &[],
        &["--runtime", "claud-code"],
        "did you mean `claude-code`",
    );
    check_refused(
        &[],
        &["--runtime", "claude-code"],
        "works only with the built-in agent",
    );
    check_refused(
        &[],
        &["--auth", "login"],
        "`--auth` is only for foreign agents",
    );
    check_refused(
        &[("runtimes.claude_code.effort", "high")],
        &[],
        "did you mean `runtimes.claude-code`",
    );
    check_refused(
        &[("runtimes.native.effort", "high")],
        &[],
        "no runtime `native` with options",
    );
    let schema = r#"{"type": "object"}"#;
    check_refused(
        &[],
        &["--runtime", "patch", "--json-schema", schema],
        "cannot be used in patch mode",
    );
    let flags = ["--profile", "implement", "--runtime", "completion"];
    check_refused(
        &[],
        &flags,
        "missing:   native_tool_loop, filesystem_edit, shell",
    );
}

#[track_caller]
fn check_done(script: &str, flags: &[&str], fell: Option<&str>, text: &str) {
    let fixture = project();
    let output = run(&fixture, script, flags);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("a.txt"), text);
    let found = fixture
        .log()
        .into_iter()
        .find(|event| event["kind"] == "failed_over");
    assert_eq!(
        found
            .as_ref()
            .map(|event| event["data"]["to"].as_str().unwrap()),
        fell
    );
    assert_eq!(
        output.err.contains("instead of"),
        fell.is_some(),
        "{}",
        output.err
    );
}

#[test]
fn fallback_is_used_if_allowed_and_reported() {
    let (before, after) = ("one\ntwo\nthree\n", "one\nTWO\nthree\n");
    check_done(PROPOSAL, &["--runtime", "patch"], None, after);
    check_done(ANSWER, &["--runtime", "completion"], None, before);
    check_done(
        PROPOSAL,
        &[
            "--profile",
            "implement",
            "--runtime",
            "completion",
            "--fallback",
        ],
        Some("patch"),
        after,
    );
    check_done(
        ANSWER,
        &["--profile", "plan", "--runtime", "patch"],
        None,
        before,
    );
}
