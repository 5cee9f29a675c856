//! Which runtime works: what cannot be had is said before the first token, and less is done only where less will do.
//! Agents that are not ours are the conformance kit's business.

use crate::place::{Output, Place};

/// A proposal that fits the tree of [`project`].
const PROPOSAL: &str = r##"
[[step]]
text = '''{"summary": "two is loud", "files": [{"path": "a.txt", "operation": "update", "to": null, "patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"}], "tests": [], "risks": [], "read": []}'''
"##;

const ANSWER: &str = "[[step]]\ntext = \"an answer\"\n";

fn project() -> Place {
    let place = Place::new();
    place.write("a.txt", "one\ntwo\nthree\n");
    place
}

fn run(place: &Place, script: &str, more: &[&str]) -> Output {
    let script = place.script(script);
    place.run(&[&["run", "--script", script.as_str(), "go"], more].concat())
}

#[track_caller]
fn check_refused(settings: &[(&str, &str)], flags: &[&str], says: &str) {
    let place = project();
    for (key, value) in settings {
        let set = place.run(&["config", "set", key, value]);
        assert_eq!(set.code, 0, "{}", set.err);
    }
    let output = run(&place, ANSWER, flags);
    assert!(
        output.code == 2 && output.err.contains(says),
        "{}: {}",
        output.code,
        output.err
    );
    assert!(place.sessions().is_empty(), "nothing was begun");
}

#[test]
fn what_cannot_be_had_is_said_before_anything_begins() {
    check_refused(
        &[],
        &["--runtime", "claud-code"],
        "did you mean `claude-code`",
    );
    check_refused(&[], &["--runtime", "claude-code"], "not played by a script");
    check_refused(
        &[],
        &["--auth", "login"],
        "--auth is for agents that are not ours",
    );
    check_refused(
        &[("runtimes.claude_code.effort", "high")],
        &[],
        "did you mean `runtimes.claude-code`",
    );
    check_refused(
        &[("runtimes.native.effort", "high")],
        &[],
        "no runtime `native` that has options",
    );
    let schema = r#"{"type": "object"}"#;
    check_refused(
        &[],
        &["--runtime", "patch", "--json-schema", schema],
        "--json-schema has no place",
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
    let place = project();
    let output = run(&place, script, flags);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("a.txt"), text);
    let found = place
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
fn less_is_done_where_less_will_do_and_it_is_said() {
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
