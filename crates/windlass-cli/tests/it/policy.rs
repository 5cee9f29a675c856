//! `policy explain` and `policy test` with the real binary. They run no call.

use serde_json::Value;

use crate::cli_fixture::CliFixture;

#[test]
fn explain_shows_every_stage_of_a_call() {
    let fixture = CliFixture::new();
    fixture.write("src/a.rs", "");
    let shown = fixture.run(&["policy", "explain", "bash", "ls", "-la", "src"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let names: Vec<&str> = shown
        .out
        .lines()
        .map(|line| line[..16].trim())
        .filter(|name| !name.is_empty())
        .collect();
    let all = [
        "deny rules",
        "ask rules",
        "allow rules",
        "tool validation",
        "safety floor",
        "mode",
        "capability",
        "decision",
    ];
    assert_eq!(names, all, "{}", shown.out);
    assert!(shown.out.contains("read-only: ls -la src"), "{}", shown.out);
    assert!(
        shown
            .out
            .contains("decision         allow: the command is read-only (mode auto)"),
        "{}",
        shown.out
    );
}

#[test]
fn a_call_is_explained_as_json_in_any_mode() {
    let fixture = CliFixture::new();
    let explain = |args: &[&str], stdin: &str| -> Value {
        let mut all = vec!["policy", "explain", "--json"];
        all.extend_from_slice(args);
        let output = fixture.run_with(fixture.command(&all), stdin);
        assert_eq!(output.code, 0, "{}", output.err);
        serde_json::from_str::<Value>(&output.out).unwrap()["decision"].clone()
    };
    let decision = explain(
        &["--approval", "auto", "--sandbox", "full", "bash", "make"],
        "",
    );
    assert_eq!(
        (&decision["verdict"], &decision["rule"]),
        (&"ask".into(), &"mode auto".into())
    );
    // Sandboxed, the default of a run.
    let decision = explain(&["--approval", "auto", "bash", "make"], "");
    assert_eq!(decision["verdict"], "allow");
    let decision = explain(&["--approval", "plan", "bash", "-"], "make install\n");
    assert_eq!(decision["verdict"], "deny");
    let decision = explain(&["write_file", ".git/config"], "");
    assert_eq!(
        (&decision["verdict"], &decision["rule"]),
        (&"deny".into(), &"floor: git internals".into())
    );
    let decision = explain(&["Read", "{\"path\": \"/etc/hosts\"}"], "");
    assert_eq!(decision["verdict"], "allow");
    assert_eq!(fixture.run(&["policy", "explain", "bahs", "ls"]).code, 2);
    let settings = "approval = \"auto\"\n[sandbox]\nlevel = \"full\"\n";
    std::fs::create_dir_all(fixture.home().join(".config/windlass")).unwrap();
    std::fs::write(
        fixture.home().join(".config/windlass/config.toml"),
        settings,
    )
    .unwrap();
    assert_eq!(explain(&["bash", "make"], "")["verdict"], "ask");
    assert_eq!(
        explain(&["-s", "workspace-write", "bash", "make"], "")["verdict"],
        "allow"
    );
    let table = "[[case]]\ncommand = \"make\"\nexpect = \"ask\"\n[[case]]\ncommand = \"make\"\nsandboxed = true\nexpect = \"allow\"\n";
    fixture.write("policy.toml", table);
    let passed = fixture.run(&["policy", "test", "policy.toml"]);
    assert_eq!(passed.code, 0, "{}{}", passed.out, passed.err);
}

#[test]
fn arguments_may_be_json_for_every_tool_and_must_fit_its_schema() {
    let fixture = CliFixture::new();
    let check = |tool: &str, call: &str, says: &str| {
        let output = fixture.run_with(fixture.command(&["policy", "explain", tool, "-"]), call);
        assert_eq!(output.code, 0, "{}", output.err);
        assert!(output.out.contains(says), "{tool} {call}: {}", output.out);
    };
    check(
        "bash",
        "{\"command\": \"ls\"}",
        "decision         allow: the command is read-only (mode auto)",
    );
    check("bash", "{ ls; }", "{ ls; }");
    check("bash", "{\"comand\": \"ls\"}", "tool validation  deny: ");
    check(
        "bash",
        "{\"command\": 1}",
        "decision         deny: `command`: 1 is not of type \"string\" (tool validation)",
    );
    check(
        "read_file",
        "{\"path\": \"a\", \"paht\": 1}",
        "(tool validation)",
    );
    let output = fixture.run(&["policy", "explain", "read_file", "{\"path\": "]);
    assert_eq!(output.code, 2, "{}", output.out);
}

#[test]
fn a_call_that_is_too_long_is_an_error_and_not_judged_in_part() {
    let fixture = CliFixture::new();
    let command = fixture.command(&["policy", "explain", "bash", "-"]);
    let line = format!("echo {}; git push --force", "x".repeat(1 << 20));
    let output = fixture.run_with(command, &line);
    assert_eq!(output.code, 2, "{}", output.out);
    assert!(output.err.contains("longer than 1 MiB"), "{}", output.err);
}

#[test]
fn a_table_fails_if_a_decision_differs() {
    let fixture = CliFixture::new();
    let table = r#"
        approval = "ask"
        [rules]
        allow = ["bash(git *)", "write_file(tests/**)"]
        deny = ["bash(git push *)"]
        [[case]]
        command = "git fetch"
        expect = "allow"
        rule = "user rule bash(git *)"
        [[case]]
        command = "git -c core.pager=sh log"
        expect = "ask"
        [[case]]
        command = "git push origin main"
        expect = "deny"
        [[case]]
        tool = "write_file"
        args = { path = "tests/../../x", content = "" }
        expect = "deny"
        [[case]]
        tool = "write_file"
        args = { path = "tests/a.rs", content = "" }
        expect = "allow"
        [[case]]
        command = "make"
        approval = "auto"
        sandboxed = true
        expect = "allow"
    "#;
    fixture.write("policy.toml", table);
    let passed = fixture.run(&["policy", "test", "policy.toml"]);
    assert_eq!(
        (passed.code, passed.out.as_str()),
        (0, "6 cases, 0 failed\n"),
        "{}",
        passed.err
    );
    fixture.write(
        "policy.toml",
        &table.replace("deny = [\"bash(git push *)\"]", "deny = []"),
    );
    let failed = fixture.run(&["policy", "test", "policy.toml"]);
    let expect = "case 3: bash `git push origin main`: expected deny, got allow by user rule bash(git *)\n6 cases, 1 failed\n";
    assert_eq!((failed.code, failed.out.as_str()), (1, expect));
    for (bad, says) in [
        ("[[case]]\ncommand = \"ls\"\n", "missing field `expect`"),
        (
            "[[case]]\ncommand = \"ls\"\nexpect = \"maybe\"\n",
            "unknown variant `maybe`, expected one of `allow`, `ask`, `person`, `deny`",
        ),
        (
            "[[case]]\ncomand = \"ls\"\nexpect = \"ask\"\n",
            "unknown field `comand`",
        ),
        (
            "[[case]]\ncommand = \"ls\"\nexpect = \"ask\"\nsandboxed = \"yes\"\n",
            "expected a boolean",
        ),
        (
            "[rules]\nallow = [\"bash(\"]\n[[case]]\ncommand = \"ls\"\nexpect = \"ask\"\n",
            "is not a rule",
        ),
        ("", "has no [[case]]"),
    ] {
        fixture.write("policy.toml", bad);
        let output = fixture.run(&["policy", "test", "policy.toml"]);
        assert_eq!(output.code, 2, "{bad}");
        assert!(output.err.contains(says), "{}", output.err);
    }
}

/// Runs scripted calls and returns the verdict, rule and result text of each from the log.
fn play(fixture: &CliFixture, calls: &[(&str, Value)], more: &[&str]) -> Vec<(String, String)> {
    let step = |(name, args): &(&str, Value)| {
        let args: String = args
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key} = {value}, "))
            .collect();
        format!(
            "[[step]]\ncalls = [{{ name = \"{name}\", args = {{ {} }} }}]\n",
            args.trim_end_matches(", ")
        )
    };
    let script: String = calls.iter().map(step).collect::<String>() + "[[step]]\ntext = \"ok\"\n";
    let output = fixture.play(&script, more);
    assert_eq!(output.code, 0, "{}", output.err);
    let log = fixture.log();
    let of = |kind: &str| {
        log.iter()
            .filter(|event| event["kind"] == kind)
            .cloned()
            .collect::<Vec<_>>()
    };
    let started = log
        .iter()
        .filter(|event| event["kind"] == "call_started" || event["kind"] == "denied");
    let results = of("call_ended");
    let results = if results.is_empty() {
        of("call_finished")
    } else {
        results
    };
    let decided = started.map(|event| {
        format!(
            "{} {}",
            event["kind"].as_str().unwrap(),
            event["data"]["rule"].as_str().unwrap()
        )
    });
    decided
        .zip(results.iter().map(ToString::to_string))
        .collect()
}

#[test]
fn read_only_commands_run_in_ask_mode_and_every_decision_names_its_rule() {
    let fixture = CliFixture::new();
    fixture.write("src/a.rs", "fn main() {}\n");
    let bash = |line: &str| ("bash", serde_json::json!({ "command": line }));
    let calls = [
        bash("grep -rn main src | head -3"),
        bash("touch made"),
        bash("cat .env"),
    ];
    let said = play(&fixture, &calls, &["--on-ask", "deny"]);
    let rules: Vec<&str> = said.iter().map(|(rule, _)| rule.as_str()).collect();
    assert_eq!(
        rules,
        [
            "call_started mode ask",
            "denied mode ask",
            "denied floor: credentials"
        ]
    );
    assert!(!fixture.work().join("made").exists());
}

#[test]
fn no_tool_shows_files_that_a_rule_denies() {
    let fixture = CliFixture::new();
    fixture.write("private/plan.txt", "marker-of-a-secret\n");
    fixture.write("open.txt", "marker-of-all\n");
    fixture.write("half/plan.txt", "marker-of-a-secret\n");
    assert_eq!(
        fixture
            .run(&[
                "config",
                "set",
                "rules.deny",
                "read_file(private/),read_file(half/plan.txt)"
            ])
            .code,
        0
    );
    let calls = [
        (
            "read_file",
            serde_json::json!({ "path": "private/plan.txt" }),
        ),
        ("grep", serde_json::json!({ "pattern": "marker" })),
        ("find_files", serde_json::json!({ "pattern": "*.txt" })),
        ("list_directory", serde_json::json!({ "path": "." })),
        ("list_directory", serde_json::json!({ "path": "half" })),
        (
            "bash",
            serde_json::json!({ "command": "cat private/plan.txt" }),
        ),
        ("bash", serde_json::json!({ "command": "grep -r marker ." })),
        ("bash", serde_json::json!({ "command": "cat open.txt" })),
    ];
    let said = play(&fixture, &calls, &["--on-ask", "deny"]);
    let listed = |result: &str| result.contains("a rule keeps entries of this directory back");
    assert_eq!(said.iter().filter(|(_, result)| listed(result)).count(), 2);
    let log: String = fixture.log().iter().map(ToString::to_string).collect();
    assert!(!log.contains("marker-of-a-secret"), "{log}");
    assert!(log.contains("marker-of-all"));
}
