//! Tools that the user defines in the settings: the model calls them, and errors in them are reported.

use crate::cli_fixture::CliFixture;

fn settings(fixture: &CliFixture, text: &str) {
    let dir = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

const GREET: &str = "[tools.greet]\ncommand = [\"sh\", \"-c\", \"read line; echo got $line\"]\neffect = \"read\"\n\
                     description = \"Greets.\"\nschema = '{\"type\":\"object\",\"properties\":{\"who\":{\"type\":\"string\"}},\"required\":[\"who\"]}'\n";

const CALL: &str = "[[step]]\ncalls = [{ name = \"greet\", args = { who = \"you\" } }]\n\
                    [[step]]\nexpect_new = 'got {\"who\":\"you\"}'\ntext = \"greeted\"\n";

#[test]
fn a_tool_of_the_settings_needs_approval_like_a_command() {
    let fixture = CliFixture::new();
    settings(&fixture, GREET);
    assert!(
        fixture.run(&["tools"]).out.contains("greet"),
        "{}",
        fixture.run(&["tools"]).err
    );
    let output = fixture.play(CALL, &["--yes"]);
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "greeted\n"),
        "{}",
        output.err
    );
    // Without approval the run pauses, although the tool declares that it only reads.
    assert_eq!(fixture.play(CALL, &["--on-ask", "pause"]).code, 5);
    let script = CALL
        .replace("who = \"you\"", "whom = 1")
        .replace("got {\"who\":\"you\"}", "Error [invalid_arguments]");
    assert_eq!(fixture.play(&script, &["--yes"]).code, 0);
}

#[test]
fn a_call_that_does_not_run_is_shown_with_the_reason() {
    let fixture = CliFixture::new();
    settings(&fixture, GREET);
    let output = fixture.play(
        &CALL.replace("got {\"who\":\"you\"}", ""),
        &["--on-ask", "deny"],
    );
    assert!(
        output
            .err
            .contains("› greet {\"who\":\"you\"}\n  not run: "),
        "{}",
        output.err
    );
}

#[test]
fn a_rule_about_a_tool_of_the_settings_applies_in_every_command() {
    let fixture = CliFixture::new();
    settings(&fixture, &format!("rules.deny = [\"greet\"]\n{GREET}"));
    let output = fixture.run(&["policy", "explain", "greet", "{\"who\": \"you\"}"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.out.contains("decision         deny: "),
        "{}",
        output.out
    );
    settings(&fixture, &format!("rules.deny = [\"greet(x*)\"]\n{GREET}"));
    let output = fixture.run(&["policy", "explain", "greet", "{}"]);
    assert!(
        output.out.contains("\"who\" is a required property"),
        "{}{}",
        output.out,
        output.err
    );
    assert_eq!(fixture.run(&["policy", "explain", "greet", "you"]).code, 2);
    let table = "[[case]]\ntool = \"greet\"\nargs = { who = \"you\" }\nexpect = \"ask\"\n";
    fixture.write("policy.toml", table);
    let output = fixture.run(&["policy", "test", "policy.toml"]);
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    let output = fixture.run(&["sandbox", "--", "true"]);
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn an_incomplete_tool_definition_is_an_error() {
    let fixture = CliFixture::new();
    let check = |text: &str, says: &[&str]| {
        settings(&fixture, text);
        let output = fixture.play(crate::cli_fixture::HELLO, &[]);
        assert_eq!(output.code, 2, "{}", output.err);
        for part in says {
            assert!(output.err.contains(part), "{part}: {}", output.err);
        }
    };
    check(
        &GREET.replace("effect = \"read\"\n", ""),
        &["config.toml:2", "`effect` is missing", "add `effect ="],
    );
    check(
        &GREET.replace("\"read\"", "\"harmless\""),
        &["effect", "external"],
    );
    check(
        "[tools.greet]\neffect = \"read\"\n",
        &["`command` is missing"],
    );
    check(&GREET.replace("Greets.", ""), &["`description` is empty"]);
    check(
        &GREET.replace("{\"type\":\"object\"", "{\"type\":"),
        &["`schema` is not JSON"],
    );
    check(&GREET.replace("tools.greet", "tools.bash"), &["built-in"]);
    check(&format!("{GREET}timeout_s = 0\n"), &["`timeout_s`"]);
}

#[test]
fn only_a_trusted_project_can_define_tools() {
    let fixture = CliFixture::new();
    fixture.write(".windlass/config.toml", GREET);
    let output = fixture.run(&["tools"]);
    assert!(!output.out.contains("greet"), "{}", output.out);
    assert!(
        fixture
            .run(&["trust", "show"])
            .out
            .contains("RUNS         tools.greet.command")
    );
    assert_eq!(fixture.run(&["trust", "add", "--yes"]).code, 0);
    assert!(fixture.run(&["tools"]).out.contains("greet"));
}
