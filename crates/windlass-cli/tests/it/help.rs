//! Snapshots of `--help`, so that reviews show changes of flags.

use crate::cli_fixture::CliFixture;

#[test]
fn help_is_as_reviewed() {
    let fixture = CliFixture::new();
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["attach", "--help"],
        &["sessions", "--help"],
        &["config", "--help"],
        &["demo", "--help"],
        &["policy", "--help"],
        &["policy", "explain", "--help"],
        &["policy", "test", "--help"],
        &["runtimes", "--help"],
        &["doctor", "--help"],
        &["init", "--help"],
        &["auth", "--help"],
        &["auth", "login", "--help"],
    ] {
        let output = fixture.run(args);
        assert_eq!(output.code, 0);
        let name = args
            .iter()
            .map(|word| word.trim_start_matches('-'))
            .collect::<Vec<_>>()
            .join("-");
        insta::assert_snapshot!(name, output.out);
    }
}

#[test]
fn read_only_commands_work_in_an_empty_home() {
    let fixture = CliFixture::new();
    for (args, says) in [
        (&["--version"][..], "windlass 0."),
        (&["tools"], "read_file"),
        (&["tools", "bash"], "\"command\""),
        (&["models"], "anthropic"),
        (&["models", "--prices"], "cache read"),
        (&["config", "keys"], "max_steps"),
        (&["config", "path"], "config.toml"),
        (&["completion", "bash"], "windlass"),
        (&["doctor"], "\nsandbox\n"),
        (&["doctor"], "no settings file"),
        (&["doctor", "--all"], "claude-code"),
        (&["doctor", "--json"], "\"findings\""),
        (&["sessions", "list"], ""),
    ] {
        let output = fixture.run(args);
        assert_eq!(output.code, 0, "{args:?}: {}", output.err);
        assert!(output.out.contains(says), "{args:?}: {}", output.out);
    }
    for line in fixture.run(&["tools", "--json"]).out.lines() {
        let spec: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(spec["schema"]["properties"].is_object(), "{line}");
    }
    let home = std::fs::read_dir(fixture.home()).unwrap().count();
    assert_eq!(home, 0, "looking writes nothing");
}

#[test]
fn settings_are_set_shown_with_their_origin_and_unset() {
    let fixture = CliFixture::new();
    assert_eq!(
        fixture
            .run(&["config", "set", "model", "ollama/qwen3"])
            .code,
        0
    );
    assert_eq!(
        fixture
            .run(&["config", "set", "rules.deny", "bash(rm *),web_fetch"])
            .code,
        0
    );
    let shown = fixture.run(&["config", "--origin"]).out;
    assert!(
        shown.contains("model = \"ollama/qwen3\"  # ") && shown.contains("config.toml:1"),
        "{shown}"
    );
    assert_eq!(
        fixture.run(&["config", "get", "model"]).out,
        "\"ollama/qwen3\"\n"
    );
    assert_eq!(fixture.run(&["config", "unset", "model"]).code, 0);
    assert_eq!(fixture.run(&["config", "get", "model"]).code, 1);
    assert_eq!(fixture.run(&["config", "get", "modle"]).code, 2);
}

#[test]
fn the_demo_fails_fixes_and_passes_in_an_empty_home() {
    let fixture = CliFixture::new();
    let output = fixture.run(&["demo"]);
    assert_eq!(output.code, 0, "{}", output.err);
    for says in [
        "FAIL: median 10 9 2",
        "Attempt 2: sending the failures back",
        "sort -n",
        "landed 1 file",
        "completed · 5 steps",
        "undone 1 file",
        "redone 1 file",
        "windlass replay",
        "sessions show",
    ] {
        assert!(
            output.err.contains(says),
            "{says:?} is not in\n{}",
            output.err
        );
    }
    let kinds: Vec<String> = fixture
        .log()
        .iter()
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        kinds.iter().filter(|kind| *kind == "file_changed").count(),
        2
    );
    assert!(
        kinds.ends_with(&["run_finished", "undone", "redone"].map(str::to_owned)),
        "{kinds:?}"
    );
}

const COMMANDS: &str = include_str!("../../../../docs/commands.md");

#[test]
fn the_docs_show_the_real_reason_of_the_question() {
    let fixture = CliFixture::new();
    let args = ["policy", "explain", "--json", "--in-place", "bash"];
    let explained = fixture.run(&[&args[..], &["cargo test -p parser"]].concat());
    let explained: serde_json::Value = serde_json::from_str(&explained.out).unwrap();
    let decision = &explained["decision"];
    let (reason, rule) = (&decision["reason"], &decision["rule"]);
    let because = format!(
        "  because: {} ({})\n",
        reason.as_str().unwrap(),
        rule.as_str().unwrap()
    );
    assert!(COMMANDS.contains(&because), "{because}");
}

#[test]
fn without_a_command_it_shows_the_first_steps() {
    let fixture = CliFixture::new();
    let output = fixture.run(&[]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("windlass demo"), "{}", output.out);
    assert!(output.out.lines().count() < 12, "{}", output.out);
    let wrong = fixture.run(&["sesions"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("'sessions'"), "{}", wrong.err);
}

#[test]
fn every_vendor_and_every_setting_is_documented() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let vendors = std::fs::read_to_string(format!("{docs}/vendors.md")).unwrap();
    for vendor in windlass::model::VENDORS {
        assert!(
            vendors.contains(&format!("| `{}` |", vendor.id)),
            "docs/vendors.md does not list {}",
            vendor.id
        );
    }
    let fixture = CliFixture::new();
    for line in fixture.run(&["config", "keys"]).out.lines() {
        let (name, doc) = line.split_once(' ').unwrap();
        assert!(doc.trim().len() > 10, "{name} has no description");
    }
}
