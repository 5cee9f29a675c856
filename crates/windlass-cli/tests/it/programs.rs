//! A tool of the user's own: described in the settings, called by the model, never missing without a word.

use crate::place::Place;

fn settings(place: &Place, text: &str) {
    let dir = place.home().join(".config/windlass");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), text).unwrap();
}

const GREET: &str = "[tools.greet]\ncommand = [\"sh\", \"-c\", \"read line; echo got $line\"]\neffect = \"read\"\n\
                     description = \"Greets.\"\nschema = '{\"type\":\"object\",\"properties\":{\"who\":{\"type\":\"string\"}},\"required\":[\"who\"]}'\n";

const CALL: &str = "[[step]]\ncalls = [{ name = \"greet\", args = { who = \"you\" } }]\n\
                    [[step]]\nexpect_new = 'got {\"who\":\"you\"}'\ntext = \"greeted\"\n";

#[test]
fn a_program_is_a_tool_and_asks_like_a_command() {
    let place = Place::new();
    settings(&place, GREET);
    assert!(
        place.run(&["tools"]).out.contains("greet"),
        "{}",
        place.run(&["tools"]).err
    );
    let output = place.play(CALL, &["--yes"]);
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "greeted\n"),
        "{}",
        output.err
    );
    // Without a yes it stops, although it says that it only reads.
    assert_eq!(place.play(CALL, &["--on-ask", "pause"]).code, 5);
    let script = CALL
        .replace("who = \"you\"", "whom = 1")
        .replace("got {\"who\":\"you\"}", "Error [invalid_arguments]");
    assert_eq!(place.play(&script, &["--yes"]).code, 0);
}

#[test]
fn a_call_that_does_not_run_is_shown_with_the_reason() {
    let place = Place::new();
    settings(&place, GREET);
    let output = place.play(
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
fn a_rule_about_it_means_the_same_to_every_command() {
    let place = Place::new();
    settings(&place, &format!("rules.deny = [\"greet\"]\n{GREET}"));
    let output = place.run(&["policy", "explain", "greet", "{\"who\": \"you\"}"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.out.contains("decision         deny: "),
        "{}",
        output.out
    );
    settings(&place, &format!("rules.deny = [\"greet(x*)\"]\n{GREET}"));
    let output = place.run(&["policy", "explain", "greet", "{}"]);
    assert!(
        output.out.contains("\"who\" is a required property"),
        "{}{}",
        output.out,
        output.err
    );
    assert_eq!(place.run(&["policy", "explain", "greet", "you"]).code, 2);
    let table = "[[case]]\ntool = \"greet\"\nargs = { who = \"you\" }\nexpect = \"ask\"\n";
    place.write("policy.toml", table);
    let output = place.run(&["policy", "test", "policy.toml"]);
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    let output = place.run(&["sandbox", "--", "true"]);
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn what_is_not_said_in_full_is_a_mistake() {
    let place = Place::new();
    let check = |text: &str, says: &[&str]| {
        settings(&place, text);
        let output = place.play(crate::place::HELLO, &[]);
        assert_eq!(output.code, 2, "{}", output.err);
        for part in says {
            assert!(output.err.contains(part), "{part}: {}", output.err);
        }
    };
    check(
        &GREET.replace("effect = \"read\"\n", ""),
        &["config.toml:2", "at worst", "add `effect ="],
    );
    check(
        &GREET.replace("\"read\"", "\"harmless\""),
        &["effect", "external"],
    );
    check("[tools.greet]\neffect = \"read\"\n", &["names no program"]);
    check(&GREET.replace("Greets.", ""), &["`description` is empty"]);
    check(
        &GREET.replace("{\"type\":\"object\"", "{\"type\":"),
        &["`schema` is not JSON"],
    );
    check(&GREET.replace("tools.greet", "tools.bash"), &["built-in"]);
    check(&format!("{GREET}timeout_s = 0\n"), &["`timeout_s`"]);
}

#[test]
fn a_project_brings_tools_only_when_it_is_trusted() {
    let place = Place::new();
    place.write(".windlass/config.toml", GREET);
    let output = place.run(&["tools"]);
    assert!(!output.out.contains("greet"), "{}", output.out);
    assert!(
        place
            .run(&["trust", "show"])
            .out
            .contains("RUNS         tools.greet.command")
    );
    assert_eq!(place.run(&["trust", "add", "--yes"]).code, 0);
    assert!(place.run(&["tools"]).out.contains("greet"));
}
