//! Profiles: they are enforced for every call, whatever else is allowed; plans are saved and implemented.

use crate::cli_fixture::CliFixture;

const TRIES: &str = r##"
[[step]]
calls = [
  { name = "write_file", args = { path = "new.txt", content = "x" } },
  { name = "bash", args = { command = "touch made.txt; echo tried" } },
]
[[step]]
text = "# The plan\n\n1. write new.txt"
"##;

fn run(fixture: &CliFixture, script: &str, more: &[&str]) -> crate::cli_fixture::CliOutput {
    let script = fixture.script(script);
    fixture.run(&[&["run", "--script", script.as_str(), "go"], more].concat())
}

#[test]
fn read_only_profiles_change_nothing_even_if_everything_is_allowed() {
    for profile in ["plan", "review"] {
        let fixture = CliFixture::new();
        fixture.write("a.txt", "one\n");
        let allow = "write_file(**),bash(*)";
        assert_eq!(
            fixture.run(&["config", "set", "rules.allow", allow]).code,
            0
        );
        let output = run(&fixture, TRIES, &["--profile", profile, "--yes"]);
        assert_eq!(output.code, 0, "{profile}: {}", output.err);
        assert!(
            !fixture.work().join("new.txt").exists() && !fixture.work().join("made.txt").exists(),
            "{profile}"
        );
        let results: Vec<String> = fixture
            .log()
            .iter()
            .filter(|event| event["kind"] == "call_finished")
            .map(|event| event["data"]["result"]["text"].as_str().unwrap().to_owned())
            .collect();
        assert!(
            results[0].starts_with("Error [unknown_tool]"),
            "{profile}: {results:?}"
        );
    }
}

#[test]
fn a_profile_is_not_loosened_by_flags_or_settings() {
    let fixture = CliFixture::new();
    for flags in [
        &["--approval", "auto"][..],
        &["--sandbox", "full"],
        &["--sandbox", "workspace-write"],
    ] {
        let output = run(&fixture, TRIES, &[&["--profile", "plan"], flags].concat());
        assert_eq!(output.code, 2, "{flags:?}: {}", output.err);
        assert!(
            output.err.contains("cannot be combined with the profile"),
            "{}",
            output.err
        );
    }
    let output = run(&fixture, TRIES, &["--profile", "paln"]);
    assert!(
        output.code == 2 && output.err.contains("did you mean `plan`"),
        "{}",
        output.err
    );
}

#[test]
fn a_plan_is_saved_and_another_run_starts_from_it() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let output = run(&fixture, TRIES, &["--profile", "plan"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let plans = fixture.home().join(".local/share/windlass/plans");
    let file = std::fs::read_dir(&plans)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "# The plan\n\n1. write new.txt\n"
    );
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    assert!(output.err.contains(&name), "{}", output.err);
    let script = "[[step]]\nexpect = \"1. write new.txt\"\ncalls = [{ name = \"write_file\", args = { path = \"new.txt\", content = \"x\" } }]\n[[step]]\ntext = \"done\"\n";
    for given in [name.as_str(), "last", file.to_str().unwrap()] {
        let script = fixture.script(script);
        let args = [
            "run",
            "--script",
            &script,
            "--profile",
            "implement",
            "--plan",
            given,
            "--validate",
            "none",
        ];
        let output = fixture.run(&args);
        assert_eq!(output.code, 0, "{given}: {}", output.err);
        assert_eq!(fixture.read("new.txt"), "x");
        std::fs::remove_file(fixture.work().join("new.txt")).unwrap();
    }
    let script = fixture.script(script);
    let output = fixture.run(&["run", "--script", &script, "--plan", "../../x"]);
    assert!(
        output.code == 2 && output.err.contains("there is no plan"),
        "{}",
        output.err
    );
}

#[test]
fn the_verify_profile_runs_commands_and_lands_nothing() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"cat a.txt; echo changed > a.txt\" } }]\n\
                  [[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n";
    let output = run(
        &fixture,
        script,
        &["--profile", "verify", "--validate", "none"],
    );
    assert_ne!(
        output.code, 0,
        "a changed source is not passed over: {}",
        output.err
    );
    assert_eq!(fixture.read("a.txt"), "one\n");
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"cat a.txt\" } }]\n[[step]]\ntext = \"it works\"\n";
    let output = run(
        &fixture,
        script,
        &["--profile", "verify", "--validate", "none"],
    );
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn the_verify_profile_protects_the_tree_from_every_command() {
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo changed > a.txt\" } }]\n\
                  [[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n";
    for args in [
        &["run", "--in-place", "--profile", "verify", "--yes", "go"][..],
        &["chat", "--profile", "verify", "--yes"],
        &["chat", "--profile", "verify", "--approval", "auto"],
        &["resume", "--profile", "verify", "--yes", "go"],
    ] {
        let fixture = CliFixture::new();
        fixture.write("a.txt", "one\n");
        assert_eq!(fixture.play(crate::cli_fixture::HELLO, &[]).code, 0);
        let script = fixture.script(script);
        let output = fixture.run_with(
            fixture.command(&[args, &["--script", &script]].concat()),
            "go\n",
        );
        assert_eq!(fixture.read("a.txt"), "one\n", "{args:?}: {}", output.err);
        assert_ne!(output.code, 0, "{args:?}: {}", output.err);
    }
}

#[test]
fn a_read_only_profile_also_restricts_tools_of_the_settings() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let settings = "[tools.tidy]\ncommand = [\"sh\", \"-c\", \"echo changed > a.txt\"]\neffect = \"read\"\ndescription = \"Tidies up.\"\n\
                    [profiles.plan]\ntools = [\"*\"]\nmode = \"full\"\napproval = \"auto\"\nsandbox = \"workspace-write\"\n";
    let config = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), settings).unwrap();
    let script = "[[step]]\ncalls = [{ name = \"tidy\", args = {} }, { name = \"python\", args = { code = \"open('a.txt','w').write('x')\" } }, \
                  { name = \"write_file\", args = { path = \"a.txt\", content = \"x\" } }]\n[[step]]\ntext = \"planned\"\n";
    for more in [
        &[][..],
        &["--yes"],
        &["--in-place"],
        &["--isolated", "--yes"],
    ] {
        let output = run(&fixture, script, &[&["--profile", "plan"], more].concat());
        assert_eq!(fixture.read("a.txt"), "one\n", "{more:?}: {}", output.err);
        assert_eq!(output.code, 0, "{more:?}: {}", output.err);
        let tried = fixture
            .log()
            .iter()
            .filter(|event| event["kind"] == "call_finished")
            .count();
        assert!(tried >= 3, "{more:?}: {}", output.err);
    }
}

#[test]
fn a_plan_is_saved_after_an_answered_question() {
    let fixture = CliFixture::new();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"red?\" } }]\n\
                  [[step]]\ntext = \"paint it red\"\n";
    let output = run(&fixture, script, &["--profile", "plan"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask: serde_json::Value = serde_json::from_str(output.out.lines().last().unwrap()).unwrap();
    let output = fixture.run(&["answer", ask["id"].as_str().unwrap(), "yes", "please"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let plans: Vec<_> = std::fs::read_dir(fixture.home().join(".local/share/windlass/plans"))
        .unwrap()
        .collect();
    assert_eq!(plans.len(), 1, "{}", output.err);
}
